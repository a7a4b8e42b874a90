"""Tools the session runs itself, under any runner: what the model reads about them, and how their calls are checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from dex_agents.session.texts import invalid_built_in_arguments_text
from dex_agents.session.tool_values import ResolvedToolPolicy, ToolEffect

__all__ = [
    "ASK_USER",
    "BUILT_IN_TOOL_DEFINITIONS",
    "BUILT_IN_TOOL_POLICY",
    "DURABLE_WAIT",
    "WRITE_TODOS",
    "AskUserArguments",
    "BuiltInToolDefinition",
    "DurableWaitArguments",
    "InvalidBuiltInArgumentsError",
    "ask_user_result",
    "durable_wait_result",
    "read_ask_user_arguments",
    "read_durable_wait_arguments",
]

ASK_USER = "ask_user"
DURABLE_WAIT = "durable_wait"
WRITE_TODOS = "write_todos"

#: Every built-in call has this policy, whatever the runner or the application says: nobody approves a question.
BUILT_IN_TOOL_POLICY = ResolvedToolPolicy(effect=ToolEffect.READ, requires_approval=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltInToolDefinition:
    """What a runner offers to its model.

    Attributes:
        name: What the model calls; no other tool of the agent may have it.
        description: What the model reads about it.
        parameters: JSON Schema of the arguments object; read-only.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]


#: The built-in tools by name. A runner offers those in `AgentTurnContext.enabled_built_in_tools`.
BUILT_IN_TOOL_DEFINITIONS: Mapping[str, BuiltInToolDefinition] = MappingProxyType(
    {
        ASK_USER: BuiltInToolDefinition(
            name=ASK_USER,
            description=(
                "Ask the user one question and wait for the answer, however long that takes. Use it when you cannot "
                "go on without a decision or a fact that only the user has."
            ),
            parameters={
                "type": "object",
                "properties": {
                    "question": {"type": "string", "description": "The question, complete in itself."},
                    "choices": {
                        "type": ["array", "null"],
                        "items": {"type": "string"},
                        "description": "Answers to choose from.",
                    },
                    "allows_free_text": {
                        "type": ["boolean", "null"],
                        "description": "Whether the answer may be none of the choices. True when left out.",
                    },
                },
                "required": ["question"],
                "additionalProperties": False,
            },
        ),
        DURABLE_WAIT: BuiltInToolDefinition(
            name=DURABLE_WAIT,
            description=(
                "Do nothing for a time, then go on with this turn. Use it to look again later at something that takes "
                "minutes, hours or days. A new message of the user does not end the wait unless they interrupt you."
            ),
            parameters={
                "type": "object",
                "properties": {
                    "duration_seconds": {"type": "integer", "minimum": 1, "description": "How long to wait."},
                    "reason": {"type": "string", "description": "What you wait for; the user reads it."},
                },
                "required": ["duration_seconds", "reason"],
                "additionalProperties": False,
            },
        ),
        WRITE_TODOS: BuiltInToolDefinition(
            name=WRITE_TODOS,
            description=(
                "Write the plan of this conversation: the list of tasks and how far each is. Every call replaces the "
                "whole list, and an empty list clears it. Call it once per response at most, for work of several "
                "steps, and again whenever a task's status changes."
            ),
            parameters={
                "type": "object",
                "properties": {
                    "todos": {
                        "type": "array",
                        "description": "All tasks in order.",
                        "items": {
                            "type": "object",
                            "properties": {
                                "content": {"type": "string", "description": "What is to be done."},
                                "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]},
                            },
                            "required": ["content", "status"],
                            "additionalProperties": False,
                        },
                    },
                },
                "required": ["todos"],
                "additionalProperties": False,
            },
        ),
    }
)


class InvalidBuiltInArgumentsError(ValueError):
    """A built-in tool cannot run with its arguments; the text is for the model.

    Args:
        tool_name: The built-in tool.
        reason: What is wrong.
    """

    def __init__(self, tool_name: str, reason: str) -> None:
        super().__init__(invalid_built_in_arguments_text(tool_name, reason))


