"""The runner of a Pydantic AI agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from pydantic_ai.messages import ModelRequest, UserPromptPart

from dex_agents import (
    AgentTurnContext,
    AgentTurnOutcome,
    ContextSummaryRequest,
    ContextSummaryResult,
    DeferredToolExecution,
    DeferredToolOutcome,
    FrameworkMessage,
    ToolExecutionError,
    ToolTaskCancellation,
    ToolTaskPoll,
    ToolTaskPollOutcome,
    ToolTaskStarted,
)
from dex_agents.session.sanitizer import sanitize_text
from dex_agents.session.texts import MISSING_TOOL_TASK_POLLER
from dex_agents_pydantic_ai.agent_runs import AgentRuns
from dex_agents_pydantic_ai.context_compaction import compaction_cutoff, input_tokens, summarize
from dex_agents_pydantic_ai.conversation import previous_calls, step_input
from dex_agents_pydantic_ai.framework_messages import (
    NO_TIME,
    IncompatibleFrameworkVersionError,
    StoredItem,
    encode_item,
)
from dex_agents_pydantic_ai.model_step import ModelStep
from dex_agents_pydantic_ai.output_settlement import settle_outputs, unsettled_outputs
from dex_agents_pydantic_ai.remote_tasks import RemoteTask, RemoteTasks
from dex_agents_pydantic_ai.run_state import decode_run_state
from dex_agents_pydantic_ai.tool_execution import execute_tool_call
from dex_agents_pydantic_ai.tool_results import result_messages

__all__ = ["PydanticAIRunner"]


class PydanticAIRunner:
    """Runs a Pydantic AI agent for any number of sessions; keeps nothing about any of them.

    Args:
        runs: Opens runs of the agent.
        remote_tasks: How remote work is followed, by name of the tool that starts it.

    Raises:
        TypeError: A remote task is no `RemoteTask`; names its tool.
    """

    def __init__(self, runs: AgentRuns, *, remote_tasks: Mapping[str, RemoteTask] = MappingProxyType({})) -> None:
        self._runs = runs
        self._remote_tasks = RemoteTasks(remote_tasks)

    @property
    def supports_plan_mode(self) -> Literal[True]:
        """Planning turns offer `write_todos` alone."""
        return True

    def build_user_message(self, text: str) -> FrameworkMessage:
        """The stored form of a user message."""
        repaired = sanitize_text(text)
        item = StoredItem(messages=[ModelRequest(parts=[UserPromptPart(repaired, timestamp=NO_TIME)])])
        return FrameworkMessage(role="user", text=repaired, framework_item=encode_item(item))

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        """Make one request to the model, or none when stored results alone end the turn.

        Raises:
            TurnRefusedError: The turn cannot succeed.
            Exception: The attempt failed.
        """
        given = step_input(turn)
        deps = await self._runs.step_deps(given.context)
        if given.state.output_call_ids:
            return await settle_outputs(self._runs, turn, given, deps)
        return await ModelStep(self._runs, turn, given, deps).run()

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        """Run one call; see `execute_tool_call`.

        Raises:
            ToolExecutionError: A failure for the model.
            Exception: The attempt failed.
        """
        outcome = await execute_tool_call(self._runs, call)
        if isinstance(outcome, ToolTaskStarted) and call.tool_call.tool_name not in self._remote_tasks:
            raise ToolExecutionError(MISSING_TOOL_TASK_POLLER)
        return outcome

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
        """About how many tokens the conversation has; instructions and tools are not counted."""
        return input_tokens(turn)

    def select_compaction_cutoff(self, turn: AgentTurnContext, retained_token_budget: int) -> int | None:
        """The last message to summarise; see `compaction_cutoff`."""
        return compaction_cutoff(turn, retained_token_budget)

    async def summarize_context(self, request: ContextSummaryRequest) -> ContextSummaryResult:
        """Make one model call without tools; see `summarize`."""
        return await summarize(self._runs.model(request.session_settings), request)

    def build_unfinished_turn_messages(self, turn: AgentTurnContext) -> tuple[FrameworkMessage, ...]:
        """The results of the calls whose response is stored, so that the transcript stays complete."""
        calls = previous_calls(turn)
        if not calls:
            return ()
        call_ids: Sequence[str] = [call.provider_tool_call_id or call.tool_call_id for call in calls]
        try:
            state = decode_run_state(turn.framework_run_state)
            call_ids = state.call_ids
            return (*result_messages(calls, call_ids), *unsettled_outputs(turn, state))
        except IncompatibleFrameworkVersionError:
            # The turn ends because of it. A call without a result would spoil the session for later turns too.
            return tuple(result_messages(calls, call_ids, texts_only=True))
