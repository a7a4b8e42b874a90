"""Whole sessions of graphs of many shapes, beside a native run of the same graph."""

from __future__ import annotations

import asyncio
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode, tools_condition
from langgraph.types import Command, Send, interrupt

from dex_agents import AgentSnapshot, ToolEffect
from dex_agents.testing import AgentTestEnvironment
from dex_agents_langgraph import LangGraphRunner, create_langgraph_session_flow


class ReplyModel(BaseChatModel):
    """Answers by how many of its own messages follow the last user message, and keeps what it was sent."""

    replies: list[AIMessage]
    inputs: list[list[tuple[str, str]]]

    @property
    def _llm_type(self) -> str:
        return "replies"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        self.inputs.append([(message.type, str(message.text)) for message in messages])
        place = 0
        for message in reversed(messages):
            if isinstance(message, HumanMessage):
                break
            place += isinstance(message, AIMessage)
        reply = self.replies[min(place, len(self.replies) - 1)].model_copy(deep=True)
        return ChatResult(generations=[ChatGeneration(message=reply)])


class MoodState(AgentState[Any]):
    mood: str


class MoodMessages(MessagesState):
    mood: str


class Notes(MessagesState):
    notes: Annotated[list[str], operator.add]


@tool
async def add(a: int, b: int) -> str:
    """Add."""
    return str(a + b)


