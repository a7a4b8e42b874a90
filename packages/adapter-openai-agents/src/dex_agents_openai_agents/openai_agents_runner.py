"""An `agents.Agent` as a runner of durable sessions: one model call per model step, every call in a Step of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from agents import Agent, RunConfig, RunContextWrapper, RunHooks

from dex_agents import (
    AgentTurnContext,
    AgentTurnOutcome,
    AgentUsage,
    ContextSummaryRequest,
    ContextSummaryResult,
    DeferredToolExecution,
    DeferredToolOutcome,
    FrameworkMessage,
    InteractionMode,
    ModelStepContinues,
    ToolCallsRequested,
    ToolExecutionError,
    ToolExecutionResult,
    ToolTaskCancellation,
    ToolTaskPoll,
    ToolTaskPollOutcome,
    ToolTaskStarted,
    TurnCompleted,
    select_compaction_cutoff,
)
from dex_agents.session.built_in_tools import WRITE_TODOS
from dex_agents.session.texts import MISSING_TOOL_TASK_POLLER, unknown_tool_text
from dex_agents_openai_agents.agent_graph import find_agents
from dex_agents_openai_agents.call_results import (
    previous_calls,
    unstored_result_messages,
)
from dex_agents_openai_agents.context_compaction import summary_agent, summary_items
from dex_agents_openai_agents.conversation import conversation_items, plan_note, summary_note
from dex_agents_openai_agents.deferral import CallDeferral, mcp_tool_effects
from dex_agents_openai_agents.guardrails import (
    DEFAULT_GUARDRAIL_REFUSAL,
    GuardrailRefusal,
    GuardrailTrip,
    check_output,
    refusal_text,
)
from dex_agents_openai_agents.handoff_execution import execute_handoff
from dex_agents_openai_agents.model_run import ModelAnswer, run_model_once
from dex_agents_openai_agents.observed_model import ModelCallLog
from dex_agents_openai_agents.remote_tasks import RemoteTask, RemoteTasks
from dex_agents_openai_agents.run_config import check_run_config, session_run_config
from dex_agents_openai_agents.run_hooks import StepRunHooks
from dex_agents_openai_agents.run_state import (
    RunState,
    decode_call_reference,
    encode_run_state,
)
from dex_agents_openai_agents.runnable_tool import ToolErrors
from dex_agents_openai_agents.step_agent import (
    OfferedTools,
    build_step_agent,
    resolve_maybe_awaitable,
    resolve_tools,
)
from dex_agents_openai_agents.step_model import ModelResolver, StepModel, model_of_settings, resolve_step_model
from dex_agents_openai_agents.stored_items import (
    InputItem,
    has_content,
    response_message,
    shown_message,
    user_message,
)
from dex_agents_openai_agents.summary_agent_note import with_agent_note
from dex_agents_openai_agents.token_estimate import agent_tokens, message_tokens, messages_tokens, text_tokens
from dex_agents_openai_agents.tool_call_info import running_tool_call
from dex_agents_openai_agents.tool_execution import execute_tool_call, find_tool
from dex_agents_openai_agents.tool_final_output import FinalToolOutput, final_tool_output
from dex_agents_openai_agents.tool_questions import SwallowedQuestionError, ToolInputRequired
from dex_agents_openai_agents.turn_position import TurnPosition, TurnPositions

__all__ = ["OpenAIAgentsRunner", "SessionStep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStep:
    """The Step that a context object is made for.

    Attributes:
        flow_id: The session's ID.
        turn_id: The turn.
        tool_name: The tool of a tool call; None in a model call.
    """

    flow_id: str
    turn_id: str
    tool_name: str | None = None


class OpenAIAgentsRunner:
    """Runs an agent, and those it hands off to, for any number of sessions; keeps nothing about any of them.

    Args:
        agent: Where a session starts; it and its tools stay as they are.
        agents: Agents that handoffs lead to without saying so.
        workflow_name: Name of the sessions' traces, where the run config gives none.
        context_factory: Makes the context object of a Step, sync or async; what a Step changes in it is gone after it.
        run_config: As for `Runner.run`.
        hooks: As for `Runner.run`.
        resolve_model: Gives the model for a session's settings; by default the name under `model`.
        start_each_turn_with: Whether a turn starts with the agent that answered the last one, or the first agent.
        guardrail_refusal: The answer when a guardrail trips: a text, a function of the `GuardrailTrip`, or None, which
            fails the turn.
        tool_errors: Whether an exception that the SDK's default would turn into text is that text (`report`), or fails
            the attempt, so that the tool's effect decides (`retry`).
        is_streaming: Whether models are asked to stream; False for models that cannot.
        remote_tasks: How remote work is followed, by name of the tool that starts it with `ToolTaskStarted`.

    Raises:
        UnsupportedAgentError: An agent cannot be run durably; names it and says what to do.
        TypeError: An argument is of the wrong type; names it.
        ValueError: The run config holds something a session cannot use; names it.
    """

    def __init__(
        self,
        agent: Agent[Any],
        *,
        agents: Sequence[Agent[Any]] = (),
        workflow_name: str = "Agent session",
        context_factory: Callable[[SessionStep], Any] | None = None,
        run_config: RunConfig | None = None,
        hooks: RunHooks[Any] | None = None,
        resolve_model: ModelResolver = model_of_settings,
        start_each_turn_with: Literal["last_agent", "first_agent"] = "last_agent",
        guardrail_refusal: GuardrailRefusal = DEFAULT_GUARDRAIL_REFUSAL,
        tool_errors: ToolErrors = "report",
        is_streaming: bool = True,
        remote_tasks: Mapping[str, RemoteTask] = MappingProxyType({}),
    ) -> None:
        _check_choice("start_each_turn_with", start_each_turn_with, ("last_agent", "first_agent"))
        _check_choice("tool_errors", tool_errors, ("report", "retry"))
        # One instance for all Steps: the SDK closes a model provider that it made itself after each run.
        self._run_config = RunConfig() if run_config is None else run_config
        self.agents = find_agents(agent, agents)
        check_run_config(self._run_config, self.agents.values())
        self._positions = TurnPositions(
            agent, self.agents, self._run_config, starts_with_last_agent=start_each_turn_with == "last_agent"
        )
        self._workflow_name = workflow_name
        self._context_factory = context_factory
        self._hooks = hooks
        self._resolve_model = resolve_model
        self._guardrail_refusal = guardrail_refusal
        self._tool_errors = tool_errors
        self._is_streaming = is_streaming
        self._remote_tasks = RemoteTasks(remote_tasks)

    @property
    def supports_plan_mode(self) -> Literal[True]:
        """Planning turns offer `write_todos` alone."""
        return True

    def build_user_message(self, text: str) -> FrameworkMessage:
        """The stored form of a user message."""
        return user_message(text)

    def build_unfinished_turn_messages(self, turn: AgentTurnContext) -> tuple[FrameworkMessage, ...]:
        """The results of the calls whose model output is stored, so that the transcript stays complete."""
        return unstored_result_messages(previous_calls(turn))

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        """Make at most one model call, from committed state only.

        Raises:
            TurnRefusedError: The provider refused the request, or the session is another runner's.
            Exception: Whatever else came out of the model, the application's functions or the SDK.
        """
        position = self._positions.of_turn(turn)
        agent = position.agent
        context = await self._context(SessionStep(flow_id=turn.flow_id, turn_id=turn.turn_id))
        wrapper: RunContextWrapper[Any] = RunContextWrapper(context=context)
        offered = await self._offered(turn, agent, wrapper)
        model = resolve_step_model(agent, self._run_config, self._resolve_model, turn.session_settings)
        answer = None if position.begins else await final_tool_output(agent, position.calls, offered, wrapper)
        if answer is not None:
            return await self._answer_of_tool(turn, position, answer, wrapper)
        return await self._ask_model(turn, position, offered, model, wrapper)

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        """Run one tool, handoff, or answer to a hosted MCP server, through the SDK.

        Raises:
            ToolExecutionError: There is no such tool any more, or a failure that the model reads.
            Exception: The attempt failed; the tool's effect decides what follows.
        """
        reference = decode_call_reference(call.tool_call)
        name = call.tool_call.tool_name
        agent = self.agents.get(reference.agent)
        if agent is None or reference.kind == "unknown_tool":
            raise ToolExecutionError(reference.error or unknown_tool_text(name))
        if reference.kind == "mcp_approval_request":
            return ToolExecutionResult(output="approved")
        context = await self._context(SessionStep(flow_id=call.flow_id, turn_id=call.turn_id, tool_name=name))
        wrapper: RunContextWrapper[Any] = RunContextWrapper(context=context)
        config = self._session_config(call.flow_id, call.turn_id)
        with running_tool_call(call) as current:
            if reference.kind == "handoff":
                return await execute_handoff(call, agent, self.agents, wrapper, self._hooks)
            tool = await find_tool(agent, name, reference, wrapper)
            if tool is None:
                raise ToolExecutionError(unknown_tool_text(name))
            try:
                result = await execute_tool_call(
                    call,
                    reference,
                    agent,
                    tool,
                    context=context,
                    run_config=config,
                    hooks=self._hooks,
                    tool_errors=self._tool_errors,
                )
            except (Exception, ToolInputRequired):
                if current.questions.asked is None:
                    raise
                return current.questions.asked
            if current.questions.asked is not None:
                raise SwallowedQuestionError(name)
            if isinstance(result, ToolTaskStarted) and name not in self._remote_tasks:
                raise ToolExecutionError(MISSING_TOOL_TASK_POLLER)
            return result

    async def poll_tool_task(self, poll: ToolTaskPoll) -> ToolTaskPollOutcome:
        """Ask once how a tool's remote work is; see `RemoteTask.poll`.

        Raises:
            ToolExecutionError: The work failed, or this release does not know the tool's tasks.
            Exception: The poll failed.
        """
        return await self._remote_tasks.poll(poll)

    async def cancel_tool_task(self, cancellation: ToolTaskCancellation) -> None:
        """Stop a tool's remote work, where it can be stopped."""
        await self._remote_tasks.cancel(cancellation)

    def estimate_input_tokens(self, turn: AgentTurnContext) -> int:
        """About how many tokens the turn's next model call reads, from lengths.

        Raises:
            TurnRefusedError: The session is another runner's.
        """
        position = self._positions.of_turn(turn)
        summary = None if turn.context_summary is None else summary_note(turn.context_summary)
        notes = text_tokens(summary) + text_tokens(plan_note(turn))
        offered = agent_tokens(position.agent, turn.enabled_built_in_tools)
        return notes + offered + messages_tokens(turn.messages) + messages_tokens(position.results)

    def select_compaction_cutoff(self, turn: AgentTurnContext, retained_token_budget: int) -> int | None:
        """The last message to summarise, so that about the budget stays."""
        pending = messages_tokens(unstored_result_messages(previous_calls(turn)))
        return select_compaction_cutoff(
            turn.messages, turn.turn_id, retained_token_budget, message_tokens, pending_tokens=pending
        )

    async def summarize_context(self, request: ContextSummaryRequest) -> ContextSummaryResult:
        """Make one model call without tools; nothing of it streams to the user.

        Raises:
            TurnRefusedError: The provider refused the request, or the session is another runner's.
            Exception: Whatever else came out of the model or the SDK.
        """
        agent = self._positions.last_agent(request.messages, request.previous_summary)
        model = resolve_step_model(agent, self._run_config, self._resolve_model, request.session_settings)
        log = ModelCallLog()
        config = dataclasses.replace(
            model.run_config(self._session_config(request.flow_id, request.turn_id), log, is_first_call=False),
            output_guardrails=None,
            call_model_input_filter=None,
        )
        answer = await run_model_once(
            summary_agent(agent),
            summary_items(request, model.label, agent.model_settings.max_tokens),
            context=await self._context(SessionStep(flow_id=request.flow_id, turn_id=request.turn_id)),
            run_config=config,
            hooks=None,
            log=log,
            events=None,
            is_streaming=self._is_streaming,
        )
        text = response_message(answer.items, agent=agent.name, model=model.label).text
        if text.strip():
            text = with_agent_note(text, self._positions.name_for_summary(agent))
        return ContextSummaryResult(text=text, usage=log.step_usage, model_call_metadata=log.metadata)

    async def _ask_model(
        self,
        turn: AgentTurnContext,
        position: TurnPosition,
        offered: OfferedTools,
        model: StepModel,
        wrapper: RunContextWrapper[Any],
    ) -> AgentTurnOutcome:
        agent, log, approvals = position.agent, ModelCallLog(), dict[str, bool]()
        base = self._session_config(turn.flow_id, turn.turn_id)
        items = await conversation_items(
            turn,
            position.results,
            position.handoffs,
            model=model.label,
            agents=self.agents,
            run_config=base,
            context=wrapper,
        )
        answer = await run_model_once(
            build_step_agent(
                agent,
                offered,
                approvals,
                checks_input=position.is_first_call,
                has_used_tools=position.has_used_tools,
                announces_start=position.begins,
            ),
            items,
            context=wrapper.context,
            run_config=model.run_config(base, log, is_first_call=position.is_first_call),
            hooks=None if self._hooks is None else StepRunHooks(self._hooks, agent, announces_start=position.begins),
            log=log,
            events=turn.events,
            is_streaming=self._is_streaming,
        )
        if answer.trip is not None:
            return self._refusal(turn, position, answer.trip, log.step_usage, log)
        effects = await mcp_tool_effects(agent, wrapper) if answer.calls else {}
        calls = CallDeferral(turn, agent, offered, approvals, effects).deferred_calls(answer.calls)
        said: tuple[FrameworkMessage, ...] = ()
        if has_content(answer.items):
            said = (response_message(answer.items, agent=agent.name, model=model.label, calls=calls),)
        new_messages = (*position.results, *said)
        if answer.is_final:
            return TurnCompleted(new_messages=new_messages, usage=log.step_usage, model_call_metadata=log.metadata)
        state = RunState(
            agent=agent.name,
            has_used_tools=bool(calls) or position.has_used_tools or _used_hosted_tools(answer),
            handoffs=position.handoffs,
        )
        if calls:
            return ToolCallsRequested(
                framework_run_state=encode_run_state(state),
                tool_calls=calls,
                usage=log.step_usage,
                new_messages=new_messages,
                model_call_metadata=log.metadata,
            )
        return ModelStepContinues(
            framework_run_state=encode_run_state(state),
            usage=log.step_usage,
            new_messages=new_messages,
            model_call_metadata=log.metadata,
        )

    async def _answer_of_tool(
        self,
        turn: AgentTurnContext,
        position: TurnPosition,
        answer: FinalToolOutput,
        wrapper: RunContextWrapper[Any],
    ) -> AgentTurnOutcome:
        """End the turn with a tool's output; no model is asked."""
        agent = position.agent
        trip = await check_output(agent, self._run_config, wrapper, answer.value)
        if trip is not None:
            return self._refusal(turn, position, trip, AgentUsage(), None)
        if self._hooks is not None:
            await self._hooks.on_agent_end(wrapper, agent, answer.value)  # type: ignore[arg-type]
        if agent.hooks is not None:
            await agent.hooks.on_end(wrapper, agent, answer.value)  # type: ignore[arg-type]
        # As in a native run, later model calls read the tool's result and no message of the agent's.
        said = shown_message(answer.text, agent=agent.name)
        turn.events.write_text_delta(answer.text)
        return TurnCompleted(new_messages=(*position.results, said), usage=AgentUsage())

    def _refusal(
        self,
        turn: AgentTurnContext,
        position: TurnPosition,
        trip: GuardrailTrip,
        usage: AgentUsage | None,
        log: ModelCallLog | None,
    ) -> AgentTurnOutcome:
        turn.events.write_event(
            "guardrail_tripped",
            {"kind": trip.kind, "guardrail_name": trip.guardrail_name, "agent": position.agent.name},
        )
        said = _assistant_message(refusal_text(self._guardrail_refusal, trip), position.agent)
        return TurnCompleted(
            new_messages=(*position.results, said),
            usage=usage,
            model_call_metadata=None if log is None else log.metadata,
        )

    async def _context(self, step: SessionStep) -> Any:
        if self._context_factory is None:
            return None
        return await resolve_maybe_awaitable(self._context_factory(step))

    async def _offered(
        self, turn: AgentTurnContext, agent: Agent[Any], wrapper: RunContextWrapper[Any]
    ) -> OfferedTools:
        """What the model may call now: nothing after a turn's limit, the plan alone while it plans."""
        if turn.turn_limit_reached is not None:
            return OfferedTools(tools=(), handoffs={}, is_reduced=True)
        if turn.interaction_mode is InteractionMode.PLANNING:
            built_in = tuple(name for name in turn.enabled_built_in_tools if name == WRITE_TODOS)
            return OfferedTools(tools=(), handoffs={}, built_in=built_in, is_reduced=True)
        return await resolve_tools(agent, wrapper, built_in=turn.enabled_built_in_tools)

    def _session_config(self, flow_id: str, turn_id: str) -> RunConfig:
        return session_run_config(self._run_config, flow_id=flow_id, turn_id=turn_id, workflow_name=self._workflow_name)


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be {' or '.join(map(repr, choices))}, not {value!r}")


def _assistant_message(text: str, agent: Agent[Any]) -> FrameworkMessage:
    item: InputItem = {"role": "assistant", "content": text}
    return response_message([item], agent=agent.name, model=None)


def _used_hosted_tools(answer: ModelAnswer) -> bool:
    return any(str(item.get("type", "")).endswith("_call") for item in answer.items)
