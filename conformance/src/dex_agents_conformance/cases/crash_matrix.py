"""Which turns are killed at which points, and what must come of each: one list, from which the tests are made."""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, TypeAlias

from dex_agents import ToolEffect
from dex_agents.session.policies import EFFECT_RULES
from dex_agents_conformance.capabilities import Capability

__all__ = [
    "SCENARIOS",
    "TOOL_GATE",
    "CrashCall",
    "CrashPlan",
    "CrashScenario",
    "KillPoint",
    "PersonAction",
    "crash_parameters",
    "crash_plan",
    "model_gate",
]

#: The gate in the killed tool.
TOOL_GATE = "tool"

#: Changing it tests other pairs of the whole matrix.
SEED = 20_261_202
#: `all` runs every pair of the matrix instead of the chosen ones.
MATRIX_VARIABLE = "DEX_AGENTS_CONFORMANCE_CRASHES"

PersonAction: TypeAlias = Literal["approve", "reject", "answer", "steer", "cancel"]


class KillPoint(StrEnum):
    """Where the worker process is when it is killed."""

    FIRST_MODEL_CALL = "first_model_call"  #: before the model says anything
    FIRST_MODEL_STREAM = "first_model_stream"  #: part of its text has been streamed
    FIRST_MODEL_COMMIT = "first_model_commit"  #: it has answered, and nothing of it is stored
    LAST_MODEL_CALL = "last_model_call"  #: right behind the commit of the latest tool result
    LAST_MODEL_STREAM = "last_model_stream"
    LAST_MODEL_COMMIT = "last_model_commit"
    TOOL_CLAIMED = "tool_claimed"  #: its start is not stored yet, so it cannot have run
    TOOL_STARTED = "tool_started"  #: its start is stored, and its code has not begun
    BEFORE_EFFECT = "before_effect"
    AFTER_EFFECT = "after_effect"
    TOOL_COMMIT = "tool_commit"  #: it has returned, and its result is not stored
    PERSON_AWAITED = "person_awaited"  #: a new process has taken over when the person acts
    PERSON_ALONE = "person_alone"  #: no worker lives when the person acts
    TASK_POLLED = "task_polled"  #: the remote work was started, and runs
    BETWEEN_TURNS = "between_turns"  #: the turn has ended, and the next message is sent before a new process starts


_FIRST_MODEL_POINTS = (KillPoint.FIRST_MODEL_CALL, KillPoint.FIRST_MODEL_STREAM, KillPoint.FIRST_MODEL_COMMIT)
_LAST_MODEL_POINTS = (KillPoint.LAST_MODEL_CALL, KillPoint.LAST_MODEL_STREAM, KillPoint.LAST_MODEL_COMMIT)
_MODEL_COMMITS = (KillPoint.FIRST_MODEL_COMMIT, KillPoint.LAST_MODEL_COMMIT)
_EFFECT_POINTS = (KillPoint.BEFORE_EFFECT, KillPoint.AFTER_EFFECT)
_TOOL_POINTS = (KillPoint.TOOL_CLAIMED, KillPoint.TOOL_STARTED, *_EFFECT_POINTS, KillPoint.TOOL_COMMIT)
_PERSON_POINTS = (KillPoint.PERSON_AWAITED, KillPoint.PERSON_ALONE)
_HAS_TAKEN_EFFECT = (KillPoint.AFTER_EFFECT, KillPoint.TOOL_COMMIT)


def model_gate(number: int) -> str:
    """The gate in a turn's model call."""
    return f"model-{number}"


@dataclass(frozen=True, kw_only=True)
class CrashCall:
    """One call of a scenario's turn.

    Attributes:
        tool: Its tool; no other call of the scenario has it.
        effect: What the tool does to the world.
        is_gated: Whether a person approves it first.
        asks: Whether the tool asks the user before its effect.
        has_task: Whether it starts remote work.
    """

    tool: str
    effect: ToolEffect = ToolEffect.READ
    is_gated: bool = False
    asks: bool = False
    has_task: bool = False

    @property
    def may_repeat(self) -> bool:
        """Whether a killed attempt is followed by another one."""
        return EFFECT_RULES[self.effect].may_repeat

    @property
    def step(self) -> str:
        """The Step that runs it."""
        return "CallTool" if self.may_repeat else "CallSingleAttemptTool"


