"""The I/O of `RecordTurnFailure`: asking the runner to complete the transcript of a turn without an answer."""

from __future__ import annotations

from dex_agents.execution.attempt_log import log_failed_attempt, log_refused_result
from dex_agents.execution.event_writer import BufferedAgentEventWriter
from dex_agents.execution.model_step import build_turn_context
from dex_agents.runner import UnfinishedTurnMessageBuilder
from dex_agents.session.ingress import unfinished_turn_outcome
from dex_agents.session.outcomes import ModelStepSnapshot, UnfinishedTurnOutcome
from dex_agents.session.persistence import AGENT_EVENTS
from dex_flow import Activity

__all__ = ["RunnerUnfinishedTurnExecution"]

_METHOD = "build_unfinished_turn_messages"


class RunnerUnfinishedTurnExecution:
    """An `UnfinishedTurnExecution` that asks a runner.

    Args:
        builder: Builds the messages; shared by all sessions of the Flow type.
    """

    def __init__(self, builder: UnfinishedTurnMessageBuilder) -> None:
        self._builder = builder

    async def build_unfinished_turn_messages(
        self, activity: Activity, snapshot: ModelStepSnapshot
    ) -> UnfinishedTurnOutcome:
        """Build the messages; a builder that raises is an outcome, so that the turn still ends with its note."""
        with BufferedAgentEventWriter(activity, AGENT_EVENTS, snapshot.turn_id) as events:
            turn = build_turn_context(activity, snapshot, events, activity.heartbeat)
            try:
                with log_failed_attempt(_METHOD, activity, snapshot.turn_id):
                    messages = tuple(self._builder.build_unfinished_turn_messages(turn))
            except Exception as error:
                return unfinished_turn_outcome((), error, snapshot.options)
            outcome = unfinished_turn_outcome(messages, None, snapshot.options)
            if outcome.error is not None:
                log_refused_result(_METHOD, outcome.error, activity, snapshot.turn_id)
            return outcome
