"""Which turn took a message, from committed states alone, however many of them a waiting client misses."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dex_agents import FrameworkMessage, TurnError, create_agent_session_flow
from dex_agents.client_results import SentMessage, TurnStatus
from dex_agents.message_receipts import SEND_USER_MESSAGE_WITH_RECEIPT
from dex_agents.session.event_values import AgentEvent, encode_event_payload
from dex_agents.session.outcomes import (
    ModelStepCompleted,
    ModelStepToolCallsRequested,
    RequestedToolCall,
    UnfinishedTurnOutcome,
)
from dex_agents.session.rpc_values import SendUserMessageInput
from dex_agents.session.tool_values import ResolvedToolPolicy, ToolEffect
from dex_agents.session.values import AgentUsage, MessageRole
from dex_agents.testing import SessionDriver, plain_user_message
from dex_agents.turn_tracking import TurnObservation, TurnTracker, find_turn_ending, status_of_ending
from dex_flow import StreamEvent
from dex_flow.kernel import Kernel

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
GATED = ResolvedToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True)


class DrivenRunner:
    """Names the user message's form; the test plays everything else."""

    def build_user_message(self, text: str) -> FrameworkMessage:
        return plain_user_message(text)

    def build_unfinished_turn_messages(self, turn: Any) -> tuple[FrameworkMessage, ...]:
        raise AssertionError

    async def run_model_step(self, turn: Any) -> Any:
        raise AssertionError

    async def execute_deferred_tool_call(self, call: Any) -> Any:
        raise AssertionError


class Session(SessionDriver):
    """A driven session with receipts."""

    def __init__(self, runner: Any = None) -> None:
        super().__init__()
        self.flow = create_agent_session_flow(runner or DrivenRunner(), "DrivenAgent")
        self._kernel = Kernel(self.flow)
        self.start()

    def send_tracked(self, text: str) -> SentMessage:
        receipt = self.call(self.flow.rpc(SEND_USER_MESSAGE_WITH_RECEIPT), SendUserMessageInput(text=text))
        assert receipt is not None
        return SentMessage(self.flow_id, text, receipt)

    def observe(self, tracker: TurnTracker) -> TurnObservation | None:
        seen: TurnObservation | None = self._kernel.view(self.store, self.flow_id, self.now, tracker)
        return seen

    def reply(self, text: str) -> None:
        item = FrameworkMessage(role="assistant", framework_item=f'"{text}"', text=text)
        usage = AgentUsage(model_calls=1)
        self.succeed(self.attempt_of("RunModel"), ModelStepCompleted(new_messages=(item,), usage=usage))

    def end_without_answer(self, step_type: str) -> None:
        self.succeed(self.attempt_of(step_type), UnfinishedTurnOutcome())

    def ask_for_approval(self) -> None:
        call = RequestedToolCall(tool_call_id="c1", tool_name="refund", arguments="{}", policy=GATED)
        usage = AgentUsage(model_calls=1)
        outcome = ModelStepToolCallsRequested(framework_run_state="s", tool_calls=(call,), usage=usage)
        self.succeed(self.attempt_of("RunModel"), outcome)


def texts(seen: TurnObservation | None) -> tuple[str | None, list[str]]:
    assert seen is not None
    assert not seen.is_waiting
    return seen.turn_id, [message.text for message in seen.messages]


def test_a_message_to_an_idle_session_starts_its_turn_in_the_same_commit() -> None:
    session = Session()
    tracker = TurnTracker(session.send_tracked("hi"))
    assert session.observe(tracker) is None
    session.reply("hello")
    assert texts(session.observe(tracker)) == ("turn-1", ["hello"])


@pytest.mark.parametrize("watches", [False, True], ids=["only the last state is seen", "every state is seen"])
def test_equal_texts_before_and_behind_a_message_are_never_taken_for_it(watches: bool) -> None:
    session = Session()
    messages = [session.send_tracked("continue") for _ in range(5)]
    trackers = [TurnTracker(message) for message in messages]
    for number in range(1, 6):
        if watches:
            for tracker in trackers[number - 1 :]:
                assert session.observe(tracker) is None
        session.reply(f"answer {number}")
    for number, tracker in enumerate(trackers, 1):
        assert texts(session.observe(tracker)) == (f"turn-{number}", [f"answer {number}"])


