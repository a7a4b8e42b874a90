"""A graph's state as text: strict in what it reads, and without the messages that the session stores anyway.

The text is JSON around one MessagePack document. Reading it constructs only types on the list that is derived from the
graph's own schemas and the application's `allowed_types`; everything else is refused, before any of it is used.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde import event_hooks
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel

from dex_agents import TurnRefusedError
from dex_agents_langgraph.checkpoint_saver import AttemptCheckpointSaver, SavedCheckpoint, SavedWrite
from dex_agents_langgraph.private_names import delta_snapshot, unwrap_delta_snapshot
from dex_agents_langgraph.stored_messages import StoredMessages

__all__ = ["CheckpointCodec", "RefusedStateError"]

FORMAT = 1
#: Where LangGraph notes that a task failed; the task runs again, so nothing reads it.
ERROR_CHANNEL = "__error__"
_REFERENCES = "__dex_messages__"
_DELTA = "__dex_delta__"
STRUCTURED_RESPONSE = "structured_response"


class RefusedStateError(TurnRefusedError):
    """A graph's state holds a type that may not be stored, or a stored state holds one that may not be read."""


class CheckpointCodec:
    """Writes and reads the states of one graph.

    Args:
        allowed_types: Module and name of every type a state may hold.
    """

    def __init__(self, allowed_types: Iterable[tuple[str, ...]]) -> None:
        self._serializer = JsonPlusSerializer(allowed_msgpack_modules=frozenset(allowed_types))

    def dump(
        self,
        saver: AttemptCheckpointSaver,
        stored: StoredMessages,
        keeps: Callable[[str], bool],
    ) -> str:
        """The text of a saver's newest checkpoints.

        Args:
            saver: The checkpoints.
            stored: The messages that the session will have stored together with the text.
            keeps: Which namespaces to keep.

        Raises:
            RefusedStateError: A value's type is not allowed, or cannot be serialised; names channel and type.
        """
        references = _MessageReferences(stored)
        document = {
            namespace: self._dump_checkpoint(max(saved), saved[max(saved)], references)
            for namespace, saved in saver.namespaces.items()
            if keeps(namespace)
        }
        return self.dump_value(document)

    def load(self, text: str, stored: StoredMessages) -> AttemptCheckpointSaver:
        """A saver with what `dump` wrote.

        Args:
            text: The text.
            stored: The messages it refers to. Those that are gone are left out.

        Raises:
            RefusedStateError: The text holds what may not be read.
        """
        references = _MessageReferences(stored)
        saver = AttemptCheckpointSaver()
        for namespace, saved in self.load_value(text).items():
            checkpoint = {
                **saved["checkpoint"],
                "channel_values": {
                    name: references.resolve(value) for name, value in saved["checkpoint"]["channel_values"].items()
                },
            }
            writes = [
                SavedWrite(task_id, index, channel, references.resolve(value), path)
                for task_id, index, channel, value, path in saved["writes"]
            ]
            saver.namespaces[namespace] = {
                saved["id"]: SavedCheckpoint(checkpoint, saved["metadata"], parent=None, writes=writes)
            }
        return saver

    def holds_more_than(self, text: str, messages_key: str) -> bool:
        """Whether a state holds anything that the stored messages do not: other channels, edits, memories of subgraphs.

        Args:
            text: The state.
            messages_key: The state key of the conversation.

        Raises:
            RefusedStateError: The text holds what may not be read.
        """
        saved = self.load_value(text)
        for name, value in saved.get("", {"checkpoint": {"channel_values": {}}})["checkpoint"][
            "channel_values"
        ].items():
            if name == messages_key:
                runs = (value.get(_DELTA, value) if isinstance(value, dict) else {}).get(_REFERENCES, [])
                if any(not isinstance(run, list) for run in runs):
                    return True
            elif not name.startswith(("__", "branch:", "join:")):
                return True
        return any(namespace for namespace in saved)

    def dump_value(self, value: Any) -> str:
        """The text of one value; it was read back once, so it can be read.

        Raises:
            RefusedStateError: It cannot be serialised, or holds a type that is not allowed.
        """
        try:
            kind, data = self._serializer.dumps_typed({"format": FORMAT, "value": value})
        except (TypeError, ValueError) as error:
            raise RefusedStateError(f"the graph's state cannot be stored: {error}") from error
        text = json.dumps({"type": kind, "data": base64.b64encode(data).decode()})
        self.load_value(text)
        return text

    def load_value(self, text: str) -> Any:
        """The value of a text.

        Raises:
            RefusedStateError: It is no such text, or holds a type that is not allowed; nothing was constructed.
        """
        try:
            stored = json.loads(text)
            kind, data = stored["type"], base64.b64decode(stored["data"], validate=True)
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise RefusedStateError(f"this is not the state of a LangGraph session: {error}") from error
        if kind != "msgpack":
            raise RefusedStateError(f"a state of type {kind!r} is never read; only 'msgpack' is")
        refused: list[str] = []
        reading_thread = threading.get_ident()

        def note(event: event_hooks.SerdeEvent) -> None:
            if threading.get_ident() == reading_thread:
                refused.append(f"{event['module']}.{event['name']}")

        unregister = event_hooks.register_serde_event_listener(note)
        try:
            document = self._serializer.loads_typed((kind, data))
        except (TypeError, ValueError) as error:
            raise RefusedStateError(f"the stored state cannot be read: {error}") from error
        finally:
            unregister()
        if refused:
            names = ", ".join(sorted(set(refused)))
            raise RefusedStateError(
                f"the graph's state holds {names}, which is not in the graph's schemas: pass allowed_types=[...] to "
                "create_langgraph_session_flow if the application trusts it"
            )
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise RefusedStateError("this is not the state of a LangGraph session of this release")
        return document["value"]

    def _dump_checkpoint(
        self, checkpoint_id: str, saved: SavedCheckpoint, references: _MessageReferences
    ) -> dict[str, Any]:
        values = {name: references.replace(value) for name, value in saved.checkpoint["channel_values"].items()}
        if STRUCTURED_RESPONSE in values:
            values[STRUCTURED_RESPONSE] = self._storable_response(values[STRUCTURED_RESPONSE])
        return {
            "id": checkpoint_id,
            "checkpoint": {**saved.checkpoint, "channel_values": values},
            "metadata": _storable_metadata(saved.metadata),
            "writes": [
                (write.task_id, write.index, write.channel, references.replace(write.value), write.task_path)
                for write in saved.writes
                if write.channel != ERROR_CHANNEL
            ],
        }

    def _storable_response(self, value: Any) -> Any:
        """The channel is a type variable, so no schema names the application's class: without it, its plain fields."""
        try:
            self.dump_value(value)
        except RefusedStateError:
            if isinstance(value, BaseModel):
                return value.model_dump(mode="json")
            if dataclasses.is_dataclass(value) and not isinstance(value, type):
                return dataclasses.asdict(value)
        return value


