"""Remote work that a tool starts: polled by the session, told to the model when it ends, stopped when nobody waits."""

from __future__ import annotations

from typing import Any

from dex_agents import AgentToolCallRecordStatus, ToolEffect, ToolTaskCanceller
from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT, TOOL_CALL_CANCELLED_BY_STEERING_RESULT
from dex_agents.testing import poll_until
from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.capabilities import Capability
from dex_agents_conformance.case_run import SESSION, CaseRun
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conformance_case import case
from dex_agents_conformance.conversation_script import ConversationScript, calls, say
from dex_agents_conformance.provider_request import RequestToolResult
from dex_agents_conformance.scripted_tools import ScriptedQuestion, ScriptedTask

__all__ = ["TaskCases"]

_IN_WHICH = ScriptedQuestion(question="In which currency?", choices=("EUR", "USD"))


def _report(setup: CaseSetup, effect: ToolEffect = ToolEffect.READ, **task: Any) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "report")), say("done")], "next": [say("well")]},
        tools=[setup.tool("report", effect=effect, returns="the report", task=ScriptedTask(task_id="job-1", **task))],
    )


def _polled(setup: CaseSetup) -> ConversationScript:
    return _report(setup, pending_polls=int(setup.parameter))


def _pending(setup: CaseSetup) -> ConversationScript:
    return _report(setup)


def _quick(setup: CaseSetup) -> ConversationScript:
    return _report(setup, pending_polls=0)


def _started_by_a_write(setup: CaseSetup) -> ConversationScript:
    return _report(setup, ToolEffect(setup.parameter), broken_polls=1)


def _fails(setup: CaseSetup) -> ConversationScript:
    return _report(setup, failure="no data for May")


def _asks(setup: CaseSetup) -> ConversationScript:
    return _report(setup, question=_IN_WHICH, pending_polls=0)


def _beside_others(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "report"), ("c2", "look"), ("c3", "pay")), say("done")], "next": [say("well")]},
        tools=[
            setup.tool("report", returns="the report", task=ScriptedTask(task_id="job-1", pending_polls=0)),
            setup.tool("look", returns="seen"),
            setup.tool("pay", effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True, returns="paid"),
        ],
    )


