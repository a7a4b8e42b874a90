"""The names that LangGraph does not export are there in this version and do what this package uses them for."""

from __future__ import annotations

import ast
import asyncio
import dataclasses
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain_core.messages import AIMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph_parity_agents import add
from langgraph_sessions import calls

import dex_agents_langgraph
from dex_agents_langgraph import private_names

SOURCE = Path(dex_agents_langgraph.__file__).parent


class Color(TypedDict):
    name: str


@dataclasses.dataclass
class Paint:
    """A type in a schema."""

    color: str


def test_a_tool_node_has_the_methods() -> None:
    node = ToolNode([add])
    private_names.check_tool_node(node)
    value, _ = private_names.parse_calls(node, {"messages": [calls(("add", {"a": 1, "b": 2}, "c1"))]})
    assert [(call["name"], call["id"]) for call in value] == [("add", "c1")]
    assert not private_names.has_call_wrapper(node)

    async def wrap(request: Any, handler: Any) -> Any:
        return await handler(request)

    assert private_names.has_call_wrapper(ToolNode([add], awrap_tool_call=wrap))


def test_a_tool_node_without_one_of_them_is_refused() -> None:
    class Older(ToolNode):
        _arun_one = None  # type: ignore[assignment]

    with pytest.raises(TypeError, match="has no _arun_one"):
        private_names.check_tool_node(Older([add]))


def test_an_intercepted_node_of_any_subclass_works_as_ever_outside_of_a_session() -> None:
    class Mine(ToolNode):
        mine = True

    node = Mine([add], messages_key="chat")
    node.__dict__["extra"] = "kept"
    copied: Any = private_names.intercepted_tool_node(node, lambda: None)
    assert isinstance(copied, Mine)
    assert (vars(copied)["extra"], copied.mine, copied.tools_by_name) == ("kept", True, {"add": add})

    class Chat(TypedDict):
        chat: list[Any]

    graph = StateGraph(Chat)
    graph.add_node("tools", copied)
    graph.add_edge(START, "tools")
    state = asyncio.run(graph.compile().ainvoke({"chat": [calls(("add", {"a": 1, "b": 2}, "c1"))]}))
    assert state["chat"][-1].content == "3"


def test_one_call_runs_and_what_it_sends_to_the_state_is_seen() -> None:
    seen: list[Any] = []

    @tool
    def send() -> str:
        """Sends a message to the state by itself, as LangGraph's `push_message` does."""
        from langgraph.graph.message import push_message

        push_message(AIMessage("pushed", id="p1"))
        return "sent"

    async def run_node(node: Any, value: Any, config: Any, runtime: Any) -> Any:
        (call,), input_type = private_names.parse_calls(node, value)
        output, writes = await private_names.run_one_call(node, call, value, input_type, config, runtime)
        seen.extend(writes)
        return private_names.combine_outputs(node, [[output]], input_type)

    graph = StateGraph(MessagesState)
    graph.add_node("tools", private_names.intercepted_tool_node(ToolNode([send]), lambda: run_node))
    graph.add_edge(START, "tools")
    state = asyncio.run(graph.compile().ainvoke({"messages": [calls(("send", {}, "c1"))]}))
    assert [(channel, message.id) for channel, message in seen] == [("messages", "p1")]
    assert {message.text for message in state["messages"]} == {"", "pushed", "sent"}


def test_sync_runs_of_an_intercepted_node_are_refused_inside_of_a_session() -> None:
    async def run_node(*_: Any) -> Any:
        raise AssertionError("it is asynchronous")

    graph = StateGraph(MessagesState)
    graph.add_node("tools", private_names.intercepted_tool_node(ToolNode([add]), lambda: run_node))
    graph.add_edge(START, "tools")
    with pytest.raises(RuntimeError, match="ainvoke"):
        graph.compile().invoke({"messages": [calls(("add", {"a": 1, "b": 2}, "c1"))]})


def test_types_of_schemas_are_allowed_and_no_others() -> None:
    class Shop(TypedDict):
        paint: Paint

    allowed = private_names.allowed_checkpoint_types([Shop], {})
    assert (Paint.__module__, "Paint") in allowed
    assert ("posix", "system") not in allowed
    assert (Paint.__module__, "Paint") not in private_names.allowed_checkpoint_types([Color], {})


def test_a_delta_channels_snapshot_is_made_and_read() -> None:
    assert private_names.unwrap_delta_snapshot(private_names.delta_snapshot([1])) == ([1], True)
    assert private_names.unwrap_delta_snapshot([1]) == ([1], False)


def test_a_delta_channel_that_snapshots_always_is_in_the_checkpoint_that_wrote_it() -> None:
    def append(state: list[int], writes: Any) -> list[int]:
        return [*state, *(number for write in writes for number in write)]

    class Numbers(TypedDict):
        numbers: list[int]

    graph = StateGraph(Numbers)
    graph.add_node("one", lambda state: {"numbers": [1]})
    graph.add_edge(START, "one")
    saver = InMemorySaver()
    compiled = graph.compile(checkpointer=saver)
    channel: Any = DeltaChannel(append, list, snapshot_frequency=1)
    channel.key = "numbers"
    config: Any = {"configurable": {"thread_id": "t"}}
    copied = compiled.copy({"channels": {**compiled.channels, "numbers": channel}})
    copied.invoke({"numbers": [0]}, config)
    saved = saver.get_tuple(config)
    assert saved is not None
    value = saved.checkpoint["channel_values"]["numbers"]
    assert private_names.unwrap_delta_snapshot(value) == ([0, 1], True)


class _Unprintable:
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


def test_a_result_without_a_text_is_told_from_a_tool_that_failed() -> None:
    def errors_of(result: Any) -> Exception:
        def work() -> Any:
            if isinstance(result, Exception):
                raise result
            return result

        made = StructuredTool.from_function(work, name="work", description="Works.")
        with pytest.raises(Exception) as raised:  # noqa: PT011 -- which one is what the test asks
            made.invoke({"name": "work", "args": {}, "id": "c1", "type": "tool_call"})
        return raised.value

    assert private_names.is_result_formatting_error(errors_of(_Unprintable()))
    assert not private_names.is_result_formatting_error(errors_of(ValueError("the tool's own")))


@pytest.mark.parametrize("path", sorted(SOURCE.glob("*.py")), ids=lambda path: path.name)
def test_no_other_module_names_what_is_private_to_langgraph(path: Path) -> None:
    if path.name == "private_names.py":
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lang"):
            parts = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            assert not [part for part in parts if part.startswith("_") and part != "__future__"]
        elif (
            isinstance(node, ast.Attribute)
            and node.attr.startswith("_")
            and not node.attr.startswith("__")
            and node.attr != "_replace"
        ):
            assert isinstance(node.value, ast.Name), f"{path.name}:{node.lineno}: {node.attr}"
            assert node.value.id in ("self", "cls"), f"{path.name}:{node.lineno}: {node.attr}"
