"""A LangGraph graph as a runner: one model superstep per model step, every tool call in a Step of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphRecursionError, InvalidUpdateError
from langgraph.types import Command

from dex_agents import (
    AgentMessage,
    AgentToolCallStatus,
    AgentTurnContext,
    AgentTurnOutcome,
    ContextSummaryRequest,
    ContextSummaryResult,
    DeferredToolExecution,
    DeferredToolOutcome,
    FrameworkMessage,
    ToolTaskCancellation,
    ToolTaskPoll,
    ToolTaskPollOutcome,
    TurnRefusedError,
)
from dex_agents_langgraph.checkpoint_saver import AttemptCheckpointSaver
from dex_agents_langgraph.checkpoint_state import CheckpointCodec
from dex_agents_langgraph.client_retries import ClientRetryWarnings
from dex_agents_langgraph.context_compaction import SummaryModel, select_cutoff, summarize, summary_note
from dex_agents_langgraph.event_stream import ModelEventStream
from dex_agents_langgraph.graph_copy import PER_TURN_CHANNELS
from dex_agents_langgraph.graph_provider import GraphProvider
from dex_agents_langgraph.graph_run import GraphRun, conversation, set_conversation
from dex_agents_langgraph.held_call_run import run_held_call
from dex_agents_langgraph.model_step_context import SessionModelStep, active_model_step, session_tools
from dex_agents_langgraph.model_step_outcome import ModelStepOutcomeBuilder, settings_of_run, state_of_run
from dex_agents_langgraph.private_names import unwrap_delta_snapshot
from dex_agents_langgraph.provider_errors import as_session_error
from dex_agents_langgraph.remote_tasks import RemoteTask, RemoteTasks
from dex_agents_langgraph.stored_messages import (
    CallIdentities,
    StoredMessages,
    encode_message,
    state_marker,
    user_message,
)
from dex_agents_langgraph.token_estimate import message_tokens, pending_result_tokens, text_tokens, tool_tokens
from dex_agents_langgraph.tool_deferral import ToolDeferral
from dex_agents_langgraph.tool_outcomes import recorded_output, result_message
from dex_agents_langgraph.tool_policies import check_tool_metadata
from dex_agents_langgraph.user_interrupts import interrupt_id_of

__all__ = ["LangGraphRunner"]

_SUMMARY_ID = "dex-summary-"


class LangGraphRunner:
    """Runs a compiled graph for any number of sessions; keeps nothing about any of them.

    Args:
        graph: A compiled graph, or a function of the session's settings that makes one.
        messages_key: The state key of the conversation.
        tool_nodes: Tools by the name of each node that calls tools with code of its own.
        allowed_types: Types a stored state may hold besides those of the graph's schemas.
        context: The graph's run context, or a function of the session's settings that makes it.
        make_input: Makes the graph's input of a turn from the new messages and the session's settings; by default it is
            `{messages_key: messages}`.
        summary_model: Summarises earlier messages; a model without tools, or a function of the session's settings.
        remote_tasks: How remote work is followed, by name of the tool that starts it.

    Raises:
        TypeError: It is no compiled graph, or a tool's metadata has the wrong type.
        ValueError: It has something that a session cannot make safe; names it.
    """

    def __init__(
        self,
        graph: Any,
        *,
        messages_key: str = "messages",
        tool_nodes: Mapping[str, Sequence[Any]] | None = None,
        allowed_types: Iterable[type[Any]] = (),
        context: Any = None,
        make_input: Callable[[list[BaseMessage], Mapping[str, Any]], Any] | None = None,
        summary_model: SummaryModel | None = None,
        remote_tasks: Mapping[str, RemoteTask] = MappingProxyType({}),
    ) -> None:
        self._graphs = GraphProvider(graph, messages_key, tool_nodes or {}, allowed_types)
        self._messages_key = messages_key
        self._context = context
        self._make_input = make_input
        self._summary_model = summary_model
        self._remote_tasks = RemoteTasks(remote_tasks)
        self._client_retries = ClientRetryWarnings()
        for tool in self._graphs.default.tools.values():
            check_tool_metadata(tool)

    @property
    def supports_plan_mode(self) -> Literal[True]:
        """Planning turns offer `write_todos` alone; a graph that offers more fails them by name."""
        return True

    def check_built_in_tools(self, names: Iterable[str]) -> None:
        """Check that no tool of the graph has the name of a built-in tool that the session runs itself.

        Args:
            names: The enabled built-in tools.

        Raises:
            TypeError: One has; names it.
        """
        own = {tool.name: tool for tool in session_tools()}
        for name in names:
            tool = self._graphs.default.tools.get(name)
            if tool is not None and tool is not own.get(name):
                raise TypeError(f"the graph's tool {name} uses the name of an enabled built-in tool")

    def build_user_message(self, text: str) -> FrameworkMessage:
        """The stored form of a user message."""
        return user_message(text)

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        """Let the graph go on to its next model call and what follows it, up to the next one, the tools or the end.

        Raises:
            TurnRefusedError: The graph cannot go on, whatever the attempt; says why.
            Exception: What a node raised.
        """
        prepared, codec = self._graphs.get(turn.session_settings)
        stored = StoredMessages(turn.messages)
        start = self._start(turn, stored, codec)
        deferral = ToolDeferral(
            outcomes={
                call.tool_source_reference: recorded_output(call, codec, _identity(turn, call.tool_call_id))
                for call in turn.tool_calls
                if call.tool_source_reference is not None
            }
        )
        model_step = SessionModelStep.of(turn)

        def check_call(model: Mapping[str, Any] | None, tool_names: set[str]) -> None:
            self._client_retries.check(model)
            model_step.check_offer(tool_names, prepared.tools)

        run = GraphRun(
            prepared.model_graph,
            start.saver,
            deferral,
            config=_config(turn.flow_id, turn.session_settings),
            context=self._context_of(turn.session_settings),
            events=ModelEventStream(turn.events),
            call_prefix=f"{turn.turn_id}-{turn.model_step_count}",
            check_call=check_call,
        )
        token = active_model_step.set(model_step)
        try:
            step = await run.run(start.graph_input)
        except (GraphRecursionError, InvalidUpdateError) as error:
            raise TurnRefusedError(f"{type(error).__name__}: {error}") from error
        except Exception as error:
            if (seen := as_session_error(error)) is not error:
                raise seen from error
            raise
        finally:
            active_model_step.reset(token)
        return ModelStepOutcomeBuilder(
            turn, codec, stored, start.saver, run.observer, step, messages_key=self._messages_key
        ).build()

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        """Run one call of the graph's tools, with everything that stands around it in the graph.

        Raises:
            ToolExecutionError: A failure for the model.
            Exception: What the tool raised.
        """
        settings = settings_of_run(call.framework_run_state)
        prepared, codec = self._graphs.get(settings)
        return await run_held_call(
            call,
            prepared.tool_graph,
            codec,
            config=_config(call.flow_id, settings),
            context=self._context_of(settings),
            has_remote_tasks=call.tool_call.tool_name in self._remote_tasks,
        )

    async def poll_tool_task(self, poll: ToolTaskPoll) -> ToolTaskPollOutcome:
        """Ask once how a tool's remote work is.

        Raises:
            ToolExecutionError: The work failed, or this release does not know the tool's tasks.
            Exception: The poll failed.
        """
        return await self._remote_tasks.poll(poll)

    async def cancel_tool_task(self, cancellation: ToolTaskCancellation) -> None:
        """Stop a tool's remote work, where something can stop it."""
        await self._remote_tasks.cancel(cancellation)

    def build_unfinished_turn_messages(self, turn: AgentTurnContext) -> tuple[FrameworkMessage, ...]:
        """The results of stored calls, and the graph's state, for a turn that ends without an answer."""
        if turn.framework_run_state is None:
            return ()
        _, codec = self._graphs.get(settings_of_run(turn.framework_run_state))
        state = state_of_run(turn.framework_run_state)
        stored = StoredMessages(turn.messages)
        results = _missing_results(turn, stored, codec)
        if not results:
            return (state_marker(state),)
        return tuple(
            encode_message(message, tool_call_id, state_before=None if number else state)
            for number, (message, tool_call_id) in enumerate(results)
        )

    def estimate_input_tokens(self, turn: AgentTurnContext) -> int:
        """About how many tokens the turn's next model call reads, from lengths.

        The instructions are not counted: only the graph's own code knows them.
        """
        prepared, _ = self._graphs.get(turn.session_settings)
        step = SessionModelStep.of(turn)
        summary = None if turn.context_summary is None else summary_note(turn.context_summary)
        tools = tool_tokens(step.offered_tools(prepared.tools.values()))
        notes = text_tokens(summary) + text_tokens(step.plan_note)
        return tools + notes + sum(map(message_tokens, turn.messages)) + pending_result_tokens(turn)

    def select_compaction_cutoff(self, turn: AgentTurnContext, retained_token_budget: int) -> int | None:
        """The last message to summarise, so that about the budget stays; the graph's state always stays."""
        state = StoredMessages(turn.messages).state if turn.framework_run_state is None else None
        _, codec = self._graphs.get(turn.session_settings)
        keeps_state = state is not None and codec.holds_more_than(state, self._messages_key)
        return select_cutoff(turn, retained_token_budget, keeps_state=keeps_state)

    async def summarize_context(self, request: ContextSummaryRequest) -> ContextSummaryResult:
        """Ask the summary model.

        Raises:
            TurnRefusedError: There is none, or the provider refused the request itself.
            Exception: Whatever else the model raised.
        """
        if self._summary_model is None:
            raise TurnRefusedError("a LangGraph session needs summary_model= to summarise earlier messages")
        try:
            return await summarize(self._summary_model, request)
        except Exception as error:
            if (seen := as_session_error(error)) is not error:
                raise seen from error
            raise

    def read_state(
        self, messages: Sequence[AgentMessage], session_settings: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The values of the graph's channels after the latest turn that ended, such as its structured response.

        Args:
            messages: The session's stored messages.
            session_settings: Its settings, where the graph depends on them.

        Raises:
            TurnRefusedError: The state cannot be read.
        """
        prepared, codec = self._graphs.get(session_settings or {})
        shown = prepared.model_graph.stream_channels_list
        stored = StoredMessages(messages)
        if stored.state is None:
            return {}
        saver = codec.load(stored.state, stored)
        newest = saver.newest()
        values = {} if newest is None else dict(newest.checkpoint["channel_values"])
        values[self._messages_key] = conversation(saver, self._messages_key)
        return {
            name: unwrap_delta_snapshot(value)[0]
            for name, value in values.items()
            if name in shown and name not in PER_TURN_CHANNELS
        }

    def _context_of(self, settings: Mapping[str, Any]) -> Any:
        is_function = callable(self._context) and not isinstance(self._context, type)
        return self._context(settings) if is_function else self._context

    def _start(self, turn: AgentTurnContext, stored: StoredMessages, codec: CheckpointCodec) -> _Start:
        if turn.framework_run_state is not None:
            saver = codec.load(state_of_run(turn.framework_run_state), stored)
            self._insert_summary(turn, saver)
            answers = _interrupt_answers(turn)
            return _Start(saver, Command(resume=answers) if answers else None)
        summary = _summary_message(turn)
        if stored.state is None:
            saver = AttemptCheckpointSaver()
            new_messages = [*([summary] if summary else []), *stored.new_input]
        else:
            saver = codec.load(stored.state, stored)
            _begin_turn(saver)
            self._insert_summary(turn, saver)
            new_messages = list(stored.new_input)
        make_input = self._make_input
        if make_input is not None:
            return _Start(saver, make_input(new_messages, turn.session_settings))
        return _Start(saver, {self._messages_key: new_messages})

    def _insert_summary(self, turn: AgentTurnContext, saver: AttemptCheckpointSaver) -> None:
        summary = _summary_message(turn)
        if summary is None:
            return
        messages = [
            message
            for message in conversation(saver, self._messages_key)
            if not (message.id or "").startswith(_SUMMARY_ID)
        ]
        place = 1 if messages and isinstance(messages[0], SystemMessage) else 0
        set_conversation(saver, self._messages_key, [*messages[:place], summary, *messages[place:]])


class _Start(NamedTuple):
    saver: AttemptCheckpointSaver
    graph_input: Any


def _begin_turn(saver: AttemptCheckpointSaver) -> None:
    """Leave what an earlier turn left open: its pending tasks, and what counts per turn."""
    for namespace in [name for name in saver.namespaces if ":" in name]:
        del saver.namespaces[namespace]
    for saved in saver.namespaces.values():
        for checkpoint in saved.values():
            checkpoint.writes.clear()
            for name in PER_TURN_CHANNELS:
                checkpoint.checkpoint["channel_values"].pop(name, None)


def _summary_message(turn: AgentTurnContext) -> HumanMessage | None:
    summary = turn.context_summary
    if summary is None:
        return None
    return HumanMessage(summary_note(summary), id=f"{_SUMMARY_ID}{summary.generation}")


def _interrupt_answers(turn: AgentTurnContext) -> dict[str, Any]:
    """What the graph's interrupts return; None where the user declined or the deadline passed."""
    answers = {}
    for call in turn.previous_step_tool_calls:
        identifier = interrupt_id_of(call.tool_source_reference)
        if identifier is not None:
            succeeded = call.status is AgentToolCallStatus.SUCCEEDED
            answers[identifier] = json.loads(call.framework_result) if succeeded and call.framework_result else None
    return answers


def _missing_results(
    turn: AgentTurnContext, stored: StoredMessages, codec: CheckpointCodec
) -> list[tuple[ToolMessage, str]]:
    identities = CallIdentities(turn.tool_calls, stored, turn.turn_id)
    calls = {call.tool_call_id: call for call in turn.tool_calls}
    results = []
    for provider_id, _ in stored.unanswered_calls():
        tool_call_id = identities.take(provider_id)
        if tool_call_id is not None:
            identity = _identity(turn, tool_call_id)
            results.append((result_message(calls[tool_call_id], codec, identity), tool_call_id))
    return results


def _identity(turn: AgentTurnContext, tool_call_id: str) -> str:
    return f"{turn.flow_id}/{turn.turn_id}/{tool_call_id}"


def _config(session_id: str, settings: Mapping[str, Any]) -> RunnableConfig:
    return {"configurable": {"thread_id": session_id, "session_settings": dict(settings)}}
