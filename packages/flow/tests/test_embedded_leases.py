"""The lease check by itself: the kernel would still take these commands, because the attempt runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dex_flow import ActivityStep, AttemptFailure, Attribute, Decision, Flow, StateView, Transaction, complete
from dex_flow.embedded import EmbeddedEngine
from dex_flow.embedded.command_transaction import AttemptLease
from dex_flow.kernel import AttemptDiscardedError, AttemptFailed, AttemptSucceeded, Command, SaveCheckpoint

done = Attribute[str]("Done", str)


class Job(ActivityStep[None, None, str]):
    def __init__(self, started: asyncio.Event) -> None:
        self._started = started

    def load(self, view: StateView, input: None) -> None: ...

    async def run(self, activity: Any, snapshot: None) -> str:
        self._started.set()
        await asyncio.Event().wait()
        raise AssertionError

    def commit(self, tx: Transaction, input: None, outcome: str) -> Decision:
        tx.set(done, outcome)
        return complete(outcome)


COMMANDS = [
    AttemptSucceeded(1, 1, "late"),
    AttemptFailed(1, 1, AttemptFailure(error_type="OSError", message="late", is_retryable=False)),
    SaveCheckpoint(1, 1, "late"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
@pytest.mark.parametrize("wrong", ["epoch", "worker_key"])
def test_a_command_under_a_lease_that_has_changed_is_refused(tmp_path: Path, command: Command, wrong: str) -> None:
    async def scenario() -> None:
        started = asyncio.Event()
        flow = Flow("Jobs", steps=[Job(started)], start_step=Job, declarations=[done])
        async with EmbeddedEngine(tmp_path / "db", [flow], shutdown_grace=0) as engine:
            await engine.start_flow(flow, "f")
            await started.wait()
            worker = engine._commands.worker
            assert worker is not None
            (attempt,) = worker.running.values()
            lease: AttemptLease = attempt.lease
            before = await engine.describe_flow("f")

            earlier = lease._replace(epoch=lease.epoch - 1) if wrong == "epoch" else lease._replace(worker_key=77)
            with pytest.raises(AttemptDiscardedError, match="taken over by another worker"):
                await engine._commands.submit(attempt.kernel, "f", command, lease=earlier)
            assert await engine.describe_flow("f") == before

            await engine._commands.submit(attempt.kernel, "f", AttemptSucceeded(1, 1, "in time"), lease=lease)
            assert await engine.get_attribute("f", done) == "in time"

    asyncio.run(asyncio.wait_for(scenario(), 60))
