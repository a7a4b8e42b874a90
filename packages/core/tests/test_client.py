"""The session client over a small fake engine that records calls and serves committed values."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from dex_agents import (
    AgentSessionClient,
    AgentSessionFlow,
    ResolveResult,
    SendResult,
    create_agent_session_flow,
    session_settings_size,
)
from dex_agents.client_results import AnswerResult, CancelResult, SteerResult
from dex_agents.runner import FrameworkMessage
from dex_agents.session.event_values import AgentEvent
from dex_agents.session.rpc_values import AgentMessagePage, AgentSessionStartInput, AgentSnapshot
from dex_agents.session.tool_values import AgentInterrupt
from dex_agents.session.values import AgentMessage, AgentState, AgentStatus, AgentUserMessage
from dex_flow import (
    Decision,
    Flow,
    FlowClosedError,
    InlineStep,
    StreamEvent,
    Transaction,
    ValueTooLargeError,
    dead_end,
)
from dex_flow.engine import FlowDescription, FlowStatus

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class SilentRunner:
    """A runner that is never asked."""

    def build_user_message(self, text: str) -> FrameworkMessage:
        raise AssertionError

    async def run_model_step(self, turn: Any) -> Any:
        raise AssertionError

    async def execute_deferred_tool_call(self, call: Any) -> Any:
        raise AssertionError


class CommittedView:
    """The reads of a `StateView` that waits use."""

    def __init__(self, values: dict[str, Any], queues: dict[str, list[Any]]) -> None:
        self._values = values
        self._queues = queues

    def get(self, attribute: Any) -> Any:
        return self._values.get(attribute.name)

    def count_messages(self, channel: Any, key: str = "") -> int:
        return len(self._queues.get(channel.name, []))

    def list_messages(self, channel: Any) -> list[tuple[int, Any]]:
        return list(enumerate(self._queues.get(channel.name, []), 1))


class FakeEngine:
    """Records what was called, answers RPCs from a table, and wakes waits when `commit` changes a value."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.answers: dict[str, Any] = {}
        self.values: dict[str, Any] = {}
        self.queues: dict[str, list[Any]] = {}
        self.events: list[StreamEvent] = []
        self.followed: list[tuple[str, Any, int]] = []
        self.open_streams = 0
        self.status: FlowStatus = "open"
        self._changed = asyncio.Event()

    def commit(self, **values: Any) -> None:
        self.values.update(values)
        self._changed.set()

    async def start_flow(self, flow: Flow, flow_id: str, input: Any = None, **options: Any) -> bool:
        self.calls.append(("start", flow, flow_id, input, options))
        return True

    async def invoke_rpc(self, flow: Flow, flow_id: str, rpc: Any, input: Any, *, request_id: str | None = None) -> Any:
        assert flow.rpcs[rpc.name] is rpc
        self.calls.append((rpc.name, flow_id, input, request_id))
        return self.answers[rpc.name]

    async def get_attribute(self, flow_id: str, attribute: Any) -> Any:
        return self.values.get(attribute.name)

    async def describe_flow(self, flow_id: str) -> FlowDescription:
        return FlowDescription(
            flow_id=flow_id, flow_type="SupportAgent", status=self.status, started_at=NOW, updated_at=NOW
        )

    async def wait_until(self, flow_id: str, condition: Callable[[Any], Any], *, timeout: float | None = None) -> Any:
        async with asyncio.timeout(timeout):
            while True:
                self._changed.clear()
                value = condition(CommittedView(self.values, self.queues))
                if value is not None and value is not False:
                    return value
                await self._changed.wait()

    async def follow_stream(self, flow_id: str, stream: Any, *, after: int = 0) -> AsyncIterator[StreamEvent]:
        self.followed.append((flow_id, stream, after))
        self.open_streams += 1
        try:
            for event in self.events:
                yield event
            await asyncio.Event().wait()
        finally:
            self.open_streams -= 1


