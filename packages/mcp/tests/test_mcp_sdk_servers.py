"""Servers made with the official SDK: a real process over stdio, and a real Streamable HTTP endpoint."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dex_agents_mcp import McpHttpServer, McpServer, McpSourceOptions, McpStdioServer, McpToolSource
from dex_flow.testing import ProgramProcesses

from .mcp_scene import FREE, call, mcp_session, script

pytestmark = pytest.mark.processes

PROGRAM = Path(__file__).parent / "programs" / "sdk_server.py"
POLICIES = {"notes__delete_note": FREE, "notes__copy_note": FREE}
#: The SDK takes seconds to import on a busy machine.
PATIENT = McpSourceOptions(
    connection_timeout=timedelta(seconds=100), listing_wait_timeout=timedelta(seconds=100), connection_attempts=1
)


@contextlib.contextmanager
def sdk_server(log: Path, transport: str, protocol: Any = "auto") -> Iterator[McpServer]:
    """The configuration of a server that runs."""
    if transport == "stdio":
        args = [str(PROGRAM), str(log), "stdio"]
        yield McpStdioServer(name="notes", command=sys.executable, args=args, protocol=protocol)
        return
    with ProgramProcesses() as processes:
        process = processes.start(PROGRAM, str(log), "http", ready_line="port ")
        port = process.wait_for_line("port ").removeprefix("port ").strip()
        yield McpHttpServer(name="notes", url=f"http://127.0.0.1:{port}/mcp", protocol=protocol)


def recorded(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@pytest.mark.parametrize(
    ("transport", "protocol"), [("stdio", "auto"), ("http", "auto"), ("http", "legacy")], ids=lambda value: str(value)
)
def test_a_session_calls_the_tools_of_a_server_made_with_the_sdk(tmp_path: Path, transport: str, protocol: str) -> None:
    async def scenario(server: McpServer, log: Path) -> None:
        calls = [call("notes__read_note", {"title": "x"}), call("notes__delete_note", {"title": "y"})]
        async with mcp_session(tmp_path, [server], script(calls), options=PATIENT, policies=POLICIES) as session:
            assert await session.turn() == [("notes__read_note", "succeeded"), ("notes__delete_note", "succeeded")]
            assert session.results() == ["the note x", "deleted y"]
            assert sorted((run["tool"], run["key"]) for run in recorded(log)) == [
                ("delete_note", "s/turn-1/call_1_2"),
                ("read_note", "s/turn-1/call_1_1"),
            ]
            effects = {tool.mcp_name: tool.effect for tool in session.source.cached_tools()}
            assert effects == {"read_note": "read", "delete_note": None, "copy_note": None}

    log = tmp_path / "log.jsonl"
    with sdk_server(log, transport, protocol) as server:
        asyncio.run(scenario(server, log))


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_a_question_of_a_server_made_with_the_sdk_is_asked_and_answered(tmp_path: Path, transport: str) -> None:
    async def scenario(server: McpServer, log: Path) -> None:
        calls = [call("notes__copy_note", {"title": "x"})]
        async with mcp_session(tmp_path, [server], script(calls), options=PATIENT, policies=POLICIES) as session:
            await session.say()
            question = await session.question()
            assert question.question == "Which region?"
            assert recorded(log) == []
            await session.answer("eu")
            assert await session.ended() == [("notes__copy_note", "succeeded")]
            assert session.results() == ["copied x to eu"]
            assert [run["key"] for run in recorded(log)] == ["s/turn-1/call_1_1"]

    log = tmp_path / "log.jsonl"
    with sdk_server(log, transport) as server:
        asyncio.run(scenario(server, log))


def test_resources_and_prompts_of_a_server_made_with_the_sdk(tmp_path: Path) -> None:
    async def scenario(server: McpServer) -> None:
        source = McpToolSource([server], options=PATIENT, resource_and_prompt_tools_enabled=True)
        listed = await source.call_tool("mcp_list_resources_and_prompts", {"server": "notes"}, idempotency_key="k")
        names = {kind: [item["name"] for item in items] for kind, items in json.loads(listed).items()}
        assert names == {"prompts": ["greet"], "resource_templates": [], "resources": ["first"]}
        read = await source.call_tool(
            "mcp_read_resource", {"server": "notes", "uri": "note://first"}, idempotency_key="k"
        )
        assert read == '{"contents": [{"mimeType": "text/plain", "text": "the first note", "uri": "note://first"}]}'
        prompt = await source.call_tool(
            "mcp_get_prompt", {"server": "notes", "name": "greet", "arguments": {"who": "Bo"}}, idempotency_key="k"
        )
        assert "Say hello to Bo" in prompt

    with sdk_server(tmp_path / "log.jsonl", "http") as server:
        asyncio.run(scenario(server))
