"""LangGraph interrupts as the session's questions and approvals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langgraph.types import Interrupt

from dex_agents import DeferredToolCall, QuestionAnswer, ResolvedToolPolicy, ToolEffect, ToolInputRequested

__all__ = [
    "INTERRUPT_TOOL",
    "answer_value",
    "approval_decisions",
    "has_schema",
    "interrupt_call",
    "interrupt_id_of",
    "is_tool_approval",
    "question_of",
]

#: Name of the call that stands for an interrupt of a node.
INTERRUPT_TOOL = "answer_interrupt"
_REFERENCE = "interrupt:"
_APPROVE, _REJECT = "approve", "reject"


def interrupt_call(asked: Interrupt) -> DeferredToolCall:
    """The call that asks the user what a node asked."""
    arguments = {"question": _question_text(asked.value), "has_schema": has_schema(asked)}
    return DeferredToolCall(
        tool_call_id=f"interrupt-{asked.id[:12]}",
        tool_name=INTERRUPT_TOOL,
        arguments=json.dumps(arguments, ensure_ascii=False),
        policy=ResolvedToolPolicy(effect=ToolEffect.READ, requires_approval=False),
        tool_source_reference=f"{_REFERENCE}{asked.id}",
    )


def interrupt_id_of(reference: str | None) -> str | None:
    """The interrupt that a call stands for; None for a call of a tool."""
    return reference.removeprefix(_REFERENCE) if reference and reference.startswith(_REFERENCE) else None


def question_of(asked: Interrupt, continuation: str | None = None) -> ToolInputRequested:
    """The question of an interrupt that a tool raised."""
    if is_tool_approval(asked.value):
        text = _question_text(asked.value.get("description") or asked.value)
        return ToolInputRequested(
            question=text, choices=(_APPROVE, _REJECT), allows_free_text=False, continuation=continuation
        )
    value = asked.value if isinstance(asked.value, Mapping) else {}
    choices = tuple(str(choice) for choice in value.get("choices") or ())
    return ToolInputRequested(
        question=_question_text(asked.value),
        choices=choices,
        allows_free_text=not choices or value.get("allows_free_text") is not False,
        continuation=continuation,
    )


def answer_value(answer: QuestionAnswer, *, has_schema: bool, is_approval: bool) -> Any:
    """What `interrupt` returns for an answer: its text, or a JSON value where the interrupt has a response schema.

    Args:
        answer: How the question ended.
        has_schema: Whether the interrupt says what kind of value it wants.
        is_approval: Whether it is a HumanInTheLoopMiddleware that asks about one call.
    """
    text = answer.answer or ""
    if is_approval:
        if answer.resolution == "answered" and text.strip() == _APPROVE:
            return {"type": _APPROVE}
        rejection = {"type": _REJECT}
        return {**rejection, "message": answer.rejection_message} if answer.rejection_message else rejection
    if not has_schema:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def approval_decisions(asked: Interrupt) -> tuple[Any, frozenset[str]] | None:
    """The answer to a HumanInTheLoopMiddleware that asks before a model's calls run, and the tools it asks for.

    It is always "approve": the session asks instead, durably and for each call.
    """
    value = asked.value
    if not isinstance(value, Mapping) or not isinstance(value.get("action_requests"), list):
        return None
    if "review_configs" not in value:
        return None
    requests = value["action_requests"]
    names = frozenset(str(request.get("name", "")) for request in requests)
    return {"decisions": [{"type": _APPROVE} for _ in requests]}, names


def has_schema(asked: Interrupt) -> bool:
    """Whether the interrupt says what kind of value it wants."""
    return getattr(asked, "response_schema", None) is not None


def is_tool_approval(value: Any) -> bool:
    """Whether a HumanInTheLoopMiddleware asks about one call while that runs."""
    return isinstance(value, Mapping) and value.get("type") == "tool_approval"


def _question_text(value: Any) -> str:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, Mapping):
        for name in ("question", "prompt", "message"):
            is_question = value.keys() <= {name, "choices", "allows_free_text"}
            if is_question and isinstance(value.get(name), str) and value[name].strip():
                return str(value[name])
    return json.dumps(value, ensure_ascii=False, default=str)
