"""The I/O of context compaction: whether a model step's input needs it, and the summary call itself."""

from __future__ import annotations

from types import MappingProxyType

from dex_agents.execution.attempt_log import log_failed_attempt
from dex_agents.execution.event_writer import BufferedAgentEventWriter
from dex_agents.execution.heartbeats import BackgroundHeartbeats
from dex_agents.execution.runner_calls import await_runner
from dex_agents.runner import AgentTurnContext, ContextCompactor, ContextSummaryRequest, TurnRefusedError
from dex_agents.session.compaction_policy import CompactionPolicy
from dex_agents.session.ingress import RunnerContractError, context_summarized
from dex_agents.session.outcomes import (
    CompactionSnapshot,
    ContextSummarized,
    ModelStepNeedsCompaction,
    ModelStepSnapshot,
)
from dex_agents.session.persistence import AGENT_EVENTS
from dex_agents.session.sanitizer import text_size
from dex_flow import Activity

__all__ = ["ContextTooLargeError", "RunnerCompactionExecution", "needed_compaction"]


class ContextTooLargeError(TurnRefusedError):
    """The model input is larger than the context window, and summarising older messages failed."""


class SummaryRefusedError(Exception):
    """No attempt of the summary can succeed, as its runner knows; the turn goes on without it while it fits."""

    is_retryable = False


def needed_compaction(
    compactor: ContextCompactor, policy: CompactionPolicy, snapshot: ModelStepSnapshot, turn: AgentTurnContext
) -> ModelStepNeedsCompaction | None:
    """What to summarise before this model step, or None when its input is small enough or cannot be cut.

    Raises:
        RunnerContractError: The runner's estimate or cutoff is not what the contract asks for.
        ContextTooLargeError: Summarising failed in this turn, and the input does not fit without.
    """
    estimate = compactor.estimate_input_tokens(turn)
    if isinstance(estimate, bool) or not isinstance(estimate, int):
        raise RunnerContractError(f"estimate_input_tokens must return a whole number, not {estimate!r}")
    failure = snapshot.state.turn_compaction_error
    if failure is not None:
        if estimate > policy.context_window_tokens:
            raise ContextTooLargeError(
                f"the model input has about {estimate} tokens, the context window {policy.context_window_tokens}, "
                f"and summarising the earlier messages failed: {failure}"
            )
        return None
    if estimate < policy.trigger_tokens:
        return None
    cutoff = compactor.select_compaction_cutoff(turn, policy.retained_token_budget)
    if cutoff is None:
        return None
    if isinstance(cutoff, bool) or not isinstance(cutoff, int) or cutoff > snapshot.state.last_message_sequence:
        raise RunnerContractError(
            f"select_compaction_cutoff must return the sequence of a stored message or None, not {cutoff!r}"
        )
    summarized = 0 if snapshot.context_summary is None else snapshot.context_summary.last_sequence
    return ModelStepNeedsCompaction(through_sequence=cutoff) if cutoff > summarized else None


class RunnerCompactionExecution:
    """A `CompactionExecution` that asks a runner.

    Args:
        compactor: Summarises; shared by all sessions of the Flow type.
    """

    def __init__(self, compactor: ContextCompactor) -> None:
        self._compactor = compactor

    async def summarize_context(self, activity: Activity, snapshot: CompactionSnapshot) -> ContextSummarized:
        """Run one attempt of a summary.

        Raises:
            RunnerContractError: The runner returned what the contract does not allow; names the field.
            EmptySummaryError: The summary is blank.
            SummaryRefusedError: The runner knows that no attempt can succeed.
            SummaryTooLongError: It is not shorter than what it stands for.
            Exception: Whatever else the runner raised; the attempt failed.
        """
        policy = snapshot.options.compaction
        if policy is None:
            raise RunnerContractError("the session has no compaction policy any more")
        with (
            BackgroundHeartbeats(activity) as heartbeats,
            BufferedAgentEventWriter(activity, AGENT_EVENTS, snapshot.turn_id) as events,
        ):
            request = ContextSummaryRequest(
                flow_id=activity.flow_id,
                turn_id=snapshot.turn_id,
                attempt=activity.attempt,
                messages=snapshot.messages,
                previous_summary=snapshot.previous_summary,
                input_token_budget=policy.context_window_tokens,
                session_settings=MappingProxyType(snapshot.session_settings),
                events=events,
                heartbeat=heartbeats.heartbeat,
                deadline=activity.deadline,
            )
            with log_failed_attempt("context summary", activity, snapshot.turn_id):
                try:
                    result = await await_runner("summarize_context", self._compactor.summarize_context(request))
                except TurnRefusedError as error:
                    raise SummaryRefusedError(error.message) from error
                return context_summarized(result, _summarized_size(snapshot))


def _summarized_size(snapshot: CompactionSnapshot) -> int:
    previous = "" if snapshot.previous_summary is None else snapshot.previous_summary.text
    return text_size(previous) + sum(text_size(message.framework_item) for message in snapshot.messages)