@pytest.fixture(scope="module")
def flow() -> AgentSessionFlow:
    return create_agent_session_flow(SilentRunner(), "SupportAgent")


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
def client(engine: FakeEngine, flow: AgentSessionFlow) -> AgentSessionClient:
    return AgentSessionClient(engine, flow)  # type: ignore[arg-type]


def interrupt(interrupt_id: str, **changes: Any) -> AgentInterrupt:
    values: dict[str, Any] = {
        "interrupt_id": interrupt_id,
        "kind": "approval",
        "tool_call_id": "call-1",
        "tool_name": "refund",
        "arguments": "{}",
        "raised_at": NOW,
    }
    return AgentInterrupt(**{**values, **changes})


def state(status: AgentStatus) -> AgentState:
    return AgentState(status=status, started_at=NOW, updated_at=NOW)


async def let_others_run() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_only_a_session_flow_makes_a_client(engine: FakeEngine) -> None:
    class Begin(InlineStep[None]):
        def execute(self, tx: Transaction, input: None) -> Decision:
            return dead_end()

    with pytest.raises(TypeError, match="create_agent_session_flow"):
        AgentSessionClient(engine, Flow("Other", steps=[Begin()], start_step=Begin))  # type: ignore[arg-type]


def test_starting_repairs_texts_and_passes_everything_on(
    engine: FakeEngine, client: AgentSessionClient, flow: AgentSessionFlow
) -> None:
    started = asyncio.run(
        client.start_session(
            "order-42",
            initial_message="Refund \ud83d\ude00 \ud83d",
            session_settings={"model": "small\ud83d"},
            request_id="r-1",
            already_started="ignore",
        )
    )
    assert started is True
    expected = AgentSessionStartInput(
        initial_message="Refund \U0001f600 \ufffd", session_settings={"model": "small\ufffd"}
    )
    options = {"request_id": "r-1", "already_started": "ignore"}
    assert engine.calls == [("start", flow, "order-42", expected, options)]


@pytest.mark.parametrize("settings", [["a"], {1: "a"}, "text", [], {"x": object()}])
def test_settings_must_be_a_json_object(client: AgentSessionClient, settings: Any) -> None:
    with pytest.raises(TypeError, match="session_settings must be a JSON object"):
        asyncio.run(client.start_session("order-42", session_settings=settings))


def test_what_is_nested_deeper_than_the_stack_is_refused_in_the_clients_words(
    client: AgentSessionClient, engine: FakeEngine
) -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(ValueError, match="nested more than 50 levels deep"):
        asyncio.run(client.start_session("order-42", session_settings=deep))
    with pytest.raises(ValueError, match="nested more than 50 levels deep"):
        asyncio.run(client.update_session_settings("order-42", deep))
    with pytest.raises(ValueError, match="nested more than 50 levels deep"):
        session_settings_size(deep)
    assert not asyncio.run(client.resolve_interrupt("order-42", "turn-1.c1", approved=True, arguments=deep))
    assert engine.calls == []


def test_settings_have_a_size_limit(client: AgentSessionClient, engine: FakeEngine) -> None:
    room = 16 * 1024 - len('{"x":""}')
    asyncio.run(client.start_session("order-42", session_settings={"x": "y" * room}))
    with pytest.raises(ValueTooLargeError, match="session_settings has 16385 bytes; the limit is 16384 bytes"):
        asyncio.run(client.start_session("order-43", session_settings={"x": "y" * (room + 1)}))
    assert len(engine.calls) == 1


def test_a_first_message_has_a_size_limit(client: AgentSessionClient, engine: FakeEngine) -> None:
    limit = 1024 * 1024
    asyncio.run(client.start_session("order-42", initial_message="x" * limit))
    with pytest.raises(ValueTooLargeError, match="initial_message has 1048578 bytes; the limit is 1048576 bytes"):
        asyncio.run(client.start_session("order-43", initial_message="x" * (limit - 1) + "€"))
    assert len(engine.calls) == 1


