"""Tools that are listed at run time: offered, stored with their source, and run by it on any worker."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dex_agents import (
    AgentTurnContext,
    DeferredToolCall,
    DeferredToolExecution,
    DeferredToolOutcome,
    InteractionMode,
    ToolEffect,
    ToolExecutionResult,
    ToolPolicy,
    ToolTaskCancellation,
    ToolTaskPending,
    ToolTaskPoll,
    ToolTaskPollOutcome,
    ToolTaskStarted,
)
from dex_agents_stepwise import AgentDefinition, ScriptedModelClient, StepwiseAgentRunner, UnknownToolSourceError

from .stepwise_agent import TOOLS, Agent, ask, call, lookup_order, say, script
from .stepwise_session_driver import task_cancellation, task_poll, tool_call, tool_execution
from .stepwise_sessions import live_session


@dataclass(frozen=True)
class Listed:
    name: str
    description: str = "A listed tool."
    input_schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})


class Source:
    """Lists what a test says, and remembers what it ran."""

    def __init__(self, *names: str, source_name: str = "fake", effect: ToolEffect = ToolEffect.READ) -> None:
        self.source_name = source_name
        self.names: Sequence[str] = names
        self.effect = effect
        self.error: Exception | None = None
        self.never_lists = False
        self.listings = 0
        self.executed: list[DeferredToolExecution] = []
        self.polled: list[ToolTaskPoll] = []
        self.cancelled: list[ToolTaskCancellation] = []
        self.starts_task = False

    async def list_tools(self) -> Sequence[Listed]:
        self.listings += 1
        if self.never_lists:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return [Listed(name) for name in self.names]

    def deferred_tool_call(
        self,
        turn: AgentTurnContext,
        *,
        tool_call_id: str,
        tool_name: str,
        arguments: str,
        listed_tool: Listed | None,
    ) -> DeferredToolCall:
        assert listed_tool is not None
        return DeferredToolCall(
            tool_call_id=tool_call_id,
            tool_name=tool_name,
            arguments=arguments,
            policy=turn.resolve_tool_policy(tool_name, self.effect),
            tool_source_reference=f"reference of {listed_tool.name}",
        )

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        self.executed.append(call)
        if self.starts_task:
            return ToolTaskStarted(task_id="t", poll_interval_seconds=1)
        return ToolExecutionResult(output=f"{self.source_name} ran {call.tool_call.tool_name}")

    async def poll_tool_task(self, poll: ToolTaskPoll) -> ToolTaskPollOutcome:
        self.polled.append(poll)
        return ToolTaskPending(poll_interval_seconds=1)

    async def cancel_tool_task(self, cancellation: ToolTaskCancellation) -> None:
        self.cancelled.append(cancellation)


def reference(source_name: str = "fake", text: str | None = "reference of find") -> str:
    return json.dumps({"stepwise_tool_source": source_name, "reference": text})


def run(agent: Agent, text: str = "go") -> str:
    return asyncio.run(agent.session.run_turn(text))


def offered(agent: Agent, request: int = -1) -> list[str]:
    return [tool.name for tool in agent.model.requests[request].tools]


def test_listed_tools_are_offered_between_function_tools_and_built_in_ones() -> None:
    agent = Agent(say("hi"), tool_sources=[Source("find", "fetch")], built_in_tools=["ask_user"])
    assert run(agent) == "hi"
    assert offered(agent) == [*(tool.name for tool in TOOLS), "find", "fetch", "ask_user"]


def test_a_call_of_a_listed_tool_carries_its_source_and_is_run_by_it(tmp_path: Path) -> None:
    async def scenario() -> None:
        source = Source("find")
        async with live_session(
            tmp_path,
            script(ask(call("find", {"a": 1})), say("done")),
            tool_sources=[Source("other", source_name="x"), source],
        ) as session:
            await session.say("go")
            assert await session.idle() == "done"
            assert session.results_seen() == ["fake ran find"]
            (executed,) = source.executed
            assert executed.tool_call.tool_source_reference == "reference of find"
            assert executed.tool_call.arguments == '{"a": 1}'
            assert executed.idempotency_key == "s/turn-1/call_1_1"

    asyncio.run(scenario())


def test_a_listing_that_changes_during_the_model_call_does_not_change_the_call() -> None:
    source = Source("find")

    def forget(request: object) -> Any:
        source.names = ()
        return ask(call("find"))

    agent = Agent(tool_sources=[source], model=ScriptedModelClient(forget))
    agent.session.begin_turn("go")
    asyncio.run(agent.session.model_step())
    (outcome,) = agent.session.outcomes
    (deferred,) = outcome.tool_calls  # type: ignore[union-attr]
    assert deferred.tool_source_reference == reference()


def test_a_source_that_fails_or_hangs_offers_nothing_and_the_turn_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    broken, silent, sound = Source("a", source_name="broken"), Source("b", source_name="silent"), Source("c")
    broken.error, silent.never_lists = ConnectionError("down"), True
    agent = Agent(
        say("one"),
        say("two"),
        say("three"),
        tools=(),
        tool_sources=[broken, silent, sound],
        tool_source_listing_timeout=timedelta(milliseconds=20),
    )
    with caplog.at_level(logging.WARNING):
        assert run(agent) == "one"
        assert run(agent) == "two"
    assert offered(agent) == ["c"]
    assert [record.getMessage() for record in caplog.records] == [
        "the tool source 'broken' offers no tools: ConnectionError: down",
        "the tool source 'silent' offers no tools: TimeoutError: ",
    ]
    broken.error, silent.never_lists = None, False
    assert run(agent) == "three"
    assert offered(agent) == ["a", "b", "c"]


def test_a_planning_turn_and_the_last_model_call_list_nothing() -> None:
    source = Source("find")
    agent = Agent(say("plan"), tool_sources=[source], built_in_tools=["write_todos"], plan_mode_enabled=True)
    agent.session.interaction_mode = InteractionMode.PLANNING
    run(agent)
    assert source.listings == 0
    agent = Agent(ask(call("find")), say("end"), tool_sources=[source], max_model_calls_per_turn=1)
    run(agent)
    assert source.listings == 1
    assert offered(agent) == []


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([Source("lookup_order")], "tool lookup_order of a tool source uses the name of a function tool"),
        ([Source("ask_user")], "tool ask_user uses the name of an enabled built-in tool"),
        ([Source("find"), Source("find", source_name="other")], "two tool sources list a tool named find"),
    ],
)
def test_a_listed_name_that_is_taken_fails_the_model_step_before_any_request(
    sources: list[Source], message: str
) -> None:
    agent = Agent(say("hi"), tool_sources=sources, built_in_tools=["ask_user"])
    with pytest.raises(TypeError, match=message):
        run(agent)
    assert agent.model.requests == ()


class DeclaringSource(Source):
    def declared_tool_names(self) -> tuple[str, ...]:
        return tuple(self.names)


def test_declared_names_are_checked_when_the_runner_is_made() -> None:
    fields: dict[str, Any] = {"name": "a", "instructions": "", "model": ScriptedModelClient(script())}
    for source, message in [
        ([DeclaringSource("lookup_order")], "uses the name of a function tool"),
        ([DeclaringSource("find"), DeclaringSource("find", source_name="b")], "two tool sources"),
    ]:
        definition = AgentDefinition(**fields, tools=[lookup_order], tool_sources=source)
        with pytest.raises(TypeError, match=message):
            StepwiseAgentRunner(definition)


def test_a_name_that_no_listing_offered_fails_without_an_approval_and_reaches_no_source() -> None:
    source = Source("find")
    agent = Agent(ask(call("gone")), say("end"), tool_sources=[source])
    run(agent)
    assert agent.results_seen() == ["unknown tool gone"]
    assert source.executed == []


def test_policies_of_the_agent_and_the_session_beat_the_source() -> None:
    source = Source("find", effect=ToolEffect.NON_IDEMPOTENT_WRITE)
    agent = Agent(ask(call("find")), tool_sources=[source], tool_policies={"find": ToolPolicy(effect=ToolEffect.READ)})
    agent.session.begin_turn("go")
    asyncio.run(agent.session.model_step())
    assert agent.session.tool_calls[0].effect is ToolEffect.READ


def test_the_steps_of_a_task_reach_the_source_of_the_call() -> None:
    source = Source("find")
    runner = StepwiseAgentRunner(
        AgentDefinition(name="a", instructions="", model=ScriptedModelClient(script()), tool_sources=[source])
    )
    stored = tool_call("find", tool_source_reference=reference(), task_id="t")
    asyncio.run(runner.poll_tool_task(task_poll(stored)))
    asyncio.run(runner.cancel_tool_task(task_cancellation(stored)))
    assert source.polled[0].tool_call.tool_source_reference == "reference of find"
    assert source.cancelled[0].tool_call.task_id == "t"
    assert source.listings == 0


def test_a_call_of_a_source_that_a_deploy_removed_fails_the_attempt_so_that_its_effect_decides() -> None:
    runner = StepwiseAgentRunner(
        AgentDefinition(name="a", instructions="", model=ScriptedModelClient(script()), tools=TOOLS)
    )
    stored = tool_call("lookup_order", tool_source_reference=reference("gone"))
    with pytest.raises(UnknownToolSourceError, match="'gone'"):
        asyncio.run(runner.execute_deferred_tool_call(tool_execution(stored)))
    with pytest.raises(UnknownToolSourceError):
        asyncio.run(runner.poll_tool_task(task_poll(stored)))


class CachingSource(Source):
    def cached_tools(self) -> Sequence[Listed]:
        return [Listed(name, "x" * 700) for name in self.names]


def test_listed_tools_count_for_the_estimate_of_tokens() -> None:
    def tokens(source: Source, *, after_a_listing: bool = False) -> int:
        agent = Agent(say("hi"), tools=(), tool_sources=[source])
        if after_a_listing:
            run(agent)
        agent.session.messages.clear()
        return agent.runner.estimate_input_tokens(agent.session.turn_context())

    assert tokens(Source("find")) == tokens(Source())
    assert tokens(Source("find"), after_a_listing=True) > tokens(Source())
    assert tokens(CachingSource("find")) > tokens(Source()) + 200


def test_sources_must_be_sources_with_names_of_their_own() -> None:
    fields: dict[str, Any] = {"name": "a", "instructions": "", "model": ScriptedModelClient(script())}
    with pytest.raises(TypeError, match="tool_sources"):
        AgentDefinition(**fields, tool_sources=[object()])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="two sources are named 'fake'"):
        AgentDefinition(**fields, tool_sources=[Source(), Source()])
    with pytest.raises(ValueError, match="tool_source_listing_timeout"):
        AgentDefinition(**fields, tool_source_listing_timeout=timedelta(0))
    with pytest.raises(ValueError, match="no tool named"):
        AgentDefinition(**fields, tool_policies={"find": ToolPolicy()})
    AgentDefinition(**fields, tool_sources=[Source()], tool_policies={"find": ToolPolicy()})


def test_a_policy_for_a_name_that_no_source_could_ever_list_is_refused() -> None:
    class PrefixedSource(Source):
        def could_offer(self, tool_name: str) -> bool:
            return tool_name.startswith("crm__")

    fields: dict[str, Any] = {"name": "a", "instructions": "", "model": ScriptedModelClient(script())}
    prefixed = PrefixedSource()
    AgentDefinition(**fields, tool_sources=[prefixed], tool_policies={"crm__find": ToolPolicy()})
    with pytest.raises(ValueError, match="no tool named 'cmr__find'"):
        AgentDefinition(**fields, tool_sources=[prefixed], tool_policies={"cmr__find": ToolPolicy()})
    says_nothing = Source(source_name="other")
    AgentDefinition(**fields, tool_sources=[prefixed, says_nothing], tool_policies={"cmr__find": ToolPolicy()})