@dataclass(frozen=True, kw_only=True)
class CrashScenario:
    """One kind of turn.

    Attributes:
        name: First part of the test's parameter.
        steps: The calls of each model step but the last, which answers.
        killed: The tool at which points inside a tool lie.
        person: What a person does: at the call that waits for one, or while the killed tool runs.
        acts_while_tool_runs: Whether it is the latter.
        capability: What the adapter must declare.
    """

    name: str
    steps: tuple[tuple[CrashCall, ...], ...] = ()
    killed: str | None = None
    person: PersonAction | None = None
    acts_while_tool_runs: bool = False
    capability: Capability | None = None

    @property
    def calls(self) -> tuple[CrashCall, ...]:
        """Every call, in order."""
        return tuple(call for step in self.steps for call in step)

    @property
    def killed_call(self) -> CrashCall | None:
        """The call at which points inside a tool lie."""
        return next((call for call in self.calls if call.tool == self.killed), None)

    @property
    def asking_step(self) -> int:
        """Number of the model step that asks for the killed call; the first one when none is killed."""
        return next((number for number, step in enumerate(self.steps) if self.killed_call in step), 0)

    @property
    def points(self) -> tuple[KillPoint, ...]:
        """Where such a turn can be killed."""
        if self.acts_while_tool_runs:
            return _EFFECT_POINTS
        points = [*_FIRST_MODEL_POINTS]
        if self.steps and self.person != "cancel":
            points += _LAST_MODEL_POINTS
        if self.killed_call is not None:
            points += self._tool_points(self.killed_call)
        if self.person is not None:
            points += _PERSON_POINTS
        return (*points, KillPoint.BETWEEN_TURNS)

    def _tool_points(self, call: CrashCall) -> list[KillPoint]:
        points = [*_EFFECT_POINTS, KillPoint.TOOL_COMMIT]
        neighbours = [other for other in self.steps[self.asking_step] if other is not call]
        if not call.asks and call.step not in [other.step for other in neighbours]:
            points.append(KillPoint.TOOL_STARTED)  # else it is not the first one to come there
            # A worker held in its transaction keeps the neighbours from becoming final; repeatable calls have no claim.
            if not neighbours and not call.may_repeat:
                points.append(KillPoint.TOOL_CLAIMED)
        if call.has_task:
            points.append(KillPoint.TASK_POLLED)
        return points


_READ = ToolEffect.READ
_IDEMPOTENT = ToolEffect.IDEMPOTENT_WRITE
_ONCE = ToolEffect.NON_IDEMPOTENT_WRITE
_LOOK = CrashCall(tool="look")
_PUT = CrashCall(tool="put", effect=_IDEMPOTENT)
_CHARGE = CrashCall(tool="charge", effect=_ONCE)
_REFUND = CrashCall(tool="refund", effect=_ONCE, is_gated=True)

SCENARIOS: tuple[CrashScenario, ...] = (
    CrashScenario(name="text_turn"),
    CrashScenario(name="read_tool", steps=((_LOOK,),), killed="look"),
    CrashScenario(name="idempotent_write", steps=((_PUT,),), killed="put"),
    CrashScenario(name="single_attempt_tool", steps=((_CHARGE,),), killed="charge"),
    CrashScenario(name="parallel_calls", steps=((_LOOK, _CHARGE, _PUT),), killed="charge"),
    CrashScenario(name="parallel_repeat", steps=((_CHARGE, _PUT, _LOOK),), killed="put"),
    CrashScenario(name="chain", steps=((_LOOK,), (_PUT,), (_CHARGE,)), killed="put"),
    CrashScenario(name="approved", steps=((_REFUND,),), killed="refund", person="approve"),
    CrashScenario(name="rejected", steps=((_LOOK, _REFUND),), person="reject"),
    CrashScenario(name="steered", steps=((_LOOK, _REFUND),), person="steer"),
    CrashScenario(name="cancelled", steps=((_LOOK, _REFUND),), person="cancel"),
    CrashScenario(
        name="steered_in_tool", steps=((_CHARGE,),), killed="charge", person="steer", acts_while_tool_runs=True
    ),
    CrashScenario(name="cancelled_in_tool", steps=((_PUT,),), killed="put", person="cancel", acts_while_tool_runs=True),
    CrashScenario(
        name="tool_question",
        steps=((CrashCall(tool="book", effect=_ONCE, asks=True),),),
        killed="book",
        person="answer",
        capability=Capability.TOOL_QUESTIONS,
    ),
    CrashScenario(
        name="tool_task",
        steps=((CrashCall(tool="render", effect=_ONCE, has_task=True),),),
        killed="render",
        capability=Capability.TOOL_TASKS,
    ),
)