def test_a_mistyped_already_started_is_refused_with_what_it_may_be(
    client: AgentSessionClient, engine: FakeEngine
) -> None:
    with pytest.raises(ValueError, match="already_started must be 'error' or 'ignore', not 'ignored'"):
        asyncio.run(client.start_session("order-42", already_started="ignored"))  # type: ignore[arg-type]
    assert engine.calls == []


@pytest.mark.parametrize(
    ("session_id", "error", "message"),
    [
        ("", ValueError, "must not be empty"),
        ("x" * 257, ValueError, "at most 256 characters, this one has 257"),
        ("a\ud83d", ValueError, "lone surrogate at position 1"),
        (7, TypeError, "a session ID must be text, not int"),
    ],
)
def test_every_call_refuses_a_session_id_that_cannot_be_one(
    client: AgentSessionClient, engine: FakeEngine, session_id: Any, error: type[Exception], message: str
) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: client.start_session(session_id),
        lambda: client.send_user_message(session_id, "hi"),
        lambda: client.delete_queued_message(session_id, 1),
        lambda: client.steer_user_message(session_id, "hi"),
        lambda: client.steer_user_message_with_reason(session_id, message_id=1),
        lambda: client.cancel_turn(session_id),
        lambda: client.cancel_turn_with_reason(session_id, "turn-1"),
        lambda: client.resolve_interrupt(session_id, "i", approved=True),
        lambda: client.answer_question(session_id, "i", "yes"),
        lambda: client.answer_question_with_reason(session_id, "i", "yes"),
        lambda: client.send_and_wait(session_id, "hi"),
        lambda: client.send_with_receipt(session_id, "hi"),
        lambda: client.get_agent_snapshot(session_id),
        lambda: client.list_agent_messages(session_id),
        lambda: client.get_message(session_id, 1),
        lambda: client.pending_interrupts(session_id),
        lambda: client.wait_for_interrupts(session_id),
        lambda: client.wait_until_idle(session_id),
    ]
    for call in calls:
        with pytest.raises(error, match=message):
            asyncio.run(call())
    with pytest.raises(error, match=message):
        client.stream_events(session_id)
    assert engine.calls == []


@pytest.mark.parametrize("session_id", ["x", "a/b %2F\n", "日本\U0001f600" * 64, "\x00", " "])
def test_any_other_text_is_a_session_id(client: AgentSessionClient, engine: FakeEngine, session_id: str) -> None:
    assert asyncio.run(client.start_session(session_id)) is True
    assert engine.calls[0][2] == session_id


def test_a_request_id_is_checked_before_anything_is_sent(client: AgentSessionClient, engine: FakeEngine) -> None:
    with pytest.raises(ValueError, match="a request ID must be valid Unicode text"):
        asyncio.run(client.send_user_message("order-42", "hi", request_id="\udc00"))
    assert engine.calls == []


@pytest.mark.parametrize(
    ("text", "plan_mode", "accepted", "reason"),
    [
        ("hi", False, True, SendResult.ACCEPTED),
        (" \u2003\n", False, False, SendResult.BLANK_TEXT),
        ("hi", True, False, SendResult.PLAN_MODE_UNAVAILABLE),
        ("hi", False, False, SendResult.REFUSED),
    ],
)
def test_sending_a_message(
    client: AgentSessionClient, engine: FakeEngine, text: str, plan_mode: bool, accepted: bool, reason: SendResult
) -> None:
    engine.answers["send_user_message"] = accepted
    assert asyncio.run(client.send_user_message("order-42", text, plan_mode=plan_mode)) is accepted
    result = asyncio.run(client.send_user_message_with_reason("order-42", text, plan_mode=plan_mode, request_id="r-1"))
    assert result is reason
    assert [call[2].text for call in engine.calls] == [text, text]
    assert engine.calls[1][3] == "r-1"