def test_a_later_turn_changes_nothing_about_an_earlier_one() -> None:
    session = Session()
    tracker = TurnTracker(session.send_tracked("one"))
    session.reply("first")
    session.send("two")
    assert texts(session.observe(tracker)) == ("turn-1", ["first"])
    session.reply("second")
    assert texts(session.observe(tracker)) == ("turn-1", ["first"])


@pytest.mark.parametrize("watches", [False, True])
def test_a_message_behind_a_deleted_one_is_found(watches: bool) -> None:
    session = Session()
    session.send("first")
    deleted, kept = session.send_tracked("deleted"), session.send_tracked("kept")
    trackers = [TurnTracker(deleted), TurnTracker(kept)]
    if watches:
        assert [session.observe(tracker) for tracker in trackers] == [None, None]
    assert session.delete_queued(deleted.receipt.message_id)
    session.reply("first")
    session.reply("answer")
    assert texts(session.observe(trackers[1])) == ("turn-2", ["answer"])
    assert session.observe(trackers[0]) == TurnObservation(is_waiting=False)


def test_a_withdrawn_message_is_never_given_the_answer_of_another() -> None:
    session = Session()
    session.send("first")
    sent = session.send_tracked("never mind")
    assert session.delete_queued(sent.receipt.message_id)
    session.send("other")
    session.reply("to first")
    session.reply("to other")
    assert session.observe(TurnTracker(sent)) == TurnObservation(is_waiting=False)


def test_what_a_turn_stores_behind_its_user_messages_is_not_taken_for_the_message() -> None:
    session = Session()
    session.send("first")
    sent = session.send_tracked("echo")
    assert session.delete_queued(sent.receipt.message_id)
    session.send("other")
    roles: list[tuple[MessageRole, ...]] = [("user", "assistant"), ("assistant", "user")]
    for of_turn in roles:
        items = tuple(FrameworkMessage(role=role, framework_item='"x"', text="echo") for role in of_turn)
        usage = AgentUsage(model_calls=1)
        session.succeed(session.attempt_of("RunModel"), ModelStepCompleted(new_messages=items, usage=usage))
    assert session.observe(TurnTracker(sent)) == TurnObservation(is_waiting=False)


def test_a_queue_that_was_seen_to_shrink_moves_the_message_forward() -> None:
    session = Session()
    session.send("first")
    deleted = session.send_tracked("continue")
    for _ in range(3):
        sent = session.send_tracked("continue")
    tracker = TurnTracker(sent)
    session.send("continue")
    assert session.delete_queued(deleted.receipt.message_id)
    assert session.observe(tracker) is None
    for number in range(1, 6):
        session.reply(f"answer {number}")
    assert texts(session.observe(tracker)) == ("turn-4", ["answer 4"])


def test_a_steer_that_was_seen_to_come_first_moves_the_message_back() -> None:
    session = Session()
    session.send("first")
    tracker = TurnTracker(session.send_tracked("continue"))
    assert session.steer("continue")
    assert session.observe(tracker) is None
    for number in range(1, 4):
        session.reply(f"answer {number}")
    assert texts(session.observe(tracker)) == ("turn-3", ["answer 3"])


@pytest.mark.parametrize("watches", [False, True])
def test_a_queued_message_that_is_steered_overtakes_the_queue(watches: bool) -> None:
    session = Session()
    session.send("first")
    session.send("overtaken")
    tracker = TurnTracker(sent := session.send_tracked("urgent"))
    session.ask_for_approval()
    if watches:
        seen = session.observe(tracker)
        assert seen is not None
        assert (seen.is_waiting, seen.turn_id) == (True, None)
    assert session.steer(message_id=sent.receipt.message_id)
    if watches:
        assert session.observe(tracker) is None
    session.end_without_answer("ApplyTurnControl")
    session.reply("on it")
    session.reply("to overtaken")
    assert texts(session.observe(tracker)) == ("turn-2", ["on it"])


