"""Live events and heartbeats of an attempt, on a clock that jumps to the next timer."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import selectors
import threading
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime
from typing import Any

import pytest

from dex_agents.execution.event_writer import (
    DELTA_INTERVAL_SECONDS,
    MAX_EVENT_PAYLOAD_BYTES,
    MAX_EVENT_TYPE_LENGTH,
    RESERVED_EVENT_TYPES,
    BufferedAgentEventWriter,
)
from dex_agents.execution.heartbeats import BackgroundHeartbeats
from dex_agents.session import events as session_events
from dex_agents.session.persistence import AGENT_EVENTS
from dex_flow import Stream


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        self.now = 1_000.0
        super().__init__(_JumpingSelector(self))

    def time(self) -> float:
        return self.now


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0 if timeout is not None else None)
        if not ready and timeout:
            self._loop.now += timeout
        return ready


class RecordingActivity:
    """An `Activity` that notes what it was asked, and when."""

    flow_id = "order-42"
    step_execution_id = 7
    attempt = 2
    deadline: datetime | None = None
    heartbeat_checkpoint: str | None = None

    def __init__(self) -> None:
        self.events: list[tuple[float, str, dict[str, Any]]] = []
        self.raw_events: list[Any] = []
        self.heartbeats: list[float] = []
        self.emitting_threads: set[int] = set()

    def emit(self, stream: Stream[Any], event: Any) -> None:
        assert stream is AGENT_EVENTS
        self.emitting_threads.add(threading.get_ident())
        self.raw_events.append(event)
        self.events.append((asyncio.get_running_loop().time(), event.type, json.loads(event.payload)))

    def heartbeat(self) -> None:
        self.heartbeats.append(asyncio.get_running_loop().time())

    async def save_heartbeat_checkpoint(self, text: str) -> None:
        raise AssertionError("not used here")

    @property
    def texts(self) -> list[tuple[str, str]]:
        return [(type, payload["text"]) for _, type, payload in self.events if "text" in payload]


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(main())


@contextlib.contextmanager
def writing(activity: RecordingActivity) -> Iterator[BufferedAgentEventWriter]:
    with BufferedAgentEventWriter(activity, AGENT_EVENTS, "turn-3") as writer:
        yield writer


def test_the_first_delta_is_written_at_once_and_the_next_ones_together() -> None:
    activity = RecordingActivity()

    async def main() -> None:
        with writing(activity) as writer:
            start = asyncio.get_running_loop().time()
            writer.write_text_delta("Re")
            assert activity.events == [(start, "text_delta", {"text": "Re"})]
            for piece in ("fund", "ed", " 7"):
                writer.write_text_delta(piece)
            assert len(activity.events) == 1
            await asyncio.sleep(1)
            assert activity.events[1:] == [(start + DELTA_INTERVAL_SECONDS, "text_delta", {"text": "funded 7"})]

    run(main)


def test_a_fast_model_costs_at_most_twenty_writes_a_second_and_loses_nothing() -> None:
    activity = RecordingActivity()

    async def main() -> None:
        with writing(activity) as writer:
            for number in range(2_000):
                writer.write_text_delta(f"{number} ")
                await asyncio.sleep(0.001)

    run(main)
    times = [time for time, _, _ in activity.events]
    assert times[0] == 1_000.0
    assert all(later - earlier > DELTA_INTERVAL_SECONDS * 0.99 for earlier, later in itertools.pairwise(times[:-1]))
    assert 38 <= len(times) <= 42
    assert "".join(text for _, text in activity.texts) == "".join(f"{number} " for number in range(2_000))


def test_a_delta_after_a_pause_does_not_wait() -> None:
    activity = RecordingActivity()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        with writing(activity) as writer:
            for piece in ("a", "b", "c"):
                writer.write_text_delta(piece)
                assert activity.events[-1] == (loop.time(), "text_delta", {"text": piece})
                await asyncio.sleep(DELTA_INTERVAL_SECONDS * 1.01)

    run(main)


def test_order_is_kept_between_kinds_and_other_events() -> None:
    activity = RecordingActivity()

    async def main() -> None:
        with writing(activity) as writer:
            writer.write_reasoning_delta("a")
            writer.write_reasoning_delta("b")
            writer.write_text_delta("c")
            writer.write_text_delta("d")
            writer.write_reasoning_delta("e")
            writer.write_event("pydantic_ai.retry", {"reason": "output"})
            writer.write_text_delta("f")

    run(main)
    assert [(type, payload) for _, type, payload in activity.events] == [
        ("reasoning_delta", {"text": "a"}),
        ("reasoning_delta", {"text": "b"}),
        ("text_delta", {"text": "cd"}),
        ("reasoning_delta", {"text": "e"}),
        ("pydantic_ai.retry", {"reason": "output"}),
        ("text_delta", {"text": "f"}),
    ]


def test_events_carry_the_turn_the_step_and_the_attempt() -> None:
    activity = RecordingActivity()

    async def main() -> None:
        with writing(activity) as writer:
            writer.write_text_delta("hello")

    run(main)
    event = activity.raw_events[0]
    assert (event.turn_id, event.step_execution_id, event.attempt) == ("turn-3", 7, 2)
    assert event.created_at.utcoffset().total_seconds() == 0


def test_a_character_split_over_two_deltas_is_joined_in_each_kind() -> None:
    activity = RecordingActivity()

    async def main() -> None:
        with writing(activity) as writer:
            writer.write_text_delta("\ud83d")
            assert activity.events == []
            writer.write_reasoning_delta("x\ud83d")
            writer.write_text_delta("\ude00!")
            writer.write_reasoning_delta("\ude03")

    run(main)
    by_kind = {
        kind: "".join(text for k, text in activity.texts if k == kind) for kind in ("text_delta", "reasoning_delta")
    }
    assert by_kind == {"text_delta": "\U0001f600!", "reasoning_delta": "x\U0001f603"}


def test_a_lone_surrogate_is_replaced_once() -> None:
    activity = RecordingActivity()

    async def main() -> None:
        with writing(activity) as writer:
            writer.write_text_delta("a\ud83d")
            writer.write_text_delta("b\ude00")
            writer.write_text_delta("\x00c\ud83d")

    run(main)
    assert "".join(text for _, text in activity.texts) == "a\ufffdb\ufffd\ufffdc\ufffd"


def test_leaving_the_block_writes_what_is_left_and_drops_later_writes() -> None:
    activity = RecordingActivity()

    async def main() -> None:
        with writing(activity) as writer:
            writer.write_text_delta("a")
            writer.write_text_delta("b")
        assert [text for _, text in activity.texts] == ["a", "b"]
        writer.write_text_delta("c")
        writer.write_reasoning_delta("d")
        writer.write_event("late", {})
        await asyncio.sleep(1)
        assert len(activity.events) == 2

    run(main)


def test_no_timer_is_left_behind() -> None:
    activity = RecordingActivity()

    async def main() -> None:
        with writing(activity) as writer:
            writer.write_text_delta("a")
            writer.write_text_delta("b")
        before = asyncio.get_running_loop().time()
        await asyncio.sleep(10)
        assert asyncio.get_running_loop().time() == before + 10

    run(main)
    assert len(activity.events) == 2


def test_a_thread_may_write_and_its_events_come_before_its_result() -> None:
    activity = RecordingActivity()

    async def main() -> None:
        with writing(activity) as writer:

            def tool() -> None:
                writer.write_text_delta("from ")
                writer.write_text_delta("a thread")
                writer.write_event("tool_progress", {"percent": 50})

            await asyncio.to_thread(tool)
        assert activity.emitting_threads == {threading.get_ident()}

    asyncio.run(main())
    assert "".join(text for _, text in activity.texts) == "from a thread"
    assert activity.events[-1][1:] == ("tool_progress", {"percent": 50})


@pytest.mark.parametrize("type", ["", "Upper", "1st", "with space", "x\n", "a" * (MAX_EVENT_TYPE_LENGTH + 1), "ümlaut"])
def test_an_event_type_with_a_wrong_name_is_refused(type: str) -> None:
    async def main() -> None:
        with writing(RecordingActivity()) as writer, pytest.raises(ValueError, match="1 to 64 lower-case letters"):
            writer.write_event(type, {})

    run(main)


def test_every_event_type_of_the_session_is_reserved() -> None:
    own = {getattr(session_events, name) for name in session_events.__all__ if name.isupper()}
    assert "turn_started" in own
    assert own <= RESERVED_EVENT_TYPES


@pytest.mark.parametrize("type", sorted(RESERVED_EVENT_TYPES))
def test_the_sessions_own_event_types_are_refused(type: str) -> None:
    async def main() -> None:
        with writing(RecordingActivity()) as writer, pytest.raises(ValueError, match="the session's own"):
            writer.write_event(type, {})

    run(main)


@pytest.mark.parametrize("payload", [["list"], "text", None, {1: "x"}, {"x": object()}])
def test_a_payload_that_is_no_json_object_is_refused(payload: Any) -> None:
    async def main() -> None:
        with writing(RecordingActivity()) as writer, pytest.raises(TypeError, match="payload of event 'progress'"):
            writer.write_event("progress", payload)

    run(main)


def test_a_payload_has_a_size_limit_and_its_texts_are_repaired() -> None:
    activity = RecordingActivity()

    async def main() -> None:
        with writing(activity) as writer:
            room = MAX_EVENT_PAYLOAD_BYTES - len('{"x":""}')
            writer.write_event("progress", {"x": "y" * room})
            with pytest.raises(ValueError, match=f"{MAX_EVENT_PAYLOAD_BYTES + 1} bytes; the limit is"):
                writer.write_event("progress", {"x": "y" * (room + 1)})
            writer.write_event("progress", {"x": ["\ud83d"]})

    run(main)
    assert len(activity.events) == 2
    assert activity.events[1][2] == {"x": ["\ufffd"]}


@pytest.mark.parametrize("text", [None, 3, b"bytes"])
def test_a_delta_must_be_text(text: Any) -> None:
    async def main() -> None:
        with writing(RecordingActivity()) as writer:
            with pytest.raises(TypeError, match="text_delta must be text"):
                writer.write_text_delta(text)
            with pytest.raises(TypeError, match="reasoning_delta must be text"):
                writer.write_reasoning_delta(text)

    run(main)


def test_heartbeats_come_every_twenty_seconds_until_the_block_is_left() -> None:
    activity = RecordingActivity()

    async def main() -> None:
        with BackgroundHeartbeats(activity):
            await asyncio.sleep(65)
        await asyncio.sleep(100)

    run(main)
    assert activity.heartbeats == [1_020.0, 1_040.0, 1_060.0]


def test_heartbeats_end_with_a_cancelled_attempt() -> None:
    activity = RecordingActivity()

    async def attempt() -> None:
        with BackgroundHeartbeats(activity):
            await asyncio.sleep(1_000)

    async def main() -> None:
        task = asyncio.create_task(attempt())
        await asyncio.sleep(50)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(100)

    run(main)
    assert activity.heartbeats == [1_020.0, 1_040.0]


def test_an_extra_heartbeat_counts_only_inside_the_block_and_from_any_thread() -> None:
    activity = RecordingActivity()

    async def main() -> None:
        with BackgroundHeartbeats(activity) as heartbeats:
            heartbeats.heartbeat()
            await asyncio.to_thread(heartbeats.heartbeat)
        heartbeats.heartbeat()
        await asyncio.to_thread(heartbeats.heartbeat)
        await asyncio.sleep(0)

    asyncio.run(main())
    assert len(activity.heartbeats) == 2
