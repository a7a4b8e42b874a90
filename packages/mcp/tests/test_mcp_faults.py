"""All that goes wrong between a call and its server: what is recorded, how often the tool ran, and what follows."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dex_agents_mcp import McpSourceOptions, McpToolSource

from .mcp_raw_server import LEGACY, MODERN
from .mcp_scene import PATIENT, McpSession, RawPeer, call, mcp_session, raw_peer, script

TOOLS = ("look", "put", "act")  # a read, an idempotent write, and a write without hints


@dataclass(frozen=True)
class Outcome:
    """Final statuses, and runs, of the three tools."""

    statuses: tuple[str, str, str]
    runs: tuple[int, int, int]


NEVER_SENT = Outcome(("failed", "failed", "failed"), (0, 0, 0))
REFUSED = Outcome(("failed", "failed", "failed"), (0, 0, 0))
TOOL_FAILED = Outcome(("failed", "failed", "failed"), (1, 1, 1))
ANSWERED = Outcome(("succeeded", "succeeded", "succeeded"), (1, 1, 1))
LOST_BEFORE_RUN = Outcome(("failed", "outcome_unknown", "outcome_unknown"), (0, 0, 0))
LOST_AFTER_RUN = Outcome(("failed", "outcome_unknown", "outcome_unknown"), (3, 3, 1))

PEERS = {
    "http modern": ("http", MODERN, False),
    "http legacy": ("http", LEGACY, True),
    "http legacy without sessions": ("http", LEGACY, False),
    "stdio modern": ("stdio", MODERN, False),
    "stdio legacy": ("stdio", LEGACY, False),
}

ALL_TRANSPORTS = {
    "rpc_error -32602": REFUSED,
    "rpc_error -32001000": REFUSED,
    "internal_error": LOST_AFTER_RUN,
    "is_error": TOOL_FAILED,
    "wrong_shape": LOST_AFTER_RUN,
    "unknown_block": ANSWERED,
    "oversized": ANSWERED,
}
HTTP = {
    **{f"status {status}": LOST_BEFORE_RUN for status in (202, 302, 400, 401, 404, 429, 503)},
    **{f"status_after {status}": LOST_AFTER_RUN for status in (302, 404, 502)},
    "rpc_error_with_status": LOST_AFTER_RUN,
    "html": LOST_AFTER_RUN,
    "broken_json": LOST_AFTER_RUN,
    "broken_event": LOST_AFTER_RUN,
    "cut_json": LOST_AFTER_RUN,
    "cut_stream": LOST_AFTER_RUN,
    "empty_stream": LOST_AFTER_RUN,
    "close": LOST_AFTER_RUN,
}
STDIO = {
    "noise": ANSWERED,
    "exit_before_run": LOST_BEFORE_RUN,
    "exit_after_run": LOST_AFTER_RUN,
    "cut_json": LOST_AFTER_RUN,
    "close_output": LOST_AFTER_RUN,
}
HTTP_CONNECTING = (
    "refused",
    "status 302",
    "status 401",
    "status 403",
    "status 404",
    "status 500",
    "html",
    "broken_json",
)


def cases() -> list[Any]:
    made = []
    for peer, (transport, era, _) in PEERS.items():
        faults = {**ALL_TRANSPORTS, **(HTTP if transport == "http" else STDIO)}
        if peer == "http legacy without sessions":
            faults = {name: faults[name] for name in ("internal_error", "status 404", "close")}
        if era == MODERN:
            faults["unknown_result_type"] = LOST_AFTER_RUN
        made += [pytest.param(peer, fault, outcome, id=f"{peer}: {fault}") for fault, outcome in faults.items()]
    return made


def turn_calls() -> list[Any]:
    return [call(f"s__{tool}", {"text": tool}) for tool in TOOLS]


def counted_runs(peer: RawPeer) -> tuple[int, ...]:
    """Runs of each tool; every run of one tool must have had the same idempotency key."""
    assert len({(run["tool"], run["key"]) for run in peer.runs()}) == len({run["tool"] for run in peer.runs()})
    counts = Counter(run["tool"] for run in peer.runs())
    return tuple(counts[tool] for tool in TOOLS)


async def check(session: McpSession, peer: RawPeer, outcome: Outcome) -> None:
    """Play a turn with the fault, and another one without it."""
    statuses = await session.turn()
    assert statuses == [(f"s__{tool}", status) for tool, status in zip(TOOLS, outcome.statuses, strict=True)]
    assert counted_runs(peer) == outcome.runs


async def check_next_call(session: McpSession, peer: RawPeer) -> None:
    before = len(peer.runs())
    assert await session.turn() == [(f"s__{tool}", "succeeded") for tool in TOOLS]
    assert session.results() == ["look: look", "put: put", "act: act"]
    assert len(peer.runs()) == before + 3


async def listed_source(peer: RawPeer, options: McpSourceOptions = PATIENT) -> McpToolSource:
    source = McpToolSource([peer.config()], options=options)
    assert len(await source.list_tools()) == 6
    return source


@pytest.mark.parametrize(("peer_name", "fault", "outcome"), cases())
def test_what_a_fault_during_the_call_records(tmp_path: Path, peer_name: str, fault: str, outcome: Outcome) -> None:
    transport, era, keeps_sessions = PEERS[peer_name]

    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", era, transport, keeps_sessions=keeps_sessions) as peer:
            source = await listed_source(peer)
            calls = turn_calls()
            async with mcp_session(tmp_path, [peer.config()], script(calls, calls), source=source) as session:
                peer.set_fault(fault)
                await check(session, peer, outcome)
                if fault == "oversized":
                    assert all("The result was cut here" in result for result in session.results())
                peer.clear_fault()
                await check_next_call(session, peer)

    asyncio.run(scenario())


@pytest.mark.parametrize("peer_name", ["http modern", "http legacy"])
@pytest.mark.parametrize("fault", HTTP_CONNECTING)
def test_a_call_whose_http_server_cannot_be_reached_was_never_sent(tmp_path: Path, peer_name: str, fault: str) -> None:
    transport, era, keeps_sessions = PEERS[peer_name]

    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", era, transport, keeps_sessions=keeps_sessions) as peer:
            source = await listed_source(peer)
            calls = turn_calls()
            async with mcp_session(tmp_path, [peer.config()], script(calls, calls), source=source) as session:
                assert peer.http is not None
                peer.http.headers.clear()
                if fault == "refused":
                    peer.stop()
                else:
                    peer.set_fault(fault, "*")
                await check(session, peer, NEVER_SENT)
                assert all("was not run: the MCP server 's' could not be reached" in text for text in session.results())
                assert peer.requests("tools/call") == []
                if fault in ("status 401", "status 403"):
                    # Refused credentials are not tried again.
                    assert peer.http is not None
                    assert len(peer.http.headers) == 3
                if fault == "refused":
                    peer.start()
                else:
                    peer.clear_fault()
                await check_next_call(session, peer)

    asyncio.run(scenario())


@pytest.mark.parametrize("era", [MODERN, LEGACY])
def test_a_call_whose_process_ends_at_its_start_was_never_sent_and_says_what_it_wrote(tmp_path: Path, era: str) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", era, "stdio") as peer:
            source = await listed_source(peer)
            calls = turn_calls()
            async with mcp_session(tmp_path, [peer.config()], script(calls, calls), source=source) as session:
                peer.set_fault("exit_at_start", "*")
                await check(session, peer, NEVER_SENT)
                assert all("it wrote: the configuration is wrong" in text for text in session.results())
                peer.clear_fault()
                await check_next_call(session, peer)

    asyncio.run(scenario())


@pytest.mark.parametrize("peer_name", PEERS)
def test_a_server_that_accepts_and_never_answers_was_never_sent_the_call(tmp_path: Path, peer_name: str) -> None:
    transport, era, keeps_sessions = PEERS[peer_name]

    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", era, transport, keeps_sessions=keeps_sessions) as peer:
            source = await listed_source(peer)
            calls = turn_calls()
            async with mcp_session(tmp_path, [peer.config()], script(calls, calls), source=source) as session:
                peer.set_fault("silent", "*")
                (client,) = source._clients.values()
                client.options = dataclasses.replace(
                    PATIENT, connection_timeout=timedelta(milliseconds=300), connection_attempts=2
                )
                await check(session, peer, NEVER_SENT)
                client.options = PATIENT
                peer.clear_fault()
                await check_next_call(session, peer)

    asyncio.run(scenario())


@pytest.mark.parametrize("peer_name", PEERS)
def test_a_call_that_takes_too_long_is_interrupted_and_the_server_is_told(tmp_path: Path, peer_name: str) -> None:
    transport, era, keeps_sessions = PEERS[peer_name]

    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", era, transport, keeps_sessions=keeps_sessions) as peer:
            source = await listed_source(peer)
            calls = turn_calls()
            async with mcp_session(tmp_path, [peer.config()], script(calls, calls), source=source) as session:
                peer.set_fault("hang")
                source.options = dataclasses.replace(PATIENT, call_timeout=timedelta(seconds=1.5))
                assert await session.turn() == [
                    (f"s__{tool}", status) for tool, status in zip(TOOLS, LOST_AFTER_RUN.statuses, strict=True)
                ]
                # On a busy machine, 1.5 seconds may end before a server reads its call.
                runs = counted_runs(peer)
                assert all(count <= most for count, most in zip(runs, LOST_AFTER_RUN.runs, strict=True))
                if (transport, era) != ("http", MODERN):  # there, the end of the request says it
                    assert peer.notifications().count("notifications/cancelled") >= 1
                source.options = PATIENT
                peer.clear_fault()
                await check_next_call(session, peer)

    asyncio.run(scenario())
