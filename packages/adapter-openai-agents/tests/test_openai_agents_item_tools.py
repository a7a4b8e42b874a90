"""Shell, apply-patch and custom tools: deferred, and answered with items of their own kinds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agents import (
    ApplyPatchTool,
    CustomTool,
    ShellCallOutcome,
    ShellCommandOutput,
    ShellResult,
    ShellTool,
)
from openai.types.responses import ResponseApplyPatchToolCall, ResponseCustomToolCall, ResponseFunctionShellToolCall
from openai.types.responses.response_function_shell_tool_call import Action
from openai_agents_sessions import SESSION, agent_with_tools, open_session

from dex_agents_openai_agents.testing import ScriptedModel, text_item


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
        agent = agent_with_tools(model, ShellTool(executor=run, needs_approval=True))
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
        async with open_session(
            agent_with_tools(model, ShellTool(executor=run, needs_approval=True)), tmp_path
        ) as session:
            await session.say("go")
            await session.client.reject(SESSION, "not today")
            await session.finished()
        assert model.requests[1].items[2]["output"][0]["stderr"] == "not today"

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
        async with open_session(agent_with_tools(model, ApplyPatchTool(editor=editor)), tmp_path) as session:
            await session.answer_of("go")
            assert await session.statuses() == [("apply_patch", "succeeded")]
        assert editor.paths == ["a.txt"]
        assert model.requests[1].items[2]["type"] == "apply_patch_call_output"

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
        async with open_session(agent_with_tools(model, tool), tmp_path) as session:
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


def test_each_custom_tool_has_its_own_approval(tmp_path: Path) -> None:
    ran: list[str] = []

    async def run(context: Any, text: str) -> str:
        ran.append(text)
        return text

    async def main() -> None:
        calls = [
            ResponseCustomToolCall(type="custom_tool_call", id=f"ct_{name}", call_id=name, name=name, input=name)
            for name in ("read", "write")
        ]
        model = ScriptedModel(calls, [text_item("done")])
        tools = [
            CustomTool(name="read", description="Reads.", on_invoke_tool=run),
            CustomTool(name="write", description="Writes.", on_invoke_tool=run, needs_approval=True),
        ]
        async with open_session(agent_with_tools(model, *tools), tmp_path) as session:
            await session.say("go")
            assert (await session.client.wait_for_interrupt(SESSION)).tool_name == "write"
            await session.client.reject(SESSION)
            await session.finished()
        assert ran == ["read"]

    asyncio.run(main())