def _storable_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    # Other keys come from the config's metadata and may hold anything.
    return {name: metadata[name] for name in ("source", "step", "parents") if name in metadata}


class _MessageReferences:
    """Lists of messages in which those that the session stores are replaced by where they stand there."""

    def __init__(self, stored: StoredMessages) -> None:
        self._stored = stored
        self._ids = list(stored.by_id)
        self._places = {identifier: place for place, identifier in enumerate(self._ids)}

    def replace(self, value: Any) -> Any:
        value, is_delta = unwrap_delta_snapshot(value)
        if isinstance(value, BaseMessage) and self._stored.is_stored(value):
            value = {_REFERENCES: [[value.id, value.id]], "single": True}
        elif isinstance(value, list) and any(isinstance(item, BaseMessage) for item in value):
            value = {_REFERENCES: self._runs(value)}
        elif isinstance(value, dict) and not is_delta:
            value = {key: self.replace(item) for key, item in value.items()}
        return {_DELTA: value} if is_delta else value

    def resolve(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if _DELTA in value:
            return delta_snapshot(self.resolve(value[_DELTA]))
        if _REFERENCES not in value:
            return {key: self.resolve(item) for key, item in value.items()}
        messages: list[Any] = []
        for item in value[_REFERENCES]:
            messages += self._run(*item) if isinstance(item, list) else [item]
        if value.get("single"):
            return messages[0] if messages else None
        return messages

    def _runs(self, values: list[Any]) -> list[Any]:
        """Stored messages that follow each other become one pair of IDs; the rest stays as it is."""
        runs: list[Any] = []
        last_place = -2
        for value in values:
            place = self._places.get(value.id or "") if isinstance(value, BaseMessage) else None
            if place is None or not self._stored.is_stored(value):
                runs.append(value)
                last_place = -2
            elif place == last_place + 1:
                runs[-1][1] = value.id
                last_place = place
            else:
                runs.append([value.id, value.id])
                last_place = place
        return runs

    def _run(self, first: str, last: str) -> list[BaseMessage]:
        end = self._places.get(last)
        if end is None:
            return []  # a summary stands for all of it
        start = self._places.get(first, 0)
        return [self._stored.by_id[identifier] for identifier in self._ids[start : end + 1]]