@tool
def set_mood(mood: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Update the state."""
    return Command(update={"mood": mood, "messages": [ToolMessage(f"mood {mood}", tool_call_id=tool_call_id)]})


@tool
def read_mood(state: Annotated[dict[str, Any], InjectedState]) -> str:
    """Read the state."""
    return f"{state.get('mood')} {len(state['messages'])}"


TOOLS = [add, set_mood, read_mood]
Inputs = list[list[tuple[str, str]]]


def _call(*calls: tuple[str, dict[str, Any], str]) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": args, "id": call_id} for name, args, call_id in calls])


REPLIES = [
    _call(("add", {"a": 1, "b": 2}, "c1"), ("set_mood", {"mood": "ok"}, "c2")),
    _call(("read_mood", {}, "c3")),
    AIMessage("done"),
]


def _agent(inputs: Inputs, saver: Any = None, **options: Any) -> Any:
    model = ReplyModel(replies=REPLIES, inputs=[])
    model.inputs = inputs
    return create_agent(model, TOOLS, state_schema=MoodState, checkpointer=saver, **options)


def _model(inputs: Inputs, *replies: AIMessage) -> ReplyModel:
    model = ReplyModel(replies=list(replies), inputs=[])
    model.inputs = inputs
    return model


def _react(inputs: Inputs, saver: Any = None) -> Any:
    model = _model(inputs, *REPLIES)

    async def agent(state: MoodMessages) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MoodMessages)
    graph.add_node("agent", agent)
    graph.add_node("tools", ToolNode(TOOLS))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile(checkpointer=saver)


def _subgraph(inputs: Inputs, saver: Any = None) -> Any:
    model = _model(inputs, AIMessage("final"))

    async def last(state: MoodState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MoodState)
    graph.add_node("inner", _agent(inputs))
    graph.add_node("last", last)
    graph.add_edge(START, "inner")
    graph.add_edge("inner", "last")
    return graph.compile(checkpointer=saver)


def _two_models(inputs: Inputs, saver: Any = None, *, is_sync: bool = False) -> Any:
    planner, writer = _model(inputs, AIMessage("plan")), _model(inputs, AIMessage("written"))

    async def plan(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await planner.ainvoke(state["messages"])]}

    async def write(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await writer.ainvoke(state["messages"])]}

    def write_sync(state: MessagesState) -> dict[str, Any]:
        return {"messages": [writer.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("plan", plan)
    graph.add_node("write", write_sync if is_sync else write)
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "write")
    return graph.compile(checkpointer=saver)


def _two_models_sync(inputs: Inputs, saver: Any = None) -> Any:
    return _two_models(inputs, saver, is_sync=True)


def _fan_out(inputs: Inputs, saver: Any = None) -> Any:
    model = _model(inputs, AIMessage("note"))

    async def one(state: Any) -> dict[str, Any]:
        return {"notes": [str((await model.ainvoke([HumanMessage("n")])).text)]}

    async def last(state: Notes) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{len(state['notes'])} notes")]}

    graph = StateGraph(Notes)
    graph.add_node("one", one)
    graph.add_node("last", last)
    graph.add_conditional_edges(START, lambda _: [Send("one", {}), Send("one", {})], ["one"])
    graph.add_edge("one", "last")
    return graph.compile(checkpointer=saver)


async def _session(directory: Path, make: Callable[[Inputs], Any], inputs: Inputs) -> tuple[AgentSnapshot, Any]:
    def create_flow(_: Path) -> Any:
        return create_langgraph_session_flow(make(inputs), "GraphAgent", default_tool_effect=ToolEffect.READ)

    async with AgentTestEnvironment(create_flow, runs_worker=True, directory=directory) as environment:
        sessions = environment.client
        await sessions.start_session("s", initial_message="go")
        assert (await sessions.wait_until_idle("s")).last_turn_error is None
        await sessions.send_user_message("s", "again")
        assert (await sessions.wait_until_idle("s")).last_turn_error is None
        snapshot = await sessions.get_agent_snapshot("s")
        runner: Any = environment.flow
        assert isinstance(runner.runner, LangGraphRunner)
        return snapshot, runner.runner.read_state(snapshot.messages)


async def _native(make: Callable[..., Any], inputs: Inputs) -> Any:
    graph = make(inputs, InMemorySaver())
    config = {"configurable": {"thread_id": "s"}}
    await graph.ainvoke({"messages": [HumanMessage("go")]}, config)
    return await graph.ainvoke({"messages": [HumanMessage("again")]}, config)


def _shown(messages: list[BaseMessage]) -> list[tuple[str, str]]:
    return [(message.type, str(message.text)) for message in messages]


@pytest.mark.parametrize("make", [_agent, _react, _subgraph, _two_models, _two_models_sync, _fan_out])
def test_models_see_and_states_hold_what_a_native_run_gives(make: Callable[..., Any], tmp_path: Path) -> None:
    inputs: Inputs = []
    native_inputs: Inputs = []
    _, state = asyncio.run(_session(tmp_path, make, inputs))
    native = asyncio.run(_native(make, native_inputs))
    assert len(inputs) > 1
    assert inputs == native_inputs
    assert _shown(state.pop("messages")) == _shown(native.pop("messages"))
    assert state == native


def test_the_middleware_that_asks_a_human_becomes_the_sessions_approval(tmp_path: Path) -> None:
    inputs: Inputs = []

    def create_flow(_: Path) -> Any:
        graph = _agent(inputs, middleware=[HumanInTheLoopMiddleware(interrupt_on={"add": True})])
        return create_langgraph_session_flow(graph, "GraphAgent", default_tool_effect=ToolEffect.READ)

    async def run() -> list[tuple[str, str]]:
        async with AgentTestEnvironment(create_flow, runs_worker=True, directory=tmp_path) as environment:
            sessions = environment.client
            await sessions.start_session("s", initial_message="go")
            await sessions.reject("s", "not now", tool_name="add")
            await sessions.wait_until_idle("s")
            return await sessions.read_tool_call_statuses("s")

    assert ("add", "rejected") in asyncio.run(run())
    assert ("tool", "not now") in inputs[-1]


def test_an_interrupt_of_a_node_is_a_question(tmp_path: Path) -> None:
    async def gate(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"you said {interrupt('continue?')}")]}

    def create_flow(_: Path) -> Any:
        graph = StateGraph(MessagesState)
        graph.add_node("gate", gate)
        graph.add_edge(START, "gate")
        return create_langgraph_session_flow(graph.compile(), "GraphAgent")

    async def run() -> str:
        async with AgentTestEnvironment(create_flow, runs_worker=True, directory=tmp_path) as environment:
            sessions = environment.client
            await sessions.start_session("s", initial_message="go")
            asked = await sessions.answer("s", "yes")
            assert asked.question == "continue?"
            await sessions.wait_until_idle("s")
            return (await sessions.get_agent_snapshot("s")).messages[-1].text

    assert asyncio.run(run()) == "you said yes"


def test_a_tool_that_a_node_calls_itself_is_stopped_by_name(tmp_path: Path) -> None:
    async def work(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(str(await add.ainvoke({"a": 1, "b": 2})))]}

    def create_flow(_: Path) -> Any:
        graph = StateGraph(MessagesState)
        graph.add_node("work", work)
        graph.add_edge(START, "work")
        return create_langgraph_session_flow(graph.compile(), "GraphAgent")

    async def run() -> Any:
        async with AgentTestEnvironment(create_flow, runs_worker=True, directory=tmp_path) as environment:
            await environment.client.start_session("s", initial_message="go")
            return (await environment.client.wait_until_idle("s")).last_turn_error

    error = asyncio.run(run())
    assert error.type == "UndeferredToolError"
    assert "'add'" in error.message


def test_what_cannot_be_made_safe_is_refused_when_the_flow_is_built() -> None:
    with pytest.raises(TypeError, match="not compiled"):
        create_langgraph_session_flow(StateGraph(MessagesState), "A")
    with pytest.raises(ValueError, match="messages_key"):
        create_langgraph_session_flow(_react([]), "A", messages_key="chat")
    with pytest.raises(ValueError, match="no such node"):
        create_langgraph_session_flow(_react([]), "A", tool_nodes={"nope": TOOLS})
    with pytest.raises(ValueError, match="interrupt_before"):
        create_langgraph_session_flow(_agent([], interrupt_before=["tools"]), "A")
