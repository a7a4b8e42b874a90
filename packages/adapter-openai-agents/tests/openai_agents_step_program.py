"""Runs one Step of the hopping test's session and ends: a program, and the agent that it and the test build.

`python openai_agents_step_program.py REQUEST OUTCOME`, as `dex_agents.testing.run_step_program` has it.
"""

from __future__ import annotations

import os
from typing import Any

from agents import Agent, RunContextWrapper, ToolOutputImage, function_tool, handoff, set_tracing_disabled
from agents.version import __version__ as sdk_version

from dex_agents.testing import run_step_program
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


def build_runner() -> OpenAIAgentsRunner:
    """The runner of one process."""
    return OpenAIAgentsRunner(build_agent()[0], context_factory=lambda step: step.flow_id)


if __name__ == "__main__":
    run_step_program(build_runner)