@dataclass(frozen=True, slots=True, kw_only=True)
class AskUserArguments:
    """Checked arguments of `ask_user`."""

    question: str
    choices: tuple[str, ...] = ()
    allows_free_text: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class DurableWaitArguments:
    """Checked arguments of `durable_wait`."""

    duration_seconds: int
    reason: str


def read_ask_user_arguments(arguments: str) -> AskUserArguments:
    """The arguments of an `ask_user` call from its JSON object text; null means absent.

    Raises:
        InvalidBuiltInArgumentsError: They do not fit.
    """
    values = _object(ASK_USER, arguments, ("question", "choices", "allows_free_text"))
    question = _text(ASK_USER, values, "question")
    choices = values.get("choices")
    if choices is None:
        choices = []
    if not isinstance(choices, Sequence) or isinstance(choices, str):
        raise InvalidBuiltInArgumentsError(ASK_USER, "choices must be a list of texts")
    for choice in choices:
        if not isinstance(choice, str) or not choice.strip():
            raise InvalidBuiltInArgumentsError(ASK_USER, "choices must be texts that are not blank")
    if len({choice.strip() for choice in choices}) < len(choices):
        raise InvalidBuiltInArgumentsError(ASK_USER, "choices must differ from each other")
    allows_free_text = values.get("allows_free_text")
    if allows_free_text is None:
        allows_free_text = True
    if not isinstance(allows_free_text, bool):
        raise InvalidBuiltInArgumentsError(ASK_USER, "allows_free_text must be true or false")
    if not choices and not allows_free_text:
        raise InvalidBuiltInArgumentsError(ASK_USER, "without choices, allows_free_text must be true")
    return AskUserArguments(question=question, choices=tuple(choices), allows_free_text=allows_free_text)


def read_durable_wait_arguments(arguments: str, longest: timedelta) -> DurableWaitArguments:
    """The arguments of a `durable_wait` call from its JSON object text.

    Args:
        arguments: JSON object text.
        longest: The session's `max_durable_wait`.

    Raises:
        InvalidBuiltInArgumentsError: They do not fit.
    """
    values = _object(DURABLE_WAIT, arguments, ("duration_seconds", "reason"))
    seconds = values.get("duration_seconds")
    if isinstance(seconds, float) and seconds.is_integer():
        seconds = int(seconds)
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise InvalidBuiltInArgumentsError(DURABLE_WAIT, "duration_seconds must be a whole number")
    most = int(longest.total_seconds())
    if not 1 <= seconds <= most:
        raise InvalidBuiltInArgumentsError(DURABLE_WAIT, f"duration_seconds must be from 1 to {most}")
    return DurableWaitArguments(duration_seconds=seconds, reason=_text(DURABLE_WAIT, values, "reason"))


def ask_user_result(answer: str) -> str:
    """What the model sees of an answered question."""
    return json.dumps({"status": "answered", "answer": answer}, ensure_ascii=False)


def durable_wait_result(arguments: DurableWaitArguments) -> str:
    """What the model sees of a wait that ended."""
    result = {"status": "completed", "waited_seconds": arguments.duration_seconds, "reason": arguments.reason}
    return json.dumps(result, ensure_ascii=False)


def _object(tool_name: str, arguments: str, known: tuple[str, ...]) -> dict[str, Any]:
    try:
        values: dict[str, Any] = json.loads(arguments)
    except RecursionError:
        # How deep is too deep depends on the stack, so the check when the model asked does not rule it out here.
        raise InvalidBuiltInArgumentsError(tool_name, "they are nested too deeply") from None
    unknown = sorted(values.keys() - set(known))
    if unknown:
        raise InvalidBuiltInArgumentsError(tool_name, f"there is no argument {', '.join(unknown)}")
    return values


def _text(tool_name: str, values: Mapping[str, Any], name: str) -> str:
    text = values.get(name)
    if not isinstance(text, str) or not text.strip():
        raise InvalidBuiltInArgumentsError(tool_name, f"{name} must be text that is not blank")
    return text
