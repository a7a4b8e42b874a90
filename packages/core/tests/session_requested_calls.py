"""What becomes of a call that the model asks for, before anybody has done anything about it."""

from __future__ import annotations

from collections.abc import Sequence

from dex_agents.session.built_in_tools import ASK_USER, WRITE_TODOS
from dex_agents.session.outcomes import RequestedToolCall
from dex_agents.session.texts import TODOS_WRITTEN_TWICE, TOOL_CALL_NOT_RUN_IN_PLANNING_TURN
from dex_agents.session.tool_values import AgentToolCallRecordStatus as Status
from dex_agents.session.tool_values import ToolEffect

from .session_call_model import CallModel, Phase
from .session_strategies import Configuration, wants_valid_built_in

__all__ = ["requested_call"]


def requested_call(
    wanted: RequestedToolCall,
    response: Sequence[RequestedToolCall],
    configuration: Configuration,
    *,
    turn_id: str,
    tool_call_id: str,
    mode: str,
    refusal: str | None,
) -> CallModel:
    """The call as it has to come up.

    Args:
        wanted: What the model asks for.
        response: Every call of the same response.
        configuration: What the session and its runner can do.
        turn_id: The active turn.
        tool_call_id: The session's ID of the call.
        mode: The kind of the active turn.
        refusal: What a call is told when its turn has reached a limit.
    """
    is_plan = wanted.tool_name == WRITE_TODOS and configuration.has_plans
    is_doubled = is_plan and sum(call.tool_name == WRITE_TODOS for call in response) > 1
    is_planned_away = mode == "planning" and not is_plan
    is_stopped = refusal is not None or is_planned_away or is_doubled
    is_built_in = wanted.tool_name in configuration.built_in_tools and not is_stopped
    is_wrong = wanted.arguments_error is not None or (is_built_in and not wants_valid_built_in(wanted))
    call = CallModel(
        turn_id,
        tool_call_id,
        wanted.tool_name,
        wanted.arguments,
        ToolEffect.READ if is_built_in else wanted.policy.effect,
        wanted.policy.requires_approval and not is_built_in and not is_wrong and not is_stopped,
        asks_by_itself=is_built_in,
        phase=Phase.READY,
    )
    if refusal is not None:
        call.end(Status.FAILED, text=refusal)
    elif is_planned_away:
        call.end(Status.REJECTED, text=TOOL_CALL_NOT_RUN_IN_PLANNING_TURN)
    elif is_doubled:
        call.end(Status.FAILED, text=TODOS_WRITTEN_TWICE)
    elif is_wrong:
        call.end(Status.FAILED)
    elif is_plan:
        call.end(Status.SUCCEEDED)
    elif is_built_in:
        call.phase = Phase.QUESTION if wanted.tool_name == ASK_USER else Phase.TIMER
    elif call.requires_approval:
        call.phase, call.has_schema = Phase.APPROVAL, wanted.arguments_schema is not None
    return call
