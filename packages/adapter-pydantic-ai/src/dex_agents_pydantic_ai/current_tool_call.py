"""What code inside a tool may know about its durable call, also where there is no `RunContext`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dex_agents import AgentEventWriter, AgentToolCall, ToolInputRequested
from dex_agents_pydantic_ai.tool_questions import ToolQuestions

__all__ = ["CONTEXT_METADATA_KEY", "SessionContext", "current_tool_call", "tool_call_context"]

#: The key of a tool's `ctx.metadata` (and `ctx.tool_call_metadata`, once approved) with the values of its durable call.
CONTEXT_METADATA_KEY = "dex_agents"


@dataclass(frozen=True, kw_only=True)
class SessionContext:
    """One model step or one tool call of a session, for `deps_factory` and `current_tool_call`.

    Attributes:
        flow_id: The session's ID.
        turn_id: The turn.
        attempt: The attempt, from 1.
        session_settings: The turn's settings; read-only.
        events: Live events of the attempt; best effort, never waits.
        deadline: When the attempt times out, aware UTC; None without a limit.
        tool_call: The call, None in a model step.
        idempotency_key: The same on every attempt of the call, different for every call. Hand it to what you write to.
            None in a model step.
        questions: What the tool asked so far.
    """

    flow_id: str
    turn_id: str
    attempt: int
    events: AgentEventWriter
    session_settings: Mapping[str, Any] = field(default_factory=dict)
    deadline: datetime | None = None
    tool_call: AgentToolCall | None = None
    idempotency_key: str | None = None
    questions: ToolQuestions = field(default_factory=ToolQuestions)

    def ask_user(self, question: str, *, choices: Sequence[str] = (), allows_free_text: bool = True) -> str:
        """The user's answer to a question of the tool. Ask before the tool takes any effect.

        Without an answer yet, the tool ends here; nothing waits, however long the answer takes. After the answer the
        tool runs again from its beginning, with the same arguments, and this call returns. Ask the same questions in
        the same words and order every time. It works in sync and async tools.

        Args:
            question: What the user reads.
            choices: Answers to choose from.
            allows_free_text: Whether the answer may be none of the choices.

        Raises:
            ToolInputRequired: The question has no answer yet; let it leave the tool.
            ToolExecutionError: The user declined, or the deadline passed.
            ValueError: The question or a choice is blank, or nothing could answer it.
            LookupError: No tool call runs, but a model step.
        """
        if self.tool_call is None:
            raise LookupError("ask_user is for code that runs in a tool call of a session")
        if not question.strip() or not all(choice.strip() for choice in choices):
            raise ValueError(f"a question and its choices must not be blank, as {question!r} with {choices!r} is")
        if not choices and not allows_free_text:
            raise ValueError("without choices, allows_free_text must be True")
        request = ToolInputRequested(question=question, choices=tuple(choices), allows_free_text=allows_free_text)
        return self.questions.answer(request)

    def metadata(self) -> dict[str, Any]:
        """The values that a tool reads in `ctx.metadata["dex_agents"]`."""
        values: dict[str, Any] = {"flow_id": self.flow_id, "turn_id": self.turn_id, "attempt": self.attempt}
        if self.tool_call is not None:
            values["tool_call_id"] = self.tool_call.tool_call_id
            values["idempotency_key"] = self.idempotency_key
        return values


_current: ContextVar[SessionContext] = ContextVar("dex_agents_pydantic_ai_tool_call")


def current_tool_call() -> SessionContext:
    """The durable call that runs now: in a tool of any kind, and in what it calls, threads of the framework included.

    Raises:
        LookupError: No tool call of a session runs.
    """
    try:
        return _current.get()
    except LookupError:
        raise LookupError("current_tool_call() is for code that runs in a tool call of a session") from None


@contextlib.contextmanager
def tool_call_context(context: SessionContext) -> Iterator[None]:
    """Make a call the current one."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)
