"""Remote work of the planned agent: a task whose course its arguments say, so that any worker process can poll it."""

from __future__ import annotations

from typing import Any

from dex_agents import ToolExecutionResult, ToolInputRequested, ToolTaskPending, ToolTaskStarted
from dex_agents_stepwise import FunctionTool, ToolCallContext, ToolTaskContext, function_tool
from dex_flow.testing import Gates, InvocationLog

__all__ = ["QUESTION", "create_task_tool"]

QUESTION = "Which quarter?"


def create_task_tool(gates: Gates, log: InvocationLog) -> FunctionTool[..., Any]:
    """The tool `build_report`: it starts a task, and the course of the task is the tool's argument.

    Poll number n finds the nth word of `course`: `pending`, `ask` (a question), or `done`. Which number a poll has
    stands in the continuation alone, so a repeated attempt finds the same.

    The log gets `build_report.before` when a task starts, `poll-<n> <answer handed over>` at every poll, and
    `cancel.before` and `cancel.after`. Gates: `<session>.build_report.started`, `<session>.poll-<n>`,
    `<session>.cancel`.

    Args:
        gates: Where a test holds the worker.
        log: What really happened.
    """

    async def poll_task(poll: ToolTaskContext) -> object:
        number = int(poll.continuation or "0")
        answer = (
            "-" if poll.pending_answer is None else f"{poll.pending_answer.resolution}:{poll.pending_answer.answer}"
        )
        log.record(poll.idempotency_key, f"poll-{number} {answer}", poll.attempt)
        await gates.pass_through(f"{poll.flow_id}.poll-{number}")
        course, seconds = poll.arguments["course"].split(), poll.arguments["seconds"]
        match course[number]:
            case "pending":
                return ToolTaskPending(poll_interval_seconds=seconds, continuation=str(number + 1))
            case "ask":
                return ToolInputRequested(question=QUESTION, continuation=str(number + 1))
            case "done":
                answers = [answer.answer or answer.resolution for answer in poll.input_answers]
                return ToolExecutionResult(output=f"report done {answers}")
        raise AssertionError(f"the course has no poll {number}: {course}")

    async def cancel_task(cancellation: ToolTaskContext) -> None:
        log.record(cancellation.idempotency_key, "cancel.before", cancellation.attempt)
        await gates.pass_through(f"{cancellation.flow_id}.cancel")
        log.record(cancellation.idempotency_key, "cancel.after", cancellation.attempt)

    @function_tool(effect="non_idempotent_write", poll_task=poll_task, cancel_task=cancel_task)
    async def build_report(course: str, seconds: int, context: ToolCallContext) -> object:
        log.record(context.idempotency_key, "build_report.before", context.attempt)
        await gates.pass_through(f"{context.flow_id}.build_report.started")
        return ToolTaskStarted(task_id=context.idempotency_key, poll_interval_seconds=seconds)

    return build_report
