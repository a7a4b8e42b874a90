"""Graphs for the parity tests: loops, subgraphs, fan-outs, handoffs, supervisors and deep agents."""

from __future__ import annotations

import operator
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode, tools_condition
from langgraph.types import Command, Send, interrupt
from langgraph_parity_agents import MOODS, MoodState, add, read_mood, set_mood
from langgraph_sessions import Models, calls


class Notes(MessagesState):
    notes: Annotated[list[str], operator.add]


class Plain(TypedDict):
    messages: Annotated[list[AnyMessage], operator.add]


@tool
def breaks(x: int) -> str:
    """Raises."""
    raise LookupError(f"there is no {x}")


def _model_node(model: Any) -> Any:
    async def call_model(state: Any) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    return call_model


def _loop(graph: StateGraph[Any, Any, Any, Any], model: Any, tools: ToolNode) -> None:
    graph.add_node("agent", _model_node(model))
    graph.add_node("tools", tools)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")


def react_graph(models: Models, saver: Any) -> Any:
    graph = StateGraph(MoodState)
    _loop(graph, models.make("main", *MOODS), ToolNode([add, set_mood, read_mood]))
    return graph.compile(checkpointer=saver)


def reported_errors(models: Models, saver: Any) -> Any:
    graph = StateGraph(MessagesState)
    both = calls(("breaks", {"x": 1}, "c1"), ("breaks", {"x": 2}, "c1"), ("add", {"a": 1, "b": 1}, "c3"))
    model = models.make("main", both, AIMessage("sorry"), AIMessage("again"))
    _loop(graph, model, ToolNode([breaks, add], handle_tool_errors=True))
    return graph.compile(checkpointer=saver)


def subgraph_with_tools(models: Models, saver: Any) -> Any:
    inner = StateGraph(MoodState)
    _loop(inner, models.make("inner", *MOODS), ToolNode([add, set_mood, read_mood]))
    graph = StateGraph(MoodState)
    graph.add_node("inner", inner.compile())
    graph.add_node("last", _model_node(models.make("last", AIMessage("final"), AIMessage("final again"))))
    graph.add_edge(START, "inner")
    graph.add_edge("inner", "last")
    return graph.compile(checkpointer=saver)


def nested_subgraphs(models: Models, saver: Any) -> Any:
    middle = StateGraph(MoodState)
    middle.add_node("deep", create_agent(models.make("deep", *MOODS), [add, set_mood, read_mood]))
    middle.add_edge(START, "deep")
    graph = StateGraph(MoodState)
    graph.add_node("middle", middle.compile())
    graph.add_edge(START, "middle")
    return graph.compile(checkpointer=saver)


