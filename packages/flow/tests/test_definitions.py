"""Definition errors are raised when the Flow is built and name the culprit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Generic, TypeVar

import msgspec
import pytest

from dex_flow import (
    ActivityStep,
    Attribute,
    AttributeMap,
    Channel,
    ChannelMap,
    Declaration,
    DefinitionError,
    DexFlowError,
    Flow,
    InlineStep,
    Retry,
    Rpc,
    RpcResult,
    Step,
    StepOptions,
    Stream,
    UndeclaredNameError,
    UnknownRpcError,
    dead_end,
)

from .kernel_driver import activity, inline

Label = TypeVar("Label")
Item = TypeVar("Item")


class Described(InlineStep[Item], Generic[Label, Item]):
    """A generic base whose parameters come in another order."""


class Unstorable:
    """Nothing that msgspec can decode."""


def build(*steps: Any, start: Any = None, declarations: Any = (), rpcs: Any = (), flow_type: Any = "Orders") -> Flow:
    steps = steps or (inline("Start"),)
    start_step = start if start is not None else steps[0].step_type
    return Flow(flow_type, steps=steps, start_step=start_step, declarations=declarations, rpcs=rpcs)


def rpc(name: str, input_type: Any = int, output_type: Any = int) -> Rpc[Any, Any]:
    return Rpc(name, lambda tx, value: value, input_type, output_type)


def test_a_definition_error_is_a_value_error_of_this_package() -> None:
    assert issubclass(DefinitionError, DexFlowError)
    assert issubclass(DefinitionError, ValueError)


@pytest.mark.parametrize("flow_type", ["", None, 7])
def test_a_flow_type_is_text(flow_type: Any) -> None:
    with pytest.raises(DefinitionError, match=f"flow type must be non-empty text, not {flow_type!r}"):
        build(flow_type=flow_type)


# Steps


def test_two_steps_of_one_name() -> None:
    with pytest.raises(DefinitionError, match="'Orders': two steps are named 'Pay'"):
        build(inline("Start"), inline("Pay"), activity("Pay"))


def test_a_start_step_that_is_not_declared() -> None:
    with pytest.raises(DefinitionError, match="start step 'Begin' is not one of its steps"):
        build(inline("Start"), start="Begin")


@pytest.mark.parametrize("step", [type(inline("Start")), Step(), "Start", None])
def test_something_that_is_not_a_step(step: Any) -> None:
    with pytest.raises(DefinitionError, match="neither an InlineStep nor an ActivityStep"):
        build(inline("Start"), step, start="Start")


def test_an_unknown_failure_route() -> None:
    with pytest.raises(DefinitionError, match="step 'Pay' routes failures to unknown 'Refund'"):
        build(activity("Pay", options=StepOptions(failure_route="Refund")))


def test_a_failure_route_of_another_input_type() -> None:
    with pytest.raises(DefinitionError, match="step 'Pay' routes failures to 'Refund', which takes another input type"):
        build(
            activity("Pay", input_type=int, options=StepOptions(failure_route="Refund")),
            inline("Refund", input_type=str),
        )


def test_an_unknown_next_step() -> None:
    with pytest.raises(DefinitionError, match="step 'Start' names unknown next step 'Nowhere'"):
        build(inline("Start", next_steps=("Start", "Nowhere")))


def test_an_input_type_that_cannot_be_stored() -> None:
    with pytest.raises(DefinitionError, match="step 'Pay' has an input type that cannot be stored"):
        build(inline("Pay", input_type=Unstorable | int | type))


def test_an_outcome_type_that_cannot_be_stored() -> None:
    with pytest.raises(DefinitionError, match="step 'Pay' has an outcome type that cannot be stored"):
        build(activity("Pay", outcome_type=dict[int, Unstorable] | list[int] | tuple[int, ...]))


def test_types_of_a_step_come_from_its_bases() -> None:
    class Pay(ActivityStep[int, str, bool]):
        pass

    class PayLater(Pay):
        step_type = "Deferred"

    class Concrete(Described[str, list[int]]):
        pass

    assert (Pay.step_type, Pay.input_type, Pay.outcome_type) == ("Pay", int, bool)
    assert (PayLater.step_type, PayLater.input_type, PayLater.outcome_type) == ("Deferred", int, bool)
    assert Concrete.input_type == list[int]


def test_methods_that_a_step_must_define() -> None:
    class Empty(ActivityStep[None, None, None]):
        pass

    class EmptyInline(InlineStep[None]):
        pass

    view: Any = None
    with pytest.raises(NotImplementedError, match="Empty must define load"):
        Empty().load(view, None)
    with pytest.raises(NotImplementedError, match="Empty must define commit"):
        Empty().commit(view, None, None)
    with pytest.raises(NotImplementedError, match="EmptyInline must define execute"):
        EmptyInline().execute(view, None)


# Declarations


@pytest.mark.parametrize("name", ["", None, 7])
@pytest.mark.parametrize("kind", [Attribute, AttributeMap, Channel, ChannelMap, Stream])
def test_a_durable_name_is_text(kind: Any, name: Any) -> None:
    with pytest.raises(DefinitionError, match=f"durable name must be non-empty text, not {name!r}"):
        kind(name, int)


@pytest.mark.parametrize("other", [Attribute("orders", str), Channel("orders", int), Stream("orders", int)])
def test_two_declarations_of_one_name(other: Any) -> None:
    with pytest.raises(DefinitionError, match="two declarations are named 'orders'"):
        build(declarations=[AttributeMap("orders", int), other])


@pytest.mark.parametrize("declaration", [Declaration("orders", int), "orders", Attribute])
def test_something_that_is_not_a_declaration(declaration: Any) -> None:
    with pytest.raises(DefinitionError, match="is not a declaration"):
        build(declarations=[declaration])


def test_a_value_type_that_cannot_be_stored() -> None:
    with pytest.raises(DefinitionError, match=r"Attribute\('orders'\) has a value type that cannot be stored: "):
        build(declarations=[Attribute("orders", dict[str, int] | Unstorable | msgspec.Struct)])


def test_a_stream_needs_room() -> None:
    with pytest.raises(DefinitionError, match="'events' needs a capacity of at least 1 byte, not 0"):
        Stream("events", str, capacity_bytes=0)


# RPCs


def test_two_rpcs_of_one_name() -> None:
    with pytest.raises(DefinitionError, match="two RPCs are named 'send'"):
        build(rpcs=[rpc("send"), rpc("send")])


def test_an_rpc_without_a_name() -> None:
    with pytest.raises(DefinitionError, match="the name is empty"):
        build(rpcs=[rpc("")])


def test_something_that_is_not_an_rpc() -> None:
    with pytest.raises(DefinitionError, match="'send' is not an Rpc"):
        build(rpcs=["send"])


@pytest.mark.parametrize(
    ("types", "which"), [((Unstorable | int | type, int), "input"), ((int, Unstorable | int | type), "output")]
)
def test_an_rpc_type_that_cannot_be_stored(types: tuple[Any, Any], which: str) -> None:
    with pytest.raises(DefinitionError, match=f"RPC 'send' has an {which} type that cannot be stored"):
        build(rpcs=[rpc("send", *types)])


# Options


@pytest.mark.parametrize("attempts", [0, -1])
def test_attempts_are_positive(attempts: int) -> None:
    with pytest.raises(DefinitionError, match=f"at least 1, not {attempts}"):
        Retry(attempts=attempts)


@pytest.mark.parametrize(
    "backoff",
    [{"backoff": timedelta(seconds=-1)}, {"backoff": timedelta(seconds=9), "backoff_cap": timedelta(seconds=5)}],
)
def test_a_backoff_is_not_negative_and_below_its_cap(backoff: Any) -> None:
    with pytest.raises(DefinitionError, match="backoff"):
        Retry(**backoff)


# Look-ups


def test_a_built_flow_finds_its_parts() -> None:
    start, send, orders = inline("Start"), rpc("send"), Stream[int]("orders", int)
    flow = build(start, rpcs=[send], declarations=[orders])
    assert flow.step("Start") is start
    assert flow.rpc("send") is send
    assert flow.streams == {"orders": orders}
    assert repr(flow) == "Flow('Orders')"
    with pytest.raises(UndeclaredNameError, match="flow 'Orders' has no step 'Nope'"):
        flow.step("Nope")
    with pytest.raises(UnknownRpcError, match="flow 'Orders' has no RPC 'nope'"):
        flow.rpc("nope")


def test_the_fingerprint_changes_with_the_type_and_the_compatibility_only() -> None:
    def fingerprint(flow_type: str = "Orders", compatibility: int = 1, *more: Any) -> str:
        return Flow(
            flow_type, steps=[inline("Start"), *more], start_step="Start", compatibility=compatibility
        ).fingerprint

    assert fingerprint() == fingerprint("Orders", 1, inline("Added later"))
    assert fingerprint() != fingerprint("Orders", 2)
    assert fingerprint() != fingerprint("Refunds")


def test_calls_and_their_results_can_be_built_with_their_type_arguments() -> None:
    call = Rpc[int, int]("double", lambda tx, number: 2 * number, int, int)
    assert call.handler(None, 2) == 4
    assert RpcResult[int](4, dead_end()).output == 4
