"""Definition errors are raised when the Flow is built and name the culprit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial, wraps
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar

import msgspec
import pytest

from dex_flow import (
    ActivityStep,
    Attribute,
    AttributeMap,
    Channel,
    ChannelMap,
    Decision,
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


class Holder(msgspec.Struct):
    held: Unstorable


class Tree(msgspec.Struct):
    children: list[Tree]
    leaf: Unstorable | None = None


class Forest(msgspec.Struct):
    trees: dict[str, Forest]
    parent: Forest | None = None


@dataclass
class HolderClass:
    held: list[Unstorable]


class HolderTuple(NamedTuple):
    held: Unstorable


class HolderMapping(TypedDict):
    held: Unstorable


class Box(msgspec.Struct, Generic[Item]):
    item: Item


class Labelled(msgspec.Struct):
    labels: frozenset[str] = frozenset()


class Undefined(msgspec.Struct):
    held: Nowhere  # type: ignore[name-defined]  # noqa: F821


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


@pytest.mark.parametrize(
    ("value_type", "reason"),
    [
        (Unstorable, "Unstorable'> is a plain class"),
        (object, "'object'> is a plain class"),
        (list[Unstorable], "Unstorable'> is a plain class"),
        (tuple[int, Unstorable], "Unstorable'> is a plain class"),
        (tuple[Unstorable, ...], "Unstorable'> is a plain class"),
        (dict[str, list[Unstorable]], "Unstorable'> is a plain class"),
        (Unstorable | None, "Unstorable'> is a plain class"),
        (Unstorable | int, "Type unions containing a custom type"),
        (Holder, "Holder.held: .*Unstorable'> is a plain class"),
        (list[Holder | None], "Holder.held: .*Unstorable'> is a plain class"),
        (Tree, "Tree.leaf: .*Unstorable'> is a plain class"),
        (HolderClass, "HolderClass.held: .*Unstorable'> is a plain class"),
        (HolderTuple, "HolderTuple.held: .*Unstorable'> is a plain class"),
        (HolderMapping, "HolderMapping.held: .*Unstorable'> is a plain class"),
        (Box[Unstorable], "Box.*item: .*Unstorable'> is a plain class"),
        (tuple[Box[int], Box[Unstorable]], "Box.*item: .*Unstorable'> is a plain class"),
        (Callable[[int], int], "is a plain class"),
        (Annotated[list[Unstorable], msgspec.Meta(extra={"note": 1})], "is a plain class"),
        (complex, "is a plain class"),
        (msgspec.msgpack.Ext, "has no JSON form"),
        (dict[tuple[int, int], str], "the keys of a dict"),
        (dict[bool, str], "the keys of a dict"),
        (set[str], "a set has no order"),
        (dict[str, frozenset[int]], "a set has no order"),
        (Labelled, "Labelled.labels: a set has no order"),
        ("Undefined", "is not supported"),
        (Undefined, "Nowhere"),
    ],
)
def test_types_are_looked_at_to_the_bottom(value_type: Any, reason: str) -> None:
    with pytest.raises(DefinitionError, match=rf"Attribute\('orders'\) has a value type that cannot .*{reason}"):
        build(declarations=[Attribute("orders", value_type)])
    with pytest.raises(DefinitionError, match=f"step 'Pay' has an outcome type that cannot .*{reason}"):
        build(activity("Pay", outcome_type=value_type))


@pytest.mark.parametrize(
    "value_type",
    [
        Any,
        None,
        msgspec.Raw,
        bytes,
        timedelta,
        dict[int, list[tuple[str, int]]],
        dict[Any, Any],
        Forest,
        Forest | list[Forest] | None,
        Box[int],
        Literal["a", "b"],
        Annotated[int, msgspec.Meta(ge=0)],
        int | str | None,
    ],
)
def test_types_that_can_be_stored(value_type: Any) -> None:
    build(declarations=[Attribute("orders", value_type)])


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


def test_a_type_that_a_class_says_wins_over_the_type_argument_of_its_base() -> None:
    class Pay(ActivityStep[Any, Any, Any]):
        input_type = int
        outcome_type = str

    class PayLater(Pay):
        pass

    class Collect(Described[str, Any]):
        input_type = dict[str, int]

    class Rebound(Described[str, Item], Generic[Item]):
        input_type = bytes

    class Concrete(Rebound[int]):
        pass

    assert (Pay.input_type, Pay.outcome_type) == (int, str)
    assert (PayLater.input_type, PayLater.outcome_type) == (int, str)
    assert Collect.input_type == dict[str, int]
    assert Concrete.input_type is bytes


class Complete(ActivityStep[None, None, None]):
    def load(self, view: Any, input: None) -> None: ...

    async def run(self, activity: Any, snapshot: None) -> None: ...

    def commit(self, tx: Any, input: None, outcome: None) -> Decision:
        return dead_end()


class CompleteInline(InlineStep[None]):
    def execute(self, tx: Any, input: None) -> Decision:
        return dead_end()


async def awaiting(*arguments: Any) -> Any: ...


def generating(*arguments: Any) -> Any:
    yield


async def generating_later(*arguments: Any) -> Any:
    yield


@pytest.mark.parametrize("missing", ["load", "run", "commit"])
def test_an_activity_step_without_a_method_it_needs(missing: str) -> None:
    step = type("Pay", (Complete,), {missing: getattr(ActivityStep, missing)})()
    with pytest.raises(DefinitionError, match=f"step 'Pay' must define {missing}"):
        build(step)


def test_an_inline_step_without_execute() -> None:
    class Pay(InlineStep[None]):
        pass

    with pytest.raises(DefinitionError, match="step 'Pay' must define execute"):
        build(Pay())


@pytest.mark.parametrize("code", [awaiting, generating, generating_later])
@pytest.mark.parametrize(
    ("base", "method"),
    [
        (CompleteInline, "wait_for"),
        (CompleteInline, "execute"),
        (Complete, "wait_for"),
        (Complete, "before_run"),
        (Complete, "load"),
        (Complete, "commit"),
        (Complete, "on_attempt_failed"),
    ],
)
def test_pure_code_of_a_step_is_synchronous(base: Any, method: str, code: Any) -> None:
    step = type("Pay", (base,), {method: code})()
    with pytest.raises(DefinitionError, match=f"step 'Pay' defines {method} with 'async def' or 'yield'"):
        build(step)


def test_run_is_a_coroutine() -> None:
    def run(*arguments: Any) -> None: ...

    @wraps(awaiting)
    def decorated(*arguments: Any) -> Any:
        return awaiting(*arguments)

    with pytest.raises(DefinitionError, match="step 'Pay' defines run as a plain method; make it 'async def'"):
        build(type("Pay", (Complete,), {"run": run})())
    build(type("Pay", (Complete,), {"run": decorated})())
    build(type("Pay", (Complete,), {"run": awaiting})())


class AwaitingCallable:
    async def __call__(self, tx: Any, value: Any) -> Any: ...


@pytest.mark.parametrize("handler", [awaiting, partial(awaiting, 1), generating, AwaitingCallable()])
def test_the_handler_of_an_rpc_is_synchronous(handler: Any) -> None:
    with pytest.raises(DefinitionError, match="handler of RPC 'send' must be a plain function"):
        build(rpcs=[Rpc("send", handler, int, int)])


def test_the_handler_of_an_rpc_can_be_called() -> None:
    handler: Any = None
    with pytest.raises(DefinitionError, match="handler of RPC 'send' cannot be called"):
        build(rpcs=[Rpc("send", handler, int, int)])


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


@pytest.mark.parametrize("option", ["attempt_timeout", "heartbeat_timeout", "start_timeout"])
def test_an_inline_step_takes_no_time(option: str) -> None:
    options = StepOptions(**{option: timedelta(seconds=1)})  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match=f"step 'Pay' is an InlineStep and can have no {option}"):
        build(inline("Pay", options=options))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Retry(attempts="3"), "Retry.attempts must be a number of at least 1, not '3'"),  # type: ignore[arg-type]
        (lambda: Retry(attempts=True), "Retry.attempts must be a number of at least 1, not True"),
        (lambda: Retry(window=60), "Retry.window must be a timedelta"),  # type: ignore[arg-type]
        (lambda: Retry(window=timedelta(seconds=-1)), "Retry.window must be a timedelta that is not negative"),
        (lambda: Retry(backoff=1), "Retry.backoff must be a timedelta, not 1"),  # type: ignore[arg-type]
        (lambda: Retry(backoff_cap=None), "Retry.backoff_cap must be a timedelta, not None"),  # type: ignore[arg-type]
        (lambda: StepOptions(attempt_timeout=5), "attempt_timeout must be a timedelta"),  # type: ignore[arg-type]
        (lambda: StepOptions(heartbeat_timeout=0.5), "heartbeat_timeout must be a timedelta"),  # type: ignore[arg-type]
        (lambda: StepOptions(start_timeout=timedelta(-1)), "start_timeout must be a timedelta that is not negative"),
        (lambda: StepOptions(retry=3), "StepOptions.retry must be a Retry, not 3"),  # type: ignore[arg-type]
        (lambda: StepOptions(failure_route=Step), "failure_route must be a Step type name"),  # type: ignore[arg-type]
    ],
)
def test_options_of_a_wrong_type(wrong: Callable[[], Any], said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        wrong()


@pytest.mark.parametrize("options", [StepOptions, Retry])
def test_an_option_that_does_not_exist(options: Any) -> None:
    with pytest.raises(TypeError, match="Unexpected keyword argument 'atempts'"):
        options(atempts=3)


def test_options_that_are_none() -> None:
    options: Any = {"attempt_timeout": 3}
    with pytest.raises(
        DefinitionError, match=r"step 'Pay' has options that are no StepOptions: {'attempt_timeout': 3}"
    ):
        build(inline("Pay", options=options))


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
