"""Approvals, their deadlines and races, and the session's RPCs."""

from datetime import timedelta
from typing import Any

import pytest

from dex_agents.session.event_values import decode_event_payload
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import (
    ModelStepCompleted,
    ModelStepToolCallsRequested,
    RequestedToolCall,
    ToolCallSucceeded,
)
from dex_agents.session.rpc_values import DeleteQueuedMessageInput, ListAgentMessagesInput, SendUserMessageInput
from dex_agents.session.rpcs import DELETE_QUEUED_MESSAGE, LIST_AGENT_MESSAGES, SEND_USER_MESSAGE
from dex_agents.session.texts import APPROVAL_DEADLINE_PASSED, TOOL_CALL_REJECTED_RESULT
from dex_agents.session.tool_results import tool_result_text
from dex_agents.session.tool_values import AgentToolCall, AgentToolCallStatus, ResolvedToolPolicy, ToolEffect
from dex_agents.session.values import AgentUsage, FrameworkMessage
from dex_agents.testing import SessionDriver
from dex_flow import ValueTooLargeError

GATED = ResolvedToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True)
FREE = ResolvedToolPolicy(effect=ToolEffect.READ, requires_approval=False)


def wanted(tool_call_id: str, policy: ResolvedToolPolicy = GATED) -> RequestedToolCall:
    return RequestedToolCall(tool_call_id=tool_call_id, tool_name="refund", arguments='{"order":7}', policy=policy)


def ask(driver: SessionDriver, *calls: RequestedToolCall) -> None:
    outcome = ModelStepToolCallsRequested(framework_run_state="s", tool_calls=calls, usage=AgentUsage())
    driver.succeed(driver.attempt_of("RunModel"), outcome)


def answer(driver: SessionDriver) -> None:
    message = FrameworkMessage(role="assistant", framework_item='"done"', text="done")
    driver.succeed(driver.attempt_of("RunModel"), ModelStepCompleted(new_messages=(message,), usage=AgentUsage()))


def gated(*calls: str, **options: Any) -> SessionDriver:
    driver = SessionDriver(AgentSessionOptions(**options))
    driver.start("Refund order 7")
    ask(driver, *map(wanted, calls))
    return driver


def model_results(driver: SessionDriver) -> list[str]:
    return [tool_result_text(call) for call in driver.snapshot_of(driver.attempt_of("RunModel")).tool_calls]


def payloads(driver: SessionDriver, event_type: str) -> list[dict[str, Any]]:
    return [decode_event_payload(event) for event in driver.events() if event.type == event_type]


def test_an_approved_call_runs_once_and_its_interrupt_is_gone() -> None:
    driver = gated("c1")
    (interrupt,) = driver.snapshot().pending_interrupts
    assert interrupt.interrupt_id == "turn-1.c1"
    assert (interrupt.kind, interrupt.tool_call_id, interrupt.arguments) == ("approval", "c1", '{"order":7}')
    assert driver.running == {}
    assert driver.resolve("turn-1.c1", True)
    assert driver.snapshot().pending_interrupts == ()
    driver.succeed(driver.attempt_of("CallSingleAttemptTool", "c1"), ToolCallSucceeded(output="refunded"))
    assert model_results(driver) == ["refunded"]
    assert payloads(driver, "interrupt_raised") == [
        {
            "interrupt_id": "turn-1.c1",
            "kind": "approval",
            "tool_call_id": "c1",
            "tool_name": "refund",
            "deadline": None,
            "question": None,
            "choices": [],
            "allows_free_text": True,
        }
    ]
    assert payloads(driver, "interrupt_resolved") == [
        {
            "interrupt_id": "turn-1.c1",
            "kind": "approval",
            "approved": True,
            "answered": False,
            "rejection_message": None,
            "cancellation_reason": None,
            "arguments_changed": False,
        }
    ]


@pytest.mark.parametrize(
    ("message", "seen"),
    [
        ("Use the voucher instead", "Use the voucher instead"),
        (None, TOOL_CALL_REJECTED_RESULT),
        (" ", TOOL_CALL_REJECTED_RESULT),
    ],
)
def test_a_rejected_call_never_runs_and_the_model_sees_the_words(message: str | None, seen: str) -> None:
    driver = gated("c1")
    assert driver.resolve("turn-1.c1", False, message)
    assert model_results(driver) == [seen]
    assert "tool_call_started" not in driver.event_types()


