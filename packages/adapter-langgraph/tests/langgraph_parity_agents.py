"""Agents of `create_agent` for the parity tests: one per middleware and kind of tool."""

from __future__ import annotations

from typing import Annotated, Any

from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ContextEditingMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
    dynamic_prompt,
    wrap_tool_call,
)
from langchain.agents.middleware.context_editing import ClearToolUsesEdit
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import InjectedToolCallId, ToolException, tool
from langgraph.prebuilt import InjectedState, InjectedStore
from langgraph.store.base import BaseStore
from langgraph.types import Command, interrupt
from langgraph_sessions import Models, calls, fresh_store
from pydantic import BaseModel


class MoodState(AgentState[Any]):
    mood: str
    hooks: list[str]


class Weather(BaseModel):
    city: str
    degrees: float


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


@tool
def remember(name: str, store: Annotated[Any, InjectedStore()], runtime: ToolRuntime[Any, Any]) -> str:
    """Read and write the store."""
    assert isinstance(store, BaseStore)
    found = store.get(("users",), name)
    return f"{found.value if found else None} {runtime.tool_call_id} {len(runtime.state['messages'])}"


@tool(response_format="content_and_artifact")
def chart() -> tuple[list[Any], dict[str, Any]]:
    """Content blocks, and an artifact."""
    blocks = [{"type": "text", "text": "a chart"}, {"type": "image", "url": "https://example.com/chart.png"}]
    return blocks, {"points": [1, 2]}


@tool(return_direct=True)
def direct(x: int) -> str:
    """Its result is the answer."""
    return f"direct {x}"


@tool
def refuses(x: int) -> str:
    """Fails for the model."""
    raise ToolException("it says no")


refuses.handle_tool_error = True


@tool
def ask() -> str:
    """Asks twice."""
    return f"{interrupt('first?')} and {interrupt({'question': 'second?'})}"


class Hooks(AgentMiddleware[Any, Any]):
    """Writes down every hook in the state; the hooks around the model change what it is sent."""

    state_schema = MoodState

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        return self._note(state, "before_agent")

    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        return self._note(state, "before_model")

    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        return self._note(state, f"after_model {state['messages'][-1].text}")

    async def aafter_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        return {**self._note(state, "after_agent"), "messages": [AIMessage("signed")]}

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        hooks = request.state.get("hooks", [])
        return await handler(request.override(system_prompt=f"{len(hooks)} hooks", tools=request.tools[:1]))

    @staticmethod
    def _note(state: Any, text: str) -> dict[str, Any]:
        return {"hooks": [*state.get("hooks", []), text]}


class JumpsToEnd(AgentMiddleware[Any, Any]):
    """Ends a turn without a model call."""

    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        if str(state["messages"][-1].text) != "again":
            return None
        return {"messages": [AIMessage("not again")], "jump_to": "end"}

    abefore_model.__can_jump_to__ = ["end"]  # type: ignore[attr-defined]


@wrap_tool_call
async def shout(request: Any, handler: Any) -> Any:
    """Changes the arguments before, and the result behind."""
    call = {**request.tool_call, "args": {**request.tool_call["args"], "a": 10}}
    result = await handler(request.override(tool_call=call))
    return result.model_copy(update={"content": f"{result.content}!"})


@dynamic_prompt
def mood_prompt(request: Any) -> str:
    """From the state."""
    return f"mood {request.state.get('mood')} after {len(request.messages)}"


MOODS = (
    calls(("add", {"a": 1, "b": 2}, "c1"), ("set_mood", {"mood": "ok"}, "c2"), text="first"),
    calls(("read_mood", {}, "c1")),  # providers reuse IDs
    AIMessage("done"),
    calls(("read_mood", {}, "c1")),
    AIMessage("done again"),
)


def _moods(models: Models, saver: Any, *middleware: Any, **options: Any) -> Any:
    tools = [add, set_mood, read_mood]
    return create_agent(
        models.make("main", *MOODS),
        tools,
        system_prompt="You add.",
        middleware=middleware,
        state_schema=MoodState,
        checkpointer=saver,
        **options,
    )


def plain_agent(models: Models, saver: Any) -> Any:
    return _moods(models, saver)


def hooks(models: Models, saver: Any) -> Any:
    return _moods(models, saver, Hooks())


def approvals(models: Models, saver: Any) -> Any:
    return _moods(models, saver, HumanInTheLoopMiddleware(interrupt_on={"add": True, "read_mood": True}))


def tool_wrapper(models: Models, saver: Any) -> Any:
    agent = models.make("main", calls(("add", {"a": 1, "b": 2}, "c1")), AIMessage("twelve"), AIMessage("again"))
    return create_agent(agent, [add], middleware=[shout], checkpointer=saver)


def prompt_of_the_state(models: Models, saver: Any) -> Any:
    return _moods(models, saver, mood_prompt)


def summarization(models: Models, saver: Any) -> Any:
    summarizer = models.make("summary", *[AIMessage(f"summary {number}") for number in range(4)])
    middleware = SummarizationMiddleware(summarizer, trigger=("messages", 4), keep=("messages", 2))
    return _moods(models, saver, middleware)


def model_call_limits(models: Models, saver: Any) -> Any:
    return _moods(models, saver, ModelCallLimitMiddleware(run_limit=2, thread_limit=3))


def tool_call_limits(models: Models, saver: Any) -> Any:
    return _moods(models, saver, ToolCallLimitMiddleware(run_limit=2))