def subgraph_called_in_a_node(models: Models, saver: Any) -> Any:
    agent = create_agent(
        models.make("inner", calls(("add", {"a": 1, "b": 2}, "c1")), AIMessage("three"), AIMessage("four")), [add]
    )

    async def ask_agent(state: MessagesState) -> dict[str, Any]:
        answer = await agent.ainvoke({"messages": [state["messages"][-1]]})
        return {"messages": [AIMessage(f"agent: {answer['messages'][-1].text}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("ask_agent", ask_agent)
    graph.add_edge(START, "ask_agent")
    return graph.compile(checkpointer=saver)


def subgraph_with_a_memory(models: Models, saver: Any) -> Any:
    inner = StateGraph(Notes)

    async def take_note(state: Notes) -> dict[str, Any]:
        return {"notes": [str(state["messages"][-1].text)], "messages": [AIMessage(f"{len(state['notes']) + 1} notes")]}

    inner.add_node("take_note", take_note)
    inner.add_edge(START, "take_note")
    graph = StateGraph(MessagesState)
    graph.add_node("inner", inner.compile(checkpointer=True))
    graph.add_node("last", _model_node(models.make("last", AIMessage("one"), AIMessage("two"))))
    graph.add_edge(START, "inner")
    graph.add_edge("inner", "last")
    return graph.compile(checkpointer=saver)


def models_in_a_row(models: Models, saver: Any) -> Any:
    writer = models.make("writer", AIMessage("written"), AIMessage("rewritten"))

    def write_sync(state: MessagesState) -> dict[str, Any]:
        return {"messages": [writer.invoke([SystemMessage("Write."), *state["messages"]])]}

    graph = StateGraph(MessagesState)
    graph.add_node("plan", _model_node(models.make("planner", AIMessage("plan"), AIMessage("new plan"))))
    graph.add_node("write", write_sync)
    graph.add_edge(START, "plan")
    graph.add_edge("plan", "write")
    return graph.compile(checkpointer=saver)


def fan_out_of_models(models: Models, saver: Any) -> Any:
    noters = {name: models.make(name, AIMessage(name), AIMessage(f"{name} 2")) for name in ("a", "b")}

    async def take_note(state: Any) -> dict[str, Any]:
        return {"notes": [str((await noters[state["name"]].ainvoke([HumanMessage("note")])).text)]}

    async def last(state: Notes) -> dict[str, Any]:
        return {"messages": [AIMessage(", ".join(state["notes"]))]}

    graph = StateGraph(Notes)
    graph.add_node("take_note", take_note)
    graph.add_node("last", last)
    graph.add_conditional_edges(START, lambda _: [Send("take_note", {"name": name}) for name in noters], ["take_note"])
    graph.add_edge("take_note", "last")
    return graph.compile(checkpointer=saver)


def fan_out_of_agents(models: Models, saver: Any) -> Any:
    """Parallel agents whose models give their calls the same IDs."""
    graph = StateGraph(Notes)
    for name in ("left", "right"):
        model = models.make(
            name,
            calls(("add", {"a": 1, "b": 2}, "c1"), ("add", {"a": 2, "b": 2}, "c2")),
            calls(("add", {"a": 3, "b": 2}, "c1")),
            AIMessage(f"{name} is done"),
            AIMessage(f"{name} again"),
        )
        graph.add_node(name, _agent_node(create_agent(model, [add], name=name), name))
        graph.add_edge(START, name)
        graph.add_edge(name, "last")

    async def last(state: Notes) -> dict[str, Any]:
        return {"messages": [AIMessage(", ".join(state["notes"]))]}

    graph.add_node("last", last)
    return graph.compile(checkpointer=saver)


def _agent_node(agent: Any, name: str) -> Any:
    async def run_agent(state: Notes) -> dict[str, Any]:
        answer = await agent.ainvoke({"messages": [state["messages"][-1]]})
        return {"notes": [f"{name}: {answer['messages'][-1].text}"]}

    return run_agent


def fan_out_of_calls(models: Models, saver: Any) -> Any:
    """Each call a task of its own, and a list of messages that nothing gives IDs."""
    model = models.make(
        "main",
        calls(("add", {"a": 1, "b": 1}, "c1"), ("add", {"a": 2, "b": 1}, "c2"), text="x"),
        AIMessage("ok"),
        AIMessage("again"),
    )

    def route(state: Plain) -> Any:
        last = state["messages"][-1]
        made = last.tool_calls if isinstance(last, AIMessage) else []
        return [Send("tools", [call]) for call in made] or END

    graph = StateGraph(Plain)
    graph.add_node("agent", _model_node(model))
    graph.add_node("tools", ToolNode([add]))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", route, ["tools", END])
    graph.add_edge("tools", "agent")
    return graph.compile(checkpointer=saver)


def _handoff(target: str) -> Any:
    @tool(f"transfer_to_{target}")
    def transfer(
        state: Annotated[dict[str, Any], InjectedState], tool_call_id: Annotated[str, InjectedToolCallId]
    ) -> Command[Any]:
        """Hand over."""
        done = ToolMessage(f"{target} takes over", tool_call_id=tool_call_id, name=f"transfer_to_{target}")
        return Command(goto=target, graph=Command.PARENT, update={"messages": [*state["messages"], done]})

    return transfer


def supervisor(models: Models, saver: Any) -> Any:
    chief = models.make(
        "chief", calls(("transfer_to_worker", {}, "h1")), AIMessage("all done"), AIMessage("nothing to do")
    )
    worker = models.make("worker", calls(("add", {"a": 1, "b": 2}, "c1")), AIMessage("three"))
    graph = StateGraph(MessagesState)
    graph.add_node("chief", create_agent(chief, [_handoff("worker")], name="chief"), destinations=("worker", END))
    graph.add_node("worker", create_agent(worker, [add], name="worker"))
    graph.add_edge(START, "chief")
    graph.add_edge("worker", "chief")
    return graph.compile(checkpointer=saver)


def swarm(models: Models, saver: Any) -> Any:
    """Agents that hand over to each other; the last one answers."""
    ada = models.make("ada", calls(("transfer_to_bob", {}, "h1"), text="Bob knows."), AIMessage("ada again"))
    bob = models.make("bob", calls(("add", {"a": 1, "b": 2}, "c1")), AIMessage("it is three"))
    graph = StateGraph(MessagesState)
    graph.add_node("ada", create_agent(ada, [_handoff("bob")], name="ada"), destinations=("bob",))
    graph.add_node("bob", create_agent(bob, [add], name="bob"))
    graph.add_edge(START, "ada")
    return graph.compile(checkpointer=saver)


def commands_that_go_on(models: Models, saver: Any) -> Any:
    """A tool's Command names the next node."""

    @tool
    def finish(mood: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
        """Go to the last node."""
        done = ToolMessage("finishing", tool_call_id=tool_call_id)
        return Command(update={"mood": mood, "messages": [done]}, goto="last")

    graph = StateGraph(MoodState)
    model = models.make("main", calls(("finish", {"mood": "done"}, "c1")), AIMessage("again"))
    graph.add_node("agent", _model_node(model))
    graph.add_node("tools", ToolNode([finish]))
    graph.add_node("last", _model_node(models.make("last", AIMessage("the end"))))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    return graph.compile(checkpointer=saver)


def question_of_a_node(models: Models, saver: Any) -> Any:
    async def gate(state: MessagesState) -> dict[str, Any]:
        return {"messages": [AIMessage(f"you said {interrupt('go on?')} and {interrupt('sure?')}")]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", _model_node(models.make("main", AIMessage("hm"), AIMessage("hm again"))))
    graph.add_node("gate", gate)
    graph.add_edge(START, "agent")
    graph.add_edge("agent", "gate")
    return graph.compile(checkpointer=saver)


def question_beside_tools(models: Models, saver: Any) -> Any:
    """One branch asks a person while tools of the other one are pending."""
    inner = StateGraph(MessagesState)
    model = models.make(
        "inner", calls(("add", {"a": 1, "b": 2}, "c1")), AIMessage("three", id="inner-1"), AIMessage("four")
    )
    _loop(inner, model, ToolNode([add]))

    async def gate(state: Notes) -> dict[str, Any]:
        return {"notes": [interrupt("which?")]}

    async def last(state: Notes) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{state['notes']}")]}

    graph = StateGraph(Notes)
    graph.add_node("inner", inner.compile())
    graph.add_node("gate", gate)
    graph.add_node("last", last)
    graph.add_edge(START, "inner")
    graph.add_edge(START, "gate")
    graph.add_edge(["inner", "gate"], "last")
    return graph.compile(checkpointer=saver)


def deep_agent(models: Models, saver: Any) -> Any:
    """Files, todos, a sub-agent, and a conversation in a delta channel."""
    deepagents = pytest.importorskip("deepagents")
    main = models.make(
        "main",
        calls(
            ("write_file", {"file_path": "/a.txt", "content": "hello"}, "c1"),
            ("write_todos", {"todos": [{"content": "read", "status": "pending"}]}, "c2"),
            ("task", {"description": "add", "subagent_type": "adder"}, "c3"),
        ),
        calls(("read_file", {"file_path": "/a.txt"}, "c4"), ("add", {"a": 1, "b": 2}, "c5")),
        AIMessage("done"),
        calls(("ls", {"path": "/"}, "c1")),
        AIMessage("done again"),
    )
    helper = models.make("helper", calls(("add", {"a": 5, "b": 5}, "s1")), AIMessage("ten"))
    adder = {"name": "adder", "description": "Adds.", "system_prompt": "Add.", "tools": [add], "model": helper}
    return deepagents.create_deep_agent(model=main, tools=[add], subagents=[adder], checkpointer=saver)


GRAPHS = [
    react_graph,
    reported_errors,
    subgraph_with_tools,
    nested_subgraphs,
    subgraph_called_in_a_node,
    subgraph_with_a_memory,
    models_in_a_row,
    fan_out_of_models,
    fan_out_of_agents,
    fan_out_of_calls,
    supervisor,
    swarm,
    commands_that_go_on,
    question_of_a_node,
    question_beside_tools,
    deep_agent,
]