@pytest.mark.parametrize("approved", [True, False])
def test_a_second_or_unknown_decision_is_refused_and_says_nothing(approved: bool) -> None:
    driver = gated("c1")
    assert not driver.resolve("turn-1.c2", approved)
    assert not driver.resolve("c1", approved)
    assert not driver.resolve("", approved)
    assert driver.resolve("turn-1.c1", True)
    assert not driver.resolve("turn-1.c1", approved)
    driver.succeed(driver.attempt_of("CallSingleAttemptTool"), ToolCallSucceeded(output="refunded"))
    assert not driver.resolve("turn-1.c1", approved)
    answer(driver)
    assert not driver.resolve("turn-1.c1", approved)
    assert len(payloads(driver, "interrupt_resolved")) == 1
    assert driver.store.channels == {}


def test_a_decision_of_an_earlier_turn_never_reaches_a_later_call_with_the_same_provider_id() -> None:
    driver = gated("c1")
    driver.resolve("turn-1.c1", False)
    answer(driver)
    driver.send("Try again")
    ask(driver, wanted("c1"))
    assert not driver.resolve("turn-1.c1", True)
    assert [interrupt.interrupt_id for interrupt in driver.snapshot().pending_interrupts] == ["turn-2.c1"]
    assert driver.running == {}


def test_parallel_approvals_are_decided_in_any_order_and_seen_in_call_order() -> None:
    driver = gated("same", "same", "same")
    ids = [interrupt.interrupt_id for interrupt in driver.snapshot().pending_interrupts]
    assert ids == ["turn-1.same", "turn-1.same~2", "turn-1.same~3"]
    driver.resolve(ids[1], False, "not this one")
    driver.lose_worker()
    driver.resolve(ids[0], True)
    driver.succeed(driver.attempt_of("CallSingleAttemptTool", "same"), ToolCallSucceeded(output="first"))
    driver.lose_worker()
    assert driver.open_step_types == ["AwaitToolApproval", "ResumeTurn"]
    driver.resolve(ids[2], True)
    driver.succeed(driver.attempt_of("CallSingleAttemptTool", "same~3"), ToolCallSucceeded(output="third"))
    assert model_results(driver) == ["first", "not this one", "third"]


def test_a_free_call_runs_while_a_gated_one_waits() -> None:
    driver = SessionDriver()
    driver.start("Go")
    ask(driver, wanted("c1"), wanted("c2", FREE))
    driver.succeed(driver.attempt_of("CallTool", "c2"), ToolCallSucceeded(output="free"))
    assert driver.open_step_types == ["AwaitToolApproval", "ResumeTurn"]


def test_a_deadline_rejects_the_call() -> None:
    driver = gated("c1", interrupt_deadline=timedelta(hours=1))
    deadline = driver.snapshot().pending_interrupts[0].deadline
    assert deadline is not None
    assert payloads(driver, "interrupt_raised")[0]["deadline"] == "2026-01-01T01:00:00Z"
    driver.advance(3_599)
    assert driver.running == {}
    driver.advance(1)
    assert model_results(driver) == [APPROVAL_DEADLINE_PASSED]
    assert payloads(driver, "interrupt_resolved")[0]["rejection_message"] == APPROVAL_DEADLINE_PASSED
    assert not driver.resolve("turn-1.c1", True)


def test_a_decision_before_the_deadline_wins_and_one_at_it_loses() -> None:
    early = gated("c1", interrupt_deadline=timedelta(seconds=10))
    early.now += 9_999_999
    assert early.resolve("turn-1.c1", True)
    early.advance(100)
    early.attempt_of("CallSingleAttemptTool", "c1")

    late = gated("c1", interrupt_deadline=timedelta(seconds=10))
    late.now += 10_000_000
    assert not late.resolve("turn-1.c1", True)
    assert model_results(late) == [APPROVAL_DEADLINE_PASSED]
    for driver in (early, late):
        assert len(payloads(driver, "interrupt_resolved")) == 1


