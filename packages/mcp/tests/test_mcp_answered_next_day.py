"""What a server asks for in the middle of a call outlives every process, and the answer may take a day."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from dex_agents_mcp import McpHttpServer
from dex_flow.testing import ProgramProcesses

from .mcp_raw_server import MODERN
from .mcp_scene import RawPeer, call, mcp_session, raw_peer, script

pytestmark = pytest.mark.processes

PROGRAM = Path(__file__).parent / "programs" / "asking_worker.py"
DAY_MICROSECONDS = 24 * 3600 * 1_000_000


def next_day() -> int:
    return time.time_ns() // 1000 + DAY_MICROSECONDS


async def answer_next_day(directory: Path, peer: RawPeer) -> None:
    async with mcp_session(directory, [peer.config()], script([call("s__ask")]), clock=next_day) as session:
        assert (await session.question()).question == "Which region?"
        assert peer.runs("ask") == []
        await session.answer("eu")
        assert await session.ended() == [("s__ask", "succeeded")]
        (result,) = session.results()
        assert '"region": "eu"' in result
        assert [run["key"] for run in peer.runs("ask")] == ["s/turn-1/call_1_1"]


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_an_answer_on_the_next_day_completes_a_call_once_after_every_process_was_killed(
    tmp_path: Path, transport: str
) -> None:
    with raw_peer(tmp_path / "peer", MODERN, transport) as peer, ProgramProcesses() as processes:
        schema = {"type": "object", "properties": {"region": {"type": "string"}}, "required": ["region"]}
        params = {"message": "Which region?", "requestedSchema": schema}
        peer.write("asks.json", {"region": {"method": "elicitation/create", "params": params}})
        config = peer.config()
        url = [config.url] if isinstance(config, McpHttpServer) else []
        worker = processes.start(PROGRAM, str(tmp_path), str(peer.directory), *url, ready_line="asked")
        worker.kill()
        if transport == "http":
            peer.stop()
            peer.start()
        asyncio.run(answer_next_day(tmp_path, peer))