@pytest.mark.parametrize(
    ("pending", "approved", "reason"),
    [
        ((), True, ResolveResult.NOT_PENDING),
        ((interrupt("turn-1.other"),), True, ResolveResult.NOT_PENDING),
        ((interrupt("turn-1.call-1"),), True, ResolveResult.DEADLINE_PASSED),
        ((interrupt("turn-1.call-1", kind="question"),), True, ResolveResult.NOT_AN_APPROVAL),
        ((interrupt("turn-1.call-1", kind="question"),), False, ResolveResult.DEADLINE_PASSED),
    ],
)
def test_a_refused_decision_has_a_reason(
    client: AgentSessionClient,
    engine: FakeEngine,
    pending: tuple[AgentInterrupt, ...],
    approved: bool,
    reason: ResolveResult,
) -> None:
    engine.answers["resolve_interrupt"] = False
    engine.values["PendingInterrupts"] = pending
    result = asyncio.run(client.resolve_interrupt_with_reason("order-42", "turn-1.call-1", approved=approved))
    assert result is reason


def test_an_accepted_decision_carries_the_persons_words(client: AgentSessionClient, engine: FakeEngine) -> None:
    engine.answers["resolve_interrupt"] = True
    result = asyncio.run(
        client.resolve_interrupt_with_reason(
            "order-42", "turn-1.call-1", approved=False, rejection_message="no: use b@x \ud83d", request_id="r-2"
        )
    )
    assert result is ResolveResult.ACCEPTED
    name, session_id, input, request_id = engine.calls[0]
    assert (name, session_id, request_id) == ("resolve_interrupt", "order-42", "r-2")
    assert (input.interrupt_id, input.approved) == ("turn-1.call-1", False)
    assert input.rejection_message == "no: use b@x \ufffd"


@pytest.mark.parametrize("message", ["no", ""])
def test_an_approval_with_a_rejection_message_is_refused(
    client: AgentSessionClient, engine: FakeEngine, message: str
) -> None:
    for decide in (client.resolve_interrupt, client.resolve_interrupt_with_reason):
        with pytest.raises(ValueError, match="rejection_message is for approved=False"):
            asyncio.run(decide("order-42", "turn-1.call-1", approved=True, rejection_message=message))
    assert engine.calls == []


@pytest.mark.parametrize(
    ("pending", "answer", "reason"),
    [
        ((), "7", AnswerResult.NOT_PENDING),
        ((interrupt("turn-1.other", kind="question"),), "7", AnswerResult.NOT_PENDING),
        ((interrupt("turn-1.call-1"),), "7", AnswerResult.NOT_A_QUESTION),
        ((interrupt("turn-1.call-1", kind="question"),), " \u2003", AnswerResult.BLANK_ANSWER),
        ((interrupt("turn-1.call-1", kind="question", choices=("7", "8")),), "9", AnswerResult.DEADLINE_PASSED),
        (
            (interrupt("turn-1.call-1", kind="question", choices=("7", "8"), allows_free_text=False),),
            "9",
            AnswerResult.NOT_A_CHOICE,
        ),
        (
            (interrupt("turn-1.call-1", kind="question", choices=("7", "8"), allows_free_text=False),),
            "8",
            AnswerResult.DEADLINE_PASSED,
        ),
    ],
)
def test_a_refused_answer_has_a_reason(
    client: AgentSessionClient,
    engine: FakeEngine,
    pending: tuple[AgentInterrupt, ...],
    answer: str,
    reason: AnswerResult,
) -> None:
    engine.answers["answer_question"] = False
    engine.values["PendingInterrupts"] = pending
    result = asyncio.run(client.answer_question_with_reason("order-42", "turn-1.call-1", answer))
    assert result is reason


def test_an_accepted_answer_is_repaired_and_repeatable(client: AgentSessionClient, engine: FakeEngine) -> None:
    engine.answers["answer_question"] = True
    result = asyncio.run(
        client.answer_question_with_reason("order-42", "turn-1.call-1", "seven \ud83d", request_id="r-3")
    )
    assert result is AnswerResult.ACCEPTED
    name, session_id, input, request_id = engine.calls[0]
    assert (name, session_id, request_id) == ("answer_question", "order-42", "r-3")
    assert (input.interrupt_id, input.answer) == ("turn-1.call-1", "seven \ufffd")


