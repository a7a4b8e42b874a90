"""Graphs with two tools that leave effects outside, and a program that runs one on LangGraph's SQLite checkpointer.

`python langgraph_crash_program.py DIRECTORY GRAPH [resume]`
"""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from dex_agents import AgentSessionFlow, ToolEffect, ToolPolicy
from dex_agents.testing import FileGate, InvocationLog
from dex_agents_langgraph import create_langgraph_session_flow

GATE = "charging"


class CrashModel(BaseChatModel):
    """Asks for both tools, then says what came of them."""

    @property
    def _llm_type(self) -> str:
        return "crash"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        calls: list[Any] = [{"name": name, "args": {}, "id": name} for name in ("look_up", "charge")]
        is_done = isinstance(messages[-1], ToolMessage)
        reply = AIMessage(f"Then: {messages[-1].text}") if is_done else AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=reply)])


def make_tools(directory: Path) -> list[BaseTool]:
    log = InvocationLog(directory / "invocations.jsonl")

    async def look_up() -> str:
        """Looks something up."""
        log.record("key", "look_up")
        return "found"

    async def charge() -> str:
        """Charges a card."""
        log.record("key", "charge")
        await FileGate(directory, GATE).pass_through()
        return "charged"

    return [StructuredTool.from_function(coroutine=tool) for tool in (look_up, charge)]


def make_agent(directory: Path, saver: Any = None) -> Any:
    return create_agent(CrashModel(), make_tools(directory), checkpointer=saver)


def make_react_graph(directory: Path, saver: Any = None) -> Any:
    model, tools = CrashModel(), make_tools(directory)

    async def call_model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", call_model)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    return graph.compile(checkpointer=saver)


def create_agent_flow(directory: Path) -> AgentSessionFlow:
    return _create_flow(make_agent(directory))


def create_react_flow(directory: Path) -> AgentSessionFlow:
    return _create_flow(make_react_graph(directory))


def _create_flow(graph: Any) -> AgentSessionFlow:
    # A tool that nothing classifies runs at most once; here it needs no approval.
    policy = ToolPolicy(effect=ToolEffect.UNCLASSIFIED, requires_approval=False)
    policies = dict.fromkeys(("look_up", "charge"), policy)
    return create_langgraph_session_flow(graph, "CrashAgent", tool_policies=policies, attempt_backoff=timedelta(0))


GRAPHS = {"agent": (make_agent, create_agent_flow), "react_graph": (make_react_graph, create_react_flow)}


async def run_with_checkpointer(directory: Path, graph_name: str, graph_input: Any) -> str:
    """Run a graph on LangGraph's own SQLite checkpointer with its strictest durability."""
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(str(directory / "checkpoints.db")) as saver:
        graph = GRAPHS[graph_name][0](directory, saver)
        config = {"configurable": {"thread_id": "session"}}
        state = await graph.ainvoke(graph_input, config, durability="sync")
        return str(state["messages"][-1].text)


def main() -> None:
    directory, graph_name, *resumes = sys.argv[1:]
    graph_input = None if resumes else {"messages": [HumanMessage("go")]}
    print("answered", asyncio.run(run_with_checkpointer(Path(directory), graph_name, graph_input)))


if __name__ == "__main__":
    main()
