"""Models that follow a script and record what they see, and sessions of agents that use them."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.profiles import ModelProfile
from pydantic_core import to_jsonable_python

from dex_agents import AgentSessionFlow
from dex_agents.testing import AgentTestEnvironment
from dex_agents_pydantic_ai import create_pydantic_ai_session_flow

SESSION_ID = "s"


def say(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])


def ask(*calls: ToolCallPart, text: str = "") -> ModelResponse:
    return ModelResponse(parts=[*([TextPart(text)] if text else []), *calls])


def call(name: str, arguments: Any = None, call_id: str | None = None) -> ToolCallPart:
    return ToolCallPart(name, {} if arguments is None else arguments, tool_call_id=call_id or f"call_{name}")


def _profile_without_tools() -> Any:
    known = ModelProfile.__annotations__
    name = "supported_native_tools" if "supported_native_tools" in known else "supported_builtin_tools"
    make: Any = ModelProfile
    return make(**{name: frozenset()})


class ScriptedModel:
    """Replies one after the other; a request too many fails the test.

    Args:
        replies: What it replies, or raises.
        can_stream: Whether it streams.
        has_provider_tools: Whether it may search for tools by itself.

    Attributes:
        seen: The messages of each request.
        infos: What else each request said.
    """

    def __init__(
        self, *replies: ModelResponse | Exception, can_stream: bool = False, has_provider_tools: bool = True
    ) -> None:
        self._replies = list(replies)
        self.seen: list[list[ModelMessage]] = []
        self.infos: list[AgentInfo] = []
        options: dict[str, Any] = {"stream_function": self._stream} if can_stream else {}
        if not has_provider_tools:
            options["profile"] = _profile_without_tools()
        self.model = FunctionModel(self._reply, **options)

    def _next(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.seen.append(copy.deepcopy(messages))
        self.infos.append(info)
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return copy.deepcopy(reply)

    def _reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return self._next(messages, info)

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        for index, part in enumerate(self._next(messages, info).parts):
            if isinstance(part, TextPart):
                for word in part.content.split(" "):
                    yield word if word == part.content.split(" ")[0] else f" {word}"
            elif isinstance(part, ToolCallPart):
                arguments = part.args_as_json_str()
                yield {index: DeltaToolCall(name=part.tool_name, json_args=arguments, tool_call_id=part.tool_call_id)}

    def part_kinds(self, request: int = -1) -> list[str]:
        return [part.part_kind for message in self.seen[request] for part in message.parts]

    def results(self, request: int = -1) -> list[Any]:
        return [
            part
            for message in self.seen[request]
            for part in message.parts
            if part.part_kind in ("tool-return", "retry-prompt")
        ]


class LiveSession:
    """A session that runs in this process."""

    def __init__(self, environment: AgentTestEnvironment) -> None:
        self.environment = environment
        self.client = environment.client

    async def say(self, text: str) -> str:
        """Send a message and return the text of the answer; a turn that failed raises its error."""
        await self.client.start_session(SESSION_ID, already_started="ignore")
        assert await self.client.send_user_message(SESSION_ID, text)
        return await self.answer()

    async def answer(self) -> str:
        state = await self.client.wait_until_idle(SESSION_ID)
        assert state.last_turn_error is None, state.last_turn_error
        return (await self.client.get_agent_snapshot(SESSION_ID)).messages[-1].text

    async def fail(self, text: str) -> tuple[str, str]:
        """Send a message whose turn fails, and return the error's type and text."""
        await self.client.start_session(SESSION_ID, already_started="ignore")
        assert await self.client.send_user_message(SESSION_ID, text)
        state = await self.client.wait_until_idle(SESSION_ID)
        assert state.last_turn_error is not None
        return state.last_turn_error.type, state.last_turn_error.message

    async def begin(self, text: str) -> None:
        await self.client.start_session(SESSION_ID, already_started="ignore")
        assert await self.client.send_user_message(SESSION_ID, text)


@contextlib.asynccontextmanager
async def live_session(directory: Path, agent: Agent[Any, Any], **options: Any) -> AsyncIterator[LiveSession]:
    """Run an agent's session; tools need no approval unless the test says so."""
    given = {"attempt_backoff": timedelta(0), "default_tool_effect": "read", **options}

    def create_flow(_: Path) -> AgentSessionFlow:
        return create_pydantic_ai_session_flow(agent, "TestAgent", **given)

    async with AgentTestEnvironment(create_flow, runs_worker=True, directory=directory) as environment:
        yield LiveSession(environment)


def comparable(messages: Sequence[ModelMessage]) -> list[Any]:
    """Messages without what differs between any two runs, such as times; results as the JSON that a model reads."""
    compared = []
    for message in messages:
        parts = []
        for part in message.parts:
            fields = {
                field.name: getattr(part, field.name)
                for field in dataclasses.fields(part)
                if field.name not in ("timestamp", "content_file_digests")
            }
            if getattr(part, "tool_name", "") is None:
                fields.pop("tool_call_id", None)  # a random one, for no call
            parts.append((type(part).__name__, to_jsonable_python(fields)))
        compared.append((message.kind, parts))
    return compared
