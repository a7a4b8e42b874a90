"""Streams: live events, events of commits, positions, following, trimming, and events that come too late."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from dex_flow.declarations import Stream
from dex_flow.engine import Engine, StreamEvent
from dex_flow.errors import UnstorableValueError
from dex_flow.options import Retry, StepOptions
from dex_flow.steps import Activity
from dex_flow.testing.engine_suite.base import EngineFactory, EngineSuiteBase, eventually, wait_for_end
from dex_flow.testing.engine_suite.work_flow import CANCEL_WORK, EMIT, EVENTS, WorkPlan, work_flow

__all__ = ["StreamTests"]

SMALL: Stream[str] = Stream("events", str, capacity_bytes=4_000)


async def idle(activity: Activity, snapshot: str) -> str:
    """A run body of Flows that begin no Work."""
    return "idle"


async def read_all(engine: Engine, flow_id: str, stream: Stream[str] = EVENTS) -> list[str]:
    """Every retained event, after checking that positions have no gaps."""
    events = await engine.read_stream(flow_id, stream)
    positions = [event.position for event in events]
    assert positions == list(range(positions[0], positions[0] + len(events))) if positions else True
    return [event.value for event in events]


async def wait_for_event(engine: Engine, flow_id: str, value: str) -> list[StreamEvent]:
    """The stream's events once `value` is among them."""

    async def found() -> list[StreamEvent] | None:
        events = await engine.read_stream(flow_id, EVENTS)
        return events if any(event.value == value for event in events) else None

    return await eventually(found)


