"""An agent that compacts in the middle of a turn when the user says so, with gates at every point of the compaction."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from bench.compacting_runner import CompactingRunner
from dex_agents import (
    AgentTurnContext,
    AgentTurnOutcome,
    CompactionPolicy,
    ContextSummaryRequest,
    ContextSummaryResult,
    DeferredToolExecution,
    ToolExecutionResult,
    create_agent_session_flow,
)
from dex_agents.execution.compaction import RunnerCompactionExecution
from dex_agents.session.definition import SessionDefinition
from dex_agents.session.outcomes import ContextSummarized
from dex_agents.session.plan_values import CompactContextInput
from dex_agents.session.steps.compaction import CompactContext
from dex_flow import Decision, Flow, Transaction
from dex_flow.testing import Gates, InvocationLog

__all__ = ["COMPACT", "WINDOW_TOKENS", "GatedCompactingAgent", "create_gated_compacting_flow"]

COMPACT = "compact behind the tool"
WINDOW_TOKENS = 10_000


class GatedCompactingAgent(CompactingRunner):
    """Each turn calls the tool and answers; in one that says `COMPACT`, the second model step needs a summary first.

    Args:
        directory: Holds the gates and the log; shared by all processes.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.gates = Gates(directory / "gates")
        self.log = InvocationLog(directory / "invocations.jsonl")

    def estimate_input_tokens(self, turn: AgentTurnContext) -> int:
        """The window is full until the summary covers what came before the turn."""
        is_due = turn.messages[-1].text == COMPACT and turn.model_step_count == 1 and len(turn.messages) > 1
        return WINDOW_TOKENS if is_due else 1

    def select_compaction_cutoff(self, turn: AgentTurnContext, retained_token_budget: int) -> int | None:
        """Everything before the turn."""
        return turn.messages[-1].sequence - 1

    async def summarize_context(self, request: ContextSummaryRequest) -> ContextSummaryResult:
        """One summary, held before and after it is made."""
        await self.gates.pass_through(f"{request.flow_id}.before_summary")
        self.log.record(request.flow_id, "summary", request.attempt)
        result = await super().summarize_context(request)
        await self.gates.pass_through(f"{request.flow_id}.after_summary")
        return result

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        """One model call, held before it is made."""
        if turn.context_summary is not None:
            await self.gates.pass_through(f"{turn.flow_id}.model_after_summary")
        self.log.record(f"{turn.flow_id}/{turn.turn_id}/{turn.model_step_count}", "model", turn.attempt)
        return await super().run_model_step(turn)

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> ToolExecutionResult:
        """The tool."""
        self.log.record(call.idempotency_key, "tool", call.attempt)
        return await super().execute_deferred_tool_call(call)


class _CompactContext(CompactContext):
    step_type = "CompactContext"

    def __init__(self, agent: GatedCompactingAgent, session: SessionDefinition) -> None:
        super().__init__(RunnerCompactionExecution(agent), session)
        self._gates = agent.gates

    def commit(self, tx: Transaction, input: CompactContextInput, outcome: ContextSummarized) -> Decision:
        decision = super().commit(tx, input, outcome)
        self._gates.pass_through_blocking(f"{tx.flow_id}.CompactContext.commit")
        return decision


def create_gated_compacting_flow(agent: GatedCompactingAgent) -> Flow:
    """The agent's Flow; a gate `<session>.CompactContext.commit` holds the writer inside its transaction."""
    flow = create_agent_session_flow(
        agent,
        "GatedCompactingAgent",
        compaction=CompactionPolicy(context_window_tokens=WINDOW_TOKENS),
        attempt_backoff=timedelta(milliseconds=20),
    )
    compacting = _CompactContext(agent, SessionDefinition(agent.build_user_message, flow.options))
    return Flow(
        flow.flow_type,
        steps=[compacting if name == compacting.step_type else step for name, step in flow.steps.items()],
        start_step=flow.start_step,
        declarations=list(flow.declarations.values()),
        rpcs=list(flow.rpcs.values()),
        compatibility=flow.compatibility,
    )
