"""Turns whose worker process is killed: a new process goes on, nothing is lost, and no write happens twice."""

from __future__ import annotations

from collections import Counter, defaultdict

from dex_agents.session.event_values import decode_event_payload
from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents.testing import poll_until
from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.capabilities import Capability
from dex_agents_conformance.case_run import SESSION, CaseRun
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.cases.crash_matrix import (
    TOOL_GATE,
    CrashPlan,
    CrashScenario,
    KillPoint,
    crash_parameters,
    crash_plan,
    model_gate,
)
from dex_agents_conformance.conformance_case import case
from dex_agents_conformance.conversation_script import ConversationScript, ScriptedReply, TextPart, ToolCallPart
from dex_agents_conformance.scripted_tools import ScriptedQuestion, ScriptedTask, ScriptedTool
from dex_flow.testing import Gates

__all__ = ["CrashCases"]

_GO = "go"
_STEERED = "turn around"
_LATER = "later"
_DONE = "I have done what I could."
_STILL_HERE = "still here"
_REJECTION = "too expensive"
_ANSWER = "tuesday"
_STREAMS = (KillPoint.FIRST_MODEL_STREAM, KillPoint.LAST_MODEL_STREAM)


def _script(setup: CaseSetup) -> ConversationScript:
    plan = crash_plan(setup.parameter)
    scenario = plan.scenario
    before_gate = 1 if plan.point in _STREAMS else 0
    asking = [
        ScriptedReply(
            parts=(
                TextPart(text=_asking_text(number)),
                *(
                    ToolCallPart(tool_call_id=f"c-{call.tool}", tool_name=call.tool, arguments=_arguments(call.tool))
                    for call in step
                ),
            ),
            gate=model_gate(number),
            parts_before_gate=before_gate,
        )
        for number, step in enumerate(scenario.steps)
    ]
    last = ScriptedReply(
        parts=(TextPart(text=_DONE[:12]), TextPart(text=_DONE[12:])),
        gate=model_gate(len(scenario.steps)),
        parts_before_gate=before_gate,
    )
    return ConversationScript(
        directory=setup.directory,
        replies={_GO: [*asking, last], _STEERED: [last], _LATER: [ScriptedReply(parts=(TextPart(text=_STILL_HERE),))]},
        tools=[_tool(setup, plan, number) for number in range(len(scenario.calls))],
    )


def _tool(setup: CaseSetup, plan: CrashPlan, number: int) -> ScriptedTool:
    call = plan.scenario.calls[number]
    return setup.tool(
        call.tool,
        effect=call.effect,
        requires_approval=call.is_gated,
        echoes_value=not call.has_task,
        returns=_value(call.tool),
        gate=TOOL_GATE if call.tool == plan.scenario.killed else None,
        gate_place="before_effect" if plan.point is KillPoint.BEFORE_EFFECT else "after_effect",
        questions=(ScriptedQuestion(question="When?"),) if call.asks else (),
        task=ScriptedTask(task_id="task-1", poll_interval_seconds=0.1) if call.has_task else None,
    )


def _asking_text(number: int) -> str:
    return f"I am at step {number} now."


def _value(tool: str) -> str:
    return f"for-{tool}"


def _arguments(tool: str) -> str:
    return f'{{"value": "{_value(tool)}"}}'


class CrashCases(AdapterDescription):
    """A worker process is killed at one point of one turn, and another one goes on."""

    @case(_script, parameters=crash_parameters(None), runs_worker=False)
    async def test_crash(self, run: CaseRun) -> None:
        """Whatever the turn was doing: it ends once, with the same keys, and the model is told what is unknown."""
        await self._play(run)

    @case(
        _script,
        parameters=crash_parameters(Capability.TOOL_QUESTIONS),
        capability=Capability.TOOL_QUESTIONS,
        runs_worker=False,
    )
    async def test_crash_of_a_tool_that_asks(self, run: CaseRun) -> None:
        """A question survives, and its answer is used once."""
        await self._play(run)

    @case(
        _script, parameters=crash_parameters(Capability.TOOL_TASKS), capability=Capability.TOOL_TASKS, runs_worker=False
    )
    async def test_crash_of_a_tool_task(self, run: CaseRun) -> None:
        """Remote work goes on, and is not started again."""
        await self._play(run)

    async def _play(self, run: CaseRun) -> None:
        turn = _KilledTurn(run, streams=Capability.STREAMING in self.capabilities)
        await turn.kill_at_point()
        await turn.go_on()
        await turn.check()


