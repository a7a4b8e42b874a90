"""LangChain messages as a session stores them, and back."""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)

from dex_agents import AgentMessage, AgentMessageToolCall, AgentToolCall, FrameworkMessage, TurnRefusedError
from dex_agents.session.sanitizer import sanitize_json_value, sanitize_text

__all__ = [
    "CallIdentities",
    "StoredMessages",
    "UnstorableMessageError",
    "encode_message",
    "reasoning_text",
    "state_marker",
    "user_message",
    "warn_of_dropped_artifact",
]

_LOG = logging.getLogger(__name__)


class UnstorableMessageError(TurnRefusedError):
    """A message of the graph holds what JSON cannot; trying again would give the same message."""


def user_message(text: str) -> FrameworkMessage:
    """A user message. It has no ID of its own, so that the same text gives the same message."""
    repaired = sanitize_text(text)
    return FrameworkMessage(role="user", text=repaired, framework_item=_item(HumanMessage(repaired), {}))


def state_marker(state: str) -> FrameworkMessage:
    """A message with nothing to read that carries the graph's state to the next turn."""
    return FrameworkMessage(role="assistant", framework_item=json.dumps({"message": None, "state": state}))


def encode_message(
    message: BaseMessage,
    tool_call_id: str | None = None,
    *,
    state: str | None = None,
    state_before: str | None = None,
) -> FrameworkMessage:
    """The stored form of a message of the graph.

    Args:
        message: The message, with an ID.
        tool_call_id: The session's ID of the call a tool message answers.
        state: The graph's state once the turn has ended, with this message in it.
        state_before: The graph's state to which this message and the ones behind it are still to be added.

    Raises:
        UnstorableMessageError: It holds what JSON cannot.
    """
    states = {"state": state, "state_before": state_before}
    text, item = sanitize_text(str(message.text)), _item(message, states)
    if isinstance(message, ToolMessage):
        return FrameworkMessage(
            role="tool", text=text, framework_item=item, tool_call_id=tool_call_id or message.tool_call_id
        )
    if not isinstance(message, AIMessage):
        # The graph wrote it, not the user, so people must not read it as the user's words.
        return FrameworkMessage(role="assistant", text=text, framework_item=item)
    return FrameworkMessage(
        role="assistant",
        text=text,
        framework_item=item,
        reasoning_text=reasoning_text(message) or None,
        tool_calls=tuple(
            AgentMessageToolCall(
                tool_call_id=call["id"] or "",
                tool_name=call["name"],
                arguments=json.dumps(call["args"], ensure_ascii=False, default=str),
            )
            for call in message.tool_calls
        ),
    )


def reasoning_text(message: AIMessage) -> str:
    """The visible reasoning of a model's message, whatever its provider calls it."""
    blocks: list[Any] = list(message.content_blocks)
    return "".join(sanitize_text(block.get("reasoning") or "") for block in blocks if block.get("type") == "reasoning")


class StoredMessages:
    """The messages of a session that the runner was given, by ID, oldest first.

    A message stored without an ID gets one from its sequence, the same in every process. A message stored twice under
    one ID keeps its first place and its newest content, as LangGraph's `add_messages` does it.

    Args:
        messages: The stored messages.

    Attributes:
        by_id: The messages by ID, in order.
        state: The state that the newest message with one carries.
        state_place: The position of that message; None without one.
        new_input: The messages stored behind it: what the next turn adds to the graph.
    """

    def __init__(self, messages: Sequence[AgentMessage]) -> None:
        self.by_id: dict[str, BaseMessage] = {}
        self.state: str | None = None
        self.state_place: int | None = None
        self.new_input: list[BaseMessage] = []
        self._used_results = {(message.turn_id, message.tool_call_id) for message in messages if message.role == "tool"}
        for place, message in enumerate(messages):
            item = _read_item(message)
            if item.state is not None or item.state_before is not None:
                self.state_place = place
            if item.state_before is not None:
                self.state = item.state_before
                self.new_input = []
            if item.message is not None:
                self.by_id[item.message.id or ""] = item.message
                self.new_input.append(item.message)
            if item.state is not None:
                self.state = item.state
                self.new_input = []

    def add(self, messages: Iterable[BaseMessage]) -> None:
        """Take messages that will be stored together with what is made of this object."""
        for message in messages:
            self.by_id[message.id or ""] = message

    def has_result(self, turn_id: str, tool_call_id: str) -> bool:
        """Whether the result of a call of this turn is stored."""
        return (turn_id, tool_call_id) in self._used_results

    def is_stored(self, message: BaseMessage) -> bool:
        """Whether exactly this message is stored."""
        stored = self.by_id.get(message.id or "")
        return stored is message or stored == message

    def unanswered_calls(self) -> list[tuple[str, str]]:
        """ID and name of every call behind which no result is stored, in order."""
        open_calls: list[tuple[str, str]] = []
        for message in self.by_id.values():
            if isinstance(message, AIMessage):
                open_calls = [(call["id"] or "", call["name"]) for call in message.tool_calls]
            elif isinstance(message, ToolMessage):
                found = next((call for call in open_calls if call[0] == message.tool_call_id), None)
                if found is not None:
                    open_calls.remove(found)
        return open_calls


class CallIdentities:
    """Which call of the session each new tool message answers: the provider's IDs may repeat, the session's do not.

    Args:
        calls: The turn's calls.
        stored: What is stored already.
        turn_id: The turn.
    """

    def __init__(self, calls: Iterable[AgentToolCall], stored: StoredMessages, turn_id: str) -> None:
        self._open: dict[str, list[str]] = defaultdict(list)
        for call in sorted(calls, key=lambda call: call.deferral_order):
            if not stored.has_result(turn_id, call.tool_call_id):
                self._open[call.provider_tool_call_id].append(call.tool_call_id)

    def take(self, provider_tool_call_id: str) -> str | None:
        """The session's ID of the oldest call without a result that has this ID of the provider's."""
        waiting = self._open.get(provider_tool_call_id)
        return waiting.pop(0) if waiting else None


class _StoredItem(NamedTuple):
    message: BaseMessage | None
    state: str | None
    state_before: str | None


def _read_item(stored: AgentMessage) -> _StoredItem:
    try:
        item: dict[str, Any] = json.loads(stored.framework_item)
        content = None if item["message"] is None else messages_from_dict([item["message"]])[0]
    except (KeyError, TypeError, ValueError) as error:
        raise TurnRefusedError(f"message {stored.sequence} was not written by a LangGraph runner: {error}") from error
    if content is not None and not content.id:
        content.id = f"dex-{stored.sequence}"
    return _StoredItem(content, item.get("state"), item.get("state_before"))


def _item(message: BaseMessage, states: Mapping[str, str | None]) -> str:
    content = message_to_dict(message)
    artifact = content["data"].get("artifact")
    if artifact is not None and not _is_json(artifact):
        warn_of_dropped_artifact(message)
        content["data"]["artifact"] = None
    item = {"message": content, **{name: state for name, state in states.items() if state is not None}}
    try:
        return json.dumps(sanitize_json_value(item), ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise UnstorableMessageError(f"a {message.type} message of the graph cannot be stored: {error}") from error


def warn_of_dropped_artifact(message: BaseMessage) -> None:
    """Say that a tool's artifact is not kept."""
    _LOG.warning(
        "the artifact of a result of the tool %r is a %s, which cannot be stored; it is dropped",
        message.name,
        type(getattr(message, "artifact", None)).__name__,
    )


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True
