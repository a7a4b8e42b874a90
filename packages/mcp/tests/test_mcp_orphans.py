"""A worker that is killed in the middle of a call leaves no server process behind."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from dex_agents.testing import poll_until
from dex_flow.testing import ProgramProcesses

pytestmark = pytest.mark.processes

PROGRAM = Path(__file__).parent / "programs" / "calling_worker.py"


def is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process_id}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_killed_worker_leaves_no_server_process_even_one_that_ignores_everything(tmp_path: Path) -> None:
    async def scenario(processes: ProgramProcesses) -> None:
        worker = await asyncio.to_thread(processes.start, PROGRAM, str(tmp_path), ready_line="listed")

        def alive() -> list[int]:
            return [pid for pid in (int(file.stem) for file in tmp_path.glob("*.pid")) if is_alive(pid)]

        await poll_until(lambda: len(alive()) >= 2 or None, awaited="the server and its child", timeout=60)
        worker.kill()
        await poll_until(lambda: alive() == [] or None, awaited="the end of every process", timeout=60)

    with ProgramProcesses() as processes:
        asyncio.run(scenario(processes))