class _KilledTurn:
    """One test's turn: to its kill point, over it, and to its end."""

    def __init__(self, run: CaseRun, *, streams: bool) -> None:
        self._run = run
        self._plan = crash_plan(run.parameter)
        self._scenario: CrashScenario = self._plan.scenario
        self._streams = streams
        self._gates = Gates(run.environment.directory)
        self._has_person_acted = self._scenario.person is None

    async def kill_at_point(self) -> None:
        """Start the session, and kill its process at the plan's point."""
        stops = self._plan.stops(SESSION)
        for stop in stops[:1]:
            self._gates.close(stop)
        worker = await self._run.start_worker()
        await self._run.start(_GO)
        await self._come_to_point(stops)
        assert worker.is_running
        await worker.kill()
        for stop in stops[-1:]:
            self._gates.open(stop)

    async def go_on(self) -> None:
        """Finish the turn in a new process, and answer another message."""
        point = self._plan.point
        if point is KillPoint.PERSON_ALONE:
            await self._act()
        if point is KillPoint.BETWEEN_TURNS:
            assert await self._run.client.send_user_message(SESSION, _LATER)
        await self._run.start_worker()
        await self._act()
        await self._run.finish()
        if point is not KillPoint.BETWEEN_TURNS:
            assert await self._run.answer_of(_LATER) == _STILL_HERE

    async def check(self) -> None:
        """What must have come of it."""
        await self._check_calls()
        await self._check_model_calls()
        self._check_what_the_model_read()
        await self._check_messages()
        history = await self._run.client.read_step_history(SESSION)
        lost = Counter(entry.step_type for entry in history if entry.outcome == "lost")
        assert lost == self._plan.lost_attempts, "[a-kill-costs-the-attempt-that-died-and-no-other]"

    # On the way

    async def _come_to_point(self, stops: tuple[str, ...]) -> None:
        scenario, point = self._scenario, self._plan.point
        acts_at_call = self._plan.person_acts_before_kill and not scenario.acts_while_tool_runs
        if acts_at_call and not (stops and stops[0] == model_gate(scenario.asking_step)):
            await self._act()
        for number, stop in enumerate(stops, start=1):
            await self._run.wait_at_gate(stop)
            if stop == TOOL_GATE or stop.endswith(".run"):
                await self._settle_neighbours()
            for next_stop in stops[number : number + 1]:
                self._gates.close(next_stop)
                self._gates.open(stop)
                if acts_at_call:
                    await self._act()
        if point in _STREAMS and self._streams:
            await poll_until(self._has_streamed, awaited="streamed text")
        match point:
            case KillPoint.PERSON_AWAITED | KillPoint.PERSON_ALONE:
                await self._run.client.wait_for_interrupt(SESSION)
                await self._settle_neighbours()
            case KillPoint.TASK_POLLED:
                await poll_until(self._waits_for_task, awaited="a call that waits for its task")
            case KillPoint.BETWEEN_TURNS:
                await self._run.finish()
        if scenario.acts_while_tool_runs:
            await self._act()

    async def _act(self) -> None:
        if self._has_person_acted:
            return
        self._has_person_acted = True
        client, scenario = self._run.client, self._scenario
        if not scenario.acts_while_tool_runs:
            await client.wait_for_interrupt(SESSION)
            await self._settle_neighbours()
        match scenario.person:
            case "approve":
                await client.approve(SESSION)
            case "reject":
                await client.reject(SESSION, _REJECTION)
            case "answer":
                await client.answer(SESSION, _ANSWER)
            case "steer":
                assert await client.steer_user_message(SESSION, _STEERED)
            case "cancel":
                assert await client.cancel_turn(SESSION)

    async def _settle_neighbours(self) -> None:
        """Wait until every call that the kill shall not hit is final."""
        waiting = {call.tool for call in self._scenario.calls if call.is_gated or call.asks}
        step = self._scenario.steps[self._scenario.asking_step]
        neighbours = {call.tool for call in step} - waiting - {self._scenario.killed}

        async def are_final() -> bool:
            return neighbours <= {tool for tool, _ in await self._run.statuses()}

        await poll_until(are_final, awaited=f"the end of {sorted(neighbours)}")

    async def _has_streamed(self) -> bool:
        return len(await self._run.event_payloads("text_delta")) > 0

    async def _waits_for_task(self) -> bool:
        snapshot = await self._run.client.get_agent_snapshot(SESSION)
        return any(call.status == "waiting_for_task" for call in snapshot.tool_calls)

    # What came of it

    async def _check_calls(self) -> None:
        run, plan, calls = self._run, self._plan, self._scenario.calls
        effects = {call.tool: plan.effects(call) for call in calls if plan.effects(call)}
        assert run.effects == effects, "[effects-happen-once]"
        statuses = [(call.tool, plan.status(call)) for call in calls]
        assert sorted(await run.statuses()) == sorted(statuses), "[each-call-ends-once]"
        keys = self._keys_by_tool()
        for tool, seen in keys.items():
            assert len(set(seen)) == 1, f"[the-same-key-on-every-attempt] {tool} ran with the keys {seen}"
        assert len({seen[0] for seen in keys.values()}) == len(keys), f"[each-call-has-its-own-key] {keys}"

    def _keys_by_tool(self) -> dict[str, list[str]]:
        keys: defaultdict[str, list[str]] = defaultdict(list)
        tool = ""
        for line in self._run.tool_log.read():  # a tool writes its lines without waiting in between
            if line.event == "effect":
                tool = line.key
            elif line.event == "key":
                keys[tool].append(line.key)
        return keys

    async def _check_model_calls(self) -> None:
        positions = self._positions()
        expected = Counter([*positions, f"{_LATER}#0"])
        if self._plan.killed_model_call is not None:
            expected[positions[self._plan.killed_model_call]] += 1
        assert self._run.model_calls == expected, "[only-a-model-call-without-commit-is-repeated]"

    def _positions(self) -> list[str]:
        """The turn's model calls, once each."""
        asking = [f"{_GO}#{number}" for number in range(len(self._scenario.steps))]
        match self._scenario.person:
            case "cancel":
                return asking
            case "steer":
                return [*asking, f"{_STEERED}#0"]
            case _:
                return [*asking, f"{_GO}#{len(asking)}"]

    def _check_what_the_model_read(self) -> None:
        plan, scenario = self._plan, self._scenario
        if scenario.person in ("steer", "cancel"):
            return  # an adapter may tell of a stopped turn in results or in a note
        position = self._positions()[-1]
        request = next(seen.request for seen in reversed(self._run.records.requests()) if seen.position == position)
        results = request.results_of_turn
        assert len(results) == len(scenario.calls), f"[one-result-per-call] {results}"
        for call, result in zip(scenario.calls, results, strict=True):
            match plan.status(call):
                case "rejected":
                    assert result == _REJECTION, "[rejection-text-reaches-the-model]"
                case "outcome_unknown":
                    assert OUTCOME_UNKNOWN_TOOL_RESULT in result, "[unknown-outcome-is-told]"
                case _:
                    value = _ANSWER if call.asks else _value(call.tool)
                    assert result == (value if call.has_task else f"{call.tool}:{value}"), "[results-are-not-lost]"

    async def _check_messages(self) -> None:
        messages = await self._run.messages()
        asked = [_asking_text(number) for number in range(len(self._scenario.steps))]
        last = [] if self._scenario.person == "cancel" else [_DONE]
        texts = [message.text for message in messages if message.role == "assistant"]
        said_by_model = [*asked, *last, _STILL_HERE]
        # An adapter may tell of a stopped turn in a note instead.
        is_told_in_note = self._scenario.person in ("steer", "cancel") and texts[: len(asked)] != asked
        stored = [*last, _STILL_HERE] if is_told_in_note else said_by_model
        assert texts == stored, "[every-answer-is-stored-once]"
        steered = [_STEERED] if self._scenario.person == "steer" else []
        said = [message.text for message in messages if message.role == "user" and not message.text.startswith("[Dex]")]
        assert said == [_GO, *steered, _LATER], "[every-message-is-stored-once]"
        later = self._run.last_request
        assert later.user_texts == said, "[a-new-process-knows-the-conversation]"
        assert [output.text for output in later.outputs] == texts[:-1], "[a-new-process-knows-the-conversation]"
        if self._streams:
            assert await self._streamed_texts() == said_by_model, "[what-a-killed-attempt-streamed-is-replaced]"

    async def _streamed_texts(self) -> list[str]:
        """What the latest attempt of each model Step streamed."""
        steps: defaultdict[int, defaultdict[int, str]] = defaultdict(lambda: defaultdict(str))
        for event in await self._run.events():
            if event.type == "text_delta":
                steps[event.step_execution_id][event.attempt] += decode_event_payload(event)["text"]
        return [attempts[max(attempts)] for _, attempts in sorted(steps.items())]
