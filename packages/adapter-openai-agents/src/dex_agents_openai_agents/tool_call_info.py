"""What a tool may know about its call, wherever in the tool's code it asks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime

from dex_agents import AgentEventWriter, DeferredToolExecution, ToolInputRequested
from dex_agents_openai_agents.tool_questions import ToolQuestions

__all__ = ["CurrentToolCall", "current_tool_call", "running_tool_call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentToolCall:
    """One attempt of one tool call.

    Attributes:
        idempotency_key: The same on every attempt of the call, different for every call of every session.
        attempt: From 1.
        flow_id: The session's ID.
        turn_id: The turn.
        tool_call_id: The session's ID of the call.
        deadline: When the attempt times out, aware UTC; None without a limit.
        events: Live events of the attempt; best effort, never waits.
        questions: What the tool asked so far.
    """

    idempotency_key: str
    attempt: int
    flow_id: str
    turn_id: str
    tool_call_id: str
    deadline: datetime | None
    events: AgentEventWriter
    questions: ToolQuestions

    def ask_user(self, question: str, *, choices: Sequence[str] = (), allows_free_text: bool = True) -> str:
        """The user's answer to a question of the tool. Ask before the tool takes any effect.

        Without an answer yet, the tool ends here; nothing waits, however long the answer takes. After the answer the
        tool runs again from its beginning, with the same arguments, and this call returns. Ask the same questions in
        the same words and order every time. It works in sync and async tools, and not in the tools of an agent that is
        used as a tool.

        Args:
            question: What the user reads.
            choices: Answers to choose from.
            allows_free_text: Whether the answer may be none of the choices.

        Raises:
            ToolInputRequired: The question has no answer yet; let it leave the tool.
            ToolExecutionError: The user declined, or the deadline passed.
            ValueError: The question or a choice is blank, or nothing could answer it.
        """
        if not question.strip() or not all(choice.strip() for choice in choices):
            raise ValueError(f"a question and its choices must not be blank, as {question!r} with {choices!r} is")
        if not choices and not allows_free_text:
            raise ValueError("without choices, allows_free_text must be True")
        request = ToolInputRequested(question=question, choices=tuple(choices), allows_free_text=allows_free_text)
        return self.questions.answer(request)


_current: ContextVar[CurrentToolCall] = ContextVar("dex_agents_openai_agents_current_tool_call")


def current_tool_call() -> CurrentToolCall:
    """The session's call that the calling code belongs to.

    It works in async tools, in sync tools (which the SDK runs in threads), in handoff callbacks, in MCP
    `tool_meta_resolver`s, and in the tools of an agent that is used as a tool. Those all see the call of the agent that
    was used as a tool, so they combine its key with their own `ToolContext.tool_call_id`.

    Raises:
        LookupError: No call of a session runs here, as in a plain `Runner.run`.
    """
    call = _current.get(None)
    if call is None:
        raise LookupError("current_tool_call() was called outside a tool call of a durable session")
    return call


@contextlib.contextmanager
def running_tool_call(call: DeferredToolExecution) -> Iterator[CurrentToolCall]:
    """Make a call the current one of everything that runs inside the block."""
    current = CurrentToolCall(
        idempotency_key=call.idempotency_key,
        attempt=call.attempt,
        flow_id=call.flow_id,
        turn_id=call.turn_id,
        tool_call_id=call.tool_call.tool_call_id,
        deadline=call.deadline,
        events=call.events,
        questions=ToolQuestions(call.input_answers),
    )
    token = _current.set(current)
    try:
        yield current
    finally:
        _current.reset(token)
