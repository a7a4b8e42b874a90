"""The framework's own MCP toolsets: effects from their hints, failures in their words, connections held open."""

from __future__ import annotations

import asyncio
import importlib
import sys
from pathlib import Path
from typing import Any

import pydantic_ai_mcp_server
import pytest
from pydantic_ai import Agent
from pydantic_ai_sessions import SESSION_ID, ScriptedModel, ask, call, comparable, live_session, say

from dex_agents import ToolPolicy

NAMES = ("find", "put", "send", "guess", "fail")

try:
    framework: Any = importlib.import_module("pydantic_ai.mcp")
    if hasattr(framework, "MCPToolset"):
        fastmcp: Any = importlib.import_module("fastmcp.client")
        transports: Any = importlib.import_module("fastmcp.client.transports")
except ImportError as error:
    pytest.skip(f"this version does not work with the installed SDK of MCP: {error}", allow_module_level=True)


def _toolset(starts: Path) -> Any:
    command = [pydantic_ai_mcp_server.__file__, str(starts)]
    if not hasattr(framework, "MCPToolset"):  # older versions
        return framework.MCPServerStdio(sys.executable, command)
    return framework.MCPToolset(fastmcp.Client(transports.StdioTransport(sys.executable, command, keep_alive=False)))


def _five_calls() -> ScriptedModel:
    return ScriptedModel(ask(*(call(name, {"text": "x"}) for name in NAMES)), say("done"))


def test_tools_of_a_server_are_calls_with_the_effects_it_hints_and_read_as_in_a_run(tmp_path: Path) -> None:
    async def main() -> None:
        starts = tmp_path / "starts"
        native = _five_calls()
        agent: Agent[Any, Any] = Agent(native.model, toolsets=[_toolset(starts)])
        async with agent:
            await agent.run("go")
        starts.unlink()
        script = _five_calls()
        agent = Agent(script.model, toolsets=[_toolset(starts)])
        policies = {name: ToolPolicy(requires_approval=False) for name in NAMES}
        async with (
            agent,
            live_session(tmp_path, agent, default_tool_effect="unclassified", tool_policies=policies) as session,
        ):
            assert await session.say("go") == "done"
            effects = {}
            async for event in session.client.stream_events(SESSION_ID):
                if event.type == "tool_call_deferred":
                    effects[event.payload["tool_name"]] = event.payload["effect"]
                if event.type == "turn_completed":
                    break
        assert effects == {
            "find": "read",
            "put": "idempotent_write",
            "send": "non_idempotent_write",
            "guess": "unclassified",
            "fail": "read",
        }
        assert [comparable(request) for request in script.seen] == [comparable(request) for request in native.seen]
        # Seven Steps and one server: the connection was held open around them.
        assert starts.read_text().splitlines() == ["started"]

    asyncio.run(main())


def test_without_a_held_connection_every_step_connects(tmp_path: Path) -> None:
    async def main() -> None:
        starts = tmp_path / "starts"
        script = ScriptedModel(ask(call("find", {"text": "x"})), say("done"))
        async with live_session(tmp_path, Agent(script.model, toolsets=[_toolset(starts)])) as session:
            assert await session.say("go") == "done"
        assert "found x" in str(script.results()[0].content)
        assert starts.read_text().splitlines() == ["started"] * 3

    asyncio.run(main())
