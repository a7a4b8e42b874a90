"""What a function tool may know and do about its call, on the event loop or in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dex_agents import AgentEventWriter, DeferredToolExecution, QuestionAnswer, ToolInputRequested
from dex_agents_stepwise.tool_questions import ToolQuestions

__all__ = ["DroppedEvents", "ToolCallContext", "context_of_execution", "no_heartbeat"]


class DroppedEvents:
    """Events of a context that a test made by hand."""

    def write_text_delta(self, text: str) -> None:
        """Drop it."""

    def write_reasoning_delta(self, text: str) -> None:
        """Drop it."""

    def write_event(self, type: str, payload: Mapping[str, Any]) -> None:
        """Drop it."""


def no_heartbeat() -> None:
    """Nobody listens."""


async def _drop_checkpoint(text: str) -> None:
    """Nobody reads it."""


def _drop_checkpoint_from_thread(text: str) -> None:
    """Nobody reads it."""


@dataclass(frozen=True, kw_only=True)
class ToolCallContext:
    """One attempt of one tool call. A tool receives it in the parameter that is annotated with this class.

    Only the idempotency key is required, so that a unit test can call a tool with a context of its own.

    Attributes:
        idempotency_key: The same on every attempt of the call, different for every call. Hand it to what you write to.
        attempt: From 1.
        flow_id: The session's ID.
        turn_id: The turn.
        tool_call_id: The session's ID of the call.
        events: Live events; best effort, never waits.
        heartbeat: Says that the attempt lives. The session does so every 20 seconds by itself.
        heartbeat_checkpoint: The text an earlier attempt saved last.
        save_heartbeat_checkpoint: Stores a text durably for the next attempt; await it.
        save_heartbeat_checkpoint_from_thread: The same for a synchronous tool; returns once the text is stored.
        deadline: When the attempt times out, aware UTC; None without a limit.
        input_answers: How the tool's own questions ended, oldest first.
        input_continuation: What the tool stored when it asked its latest question.
        supports_tool_tasks: Whether the tool may return `ToolTaskStarted`: it has a `poll_task`, and the session polls.
        questions: Which of its questions this run of the tool has asked.
    """

    idempotency_key: str
    attempt: int = 1
    flow_id: str = ""
    turn_id: str = ""
    tool_call_id: str = ""
    events: AgentEventWriter = field(default_factory=DroppedEvents)
    heartbeat: Callable[[], None] = no_heartbeat
    heartbeat_checkpoint: str | None = None
    save_heartbeat_checkpoint: Callable[[str], Coroutine[Any, Any, None]] = _drop_checkpoint
    save_heartbeat_checkpoint_from_thread: Callable[[str], None] = _drop_checkpoint_from_thread
    deadline: datetime | None = None
    input_answers: tuple[QuestionAnswer, ...] = ()
    input_continuation: str | None = None
    supports_tool_tasks: bool = False
    questions: ToolQuestions = field(default_factory=ToolQuestions, init=False, repr=False, compare=False)

    def ask_user(
        self,
        question: str,
        *,
        choices: Sequence[str] = (),
        allows_free_text: bool = True,
        continuation: str | None = None,
    ) -> str:
        """The user's answer to a question of the tool. Ask before the tool takes any effect.

        Without an answer yet, the function ends here; nothing waits, however long the answer takes. After the answer
        the function is called again from its beginning, with the same arguments, and this call returns. Ask the same
        questions in the same words and order every time. It works in sync and async functions alike.

        Args:
            question: What the user reads.
            choices: Answers to choose from.
            allows_free_text: Whether the answer may be none of the choices.
            continuation: What the next run reads as `input_continuation`.

        Raises:
            ToolInputRequired: The question has no answer yet; let it leave the function.
            ToolExecutionError: The user declined, or the deadline passed.
            TypeError: The question or a choice is no text.
            ValueError: The question or a choice is blank, or nothing could answer it.
        """
        if not isinstance(question, str):
            raise TypeError(f"question must be text, not {question!r}")
        if not question.strip():
            raise ValueError("question must not be blank")
        if isinstance(choices, str) or not all(isinstance(choice, str) for choice in choices):
            raise TypeError(f"choices must be a sequence of texts, not {choices!r}")
        if not all(choice.strip() for choice in choices):
            raise ValueError(f"choices must not be blank, as one of {choices!r} is")
        if not choices and not allows_free_text:
            raise ValueError("without choices, allows_free_text must be True")
        request = ToolInputRequested(
            question=question,
            choices=tuple(choices),
            allows_free_text=allows_free_text,
            continuation=continuation,
        )
        return self.questions.answer(request, self.input_answers)


def context_of_execution(
    execution: DeferredToolExecution, loop: asyncio.AbstractEventLoop, *, can_poll: bool
) -> ToolCallContext:
    """The context of a call to run.

    Args:
        execution: The call; its events and heartbeats may be used from threads too.
        loop: The event loop of the session, which saves the checkpoints of a synchronous tool.
        can_poll: Whether the tool can poll the remote work it starts.
    """

    def save_from_thread(text: str) -> None:
        asyncio.run_coroutine_threadsafe(execution.save_heartbeat_checkpoint(text), loop).result()

    return ToolCallContext(
        idempotency_key=execution.idempotency_key,
        attempt=execution.attempt,
        flow_id=execution.flow_id,
        turn_id=execution.turn_id,
        tool_call_id=execution.tool_call.tool_call_id,
        events=execution.events,
        heartbeat=execution.heartbeat,
        heartbeat_checkpoint=execution.heartbeat_checkpoint,
        save_heartbeat_checkpoint=execution.save_heartbeat_checkpoint,
        save_heartbeat_checkpoint_from_thread=save_from_thread,
        deadline=execution.deadline,
        input_answers=execution.input_answers,
        input_continuation=execution.tool_call.input_continuation,
        supports_tool_tasks=can_poll and execution.supports_tool_tasks,
    )
