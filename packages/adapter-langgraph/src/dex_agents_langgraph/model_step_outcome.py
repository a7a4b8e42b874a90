"""What one finished model step means to the session: new messages, calls to run, and the graph's state."""

from __future__ import annotations

import json
from typing import Any

from langchain_core.messages import BaseMessage, SystemMessage, ToolMessage

from dex_agents import (
    AgentTurnContext,
    AgentTurnOutcome,
    FrameworkMessage,
    ModelStepContinues,
    ToolCallsRequested,
    TurnCompleted,
)
from dex_agents_langgraph.checkpoint_saver import AttemptCheckpointSaver
from dex_agents_langgraph.checkpoint_state import CheckpointCodec
from dex_agents_langgraph.graph_run import GraphStep, conversation, set_conversation
from dex_agents_langgraph.model_calls import ModelCallObserver
from dex_agents_langgraph.stored_messages import CallIdentities, StoredMessages, encode_message, state_marker
from dex_agents_langgraph.tool_policies import deferred_call
from dex_agents_langgraph.user_interrupts import interrupt_call

__all__ = ["ModelStepOutcomeBuilder", "settings_of_run", "state_of_run"]

_STATE, _SETTINGS = "state", "settings"


class ModelStepOutcomeBuilder:
    """Makes what one finished model step means to the session.

    Args:
        turn: The turn.
        codec: Writes the graph's state.
        stored: What the session has stored.
        saver: The graph's checkpoints.
        observer: What it saw of the model calls.
        step: Where the graph stands.
        messages_key: The state key of the conversation.
    """

    def __init__(
        self,
        turn: AgentTurnContext,
        codec: CheckpointCodec,
        stored: StoredMessages,
        saver: AttemptCheckpointSaver,
        observer: ModelCallObserver,
        step: GraphStep,
        *,
        messages_key: str,
    ) -> None:
        self._turn = turn
        self._codec = codec
        self._stored = stored
        self._saver = saver
        self._observer = observer
        self._step = step
        self._messages_key = messages_key
        self._identities = CallIdentities(turn.tool_calls, stored, turn.turn_id)

    def build(self) -> AgentTurnOutcome:
        """The outcome.

        Raises:
            RefusedStateError: The graph's state cannot be stored.
            UnstorableMessageError: A message cannot be stored.
        """
        new = self._new_messages()
        self._stored.add(new)
        usage, metadata = self._observer.usage, self._observer.metadata
        state = self._codec.dump(self._saver, self._stored, self._keeps)
        calls = [
            deferred_call(self._turn, key, held, graph_asks_approval=held.call["name"] in self._step.approval_tools)
            for key, held in self._step.held_calls.items()
        ]
        calls += [interrupt_call(asked) for asked in self._step.questions]
        if self._step.is_finished or (calls and self._turn.turn_limit_reached is not None):
            return TurnCompleted(
                new_messages=self._last_messages(new, state), usage=usage, model_call_metadata=metadata
            )
        run_state = json.dumps({_STATE: state, _SETTINGS: dict(self._turn.session_settings)}, ensure_ascii=False)
        encoded = tuple(self._encode(message) for message in new)
        if calls:
            return ToolCallsRequested(
                framework_run_state=run_state,
                tool_calls=tuple(calls),
                usage=usage,
                new_messages=encoded,
                model_call_metadata=metadata,
            )
        return ModelStepContinues(
            framework_run_state=run_state, new_messages=encoded, usage=usage, model_call_metadata=metadata
        )

    def _new_messages(self) -> list[BaseMessage]:
        """What the graph added behind the stored messages. What it changed before them stays in its state."""
        messages = conversation(self._saver, self._messages_key)
        produced = self._observer.produced_ids
        last_stored = max(
            (place for place, message in enumerate(messages) if message.id in self._stored.by_id), default=-1
        )
        new = []
        for place, message in enumerate(messages):
            if not message.id:
                message.id = f"{self._turn.turn_id}-{self._turn.model_step_count}-{place}"
            is_repeated = message.id in produced and message.id in self._stored.by_id
            if (is_repeated and not self._stored.is_stored(message)) or (
                place > last_stored and _belongs_to_transcript(message)
            ):
                new.append(message)
        set_conversation(self._saver, self._messages_key, messages)
        return new

    def _keeps(self, namespace: str) -> bool:
        tasks = [part.partition(":")[2] for part in namespace.split("|") if ":" in part]
        return all(task in self._step.pending_tasks for task in tasks)

    def _last_messages(self, new: list[BaseMessage], state: str) -> tuple[FrameworkMessage, ...]:
        encoded = [self._encode(message) for message in new[:-1]]
        encoded.append(self._encode(new[-1], state) if new else state_marker(state))
        refusal = self._turn.turn_limit_reached or ""
        for call_id, name in self._stored.unanswered_calls() if not self._step.is_finished else ():
            identifier = f"{self._turn.turn_id}-refused-{len(encoded)}"
            result = ToolMessage(refusal, tool_call_id=call_id, name=name, status="error", id=identifier)
            encoded.append(encode_message(result))
        return tuple(encoded)

    def _encode(self, message: BaseMessage, state: str | None = None) -> FrameworkMessage:
        tool_call_id = self._identities.take(message.tool_call_id) if isinstance(message, ToolMessage) else None
        return encode_message(message, tool_call_id, state=state)


def _belongs_to_transcript(message: BaseMessage) -> bool:
    return not isinstance(message, SystemMessage) and not message.additional_kwargs.get("lc_source")


def state_of_run(run_state: str) -> str:
    """The graph's state in a turn's run state."""
    return str(json.loads(run_state)[_STATE])


def settings_of_run(run_state: str | None) -> dict[str, Any]:
    """The session's settings in a turn's run state; none without one."""
    return {} if run_state is None else dict(json.loads(run_state)[_SETTINGS])
