"""What users of MCP agents reported, as far as one worker and raw servers show it."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dex_agents_mcp import McpToolSource

from .mcp_raw_server import LEGACY, MODERN
from .mcp_scene import PATIENT, call, mcp_session, raw_peer, script

OFFERED = re.compile(r"[A-Za-z0-9_-]{1,64}")


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}


def test_F07_a_dead_server_hides_only_its_own_tools_is_left_alone_and_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "up", MODERN, "http") as up, raw_peer(tmp_path / "down", MODERN, "http") as down:
            down.stop()
            options = dataclasses.replace(PATIENT, listing_failure_backoff=timedelta(hours=1))
            servers = [up.config("up"), down.config("down")]
            source = McpToolSource(servers, options=options)
            calls = [call("up__look")]
            async with mcp_session(tmp_path, servers, script(calls, calls, calls), source=source) as session:
                assert await session.turn() == [("up__look", "succeeded")]
                assert {name.partition("__")[0] for name in session.offered() if "__" in name} == {"up"}
                down.start()
                assert await session.turn() == [("up__look", "succeeded")]
                assert down.requests("tools/list") == []
                await source.list_tools(refresh=True)
                assert await session.turn() == [("up__look", "succeeded")]
                assert "down__look" in session.offered()
                assert len(down.requests("tools/list")) == 1
        warnings = [entry for entry in caplog.records if entry.levelno == logging.WARNING and "down" in entry.message]
        assert len(warnings) == 1

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
            peer.write("tools.json", [tool(name) for name in reversed(names) if name != "a/b"])
            second = McpToolSource([peer.config()], options=PATIENT)
            assert {listed.mcp_name: listed.name for listed in await second.list_tools()} == offered
        assert [entry for entry in caplog.records if "'a/b'" in entry.getMessage()] != []

    asyncio.run(scenario())


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
