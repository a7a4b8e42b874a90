"""What a durable session cannot make safe is refused by name when its Flow is built, with what to do instead."""

from __future__ import annotations

from typing import Any

import pytest
from agents import (
    Agent,
    ComputerTool,
    Handoff,
    LocalShellTool,
    RunConfig,
    SessionSettings,
    function_tool,
    handoff,
)
from agents.computer import AsyncComputer
from agents.sandbox import SandboxAgent

from dex_agents_openai_agents import OpenAIAgentsRunner, UnsupportedAgentError, create_openai_agents_session_flow


class _Screen(AsyncComputer):
    environment = "browser"
    dimensions = (1, 1)

    async def screenshot(self) -> str:
        return ""

    async def click(self, x: int, y: int, button: Any, **options: Any) -> None: ...

    async def double_click(self, x: int, y: int, **options: Any) -> None: ...

    async def scroll(self, x: int, y: int, scroll_x: int, scroll_y: int, **options: Any) -> None: ...

    async def type(self, text: str) -> None: ...

    async def wait(self) -> None: ...

    async def move(self, x: int, y: int, **options: Any) -> None: ...

    async def keypress(self, keys: list[str]) -> None: ...

    async def drag(self, path: list[tuple[int, int]], **options: Any) -> None: ...


@function_tool(needs_approval=True)
def gated() -> str:
    """Needs a person."""
    return ""


@function_tool
def ask_user() -> str:
    """Has the name of a built-in tool."""
    return ""


class _OwnTools(Agent[Any]):
    async def get_all_tools(self, run_context: Any) -> Any:
        return []


def _target() -> Any:
    raise AssertionError("only its schema is read")


def _unknown_target() -> Handoff[Any, Any]:
    made = handoff(Agent[Any](name="Elsewhere"))
    return Handoff(
        tool_name="go",
        tool_description="Goes.",
        input_json_schema=made.input_json_schema,
        on_invoke_handoff=made.on_invoke_handoff,
        agent_name="Elsewhere",
    )


def _same_names() -> Agent[Any]:
    return Agent[Any](name="A", handoffs=[Agent[Any](name="B"), Agent[Any](name="A")])


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        (Agent[Any](name="A", tools=[ComputerTool(computer=_Screen())]), "ComputerTool is not supported"),
        (Agent[Any](name="A", tools=[LocalShellTool(executor=lambda request: "")]), "use ShellTool instead"),
        (SandboxAgent[Any](name="A"), "SandboxAgent"),
        (_OwnTools(name="A"), "overrides get_all_tools"),
        (_same_names(), "has the same name"),
        (Agent[Any](name="A", tools=[gated, gated]), "are named 'gated'"),
        (
            Agent[Any](name="A", tools=[gated], handoffs=[handoff(Agent[Any](name="B"), tool_name_override="gated")]),
            "are named 'gated'",
        ),
        (Agent[Any](name="A", handoffs=[_unknown_target()]), r"agents=\[\.\.\.\]"),
        (
            Agent[Any](name="A", tools=[Agent[Any](name="B", tools=[gated]).as_tool("b", "B.")]),
            "'gated' needs approval",
        ),
        (
            Agent[Any](
                name="A",
                tools=[
                    Agent[Any](name="B", handoffs=[Agent[Any](name="C", tools=[gated])]).as_tool("b", "B."),
                ],
            ),
            "'gated' needs approval",
        ),
        (Agent[Any](name="First", handoffs=[Agent[Any](name="A", tools=[ComputerTool(computer=_Screen())])]), "'A'"),
    ],
)
def test_an_agent_that_cannot_be_run_durably_is_refused(agent: Agent[Any], words: str) -> None:
    with pytest.raises(UnsupportedAgentError, match=words):
        create_openai_agents_session_flow(agent, "TestAgent")


def test_a_handoff_that_hides_its_target_is_accepted_with_the_target() -> None:
    elsewhere = Agent[Any](name="Elsewhere")
    runner = OpenAIAgentsRunner(Agent[Any](name="A", handoffs=[_unknown_target()]), agents=[elsewhere])
    assert runner.agents["Elsewhere"] is elsewhere


def test_agents_that_hand_off_in_a_circle_are_found_once() -> None:
    first, second = Agent[Any](name="A"), Agent[Any](name="B")
    first.handoffs.append(handoff(second))
    second.handoffs.append(first)
    assert dict(OpenAIAgentsRunner(first).agents) == {"A": first, "B": second}


def test_a_tool_with_the_name_of_an_enabled_built_in_tool_is_refused() -> None:
    agent = Agent[Any](name="A", tools=[ask_user])
    create_openai_agents_session_flow(agent, "TestAgent")
    with pytest.raises(UnsupportedAgentError, match="'ask_user' has the name of an enabled built-in tool"):
        create_openai_agents_session_flow(agent, "TestAgent", built_in_tools=["ask_user"])


@pytest.mark.parametrize(
    ("run_config", "words"),
    [
        (RunConfig(nest_handoff_history=True), "nest_handoff_history"),
        (RunConfig(session_settings=SessionSettings(limit=3)), "session_settings"),
        (RunConfig(session_input_callback=lambda history, new: new), "session_input_callback"),
    ],
)
def test_a_run_config_that_a_session_could_only_ignore_is_refused(run_config: RunConfig, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        OpenAIAgentsRunner(Agent[Any](name="A"), run_config=run_config)


def test_a_handoff_that_nests_its_history_is_refused() -> None:
    agent = Agent[Any](name="A", handoffs=[handoff(Agent[Any](name="B"), nest_handoff_history=True)])
    with pytest.raises(ValueError, match=r"A\.transfer_to_b"):
        OpenAIAgentsRunner(agent)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"agent": "Assistant"}, TypeError, "agents.Agent, not str"),
        ({"run_config": {"model": "x"}}, TypeError, "agents.RunConfig, not dict"),
        ({"tool_errors": "ignore"}, ValueError, "'report' or 'retry', not 'ignore'"),
        ({"start_each_turn_with": "me"}, ValueError, "'last_agent' or 'first_agent', not 'me'"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        OpenAIAgentsRunner(**{"agent": Agent[Any](name="A"), **arguments})
