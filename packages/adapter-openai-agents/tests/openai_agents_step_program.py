"""Runs one Step of the hopping test's session and ends: a program, and the agent that it and the test build.

`python openai_agents_step_program.py INPUT OUTPUT`: pickled snapshots and outcomes of the session's own values.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from agents import Agent, RunContextWrapper, ToolOutputImage, function_tool, handoff, set_tracing_disabled
from agents.version import __version__ as sdk_version

from dex_agents import DeferredToolExecution
from dex_agents.execution.model_step import build_turn_context
from dex_agents.session.ingress import model_step_outcome, tool_outcome
from dex_agents_openai_agents import OpenAIAgentsRunner, current_tool_call
from dex_agents_openai_agents.testing import ScriptedModel, SeenRequest, call_item, reasoning_item, text_item

set_tracing_disabled(True)

LOG = "HOPPING_LOG"


def note(text: str) -> None:
    """Say what happened in which process, where the test reads it."""
    if LOG in os.environ:
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(f"{os.getpid()} {sdk_version} {text}\n")


@function_tool
def look(context: RunContextWrapper[str], place: str) -> str:
    """Looks."""
    note(f"look {place} {_key()}")
    return f"{context.context} saw {place}"


@function_tool(needs_approval=True)
async def refund(order: int) -> str:
    """Refunds."""
    note(f"refund {order} {_key()}")
    return f"refunded {order}"


@function_tool
def photo() -> ToolOutputImage:
    """A picture."""
    return ToolOutputImage(image_url="data:image/png;base64,AAAA")


def _key() -> str:
    try:
        return current_tool_call().idempotency_key
    except LookupError:
        return "native"


def _answer(request: SeenRequest) -> list[Any]:
    """What the model says, found from what it is asked, since each process has a model of its own."""
    note(f"model {request.instructions}")
    outputs = sum(str(item.get("type", "")).endswith("_output") for item in request.items)
    said = sum(item.get("type") == "message" for item in request.items)
    match outputs, said:
        case 0, 0:
            return [
                reasoning_item("look twice"),
                call_item("look", {"place": "a"}, "c1"),
                call_item("photo", "{}", "c2"),
            ]
        case 2, 0:
            return [call_item("transfer_to_billing", "{}", "h1"), call_item("look", {"place": "b"}, "c3")]
        case 4, 0:
            return [call_item("refund", {"order": 7}, "c4")]
        case 5, 0:
            return [text_item("refunded", 1)]
        case _:
            return [text_item("bye", 2)]


def build_agent() -> tuple[Agent[Any], ScriptedModel]:
    """The session's first agent, and the model of all its agents."""
    model = ScriptedModel(*[_answer] * 20)
    billing = Agent[Any](name="Billing", instructions="You bill.", model=model, tools=[refund, look])
    triage = Agent[Any](
        name="Triage", instructions="You sort.", model=model, tools=[look, photo], handoffs=[handoff(billing)]
    )
    return triage, model


class _NoEvents:
    def write_text_delta(self, text: str) -> None: ...

    def write_reasoning_delta(self, text: str) -> None: ...

    def write_event(self, type: str, payload: Any) -> None: ...


async def _drop(text: str) -> None: ...


async def run_step(kind: str, snapshot: Any) -> Any:
    """The outcome of one Step's `run`."""
    runner = OpenAIAgentsRunner(build_agent()[0], context_factory=lambda step: step.flow_id)
    activity: Any = SimpleNamespace(flow_id="session", attempt=1, step_execution_id=1, deadline=None)
    events = _NoEvents()
    if kind == "model":
        turn = build_turn_context(activity, snapshot, events, lambda: None)
        return model_step_outcome(await runner.run_model_step(turn), snapshot.options)
    call = DeferredToolExecution(
        flow_id="session",
        turn_id=snapshot.turn_id,
        tool_call=snapshot.record.to_tool_call(),
        idempotency_key=snapshot.idempotency_key,
        attempt=1,
        step_execution_id=1,
        events=events,
        heartbeat=lambda: None,
        save_heartbeat_checkpoint=_drop,
        framework_run_state=snapshot.framework_run_state,
    )
    outcome = await runner.execute_deferred_tool_call(call)
    return tool_outcome(outcome, snapshot.record.tool_name, snapshot.options)


def main() -> None:
    """Run the Step of the file named first, and write its outcome into the one named second."""
    kind, snapshot = pickle.loads(Path(sys.argv[1]).read_bytes())
    outcome = asyncio.run(run_step(kind, snapshot))
    Path(sys.argv[2]).write_bytes(pickle.dumps(outcome))


if __name__ == "__main__":
    main()
