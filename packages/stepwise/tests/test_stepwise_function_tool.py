"""Function tools: how they are made, what they receive, and what becomes of their results."""

from __future__ import annotations

import asyncio
import datetime
import functools
import threading
from typing import Any

import pytest

from dex_agents import ToolEffect, ToolExecutionError, ToolExecutionResult, ToolInputRequested
from dex_agents_stepwise import FunctionTool, ToolCallContext, function_tool

from .stepwise_session_driver import RecordedEvents, tool_call, tool_execution


def run(tool: FunctionTool[..., Any], arguments: str = "{}", **fields: Any) -> str:
    outcome = asyncio.run(tool.execute(tool_execution(tool_call(tool.name, arguments), **fields)))
    assert isinstance(outcome, ToolExecutionResult)
    return outcome.output


def test_decorator_and_call_form_make_the_same_tool() -> None:
    @function_tool(effect="read")
    def lookup_order(order_id: int) -> dict[str, int]:
        """Look up an order."""
        return {"order_id": order_id}

    @function_tool
    async def plain(order_id: int) -> str:
        return f"order {order_id}"

    def refund(order_id: int) -> str:
        """Refund an order."""
        return f"refunded {order_id}"

    made = function_tool(
        refund,
        name="refund-order",
        description="Pays back.",
        effect=ToolEffect.NON_IDEMPOTENT_WRITE,
        requires_approval=False,
    )

    assert (lookup_order.name, lookup_order.description) == ("lookup_order", "Look up an order.")
    assert lookup_order.effect is ToolEffect.READ
    assert lookup_order.requires_approval is None
    assert lookup_order.parameters["properties"] == {"order_id": {"type": "integer"}}
    assert run(lookup_order, '{"order_id": 7}') == '{"order_id": 7}'
    assert plain.effect is None
    assert run(plain, '{"order_id": 7}') == "order 7"
    assert (made.name, made.description, made.requires_approval) == ("refund-order", "Pays back.", False)
    assert run(made, '{"order_id": 7}') == "refunded 7"


def test_a_tool_can_be_called_like_its_function() -> None:
    @function_tool
    def add(a: int, b: int, context: ToolCallContext) -> str:
        return f"{a + b} {context.idempotency_key} {context.attempt}"

    assert add(1, 2, ToolCallContext(idempotency_key="key")) == "3 key 1"
    assert list(add.parameters["properties"]) == ["a", "b"]


def test_no_argument_name_is_taken() -> None:
    @function_tool
    def odd(finish: int, function: int, args: int, kwargs: int, execution: int) -> int:
        return finish + function + args + kwargs + execution

    @function_tool
    async def odd_async(finish: int, self: int) -> int:
        return finish + self

    assert run(odd, '{"finish": 1, "function": 2, "args": 3, "kwargs": 4, "execution": 5}') == "15"
    assert run(odd_async, '{"finish": 1, "self": 2}') == "3"


def test_sync_tools_run_off_the_event_loop_and_async_tools_on_it() -> None:
    threads: list[int] = []

    @function_tool
    def in_thread() -> None:
        threads.append(threading.get_ident())

    @function_tool
    async def on_loop() -> None:
        threads.append(threading.get_ident())

    run(in_thread)
    run(on_loop)
    assert threads[0] != threading.get_ident()
    assert threads[1] == threading.get_ident()


def test_the_context_carries_the_call() -> None:
    saved: list[str] = []
    beats: list[int] = []

    async def save(text: str) -> None:
        saved.append(text)

    def beat() -> None:
        beats.append(1)

    seen: list[ToolCallContext] = []

    @function_tool
    async def asynchronous(context: ToolCallContext) -> str:
        seen.append(context)
        context.events.write_event("progress", {"done": 1})
        context.heartbeat()
        await context.save_heartbeat_checkpoint("from the loop")
        return "done"

    @function_tool
    def synchronous(context: ToolCallContext | None = None) -> str:
        assert context is not None
        seen.append(context)
        context.heartbeat()
        context.save_heartbeat_checkpoint_from_thread("from a thread")
        return "done"

    for tool in (asynchronous, synchronous):
        events = RecordedEvents()
        execution = tool_execution(
            tool_call(tool.name, tool_call_id="c9", input_continuation="page 2"),
            attempt=2,
            events=events,
            heartbeat=beat,
            save_heartbeat_checkpoint=save,
            heartbeat_checkpoint="earlier",
        )
        asyncio.run(tool.execute(execution))
        context = seen[-1]
        assert context.idempotency_key == execution.idempotency_key
        assert (context.attempt, context.flow_id, context.turn_id) == (2, "session", "turn-1")
        assert (context.tool_call_id, context.heartbeat_checkpoint) == ("c9", "earlier")
        assert context.input_continuation == "page 2"
        assert tool.parameters["properties"] == {}
    assert saved == ["from the loop", "from a thread"]
    assert beats == [1, 1]


