"""Field scenarios F07, F12, F22 and F46: dead servers, restarted ones, names of tools, and listings that change."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dex_agents import BUILT_IN_TOOL_DEFINITIONS, ToolEffect, ToolPolicy
from dex_agents.testing import poll_until
from dex_agents_mcp import McpToolSource
from dex_agents_mcp.resource_prompt_tools import RESOURCE_AND_PROMPT_TOOL_NAMES
from dex_agents_mcp.tool_names import offered_tool_name

from .mcp_raw_server import LEGACY, MODERN
from .mcp_scene import PATIENT, ListingClock, call, mcp_session, raw_peer, script

OFFERED = re.compile(r"[A-Za-z0-9_-]{1,64}")


def is_warning_about(entry: logging.LogRecord, server: str) -> bool:
    return entry.levelno == logging.WARNING and f"MCP server {server!r}" in entry.getMessage()


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}


def test_F07_dead_servers_hide_only_their_own_tools_are_left_alone_and_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ListingClock(monkeypatch)

    async def scenario() -> None:
        with (
            raw_peer(tmp_path / "up", MODERN, "http") as up,
            raw_peer(tmp_path / "down", MODERN, "http") as down,
            raw_peer(tmp_path / "silent", MODERN, "http") as silent,
        ):
            down.stop()
            silent.set_fault("silent", "*")
            servers = [up.config("up"), down.config("down"), silent.config("silent")]
            source = McpToolSource(servers, options=PATIENT)
            source._clients["silent"].options = dataclasses.replace(
                PATIENT, connection_timeout=timedelta(milliseconds=300)
            )
            calls = [call("up__look")]
            async with mcp_session(tmp_path, servers, script(*[calls] * 4), source=source) as session:
                for _ in range(3):
                    assert await session.turn() == [("up__look", "succeeded")]
                    assert {name.partition("__")[0] for name in session.offered()} == {"up"}
                assert silent.http is not None
                assert len(silent.http.headers) <= 1  # none, when a busy machine needs all of the 300 ms to connect
                source._clients["silent"].options = PATIENT
                silent.clear_fault()
                down.start()
                await source.list_tools()
                assert down.requests("tools/list") == silent.requests("tools/list") == []
                clock.pass_time(PATIENT.listing_failure_backoff)
                await source.list_tools()
                await poll_until(lambda: len(source.cached_tools()) == 18 or None, awaited="all tools", timeout=60)
                assert await session.turn() == [("up__look", "succeeded")]
                assert {name.partition("__")[0] for name in session.offered()} == {"up", "down", "silent"}
                assert len(down.requests("tools/list")) == len(silent.requests("tools/list")) == 1
        for name in ("down", "silent"):
            assert len([entry for entry in caplog.records if is_warning_about(entry, name)]) == 1

    asyncio.run(scenario())


def test_F07_a_server_that_never_answers_does_not_hold_the_listing_of_the_others(tmp_path: Path) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "up", MODERN, "http") as up, raw_peer(tmp_path / "silent", MODERN, "http") as silent:
            silent.set_fault("silent", "*")
            options = dataclasses.replace(
                PATIENT, connection_timeout=timedelta(hours=1), listing_wait_timeout=timedelta(milliseconds=50)
            )
            source = McpToolSource([silent.config("silent"), up.config("up")], options=options)
            await source.list_tools()  # comes back, with or without the tools of the one that answers

            async def offered() -> bool | None:
                return "up__look" in [tool.name for tool in await source.list_tools()] or None

            await poll_until(offered, awaited="the tools of the server that answers", timeout=60)
            await source.aclose()

    asyncio.run(scenario())


def test_F12_a_restarted_server_that_forgot_its_protocol_sessions_answers_the_next_call(tmp_path: Path) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", LEGACY, "http", keeps_sessions=True) as peer:
            calls = [call("s__look"), call("s__act")]
            async with mcp_session(tmp_path, [peer.config()], script(calls, calls)) as session:
                assert await session.turn() == [("s__look", "succeeded"), ("s__act", "succeeded")]
                peer.stop()
                peer.start()
                assert await session.turn() == [("s__look", "succeeded"), ("s__act", "succeeded")]
                assert len(peer.runs("look")) == len(peer.runs("act")) == 2

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("tool", "status", "runs"), [("look", "succeeded", 2), ("put", "succeeded", 2), ("act", "outcome_unknown", 1)]
)
def test_F12_a_process_that_dies_in_a_call_is_started_again_only_for_what_may_be_repeated(
    tmp_path: Path, tool: str, status: str, runs: int
) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "stdio") as peer:
            calls = [call(f"s__{tool}")]
            async with mcp_session(tmp_path, [peer.config()], script(calls, calls)) as session:
                peer.set_fault("exit_after_first_run")
                assert await session.turn() == [(f"s__{tool}", status)]
                assert len(peer.runs(tool)) == runs
                assert {run["key"] for run in peer.runs(tool)} == {"s/turn-1/call_1_1"}
                peer.clear_fault()
                assert await session.turn() == [(f"s__{tool}", "succeeded")]

    asyncio.run(scenario())


def test_F12_two_answers_that_the_protocol_session_is_gone_are_no_verdict(tmp_path: Path) -> None:
    """404 twice, then healthy: the read is sent again on a new connection, with its key, and recorded once."""

    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", LEGACY, "http", keeps_sessions=True) as peer:
            async with mcp_session(tmp_path, [peer.config()], script([call("s__look")])) as session:
                peer.set_fault("status_twice 404")
                assert await session.turn() == [("s__look", "succeeded")]
                assert [run["key"] for run in peer.runs("look")] == ["s/turn-1/call_1_1"]

    asyncio.run(scenario())


def test_F22_every_offered_name_is_accepted_by_providers_and_leads_to_its_tool(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = ["x" * 64, "x" * 65, "x" * 200, "a.b", "a/b", "日本", "look", "Look"]

    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            peer.write("tools.json", [tool(name) for name in names])
            first = McpToolSource([peer.config()], options=PATIENT)
            offered = {listed.mcp_name: listed.name for listed in await first.list_tools()}
            assert set(offered) == set(names) - {"a/b"}
            assert all(OFFERED.fullmatch(name) for name in offered.values())
            assert len(set(offered.values())) == len(offered)
            for mcp_name, name in offered.items():
                await first.call_tool(name, {}, idempotency_key="k")
                assert peer.runs()[-1]["tool"] == mcp_name
            peer.write("tools.json", [tool(name) for name in reversed(names)])
            second = McpToolSource([peer.config()], options=PATIENT)
            assert {listed.mcp_name: listed.name for listed in await second.list_tools()} == offered
        assert [entry for entry in caplog.records if "'a/b'" in entry.getMessage()] != []

    asyncio.run(scenario())


def test_F22_which_tool_has_a_name_does_not_depend_on_the_order_of_servers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "one", MODERN, "http") as one, raw_peer(tmp_path / "two", MODERN, "http") as two:
            one.write("tools.json", [tool("b__c"), tool("b.c")])
            two.write("tools.json", [tool("c")])
            servers = [one.config("a"), two.config("a__b")]
            for ordered in (servers, servers[::-1]):
                source = McpToolSource(ordered, options=PATIENT)
                offered = {listed.name: (listed.server_name, listed.mcp_name) for listed in await source.list_tools()}
                assert offered == {"a__b__c": ("a", "b__c"), "a__b_c": ("a", "b.c")}
                await source.list_tools()
        warnings = [entry for entry in caplog.records if "the name a__b__c is taken" in entry.getMessage()]
        assert len(warnings) == 2  # once for each source

    asyncio.run(scenario())


def test_F22_policies_and_approvals_use_the_offered_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            peer.write("tools.json", [tool("files/read"), tool("日本")])
            policies = {"s__files_read": ToolPolicy(effect=ToolEffect.READ, requires_approval=True)}
            calls = [call("s__files_read"), call("s____")]
            async with mcp_session(tmp_path, [peer.config()], script(calls), policies=policies) as session:
                await session.say()
                (interrupt,) = await session.client.wait_for_interrupts("s", timeout=60)
                assert interrupt.tool_name == "s__files_read"
                assert await session.client.resolve_interrupt("s", interrupt.interrupt_id, approved=True)
                assert await session.ended() == [("s__files_read", "succeeded"), ("s____", "succeeded")]
                assert sorted(run["tool"] for run in peer.runs()) == ["files/read", "日本"]

    asyncio.run(scenario())


def test_F22_no_tool_of_a_server_has_the_name_of_a_built_in_tool_or_of_the_sources_own() -> None:
    """Every name of a server's tool has two underscores behind the server's, however it was changed or cut."""
    taken = {*BUILT_IN_TOOL_DEFINITIONS, *RESOURCE_AND_PROMPT_TOOL_NAMES}
    assert all("__" not in name for name in taken)
    for server in ("mcp", "ask", "a" * 32):
        for name in (*taken, "user", "_user", "", ".", "x" * 300, *(name.partition("_")[2] for name in taken)):
            offered = offered_tool_name(server, name)
            assert offered.startswith(f"{server}__")
            assert OFFERED.fullmatch(offered)


def test_F46_a_recorded_call_runs_on_a_worker_whose_listing_lacks_the_tool(tmp_path: Path) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            turns = script([call("s__act")])
            async with mcp_session(tmp_path, [peer.config()], turns, policies={}) as session:
                await session.say()
                await session.client.wait_for_interrupts("s", timeout=60)
            peer.write("tools.json", [tool("look")])
            async with mcp_session(tmp_path, [peer.config()], turns, policies={}) as session:
                (interrupt,) = await session.client.wait_for_interrupts("s", timeout=60)
                assert await session.client.resolve_interrupt("s", interrupt.interrupt_id, approved=True)
                assert await session.ended() == [("s__act", "succeeded")]
                assert len(peer.runs("act")) == 1
                assert "s__act" not in session.offered()

    asyncio.run(scenario())


def test_F46_a_recorded_call_of_a_tool_the_server_no_longer_has_fails_by_name(tmp_path: Path) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            turns = script([call("s__act")])
            async with mcp_session(tmp_path, [peer.config()], turns, policies={}) as session:
                await session.say()
                await session.client.wait_for_interrupts("s", timeout=60)
            peer.set_fault("rpc_error -32602")
            async with mcp_session(tmp_path, [peer.config()], turns, policies={}) as session:
                (interrupt,) = await session.client.wait_for_interrupts("s", timeout=60)
                assert await session.client.resolve_interrupt("s", interrupt.interrupt_id, approved=True)
                assert await session.ended() == [("s__act", "failed")]
                assert peer.runs() == []

    asyncio.run(scenario())


def test_F46_a_policy_that_was_tightened_holds_for_the_next_call_and_not_for_the_recorded_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            turns = script([call("s__look"), call("s__act")], [call("s__look")])
            ask_first = {"s__look": ToolPolicy(requires_approval=True), "s__act": ToolPolicy(requires_approval=True)}
            act_alone = {"s__act": ToolPolicy(requires_approval=True)}
            async with mcp_session(tmp_path, [peer.config()], turns, policies=act_alone) as session:
                await session.say()
                (interrupt,) = await session.client.wait_for_interrupts("s", timeout=60)
                await session.record("s__look", "succeeded")
            async with mcp_session(tmp_path, [peer.config()], turns, policies=ask_first) as session:
                assert await session.client.resolve_interrupt("s", interrupt.interrupt_id, approved=True)
                assert await session.ended() == [("s__look", "succeeded"), ("s__act", "succeeded")]
                await session.say()
                (interrupt,) = await session.client.wait_for_interrupts("s", timeout=60)
                assert interrupt.tool_name == "s__look"
                assert len(peer.runs("look")) == 1

    asyncio.run(scenario())