class StreamTests(EngineSuiteBase):
    """`read_stream`, `follow_stream`, `Activity.emit` and `Transaction.emit`."""

    def test_an_empty_stream_has_no_events(self, tmp_path: Path) -> None:
        """Reading it is no error."""
        flow = work_flow(idle)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "empty", WorkPlan([]))
            assert await engine.read_stream("empty", EVENTS) == []

        self.play(tmp_path, flow, scenario)

    def test_live_events_come_before_the_events_of_the_commit(self, tmp_path: Path) -> None:
        """In the order they were emitted, with positions from 1."""

        async def body(activity: Activity, snapshot: str) -> str:
            for number in range(50):
                activity.emit(EVENTS, f"live {number}")
            return "done"

        flow = work_flow(body)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "order", WorkPlan(["a"]))
            await wait_for_end(engine, "order")
            events = await engine.read_stream("order", EVENTS)
            assert [event.value for event in events] == [*(f"live {number}" for number in range(50)), "committed a"]
            assert [event.position for event in events] == list(range(1, 52))

        self.play(tmp_path, flow, scenario)

    def test_live_events_are_seen_while_the_attempt_runs(self, tmp_path: Path) -> None:
        """On the worker's engine and on another one."""
        go_on = asyncio.Event()

        async def body(activity: Activity, snapshot: str) -> str:
            activity.emit(EVENTS, "working")
            await go_on.wait()
            return "done"

        flow = work_flow(body)

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow]) as engine, open_engine(flows=[flow], runs_worker=False) as client:
                await client.start_flow(flow, "live", WorkPlan(["a"]))
                assert (await wait_for_event(engine, "live", "working"))[0].position == 1
                assert (await wait_for_event(client, "live", "working"))[0].position == 1
                assert (await client.describe_flow("live")).status == "open"
                go_on.set()
                await wait_for_end(client, "live")
                assert await read_all(client, "live") == ["working", "committed a"]

        self.play_shared(tmp_path, scenario)

    def test_an_event_of_another_type_is_refused(self, tmp_path: Path) -> None:
        """By `emit` itself, so that no reader meets it."""

        async def body(activity: Activity, snapshot: str) -> str:
            wrong: Any = 7
            try:
                activity.emit(EVENTS, wrong)
            except UnstorableValueError as error:
                return str(error)
            return "accepted"

        flow = work_flow(body)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "typed", WorkPlan(["a"]))
            said = (await wait_for_end(engine, "typed")).result
            assert "Stream('events') takes str" in said
            assert "Expected `str`, got `int`" in said
            assert await read_all(engine, "typed") == ["committed a"]

        self.play(tmp_path, flow, scenario)

    def test_reading_after_a_position_with_a_limit(self, tmp_path: Path) -> None:
        """Oldest first, and nothing above the end."""
        flow = work_flow(idle)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "pages", WorkPlan([]))
            for number in range(1, 11):
                await engine.invoke_rpc(flow, "pages", EMIT, f"event {number}")
            page = await engine.read_stream("pages", EVENTS, after=3, limit=4)
            assert [(event.position, event.value) for event in page] == [(n, f"event {n}") for n in (4, 5, 6, 7)]
            rest = await engine.read_stream("pages", EVENTS, after=7)
            assert [event.position for event in rest] == [8, 9, 10]
            assert await engine.read_stream("pages", EVENTS, after=10) == []
            assert await engine.read_stream("pages", EVENTS, after=1_000) == []

        self.play(tmp_path, flow, scenario)

    def test_executions_have_streams_of_their_own(self, tmp_path: Path) -> None:
        """Each counts its positions from 1."""
        flow = work_flow(idle)

        async def scenario(engine: Engine) -> None:
            for flow_id in ("one", "two"):
                await engine.start_flow(flow, flow_id, WorkPlan([]))
            for flow_id in ("one", "two", "one"):
                await engine.invoke_rpc(flow, flow_id, EMIT, f"to {flow_id}")
            assert await read_all(engine, "one") == ["to one", "to one"]
            assert [event.position for event in await engine.read_stream("two", EVENTS)] == [1]

        self.play(tmp_path, flow, scenario)

    def test_following_ends_with_the_flow(self, tmp_path: Path) -> None:
        """Past events, live ones and those of the last commit, without a gap or a repetition, on any engine."""
        go_on = asyncio.Event()

        async def body(activity: Activity, snapshot: str) -> str:
            for number in range(20):
                activity.emit(EVENTS, f"live {number}")
            await go_on.wait()
            for number in range(20, 40):
                activity.emit(EVENTS, f"live {number}")
                await asyncio.sleep(0)
            return "done"

        flow = work_flow(body)

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow]) as engine, open_engine(flows=[flow], runs_worker=False) as client:
                await engine.start_flow(flow, "followed", WorkPlan(["a"]))

                async def follow(reader: Engine, after: int) -> list[StreamEvent]:
                    return [event async for event in reader.follow_stream("followed", EVENTS, after=after)]

                early = [asyncio.create_task(follow(reader, 0)) for reader in (engine, client)]
                await wait_for_event(client, "followed", "live 19")
                late = [asyncio.create_task(follow(reader, 10)) for reader in (engine, client)]
                go_on.set()
                expected = [*(f"live {number}" for number in range(40)), "committed a"]
                for events in await asyncio.gather(*early):
                    assert [event.position for event in events] == list(range(1, 42))
                    assert [event.value for event in events] == expected
                for events in await asyncio.gather(*late):
                    assert [event.position for event in events] == list(range(11, 42))
                assert len(await follow(client, 0)) == 41
                assert await follow(client, 41) == []

        self.play_shared(tmp_path, scenario)

    def test_a_follower_may_stop_early(self, tmp_path: Path) -> None:
        """The engine goes on without it, and closes with followers that still wait."""
        flow = work_flow(idle)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "left", WorkPlan([]))
            await engine.invoke_rpc(flow, "left", EMIT, "one")
            async for event in engine.follow_stream("left", EVENTS):
                assert event.value == "one"
                break

            async def follow() -> None:
                async for _ in engine.follow_stream("left", EVENTS):
                    pass

            waiting = asyncio.create_task(follow())
            await engine.invoke_rpc(flow, "left", EMIT, "two")
            waiting.cancel()
            assert (await asyncio.gather(waiting, return_exceptions=True))[0].__class__ is asyncio.CancelledError
            await engine.invoke_rpc(flow, "left", EMIT, "three")
            assert await read_all(engine, "left") == ["one", "two", "three"]

        self.play(tmp_path, flow, scenario)

    def test_old_events_are_trimmed_by_capacity(self, tmp_path: Path) -> None:
        """The newest stay, positions go on, and reading or following from the start begins with the oldest kept one."""
        flow = work_flow(idle, events=SMALL)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "trimmed", WorkPlan([]))
            for number in range(1, 301):
                await engine.invoke_rpc(flow, "trimmed", EMIT, f"{number:04d}" + "x" * 96)

            async def trimmed() -> list[StreamEvent] | None:
                events = await engine.read_stream("trimmed", SMALL)
                return events if len(events) <= 80 else None

            events = await eventually(trimmed)
            assert len(events) >= 10
            positions = [event.position for event in events]
            assert positions == list(range(301 - len(events), 301))
            assert [int(event.value[:4]) for event in events] == positions
            followed: list[int] = []
            async for event in engine.follow_stream("trimmed", SMALL, after=0):
                followed.append(event.position)
                if event.position == 300:
                    break
            assert followed == positions
            await engine.invoke_rpc(flow, "trimmed", EMIT, "next")
            assert (await engine.read_stream("trimmed", SMALL, after=300))[0].position == 301

        self.play(tmp_path, flow, scenario)

    def test_a_failed_attempt_keeps_its_live_events(self, tmp_path: Path) -> None:
        """They were seen; the next attempt's come after them."""

        async def body(activity: Activity, snapshot: str) -> str:
            activity.emit(EVENTS, f"attempt {activity.attempt}")
            if activity.attempt == 1:
                raise ConnectionError("down")
            return "up"

        flow = work_flow(body, StepOptions(retry=Retry()))

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "attempts", WorkPlan(["a"]))
            await wait_for_end(engine, "attempts")
            assert await read_all(engine, "attempts") == ["attempt 1", "attempt 2", "committed a"]

        self.play(tmp_path, flow, scenario)

    def test_events_after_the_end_of_an_attempt_are_dropped(self, tmp_path: Path) -> None:
        """An activity that outlives its attempt says nothing any more."""
        kept: list[Activity] = []

        async def body(activity: Activity, snapshot: str) -> str:
            kept.append(activity)
            activity.emit(EVENTS, "in time")
            return "done"

        flow = work_flow(body)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "over", WorkPlan(["a"], stays_open=True))
            await wait_for_event(engine, "over", "committed a")
            kept[0].emit(EVENTS, "too late")
            kept[0].heartbeat()
            for number in range(5):
                await engine.invoke_rpc(flow, "over", EMIT, f"barrier {number}")
            barriers = [f"barrier {number}" for number in range(5)]
            assert await read_all(engine, "over") == ["in time", "committed a", *barriers]

        self.play(tmp_path, flow, scenario)

    def test_events_of_a_cancelled_attempt_are_fenced_off(self, tmp_path: Path) -> None:
        """Nothing of the attempt comes after the event of the commit that cancelled it."""
        started, ended = asyncio.Event(), asyncio.Event()

        async def body(activity: Activity, snapshot: str) -> str:
            activity.emit(EVENTS, "before")
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                activity.emit(EVENTS, "after")
                ended.set()
            return "never"

        flow = work_flow(body)

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "fenced", WorkPlan(["a"], stays_open=True))
            await started.wait()
            await wait_for_event(engine, "fenced", "before")
            await engine.invoke_rpc(flow, "fenced", CANCEL_WORK, "cancelling")
            await ended.wait()
            for number in range(5):
                await engine.invoke_rpc(flow, "fenced", EMIT, f"barrier {number}")
            barriers = [f"barrier {number}" for number in range(5)]
            assert await read_all(engine, "fenced") == ["before", "cancelling", *barriers]

        self.play(tmp_path, flow, scenario)

    def test_streams_survive_a_closed_engine(self, tmp_path: Path) -> None:
        """Events that came with a commit are durable, and positions go on."""
        flow = work_flow(idle)

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow]) as engine:
                await engine.start_flow(flow, "kept", WorkPlan([]))
                await engine.invoke_rpc(flow, "kept", EMIT, "one")
            async with open_engine(flows=[flow]) as engine:
                await engine.invoke_rpc(flow, "kept", EMIT, "two")
                assert await read_all(engine, "kept") == ["one", "two"]
                assert [event.position for event in await engine.read_stream("kept", EVENTS)] == [1, 2]

        self.play_shared(tmp_path, scenario)
