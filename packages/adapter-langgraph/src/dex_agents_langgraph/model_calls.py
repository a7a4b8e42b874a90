"""What happens to the model during one model step: counted, held to one superstep, and its messages repaired."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, GenerationChunk, LLMResult

from dex_agents import AgentUsage, ModelCallMetadata, TurnRefusedError
from dex_agents_langgraph.model_message_repair import StreamedCalls, repair_message

__all__ = [
    "EmptyReplyError",
    "FurtherModelCall",
    "FurtherModelCallGate",
    "ModelCallCheck",
    "ModelCallObserver",
    "UndeferredToolError",
    "model_call_metadata",
    "model_call_usage",
]


ModelCallCheck: TypeAlias = Callable[[Mapping[str, Any] | None, set[str]], None]
"""Looks at a model call before it begins: LangChain's description of the model, and the names of the offered tools."""


class FurtherModelCall(BaseException):
    """The graph is about to call a model again, which is a model step of its own.

    It is no `Exception`: a node or middleware that retries or falls back on errors must let it pass.
    """


class UndeferredToolError(TurnRefusedError):
    """A tool was about to run inside a model step, where a crash would run it again."""

    def __init__(self, tool_name: str) -> None:
        super().__init__(
            f"the tool {tool_name!r} was called by a node of the graph itself, inside a model step; it was not run. "
            "Name the node in tool_nodes={'node': [tools]}, or use a ToolNode"
        )


class EmptyReplyError(TurnRefusedError):
    """The model answered with nothing; providers refuse a history that holds such a message, now and in every turn."""

    def __init__(self) -> None:
        super().__init__("the model's reply is empty: neither text nor tool calls")


class ModelCallObserver(BaseCallbackHandler):
    """Sees every model call of one model step, at any depth of the graph.

    The handler is synchronous: LangChain drops what an asynchronous one raises when a tool or model is called
    synchronously.

    Args:
        on_first_answer: Called when a model call ended; the graph then goes no further than its superstep.
        call_prefix: Begins the IDs of calls that have none.
    """

    raise_error = True
    run_inline = True

    def __init__(self, on_first_answer: Callable[[], None], call_prefix: str) -> None:
        self._on_first_answer = on_first_answer
        self._call_prefix = call_prefix
        self._streamed: dict[UUID, StreamedCalls] = {}
        self._usage = AgentUsage()
        self._metadata: ModelCallMetadata | None = None
        self.allows_model_calls = True
        self.refusal: TurnRefusedError | None = None
        self.call_order: list[str] = []
        self.produced_ids: set[str] = set()

    @property
    def usage(self) -> AgentUsage:
        """What all model calls of the step used."""
        return self._usage

    @property
    def metadata(self) -> ModelCallMetadata | None:
        """What is known of the latest model call."""
        return self._metadata

    def on_llm_new_token(
        self,
        token: str | list[str | dict[str, Any]],
        *,
        chunk: GenerationChunk | ChatGenerationChunk | None = None,
        run_id: UUID,
        **_: Any,
    ) -> None:
        """Keep the raw calls of a streamed message."""
        if isinstance(chunk, ChatGenerationChunk) and isinstance(chunk.message, AIMessageChunk):
            self._streamed.setdefault(run_id, StreamedCalls()).add(chunk.message)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """Count the call and repair its message."""
        streamed = self._streamed.pop(run_id, None)
        message = None
        generation = response.generations[0][0] if response.generations and response.generations[0] else None
        if isinstance(generation, ChatGeneration) and isinstance(generation.message, AIMessage):
            message = generation.message
            prefix = f"{self._call_prefix}-{self._usage.model_calls}"
            if not (message.content or message.tool_calls or message.invalid_tool_calls):
                self.refusal = EmptyReplyError()
                raise self.refusal
            repair_message(message, streamed.calls() if streamed else (), prefix)
            self.produced_ids.add(message.id or "")
            self.call_order += [call["id"] or "" for call in message.tool_calls]
        self._usage = self._usage.add(model_call_usage(message))
        self._metadata = None if message is None else model_call_metadata(message)
        self._on_first_answer()

    def on_tool_start(self, serialized: dict[str, Any], input_str: str, **_: Any) -> None:
        """Stop a tool that was not deferred."""
        name = (serialized or {}).get("name") or "?"
        self.refusal = UndeferredToolError(name)
        raise self.refusal


class FurtherModelCallGate(AsyncCallbackHandler):
    """Stops a model call that belongs to the next model step, before it begins.

    It runs behind LangChain's inline handlers: what such a handler raises leaves the others' coroutines unawaited.

    Args:
        observer: Says whether the step may still call a model.
        check_call: Given what LangChain says of the model and the names of the tools that a call offers; raises where
            the session does not allow it.
    """

    raise_error = True

    def __init__(self, observer: ModelCallObserver, check_call: ModelCallCheck) -> None:
        self._observer = observer
        self._check_call = check_call

    async def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        invocation_params: dict[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Stop it."""
        self._check()
        try:
            self._check_call(serialized, _tool_names((invocation_params or {}).get("tools")))
        except TurnRefusedError as error:
            self._observer.refusal = error
            raise

    async def on_llm_start(self, serialized: dict[str, Any], prompts: list[str], **_: Any) -> None:
        """Stop it."""
        self._check()

    def _check(self) -> None:
        if not self._observer.allows_model_calls:
            raise FurtherModelCall


def _tool_names(tools: Any) -> set[str]:
    """Names in any provider's form of tools."""
    offered = [tool for tool in tools or () if isinstance(tool, dict)]
    names = (tool.get("name") or (tool.get("function") or {}).get("name") for tool in offered)
    return {name for name in names if isinstance(name, str)}


def model_call_usage(message: AIMessage | None) -> AgentUsage:
    """What one model call used, as far as its message says."""
    used: Any = (message.usage_metadata if message is not None else None) or {}
    inputs, outputs = used.get("input_token_details") or {}, used.get("output_token_details") or {}
    return AgentUsage(
        model_calls=1,
        input_tokens=used.get("input_tokens") or 0,
        output_tokens=used.get("output_tokens") or 0,
        cached_input_tokens=inputs.get("cache_read") or 0,
        cache_write_tokens=inputs.get("cache_creation") or 0,
        reasoning_tokens=outputs.get("reasoning") or 0,
        total_tokens=used.get("total_tokens") or 0,
    )


def model_call_metadata(message: AIMessage) -> ModelCallMetadata:
    """What a message says of its model call."""
    known = message.response_metadata
    reason = known.get("finish_reason") or known.get("stop_reason")
    return ModelCallMetadata(
        response_model=known.get("model_name") or known.get("model"),
        provider_name=known.get("model_provider"),
        response_id=known.get("id"),
        finish_reasons=(str(reason),) if reason else (),
    )
