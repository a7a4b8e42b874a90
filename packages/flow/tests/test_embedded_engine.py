"""What is particular to the embedded engine: files, durability, slots, shutdown, a storage that refuses commits."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dex_flow import (
    ActivityStep,
    Attribute,
    AttributeMap,
    Channel,
    Decision,
    DefinitionError,
    EngineClosedError,
    Flow,
    FlowClosedError,
    FlowDefinitionMismatchError,
    InlineStep,
    Retry,
    Rpc,
    StateView,
    StepOptions,
    StorageError,
    StoredFormatError,
    Transaction,
    Wait,
    dead_end,
    go_to_many,
    move,
)
from dex_flow.embedded import EmbeddedEngine
from dex_flow.embedded.group_writer import GroupWriter
from dex_flow.embedded.scheduler import Scheduler, SchedulerPorts, _Findings

DEADLINE = 60.0

jobs = Channel("Jobs", str)
results = AttributeMap("Results", str)
lost = Attribute("Lost", str)


class AwaitJob(InlineStep[None]):
    def wait_for(self, view: StateView, input: None) -> Wait:
        return Wait.any_of(jobs.receive())

    def execute(self, tx: Transaction, input: None) -> Decision:
        (name,) = tx.wait_result.received
        return go_to_many(move(Work, name), move(AwaitJob))


class _Work(ActivityStep[str, str, str]):
    def __init__(self, work: Callable[[str], Any]) -> None:
        self._work = work

    def load(self, view: StateView, input: str) -> str:
        return input

    async def run(self, activity: Any, snapshot: str) -> str:
        return str(await self._work(snapshot))

    def commit(self, tx: Transaction, input: str, outcome: str) -> Decision:
        tx.set_instance(results, input, outcome)
        return dead_end()


class Work(_Work):
    options = StepOptions(retry=Retry(attempts=3))


class WorkOnce(_Work):
    step_type = "Work"
    options = StepOptions(retry=Retry(attempts=1), failure_route="RecordLoss")


class RecordLoss(InlineStep[str]):
    def execute(self, tx: Transaction, input: str) -> Decision:
        assert tx.recovery_error is not None
        tx.set(lost, f"{input}: {tx.recovery_error.error_type} {tx.recovery_error.attempt_progress}")
        return dead_end()


def _submit(tx: Transaction, name: str) -> int:
    return tx.publish(jobs, name)


submit = Rpc("submit", _submit, str, int)


def make_flow(work: Callable[[str], Any], *, once: bool = False, compatibility: int = 1) -> Flow:
    step = WorkOnce(work) if once else Work(work)
    return Flow(
        "Jobs",
        steps=[AwaitJob(), step, RecordLoss()],
        start_step=AwaitJob,
        declarations=[jobs, results, lost],
        rpcs=[submit],
        compatibility=compatibility,
    )


async def echo(name: str) -> str:
    return f"did {name}"


async def result(engine: EmbeddedEngine, flow_id: str, name: str) -> str:
    return await engine.wait_until(flow_id, lambda view: view.get_instance(results, name), timeout=DEADLINE)


def test_opening_a_file_of_a_newer_release_fails(tmp_path: Path) -> None:
    path = tmp_path / "flows.db"

    async def create() -> None:
        async with EmbeddedEngine(path, [make_flow(echo)]):
            pass

    asyncio.run(create())
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StoredFormatError, match="99"):
        asyncio.run(create())


def test_using_an_engine_that_is_not_open_fails(tmp_path: Path) -> None:
    flow = make_flow(echo)
    engine = EmbeddedEngine(tmp_path / "flows.db", [flow])
    with pytest.raises(EngineClosedError):
        asyncio.run(engine.start_flow(flow, "a"))


def test_two_flows_of_one_type_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="Jobs"):
        EmbeddedEngine(tmp_path / "flows.db", [make_flow(echo), make_flow(echo)])


def test_an_incompatible_definition_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        old, new = make_flow(echo), make_flow(echo, compatibility=2)
        async with EmbeddedEngine(tmp_path / "flows.db", [old]) as engine:
            await engine.start_flow(old, "a")
        async with EmbeddedEngine(tmp_path / "flows.db", [new]) as engine:
            with pytest.raises(FlowDefinitionMismatchError):
                await engine.invoke_rpc(new, "a", submit, "x")
        async with EmbeddedEngine(tmp_path / "flows.db", [old]) as engine:
            await engine.invoke_rpc(old, "a", submit, "y")
            assert await result(engine, "a", "y") == "did y"
            assert await engine.get_attribute_instance("a", results, "x") is None

    asyncio.run(main())


def test_more_ready_steps_than_slots_all_run(tmp_path: Path) -> None:
    running = 0
    most = 0

    async def count(name: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return name

    async def main() -> None:
        flow = make_flow(count)
        async with EmbeddedEngine(tmp_path / "flows.db", [flow], max_concurrent_steps=2) as engine:
            ids = [f"flow-{number}" for number in range(8)]
            for flow_id in ids:
                await engine.start_flow(flow, flow_id)
            await asyncio.gather(*(engine.invoke_rpc(flow, i, submit, str(n)) for i in ids for n in range(4)))
            for flow_id in ids:
                for number in range(4):
                    assert await result(engine, flow_id, str(number)) == str(number)

    asyncio.run(main())
    assert most <= 2


def test_process_durability_flushes_accepted_calls_and_started_markers_only(tmp_path: Path) -> None:
    async def flushes(durability: Any, *, once: bool) -> int:
        flow = make_flow(echo, once=once)
        path = tmp_path / f"{durability}-{once}.db"
        async with EmbeddedEngine(path, [flow], durability=durability) as engine:
            await engine.start_flow(flow, "a")
            before = engine.counters.durable_commits
            for number in range(5):
                await engine.invoke_rpc(flow, "a", submit, str(number))
                await result(engine, "a", str(number))
            return engine.counters.durable_commits - before

    assert asyncio.run(flushes("power", once=False)) == 10
    assert asyncio.run(flushes("process", once=False)) == 5
    assert asyncio.run(flushes("power", once=True)) == 15
    assert asyncio.run(flushes("process", once=True)) == 10


def test_closing_waits_for_a_running_attempt(tmp_path: Path) -> None:
    async def main() -> None:
        started, release = asyncio.Event(), asyncio.Event()

        async def wait(name: str) -> str:
            started.set()
            await release.wait()
            return name

        flow = make_flow(wait, once=True)
        async with EmbeddedEngine(tmp_path / "flows.db", [flow], shutdown_grace=DEADLINE) as engine:
            await engine.start_flow(flow, "a")
            await engine.invoke_rpc(flow, "a", submit, "job")
            await started.wait()
            asyncio.get_running_loop().call_soon(release.set)
        async with EmbeddedEngine(tmp_path / "flows.db", [flow], runs_worker=False) as engine:
            assert await result(engine, "a", "job") == "job"

    asyncio.run(main())


@pytest.mark.parametrize("once", [False, True])
def test_closing_without_grace_hands_running_steps_over(tmp_path: Path, once: bool) -> None:
    async def main() -> None:
        started = asyncio.Event()

        async def hang(name: str) -> str:
            started.set()
            await asyncio.Event().wait()
            return name

        flow = make_flow(hang, once=once)
        async with EmbeddedEngine(tmp_path / "flows.db", [flow], shutdown_grace=0) as engine:
            await engine.start_flow(flow, "a")
            await engine.invoke_rpc(flow, "a", submit, "job")
            await started.wait()
        again = make_flow(echo, once=once)
        async with EmbeddedEngine(tmp_path / "flows.db", [again]) as engine:
            if once:
                loss = await engine.wait_until("a", lambda view: view.get(lost), timeout=DEADLINE)
                assert loss == "job: WorkerLost NOT_COMPLETED"
            else:
                assert await result(engine, "a", "job") == "did job"

    asyncio.run(main())


def test_an_outcome_the_storage_refuses_is_kept_until_it_takes_it(tmp_path: Path) -> None:
    runs = 0

    async def main() -> None:
        release = asyncio.Event()
        started = asyncio.Event()

        async def big(name: str) -> str:
            nonlocal runs
            runs += 1
            started.set()
            await release.wait()
            return "x" * 200_000

        flow = make_flow(big, once=True)
        async with EmbeddedEngine(tmp_path / "flows.db", [flow]) as engine:
            await engine.start_flow(flow, "a")
            await engine.invoke_rpc(flow, "a", submit, "job")
            await started.wait()
            writer = engine._database.writer
            await writer.write(lambda c: _limit_pages(c, full=True))
            release.set()
            with pytest.raises(StorageError):
                # As big as the outcome: this shows that the storage is full without waiting for the worker.
                await engine.invoke_rpc(flow, "a", submit, "y" * 200_000)
            await _free_space(writer)
            assert len(await result(engine, "a", "job")) == 200_000

    asyncio.run(main())
    assert runs == 1


async def _free_space(writer: GroupWriter) -> None:
    while True:
        try:
            await writer.write(lambda connection: _limit_pages(connection, full=False))
        except StorageError:
            # It shared its batch with a try of the outcome, which was still too big for the file.
            continue
        return


def _limit_pages(connection: sqlite3.Connection, *, full: bool) -> None:
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    limit = pages + 5 if full else 1_000_000
    connection.execute(f"PRAGMA max_page_count = {limit}").fetchall()


def test_an_attempt_keeps_its_slot_when_the_commit_that_cancels_it_fails(tmp_path: Path) -> None:
    def cancel(tx: Transaction, text: str) -> int:
        return tx.cancel_steps("Work") * tx.publish(jobs, text)

    cancel_work = Rpc("cancel", cancel, str, int)

    async def scenario() -> None:
        release, started = asyncio.Event(), asyncio.Event()

        async def work(name: str) -> str:
            if name == "first":
                started.set()
                await release.wait()
            return f"did {name}"

        flow = make_flow(work)
        flow.rpcs["cancel"] = cancel_work
        async with EmbeddedEngine(tmp_path / "db", [flow], max_concurrent_steps=1) as engine:
            for flow_id in ("a", "b"):
                await engine.start_flow(flow, flow_id)
            await engine.invoke_rpc(flow, "a", submit, "first")
            await started.wait()
            writer = engine._database.writer
            await writer.write(lambda connection: _limit_pages(connection, full=True))
            with pytest.raises(StorageError):
                await engine.invoke_rpc(flow, "a", cancel_work, "y" * 200_000)
            await _free_space(writer)

            await engine.invoke_rpc(flow, "b", submit, "second")
            steps = (await engine.describe_flow("b")).open_steps
            assert [step.status for step in steps if step.step_type == "Work"] == ["ready"]
            assert engine._commands.worker is not None
            assert engine._commands.worker.slots.free == 0
            release.set()
            assert await result(engine, "a", "first") == "did first"
            assert await result(engine, "b", "second") == "did second"

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE))


def test_a_value_that_cannot_be_stored_fails_its_step_alone(tmp_path: Path) -> None:
    async def surrogate(name: str) -> str:
        return "\ud800" if name == "bad" else name

    async def main() -> None:
        flow = make_flow(surrogate, once=True)
        async with EmbeddedEngine(tmp_path / "flows.db", [flow]) as engine:
            await engine.start_flow(flow, "a")
            await engine.invoke_rpc(flow, "a", submit, "bad")
            loss = await engine.wait_until("a", lambda view: view.get(lost), timeout=DEADLINE)
            assert loss.startswith("bad: UnicodeEncodeError")
            await engine.invoke_rpc(flow, "a", submit, "good")
            assert await result(engine, "a", "good") == "good"

    asyncio.run(main())


def test_a_cancellation_that_escapes_a_step_fails_the_attempt(tmp_path: Path) -> None:
    async def main() -> None:
        async def leak(name: str) -> str:
            inner = asyncio.ensure_future(asyncio.Event().wait())
            inner.cancel()
            await inner
            return name

        flow = make_flow(leak, once=True)
        async with EmbeddedEngine(tmp_path / "flows.db", [flow]) as engine:
            await engine.start_flow(flow, "a")
            await engine.invoke_rpc(flow, "a", submit, "job")
            loss = await engine.wait_until("a", lambda view: view.get(lost), timeout=DEADLINE)
            assert loss == "job: CancelledError NOT_COMPLETED"

    asyncio.run(main())


class GaveUp(BaseException):
    """No Exception."""


@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), GaveUp()])
def test_what_is_no_exception_fails_the_attempt(tmp_path: Path, error: BaseException) -> None:
    async def give_up(name: str) -> str:
        raise error

    flow = make_flow(give_up, once=True)

    async def scenario() -> None:
        async with EmbeddedEngine(tmp_path / "db", [flow]) as engine:
            await engine.start_flow(flow, "f")
            await engine.invoke_rpc(flow, "f", submit, "a")
            found = await engine.wait_until("f", lambda view: view.get(lost))
            assert found == f"a: {type(error).__name__} NOT_COMPLETED"

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE))


def test_a_commit_that_exits_is_tried_again_and_holds_nothing_up(tmp_path: Path) -> None:
    is_broken = True

    class WorkAndExit(_Work):
        step_type = "Work"

        def commit(self, tx: Transaction, input: str, outcome: str) -> Decision:
            if is_broken and input == "a":
                raise SystemExit(3)
            return super().commit(tx, input, outcome)

    flow = make_flow(echo)
    flow.steps["Work"] = WorkAndExit(echo)

    async def scenario() -> None:
        nonlocal is_broken
        async with EmbeddedEngine(tmp_path / "db", [flow]) as engine:
            await engine.start_flow(flow, "f")
            for name in ("a", "b"):
                await engine.invoke_rpc(flow, "f", submit, name)
            assert await result(engine, "f", "b") == "did b"
            (step,) = [step for step in (await engine.describe_flow("f")).open_steps if step.step_type == "Work"]
            assert (step.status, step.last_error) == ("backoff", "SystemExit: 3")
            is_broken = False
            assert await result(engine, "f", "a") == "did a"

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE))


@pytest.mark.parametrize("once", [True, False])
def test_a_step_that_failed_for_good_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, once: bool
) -> None:
    async def fall_over(name: str) -> str:
        raise ConnectionError("nobody there")

    flow = make_flow(fall_over, once=once)

    async def scenario() -> None:
        async with EmbeddedEngine(tmp_path / "db", [flow]) as engine:
            await engine.start_flow(flow, "f")
            await engine.invoke_rpc(flow, "f", submit, "a")
            while await engine.get_attribute("f", lost) is None:
                if (await engine.describe_flow("f")).status == "failed":
                    break
                await asyncio.sleep(0.01)

    with caplog.at_level(logging.WARNING, logger="dex_flow"):
        asyncio.run(asyncio.wait_for(scenario(), DEADLINE))
    (record,) = [record for record in caplog.records if "failed in attempt" in record.getMessage()]
    attempt = 1 if once else 3
    assert record.name.startswith("dex_flow")
    assert record.levelno == logging.WARNING
    assert record.getMessage() == (
        f"step Work (execution 2) of flow 'f' failed in attempt {attempt}, its last one: ConnectionError: nobody there"
    )
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ConnectionError)
    assert record.exc_info[2] is not None


def test_pure_code_that_raises_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class WorkAndRaise(_Work):
        step_type = "Work"

        def commit(self, tx: Transaction, input: str, outcome: str) -> Decision:
            raise RuntimeError("broken")

    flow = make_flow(echo)
    flow.steps["Work"] = WorkAndRaise(echo)

    async def scenario() -> None:
        async with EmbeddedEngine(tmp_path / "db", [flow]) as engine:
            await engine.start_flow(flow, "f")
            await engine.invoke_rpc(flow, "f", submit, "a")
            while not any(step.last_error for step in (await engine.describe_flow("f")).open_steps):
                await asyncio.sleep(0.01)
            for _ in range(3):
                assert await engine.skip_timer("f", 2) is True

    with caplog.at_level(logging.WARNING, logger="dex_flow"):
        asyncio.run(asyncio.wait_for(scenario(), DEADLINE))
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["commit of step Work (execution 2, attempt 1) in flow 'f' failed: RuntimeError: broken"]


def test_waiting_for_a_state_that_a_closed_flow_cannot_reach_fails(tmp_path: Path) -> None:
    async def main() -> None:
        flow = make_flow(echo)
        async with EmbeddedEngine(tmp_path / "flows.db", [flow]) as engine:
            await engine.start_flow(flow, "a")
            waiting = asyncio.create_task(result(engine, "a", "never"))
            await asyncio.sleep(0)
            await engine.stop_flow("a")
            with pytest.raises(FlowClosedError, match="stopped"):
                await waiting

    asyncio.run(main())


@pytest.mark.parametrize("event", ["wake", "note_free_slot"])
def test_what_happens_during_a_look_for_work_leads_to_another_look(event: str) -> None:
    async def main() -> None:
        looks = 0
        looked_again = asyncio.Event()

        async def read(code: Callable[[sqlite3.Connection], Any]) -> Any:
            nonlocal looks
            looks += 1
            if looks == 1:
                # A commit of another process that this read does not see, or a slot that it does not count.
                getattr(scheduler, event)()
            else:
                looked_again.set()
            return _Findings(next_due=10**18, has_backlog=event == "note_free_slot")

        async def command(flow_type: str, flow_id: str, command: Any, owner: int | None) -> None:
            raise AssertionError("there is no work")

        async def nothing() -> None:
            raise AssertionError("there is no dead worker")

        ports = SchedulerPorts(
            read=read,
            command=command,
            fingerprints={},
            free_slots=lambda: 1,
            running_attempts=list,
            cancel_attempt=lambda key: None,
            remove_dead_workers=nothing,
            clock=lambda: 0,
        )
        scheduler = Scheduler(ports, 1, Path("workers"), 30.0)
        scheduler._pause = lambda: DEADLINE  # type: ignore[method-assign]
        task = asyncio.create_task(scheduler.run())
        async with asyncio.timeout(DEADLINE / 2):
            await looked_again.wait()
        task.cancel()

    asyncio.run(main())


def test_a_failure_whose_text_is_no_unicode_is_logged_as_text_that_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def fall_over(name: str) -> str:
        raise ConnectionError("half a pair: \ud800")

    flow = make_flow(fall_over, once=True)

    async def scenario() -> None:
        async with EmbeddedEngine(tmp_path / "db", [flow]) as engine:
            await engine.start_flow(flow, "f")
            await engine.invoke_rpc(flow, "f", submit, "a")
            await engine.wait_until("f", lambda view: view.get(lost))

    with caplog.at_level(logging.WARNING, logger="dex_flow"):
        asyncio.run(asyncio.wait_for(scenario(), DEADLINE))
    (record,) = [record for record in caplog.records if "failed in attempt" in record.getMessage()]
    assert record.exc_info is None
    assert "Traceback" in record.getMessage()
    assert "half a pair: \ufffd" in record.getMessage()
    logging.Formatter().format(record).encode()
