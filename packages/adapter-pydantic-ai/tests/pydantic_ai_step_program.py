"""Runs one Step of the hopping test's session and ends: a program, and the agent that it and the test build.

`python pydantic_ai_step_program.py REQUEST OUTCOME`, as `dex_agents.testing.run_step_program` has it.
"""

from __future__ import annotations

import os

import pydantic_ai
from pydantic_ai import Agent, BinaryContent, RunContext, ToolReturn
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from dex_agents.testing import run_step_program
from dex_agents_pydantic_ai import PydanticAIRunner, current_tool_call
from dex_agents_pydantic_ai.agent_runs import AgentRuns

LOG = "HOPPING_LOG"
DRAFT = "a draft"
READ = {"effect": "read"}

# What the model says, by the number of its responses so far.
RESPONSES = [
    ModelResponse(
        parts=[
            ThinkingPart("look twice", signature="sig+/==", provider_name="function"),
            ToolCallPart("look", {"place": "a"}, "c1"),
            ToolCallPart("photo", {}, "c2"),
        ]
    ),
    ModelResponse(parts=[ToolCallPart("flaky", {}, "c3")]),
    ModelResponse(parts=[ToolCallPart("flaky", {}, "c4")]),
    ModelResponse(parts=[ToolCallPart("refund", {"order": 7}, "c5")]),
    ModelResponse(parts=[TextPart(DRAFT)]),
    ModelResponse(parts=[TextPart("refunded")]),
    ModelResponse(parts=[TextPart("bye")]),
]


def note(text: str) -> None:
    """Say what happened in which process, where the test reads it."""
    if LOG in os.environ:
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(f"{os.getpid()} {pydantic_ai.__version__} {text}\n")


def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    said = sum(isinstance(message, ModelResponse) for message in messages)
    note(f"model {said}")
    return RESPONSES[said]


def build_agent(*, asks_approval: bool = True) -> Agent[str, str]:
    """The session's agent."""
    agent = Agent(FunctionModel(_answer), deps_type=str, instructions="You sort.", system_prompt="Be kind.", retries=2)

    @agent.tool(metadata=READ)
    def look(ctx: RunContext[str], place: str) -> str:
        note(f"look {place} {_key()}")
        return f"{ctx.deps} saw {place}"

    @agent.tool_plain(metadata=READ)
    def photo() -> ToolReturn:
        return ToolReturn("taken", content=["see", BinaryContent(b"\x89PNG", media_type="image/png")])

    @agent.tool(metadata=READ)
    def flaky(ctx: RunContext[str]) -> str:
        note(f"flaky {_key()}")
        if ctx.retry == 0:
            raise ModelRetry("too early")
        return f"retry {ctx.retry}"

    @agent.tool_plain(requires_approval=asks_approval)
    def refund(order: int) -> str:
        note(f"refund {order} {_key()}")
        return f"refunded {order}"

    @agent.output_validator
    def no_drafts(ctx: RunContext[str], output: str) -> str:
        if output == DRAFT:
            raise ModelRetry("no drafts")
        return output

    return agent


def _key() -> str:
    try:
        return str(current_tool_call().idempotency_key)
    except LookupError:
        return "native"


def build_runner() -> PydanticAIRunner:
    """The runner of one process."""
    return PydanticAIRunner(AgentRuns(agent=build_agent(), deps_factory=lambda context: context.flow_id))


if __name__ == "__main__":
    run_step_program(build_runner)
