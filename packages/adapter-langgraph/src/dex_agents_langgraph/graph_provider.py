"""Which graph a session's settings ask for, prepared once."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from dex_agents_langgraph.checkpoint_state import CheckpointCodec
from dex_agents_langgraph.graph_copy import PreparedGraph, prepare_graph

__all__ = ["GraphFactory", "GraphProvider"]

GraphFactory: TypeAlias = Callable[[Mapping[str, Any]], Any]
"""Makes the graph of a session from its settings, such as one with another model."""

_MOST_GRAPHS = 16


class GraphProvider:
    """Prepares graphs, and keeps those of the latest settings.

    Args:
        graph: A compiled graph, or a function of the session's settings that makes one. It is called with no settings
            right away, so that what is wrong with the graph is found when the Flow is built.
        messages_key: The state key of the conversation.
        tool_nodes: Tools by the name of each node that calls tools with code of its own.
        allowed_types: Further types a stored state may hold.
    """

    def __init__(
        self,
        graph: Any,
        messages_key: str,
        tool_nodes: Mapping[str, Sequence[Any]],
        allowed_types: Iterable[type[Any]],
    ) -> None:
        is_factory = callable(graph) and not hasattr(graph, "nodes")
        self._factory: GraphFactory | None = graph if is_factory else None
        self._messages_key = messages_key
        self._tool_nodes = tool_nodes
        self._allowed_types = {(allowed.__module__, allowed.__name__) for allowed in allowed_types}
        self._prepared: OrderedDict[str, tuple[PreparedGraph, CheckpointCodec]] = OrderedDict()
        self._default = self._prepare(graph({}) if is_factory else graph)

    @property
    def default(self) -> PreparedGraph:
        """The graph of a session without settings."""
        return self._default[0]

    @property
    def codec(self) -> CheckpointCodec:
        """Reads and writes states of the graph of a session without settings."""
        return self._default[1]

    def get(self, settings: Mapping[str, Any]) -> tuple[PreparedGraph, CheckpointCodec]:
        """The graph of these settings, and what reads and writes its states."""
        if self._factory is None or not settings:
            return self._default
        key = json.dumps(dict(settings), sort_keys=True)
        found = self._prepared.get(key)
        if found is None:
            found = self._prepared[key] = self._prepare(self._factory(settings))
            if len(self._prepared) > _MOST_GRAPHS:
                self._prepared.popitem(last=False)
        return found

    def _prepare(self, graph: Any) -> tuple[PreparedGraph, CheckpointCodec]:
        prepared = prepare_graph(graph, self._messages_key, self._tool_nodes)
        return prepared, CheckpointCodec(prepared.allowed_types | self._allowed_types)
