"""The timeline: the order in which facts are told, and how they look."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Literal

import pytest
from rich.console import Console

from dex_agents import AgentMessage, StreamedAgentEvent
from dex_agents.session.event_values import AgentEvent, encode_event_payload
from dex_agents_server.demo.chronicle import Chronicle, running_chronicle
from dex_agents_server.demo.commit_order import in_order_of_commits
from dex_agents_server.demo.facts import EventWritten, Fact, Happened, MessageStored, PhaseStarted, StepFinished
from dex_agents_server.demo.scenarios import SCENARIOS, ScenarioName
from dex_agents_server.demo.timeline import Timeline
from dex_flow import StepHistoryEntry

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def step(number: int, step_type: str, when: datetime, *, outcome: str = "succeeded") -> StepHistoryEntry:
    return StepHistoryEntry(
        number=number,
        step_execution_id=number,
        step_type=step_type,
        method="run",
        attempt=1,
        outcome=outcome,
        started_at=when,
        finished_at=when,
    )


def event(position: int, event_type: str, step_execution_id: int, when: datetime, **payload: str) -> StreamedAgentEvent:
    stored = AgentEvent(
        type=event_type,
        turn_id="turn-1",
        attempt=1,
        step_execution_id=step_execution_id,
        payload=encode_event_payload(payload),
        created_at=when,
    )
    return StreamedAgentEvent(position, stored)


def message(sequence: int, role: Literal["user", "assistant", "tool"], text: str, when: datetime) -> AgentMessage:
    return AgentMessage(sequence=sequence, turn_id="turn-1", role=role, text=text, framework_item="{}", created_at=when)


def told(facts: list[Fact]) -> list[str]:
    names = []
    for fact in facts:
        match fact:
            case StepFinished():
                names.append(fact.entry.step_type)
            case EventWritten():
                names.append(fact.event.type)
            case MessageStored():
                names.append(f"{fact.message.role}: {fact.message.text}")
            case Happened() | PhaseStarted():
                names.append(type(fact).__name__)
    return names


def timeline_of(width: int, *facts: Fact) -> list[list[str]]:
    output = StringIO()
    with Timeline(Console(file=output, width=width), SCENARIOS[ScenarioName.STEER], NOON) as timeline:
        for fact in facts:
            timeline.show(fact)
    lines = output.getvalue().splitlines()
    assert max(len(line) for line in lines) <= width
    return [line.split() for line in lines]


def test_a_step_comes_before_what_it_committed() -> None:
    facts = in_order_of_commits(
        [message(2, "tool", "{}", at(1)), message(3, "assistant", "May I?", at(1))],
        [
            event(1, "tool_call_deferred", 5, at(1)),
            event(2, "interrupt_raised", 5, at(1)),
            event(3, "tool_call_started", 6, at(1)),
        ],
        [step(5, "RunModel", at(1))],
    )
    assert told([*facts]) == [
        "RunModel",
        "tool: {}",
        "assistant: May I?",
        "tool_call_deferred",
        "interrupt_raised",
        "tool_call_started",
    ]


def test_each_step_of_one_commit_comes_with_its_own_events() -> None:
    facts = in_order_of_commits(
        [],
        [event(1, "interrupt_resolved", 0, at(1)), event(2, "tool_call_finished", 8, at(1))],
        [step(7, "AwaitToolApproval", at(1)), step(8, "CallTool", at(1)), step(9, "ResumeTurn", at(1))],
    )
    assert told([*facts]) == ["interrupt_resolved", "AwaitToolApproval", "CallTool", "tool_call_finished", "ResumeTurn"]


def test_a_new_turn_takes_its_message_when_the_old_one_is_over() -> None:
    facts = in_order_of_commits(
        [message(4, "tool", "not run", at(1)), message(5, "user", "Wait", at(1))],
        [event(1, "turn_steered", 7, at(1)), event(2, "turn_started", 7, at(1))],
        [step(7, "ApplyTurnControl", at(1))],
    )
    assert told([*facts]) == ["ApplyTurnControl", "tool: not run", "turn_steered", "user: Wait", "turn_started"]


def test_commits_come_by_time_and_nothing_is_left_out() -> None:
    facts = in_order_of_commits(
        [message(1, "user", "Hi", at(1)), message(2, "assistant", "Hello", at(3))],
        [event(1, "text_delta", 5, at(2)), event(2, "turn_completed", 5, at(3))],
        [step(5, "RunModel", at(3))],
    )
    assert told([*facts]) == ["user: Hi", "text_delta", "RunModel", "assistant: Hello", "turn_completed"]


def test_the_chronicle_tells_what_became_known_late_in_its_place() -> None:
    shown: list[Fact] = []
    chronicle = Chronicle(shown.append)
    second = Happened(at=at(2), who="user", text="second")
    third = Happened(at=at(2), who="user", text="third")
    first = Happened(at=at(1), who="kill", text="first")
    for fact in (second, third, first):
        chronicle.add(fact)
    chronicle.show_all()
    assert shown == [first, second, third]


def test_a_running_chronicle_shows_old_facts_by_itself_and_the_rest_at_its_end() -> None:
    shown: list[Fact] = []
    old = Happened(at=NOON, who="user", text="old")
    new = Happened(at=datetime.now(UTC) + timedelta(hours=1), who="user", text="new")
    seen = asyncio.Event()

    def show(fact: Fact) -> None:
        shown.append(fact)
        seen.set()

    async def run() -> None:
        async with running_chronicle(show) as chronicle:
            chronicle.add(new)
            chronicle.add(old)
            await asyncio.wait_for(seen.wait(), 60)
            assert shown == [old]
            raise ValueError("the story went wrong")

    with pytest.raises(ValueError, match="the story went wrong"):
        asyncio.run(run())
    assert shown == [old, new]


def test_the_timeline_explains_itself_and_shows_seconds_since_its_start() -> None:
    lines = timeline_of(
        100,
        PhaseStarted(at=NOON, number=1, total=6, title="A customer asks"),
        Happened(at=at(1.5), who="kill", text="SIGKILL to worker 1"),
    )
    words = [word for line in lines for word in line]
    assert lines[0] == ["dex-agents", "demo", "--scenario", "steer"]
    for text in (SCENARIOS[ScenarioName.STEER].explanation, f"Watch: {SCENARIOS[ScenarioName.STEER].watch}"):
        start = words.index(text.split()[0])
        assert words[start : start + len(text.split())] == text.split()
    assert ["[1/6]", "A", "customer", "asks"] in lines
    assert ["1.500", "s", "KILL", "SIGKILL", "to", "worker", "1"] in lines


@pytest.mark.parametrize("width", [60, 100])
def test_steps_and_events_are_on_one_line_on_any_terminal(width: int) -> None:
    finished = event(1, "tool_call_finished", 1, at(1), tool_name="lookup_order", status="succeeded")
    lines = timeline_of(
        width,
        StepFinished(at=at(1), entry=step(1, "CallSingleAttemptTool", at(1), outcome="lost")),
        EventWritten(at=at(1), event=finished),
    )
    assert ["1.000", "s", "step", "CallSingleAttemptTool", "attempt", "1", "lost"] in lines
    text = " ".join(word for line in lines for word in line)
    assert "1.000 s event tool_call_finished lookup_order: succeeded" in text


def test_every_scenario_fits_its_explanations_on_narrow_terminals() -> None:
    for scenario in SCENARIOS.values():
        assert len(scenario.summary) <= 46, f"the help of {scenario.name} breaks at 60 columns"
        assert scenario.explanation.endswith(".")
        assert scenario.watch.endswith(".")
        assert not any(phase.endswith(".") for phase in scenario.phases)
