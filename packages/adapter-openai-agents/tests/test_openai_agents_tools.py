"""What runs a tool in a session: approvals, policies, failures, timeouts, keys, hooks, and every kind of tool."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    AgentHooks,
    ApplyPatchTool,
    CustomTool,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    Runner,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellResult,
    ShellTool,
    Tool,
    ToolGuardrailFunctionOutput,
    function_tool,
    tool_input_guardrail,
    tool_output_guardrail,
)
from agents.tool_context import ToolContext
from openai.types.responses import ResponseApplyPatchToolCall, ResponseCustomToolCall, ResponseFunctionShellToolCall
from openai.types.responses.response_function_shell_tool_call import Action
from openai_agents_sessions import SESSION, open_session

from dex_agents import ToolEffect, ToolExecutionError, ToolPolicy
from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents_openai_agents import create_openai_agents_session_flow, current_tool_call
from dex_agents_openai_agents.testing import ScriptedModel, call_item, text_item


def _agent(model: ScriptedModel, *tools: Tool, **fields: Any) -> Agent[Any]:
    return Agent[Any](name="Assistant", instructions="You help.", model=model, tools=list(tools), **fields)


def _one_call(name: str, arguments: Any = "{}") -> ScriptedModel:
    return ScriptedModel([call_item(name, arguments, "c1")], [text_item("done", 2)])


def _results(model: ScriptedModel) -> list[Any]:
    """Outputs the model read in its latest request."""
    return [item["output"] for item in model.requests[-1].items if str(item.get("type", "")).endswith("_output")]


def test_a_tool_without_needs_approval_runs_at_once(tmp_path: Path) -> None:
    @function_tool
    def look() -> str:
        return "seen"

    async def main() -> None:
        model = _one_call("look")
        async with open_session(_agent(model, look), tmp_path) as session:
            assert await session.answer_of("go") == "done"
            assert await session.statuses() == [("look", "succeeded")]
        assert _results(model) == ["seen"]

    asyncio.run(main())


@pytest.mark.parametrize("approves", [True, False])
def test_needs_approval_becomes_the_sessions_approval(tmp_path: Path, approves: bool) -> None:
    ran: list[str] = []

    @function_tool(needs_approval=True)
    def refund(order: str) -> str:
        ran.append(order)
        return f"refunded {order}"

    async def main() -> None:
        model = _one_call("refund", {"order": "7"})
        async with open_session(_agent(model, refund), tmp_path) as session:
            assert (await session.say("go")).status == "waiting_for_person"
            assert ran == []
            if approves:
                await session.client.approve(SESSION)
            else:
                await session.client.reject(SESSION, "too late")
            await session.finished()
        assert (ran, _results(model)) == ((["7"], ["refunded 7"]) if approves else ([], ["too late"]))

    asyncio.run(main())


def test_a_person_may_change_the_arguments(tmp_path: Path) -> None:
    @function_tool(needs_approval=True)
    def refund(order: str) -> str:
        return f"refunded {order}"

    async def main() -> None:
        model = _one_call("refund", {"order": "7"})
        async with open_session(_agent(model, refund), tmp_path) as session:
            await session.say("go")
            await session.client.approve(SESSION, arguments={"order": "8"})
            await session.finished()
        assert _results(model)[0].endswith("refunded 8")
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
        model = _one_call("refund", {"order": order})
        agent = _agent(model, refund)
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
        model = _one_call("look")
        policies = {"look": ToolPolicy(effect=ToolEffect.READ)}
        async with open_session(_agent(model, look), tmp_path, tool_policies=policies) as session:
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
        model = _one_call("charge")
        policies = {"charge": ToolPolicy(effect=effect, requires_approval=False)}
        async with open_session(_agent(model, charge), tmp_path, tool_policies=policies) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("charge", status)]
        assert len(keys) == runs
        assert len(set(keys)) == 1
        text = _results(model)[0]
        assert ("broken pipe" in text) if status == "failed" else text == OUTCOME_UNKNOWN_TOOL_RESULT

    asyncio.run(main())


@pytest.mark.parametrize(("tool_errors", "status"), [("report", "failed"), ("retry", "outcome_unknown")])
def test_tool_errors_says_what_the_default_error_text_means(tmp_path: Path, tool_errors: str, status: str) -> None:
    @function_tool
    def charge() -> str:
        raise ConnectionResetError("broken pipe")

    async def main() -> None:
        model = _one_call("charge")
        async with open_session(_agent(model, charge), tmp_path, tool_errors=tool_errors) as session:
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
        model = _one_call("charge")
        async with open_session(_agent(model, charge), tmp_path, tool_errors="retry") as session:
            await session.answer_of("go")
            assert await session.statuses() == [("charge", "failed")]
        assert _results(model) == ["no luck: broken pipe"]

    asyncio.run(main())


def test_a_tool_execution_error_reaches_the_model_as_it_is(tmp_path: Path) -> None:
    @function_tool
    def charge() -> str:
        raise ToolExecutionError("the card expired")

    async def main() -> None:
        model = _one_call("charge")
        async with open_session(_agent(model, charge), tmp_path) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("charge", "failed")]
        assert _results(model) == ["the card expired"]

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
        model = _one_call("slow")
        policies = {"slow": ToolPolicy(effect=effect, requires_approval=False)}
        async with open_session(_agent(model, slow), tmp_path, tool_policies=policies) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("slow", status)]
        assert "timed out" in _results(model)[0] or _results(model) == [OUTCOME_UNKNOWN_TOOL_RESULT]

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
        helper = _agent(helper_model, nested).as_tool("helper", "Helps.")
        model = ScriptedModel(
            [
                call_item("in_thread", "{}", "c1"),
                call_item("on_loop", "{}", "c2"),
                call_item("helper", {"input": "x"}, "c3"),
            ],
            [text_item("done")],
        )
        async with open_session(_agent(model, in_thread, on_loop, helper), tmp_path) as session:
            await session.answer_of("go")
        assert keys == {
            "in_thread": f"{SESSION}/turn-1/c1",
            "on_loop": f"{SESSION}/turn-1/c2",
            "nested": f"{SESSION}/turn-1/c3",
        }
        assert nested_ids == ["n1"]
        assert _results(model) == ["", "", "helped"]

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
        async with open_session(_agent(model, before, after), tmp_path) as session:
            await session.answer_of("go")
        first, second = _results(model)
        assert ran == ["after"]
        assert "was not run" in first
        assert "closed" in first
        assert "has taken effect" in second
        assert "secret" not in second

    asyncio.run(main())


async def _always(context: Any, arguments: Any, call_id: str) -> bool:
    return True


class _Recording(RunHooks[Any]):
    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        self.log.append(f"run start {agent.name} {len(agent.tools)}")

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        self.log.append(f"run end {agent.name} {output}")

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        self.log.append(f"run handoff {from_agent.name} {to_agent.name}")

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.log.append(f"run tool start {agent.name} {tool.name} {context.tool_call_id}")

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.log.append(f"run tool end {agent.name} {tool.name} {result}")

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        self.log.append(f"run llm start {agent.name} {system_prompt} {len(input_items)}")

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self.log.append(f"run llm end {agent.name} {len(response.output)}")


class _AgentRecording(AgentHooks[Any]):
    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def on_start(self, context: Any, agent: Any) -> None:
        self.log.append(f"start {agent.name} {len(agent.tools)}")

    async def on_end(self, context: Any, agent: Any, output: Any) -> None:
        self.log.append(f"end {agent.name} {output}")

    async def on_handoff(self, context: Any, agent: Any, source: Any) -> None:
        self.log.append(f"handoff {source.name} {agent.name}")

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.log.append(f"tool start {agent.name} {tool.name}")

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.log.append(f"tool end {agent.name} {tool.name} {result}")

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        self.log.append(f"llm start {agent.name}")

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self.log.append(f"llm end {agent.name}")


@pytest.mark.parametrize("tool_use_behavior", ["run_llm_again", "stop_on_first_tool"])
def test_hooks_are_called_as_in_a_native_run(tmp_path: Path, tool_use_behavior: Any) -> None:
    @function_tool
    def look() -> str:
        return "seen"

    def build(log: list[str]) -> Agent[Any]:
        answers: list[Any] = [
            [call_item("transfer_to_second", "{}", "h1")],
            [call_item("look", "{}", "c1")],
            [text_item("bye")],
        ]
        model = ScriptedModel(*answers)
        second = _agent(model, look, hooks=_AgentRecording(log), tool_use_behavior=tool_use_behavior)
        second.name = "Second"
        return _agent(model, look, hooks=_AgentRecording(log), handoffs=[second])

    async def main() -> None:
        native: list[str] = []
        await Runner.run(build(native), "go", hooks=_Recording(native))
        durable: list[str] = []
        async with open_session(build(durable), tmp_path, hooks=_Recording(durable)) as session:
            await session.answer_of("go")
        assert Counter(durable) == Counter(native)
        calls = [line for line in native if "start" in line]
        assert [line for line in durable if "start" in line] == calls

    asyncio.run(main())


def test_an_agent_behind_a_tool_that_asks_for_approval_meanwhile_fails_its_call(tmp_path: Path) -> None:
    ran: list[str] = []

    @function_tool(needs_approval=_always)
    def inner() -> str:
        ran.append("inner")
        return ""

    async def main() -> None:
        helper = _agent(ScriptedModel([call_item("inner", "{}", "n1")]), inner).as_tool("helper", "Helps.")
        model = _one_call("helper", {"input": "x"})
        async with open_session(_agent(model, helper), tmp_path) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("helper", "failed")]
        assert "whose own tool (inner) needs an approval" in _results(model)[0]
        assert ran == []

    asyncio.run(main())


def test_equal_calls_of_agents_behind_tools_in_two_sessions_are_two_calls(tmp_path: Path) -> None:
    @function_tool(needs_approval=_always)
    def inner() -> str:
        return ""

    async def main() -> None:
        helper_model = ScriptedModel([call_item("inner", "{}", "n1")], [text_item("helped")])
        helper = _agent(helper_model, inner).as_tool("helper", "Helps.")
        call = [call_item("helper", {"input": "x"}, "c1")]
        model = ScriptedModel(call, [text_item("failed", 1)], call, [text_item("done", 2)])
        async with open_session(_agent(model, helper), tmp_path) as session:
            assert await session.answer_of("go") == "failed"
            await session.client.start_session("other", initial_message="go")
            await session.client.wait_until_idle("other", timeout=30)
        assert _results(model) == ["helped"]

    asyncio.run(main())


def test_a_shell_call_is_deferred_approved_and_replayed_as_its_own_item(tmp_path: Path) -> None:
    commands: list[str] = []

    async def run(request: Any) -> ShellResult:
        commands.extend(request.data.action.commands)
        outcome = ShellCallOutcome(type="exit", exit_code=0)
        return ShellResult(output=[ShellCommandOutput(command="ls", stdout="a.txt", stderr="", outcome=outcome)])

    call = ResponseFunctionShellToolCall(
        id="sh_1",
        type="shell_call",
        call_id="c1",
        status="completed",
        action=Action(commands=["ls"], timeout_ms=1000, max_output_length=None),
    )

    async def main() -> None:
        model = ScriptedModel([call], [text_item("one file")])
        agent = _agent(model, ShellTool(executor=run, needs_approval=True))
        async with open_session(agent, tmp_path) as session:
            await session.say("go")
            assert commands == []
            interrupt = await session.client.approve(SESSION)
            assert '"ls"' in interrupt.arguments
            await session.finished()
            assert (await session.messages())[2].text == "a.txt"
        assert commands == ["ls"]
        assert model.requests[1].items[1]["type"] == "shell_call"
        result = model.requests[1].items[2]
        assert (result["type"], result["call_id"]) == ("shell_call_output", "c1")
        assert result["output"][0]["stdout"] == "a.txt"

    asyncio.run(main())


def test_a_rejected_shell_call_has_a_shell_result(tmp_path: Path) -> None:
    async def run(request: Any) -> str:
        raise AssertionError("it was rejected")

    call = ResponseFunctionShellToolCall(
        id="sh_1",
        type="shell_call",
        call_id="c1",
        status="completed",
        action=Action(commands=["rm"], timeout_ms=1000, max_output_length=None),
    )

    async def main() -> None:
        model = ScriptedModel([call], [text_item("fine")])
        async with open_session(_agent(model, ShellTool(executor=run, needs_approval=True)), tmp_path) as session:
            await session.say("go")
            await session.client.reject(SESSION, "not today")
            await session.finished()
        assert model.requests[1].items[2]["output"][0]["stderr"] == "not today"

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
        async with open_session(_agent(model, echo), tmp_path) as session:
            await session.answer_of("go")
        ids = [item["call_id"] for item in model.requests[-1].items if item.get("type") == "function_call"]
        assert len(set(ids)) == 3
        assert all(ids)
        assert _results(model) == ["1", "2", "3"]

    asyncio.run(main())


def test_a_tool_that_a_release_removed_fails_its_call(tmp_path: Path) -> None:
    @function_tool(needs_approval=True)
    def refund() -> str:
        return "refunded"

    async def main() -> None:
        model = _one_call("refund")
        flow = create_openai_agents_session_flow(_agent(model, refund), "TestAgent")
        async with open_session(flow, tmp_path) as session:
            await session.say("go")
        later = create_openai_agents_session_flow(_agent(model), "TestAgent")
        async with open_session(later, tmp_path) as session:
            await session.client.approve(SESSION)
            await session.finished()
        assert _results(model) == ["unknown tool refund"]

    asyncio.run(main())


def test_a_patch_is_deferred(tmp_path: Path) -> None:
    class Editor:
        def __init__(self) -> None:
            self.paths: list[str] = []

        def create_file(self, operation: Any) -> Any:
            self.paths.append(operation.path)

        def update_file(self, operation: Any) -> Any:
            self.paths.append(operation.path)

        def delete_file(self, operation: Any) -> Any:
            self.paths.append(operation.path)

    call: Any = {
        "type": "apply_patch_call",
        "id": "ap_1",
        "call_id": "c1",
        "status": "completed",
        "operation": {"type": "create_file", "path": "a.txt", "diff": "+hello\n"},
    }

    async def main() -> None:
        editor = Editor()
        model = ScriptedModel([ResponseApplyPatchToolCall.model_validate(call)], [text_item("patched")])
        async with open_session(_agent(model, ApplyPatchTool(editor=editor)), tmp_path) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("apply_patch", "succeeded")]
        assert editor.paths == ["a.txt"]
        assert model.requests[1].items[2]["type"] == "apply_patch_call_output"

    asyncio.run(main())


def test_the_run_configs_model_reaches_an_agent_behind_a_tool(tmp_path: Path) -> None:
    async def main() -> None:
        helper = Agent[Any](name="Helper", instructions="help", model=ScriptedModel()).as_tool("helper", "Helps.")
        model = ScriptedModel(
            [call_item("helper", {"input": "x"}, "c1")], [text_item("helped", 1)], [text_item("done", 2)]
        )
        async with open_session(
            _agent(ScriptedModel(), helper), tmp_path, run_config=RunConfig(model=model)
        ) as session:
            assert await session.answer_of("go") == "done"
        assert [request.instructions for request in model.requests] == ["You help.", "help", "You help."]
        assert _results(model) == ["helped"]

    asyncio.run(main())


def test_a_custom_tool_is_deferred_and_answered_with_its_own_item(tmp_path: Path) -> None:
    inputs: list[str] = []

    async def run(context: Any, text: str) -> str:
        inputs.append(text)
        return f"ran {text}"

    async def main() -> None:
        call = ResponseCustomToolCall(type="custom_tool_call", id="ct_1", call_id="c1", name="sql", input="select 1")
        model = ScriptedModel([call], [text_item("done")])
        tool = CustomTool(name="sql", description="Runs SQL.", on_invoke_tool=run, needs_approval=True)
        async with open_session(_agent(model, tool), tmp_path) as session:
            await session.say("go")
            assert inputs == []
            await session.client.approve(SESSION)
            await session.finished()
        assert inputs == ["select 1"]
        result = model.requests[1].items[2]
        assert (result["type"], result["call_id"], result["output"]) == (
            "custom_tool_call_output",
            "c1",
            "ran select 1",
        )

    asyncio.run(main())


@pytest.mark.parametrize("is_sync", [True, False])
def test_a_tool_asks_the_user_and_runs_again_with_the_answer(tmp_path: Path, is_sync: bool) -> None:
    runs: list[str] = []

    def ask() -> str:
        runs.append("begun")
        try:
            where = current_tool_call().ask_user("Where to?", choices=("staging", "production"))
        except Exception as error:  # a tool that handles its errors does not swallow the question
            return f"broken: {error}"
        runs.append(where)
        return f"deployed to {where}"

    async def ask_on_loop() -> str:
        return ask()

    async def main() -> None:
        model = _one_call("deploy")
        tool = function_tool(ask if is_sync else ask_on_loop, name_override="deploy")
        async with open_session(_agent(model, tool), tmp_path) as session:
            await session.say("go")
            await session.client.answer(SESSION, "production")
            await session.finished()
        assert _results(model) == ["deployed to production"]
        assert runs == ["begun", "begun", "production"]

    asyncio.run(main())


def test_a_swallowed_question_fails_the_call_once(tmp_path: Path) -> None:
    runs: list[str] = []

    @function_tool
    def deploy() -> str:
        runs.append("begun")
        with contextlib.suppress(BaseException):
            current_tool_call().ask_user("Where to?")
        return "deployed"

    async def main() -> None:
        model = _one_call("deploy")
        policies = {"deploy": ToolPolicy(effect=ToolEffect.READ)}
        async with open_session(_agent(model, deploy), tmp_path, tool_policies=policies) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("deploy", "failed")]
        assert "went on after it asked the user" in _results(model)[0]
        assert runs == ["begun"]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("question", "options", "words"),
    [(" ", {}, "blank"), ("Where?", {"choices": [""]}, "blank"), ("Where?", {"allows_free_text": False}, "choices")],
)
def test_a_question_that_nobody_could_answer_is_refused(
    tmp_path: Path, question: str, options: dict[str, Any], words: str
) -> None:
    @function_tool
    def deploy() -> str:
        return current_tool_call().ask_user(question, **options)

    async def main() -> None:
        model = _one_call("deploy")
        policies = {"deploy": ToolPolicy(effect=ToolEffect.READ)}
        async with open_session(
            _agent(model, deploy), tmp_path, tool_policies=policies, tool_errors="retry"
        ) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("deploy", "failed")]
        assert words in _results(model)[0]

    asyncio.run(main())


def test_an_agent_behind_a_tool_that_does_not_end_fails_the_attempt(tmp_path: Path) -> None:
    @function_tool
    def look() -> str:
        return "seen"

    async def main() -> None:
        helper_model = ScriptedModel(*[[call_item("look", "{}", f"n{number}")] for number in range(9)])
        helper = _agent(helper_model, look).as_tool("helper", "Helps.", max_turns=2, failure_error_function=None)
        model = _one_call("helper", {"input": "x"})
        policies = {"helper": ToolPolicy(effect=ToolEffect.READ)}
        async with open_session(_agent(model, helper), tmp_path, tool_policies=policies) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("helper", "failed")]
        assert "MaxTurnsExceeded" in _results(model)[0]
        assert len(helper_model.requests) == 6

    asyncio.run(main())


def test_a_guardrail_behind_an_agent_used_as_a_tool_does_not_speak_for_the_tool(tmp_path: Path) -> None:
    @tool_input_guardrail
    def closed(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.raise_exception()

    @function_tool(tool_input_guardrails=[closed])
    def inner() -> str:
        return ""

    async def main() -> None:
        helper_model = ScriptedModel([call_item("inner", "{}", "n1")])
        helper = _agent(helper_model, inner).as_tool("helper", "Helps.", failure_error_function=None)
        model = _one_call("helper", {"input": "x"})
        async with open_session(_agent(model, helper), tmp_path) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("helper", "outcome_unknown")]

    asyncio.run(main())
