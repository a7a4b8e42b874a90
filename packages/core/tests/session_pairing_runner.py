"""The smallest runner whose model input must be a valid transcript: it builds messages and checks pairing and order."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from dex_agents.session.outcomes import (
    CompactionSnapshot,
    ModelStepCompleted,
    ModelStepContinued,
    ModelStepSnapshot,
    ModelStepToolCallsRequested,
    RequestedToolCall,
)
from dex_agents.session.tool_results import tool_result_text
from dex_agents.session.tool_values import AgentToolCall
from dex_agents.session.values import AgentMessageToolCall, AgentUsage, FrameworkMessage, MessageRole

__all__ = ["Item", "PairingRunner", "check_transcript"]


class Item(NamedTuple):
    """One message of a model input; `calls` and `call_id` are the provider's IDs, `own_id` is the session's."""

    role: MessageRole
    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    call_id: str | None = None
    own_id: str | None = None
    turn_id: str | None = None


def check_transcript(items: Sequence[Item], unbuilt_turns: Collection[str]) -> None:
    """What strict providers demand: every call is answered at once, in order, and nothing else is answered.

    Args:
        items: The model input.
        unbuilt_turns: Turns whose builder failed, so that the calls of their last model step stay without results.
    """
    open_calls: list[str] = []
    asking_turn: str | None = None
    assert items[0].role == "user"
    for item in items:
        if open_calls and item.role != "tool":
            assert asking_turn in unbuilt_turns, f"calls {open_calls} of {asking_turn} have no results before {item}"
            open_calls.clear()
        match item.role:
            case "assistant":
                open_calls, asking_turn = [call[0] for call in item.calls], item.turn_id
            case "tool":
                assert open_calls, f"{item} answers nothing"
                assert item.call_id == open_calls.pop(0), f"{item} is out of order"
    assert not open_calls or asking_turn in unbuilt_turns, f"the model input ends with open calls {open_calls}"


class PairingRunner:
    """Builds what a framework's runner builds.

    Args:
        stores_as_it_goes: Whether it stores a turn's messages with every model step and completes unfinished turns;
            else it stores a turn's messages with its answer, and keeps them in the run state until then.
    """

    def __init__(self, stores_as_it_goes: bool) -> None:
        self._stores_as_it_goes = stores_as_it_goes

    def model_input(self, snapshot: ModelStepSnapshot) -> list[Item]:
        """What the model reads."""
        summary = snapshot.context_summary
        summarized = [] if summary is None else [Item("user", summary.text)]
        stored = [
            _read(message.framework_item)._replace(turn_id=message.turn_id, own_id=message.tool_call_id)
            for message in snapshot.messages
        ]
        turn = [item._replace(turn_id=snapshot.turn_id) for item in self._unstored(snapshot)]
        return [*summarized, *stored, *turn]

    def cutoffs(self, snapshot: ModelStepSnapshot) -> list[int]:
        """The messages that a summary may end with: what stays begins with no result, and every call has its own."""
        cutoffs, open_calls = [], 0
        messages = snapshot.messages
        for message, following in zip_longest(messages, messages[1:]):
            item = _read(message.framework_item)
            open_calls = len(item.calls) if item.role == "assistant" else open_calls - (item.role == "tool")
            is_over = following is not None and following.role != "tool" and following.turn_id != message.turn_id
            if open_calls == 0 or is_over:
                cutoffs.append(message.sequence)
            if is_over:
                open_calls = 0
        return cutoffs

    def summary_input(self, snapshot: CompactionSnapshot) -> list[Item]:
        """What the summary call reads."""
        previous = snapshot.previous_summary
        summarized = [] if previous is None else [Item("user", previous.text)]
        stored = [_read(message.framework_item)._replace(turn_id=message.turn_id) for message in snapshot.messages]
        return [*summarized, *stored]

    def completed(self, snapshot: ModelStepSnapshot, text: str, usage: AgentUsage) -> ModelStepCompleted:
        """The model answers."""
        return ModelStepCompleted(
            new_messages=_messages([*self._unstored(snapshot), Item("assistant", text)]), usage=usage
        )

    def tool_calls(
        self, snapshot: ModelStepSnapshot, calls: Sequence[RequestedToolCall], usage: AgentUsage
    ) -> ModelStepToolCallsRequested:
        """The model asks for tools."""
        asked = Item("assistant", calls=tuple((call.tool_call_id, call.tool_name, call.arguments) for call in calls))
        run_state, messages = self._leave([*self._unstored(snapshot), asked])
        return ModelStepToolCallsRequested(
            framework_run_state=run_state, tool_calls=tuple(calls), usage=usage, new_messages=messages
        )

    def continued(self, snapshot: ModelStepSnapshot, usage: AgentUsage) -> ModelStepContinued:
        """The model's reply needs another model step."""
        run_state, messages = self._leave([*self._unstored(snapshot), Item("assistant", "not yet")])
        return ModelStepContinued(framework_run_state=run_state, usage=usage, new_messages=messages)

    def unfinished(self, snapshot: ModelStepSnapshot) -> tuple[FrameworkMessage, ...]:
        """What completes the stored transcript of a turn without an answer."""
        assert self._stores_as_it_goes
        return _messages(self._unstored(snapshot))

    def _unstored(self, snapshot: ModelStepSnapshot) -> list[Item]:
        """The turn's messages that are not stored: those in the run state, and the results of the newest calls."""
        if self._stores_as_it_goes:
            items: list[Item] = []
        else:
            items = [_read(item) for item in json.loads(snapshot.framework_run_state or "[]")]
        newest = snapshot.state.turn_model_step_count
        return [*items, *(_result(call) for call in snapshot.tool_calls if call.model_step_number == newest)]

    def _leave(self, items: list[Item]) -> tuple[str, tuple[FrameworkMessage, ...]]:
        if self._stores_as_it_goes:
            return "[]", _messages(items)
        return json.dumps([_write(item) for item in items]), ()


def _result(call: AgentToolCall) -> Item:
    return Item("tool", tool_result_text(call), call_id=call.provider_tool_call_id, own_id=call.tool_call_id)


def _messages(items: Sequence[Item]) -> tuple[FrameworkMessage, ...]:
    return tuple(
        FrameworkMessage(
            role=item.role,
            framework_item=_write(item),
            text=item.text,
            tool_calls=tuple(
                AgentMessageToolCall(tool_call_id=call_id, tool_name=name, arguments=arguments)
                for call_id, name, arguments in item.calls
            ),
            tool_call_id=item.own_id,
        )
        for item in items
    )


def _write(item: Item) -> str:
    return json.dumps([item.role, item.text, item.calls, item.call_id, item.own_id])


def _read(text: str) -> Item:
    stored: Any = json.loads(text)
    if isinstance(stored, dict):
        return Item(stored["role"], stored["text"])
    role, content, calls, call_id, own_id = stored
    return Item(role, content, tuple(tuple(call) for call in calls), call_id, own_id)