def test_given_parameters_pass_one_dict() -> None:
    schema = {"type": "object", "properties": {"order-id": {"type": "string"}}, "required": ["order-id"]}

    @function_tool(parameters=schema)
    def refund(arguments: dict[str, Any], context: ToolCallContext) -> Any:
        return [arguments, context.attempt]

    assert run(refund, '{"order-id": "7", "more": null}') == '[{"order-id": "7", "more": null}, 1]'
    with pytest.raises(ToolExecutionError, match=r"refund was not run: .*'order-id' is a required property"):
        run(refund, "{}")


def test_a_person_can_have_changed_the_arguments() -> None:
    @function_tool
    def refund(order_id: int) -> int:
        return order_id

    call = tool_call("refund", '{"order_id": 7}', executed_arguments='{"order_id": 8}')
    outcome = asyncio.run(refund.execute(tool_execution(call)))
    assert outcome == ToolExecutionResult(output="8")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ('{"a": tru', "not valid JSON"),
        ("null", "null"),
        ("[]", "an array"),
        ('"{}"', "a string"),
        ('{"a": NaN}', "NaN"),
        ('{"a": 1e999}', "1e999"),
        ('{"a": 1, "a": 2}', '"a" occurs more than once'),
        ('{"a": "line\nbreak"}', "control character"),
        ('{"a": "x"}', "a: 'x' is not of type integer"),
        ('{"b": 1}', "'b' was unexpected"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
@pytest.mark.parametrize("is_given", [False, True])
def test_arguments_that_do_not_fit_never_reach_the_function(arguments: str, problem: str, is_given: bool) -> None:
    runs: list[Any] = []

    def from_signature(a: int = 1) -> None:
        runs.append(a)

    def from_schema(arguments: dict[str, Any]) -> None:
        runs.append(arguments)

    schema = {"properties": {"a": {"type": "integer"}}, "additionalProperties": False}
    tool: FunctionTool[..., Any] = (
        function_tool(from_schema, parameters=schema, name="tool")
        if is_given
        else function_tool(from_signature, name="tool")
    )
    with pytest.raises(ToolExecutionError, match="The tool tool was not run") as raised:
        run(tool, arguments)
    assert problem in str(raised.value)
    assert runs == []


@pytest.mark.parametrize("arguments", ["", " ", "\n", "\ufeff{}"])
def test_blank_arguments_mean_none(arguments: str) -> None:
    @function_tool
    def count(a: int = 1) -> int:
        return a

    assert run(count, arguments) == "1"


def test_conversion_failures_reach_the_model_too() -> None:
    @function_tool
    def meet(day: datetime.date) -> str:
        return day.isoformat()

    assert run(meet, '{"day": "2026-01-02"}') == "2026-01-02"
    with pytest.raises(ToolExecutionError, match=r"meet was not run: .*day: Input should be a valid date"):
        run(meet, '{"day": "someday"}')


def test_lone_surrogates_in_arguments_are_repaired() -> None:
    @function_tool
    def echo(text: str) -> str:
        return text

    assert run(echo, '{"text": "a\\ud800b"}') == "a\ufffdb"
    assert run(echo, '{"text": "\\ud83d\\ude00"}') == "\U0001f600"


def test_outcomes_of_the_contract_pass_through() -> None:
    question = ToolInputRequested(question="Which order?")
    result = ToolExecutionResult(output="text", framework_result="{}")

    @function_tool
    def ask() -> ToolInputRequested:
        return question

    @function_tool
    async def answer() -> ToolExecutionResult:
        return result

    assert asyncio.run(ask.execute(tool_execution(tool_call("ask")))) is question
    assert asyncio.run(answer.execute(tool_execution(tool_call("answer")))) is result


def test_unrenderable_results_fail_the_call_instead_of_losing_it() -> None:
    @function_tool
    def sync_broken() -> object:
        return object()

    @function_tool
    async def async_broken() -> object:
        return object()

    for tool in (sync_broken, async_broken):
        with pytest.raises(ToolExecutionError, match=r"ran to its end.*may have taken place"):
            run(tool)


def test_exceptions_of_the_function_pass_through() -> None:
    @function_tool
    def refused() -> None:
        raise ToolExecutionError("no such order")

    @function_tool
    def broken() -> None:
        raise ConnectionResetError("reset")

    @function_tool
    def exhausted() -> int:
        return next(iter(()))

    with pytest.raises(ToolExecutionError, match="no such order"):
        run(refused)
    with pytest.raises(ConnectionResetError):
        run(broken)
    with pytest.raises(RuntimeError, match="StopIteration"):
        run(exhausted)


def test_a_coroutine_from_a_function_that_is_not_async_is_awaited() -> None:
    async def fetch(prefix: str, order_id: int) -> str:
        return f"{prefix} {order_id}"

    def wrapped(order_id: int) -> Any:
        return fetch("order", order_id)

    class Lookup:
        async def __call__(self, order_id: int) -> str:
            return await fetch("found", order_id)

    class Orders:
        def lookup(self, order_id: int) -> str:
            """Look up."""
            return f"method {order_id}"

    assert run(function_tool(wrapped), '{"order_id": 7}') == "order 7"
    assert run(function_tool(Lookup(), name="lookup"), '{"order_id": 7}') == "found 7"
    assert run(function_tool(functools.partial(fetch, "partial"), name="fetch"), '{"order_id": 7}') == "partial 7"
    assert run(function_tool(Orders().lookup), '{"order_id": 7}') == "method 7"


def test_cancellation_reaches_an_async_tool() -> None:
    cancelled: list[bool] = []

    async def scenario() -> None:
        started = asyncio.Event()

        @function_tool
        async def slow() -> None:
            started.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(True)
                raise

        task = asyncio.ensure_future(slow.execute(tool_execution(tool_call("slow"))))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert cancelled == [True]


def test_definition_errors_name_the_tool() -> None:
    def refund(order_id: int) -> None: ...
    def two(a: ToolCallContext, b: ToolCallContext) -> None: ...
    def generator() -> Any:
        yield 1

    async def async_generator() -> Any:
        yield 1

    class Orders:
        def lookup(self, order_id: int) -> None: ...

    bad_effect: Any = "destroy"
    bad_approval: Any = "yes"
    for name in ("", "a.b", "日本", "a" * 65, "a b"):
        with pytest.raises(ValueError, match="a tool's name must be"):
            function_tool(refund, name=name)
    with pytest.raises(ValueError, match="pass name="):
        function_tool(lambda: None)
    with pytest.raises(ValueError, match=r"tool 'refund': effect must be one of 'read'.*'destroy'"):
        function_tool(refund, effect=bad_effect)
    with pytest.raises(TypeError, match="tool 'refund': requires_approval"):
        function_tool(refund, requires_approval=bad_approval)
    with pytest.raises(TypeError, match="tool 'two': only one parameter"):
        function_tool(two)
    for yielding in (generator, async_generator):
        with pytest.raises(TypeError, match="generator function"):
            function_tool(yielding)
    with pytest.raises(TypeError, match="bound method"):
        function_tool(Orders.lookup)
    with pytest.raises(TypeError, match="tool 'two_arguments': with parameters=, the function takes one dict"):
        function_tool(lambda a, b: None, name="two_arguments", parameters={})
    not_a_function: Any = "refund"
    with pytest.raises(TypeError, match="needs a function"):
        function_tool(not_a_function)
