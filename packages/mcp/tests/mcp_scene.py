"""What tests of MCP sessions share: raw servers, a source for them, and an agent with a scripted model."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dex_agents import AgentSessionClient, AgentToolCallRecord, StreamedAgentEvent, ToolPolicy
from dex_agents.session.persistence import AGENT_EVENTS, AGENT_TOOL_CALLS
from dex_agents_mcp import McpHttpServer, McpServer, McpSourceOptions, McpStdioServer, McpToolSource
from dex_agents_stepwise import (
    AgentDefinition,
    ModelRequest,
    ScriptedModelClient,
    ScriptedModelReply,
    ScriptedToolCall,
    create_stepwise_agent_session_flow,
)
from dex_flow import Flow, StateView
from dex_flow.embedded import EmbeddedEngine

from .mcp_raw_server import RawHttpServer, RawServer

__all__ = [
    "SERVER_NAME",
    "WAIT_SECONDS",
    "ListingClock",
    "McpSession",
    "RawPeer",
    "call",
    "mcp_session",
    "raw_peer",
    "say",
    "script",
]

SERVER_NAME = "s"
WAIT_SECONDS = 60.0
PROGRAM = Path(__file__).with_name("mcp_raw_server.py")
FREE = ToolPolicy(requires_approval=False)

#: Patient with a busy machine, quick where a test waits for nothing.
PATIENT = McpSourceOptions(
    connection_timeout=timedelta(seconds=60),
    connection_backoff=timedelta(milliseconds=1),
    call_timeout=timedelta(seconds=60),
    listing_wait_timeout=timedelta(seconds=60),
)


class RawPeer:
    """A raw server as a test controls it.

    Args:
        directory: The server's files.
        era: `modern` or `legacy`.
        transport: `stdio` or `http`.
        keeps_sessions: Whether a legacy HTTP server hands out protocol sessions.
    """

    def __init__(self, directory: Path, era: str, transport: str, *, keeps_sessions: bool = False) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.era = era
        self.transport = transport
        self._keeps_sessions = keeps_sessions
        self.http: RawHttpServer | None = None
        self.port = 0
        if transport == "http":
            self.start()

    def start(self) -> None:
        """Listen, on the same port as before."""
        assert self.http is None
        self.http = RawHttpServer(
            RawServer(self.directory, self.era), keeps_sessions=self._keeps_sessions, port=self.port
        )
        self.port = self.http.port

    def stop(self) -> None:
        """Stop listening, and forget every protocol session."""
        if self.http is not None:
            self.http.close()
            self.http = None

    def config(self, name: str = SERVER_NAME, **fields: Any) -> McpServer:
        """The server's configuration."""
        if self.transport == "http":
            return McpHttpServer(name=name, url=f"http://127.0.0.1:{self.port}/mcp", **fields)
        args = ["-I", "-S", str(PROGRAM), str(self.directory), self.era]
        return McpStdioServer(name=name, command=sys.executable, args=args, **fields)

    def write(self, name: str, value: Any) -> None:
        """Write one of the server's files at once."""
        file = self.directory / name
        file.parent.mkdir(exist_ok=True)
        part = file.with_suffix(".part")
        part.write_text(json.dumps(value))
        part.rename(file)

    def set_fault(self, name: str, *methods: str) -> None:
        """Let requests of these methods go wrong; `tools/call` unless given, `*` for all."""
        self.write("fault.json", {"name": name, "methods": methods or ("tools/call",)})

    def clear_fault(self) -> None:
        """Behave."""
        (self.directory / "fault.json").unlink()

    def set_task(self, task_id: str, **fields: Any) -> None:
        """Change what a task is."""
        file = self.directory / "tasks" / f"{task_id}.json"
        self.write(f"tasks/{task_id}.json", {**json.loads(file.read_text()), **fields})

    def task(self, task_id: str) -> dict[str, Any]:
        """What a task is."""
        view: dict[str, Any] = json.loads((self.directory / "tasks" / f"{task_id}.json").read_text())
        return view

    def runs(self, tool: str | None = None) -> list[dict[str, Any]]:
        """Every run of a tool."""
        return [run for run in self._lines("runs.jsonl") if tool in (None, run["tool"])]

    def requests(self, method: str) -> list[dict[str, Any]]:
        """Parameters of every request of a method."""
        return [line["params"] for line in self._lines("requests.jsonl") if line["method"] == method]

    def notifications(self) -> list[str]:
        """Methods of every notification."""
        return [str(line["method"]) for line in self._lines("notifications.jsonl")]

    def _lines(self, name: str) -> list[dict[str, Any]]:
        try:
            text = (self.directory / name).read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines()]