@pytest.mark.parametrize(
    ("steer", "accepted", "queued", "reason"),
    [
        ({"text": "hi"}, True, 0, SteerResult.ACCEPTED),
        ({"text": " \u2003"}, False, 0, SteerResult.BLANK_TEXT),
        ({"text": "hi"}, False, 0, SteerResult.REFUSED),
        ({"message_id": 1}, True, 1, SteerResult.ACCEPTED),
        ({"message_id": 2}, False, 1, SteerResult.NOT_QUEUED),
        ({"message_id": 1}, False, 1, SteerResult.NO_ACTIVE_TURN),
    ],
)
def test_steering_a_turn(
    client: AgentSessionClient,
    engine: FakeEngine,
    steer: dict[str, Any],
    accepted: bool,
    queued: int,
    reason: SteerResult,
) -> None:
    engine.answers["steer_user_message"] = accepted
    engine.queues["QueuedUserMessages"] = [AgentUserMessage(text="next", sent_at=NOW)] * queued
    assert asyncio.run(client.steer_user_message("order-42", **steer)) is accepted
    assert asyncio.run(client.steer_user_message_with_reason("order-42", request_id="r-4", **steer)) is reason
    sent = engine.calls[0][2]
    assert (sent.text, sent.message_id) == (steer.get("text"), steer.get("message_id"))
    assert engine.calls[1][3] == "r-4"


@pytest.mark.parametrize("steer", [{}, {"text": "hi", "message_id": 1}])
def test_steering_takes_a_text_or_a_message(
    client: AgentSessionClient, engine: FakeEngine, steer: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="either a text or a message_id"):
        asyncio.run(client.steer_user_message("order-42", **steer))
    assert engine.calls == []


@pytest.mark.parametrize(
    ("turn_id", "accepted", "active_turn_id", "reason"),
    [
        (None, True, "turn-2", CancelResult.ACCEPTED),
        (None, False, None, CancelResult.NO_ACTIVE_TURN),
        ("turn-1", False, None, CancelResult.NO_ACTIVE_TURN),
        ("turn-1", False, "turn-2", CancelResult.ANOTHER_TURN),
    ],
)
def test_stopping_a_turn(
    client: AgentSessionClient,
    engine: FakeEngine,
    turn_id: str | None,
    accepted: bool,
    active_turn_id: str | None,
    reason: CancelResult,
) -> None:
    engine.answers["cancel_turn"] = accepted
    engine.values["AgentState"] = replace(state(AgentStatus.RUNNING_MODEL), active_turn_id=active_turn_id)
    assert asyncio.run(client.cancel_turn("order-42", turn_id)) is accepted
    assert asyncio.run(client.cancel_turn_with_reason("order-42", turn_id, request_id="r-5")) is reason
    assert [call[2].turn_id for call in engine.calls] == [turn_id, turn_id]
    assert engine.calls[1][3] == "r-5"


def test_reading_goes_through_the_rpcs(client: AgentSessionClient, engine: FakeEngine) -> None:
    message = AgentMessage(sequence=3, turn_id="turn-1", role="user", framework_item='"hi"', created_at=NOW)
    engine.answers.update(
        get_agent_snapshot=AgentSnapshot(),
        list_agent_messages=AgentMessagePage(messages=(message,)),
        delete_queued_message=True,
    )
    assert asyncio.run(client.get_agent_snapshot("order-42")) == AgentSnapshot()
    page = asyncio.run(client.list_agent_messages("order-42", before_sequence=9, limit=5))
    assert page.messages == (message,)
    assert asyncio.run(client.get_message("order-42", 3)) is message
    assert asyncio.run(client.get_message("order-42", 4)) is None
    assert asyncio.run(client.delete_queued_message("order-42", 17)) is True
    assert (engine.calls[1][2].before_sequence, engine.calls[1][2].limit) == (9, 5)
    assert (engine.calls[2][2].before_sequence, engine.calls[2][2].limit) == (4, 1)
    assert engine.calls[4][2].message_id == 17


