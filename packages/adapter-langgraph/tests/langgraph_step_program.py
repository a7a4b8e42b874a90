"""Runs one Step of the hopping test's session and is killed: a program, and the graph that it and the test build.

`python langgraph_step_program.py REQUEST OUTCOME`, as `dex_agents.testing.run_step_program` has it.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
from typing import Annotated, Any

from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.tools import ToolRuntime
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import InjectedToolCallId, StructuredTool, tool
from langgraph.graph import START, StateGraph
from langgraph.prebuilt import InjectedState
from langgraph.types import Command, interrupt

from dex_agents.testing import run_step_program
from dex_agents_langgraph import LangGraphRunner, current_session_tool_call

LOG = "HOPPING_LOG"


def note(text: str) -> None:
    """Say what happened in which process, where the test reads it."""
    if LOG in os.environ:
        with open(os.environ[LOG], "a", encoding="utf-8") as log:
            log.write(f"{os.getpid()} {importlib.metadata.version('langgraph')} {text}\n")


class MoodState(AgentState[Any]):
    mood: str
    visits: int


class CountVisits(AgentMiddleware[Any, Any]):
    """Changes the state before a turn, and says when it ran."""

    state_schema = MoodState

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        note("before_agent")
        return {"visits": state.get("visits", 0) + 1}


@tool
def look(place: str, state: Annotated[dict[str, Any], InjectedState]) -> str:
    """Looks."""
    note(f"look {_key()}")
    return f"saw {place} on visit {state['visits']}"


@tool
def set_mood(mood: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command[Any]:
    """Changes the state."""
    note("set_mood")
    return Command(update={"mood": mood, "messages": [ToolMessage(f"mood {mood}", tool_call_id=tool_call_id)]})


@tool(response_format="content_and_artifact")
def photo(runtime: ToolRuntime[Any, Any]) -> tuple[str, dict[str, int]]:
    """A picture."""
    note("photo")
    return f"a picture in mood {runtime.state['mood']}", {"width": 7}


def _charge(amount: int) -> str:
    """Charges."""
    note(f"charge {_key()}")
    return f"charged {amount}"


@tool
def ask_name() -> str:
    """Asks."""
    note("ask_name")
    return f"named {interrupt('which name?')} {interrupt('which family name?')}"


charge = StructuredTool.from_function(
    _charge, name="charge", metadata={"effect": "non_idempotent_write", "requires_approval": True}
)


def _key() -> str:
    call = current_session_tool_call()
    return "native" if call is None else call.idempotency_key


class StepModel(BaseChatModel):
    """Says what follows from what it is asked, since each process has a model of its own."""

    @property
    def _llm_type(self) -> str:
        return "steps"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        note("model")
        last_human = max(place for place, message in enumerate(messages) if isinstance(message, HumanMessage))
        place = sum(isinstance(message, AIMessage) for message in messages[last_human:])
        return ChatResult(generations=[ChatGeneration(message=self._reply(str(messages[last_human].text), place))])

    def _reply(self, asked: str, place: int) -> AIMessage:
        match asked, place:
            case "hello", 0:
                return _calls(("look", {"place": "a"}), ("set_mood", {"mood": "good"}))
            case "hello", 1:
                return _calls(("charge", {"amount": 7}), ("ask_name", {}), ("photo", {}))
            case "thanks", 0:
                return _calls(("look", {"place": "b"}))
            case _:
                return AIMessage(f"{asked} {place}")


def _calls(*calls: tuple[str, dict[str, Any]]) -> AIMessage:
    """Calls whose IDs repeat in every message, as some providers' do."""
    made: list[Any] = [{"name": name, "args": args, "id": f"c{place}"} for place, (name, args) in enumerate(calls)]
    return AIMessage("", tool_calls=made)


def build_graph(saver: Any = None) -> Any:
    """An agent with middleware as a subgraph, and a node that calls the model once more."""
    model = StepModel()
    tools = [look, set_mood, photo, charge, ask_name]
    agent = create_agent(model, tools, middleware=[CountVisits()])

    async def last(state: MoodState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(MoodState)
    graph.add_node("agent", agent)
    graph.add_node("last", last)
    graph.add_edge(START, "agent")
    graph.add_edge("agent", "last")
    return graph.compile(checkpointer=saver)


def build_runner() -> LangGraphRunner:
    """The runner of one process."""
    return LangGraphRunner(build_graph())


if __name__ == "__main__":
    run_step_program(build_runner)
    os.kill(os.getpid(), signal.SIGKILL)
