"""A chat model that answers by script, for tests of sessions and for examples: it needs no key and no network."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr

__all__ = ["ScriptedChatModel", "ScriptedReply", "call_tool"]

ScriptedReply: TypeAlias = str | AIMessage | Callable[[Sequence[BaseMessage]], str | AIMessage]
"""What the model says: a text, a message, or a function of the messages it is sent."""


def call_tool(name: str, tool_call_id: str = "call_1", /, **arguments: Any) -> AIMessage:
    """A reply that calls one tool.

    Args:
        name: The tool.
        tool_call_id: The call's ID.
        arguments: Its arguments.
    """
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": tool_call_id, "type": "tool_call"}])


class ScriptedChatModel(BaseChatModel):
    """Answers a request that holds n replies of a model with its reply number n, so that every process and every
    attempt of a session answers alike. It streams word by word.

    Args:
        replies: What it says; the last one also answers everything behind it when it is a function.
    """

    _replies: tuple[ScriptedReply, ...] = PrivateAttr(default=())
    _requests: list[list[BaseMessage]] = PrivateAttr(default_factory=list)

    def __init__(self, *replies: ScriptedReply) -> None:
        super().__init__()
        self._replies = replies

    @property
    def requests(self) -> list[list[BaseMessage]]:
        """The messages of every request in this process, oldest first."""
        return self._requests

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        """The model with tools; it calls those that its script says."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **options)

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._reply(messages))])

    def _stream(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any
    ) -> Iterator[ChatGenerationChunk]:
        reply = self._reply(messages)
        words = re.findall(r"\S+\s*|\s+", str(reply.text))
        last = AIMessageChunk(
            content="",
            tool_calls=reply.tool_calls,
            usage_metadata=reply.usage_metadata,
            response_metadata=reply.response_metadata,
            chunk_position="last",
        )
        for message in (*(AIMessageChunk(content=word) for word in words), last):
            chunk = ChatGenerationChunk(message=message)
            if run_manager is not None:
                run_manager.on_llm_new_token(str(message.text), chunk=chunk)
            yield chunk

    def _reply(self, messages: list[BaseMessage]) -> AIMessage:
        self._requests.append(list(messages))
        place = sum(isinstance(message, AIMessage) for message in messages)
        if place >= len(self._replies):
            if not self._replies or not callable(self._replies[-1]):
                raise ValueError(f"the script has {len(self._replies)} replies, and number {place + 1} was asked for")
            place = -1
        reply = self._replies[place]
        said = reply(messages) if callable(reply) else reply
        return AIMessage(said) if isinstance(said, str) else said.model_copy(deep=True)