def test_a_steered_message_waits_for_the_running_model_call() -> None:
    session = Session()
    session.send("first")
    tracker = TurnTracker(sent := session.send_tracked("urgent"))
    assert session.steer(message_id=sent.receipt.message_id)
    assert session.observe(tracker) is None
    session.reply("to first")
    assert session.observe(tracker) is None
    session.reply("on it")
    assert texts(session.observe(tracker)) == ("turn-2", ["on it"])


def test_the_messages_behind_one_of_several_steered_messages_include_the_others() -> None:
    session = Session()
    session.send("first")
    tracker = TurnTracker(sent := session.send_tracked("urgent"))
    assert session.steer(message_id=sent.receipt.message_id)
    assert session.steer("and this")
    session.reply("to first")
    session.reply("both")
    assert texts(session.observe(tracker)) == ("turn-2", ["and this", "both"])


def test_a_message_sent_while_a_steer_is_pending_comes_after_it() -> None:
    session = Session()
    session.send("first")
    assert session.steer("continue")
    tracker = TurnTracker(session.send_tracked("continue"))
    session.reply("to first")
    session.reply("to the steer")
    session.reply("to the queue")
    assert texts(session.observe(tracker)) == ("turn-3", ["to the queue"])


def test_states_that_come_late_neither_end_a_turn_nor_move_the_message() -> None:
    session = Session()
    session.send("first")
    deleted = session.send_tracked("continue")
    session.send("continue")
    tracker = TurnTracker(session.send_tracked("continue"))
    session.send("continue")
    older = copy.deepcopy(session.store)
    assert session.delete_queued(deleted.receipt.message_id)
    session.reply("answer 1")
    assert session.observe(tracker) is None
    newest, session.store = session.store, older
    assert session.observe(tracker) is None
    session.store = newest
    for number in range(2, 5):
        session.reply(f"answer {number}")
    assert texts(session.observe(tracker)) == ("turn-3", ["answer 3"])
    session.store = older
    assert session.observe(tracker) is None


def test_a_cancelled_turn_ends_without_an_answer_and_the_queue_goes_on() -> None:
    session = Session()
    first = TurnTracker(session.send_tracked("first"))
    second = TurnTracker(session.send_tracked("second"))
    assert session.cancel_turn()
    session.end_without_answer("ApplyTurnControl")
    session.reply("to second")
    assert texts(session.observe(second)) == ("turn-2", ["to second"])
    turn_id, stored = texts(session.observe(first))
    assert turn_id == "turn-1"
    assert "to second" not in stored


def test_a_turn_that_waits_for_a_person_is_reported_with_what_waits() -> None:
    session = Session()
    tracker = TurnTracker(session.send_tracked("refund"))
    behind = TurnTracker(session.send_tracked("and then"))
    session.ask_for_approval()
    for waiting, turn_id in ((tracker, "turn-1"), (behind, None)):
        seen = session.observe(waiting)
        assert seen is not None
        assert (seen.is_waiting, seen.turn_id) == (True, turn_id)
        assert [interrupt.interrupt_id for interrupt in seen.pending_interrupts] == ["turn-1.c1"]
    assert session.resolve("turn-1.c1", approved=False)
    assert session.observe(tracker) is None
    session.reply("fine")
    assert texts(session.observe(tracker)) == ("turn-1", ["fine"])
    assert session.observe(behind) is None


def test_a_failure_note_is_not_taken_for_a_user_message() -> None:
    session = Session()
    session.send("first")
    tracker = TurnTracker(session.send_tracked("second"))
    session.ask_for_approval()
    assert session.resolve("turn-1.c1", approved=False)
    for _ in range(3):
        session.fail(session.attempt_of("RunModel"))
        session.advance(60)
    session.end_without_answer("RecordTurnFailure")
    session.reply("to second")
    assert texts(session.observe(tracker)) == ("turn-2", ["to second"])


