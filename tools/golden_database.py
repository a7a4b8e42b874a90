"""Writes the golden database file of this release: `uv run python -m tools.golden_database`.

A file holds sessions as this release stores them; the tests open a copy of every release's file with today's code and
continue each session. Write one when a release is made, and never change it afterwards: it stands for the databases
that users have. Until the release is made, write it again whenever what is stored changes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.metadata
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dex_flow.embedded import EmbeddedEngine
from tools.golden_agents import GoldenRunner, create_golden_flow, create_golden_stepwise_flow
from tools.golden_sessions import GOLDEN_SESSIONS, HELD_SESSION, WAIT_SECONDS, WRITTEN_AT

__all__ = ["GOLDEN_DIRECTORY", "main", "write_golden_database"]

GOLDEN_DIRECTORY = Path(__file__).resolve().parents[1] / "tests" / "golden"
_WRITTEN_AT = int(WRITTEN_AT.timestamp()) * 1_000_000


async def write_golden_database(path: Path) -> None:
    """Write a file with every session.

    Args:
        path: The new file.
    """
    runner = GoldenRunner([HELD_SESSION])
    flows = {"runner": create_golden_flow(runner), "stepwise": create_golden_stepwise_flow()}
    with tempfile.TemporaryDirectory(prefix="golden-") as directory:
        database = Path(directory) / "golden.sqlite3"
        async with EmbeddedEngine(
            database, list(flows.values()), shutdown_grace=0.0, clock=lambda: _WRITTEN_AT
        ) as engine:
            # One after the other, so that the rows of two files are in the same order.
            for session in GOLDEN_SESSIONS:
                await session.leave(engine, flows[session.agent])
            async with asyncio.timeout(WAIT_SECONDS):
                await runner.is_held.wait()
        # Everything must be in the main file, which is all that is copied.
        with contextlib.closing(sqlite3.connect(database)) as connection:
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        if busy:
            raise RuntimeError("the engine still uses the file")
        await asyncio.to_thread(shutil.copyfile, database, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the file of the installed release, or the one that the arguments name."""
    release = importlib.metadata.version("dex-agents")
    parser = argparse.ArgumentParser(prog="python -m tools.golden_database", description="Write a golden database.")
    parser.add_argument("path", type=Path, nargs="?", default=GOLDEN_DIRECTORY / f"{release}.sqlite3")
    path = parser.parse_args(arguments).path
    path.parent.mkdir(parents=True, exist_ok=True)
    asyncio.run(write_golden_database(path))
    print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