@dataclass(frozen=True, kw_only=True)
class CrashPlan:
    """One test: a scenario, its kill point, and what must come of it.

    Attributes:
        scenario: The turn.
        point: Where its first process is killed.
    """

    scenario: CrashScenario
    point: KillPoint

    @property
    def person_acts_before_kill(self) -> bool:
        """Whether the person has acted when the process is killed."""
        early = (*_FIRST_MODEL_POINTS, *_PERSON_POINTS)
        return self.scenario.person is not None and self.point not in early

    @property
    def is_inside_tool(self) -> bool:
        """Whether an attempt of the killed call dies."""
        return self.point in (KillPoint.TOOL_STARTED, *_EFFECT_POINTS, KillPoint.TOOL_COMMIT)

    @property
    def killed_model_call(self) -> int | None:
        """Number of the model call that dies, None when another thing does."""
        if self.point in _FIRST_MODEL_POINTS:
            return 0
        return len(self.scenario.steps) if self.point in _LAST_MODEL_POINTS else None

    @property
    def lost_attempts(self) -> dict[str, int]:
        """How many attempts of each kind of Step die."""
        if self.killed_model_call is not None:
            return {"RunModel": 1}
        call = self.scenario.killed_call
        return {call.step: 1} if self.is_inside_tool and call is not None else {}

    def stops(self, session_id: str) -> tuple[str, ...]:
        """The gates at which the process is held, one behind the other; it is killed at the last one."""
        if self.killed_model_call is not None:
            gate = model_gate(self.killed_model_call)
            return (gate, f"{session_id}.RunModel.commit") if self.point in _MODEL_COMMITS else (gate,)
        call = self.scenario.killed_call
        if call is None or self.point not in _TOOL_POINTS:
            return ()
        match self.point:
            case KillPoint.TOOL_CLAIMED:
                return model_gate(self.scenario.asking_step), f"{session_id}.{call.step}.before_run"
            case KillPoint.TOOL_STARTED:
                return model_gate(self.scenario.asking_step), f"{session_id}.{call.step}.run"
            case KillPoint.TOOL_COMMIT:
                return TOOL_GATE, f"{session_id}.{call.step}.commit"
            case _:
                return (TOOL_GATE,)

    def status(self, call: CrashCall) -> str:
        """The final status of a call."""
        person = self.scenario.person
        if call.is_gated and person in ("reject", "steer", "cancel"):
            return "rejected"
        if call is not self.scenario.killed_call or not self.is_inside_tool:
            return "succeeded"
        if self.scenario.acts_while_tool_runs:
            return "failed" if call.effect is ToolEffect.READ else "outcome_unknown"
        return "succeeded" if call.may_repeat else "outcome_unknown"

    def effects(self, call: CrashCall) -> int:
        """How often a call takes effect."""
        if self.status(call) == "rejected":
            return 0
        if call is not self.scenario.killed_call or not self.is_inside_tool:
            return 1
        killed = int(self.point in _HAS_TAKEN_EFFECT)
        return killed + 1 if self.status(call) == "succeeded" else killed


def crash_plan(parameter: str) -> CrashPlan:
    """The plan behind a test's parameter."""
    name, point = parameter.split("-")
    scenario = next(scenario for scenario in SCENARIOS if scenario.name == name)
    return CrashPlan(scenario=scenario, point=KillPoint(point))


def crash_parameters(capability: Capability | None) -> tuple[str, ...]:
    """The parameters of the scenarios that need this capability, in the order of the list."""
    chosen = _whole_matrix() if os.environ.get(MATRIX_VARIABLE) == "all" else _chosen_pairs()
    return tuple(f"{plan.scenario.name}-{plan.point}" for plan in chosen if plan.scenario.capability is capability)


def _whole_matrix() -> list[CrashPlan]:
    return [CrashPlan(scenario=scenario, point=point) for scenario in SCENARIOS for point in scenario.points]


def _chosen_pairs() -> list[CrashPlan]:
    """Every point with every kind of killed call, and two points of every scenario at least, in random pairs."""
    matrix = _whole_matrix()
    # What every adapter runs comes first, so that no point is left to those with a capability.
    shuffled = sorted(
        random.Random(SEED).sample(matrix, len(matrix)), key=lambda plan: plan.scenario.capability is not None
    )
    kinds: set[tuple[object, ...]] = set()
    points_of: Counter[str] = Counter()
    chosen: list[CrashPlan] = []
    for plan in shuffled:
        if (kind := _kind(plan)) not in kinds:
            kinds.add(kind)
            points_of[plan.scenario.name] += 1
            chosen.append(plan)
    for plan in shuffled:
        if plan not in chosen and points_of[plan.scenario.name] < 2:
            points_of[plan.scenario.name] += 1
            chosen.append(plan)
    return [plan for plan in matrix if plan in chosen]


def _kind(plan: CrashPlan) -> tuple[object, ...]:
    call = plan.scenario.killed_call
    if call is not None and plan.point in _TOOL_POINTS:
        return plan.point, call.effect, plan.scenario.acts_while_tool_runs
    if plan.point in _PERSON_POINTS:
        return plan.point, plan.scenario.person
    return (plan.point,)
