"""MCP tools in sessions, from the model's request to its result."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from .mcp_raw_server import LEGACY, MODERN
from .mcp_scene import call, mcp_session, raw_peer, script

PEERS = [("stdio", MODERN), ("stdio", LEGACY), ("http", MODERN), ("http", LEGACY)]


@pytest.mark.parametrize(("transport", "era"), PEERS)
def test_calls_run_once_with_the_idempotency_key_and_the_effect_of_the_annotations(
    tmp_path: Path, transport: str, era: str
) -> None:
    async def scenario() -> None:
        calls = [call("s__look", {"text": "a"}), call("s__put", {"text": "b"}), call("s__act", {"text": "c"})]
        with raw_peer(tmp_path / "peer", era, transport) as peer:
            async with mcp_session(tmp_path, [peer.config()], script(calls)) as session:
                assert await session.turn() == [
                    ("s__look", "succeeded"),
                    ("s__put", "succeeded"),
                    ("s__act", "succeeded"),
                ]
                assert session.results() == ["look: a", "put: b", "act: c"]
                assert [tool.effect for tool in session.source.cached_tools()[:3]] == [
                    "read",
                    "idempotent_write",
                    None,
                ]
                runs = {run["tool"]: run["key"] for run in peer.runs()}
                assert len(peer.runs()) == 3
                assert sorted(runs.values()) == sorted(f"s/turn-1/call_1_{number}" for number in (1, 2, 3))

    asyncio.run(scenario())
