"""Single features and pitfalls in whole sessions, a named test each."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware, SummarizationMiddleware, wrap_tool_call
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, InvalidToolCall, ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool, tool
from langgraph.graph import START, MessagesState, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph_parity_agents import add
from langgraph_parity_graphs import fan_out_of_agents, react_graph, subgraph_with_tools
from langgraph_sessions import SESSION, Models, calls, run_session

from dex_agents import AgentEvent, AgentMessage, ToolEffect
from dex_agents.session.event_values import decode_event_payload
from dex_agents.session.persistence import AGENT_EVENTS
from dex_agents.testing import AgentTestEnvironment, poll_until
from dex_agents_langgraph import (
    create_langgraph_session_flow,
    current_session_tool_call,
    offered_tools,
    session_messages,
)
from dex_agents_langgraph.session_middleware import SessionToolsMiddleware
from dex_agents_langgraph.testing import ScriptedChatModel, call_tool


@contextlib.asynccontextmanager
async def _open(directory: Path, graph: Any, **options: Any) -> AsyncIterator[AgentTestEnvironment]:
    options.setdefault("default_tool_effect", ToolEffect.READ)

    def create_flow(_: Path) -> Any:
        return create_langgraph_session_flow(graph, "FeatureAgent", **options)

    async with AgentTestEnvironment(create_flow, runs_worker=True, directory=directory) as environment:
        await environment.client.start_session(SESSION)
        yield environment


def _run(directory: Path, graph: Any, *texts: str, **options: Any) -> tuple[AgentMessage, ...]:
    async def run() -> tuple[AgentMessage, ...]:
        async with _open(directory, graph, **options) as environment:
            for text in texts:
                result = await environment.client.send_and_wait(SESSION, text, timeout=60)
                assert result.status == "completed", result
            return (await environment.client.get_agent_snapshot(SESSION)).messages

    return asyncio.run(run())


async def _streamed(environment: AgentTestEnvironment, type: str) -> str:
    stream = environment.flow.streams[AGENT_EVENTS.name]
    found = await environment.engine.read_stream(SESSION, stream, limit=100_000)
    events: list[AgentEvent] = [event.value for event in found]
    return "".join(decode_event_payload(event)["text"] for event in events if event.type == type)


class Chat(TypedDict):
    chat: Annotated[list[AnyMessage], add_messages]


@pytest.mark.parametrize(("key", "state_type"), [("messages", MessagesState), ("chat", Chat)])
def test_a_hand_written_tool_node_is_replaced_and_its_calls_are_steps(
    tmp_path: Path, key: str, state_type: Any
) -> None:
    model = ScriptedChatModel(call_tool("add", a=1, b=2), lambda messages: f"so {messages[-1].text}")

    async def think(state: Any) -> dict[str, Any]:
        return {key: [await model.ainvoke(state[key])]}

    async def my_tools(state: Any) -> dict[str, Any]:
        raise AssertionError("the node's own code must not run")

    def route(state: Any) -> str:
        last = state[key][-1]
        return "my_tools" if isinstance(last, AIMessage) and last.tool_calls else "__end__"

    graph = StateGraph(state_type)
    graph.add_node("think", think)
    graph.add_node("my_tools", my_tools)
    graph.add_edge(START, "think")
    graph.add_edge("my_tools", "think")
    graph.add_conditional_edges("think", route, ["my_tools", "__end__"])

    async def run() -> tuple[list[tuple[str, str]], str]:
        async with _open(tmp_path, graph.compile(), tool_nodes={"my_tools": [add]}, messages_key=key) as environment:
            result = await environment.client.send_and_wait(SESSION, "go", timeout=60)
            return await environment.client.read_tool_call_statuses(SESSION), result.text

    assert asyncio.run(run()) == ([("add", "succeeded")], "so 3")


@pytest.mark.parametrize(("answer", "status", "seen"), [("approve", "succeeded", "3"), ("reject", "failed", "reject")])
def test_middleware_that_asks_per_call_asks_a_question_of_that_call(
    tmp_path: Path, answer: str, status: str, seen: str
) -> None:
    try:
        middleware = HumanInTheLoopMiddleware(interrupt_on={"add": True}, interrupt_mode="per_call")
    except TypeError:
        pytest.skip("this langchain has no per-call approvals")
    models = Models()
    model = models.make("main", calls(("add", {"a": 1, "b": 2}, "c1")), AIMessage("done"))

    async def run() -> list[tuple[str, str]]:
        async with _open(tmp_path, create_agent(model, [add], middleware=[middleware])) as environment:
            sessions = environment.client
            await sessions.send_user_message(SESSION, "go")
            asked = await sessions.wait_for_interrupt(SESSION)
            assert (asked.kind, asked.choices) == ("question", ("approve", "reject"))
            assert asked.question is not None
            assert asked.question.startswith("Tool execution requires approval")
            assert await sessions.answer_question(SESSION, asked.interrupt_id, answer)
            await sessions.wait_until_idle(SESSION)
            return await sessions.read_tool_call_statuses(SESSION)

    assert asyncio.run(run()) == [("add", status)]
    assert seen in models.requests["main"][-1][1][-1]["content"]


def test_invalid_tool_calls_become_failed_calls_that_the_model_reads(tmp_path: Path) -> None:
    broken = InvalidToolCall(name="add", args='{"a": 1,', id="c1", error="cut off", type="invalid_tool_call")
    models = Models()
    model = models.make("main", AIMessage("", invalid_tool_calls=[broken]), AIMessage("sorry"))

    async def run() -> tuple[list[tuple[str, str]], str]:
        async with _open(tmp_path, create_agent(model, [add])) as environment:
            result = await environment.client.send_and_wait(SESSION, "go", timeout=60)
            return await environment.client.read_tool_call_statuses(SESSION), result.text

    assert asyncio.run(run()) == ([("add", "failed")], "sorry")
    result = models.requests["main"][-1][1][-1]
    assert (result["type"], result["tool_call_id"], result["status"]) == ("tool", "c1", "error")


def test_calls_are_stored_in_the_order_of_the_models_message(tmp_path: Path) -> None:
    first_may_end = asyncio.Event()

    @tool
    async def slow() -> str:
        """Ends last."""
        await first_may_end.wait()
        return "slow"

    @tool
    async def fast() -> str:
        """Ends first."""
        first_may_end.set()
        return "fast"

    model = Models().make("main", calls(("slow", {}, "c1"), ("fast", {}, "c2")), AIMessage("done"))
    messages = _run(tmp_path, create_agent(model, [slow, fast]), "go")
    assert [message.text for message in messages if message.role == "tool"] == ["slow", "fast"]


def test_an_artifact_that_cannot_be_stored_is_dropped_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    @tool(response_format="content_and_artifact")
    def locked() -> tuple[str, Any]:
        """Gives a lock."""
        return "has a lock", threading.Lock()

    model = Models().make("main", calls(("locked", {}, "c1")), AIMessage("done"))
    with caplog.at_level(logging.WARNING):
        messages = _run(tmp_path, create_agent(model, [locked]), "go")
    assert [message.text for message in messages if message.role == "tool"] == ["has a lock"]
    assert "the artifact of a result of the tool 'locked' is a lock" in caplog.text


def test_a_turn_that_was_cancelled_leaves_a_history_that_the_next_one_can_send(tmp_path: Path) -> None:
    models = Models()
    model = models.make("main", calls(("wait", {}, "c1"), ("add", {"a": 1, "b": 1}, "c2")), AIMessage("fine"))

    @tool
    async def wait() -> str:
        """Waits for a person."""
        raise AssertionError("nobody approved it")

    wait.metadata = {"requires_approval": True}

    async def run() -> str:
        async with _open(tmp_path, create_agent(model, [wait, add])) as environment:
            sessions = environment.client
            await sessions.send_user_message(SESSION, "go")
            await poll_until(lambda: _is_final(environment, "add"), awaited="the end of add")
            assert await sessions.cancel_turn(SESSION)
            await sessions.wait_until_idle(SESSION)
            return (await sessions.send_and_wait(SESSION, "and now?", timeout=60)).text

    assert asyncio.run(run()) == "fine"
    last = models.requests["main"][-1][1]
    assert [message["type"] for message in last] == ["human", "ai", "tool", "tool", "human"]
    assert [message["tool_call_id"] for message in last if message["type"] == "tool"] == ["c1", "c2"]


async def _is_final(environment: AgentTestEnvironment, name: str) -> bool:
    return (name, "succeeded") in await environment.client.read_tool_call_statuses(SESSION)


def test_a_model_that_neither_streams_nor_tells_usage_is_shown_and_counted(tmp_path: Path) -> None:
    async def run() -> tuple[str, Any]:
        graph = create_agent(Models().make("main", AIMessage("all at once")), [add])
        async with _open(tmp_path, graph) as environment:
            await environment.client.send_and_wait(SESSION, "go", timeout=60)
            usage = (await environment.client.get_agent_snapshot(SESSION)).usage
            return await _streamed(environment, "text_delta"), usage

    text, usage = asyncio.run(run())
    assert text == "all at once"
    assert (usage.model_calls, usage.total_tokens) == (1, 0)


def test_what_middleware_says_to_itself_is_counted_and_not_shown(tmp_path: Path) -> None:
    summarizer = ScriptedChatModel(lambda messages: "secret summary")
    middleware = SummarizationMiddleware(summarizer, trigger=("messages", 2), keep=("messages", 1))
    model = ScriptedChatModel(lambda messages: "shown words")

    async def run() -> tuple[str, int]:
        async with _open(tmp_path, create_agent(model, [add], middleware=[middleware])) as environment:
            for text in ("one", "two"):
                await environment.client.send_and_wait(SESSION, text, timeout=60)
            usage = (await environment.client.get_agent_snapshot(SESSION)).usage
            return await _streamed(environment, "text_delta"), usage.model_calls

    text, model_calls = asyncio.run(run())
    assert "secret" not in text
    assert text == "shown words" * 2
    assert summarizer.requests
    assert model_calls == 2 + len(summarizer.requests)


@dataclass
class Tenant:
    name: str


def test_context_and_settings_reach_nodes_and_tools(tmp_path: Path) -> None:
    seen: list[Any] = []

    @tool
    def who(runtime: ToolRuntime[Tenant, Any], config: RunnableConfig) -> str:
        """Says who asks."""
        configurable = config["configurable"]
        call = current_session_tool_call()
        assert call is not None
        seen.append((configurable["dex_idempotency_key"], call.idempotency_key, call.attempt))
        return f"{runtime.context.name} {configurable['session_settings']} {configurable['thread_id']}"

    model = Models().make("main", calls(("who", {}, "c1")), AIMessage("done"))
    graph = create_agent(model, [who], context_schema=Tenant)
    messages = _run(tmp_path, graph, "go", context=lambda settings: Tenant("acme"))
    assert [message.text for message in messages if message.role == "tool"] == [f"acme {{}} {SESSION}"]
    assert seen == [(f"{SESSION}/turn-1/c1", f"{SESSION}/turn-1/c1", 1)]


def test_a_wrapper_around_a_tool_runs_with_it_and_once(tmp_path: Path) -> None:
    seen: list[str] = []

    @wrap_tool_call
    async def watch(request: Any, handler: Any) -> Any:
        call = current_session_tool_call()
        seen.append("none" if call is None else call.idempotency_key)
        result = await handler(request)
        assert isinstance(result, ToolMessage)
        return result

    model = Models().make(
        "main", calls(("add", {"a": 1, "b": 2}, "c1"), ("add", {"a": 2, "b": 2}, "c2")), AIMessage("k")
    )
    _run(tmp_path, create_agent(model, [add], middleware=[watch]), "go")
    assert sorted(seen) == [f"{SESSION}/turn-1/c1", f"{SESSION}/turn-1/c2"]


def test_other_nodes_run_once_and_not_with_every_tool_call(tmp_path: Path) -> None:
    ran: list[str] = []
    models = Models()
    inner = subgraph_with_tools(models, None)

    async def before(state: MessagesState) -> dict[str, Any]:
        ran.append("before")
        return {}

    graph = StateGraph(MessagesState)
    graph.add_node("before", before)
    graph.add_node("inner", inner)
    graph.add_edge(START, "before")
    graph.add_edge("before", "inner")
    _run(tmp_path, graph.compile(), "go")
    assert ran == ["before"]


def test_what_is_stored_grows_with_what_is_new_and_not_with_the_history(tmp_path: Path) -> None:
    model = ScriptedChatModel(
        lambda messages: call_tool("add", a=1, b=1) if messages[-1].type == "human" else "x" * 2_000
    )
    messages = _run(tmp_path, create_agent(model, [add]), *[f"turn {number}" for number in range(12)])
    sizes = [len(message.framework_item) for message in messages if len(message.framework_item) > 2_000]
    assert len(sizes) == 12
    assert max(sizes) - min(sizes) < 500


def test_namespaces_of_finished_agents_leave_the_stored_state(tmp_path: Path) -> None:
    messages, _ = asyncio.run(run_session(tmp_path, fan_out_of_agents, Models(), ["go"], ""))
    state = json.loads(messages[-1].framework_item)["state"]
    assert len(state) < 4_000
    runner: Any = create_langgraph_session_flow(fan_out_of_agents(Models(), None), "A")
    _, codec = runner.runner._graphs.get({})
    assert list(codec.load_value(state)) == [""]


def test_a_graph_that_a_function_of_the_settings_makes_is_made_once_per_settings(tmp_path: Path) -> None:
    made: list[dict[str, Any]] = []

    def make(settings: Any) -> Any:
        made.append(dict(settings))
        return create_agent(ScriptedChatModel(lambda messages: f"{settings.get('model')}"), [add])

    async def run() -> list[str]:
        texts = []
        async with _open(tmp_path, make) as environment:
            for settings in ({"model": "small"}, {"model": "large"}, {"model": "small"}):
                await environment.client.update_session_settings(SESSION, settings)
                texts.append((await environment.client.send_and_wait(SESSION, "go", timeout=60)).text)
        return texts

    assert asyncio.run(run()) == ["small", "large", "small"]
    assert made == [{}, {"model": "small"}, {"model": "large"}]


def test_an_input_of_the_graphs_own_shape_is_made_by_the_application(tmp_path: Path) -> None:
    class Ticket(MessagesState):
        customer: str

    async def answer(state: Ticket) -> dict[str, Any]:
        return {"messages": [AIMessage(f"{state['customer']}: {state['messages'][-1].text}")]}

    graph = StateGraph(Ticket)
    graph.add_node("answer", answer)
    graph.add_edge(START, "answer")
    messages = _run(
        tmp_path,
        graph.compile(),
        "hello",
        make_input=lambda new, settings: {"messages": new, "customer": settings.get("customer", "nobody")},
    )
    assert messages[-1].text == "nobody: hello"


def test_the_graph_still_works_outside_of_a_session_after_a_flow_was_built() -> None:
    models = Models()
    graph = fan_out_of_agents(models, None)
    create_langgraph_session_flow(graph, "A")
    state = asyncio.run(graph.ainvoke({"messages": [("user", "go")]}))
    assert state["messages"][-1].text == "left: left is done, right: right is done"
    other = react_graph(Models(), None)
    create_langgraph_session_flow(other, "A")
    assert asyncio.run(other.ainvoke({"messages": [("user", "go")]}))["mood"] == "ok"


def test_models_whose_clients_retry_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    from dex_agents_langgraph.client_retries import ClientRetryWarnings

    warnings = ClientRetryWarnings()
    openai = ["langchain", "chat_models", "openai", "ChatOpenAI"]
    with caplog.at_level(logging.WARNING):
        warnings.check({"id": openai, "kwargs": {"max_retries": 0}})
        warnings.check({"id": ["mine", "Model"], "kwargs": {}})
        warnings.check(None)
        assert caplog.text == ""
        for _ in range(2):
            warnings.check({"id": openai, "kwargs": {}})
            warnings.check({"id": ["langchain_anthropic", "ChatAnthropic"], "kwargs": {"max_retries": 2}})
    assert [record.args for record in caplog.records] == [("ChatOpenAI",), ("ChatAnthropic",)]


def test_a_sync_tool_runs_in_a_thread_and_knows_its_call(tmp_path: Path) -> None:
    seen: list[Any] = []

    def work() -> str:
        """Works."""
        call = current_session_tool_call()
        seen.append((threading.current_thread() is threading.main_thread(), call and call.tool_call_id))
        return "worked"

    model = Models().make("main", calls(("work", {}, "c1")), AIMessage("done"))
    _run(tmp_path, create_agent(model, [StructuredTool.from_function(work)]), "go")
    assert seen == [(False, "c1")]


def test_a_model_node_of_the_applications_own_offers_the_sessions_tools(tmp_path: Path) -> None:
    models = Models()
    model = models.make("main", calls(("ask_user", {"question": "Which?"}, "c1")), AIMessage("done"))

    async def think(state: MessagesState) -> dict[str, Any]:
        bound = model.bind_tools(offered_tools([add]))
        return {"messages": [await bound.ainvoke(session_messages(state["messages"]))]}

    graph = StateGraph(MessagesState)
    graph.add_node("think", think)
    graph.add_node("tools", ToolNode([add]))
    graph.add_edge(START, "think")
    graph.add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    compiled = graph.compile()

    async def run() -> None:
        async with _open(tmp_path, compiled, built_in_tools=("ask_user",)) as environment:
            await environment.client.send_user_message(SESSION, "go")
            asked = await environment.client.answer(SESSION, "this one")
            assert asked.question == "Which?"
            await environment.client.wait_until_idle(SESSION)

    asyncio.run(run())
    offered, messages = models.requests["main"][-1]
    assert offered == ["add", "ask_user"]
    assert "this one" in messages[-1]["content"]


def test_the_session_middleware_changes_nothing_outside_of_a_session() -> None:
    models = Models()
    model = models.make("main", calls(("add", {"a": 1, "b": 2}, "c1")), AIMessage("three"))
    agent = create_agent(model, [add], middleware=[SessionToolsMiddleware()])
    state = asyncio.run(agent.ainvoke({"messages": [HumanMessage("go")]}))
    assert [message.text for message in state["messages"]] == ["go", "", "3", "three"]
    assert [request[0] for request in models.requests["main"]] == [["add"], ["add"]]