def test_a_skipped_deadline_counts_as_passed() -> None:
    driver = gated("c1", interrupt_deadline=timedelta(days=7))
    step = next(step for step in driver.header.steps.values() if step.type == "AwaitToolApproval")
    assert driver.skip_timer(step.id)
    assert model_results(driver) == [APPROVAL_DEADLINE_PASSED]


def test_an_approval_waits_through_a_week_without_a_worker() -> None:
    driver = gated("c1")
    driver.lose_worker()
    driver.advance(7 * 24 * 3600)
    assert driver.resolve("turn-1.c1", True)
    driver.attempt_of("CallSingleAttemptTool", "c1")


def test_a_rejection_message_is_repaired_and_limited() -> None:
    driver = gated("c1")
    with pytest.raises(ValueTooLargeError, match="the rejection message"):
        driver.resolve("turn-1.c1", False, "x" * (1024 * 1024 + 1))
    assert driver.resolve("turn-1.c1", False, "no\0")
    assert model_results(driver) == ["no\ufffd"]


@pytest.mark.parametrize("text", ["", " ", "\n\t", "\u3000"])
def test_a_blank_message_is_refused(text: str) -> None:
    driver = SessionDriver()
    driver.start()
    assert not driver.send(text)
    assert driver.open_step_types == ["AwaitUserMessage"]


def test_a_plan_mode_message_is_refused_where_plan_mode_is_off() -> None:
    driver = SessionDriver()
    driver.start()
    assert not driver.call(SEND_USER_MESSAGE, SendUserMessageInput(text="Plan it", plan_mode=True))


def test_a_message_too_large_is_refused_with_its_size() -> None:
    driver = SessionDriver()
    driver.start()
    with pytest.raises(ValueTooLargeError, match="the user message has 1048577 bytes"):
        driver.send("x" * (1024 * 1024 + 1))
    assert driver.send("x" * 1024 * 1024)


def test_a_queued_message_can_be_deleted_once() -> None:
    driver = SessionDriver()
    driver.start("first")
    driver.send("second")
    driver.send("third")
    second, third = driver.snapshot().queued_messages
    assert driver.call(DELETE_QUEUED_MESSAGE, DeleteQueuedMessageInput(message_id=second.message_id))
    assert not driver.call(DELETE_QUEUED_MESSAGE, DeleteQueuedMessageInput(message_id=second.message_id))
    assert not driver.call(DELETE_QUEUED_MESSAGE, DeleteQueuedMessageInput(message_id=999))
    answer(driver)
    assert not driver.call(DELETE_QUEUED_MESSAGE, DeleteQueuedMessageInput(message_id=third.message_id))
    answer(driver)
    assert [message.text for message in driver.snapshot().messages if message.role == "user"] == ["first", "third"]


def test_messages_are_listed_in_pages_from_the_newest() -> None:
    driver = SessionDriver()
    driver.start("u1")
    answer(driver)
    for number in (2, 3):
        driver.send(f"u{number}")
        answer(driver)

    def page(before: int | None, limit: int) -> tuple[list[int], int | None]:
        answered = driver.call(LIST_AGENT_MESSAGES, ListAgentMessagesInput(before_sequence=before, limit=limit))
        return [message.sequence for message in answered.messages], answered.next_before_sequence

    assert page(None, 4) == ([3, 4, 5, 6], 3)
    assert page(3, 4) == ([1, 2], None)
    assert page(None, 0) == ([6], 6)
    assert page(None, 10_000) == ([1, 2, 3, 4, 5, 6], None)
    assert page(1, 10) == ([], None)
    assert page(-5, 10) == ([], None)


def test_an_open_call_has_no_result() -> None:
    call = AgentToolCall(
        tool_call_id="c1",
        tool_name="t",
        arguments="{}",
        effect=ToolEffect.READ,
        requires_approval=False,
        status=AgentToolCallStatus.APPROVED,
        deferral_order=0,
        model_step_number=1,
    )
    with pytest.raises(ValueError, match="'c1' is approved and has no result yet"):
        tool_result_text(call)
