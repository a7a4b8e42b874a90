"""The sessions of the golden database files: how each is left, how it is gone on with, and what it says then."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from dex_agents import AgentSessionClient, AgentSessionFlow, AgentToolCallRecordStatus
from dex_agents.session.persistence import AGENT_TOOL_CALLS
from dex_agents.session.plans import plan_execution_message
from dex_flow import StateView
from dex_flow.embedded import EmbeddedEngine
from tools.golden_agents import PlannedCall, final_answer, plan_message

__all__ = ["GOLDEN_SESSIONS", "WAIT_SECONDS", "WRITTEN_AT", "GoldenSession", "Said"]

#: The clock of every file, in UTC: it stands still while one is written.
WRITTEN_AT = datetime.fromisoformat("2025-01-01T00:00:00Z")
WAIT_SECONDS = 60.0
HELD_SESSION = "running-model"

Said = tuple[str, str]
"""Role and text of a stored message."""


def _turn(text: str, *steps: tuple[Sequence[PlannedCall], Sequence[str]], model: str | None = None) -> list[Said]:
    """What a turn's messages say: its calls with their results, and the answer."""
    said = [("user", text)]
    results: list[str] = []
    for _, outputs in steps:
        said += [("assistant", ""), *(("tool", output) for output in outputs)]
        results += outputs
    return [*said, ("assistant", final_answer(results, model))]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenSession:
    """One session.

    Attributes:
        session_id: Its ID.
        since: The first release whose file has it.
        agent: Whose Flow it is of.
        ended_turns: Messages of turns that have ended.
        open_turn: The message of a turn that has not, None for an idle session.
        queued: Messages that wait behind it.
        plan_mode: Whether the last turn only plans.
        settings: The session's settings.
        waits_for: What the open turn's call waits for.
        continuation: What a person does for the session to go on.
        said: What all its messages say once it is idle again.
    """

    session_id: str
    since: str
    said: Sequence[Said]
    agent: Literal["runner", "stepwise"] = "runner"
    ended_turns: Sequence[str] = ()
    open_turn: str | None = None
    queued: Sequence[str] = ()
    plan_mode: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    waits_for: AgentToolCallRecordStatus | None = None
    continuation: Literal["none", "approve", "answer", "execute_plan"] = "none"

    async def leave(self, engine: EmbeddedEngine, flow: AgentSessionFlow) -> None:
        """Start the session and bring it to where the file leaves it."""
        client = AgentSessionClient(engine, flow)
        await client.start_session(self.session_id, session_settings=self.settings)
        for text in self.ended_turns:
            await client.send_user_message(self.session_id, text, plan_mode=self.plan_mode)
            state = await client.wait_until_idle(self.session_id, timeout=WAIT_SECONDS)
            if state.last_turn_error is not None:
                raise ValueError(f"a turn of {self.session_id!r} failed: {state.last_turn_error}")
        if self.open_turn is None:
            return
        await client.send_user_message(self.session_id, self.open_turn)
        status = self.waits_for
        if status is None:
            return

        def is_waiting(view: StateView) -> bool:
            return any(record.status is status for _, record in view.read_range(AGENT_TOOL_CALLS))

        await engine.wait_until(self.session_id, is_waiting, timeout=WAIT_SECONDS)
        for text in self.queued:
            await client.send_user_message(self.session_id, text)

    async def go_on(self, engine: EmbeddedEngine, flow: AgentSessionFlow) -> None:
        """Do what a person does, and wait until the session is idle."""
        client = AgentSessionClient(engine, flow)
        accepted = True
        if self.continuation == "execute_plan":
            accepted = await client.execute_plan(self.session_id, 1)
        elif self.continuation != "none":
            (interrupt,) = await client.pending_interrupts(self.session_id)
            if self.continuation == "approve":
                accepted = await client.resolve_interrupt(self.session_id, interrupt.interrupt_id, approved=True)
            else:
                accepted = await client.answer_question(self.session_id, interrupt.interrupt_id, "Bern")
        if not accepted:
            raise ValueError(f"{self.session_id!r} refused to {self.continuation}")
        await client.wait_until_idle(self.session_id, timeout=WAIT_SECONDS)


_LOOK_UP: PlannedCall = ("look_up", {"order": "42"})
_CHARGE: PlannedCall = ("charge_card", {"amount": 5})
_ASK: PlannedCall = ("ask_user", {"question": "Which city?"})
_WAIT: PlannedCall = ("durable_wait", {"duration_seconds": 600, "reason": "the build"})
_EXPORT: PlannedCall = ("export_report", {})
_TODOS: PlannedCall = ("write_todos", {"todos": [{"content": "measure", "status": "pending"}]})

