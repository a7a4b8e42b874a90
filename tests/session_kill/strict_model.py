"""A scripted model behind the strictest provider, and an engine with sessions of it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

from msgspec.structs import replace

from dex_agents import ToolPolicy
from dex_agents.session.texts import NOTE_PREFIX
from dex_agents_stepwise import (
    AgentDefinition,
    FunctionTool,
    ModelOutput,
    ModelRequest,
    ModelResponse,
    ModelUserText,
    ScriptedModelClient,
    ScriptedModelReply,
    ScriptedToolCall,
    create_stepwise_agent_session_flow,
)
from dex_flow.embedded import EmbeddedEngine
from tests.session_kill.sessions import Sessions
from tests.session_kill.strict_transcript import check_request

__all__ = ["Script", "StrictModel", "call", "calls", "open_sessions", "say", "script"]

Script: TypeAlias = Callable[[ModelRequest], ScriptedModelReply | Awaitable[ScriptedModelReply]]
Reply: TypeAlias = ScriptedModelReply | Exception


class StrictModel:
    """Answers by a script, and remembers every request that a strict provider would have refused.

    Args:
        answer: The script.
        repeats_ids: The script gives blank or repeated tool call IDs.
        delta_characters: Text streams in pieces of this length; None sends it in one.
    """

    provider = "scripted"
    api = "scripted"

    def __init__(self, answer: Script, *, repeats_ids: bool = False, delta_characters: int | None = None) -> None:
        self._client = ScriptedModelClient(answer, max_recorded_requests=0, delta_characters=delta_characters)
        self._repeats_ids = repeats_ids
        self.requests: list[ModelRequest] = []
        self.problems: list[str] = []

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """One model call."""
        self.requests.append(request)
        try:
            check_request(request, repeats_ids=self._repeats_ids)
        except (AssertionError, ValueError) as problem:
            self.problems.append(repr(problem))
            raise
        return await self._client.generate(request)

    def results(self) -> list[str]:
        """The tool results since the latest user text in the latest request."""
        return [result.output for result in ScriptedModelClient.tool_results(self.requests[-1])]


def say(text: str) -> ScriptedModelReply:
    """A reply with text alone."""
    return ScriptedModelReply(text=text)


def call(tool_name: str, arguments: Mapping[str, Any] | str = "", tool_call_id: str | None = None) -> ScriptedToolCall:
    """A tool call of a reply."""
    return ScriptedToolCall(tool_name=tool_name, arguments=arguments, tool_call_id=tool_call_id)


def calls(*tool_calls: ScriptedToolCall) -> ScriptedModelReply:
    """A reply that asks for tools."""
    return ScriptedModelReply(tool_calls=tool_calls)


def script(*turns: Sequence[Reply]) -> Script:
    """Replies by turn and by the number of the model step in it; an exception is raised."""

    def answer(request: ModelRequest) -> ScriptedModelReply:
        turn, step = -1, 0
        for item in request.input_items:
            if isinstance(item, ModelUserText) and not item.text.startswith(NOTE_PREFIX):
                turn, step = turn + 1, 0
            elif isinstance(item, ModelOutput):
                step += 1
        reply = turns[turn][step]
        if isinstance(reply, Exception):
            raise reply
        return reply

    return answer


@contextlib.asynccontextmanager
async def open_sessions(
    directory: Path,
    model: StrictModel,
    tools: Sequence[FunctionTool[..., Any]] = (),
    *,
    tool_policies: Mapping[str, ToolPolicy] | None = None,
    built_in_tools: Sequence[str] = (),
    step_options: Mapping[str, Mapping[str, Any]] | None = None,
    engine_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> AsyncIterator[Sessions]:
    """Sessions of an agent in this process. At the end, no request of the model may have broken a rule.

    Args:
        directory: Holds the database, so that a second engine goes on with the same sessions.
        model: The model.
        tools: The tools.
        tool_policies: The agent's policies.
        built_in_tools: The session's tools that the agent offers.
        step_options: Fields of `StepOptions` by Step type, in place of the session's own.
        engine_options: Options of the engine.
        options: Options of the session Flow; failed attempts are repeated at once unless told otherwise.
    """
    agent = AgentDefinition(
        name="strict",
        instructions="You are tested.",
        model=model,
        tools=tools,
        tool_policies=dict(tool_policies or {}),
        built_in_tools=built_in_tools,
    )
    flow = create_stepwise_agent_session_flow(agent, "StrictAgent", **{"attempt_backoff": timedelta(0), **options})
    for step_type, changes in (step_options or {}).items():
        step = flow.steps[step_type]
        step.options = replace(step.options, **changes)
    engine_options = {"durability": "process", **(engine_options or {})}
    async with EmbeddedEngine(directory / "sessions.db", flows=[flow], **engine_options) as engine:
        yield Sessions(engine, flow)
    assert model.problems == []
