"""Function tools in a session: approvals, policies, failures, timeouts and keys."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from agents import (
    RunContextWrapper,
    ToolGuardrailFunctionOutput,
    function_tool,
    tool_input_guardrail,
    tool_output_guardrail,
)
from agents.tool_context import ToolContext
from openai_agents_sessions import SESSION, agent_with_tools, one_call, open_session, read_results

from dex_agents import ToolEffect, ToolExecutionError, ToolPolicy
from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents_openai_agents import create_openai_agents_session_flow, current_tool_call
from dex_agents_openai_agents.testing import ScriptedModel, call_item, text_item


def test_a_tool_without_needs_approval_runs_at_once(tmp_path: Path) -> None:
    @function_tool
    def look() -> str:
        return "seen"

    async def main() -> None:
        model = one_call("look")
        async with open_session(agent_with_tools(model, look), tmp_path) as session:
            assert await session.answer_of("go") == "done"
            assert await session.statuses() == [("look", "succeeded")]
        assert read_results(model) == ["seen"]

    asyncio.run(main())


@pytest.mark.parametrize("approves", [True, False])
def test_needs_approval_becomes_the_sessions_approval(tmp_path: Path, approves: bool) -> None:
    ran: list[str] = []

    @function_tool(needs_approval=True)
    def refund(order: str) -> str:
        ran.append(order)
        return f"refunded {order}"

    async def main() -> None:
        model = one_call("refund", {"order": "7"})
        async with open_session(agent_with_tools(model, refund), tmp_path) as session:
            assert (await session.say("go")).status == "waiting_for_person"
            assert ran == []
            if approves:
                await session.client.approve(SESSION)
            else:
                await session.client.reject(SESSION, "too late")
            await session.finished()
        assert (ran, read_results(model)) == ((["7"], ["refunded 7"]) if approves else ([], ["too late"]))

    asyncio.run(main())


def test_a_person_may_change_the_arguments(tmp_path: Path) -> None:
    @function_tool(needs_approval=True)
    def refund(order: str) -> str:
        return f"refunded {order}"

    async def main() -> None:
        model = one_call("refund", {"order": "7"})
        async with open_session(agent_with_tools(model, refund), tmp_path) as session:
            await session.say("go")
            await session.client.approve(SESSION, arguments={"order": "8"})
            await session.finished()
        assert read_results(model)[0].endswith("refunded 8")
        assert model.requests[1].items[1]["arguments"] == '{"order": "7"}'

    asyncio.run(main())


@pytest.mark.parametrize(("order", "waits"), [("small", False), ("large", True), ("odd", True)])
def test_an_approval_function_decides_from_the_arguments(tmp_path: Path, order: str, waits: bool) -> None:
    seen: list[Any] = []

    async def is_large(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        seen.append((context.context, arguments, call_id))
        if arguments["order"] == "odd":
            raise LookupError("no rule for it")
        return bool(arguments["order"] == "large")

    @function_tool(needs_approval=is_large)
    def refund(order: str) -> str:
        return "refunded"

    async def main() -> None:
        model = one_call("refund", {"order": order})
        agent = agent_with_tools(model, refund)
        async with open_session(agent, tmp_path, context_factory=lambda step: step.flow_id) as session:
            result = await session.say("go")
            assert (result.status == "waiting_for_person") is waits
        assert seen == [(SESSION, {"order": order}, "c1")]

    asyncio.run(main())


def test_the_sessions_policy_beats_the_tools_own_approval(tmp_path: Path) -> None:
    @function_tool(needs_approval=True)
    def look() -> str:
        return "seen"

    async def main() -> None:
        model = one_call("look")
        policies = {"look": ToolPolicy(effect=ToolEffect.READ)}
        async with open_session(agent_with_tools(model, look), tmp_path, tool_policies=policies) as session:
            assert await session.answer_of("go") == "done"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("effect", "runs", "status"),
    [
        (ToolEffect.READ, 3, "failed"),
        (ToolEffect.IDEMPOTENT_WRITE, 3, "outcome_unknown"),
        (ToolEffect.UNCLASSIFIED, 1, "outcome_unknown"),
    ],
)
def test_a_tool_that_raises_fails_the_attempt_when_nothing_formats_its_errors(
    tmp_path: Path, effect: ToolEffect, runs: int, status: str
) -> None:
    keys: list[str] = []

    @function_tool(failure_error_function=None)
    def charge() -> str:
        keys.append(current_tool_call().idempotency_key)
        raise ConnectionResetError("broken pipe")

    async def main() -> None:
        model = one_call("charge")
        policies = {"charge": ToolPolicy(effect=effect, requires_approval=False)}
        async with open_session(agent_with_tools(model, charge), tmp_path, tool_policies=policies) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("charge", status)]
        assert len(keys) == runs
        assert len(set(keys)) == 1
        text = read_results(model)[0]
        assert ("broken pipe" in text) if status == "failed" else text == OUTCOME_UNKNOWN_TOOL_RESULT

    asyncio.run(main())


@pytest.mark.parametrize(("tool_errors", "status"), [("report", "failed"), ("retry", "outcome_unknown")])
def test_tool_errors_says_what_the_default_error_text_means(tmp_path: Path, tool_errors: str, status: str) -> None:
    @function_tool
    def charge() -> str:
        raise ConnectionResetError("broken pipe")

    async def main() -> None:
        model = one_call("charge")
        async with open_session(agent_with_tools(model, charge), tmp_path, tool_errors=tool_errors) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("charge", status)]

    asyncio.run(main())


def test_a_text_of_the_tools_own_error_function_is_a_failed_call_in_both_modes(tmp_path: Path) -> None:
    def format_error(context: RunContextWrapper[Any], error: Exception) -> str:
        return f"no luck: {error}"

    @function_tool(failure_error_function=format_error)
    def charge() -> str:
        raise ConnectionResetError("broken pipe")

    async def main() -> None:
        model = one_call("charge")
        async with open_session(agent_with_tools(model, charge), tmp_path, tool_errors="retry") as session:
            await session.answer_of("go")
            assert await session.statuses() == [("charge", "failed")]
        assert read_results(model) == ["no luck: broken pipe"]

    asyncio.run(main())


def test_a_tool_execution_error_reaches_the_model_as_it_is(tmp_path: Path) -> None:
    @function_tool
    def charge() -> str:
        raise ToolExecutionError("the card expired")

    async def main() -> None:
        model = one_call("charge")
        async with open_session(agent_with_tools(model, charge), tmp_path) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("charge", "failed")]
        assert read_results(model) == ["the card expired"]

    asyncio.run(main())


@pytest.mark.parametrize(("effect", "status"), [(ToolEffect.READ, "succeeded"), (None, "outcome_unknown")])
def test_a_write_that_runs_out_of_time_has_an_unknown_outcome(
    tmp_path: Path, effect: ToolEffect | None, status: str
) -> None:
    @function_tool(timeout=0.05)
    async def slow() -> str:
        await asyncio.sleep(60)
        return "never"

    async def main() -> None:
        model = one_call("slow")
        policies = {"slow": ToolPolicy(effect=effect, requires_approval=False)}
        async with open_session(agent_with_tools(model, slow), tmp_path, tool_policies=policies) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("slow", status)]
        assert "timed out" in read_results(model)[0] or read_results(model) == [OUTCOME_UNKNOWN_TOOL_RESULT]

    asyncio.run(main())


def test_the_call_is_known_in_sync_async_and_nested_tools(tmp_path: Path) -> None:
    keys: dict[str, str] = {}
    nested_ids: list[str] = []

    @function_tool
    def in_thread() -> str:
        assert threading.current_thread() is not threading.main_thread()
        keys["in_thread"] = current_tool_call().idempotency_key
        return ""

    @function_tool
    async def on_loop() -> str:
        keys["on_loop"] = current_tool_call().idempotency_key
        return ""

    @function_tool
    async def nested(context: ToolContext[Any]) -> str:
        keys["nested"] = current_tool_call().idempotency_key
        nested_ids.append(context.tool_call_id)
        return "deep"

    async def main() -> None:
        helper_model = ScriptedModel([call_item("nested", "{}", "n1")], [text_item("helped")])
        helper = agent_with_tools(helper_model, nested).as_tool("helper", "Helps.")
        model = ScriptedModel(
            [
                call_item("in_thread", "{}", "c1"),
                call_item("on_loop", "{}", "c2"),
                call_item("helper", {"input": "x"}, "c3"),
            ],
            [text_item("done")],
        )
        async with open_session(agent_with_tools(model, in_thread, on_loop, helper), tmp_path) as session:
            await session.answer_of("go")
        assert keys == {
            "in_thread": f"{SESSION}/turn-1/c1",
            "on_loop": f"{SESSION}/turn-1/c2",
            "nested": f"{SESSION}/turn-1/c3",
        }
        assert nested_ids == ["n1"]
        assert read_results(model) == ["", "", "helped"]

    asyncio.run(main())


def test_outside_a_session_there_is_no_current_call() -> None:
    with pytest.raises(LookupError, match="outside a tool call of a durable session"):
        current_tool_call()


def test_a_raising_tool_guardrail_fails_the_call_and_says_whether_the_tool_ran(tmp_path: Path) -> None:
    ran: list[str] = []

    @tool_input_guardrail
    def closed(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.raise_exception()

    @tool_output_guardrail
    def leaky(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.raise_exception()

    @function_tool(tool_input_guardrails=[closed])
    def before() -> str:
        ran.append("before")
        return "secret"

    @function_tool(tool_output_guardrails=[leaky])
    def after() -> str:
        ran.append("after")
        return "secret"

    async def main() -> None:
        model = ScriptedModel([call_item("before", "{}", "c1"), call_item("after", "{}", "c2")], [text_item("done")])
        async with open_session(agent_with_tools(model, before, after), tmp_path) as session:
            await session.answer_of("go")
        first, second = read_results(model)
        assert ran == ["after"]
        assert "was not run" in first
        assert "closed" in first
        assert "has taken effect" in second
        assert "secret" not in second

    asyncio.run(main())


def test_blank_and_repeated_call_ids_get_ids_of_their_own(tmp_path: Path) -> None:
    @function_tool
    def echo(text: str) -> str:
        return text

    async def main() -> None:
        model = ScriptedModel(
            [call_item("echo", {"text": "1"}, ""), call_item("echo", {"text": "2"}, "")],
            [call_item("echo", {"text": "3"}, "call_1")],
            [text_item("done")],
        )
        async with open_session(agent_with_tools(model, echo), tmp_path) as session:
            await session.answer_of("go")
        ids = [item["call_id"] for item in model.requests[-1].items if item.get("type") == "function_call"]
        assert len(set(ids)) == 3
        assert all(ids)
        assert read_results(model) == ["1", "2", "3"]

    asyncio.run(main())


def test_a_tool_that_a_release_removed_fails_its_call(tmp_path: Path) -> None:
    @function_tool(needs_approval=True)
    def refund() -> str:
        return "refunded"

    async def main() -> None:
        model = one_call("refund")
        flow = create_openai_agents_session_flow(agent_with_tools(model, refund), "TestAgent")
        async with open_session(flow, tmp_path) as session:
            await session.say("go")
        later = create_openai_agents_session_flow(agent_with_tools(model), "TestAgent")
        async with open_session(later, tmp_path) as session:
            await session.client.approve(SESSION)
            await session.finished()
        assert read_results(model) == ["unknown tool refund"]

    asyncio.run(main())
