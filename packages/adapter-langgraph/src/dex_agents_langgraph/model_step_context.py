"""What the session wants of the model call that runs: which of its tools to offer, and what else to say."""

from __future__ import annotations

import contextvars
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from dex_agents import BUILT_IN_TOOL_DEFINITIONS, AgentTurnContext, InteractionMode, TurnRefusedError
from dex_agents.session.built_in_tools import WRITE_TODOS
from dex_agents.session.plans import build_plan_note

__all__ = [
    "SessionModelStep",
    "active_model_step",
    "current_session_model_step",
    "offered_tools",
    "session_messages",
    "session_tools",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionModelStep:
    """The durable model step that a node runs in.

    Attributes:
        session_id: The session.
        turn_id: The turn.
        settings: The turn's settings; read-only.
        built_in_tools: Names of the session's own tools to offer.
        is_planning: Whether the turn only plans, so that only `write_todos` may be offered.
        offers_no_tools: Whether the turn has reached a limit: this is its last model call.
        plan_note: What the model should read about the session's plan.
    """

    session_id: str
    turn_id: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    built_in_tools: tuple[str, ...] = ()
    is_planning: bool = False
    offers_no_tools: bool = False
    plan_note: str | None = None

    @classmethod
    def of(cls, turn: AgentTurnContext) -> SessionModelStep:
        """The step of a turn."""
        return cls(
            session_id=turn.flow_id,
            turn_id=turn.turn_id,
            settings=turn.session_settings,
            built_in_tools=turn.enabled_built_in_tools,
            is_planning=turn.interaction_mode is InteractionMode.PLANNING,
            offers_no_tools=turn.turn_limit_reached is not None,
            plan_note=build_plan_note(turn.plan, turn.interaction_mode),
        )

    def offered_tools(self, tools: Iterable[Any]) -> list[Any]:
        """The tools a model may call in this step, of an agent with these."""
        if self.offers_no_tools:
            return []
        built_in = [_SESSION_TOOLS[name] for name in self.built_in_tools]
        if self.is_planning:
            return [tool for tool in built_in if tool.name == WRITE_TODOS]
        return [*(tool for tool in tools if not _is_session_tool(tool)), *built_in]

    def check_offer(self, names: Collection[str], own_tools: Collection[str]) -> None:
        """Check what a model call offers in a planning turn.

        Args:
            names: The names of the offered tools.
            own_tools: The names of the graph's own tools.

        Raises:
            TurnRefusedError: A tool of the graph is offered, or `write_todos` is not; says what to do.
        """
        if not self.is_planning or not names:
            return  # a call without tools is for text alone, such as a summary
        own = sorted(name for name in names if name in own_tools and name not in self.built_in_tools)
        if own or WRITE_TODOS not in names:
            wrong = f"the graph offers its model {', '.join(own)}" if own else f"the graph does not offer {WRITE_TODOS}"
            raise TurnRefusedError(
                f"{wrong} in a planning turn; give the agent SessionToolsMiddleware(), or bind offered_tools(TOOLS)"
            )


active_model_step: contextvars.ContextVar[SessionModelStep | None] = contextvars.ContextVar(
    "dex_model_step", default=None
)


def current_session_model_step() -> SessionModelStep | None:
    """The durable model step that a node runs in; None outside of a session."""
    return active_model_step.get()


def session_tools() -> list[BaseTool]:
    """The session's own tools, as LangChain tools that only a session can run."""
    return list(_SESSION_TOOLS.values())


def offered_tools(tools: Sequence[Any]) -> list[Any]:
    """What a node of a custom graph binds to its model: `model.bind_tools(offered_tools(TOOLS))`.

    Outside of a session these are the tools themselves.

    Args:
        tools: The agent's own tools.
    """
    step = current_session_model_step()
    if step is None:
        return [tool for tool in tools if not _is_session_tool(tool)]
    return step.offered_tools(tools)


def session_messages(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """What a node of a custom graph sends to its model: the messages, and the session's plan before the last of the
    user's messages.

    Args:
        messages: The conversation.
    """
    step = current_session_model_step()
    if step is None or step.plan_note is None:
        return list(messages)
    humans = [place for place, message in enumerate(messages) if isinstance(message, HumanMessage)]
    place = humans[-1] if humans else len(messages)
    while place > 0 and place < len(messages) and isinstance(messages[place], ToolMessage):
        place -= 1
    return [*messages[:place], HumanMessage(step.plan_note, id="dex-plan-note"), *messages[place:]]


def _is_session_tool(tool: Any) -> bool:
    return any(tool is known for known in _SESSION_TOOLS.values())


def _session_tool(name: str) -> BaseTool:
    definition = BUILT_IN_TOOL_DEFINITIONS[name]

    def run(**_: Any) -> str:
        raise RuntimeError(f"{name} is a tool of the session; only a session can run it")

    return StructuredTool(
        name=name, description=definition.description, args_schema=dict(definition.parameters), func=run
    )


_SESSION_TOOLS = {name: _session_tool(name) for name in BUILT_IN_TOOL_DEFINITIONS}
