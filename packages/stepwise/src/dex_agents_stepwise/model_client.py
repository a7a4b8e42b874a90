"""The port to a model: what one call gets and what it returns. A client makes exactly one model call per `generate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from dex_agents import AgentUsage, ModelCallMetadata

__all__ = [
    "ModelClient",
    "ModelInputItem",
    "ModelOutput",
    "ModelRequest",
    "ModelResponse",
    "ModelSettings",
    "ModelToolCall",
    "ModelToolDefinition",
    "ModelToolResult",
    "ModelUserText",
    "RequiredTool",
    "TokenCounter",
]


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """Settings of a model call; None leaves a setting to the provider.

    Attributes:
        temperature: Sampling temperature.
        max_output_tokens: Most tokens of one response.
        reasoning_effort: The provider's name of an effort level.
        provider_options: Anything else, passed to the client unchanged.
    """

    temperature: float | None = None
    max_output_tokens: int | None = None
    reasoning_effort: str | None = None
    provider_options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ModelToolDefinition:
    """A tool as the model sees it; `parameters` is the JSON Schema of its arguments object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class RequiredTool:
    """A tool choice: the response must call this tool."""

    tool_name: str


# Every model call makes the items of its whole conversation anew, which Structs do at half the cost of dataclasses.
class ModelToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A call the model asked for.

    Attributes:
        tool_call_id: The provider's ID; it may be blank or repeat.
        tool_name: The tool.
        arguments: JSON text of the arguments, as the model sent it.
    """

    tool_call_id: str
    tool_name: str
    arguments: str


class ModelUserText(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Input: what the user said, or a note of the session."""

    text: str


class ModelOutput(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Input: an earlier response of a model.

    Attributes:
        item: What this client returned as `ModelResponse.item`, to be sent back unchanged in place of `text` and
            `tool_calls`. None when another provider made the response, or when the provider would refuse it: then
            send `text` and `tool_calls`, whose arguments are JSON objects.
        text: The text, possibly empty.
        tool_calls: The calls. Each one's result follows as a `ModelToolResult`, in this order.
    """

    item: str | None
    text: str
    tool_calls: tuple[ModelToolCall, ...] = ()


class ModelToolResult(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Input: the result of one call.

    The results of a `ModelOutput` follow it directly, one per call, in call order. Where a provider repeats its call
    IDs, only that position tells results apart.
    """

    tool_call_id: str
    tool_name: str
    output: str


ModelInputItem: TypeAlias = ModelUserText | ModelOutput | ModelToolResult


def _ignore_delta(text: str) -> None:
    """No one listens."""


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """One model call.

    Attributes:
        instructions: The system prompt.
        input_items: The conversation, oldest first; every tool call has exactly one result right behind its output.
            Several user texts may follow each other: a turn that the user steered or stopped, or that failed, may have
            no answer. They stay apart, because they were said apart; a client whose provider wants user and model to
            alternate joins them.
        tools: The tools offered, possibly none.
        tool_choice: `none` when the model must answer without tools, a `RequiredTool` when it must call that one.
        settings: Settings from the agent definition.
        on_text_delta: Call it with each piece of text as it arrives; it never waits.
        on_reasoning_delta: The same for reasoning text.
    """

    instructions: str
    input_items: tuple[ModelInputItem, ...]
    tools: tuple[ModelToolDefinition, ...] = ()
    tool_choice: Literal["auto", "none"] | RequiredTool = "auto"
    settings: ModelSettings = ModelSettings()
    on_text_delta: Callable[[str], None] = _ignore_delta
    on_reasoning_delta: Callable[[str], None] = _ignore_delta


@dataclass(frozen=True, kw_only=True)
class ModelResponse:
    """The one response of a model call.

    Attributes:
        text: The whole text, possibly empty.
        reasoning_text: The whole reasoning text for people to read.
        tool_calls: The calls the model asked for, in its order.
        item: The response in the provider's own form, as JSON text; later requests hand it back byte for byte. None
            when text and calls say everything, or when the provider would not take the response back.
        usage: Tokens used; None when the provider did not say.
        metadata: What tracing tells about the call.
    """

    text: str = ""
    reasoning_text: str = ""
    tool_calls: tuple[ModelToolCall, ...] = ()
    item: str | None = None
    usage: AgentUsage | None = None
    metadata: ModelCallMetadata | None = None


@runtime_checkable
class ModelClient(Protocol):
    """A model of one provider. It is shared by all sessions, so it keeps nothing about any of them."""

    @property
    def provider(self) -> str:
        """Durable name of the provider."""
        ...

    @property
    def api(self) -> str:
        """Durable name of the provider's API, whose items only the same API can read."""
        ...

    async def generate(self, request: ModelRequest) -> ModelResponse:
        """Make exactly one model call, without retries of its own: an exception is retried by the session.

        Raise `dex_agents.TurnRefusedError` for what no retry can mend, such as a refused or too long request.
        Cancellation is asyncio cancellation.
        """
        ...


@runtime_checkable
class TokenCounter(Protocol):
    """A model client that counts tokens itself; with any other one they are estimated from the length of the text."""

    def count_tokens(self, text: str) -> int:
        """Tokens of a text in this model.

        It is asked about every text of the conversation before a model call, so it must be quick and do no I/O. Its
        answers are remembered for a while.
        """
        ...
