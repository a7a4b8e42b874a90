"""LangGraph's checkpoints of one attempt, in memory: what lasts is the text that `checkpoint_state` makes of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_metadata,
)

from dex_agents_langgraph.private_names import delta_snapshot, unwrap_delta_snapshot

__all__ = ["AttemptCheckpointSaver", "SavedCheckpoint", "SavedWrite"]


@dataclass
class SavedWrite:
    """What one task wrote to one channel."""

    task_id: str
    index: int
    channel: str
    value: Any
    task_path: str


@dataclass
class SavedCheckpoint:
    """One checkpoint of one namespace, with what its tasks wrote since."""

    checkpoint: Any
    metadata: Any
    parent: str | None
    writes: list[SavedWrite] = field(default_factory=list)


class AttemptCheckpointSaver(BaseCheckpointSaver[str]):
    """Holds the checkpoints of one thread as objects.

    Nothing is pruned while the graph runs: a task's writes may come before the checkpoint they belong to.

    Attributes:
        namespaces: Checkpoints by namespace and ID.
    """

    def __init__(self) -> None:
        super().__init__()
        self.namespaces: dict[str, dict[str, SavedCheckpoint]] = {}
        self._early_writes: dict[tuple[str, str], list[SavedWrite]] = {}

    def newest(self, namespace: str = "") -> SavedCheckpoint | None:
        """The newest checkpoint of a namespace."""
        saved = self.namespaces.get(namespace)
        return saved[max(saved)] if saved else None

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, or the newest."""
        configurable = config["configurable"]
        namespace = configurable.get("checkpoint_ns", "")
        saved = self.namespaces.get(namespace, {})
        checkpoint_id = configurable.get("checkpoint_id") or (max(saved) if saved else None)
        found = saved.get(checkpoint_id) if checkpoint_id else None
        if found is None or checkpoint_id is None:
            return None

        def config_of(identifier: str) -> RunnableConfig:
            names = {"thread_id": configurable["thread_id"], "checkpoint_ns": namespace, "checkpoint_id": identifier}
            return {"configurable": names}

        writes = sorted(found.writes, key=lambda write: (write.task_path, write.task_id, write.index))
        return CheckpointTuple(
            config=config_of(checkpoint_id),
            checkpoint=_copied(found.checkpoint),
            metadata=found.metadata,
            parent_config=config_of(found.parent) if found.parent else None,
            pending_writes=[(write.task_id, write.channel, _copied(write.value)) for write in writes],
        )

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """The checkpoints of a namespace, newest first."""
        assert config is not None
        configurable = config["configurable"]
        namespace = configurable.get("checkpoint_ns", "")
        for checkpoint_id in sorted(self.namespaces.get(namespace, {}), reverse=True)[:limit]:
            names = {**configurable, "checkpoint_ns": namespace, "checkpoint_id": checkpoint_id}
            found = self.get_tuple({"configurable": names})
            if found is not None:
                yield found

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint."""
        configurable = config["configurable"]
        namespace, checkpoint_id = configurable.get("checkpoint_ns", ""), checkpoint["id"]
        parent = configurable.get("checkpoint_id")
        saved = SavedCheckpoint(
            checkpoint=self._with_unchanged_deltas(checkpoint, namespace, parent),
            metadata=get_checkpoint_metadata(config, metadata),
            parent=parent,
            writes=self._early_writes.pop((namespace, checkpoint_id), []),
        )
        self.namespaces.setdefault(namespace, {})[checkpoint_id] = saved
        names = {
            "thread_id": configurable["thread_id"],
            "checkpoint_ns": namespace,
            "checkpoint_id": checkpoint_id,
        }
        return {"configurable": names}

    def _with_unchanged_deltas(self, checkpoint: Checkpoint, namespace: str, parent: str | None) -> Checkpoint:
        """A copy that stands alone: LangGraph leaves a delta channel that did not change to the checkpoint before."""
        values = dict(checkpoint["channel_values"])
        before = self.namespaces.get(namespace, {}).get(parent) if parent is not None else None
        for name, value in before.checkpoint["channel_values"].items() if before is not None else ():
            if name not in values and name in checkpoint["channel_versions"] and unwrap_delta_snapshot(value)[1]:
                values[name] = value
        copied: Checkpoint = _copied({**checkpoint, "channel_values": values})
        return copied

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save what a task wrote."""
        configurable = config["configurable"]
        namespace, checkpoint_id = configurable.get("checkpoint_ns", ""), configurable["checkpoint_id"]
        found = self.namespaces.get(namespace, {}).get(checkpoint_id)
        known = found.writes if found else self._early_writes.setdefault((namespace, checkpoint_id), [])
        places = {(write.task_id, write.index): position for position, write in enumerate(known)}
        for number, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, number)
            write = SavedWrite(task_id, index, channel, value, task_path)
            place = places.get((task_id, index))
            if place is None:
                known.append(write)
            elif index < 0:
                known[place] = write

    def delete_thread(self, thread_id: str) -> None:
        """Forget everything."""
        self.namespaces.clear()
        self._early_writes.clear()

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that the config names, or the newest."""
        return self.get_tuple(config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """The checkpoints of a namespace, newest first."""
        for found in self.list(config, filter=filter, before=before, limit=limit):
            yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint."""
        return self.put(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Save what a task wrote."""
        self.put_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """Forget everything."""
        self.delete_thread(thread_id)

    def get_next_version(self, current: str | None, channel: None) -> str:
        """A version that sorts behind the current one as text."""
        number = int(current.split(".")[0]) if current else 0
        return f"{number + 1:032}.{0:016}"


def _copied(value: Any) -> Any:
    """The value with containers of its own: LangGraph, reducers and nodes change those in place."""
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) is list:
        return [_copied(item) for item in value]
    if type(value) is set:
        return set(value)
    inner, is_delta = unwrap_delta_snapshot(value)
    return delta_snapshot(_copied(inner)) if is_delta else value
