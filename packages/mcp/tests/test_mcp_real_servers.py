"""Servers that others wrote, from the registries: the reference `everything`, `filesystem`, `git` and `time` servers.

The first two are programs of Node: `npm ci --ignore-scripts --prefix packages/mcp/tests/real_servers` installs them.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dex_agents import ToolEffect
from dex_agents_mcp import (
    LIST_RESOURCES_AND_PROMPTS_TOOL_NAME,
    READ_RESOURCE_TOOL_NAME,
    McpHttpServer,
    McpStdioServer,
    McpToolSource,
)

from .mcp_scene import FREE, PATIENT, call, mcp_session, script

READ, IDEMPOTENT = ToolEffect.READ, ToolEffect.IDEMPOTENT_WRITE

FOLDER = Path(__file__).with_name("real_servers")
EVERYTHING, FILESYSTEM = "server-everything", "server-filesystem"
RESEARCH = "everything__simulate-research-query"


def node_program(package: str) -> str:
    """A server's program; without it the test fails in CI, and is skipped elsewhere with what installs it."""
    program = FOLDER / "node_modules" / "@modelcontextprotocol" / package / "dist" / "index.js"
    if not program.exists() or shutil.which("node") is None:
        missing = "install Node.js and run `npm ci --ignore-scripts --prefix packages/mcp/tests/real_servers`"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{package} is not installed: {missing}")
    return str(program)


def everything() -> McpStdioServer:
    return McpStdioServer(name="everything", command="node", args=[node_program(EVERYTHING), "stdio"])


def filesystem(folder: Path) -> McpStdioServer:
    return McpStdioServer(name="files", command="node", args=[node_program(FILESYSTEM), str(folder)])


def time_server() -> McpStdioServer:
    return McpStdioServer(name="time", command=sys.executable, args=["-m", "mcp_server_time"])


def git_server(folder: Path) -> McpStdioServer:
    commands = (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "The first commit"])
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]
    (folder / "notes.txt").write_text("one\n")
    for arguments in commands:
        subprocess.run(["git", *identity, *arguments], cwd=folder, check=True)
    (folder / "notes.txt").write_text("two\n")
    arguments = ["-m", "mcp_server_git", "--repository", str(folder)]
    return McpStdioServer(name="git", command=sys.executable, args=arguments)


def test_the_annotations_of_four_servers_are_effects(tmp_path: Path) -> None:
    async def list_tools() -> dict[str, ToolEffect | None]:
        servers = [everything(), filesystem(tmp_path), time_server(), git_server(tmp_path)]
        tools = await McpToolSource(servers, options=PATIENT).list_tools()
        return {tool.name: tool.effect for tool in tools}

    effects = asyncio.run(list_tools())
    wanted = {
        "everything__echo": READ,
        "everything__gzip-file-as-resource": IDEMPOTENT,
        RESEARCH: None,
        "files__read_text_file": READ,
        "files__write_file": IDEMPOTENT,
        "files__edit_file": None,
        "time__convert_time": READ,
        "git__git_status": READ,
        "git__git_add": IDEMPOTENT,
        "git__git_commit": None,
    }
    assert {name: effects[name] for name in wanted} == wanted


def test_calls_of_four_servers_in_one_session(tmp_path: Path) -> None:
    """Reads, a write that needs no approval, and two failures in the servers' own words."""
    shared, repository = tmp_path / "shared", tmp_path / "repository"
    shared.mkdir()
    repository.mkdir()
    servers = [everything(), filesystem(shared), time_server(), git_server(repository)]
    noon = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    calls = [
        call("everything__get-sum", {"a": 2, "b": 40}),
        call("everything__get-sum", {"a": "two"}),
        call("files__write_file", {"path": str(shared / "report.txt"), "content": "all is well"}),
        call("files__read_text_file", {"path": "/etc/hostname"}),
        call("time__convert_time", noon),
        call("git__git_diff_unstaged", {"repo_path": str(repository)}),
    ]

    async def scenario() -> tuple[list[str], list[str]]:
        async with mcp_session(tmp_path, servers, script(calls), policies={}) as session:
            return [status for _, status in await session.turn()], session.results()

    statuses, results = asyncio.run(scenario())
    assert statuses == ["succeeded", "failed", "succeeded", "failed", "succeeded", "succeeded"]
    assert "42" in results[0]
    assert (shared / "report.txt").read_text() == "all is well"
    assert "outside allowed directories" in results[3]
    assert "21:00" in json.loads(results[4])["target"]["datetime"]
    assert "+two" in results[5]


def test_a_task_of_the_everything_server_runs_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dex_agents_mcp.remote_tasks.MAX_BACKED_OFF_INTERVAL_SECONDS", 1.0)

    async def scenario() -> tuple[list[tuple[str, str]], list[str], list[Any]]:
        calls = [call(RESEARCH, {"topic": "durable agents"})]
        async with mcp_session(tmp_path, [everything()], script(calls), policies={RESEARCH: FREE}) as session:
            statuses = await session.turn()
            return statuses, session.results(), await session.events("mcp.task_status")

    statuses, results, events = asyncio.run(scenario())
    assert statuses == [(RESEARCH, "succeeded")]
    assert results[0].startswith("# Research Report: durable agents")
    assert [event.payload["status"] for event in events] == ["working", "completed"]


def test_resources_of_the_everything_server_are_listed_and_read() -> None:
    async def scenario() -> tuple[str, str]:
        source = McpToolSource([everything()], resource_and_prompt_tools_enabled=True, options=PATIENT)
        listed = await source.call_tool(
            LIST_RESOURCES_AND_PROMPTS_TOOL_NAME, {"server": "everything"}, idempotency_key="k"
        )
        uri = "demo://resource/static/document/features.md"
        arguments = {"server": "everything", "uri": uri}
        return listed, await source.call_tool(READ_RESOURCE_TOOL_NAME, arguments, idempotency_key="k")

    listed, read = asyncio.run(scenario())
    assert "demo://resource/static/document/features.md" in listed
    assert "args-prompt" in listed
    assert "Everything Server" in read


class EverythingOverHttp:
    """The `everything` server behind Streamable HTTP, with protocol sessions; it keeps its port."""

    def __init__(self) -> None:
        self.port = "0"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self._process = subprocess.Popen(
            ["node", "--require", str(FOLDER / "loopback.cjs"), node_program(EVERYTHING), "streamableHttp"],
            env={**os.environ, "PORT": self.port},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        said = next((line for line in self._process.stdout if line.startswith("port ")), None)
        assert said is not None, "the server ended"
        self.port = said.split()[1]

    def stop(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()


def test_F12_a_real_server_with_protocol_sessions_is_restarted_between_two_calls(tmp_path: Path) -> None:
    http = EverythingOverHttp()
    http.start()

    async def scenario() -> None:
        server = McpHttpServer(name="everything", url=f"http://127.0.0.1:{http.port}/mcp")
        turn = [call("everything__echo", {"message": "again"})]
        async with mcp_session(tmp_path, [server], script(turn, turn)) as session:
            assert await session.turn() == [("everything__echo", "succeeded")]
            http.stop()
            http.start()
            assert await session.turn() == [("everything__echo", "succeeded")]
            assert session.results() == ["Echo: again"]

    try:
        asyncio.run(scenario())
    finally:
        http.stop()