class TaskCases(AdapterDescription):
    """The work is started once, looked at as often as it takes, and its end is the call's result."""

    @case(_polled, capability=Capability.TOOL_TASKS, parameters=("0", "1", "3"))
    async def test_a_task_is_polled_until_it_ends(self, run: CaseRun) -> None:
        """Each poll asks once; the model is asked again when the work has ended."""
        polls = int(run.parameter) + 1
        await run.start("go")
        for number in range(1, polls + 1):
            # Before the first poll, the first model call may still be to come.
            assert set(run.model_calls) <= {"go#0"}, "[the-model-waits-for-every-result]"
            await run.skip_timer("PollToolTask")
            await _polls(run, number)
        await run.finish()
        assert run.model_calls == {"go#0": 1, "go#1": 1}, "[the-model-waits-for-every-result]"
        assert run.effects == {"report": 1}, "[a-task-is-started-once]"
        assert run.tool_log.count("poll") == {"job-1": polls}, "[one-look-per-poll]"
        assert run.results_seen == ["the report"], "[a-tasks-result-reaches-the-model]"
        assert await run.statuses() == [("report", "succeeded")]
        assert run.tool_log.count("cancel") == {}

    @case(_fails, capability=Capability.TOOL_TASKS)
    async def test_a_failed_task_is_told_to_the_model(self, run: CaseRun) -> None:
        """The failure is the call's result; it is not tried again."""
        await run.start("go")
        for number in (1, 2):
            await run.skip_timer("PollToolTask")
            await _polls(run, number)
        await run.finish()
        failure = self.failure_text.format(failure="no data for May")
        assert run.results_seen == [failure], "[a-failure-reaches-the-model]"
        assert await run.statuses() == [("report", "failed")], "[a-failure-is-recorded]"
        assert run.tool_log.count("poll") == {"job-1": 2}, "[a-failure-for-the-model-is-final]"

    @case(
        _started_by_a_write,
        capability=Capability.TOOL_TASKS,
        parameters=("read", "idempotent_write", "non_idempotent_write"),
    )
    async def test_F21_a_broken_poll_is_repeated_and_the_task_is_not(self, run: CaseRun) -> None:
        """A poll only looks, so it may be repeated whatever the tool does; the work itself is started once."""
        await run.start("go")
        for number in (2, 3):
            await run.skip_timer("PollToolTask")
            await _polls(run, number)
        await run.finish()
        assert run.effects == {"report": 1}, "[a-task-is-started-once]"
        assert run.tool_log.count("poll") == {"job-1": 3}, "[one-look-per-poll]"
        assert await run.statuses() == [("report", "succeeded")]

    @case(_asks, capability=Capability.TOOL_TASKS, parameters=("answered", "declined"))
    async def test_F53_a_task_asks_the_user(self, run: CaseRun) -> None:
        """The next poll reads how the question ended; a declined one is for the work to deal with."""
        self.require(Capability.TOOL_QUESTIONS)
        await run.start("go")
        await run.skip_timer("PollToolTask")
        asked = await run.wait_for_question()
        assert (asked.tool_name, asked.question) == ("report", _IN_WHICH.question), "[a-question-reaches-the-user]"
        assert asked.choices == _IN_WHICH.choices, "[a-question-reaches-the-user]"
        if run.parameter == "answered":
            assert await run.client.answer_question(SESSION, asked.interrupt_id, "USD")
        else:
            assert await run.client.resolve_interrupt(SESSION, asked.interrupt_id, approved=False)
        await run.finish()
        wanted = "report:USD" if run.parameter == "answered" else "report:declined"
        assert run.results_seen == [wanted], "[the-answer-reaches-the-task]"
        assert run.effects == {"report": 1}, "[a-task-is-started-once]"

    @case(_beside_others, capability=Capability.TOOL_TASKS)
    async def test_F35_a_task_holds_up_no_other_call(self, run: CaseRun) -> None:
        """Calls beside it run; the model is asked when all are done, and reads them in call order."""
        await run.start("go")
        await run.client.approve(SESSION)
        await poll_until(lambda: run.effects["look"] == run.effects["pay"] == 1, awaited="the calls beside it")
        assert run.model_calls == {"go#0": 1}, "[the-model-waits-for-every-result]"
        await run.skip_timer("PollToolTask")
        await run.finish()
        assert run.results_seen == ["the report", "seen", "paid"], "[results-in-call-order]"

    @case(_pending, capability=Capability.TOOL_TASKS)
    async def test_F40_cancelling_the_turn_stops_the_task(self, run: CaseRun) -> None:
        """Where the runner can stop it, it is told once; nobody polls any more, and nobody knows how it ended."""
        await run.start("go")
        await run.skip_timer("PollToolTask")
        await _polls(run, 1)
        assert await run.client.cancel_turn(SESSION)
        await run.finish()
        wanted = {"job-1": 1} if isinstance(run.runner, ToolTaskCanceller) else {}
        assert run.tool_log.count("cancel") == wanted, "[a-cancelled-turn-stops-its-tasks]"
        assert await run.statuses() == [("report", "outcome_unknown")]
        assert await run.answer_of("next") == "well"
        assert run.tool_log.count("poll") == {"job-1": 1}, "[a-stopped-turn-runs-nothing-more]"
        assert _results(run) in ([], [OUTCOME_UNKNOWN_TOOL_RESULT])

    @case(_beside_others, capability=Capability.TOOL_TASKS)
    async def test_F03_a_steered_turn_waits_for_its_task(self, run: CaseRun) -> None:
        """The work goes on and is polled to its end; then the new message is answered."""
        await run.start("go")
        await run.client.wait_for_interrupt(SESSION, kind="approval")
        await poll_until(lambda: run.effects["look"] == run.effects["report"] == 1, awaited="the calls beside it")
        assert await run.client.steer_user_message(SESSION, "next")
        await run.skip_timer("PollToolTask")
        snapshot = await run.finish()
        assert snapshot.messages[-1].text == "well"
        assert run.tool_log.count("poll") == {"job-1": 1}
        assert run.tool_log.count("cancel") == {}, "[a-steered-turn-keeps-its-tasks]"
        assert run.effects == {"report": 1, "look": 1}
        assert _results(run) in ([], ["the report", "seen", TOOL_CALL_CANCELLED_BY_STEERING_RESULT])

    @case(_quick, capability=Capability.TOOL_TASKS)
    async def test_F48_a_task_outlives_its_process(self, run: CaseRun) -> None:
        """A new runner polls by the task's ID alone."""
        await run.start("go")
        await run.wait_for_call("report", AgentToolCallRecordStatus.WAITING_FOR_TASK)
        await run.reopen(self.make_flow(run.script))
        await run.skip_timer("PollToolTask")
        await run.finish()
        assert run.results_seen == ["the report"], "[runners-keep-no-session-state]"
        assert run.effects == {"report": 1}, "[a-task-is-started-once]"


async def _polls(run: CaseRun, count: int) -> None:
    """Until a poll has ended with which there are so many."""

    async def has_polled() -> bool:
        polled = run.tool_log.count("poll")["job-1"]  # first, so that the snapshot knows of the poll
        snapshot = await run.client.get_agent_snapshot(SESSION)
        is_over = snapshot.state is not None and snapshot.state.active_turn_id is None
        is_polling = any(call.is_running for call in snapshot.tool_calls)
        return is_over or (polled >= count and not is_polling)

    await poll_until(has_polled, awaited=f"{count} polls")
    polled = run.tool_log.count("poll")
    # Read again: a turn that is over polls no more, while the reading above may be older than the turn's end.
    assert polled["job-1"] >= count, f"[a-task-is-polled-until-it-ends] the turn ended behind {polled['job-1']} polls"
    assert polled == {"job-1": count}, "[one-look-per-poll]"


def _results(run: CaseRun) -> list[str]:
    """Every result in the latest request; none where a note tells of the turn instead."""
    return [item.output for item in run.last_request.items if isinstance(item, RequestToolResult)]
