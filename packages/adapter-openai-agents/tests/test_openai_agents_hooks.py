"""Hooks of runs and agents are called as in a native run, with the application's own objects."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    AgentHooks,
    RunHooks,
    Runner,
    function_tool,
)
from openai_agents_sessions import agent_with_tools, open_session

from dex_agents_openai_agents.testing import ScriptedModel, call_item, text_item


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
        second = agent_with_tools(model, look, hooks=_AgentRecording(log), tool_use_behavior=tool_use_behavior)
        second.name = "Second"
        return agent_with_tools(model, look, hooks=_AgentRecording(log), handoffs=[second])

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
