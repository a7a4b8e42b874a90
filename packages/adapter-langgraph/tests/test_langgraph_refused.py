"""What cannot be made safe is refused by name: when the Flow is built, or before it happens."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph_parity_agents import add
from langgraph_sessions import SESSION, Models, calls

from dex_agents import ToolEffect
from dex_agents.testing import AgentTestEnvironment
from dex_agents_langgraph import RemoteTask, create_langgraph_session_flow, current_session_tool_call
from dex_agents_langgraph.session_middleware import SessionToolsMiddleware


def _error_of(directory: Path, graph: Any, *, plan_mode: bool = False, **options: Any) -> str:
    directory.mkdir(exist_ok=True)

    def create_flow(_: Path) -> Any:
        return create_langgraph_session_flow(graph, "Refused", default_tool_effect=ToolEffect.READ, **options)

    async def run() -> str:
        async with AgentTestEnvironment(create_flow, runs_worker=True, directory=directory) as environment:
            await environment.client.start_session(SESSION)
            result = await environment.client.send_and_wait(SESSION, "go", plan_mode=plan_mode, timeout=60)
            return "" if result.error is None else f"{result.error.type}: {result.error.message}"

    return asyncio.run(run())


def test_a_planning_turn_that_offers_the_graphs_tools_is_refused_before_the_model_is_asked(tmp_path: Path) -> None:
    models = Models()
    graph = create_agent(models.make("main", AIMessage("no")), [add])
    error = _error_of(tmp_path, graph, plan_mode=True, plan_mode_enabled=True, built_in_tools=("write_todos",))
    assert "offers its model add in a planning turn" in error
    assert "SessionToolsMiddleware" in error
    assert models.requests["main"] == []


def test_a_planning_turn_with_the_session_middleware_offers_the_plan_alone(tmp_path: Path) -> None:
    models = Models()
    graph = create_agent(models.make("main", AIMessage("my plan")), [add], middleware=[SessionToolsMiddleware()])
    options: Any = {"plan_mode_enabled": True, "built_in_tools": ("write_todos",)}
    assert _error_of(tmp_path, graph, plan_mode=True, **options) == ""
    assert [request[0] for request in models.requests["main"]] == [["write_todos"]]


def test_a_tool_that_a_node_calls_itself_is_stopped_even_where_the_node_catches_everything(tmp_path: Path) -> None:
    ran: list[int] = []

    def spend(x: int) -> str:
        """Spends."""
        ran.append(x)
        return "spent"

    tool = StructuredTool.from_function(spend)

    async def work(state: MessagesState) -> dict[str, Any]:
        try:
            text = await tool.ainvoke({"x": 1})
        except Exception:
            text = "never mind"
        return {"messages": [AIMessage(str(text))]}

    graph = StateGraph(MessagesState)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    error = _error_of(tmp_path, graph.compile())
    assert error.startswith("UndeferredToolError: the tool 'spend' was called by a node")
    assert ran == []


def test_an_empty_reply_fails_its_turn_by_name(tmp_path: Path) -> None:
    error = _error_of(tmp_path, create_agent(Models().make("main", AIMessage("")), [add]))
    assert error.startswith("EmptyReplyError: the model's reply is empty")


def test_a_state_of_a_type_that_no_schema_names_fails_its_turn_by_name(tmp_path: Path) -> None:
    async def work(state: Any) -> dict[str, Any]:
        return {"messages": [AIMessage("done")], "anything": Secret("x")}

    class AnyState(MessagesState):
        anything: Any

    graph = StateGraph(AnyState)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    error = _error_of(tmp_path, graph.compile())
    assert error.startswith("RefusedStateError: the graph's state ")
    assert "Secret" in error


class Secret:
    def __init__(self, text: str) -> None:
        self.text = text


def test_what_has_no_state_or_keeps_its_own_is_refused_when_the_flow_is_built() -> None:
    @entrypoint()
    async def functional(text: str) -> str:
        return text

    with pytest.raises(ValueError, match="entrypoint"):
        create_langgraph_session_flow(functional, "A")

    def parent(checkpointer: Any) -> Any:
        inner = create_agent(Models().make("main", AIMessage("x")), [add], checkpointer=checkpointer)
        graph = StateGraph(MessagesState)
        graph.add_node("inner", inner)
        graph.add_edge(START, "inner")
        return graph.compile()

    with pytest.raises(ValueError, match="checkpointer of its own"):
        create_langgraph_session_flow(parent(InMemorySaver()), "A")
    with pytest.raises(ValueError, match="checkpointer=False"):
        create_langgraph_session_flow(parent(False), "A")
    with pytest.raises(TypeError, match="must be a compiled LangGraph graph"):
        create_langgraph_session_flow("graph", "A")


def test_tool_metadata_that_means_nothing_is_refused_when_the_flow_is_built() -> None:
    def agent(**metadata: Any) -> Any:
        tool = StructuredTool.from_function(lambda: "", name="t", description="T.", metadata=metadata)
        return create_agent(Models().make("main", calls(("t", {}, "c"))), [tool])

    with pytest.raises(ValueError, match="effect must be one of"):
        create_langgraph_session_flow(agent(effect="destroys"), "A")
    with pytest.raises(TypeError, match="requires_approval must be a bool"):
        create_langgraph_session_flow(agent(requires_approval="yes"), "A")


def test_a_tool_named_like_an_enabled_built_in_tool_is_refused() -> None:
    tool = StructuredTool.from_function(lambda: "", name="ask_user", description="T.")
    graph = create_agent(Models().make("main", AIMessage("x")), [tool])
    with pytest.raises(TypeError, match="ask_user uses the name of an enabled built-in tool"):
        create_langgraph_session_flow(graph, "A", built_in_tools=("ask_user",))


def test_a_task_that_nothing_follows_is_refused_and_so_is_a_second_one(tmp_path: Path) -> None:
    seen: list[str] = []

    def work() -> str:
        """Starts work."""
        call = current_session_tool_call()
        assert call is not None
        with contextlib.suppress(RuntimeError):
            for number in range(2):
                seen.append(call.start_task(f"task-{number}", poll_interval_seconds=1))  # noqa: PERF401 -- one by one
        return "worked"

    model = Models().make("main", calls(("work", {}, "c1")), AIMessage("done"), AIMessage("again"))
    graph = create_agent(model, [StructuredTool.from_function(work)])
    assert _error_of(tmp_path / "unknown", graph) == ""
    assert seen == []
    task = RemoteTask(poll=lambda poll: f"{poll.tool_call.task_id} is done")
    models = Models()
    model = models.make("main", calls(("work", {}, "c1")), AIMessage("done"))
    graph = create_agent(model, [StructuredTool.from_function(work)])
    assert _error_of(tmp_path / "known", graph, remote_tasks={"work": task}) == ""
    assert seen == ["started task-0"]
    assert models.requests["main"][-1][1][-1]["content"] == "task-0 is done"
    with pytest.raises(TypeError, match="must be a RemoteTask"):
        create_langgraph_session_flow(graph, "A", remote_tasks={"work": "task"})  # type: ignore[dict-item]
