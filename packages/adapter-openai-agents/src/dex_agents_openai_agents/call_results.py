"""Results of final calls as the input items the SDK itself would have made of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dex_agents import AgentToolCall, AgentToolCallStatus, AgentTurnContext, FrameworkMessage, tool_result_text
from dex_agents_openai_agents.run_state import CallReference, decode_call_reference
from dex_agents_openai_agents.stored_items import InputItem, result_message

__all__ = [
    "IGNORED_HANDOFF_RESULT",
    "handoff_target_name",
    "previous_calls",
    "taken_handoff",
    "unstored_result_messages",
]

#: What the SDK tells the model of every handoff of a response but the first.
IGNORED_HANDOFF_RESULT = "Multiple handoffs detected, ignoring this one."


def previous_calls(turn: AgentTurnContext) -> list[tuple[AgentToolCall, CallReference]]:
    """The calls of the turn's previous model step with what this adapter knows of them, in call order.

    Raises:
        TurnRefusedError: Another runner asked for one.
    """
    calls = sorted(turn.previous_step_tool_calls, key=lambda call: call.deferral_order)
    return [(call, decode_call_reference(call)) for call in calls]


def taken_handoff(calls: Sequence[tuple[AgentToolCall, CallReference]]) -> AgentToolCall | None:
    """The handoff that takes place: the first of a response that was not refused."""
    for call, reference in calls:
        if reference.kind == "handoff" and call.status is AgentToolCallStatus.SUCCEEDED:
            return call
    return None


def unstored_result_messages(calls: Sequence[tuple[AgentToolCall, CallReference]]) -> tuple[FrameworkMessage, ...]:
    """The results of a model step's calls, in the SDK's order: those of handoffs last, and last the one that was taken.

    They are stored with what the model says next.
    """
    taken = taken_handoff(calls)
    ordered = sorted(calls, key=lambda entry: (entry[1].kind == "handoff", entry[0] is taken))
    return tuple(_message(call, reference, taken) for call, reference in ordered)


def _message(call: AgentToolCall, reference: CallReference, taken: AgentToolCall | None) -> FrameworkMessage:
    text = tool_result_text(call)
    if reference.kind == "handoff" and call.status is AgentToolCallStatus.SUCCEEDED and call is not taken:
        text = IGNORED_HANDOFF_RESULT
    agent = reference.agent if call is not taken else handoff_target_name(call)
    return result_message(call.tool_call_id, _item(call, reference, text), text, agent)


def handoff_target_name(call: AgentToolCall) -> str:
    """The agent that a successful handoff leads to."""
    return str(json.loads(call.framework_result or "{}").get("agent", ""))


def _item(call: AgentToolCall, reference: CallReference, text: str) -> InputItem:
    succeeded = call.status is AgentToolCallStatus.SUCCEEDED
    stored = None
    if succeeded and call.framework_result is not None and reference.kind != "handoff":
        stored = json.loads(call.framework_result)
    match reference.kind:
        case "mcp_approval_request":
            response = {
                "type": "mcp_approval_response",
                "approval_request_id": reference.call_id,
                "approve": succeeded,
            }
            return response if succeeded else {**response, "reason": text}
        case "shell_call":
            return stored or {
                "type": "shell_call_output",
                "call_id": reference.call_id,
                "output": [{"stdout": "", "stderr": text, "outcome": {"type": "exit", "exit_code": 1}}],
            }
        case "apply_patch_call":
            return stored or {
                "type": "apply_patch_call_output",
                "call_id": reference.call_id,
                "status": "failed",
                "output": text,
            }
        case "custom_tool_call":
            return stored or {"call_id": reference.call_id, "output": text, "type": "custom_tool_call_output"}
        case _:
            return _function_output(call, reference, text, stored)


def _function_output(call: AgentToolCall, reference: CallReference, text: str, stored: Any) -> InputItem:
    output: Any = text
    if stored is not None:
        output = stored
        if call.executed_arguments is not None:
            # What the session says of changed arguments stands before the text, which is not sent here.
            note = text.removesuffix(call.output or "")
            output = [{"type": "input_text", "text": note}, *stored]
    item: InputItem = {"call_id": reference.call_id, "output": output, "type": "function_call_output"}
    if reference.raw is not None and "caller" in reference.raw:
        item["caller"] = reference.raw["caller"]
    return item