def todo_list(models: Models, saver: Any) -> Any:
    todos = [{"content": "add", "status": "in_progress"}]
    main = models.make(
        "main", calls(("write_todos", {"todos": todos}, "t1"), text="plan"), AIMessage("planned"), AIMessage("again")
    )
    return create_agent(main, [add], middleware=[TodoListMiddleware()], checkpointer=saver)


def fallback_model(models: Models, saver: Any) -> Any:
    broken = models.make("main", ConnectionError("down"), AIMessage("back"))
    spare = models.make("spare", AIMessage("spare"))
    return create_agent(broken, [add], middleware=[ModelFallbackMiddleware(spare)], checkpointer=saver)


def selected_tools(models: Models, saver: Any) -> Any:
    selector = models.make("selector", *[calls(("ToolSelectionResponse", {"tools": ["add"]}, "s")) for _ in range(4)])
    main = models.make("main", calls(("add", {"a": 1, "b": 2}, "c1")), AIMessage("three"), AIMessage("again"))
    middleware = LLMToolSelectorMiddleware(model=selector, max_tools=1)
    return create_agent(main, [add, read_mood], middleware=[middleware], checkpointer=saver)


def cleared_tool_results(models: Models, saver: Any) -> Any:
    edit = ClearToolUsesEdit(trigger=1, keep=1)
    return _moods(models, saver, ContextEditingMiddleware(edits=[edit]))


def retried_tool(models: Models, saver: Any) -> Any:
    failures = [ValueError("not yet"), ValueError("not yet")]

    @tool
    async def flaky() -> str:
        """Succeeds the third time."""
        if failures:
            raise failures.pop()
        return "finally"

    main = models.make("main", calls(("flaky", {}, "c1")), AIMessage("done"), AIMessage("again"))
    middleware = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    return create_agent(main, [flaky], middleware=[middleware], checkpointer=saver)


def redacted_addresses(models: Models, saver: Any) -> Any:
    """Changes the user's messages in the history, and the model's."""
    replies = [AIMessage(f"I wrote to ada@example.com, {number}") for number in (1, 2)]
    middleware = PIIMiddleware("email", strategy="redact", apply_to_input=True, apply_to_output=True)
    return create_agent(models.make("main", *replies), [add], middleware=[middleware], checkpointer=saver)


def jump_to_end(models: Models, saver: Any) -> Any:
    return create_agent(models.make("main", AIMessage("hello")), [add], middleware=[JumpsToEnd()], checkpointer=saver)


def structured_by_tool(models: Models, saver: Any) -> Any:
    main = models.make(
        "main",
        calls(("add", {"a": 1, "b": 2}, "c1")),
        calls(("Weather", {"city": "Rome"}, "w1")),  # does not fit, so the model is asked again
        calls(("Weather", {"city": "Rome", "degrees": 20.5}, "w2")),
        calls(("Weather", {"city": "Oslo", "degrees": 1}, "w3")),
    )
    return create_agent(main, [add], response_format=ToolStrategy(Weather), checkpointer=saver)


def structured_by_provider(models: Models, saver: Any) -> Any:
    main = models.make("main", AIMessage('{"city": "Rome", "degrees": 1}'), AIMessage('{"city": "Oslo", "degrees": 2}'))
    return create_agent(main, [add], response_format=ProviderStrategy(Weather), checkpointer=saver)


def return_direct(models: Models, saver: Any) -> Any:
    main = models.make("main", calls(("direct", {"x": 1}, "c1")), AIMessage("second turn"))
    return create_agent(main, [direct], checkpointer=saver)


def artifacts(models: Models, saver: Any) -> Any:
    main = models.make("main", calls(("chart", {}, "c1")), AIMessage("seen"), AIMessage("again"))
    return create_agent(main, [chart], checkpointer=saver)


def tool_errors(models: Models, saver: Any) -> Any:
    main = models.make(
        "main", calls(("refuses", {"x": 1}, "c1"), ("add", {"a": "two"}, "c2")), AIMessage("sorry"), AIMessage("again")
    )
    return create_agent(main, [refuses, add], checkpointer=saver)


def store_and_runtime(models: Models, saver: Any) -> Any:
    main = models.make("main", calls(("remember", {"name": "ada"}, "c1")), AIMessage("ok"), AIMessage("again"))
    return create_agent(main, [remember], checkpointer=saver, store=fresh_store())


def questions_of_a_tool(models: Models, saver: Any) -> Any:
    main = models.make(
        "main", calls(("ask", {}, "c1"), ("add", {"a": 1, "b": 1}, "c2")), AIMessage("k"), AIMessage("l")
    )
    return create_agent(main, [ask, add], checkpointer=saver)


def agent_as_a_tool(models: Models, saver: Any) -> Any:
    inner = create_agent(
        models.make("inner", calls(("add", {"a": 9, "b": 9}, "i1")), AIMessage("inner says 18")), [add]
    )

    @tool
    async def delegate(task: str) -> str:
        """Asks another agent."""
        state = await inner.ainvoke({"messages": [HumanMessage(task)]})
        return str(state["messages"][-1].text)

    main = models.make("main", calls(("delegate", {"task": "9 + 9"}, "c1")), AIMessage("18"), AIMessage("again"))
    return create_agent(main, [delegate], checkpointer=saver)


AGENTS = [
    plain_agent,
    hooks,
    approvals,
    tool_wrapper,
    prompt_of_the_state,
    summarization,
    model_call_limits,
    tool_call_limits,
    todo_list,
    fallback_model,
    selected_tools,
    cleared_tool_results,
    retried_tool,
    redacted_addresses,
    jump_to_end,
    structured_by_tool,
    structured_by_provider,
    return_direct,
    artifacts,
    tool_errors,
    store_and_runtime,
    questions_of_a_tool,
    agent_as_a_tool,
]
