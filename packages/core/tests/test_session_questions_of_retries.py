"""A tool that asks on a later attempt: what the earlier one may have done is not forgotten."""

from __future__ import annotations

import pytest

from dex_agents.session.outcomes import ToolCallInputRequested
from dex_agents.session.tool_values import AgentToolCallRecordStatus as Status
from dex_agents.session.tool_values import ToolEffect
from dex_agents.testing import SessionDriver

from .session_scripts import asks, finish_model, payloads, started, wanted


def asked_on_the_second_attempt(effect: ToolEffect) -> tuple[SessionDriver, str]:
    """A call whose first attempt failed and whose second one asks; and its question."""
    driver = started()
    finish_model(driver, asks(wanted("c", effect=effect), wanted("other", requires_approval=True)))
    driver.fail(driver.attempt_of("CallTool"))
    driver.advance(1)
    driver.succeed(driver.attempt_of("CallTool"), ToolCallInputRequested(question="Sure?"))
    (question,) = [i for i in driver.snapshot().pending_interrupts if i.kind == "question"]
    return driver, question.interrupt_id


@pytest.mark.parametrize(
    ("effect", "status"),
    [(ToolEffect.IDEMPOTENT_WRITE, Status.OUTCOME_UNKNOWN), (ToolEffect.READ, Status.REJECTED)],
)
@pytest.mark.parametrize("end", ["declined", "steered", "cancelled", "steered after the answer"])
def test_a_retried_write_that_asks_is_not_rejected_when_its_question_ends(
    effect: ToolEffect, status: Status, end: str
) -> None:
    driver, question = asked_on_the_second_attempt(effect)
    if end == "declined":
        assert driver.resolve(question, False)
    elif end == "cancelled":
        assert driver.cancel_turn()
    else:
        if end == "steered after the answer":
            driver.has_worker = False
            assert driver.answer(question, "yes")
        assert driver.steer("stop")
        driver.take_work()
    statuses = {p["tool_call_id"]: p["status"] for p in payloads(driver, "tool_call_finished")}
    assert statuses["c"] == status


def test_the_mark_of_a_failed_attempt_outlives_a_run_that_asked_again() -> None:
    driver, question = asked_on_the_second_attempt(ToolEffect.IDEMPOTENT_WRITE)
    assert driver.answer(question, "yes")
    driver.succeed(driver.attempt_of("CallTool"), ToolCallInputRequested(question="Really?"))
    (again,) = [i for i in driver.snapshot().pending_interrupts if i.kind == "question"]
    assert driver.resolve(again.interrupt_id, False, "no")
    (record, _) = driver.snapshot().tool_calls
    assert (record.status, record.rejection_message) == (Status.OUTCOME_UNKNOWN, "no")