class SilentFormRunner(DrivenRunner):
    """A runner whose messages have no text for people, so that only their places tell them apart."""

    def build_user_message(self, text: str) -> FrameworkMessage:
        return FrameworkMessage(role="user", framework_item=f'"{text}"')


def test_a_runner_without_texts_for_people_is_followed_by_place() -> None:
    session = Session(SilentFormRunner())
    trackers = [TurnTracker(session.send_tracked(text)) for text in ("a", "b", "c")]
    for number in range(1, 4):
        session.reply(f"answer {number}")
    for number, tracker in enumerate(trackers, 1):
        assert texts(session.observe(tracker)) == (f"turn-{number}", [f"answer {number}"])


def test_turns_longer_than_a_page_are_reported_whole() -> None:
    session = Session()
    tracker = TurnTracker(session.send_tracked("go"))
    items = tuple(
        FrameworkMessage(role="assistant", framework_item=f'"{number}"', text=str(number)) for number in range(450)
    )
    usage = AgentUsage(model_calls=1)
    session.succeed(session.attempt_of("RunModel"), ModelStepCompleted(new_messages=items, usage=usage))
    session.send("next")
    session.reply("next")
    assert texts(session.observe(tracker)) == ("turn-1", [str(number) for number in range(450)])


def event(position: int, turn: int, kind: str, **payload: Any) -> StreamEvent:
    value = AgentEvent(
        type=kind,
        turn_id=f"turn-{turn}",
        attempt=1,
        step_execution_id=1,
        payload=encode_event_payload(payload),
        created_at=NOW,
    )
    return StreamEvent(position=position, value=value)


def find(events: Sequence[StreamEvent], turn: int) -> tuple[AgentEvent | None, int]:
    reads = 0

    async def read(after: int, limit: int) -> Sequence[StreamEvent]:
        nonlocal reads
        reads += 1
        return [other for other in events if other.position > after][:limit]

    return asyncio.run(find_turn_ending(read, f"turn-{turn}")), reads


@given(
    turns=st.lists(st.tuples(st.integers(0, 90), st.booleans()), min_size=1, max_size=8),
    trimmed=st.integers(0, 300),
    wanted=st.integers(1, 9),
)
def test_the_ending_of_a_turn_is_found_unless_it_was_trimmed(
    turns: list[tuple[int, bool]], trimmed: int, wanted: int
) -> None:
    events: list[StreamEvent] = []
    for number, (deltas, has_ended) in enumerate(turns, 1):
        kinds = ["turn_started", *["text_delta"] * deltas, *(["turn_completed"] if has_ended else [])]
        for kind in kinds:
            events.append(event(len(events) + 1, number, kind))
    kept = events[trimmed:]
    expected = [
        other.value for other in kept if other.value.turn_id == f"turn-{wanted}" and other.value.type != "text_delta"
    ]
    found, reads = find(kept, wanted)
    assert found == next((value for value in expected if value.type == "turn_completed"), None)
    assert reads <= 25


ERROR = TurnError(turn_id="turn-2", type="TimeoutError", message="model")


@pytest.mark.parametrize(
    ("kind", "last_error", "status", "error"),
    [
        ("turn_completed", None, TurnStatus.COMPLETED, None),
        ("turn_steered", None, TurnStatus.STEERED, None),
        ("turn_cancelled", ERROR, TurnStatus.CANCELLED, None),
        ("turn_failed", ERROR, TurnStatus.FAILED, ERROR),
        ("turn_failed", None, TurnStatus.FAILED, TurnError(turn_id="turn-2", type="OSError", message="disk: full")),
        (None, ERROR, TurnStatus.FAILED, ERROR),
        (None, TurnError(turn_id="turn-1", type="OSError", message="old"), TurnStatus.ENDED, None),
        (None, None, TurnStatus.ENDED, None),
    ],
)
def test_the_event_says_how_a_turn_ended_and_the_state_what_it_can(
    kind: str | None, last_error: TurnError | None, status: TurnStatus, error: TurnError | None
) -> None:
    ending = None if kind is None else event(9, 2, kind, error="OSError: disk: full").value
    assert status_of_ending(ending, "turn-2", last_error) == (status, error)
