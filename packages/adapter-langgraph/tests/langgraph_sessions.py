"""Models that remember what they were asked, and one run of a graph: in a session, and in LangGraph alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Interrupt

from dex_agents import AgentMessage, ToolEffect
from dex_agents.testing import AgentTestEnvironment
from dex_agents_langgraph import LangGraphRunner, create_langgraph_session_flow

SESSION = "session"

MakeGraph = Callable[["Models", Any], Any]


class RecordingModel(BaseChatModel):
    """Gives its replies one after the other, and keeps each request: the names of the tools and the messages."""

    replies: Any
    requests: Any

    @property
    def _llm_type(self) -> str:
        return "recording"

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **options)

    def _generate(self, messages: list[BaseMessage], *_: Any, **options: Any) -> ChatResult:
        tools = [tool["function"]["name"] for tool in options.get("tools", ())]
        self.requests.append((tools, [shown(message) for message in messages]))
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return ChatResult(generations=[ChatGeneration(message=reply.model_copy(deep=True))])


class Models:
    """The models of one run.

    Attributes:
        requests: What each was asked, by name.
    """

    def __init__(self) -> None:
        self.requests: dict[str, list[Any]] = {}
        self._unused: dict[str, list[Any]] = {}

    def make(self, name: str, *replies: Any) -> RecordingModel:
        """A model with these replies."""
        self.requests[name], self._unused[name] = [], list(replies)
        model = RecordingModel(replies=None, requests=None)
        # Set behind pydantic's validation, which copies lists.
        model.replies, model.requests = self._unused[name], self.requests[name]
        return model

    @property
    def unused(self) -> dict[str, list[Any]]:
        """Replies nobody asked for."""
        return {name: replies for name, replies in self._unused.items() if replies}


def shown(message: BaseMessage) -> Any:
    """All of a message but its ID, what its provider says of the call, and who made it."""
    left_out = {"id", "response_metadata", "usage_metadata"}
    return {name: value for name, value in message.model_dump().items() if name not in left_out}


def calls(*made: tuple[str, dict[str, Any], str], text: str = "") -> AIMessage:
    """A model's message with tool calls of name, arguments and ID."""
    listed: list[Any] = [{"name": name, "args": args, "id": call_id} for name, args, call_id in made]
    return AIMessage(text, tool_calls=listed)


async def run_session(
    directory: Path, make: MakeGraph, models: Models, turns: Sequence[str], answer: str, **options: Any
) -> tuple[tuple[AgentMessage, ...], dict[str, Any]]:
    """The stored messages and the graph's state after these turns of a session."""

    def create_flow(_: Path) -> Any:
        return create_langgraph_session_flow(
            make(models, None), "GraphAgent", default_tool_effect=ToolEffect.READ, **options
        )

    async with AgentTestEnvironment(create_flow, runs_worker=True, directory=directory) as environment:
        sessions = environment.client
        await sessions.start_session(SESSION)
        for turn in turns:
            result = await sessions.send_and_wait(SESSION, turn, timeout=60)
            while result.status == "waiting_for_person":
                for asked in (await sessions.get_agent_snapshot(SESSION)).pending_interrupts:
                    if asked.kind == "approval":
                        await sessions.resolve_interrupt(SESSION, asked.interrupt_id, approved=True)
                    else:
                        await sessions.answer_question(SESSION, asked.interrupt_id, answer)
                result = await sessions.wait_for_turn(result.sent_message, timeout=60)
            assert result.status == "completed", result
        messages = (await sessions.get_agent_snapshot(SESSION)).messages
        flow: Any = environment.flow
        runner = flow.runner
        assert isinstance(runner, LangGraphRunner)
        return messages, runner.read_state(messages)


async def run_native(
    make: MakeGraph, models: Models, turns: Sequence[str], answer: str, context: Any = None
) -> dict[str, Any]:
    """The graph's state after these turns with LangGraph's in-memory checkpointer."""
    graph = make(models, InMemorySaver())
    config: Any = {"configurable": {"thread_id": SESSION}}
    for turn in turns:
        state = await graph.ainvoke({"messages": [HumanMessage(turn)]}, config, context=context)
        while asked := state.pop("__interrupt__", ()):
            answers = {interrupt.id: _native_answer(interrupt, answer) for interrupt in asked}
            state = await graph.ainvoke(Command(resume=answers), config, context=context)
    return dict((await graph.aget_state(config)).values)


def _native_answer(asked: Interrupt, answer: str) -> Any:
    value = asked.value
    if isinstance(value, dict) and "action_requests" in value:
        return {"decisions": [{"type": "approve"} for _ in value["action_requests"]]}
    return answer


def fresh_store() -> InMemoryStore:
    """A store with one item."""
    store = InMemoryStore()
    store.put(("users",), "ada", {"city": "London"})
    return store