class ListingClock:
    """The clock of listings, which stands still until time passes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = 1_000.0
        monkeypatch.setattr("dex_agents_mcp.server_listing.time", self)

    def monotonic(self) -> float:
        return self._now

    def pass_time(self, duration: timedelta) -> None:
        self._now += duration.total_seconds()


@contextlib.contextmanager
def raw_peer(directory: Path, era: str, transport: str, *, keeps_sessions: bool = False) -> Iterator[RawPeer]:
    """A raw server that is gone afterwards."""
    peer = RawPeer(directory, era, transport, keeps_sessions=keeps_sessions)
    try:
        yield peer
    finally:
        peer.stop()


def call(tool_name: str, arguments: Mapping[str, Any] | None = None) -> ScriptedToolCall:
    return ScriptedToolCall(tool_name=tool_name, arguments=arguments or {})


def say(text: str) -> ScriptedModelReply:
    return ScriptedModelReply(text=text)


def ask(*calls: ScriptedToolCall) -> ScriptedModelReply:
    return ScriptedModelReply(tool_calls=calls)


def script(*turns: Sequence[ScriptedToolCall]) -> Callable[[ModelRequest], ScriptedModelReply]:
    """One response with these calls in each turn, and then `done`."""

    def reply(request: ModelRequest) -> ScriptedModelReply:
        turn = len(ScriptedModelClient.user_texts(request)) - 1
        calls = turns[turn]
        return say("done") if ScriptedModelClient.tool_results(request) or not calls else ask(*calls)

    return reply


class McpSession:
    """One session of an agent with MCP tools."""

    def __init__(self, engine: EmbeddedEngine, flow: Flow, model: ScriptedModelClient, source: McpToolSource) -> None:
        self.engine = engine
        self.flow = flow
        self.model = model
        self.source = source
        self.client = AgentSessionClient(engine, flow)

    async def say(self, text: str = "go") -> None:
        """Send a message, the first of which starts the session."""
        if not await self.client.start_session("s", initial_message=text, already_started="ignore"):
            assert await self.client.send_user_message("s", text)

    async def turn(self, text: str = "go") -> list[tuple[str, str]]:
        """Send a message, and wait for the end of its turn; names and final statuses of its calls, in call order."""
        await self.say(text)
        return await self.ended()

    async def ended(self) -> list[tuple[str, str]]:
        state = await self.client.wait_until_idle("s", timeout=WAIT_SECONDS)
        assert state.last_turn_error is None
        turn_id = f"turn-{state.turn_count}"
        events = [event for event in await self.events() if event.turn_id == turn_id]
        order = [event.payload["tool_call_id"] for event in events if event.type == "tool_call_deferred"]
        ended = [event.payload for event in events if event.type == "tool_call_finished"]
        assert len(ended) == len(order)
        final = {payload["tool_call_id"]: (payload["tool_name"], payload["status"]) for payload in ended}
        return [final[tool_call_id] for tool_call_id in order]

    async def events(self, type: str | None = None) -> list[StreamedAgentEvent]:
        """Every event so far."""
        stream = self.flow.streams[AGENT_EVENTS.name]
        events = await self.engine.read_stream("s", stream, limit=100_000)
        read = [StreamedAgentEvent(event.position, event.value) for event in events]
        return [event for event in read if type in (None, event.type)]

    def results(self) -> list[str]:
        """The tool results that the model read in the latest turn."""
        return [result.output for result in ScriptedModelClient.tool_results(self.model.requests[-1])]

    def offered(self) -> list[str]:
        """Names of the tools in the latest model request."""
        return [tool.name for tool in self.model.requests[-1].tools]

    async def record(self, tool_name: str, status: str) -> AgentToolCallRecord:
        """The record of the active turn's call of a tool, once it has the status."""

        def find(view: StateView) -> AgentToolCallRecord | None:
            records = [record for _, record in view.read_range(AGENT_TOOL_CALLS) if record.tool_name == tool_name]
            return next((record for record in records if record.status == status), None)

        return await self.engine.wait_until("s", find, timeout=WAIT_SECONDS)

    async def poll_now(self) -> None:
        """End the interval of the next poll."""
        description = await self.engine.describe_flow("s")
        (step,) = [step for step in description.open_steps if step.step_type == "PollToolTask"]
        assert await self.engine.skip_timer("s", step.step_execution_id)

    async def question(self) -> Any:
        """The one question that waits, or will."""
        (interrupt,) = await self.client.wait_for_interrupts("s", timeout=WAIT_SECONDS)
        assert interrupt.kind == "question"
        return interrupt

    async def answer(self, text: str) -> None:
        """Answer it."""
        interrupt = await self.question()
        assert await self.client.answer_question("s", interrupt.interrupt_id, text)


@contextlib.asynccontextmanager
async def mcp_session(
    directory: Path,
    servers: Sequence[McpServer],
    reply: Callable[[ModelRequest], ScriptedModelReply],
    *,
    options: McpSourceOptions = PATIENT,
    source: McpToolSource | None = None,
    policies: Mapping[str, ToolPolicy] | None = None,
    flow_options: Mapping[str, Any] | None = None,
    clock: Callable[[], int] | None = None,
    **definition: Any,
) -> AsyncIterator[McpSession]:
    """Run an agent's session; writes need no approval unless `policies` says so."""
    source = source or McpToolSource(servers, options=options)
    model = ScriptedModelClient(reply)
    if policies is None:
        policies = {f"{server.name}__{tool}": FREE for server in servers for tool in ("act", "work")}
    agent = AgentDefinition(
        name="mcp",
        instructions="Help.",
        model=model,
        tool_sources=[source],
        tool_source_listing_timeout=timedelta(seconds=60),
        tool_policies=policies,
        **definition,
    )
    flow = create_stepwise_agent_session_flow(
        agent, "McpAgent", **{"attempt_backoff": timedelta(0), **(flow_options or {})}
    )
    async with EmbeddedEngine(directory / "sessions.db", flows=[flow], durability="process", clock=clock) as engine:
        yield McpSession(engine, flow, model, source)
        await source.aclose()