_LOOKED_UP = f"look_up {json.dumps(_LOOK_UP[1])}"
_CHARGED = f"charge_card {json.dumps(_CHARGE[1])}"
_ANSWERED = '{"status": "answered", "answer": "Bern"}'
_WAITED = '{"status": "completed", "waited_seconds": 600, "reason": "the build"}'
_PLANNED = '{"status": "updated", "revision": 1, "task_count": 1}'
_LONG_TALK = [f"message {number} ".ljust(180, ".") for number in range(1, 25)]

GOLDEN_SESSIONS = (
    GoldenSession(
        session_id="idle",
        since="0.1.0",
        ended_turns=["hello", plan_message([_LOOK_UP, _LOOK_UP], [_LOOK_UP])],
        said=[
            *_turn("hello"),
            *_turn(
                plan_message([_LOOK_UP, _LOOK_UP], [_LOOK_UP]),
                ([_LOOK_UP, _LOOK_UP], [_LOOKED_UP, _LOOKED_UP]),
                ([_LOOK_UP], [_LOOKED_UP]),
            ),
        ],
    ),
    GoldenSession(
        session_id="approval",
        since="0.1.0",
        ended_turns=["hello"],
        open_turn=plan_message([_CHARGE, _LOOK_UP]),
        queued=["and then?"],
        waits_for=AgentToolCallRecordStatus.AWAITING_APPROVAL,
        continuation="approve",
        said=[
            *_turn("hello"),
            *_turn(plan_message([_CHARGE, _LOOK_UP]), ([_CHARGE, _LOOK_UP], [_CHARGED, _LOOKED_UP])),
            *_turn("and then?"),
        ],
    ),
    GoldenSession(
        session_id="question",
        since="0.1.0",
        open_turn=plan_message([_ASK]),
        waits_for=AgentToolCallRecordStatus.AWAITING_ANSWER,
        continuation="answer",
        said=_turn(plan_message([_ASK]), ([_ASK], [_ANSWERED])),
    ),
    GoldenSession(
        session_id="durable-wait",
        since="0.1.0",
        open_turn=plan_message([_WAIT]),
        waits_for=AgentToolCallRecordStatus.WAITING_FOR_TIMER,
        said=_turn(plan_message([_WAIT]), ([_WAIT], [_WAITED])),
    ),
    GoldenSession(
        session_id="tool-task",
        since="0.1.0",
        open_turn=plan_message([_EXPORT]),
        waits_for=AgentToolCallRecordStatus.WAITING_FOR_TASK,
        said=_turn(plan_message([_EXPORT]), ([_EXPORT], ["export-7 has ended"])),
    ),
    GoldenSession(
        session_id="plan-draft",
        since="0.1.0",
        ended_turns=[plan_message([_TODOS])],
        plan_mode=True,
        continuation="execute_plan",
        said=[*_turn(plan_message([_TODOS]), ([_TODOS], [_PLANNED])), *_turn(plan_execution_message(1))],
    ),
    GoldenSession(
        session_id="settings",
        since="0.1.0",
        settings={"model": "large", "tier": 2},
        ended_turns=["hello"],
        open_turn=plan_message([_CHARGE]),
        waits_for=AgentToolCallRecordStatus.AWAITING_APPROVAL,
        continuation="approve",
        said=[
            *_turn("hello", model="large"),
            *_turn(plan_message([_CHARGE]), ([_CHARGE], [_CHARGED]), model="large"),
        ],
    ),
    GoldenSession(
        session_id="compacted",
        since="0.1.0",
        ended_turns=_LONG_TALK,
        said=[message for text in _LONG_TALK for message in _turn(text)],
    ),
    GoldenSession(session_id=HELD_SESSION, since="0.1.0", open_turn="hello", said=_turn("hello")),
    GoldenSession(
        session_id="stepwise-idle",
        since="0.1.0",
        agent="stepwise",
        ended_turns=["hello", plan_message([_LOOK_UP], [_LOOK_UP])],
        said=[
            *_turn("hello"),
            *_turn(plan_message([_LOOK_UP], [_LOOK_UP]), ([_LOOK_UP], ["look_up 42"]), ([_LOOK_UP], ["look_up 42"])),
        ],
    ),
    GoldenSession(
        session_id="stepwise-approval",
        since="0.1.0",
        agent="stepwise",
        open_turn=plan_message([_LOOK_UP], [_CHARGE, _LOOK_UP]),
        waits_for=AgentToolCallRecordStatus.AWAITING_APPROVAL,
        continuation="approve",
        said=_turn(
            plan_message([_LOOK_UP], [_CHARGE, _LOOK_UP]),
            ([_LOOK_UP], ["look_up 42"]),
            ([_CHARGE, _LOOK_UP], ["charge_card 5", "look_up 42"]),
        ),
    ),
    GoldenSession(
        session_id="stepwise-question",
        since="0.1.0",
        agent="stepwise",
        open_turn=plan_message([_ASK]),
        waits_for=AgentToolCallRecordStatus.AWAITING_ANSWER,
        continuation="answer",
        said=_turn(plan_message([_ASK]), ([_ASK], [_ANSWERED])),
    ),
)