def test_idle_means_no_turn_and_no_message_waiting_for_one(client: AgentSessionClient, engine: FakeEngine) -> None:
    idle = state(AgentStatus.WAITING_FOR_USER_MESSAGE)

    async def main() -> None:
        waiting = asyncio.create_task(client.wait_until_idle("order-42", timeout=60))
        engine.commit(AgentState=state(AgentStatus.RUNNING_TOOLS))
        await let_others_run()
        assert not waiting.done()
        engine.queues["QueuedUserMessages"] = [AgentUserMessage(text="next", sent_at=NOW)]
        engine.commit(AgentState=idle)
        await let_others_run()
        assert not waiting.done()
        engine.queues = {"SteeredUserMessages": engine.queues.pop("QueuedUserMessages")}
        engine.commit()
        await let_others_run()
        assert not waiting.done()
        engine.queues.clear()
        engine.commit()
        assert await waiting is idle

    asyncio.run(main())


def test_waiting_for_interrupts_returns_all_that_are_pending(client: AgentSessionClient, engine: FakeEngine) -> None:
    first, second = interrupt("turn-1.a"), interrupt("turn-1.b")

    async def main() -> None:
        assert await client.pending_interrupts("order-42") == ()
        waiting = asyncio.create_task(client.wait_for_interrupts("order-42", count=2, timeout=60))
        engine.commit(PendingInterrupts=(first,))
        await let_others_run()
        assert not waiting.done()
        engine.commit(PendingInterrupts=(first, second))
        assert await waiting == (first, second)
        assert await client.wait_for_interrupts("order-42", timeout=60) == (first, second)
        with pytest.raises(TimeoutError, match="did not reach 3 pending interrupts within 0 s: it has not begun"):
            await client.wait_for_interrupts("order-42", count=3, timeout=0)

    asyncio.run(main())


def test_interrupts_of_a_stopped_session_are_not_waited_for(client: AgentSessionClient, engine: FakeEngine) -> None:
    engine.values["PendingInterrupts"] = (interrupt("turn-1.a"),)
    engine.status = "stopped"
    with pytest.raises(FlowClosedError, match="'order-42' is stopped"):
        asyncio.run(client.wait_for_interrupts("order-42", timeout=60))


def test_a_wait_that_timed_out_says_what_the_session_does(client: AgentSessionClient, engine: FakeEngine) -> None:
    engine.values["AgentState"] = replace(state(AgentStatus.RUNNING_MODEL), active_turn_id="turn-3")
    with pytest.raises(TimeoutError) as raised:
        asyncio.run(client.wait_until_idle("order-42", timeout=0))
    expected = "session 'order-42' did not reach being idle within 0 s: turn-3 is at model step 1"
    assert str(raised.value) == expected


def test_streaming_yields_events_with_positions_and_closes_the_engines_stream(
    client: AgentSessionClient, engine: FakeEngine, flow: AgentSessionFlow
) -> None:
    event = AgentEvent(
        type="text_delta", turn_id="turn-1", attempt=1, step_execution_id=4, payload='{"text":"hi"}', created_at=NOW
    )
    engine.events = [StreamEvent(position=8, value=event), StreamEvent(position=9, value=event)]

    async def main() -> None:
        events = client.stream_events("order-42", after=7)
        streamed = await anext(events)
        assert (streamed.position, streamed.type, streamed.turn_id) == (8, "text_delta", "turn-1")
        assert streamed.payload == {"text": "hi"}
        assert streamed.event is event
        assert (await anext(events)).position == 9
        assert engine.open_streams == 1
        await events.aclose()
        assert engine.open_streams == 0

    asyncio.run(main())
    assert engine.followed == [("order-42", flow.agent_events, 7)]
