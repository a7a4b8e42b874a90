"""The I/O of `RunModel`: one attempt of one model step."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import MappingProxyType

from dex_agents.execution.attempt_log import log_failed_attempt
from dex_agents.execution.compaction import needed_compaction
from dex_agents.execution.event_writer import BufferedAgentEventWriter
from dex_agents.execution.heartbeats import BackgroundHeartbeats
from dex_agents.execution.runner_calls import await_runner
from dex_agents.runner import (
    AgentEventWriter,
    AgentFrameworkRunner,
    AgentTurnContext,
    ContextCompactor,
    ToolCallsRequested,
    TurnRefusedError,
    UnfinishedTurnMessageBuilder,
)
from dex_agents.session.ingress import RunnerContractError, model_step_outcome, refused_model_step
from dex_agents.session.outcomes import ModelStepNeedsCompaction, ModelStepOutcome, ModelStepSnapshot
from dex_agents.session.persistence import AGENT_EVENTS
from dex_agents.session.turn_limits import limits_in_force, reached_limit_text
from dex_flow import Activity

_LOG = logging.getLogger(__name__)

__all__ = ["RunnerModelStepExecution", "build_turn_context"]


class RunnerModelStepExecution:
    """A `ModelStepExecution` that asks a runner.

    Args:
        runner: Makes the model calls; shared by all sessions of the Flow type.
    """

    def __init__(self, runner: AgentFrameworkRunner) -> None:
        self._runner = runner
        self._completes_unfinished_turns = isinstance(runner, UnfinishedTurnMessageBuilder)
        self._compactor = runner if isinstance(runner, ContextCompactor) else None

    async def run_model_step(self, activity: Activity, snapshot: ModelStepSnapshot) -> ModelStepOutcome:
        """Run one attempt of a model step.

        Raises:
            RunnerContractError: The runner returned what the contract does not allow; names the field.
            Exception: Whatever else the runner raised; the attempt failed.
        """
        with (
            BackgroundHeartbeats(activity) as heartbeats,
            BufferedAgentEventWriter(activity, AGENT_EVENTS, snapshot.turn_id) as events,
        ):
            turn = build_turn_context(activity, snapshot, events, heartbeats.heartbeat)
            try:
                with log_failed_attempt("model step", activity, snapshot.turn_id):
                    compaction = self._needed_compaction(snapshot, turn)
                    if compaction is not None:
                        return compaction
                    outcome = await await_runner("run_model_step", self._runner.run_model_step(turn))
                    if isinstance(outcome, ToolCallsRequested) and outcome.new_messages:
                        self._check_completes_unfinished_turns()
                    return model_step_outcome(outcome, snapshot.options)
            except TurnRefusedError as error:
                return refused_model_step(error)

    def _needed_compaction(
        self, snapshot: ModelStepSnapshot, turn: AgentTurnContext
    ) -> ModelStepNeedsCompaction | None:
        policy = snapshot.options.compaction
        if policy is None or self._compactor is None:
            if self._compactor is None and snapshot.first_stored_sequence > 1:
                _LOG.warning(
                    "session %r: its messages before %d are deleted, and %s cannot read the summary that stands for "
                    "them; implement ContextCompactor",
                    turn.flow_id,
                    snapshot.first_stored_sequence,
                    type(self._runner).__name__,
                )
            return None
        return needed_compaction(self._compactor, policy, snapshot, turn)

    def _check_completes_unfinished_turns(self) -> None:
        if not self._completes_unfinished_turns:
            raise RunnerContractError(
                "ToolCallsRequested.new_messages is for runners that implement build_unfinished_turn_messages: "
                "without it, a turn that fails later would leave the stored tool calls without results"
            )


def _turn_limit_text(snapshot: ModelStepSnapshot) -> str | None:
    limits = limits_in_force(snapshot.options.turn_limits, snapshot.session_settings)
    return reached_limit_text(snapshot.state, limits)


def build_turn_context(
    activity: Activity, snapshot: ModelStepSnapshot, events: AgentEventWriter, heartbeat: Callable[[], None]
) -> AgentTurnContext:
    """What a runner sees of one attempt of a model step."""
    return AgentTurnContext(
        flow_id=activity.flow_id,
        turn_id=snapshot.turn_id,
        attempt=activity.attempt,
        step_execution_id=activity.step_execution_id,
        messages=snapshot.messages,
        tool_calls=snapshot.tool_calls,
        framework_run_state=snapshot.framework_run_state,
        model_step_count=snapshot.state.turn_model_step_count,
        events=events,
        heartbeat=heartbeat,
        deadline=activity.deadline,
        enabled_built_in_tools=tuple(snapshot.options.built_in_tools),
        tool_policies=snapshot.options.tool_policies,
        default_tool_effect=snapshot.options.default_tool_effect,
        interaction_mode=snapshot.state.interaction_mode,
        session_settings=MappingProxyType(snapshot.session_settings),
        context_summary=snapshot.context_summary,
        plan=snapshot.plan,
        turn_limit_reached=_turn_limit_text(snapshot),
    )
