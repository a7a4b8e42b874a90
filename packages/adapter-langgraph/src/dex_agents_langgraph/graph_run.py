"""One model step of a graph: on to the end, to the next model call, or to where people and tools have their turn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import Command, Interrupt

from dex_agents_langgraph.checkpoint_saver import AttemptCheckpointSaver
from dex_agents_langgraph.event_stream import ModelEventStream
from dex_agents_langgraph.model_calls import (
    FurtherModelCall,
    FurtherModelCallGate,
    ModelCallCheck,
    ModelCallObserver,
)
from dex_agents_langgraph.private_names import delta_snapshot, unwrap_delta_snapshot
from dex_agents_langgraph.tool_deferral import HELD_CALLS, HeldCall, ToolDeferral, active_deferral
from dex_agents_langgraph.user_interrupts import approval_decisions

__all__ = ["GraphRun", "GraphStep", "conversation", "set_conversation"]


@dataclass
class GraphStep:
    """Where the graph stands after one model step.

    Attributes:
        is_finished: Whether the turn is over.
        held_calls: The tool calls it waits for, by key, in the order the model made them.
        questions: The interrupts of its own that it waits for.
        approval_tools: Tools for which the graph's own middleware asks for approval.
        pending_tasks: IDs of the tasks that go on later.
    """

    is_finished: bool
    held_calls: dict[str, HeldCall] = field(default_factory=dict)
    questions: list[Interrupt] = field(default_factory=list)
    approval_tools: frozenset[str] = frozenset()
    pending_tasks: frozenset[str] = frozenset()


class GraphRun:
    """Runs one model step.

    The first model call that ends lets the graph finish its superstep and no more. What follows runs with model calls
    forbidden: nodes between the model and its tools run, tool nodes hold their calls back, and a node that wants the
    model again stays pending for the next model step.

    Args:
        graph: The copy for model steps.
        saver: Its checkpoints.
        deferral: What its tool nodes do.
        config: The run's config.
        context: The run's context.
        events: Where live events go.
        call_prefix: Begins the IDs of calls that have none.
        check_call: As in `FurtherModelCallGate`.
    """

    def __init__(
        self,
        graph: Any,
        saver: AttemptCheckpointSaver,
        deferral: ToolDeferral,
        *,
        config: RunnableConfig,
        context: Any,
        events: ModelEventStream,
        call_prefix: str,
        check_call: ModelCallCheck,
    ) -> None:
        self._control = RunControl()
        self.observer = ModelCallObserver(self._request_drain, call_prefix)
        self._graph = graph.copy({"checkpointer": saver})
        self._deferral = deferral
        gate = FurtherModelCallGate(self.observer, check_call)
        self._config: RunnableConfig = {**config, "callbacks": [self.observer, gate]}
        self._context = context
        self._events = events

    def _request_drain(self) -> None:
        self._control.request_drain("one model call per model step")

    async def run(self, graph_input: Any) -> GraphStep:
        """Run the step.

        Raises:
            TurnRefusedError: A node called a tool by itself, which did not run, or called the model in a way that the
                session does not allow.
            Exception: What a node raised.
        """
        token = active_deferral.set(self._deferral)
        try:
            await self._advance(graph_input)
            approval_tools: frozenset[str] = frozenset()
            while True:
                state = await self._graph.aget_state(self._config, subgraphs=True)
                answers = {}
                for asked in state.interrupts:
                    decisions = approval_decisions(asked)
                    if decisions is not None:
                        answers[asked.id], names = decisions
                        approval_tools |= names
                if not answers:
                    return self._step(state, approval_tools)
                await self._advance(Command(resume=answers))
        finally:
            active_deferral.reset(token)

    async def _advance(self, graph_input: Any) -> None:
        try:
            if not self.observer.usage.model_calls:
                try:
                    await self._stream(graph_input)
                    return
                except GraphDrained:
                    graph_input = None
            self.observer.allows_model_calls = False
            self._control = RunControl()
            await self._stream(graph_input)
        except FurtherModelCall:
            return
        finally:
            if self.observer.refusal is not None:
                raise self.observer.refusal  # a node may have caught it

    async def _stream(self, graph_input: Any) -> None:
        stream = self._graph.astream(
            graph_input,
            self._config,
            context=self._context,
            stream_mode=["messages"],
            subgraphs=True,
            durability="sync",
            control=self._control,
        )
        async for _, _, (message, metadata) in stream:
            self._events.write(message, metadata)

    def _step(self, state: Any, approval_tools: frozenset[str]) -> GraphStep:
        # Older releases leave a task out of `next` whose first question was answered and whose second one waits.
        if not state.next and not state.interrupts:
            return GraphStep(is_finished=True)
        keys: list[str] = []
        questions = []
        for asked in state.interrupts:
            if isinstance(asked.value, Mapping) and HELD_CALLS in asked.value:
                keys += asked.value[HELD_CALLS]
            else:
                questions.append(asked)
        order = {identifier: place for place, identifier in reversed(list(enumerate(self.observer.call_order)))}
        held = [(key, self._deferral.held_calls[key]) for key in keys if key in self._deferral.held_calls]
        held.sort(key=lambda item: order.get(item[1].call["id"], len(order)))
        return GraphStep(
            is_finished=False,
            held_calls=dict(held),
            questions=questions,
            approval_tools=approval_tools,
            pending_tasks=frozenset(_task_ids(state)),
        )


def _task_ids(state: Any) -> list[str]:
    found = []
    for task in state.tasks:
        found.append(task.id)
        if getattr(task.state, "tasks", None):
            found += _task_ids(task.state)
    return found


def conversation(saver: AttemptCheckpointSaver, messages_key: str) -> list[BaseMessage]:
    """The conversation in the newest checkpoint of the graph."""
    newest = saver.newest()
    if newest is None:
        return []
    value, _ = unwrap_delta_snapshot(newest.checkpoint["channel_values"].get(messages_key))
    return list(value) if isinstance(value, list) else []


def set_conversation(saver: AttemptCheckpointSaver, messages_key: str, messages: list[BaseMessage]) -> None:
    """Replace the conversation in the newest checkpoint of the graph."""
    newest = saver.newest()
    if newest is None:
        return
    values = newest.checkpoint["channel_values"]
    _, is_delta = unwrap_delta_snapshot(values.get(messages_key))
    values[messages_key] = delta_snapshot(messages) if is_delta else messages
