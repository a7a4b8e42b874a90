"""Deploys in the middle of a session: another build of the agent goes on with what an earlier one began."""

from __future__ import annotations

import asyncio
from typing import Any

from dex_agents import ToolEffect
from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT, unknown_tool_text
from dex_agents.testing import KillableWorkerProcess
from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.case_run import SESSION, CaseRun
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conformance_case import case
from dex_agents_conformance.conversation_script import ConversationScript, ScriptedReply, calls, say
from dex_agents_conformance.scripted_tools import ScriptedTool

__all__ = ["BuildCases"]

_OLD_INSTRUCTIONS = "You are the first build."
_NEW_INSTRUCTIONS = "You are the build that was deployed."


def _is_deployed(setup: CaseSetup) -> bool:
    return setup.build != "current"


def _agent(setup: CaseSetup, *tools: ScriptedTool, go: tuple[ScriptedReply, ...]) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [*go, say("done")], "again": [calls(("c9", "pay")), say("paid")], "later": [say("still here")]},
        tools=tools,
        instructions=_NEW_INSTRUCTIONS if _is_deployed(setup) else _OLD_INSTRUCTIONS,
    )


def _pay(setup: CaseSetup, **options: Any) -> ScriptedTool:
    return setup.tool("pay", **{"requires_approval": True, "returns": "paid", **options})


def _removed(setup: CaseSetup) -> ConversationScript:
    look = setup.tool("look", returns="seen")
    tools = (look,) if _is_deployed(setup) else (look, _pay(setup))
    return _agent(setup, *tools, go=(calls(("c1", "pay"), ("c2", "look")),))


def _renamed(setup: CaseSetup) -> ConversationScript:
    tool = setup.tool("transfer", returns="moved") if _is_deployed(setup) else _pay(setup)
    return _agent(setup, tool, go=(calls(("c1", "pay")), calls(("c2", "transfer"))))


def _needs_value(setup: CaseSetup) -> ConversationScript:
    return _agent(setup, _pay(setup, requires_value=_is_deployed(setup)), go=(calls(("c1", "pay")),))


def _added(setup: CaseSetup) -> ConversationScript:
    look = setup.tool("look", returns="seen")
    pay = _pay(setup, requires_approval=False)
    return _agent(setup, *((look, pay) if _is_deployed(setup) else (look,)), go=(calls(("c1", "look")),))


def _other_effect(setup: CaseSetup) -> ConversationScript:
    before, after = {
        "stricter": (ToolEffect.IDEMPOTENT_WRITE, ToolEffect.NON_IDEMPOTENT_WRITE),
        "looser": (ToolEffect.NON_IDEMPOTENT_WRITE, ToolEffect.READ),
    }[setup.parameter]
    effect = after if _is_deployed(setup) else before
    return _agent(setup, _pay(setup, effect=effect, broken_runs=1), go=(calls(("c1", "pay")),))


def _asks_from_now_on(setup: CaseSetup) -> ConversationScript:
    pay = _pay(setup, requires_approval=_is_deployed(setup), gate="tool", gate_place="before_effect")
    return _agent(setup, pay, go=(calls(("c1", "pay")),))


def _removed_while_it_runs(setup: CaseSetup) -> ConversationScript:
    pay = _pay(setup, requires_approval=False, gate="tool", gate_place="before_effect")
    return _agent(setup, *(() if _is_deployed(setup) else (pay,)), go=(calls(("c1", "pay")),))


class BuildCases(AdapterDescription):
    """Worker processes with another build of the agent take over; what was decided and done stays."""

    @case(_removed, parameters=("newer", "older"), runs_worker=False)
    async def test_F28_a_tool_is_removed_while_its_approval_waits(self, run: CaseRun) -> None:
        """The approved call fails as a call of an unknown tool, and the turn goes on."""
        worker = await self._come_to_approval(run)
        await _deploy(run, worker, run.parameter)
        await run.client.approve(SESSION)
        await run.finish()
        assert sorted(await run.statuses()) == [("look", "succeeded"), ("pay", "failed")], "[a-removed-tool-fails]"
        assert unknown_tool_text("pay") in run.results_seen[0], "[a-removed-tool-is-named]"
        assert run.results_seen[1] == "seen", "[results-are-not-lost]"
        assert run.effects == {"look": 1}
        assert run.model_calls == {"go#0": 1, "go#1": 1}, "[a-deploy-repeats-no-model-call]"
        assert run.last_request.tool_names == ("look",), "[the-deployed-tools-are-offered]"
        assert await run.answer_of("later") == "still here"

    @case(_removed, runs_worker=False)
    async def test_F28_a_removed_tool_comes_back_before_the_decision(self, run: CaseRun) -> None:
        """Nobody decided while it was gone, so nothing happened to its call."""
        worker = await self._come_to_approval(run)
        worker = await _deploy(run, worker, "newer")
        assert len(await run.client.pending_interrupts(SESSION)) == 1
        await _deploy(run, worker, "current")
        await run.client.approve(SESSION)
        await run.finish()
        assert run.results_seen == ["paid", "seen"], "[a-waiting-call-survives-deploys]"
        assert run.effects == {"look": 1, "pay": 1}

    @case(_removed, runs_worker=False)
    async def test_a_removed_tool_stays_in_the_history(self, run: CaseRun) -> None:
        """Later turns send its earlier call and result as they were."""
        worker = await self._come_to_approval(run)
        await run.client.approve(SESSION)
        await run.finish()
        await _deploy(run, worker, "newer")
        assert await run.answer_of("later") == "still here"
        named = [call.tool_name for output in run.last_request.outputs for call in output.tool_calls]
        assert named == ["pay", "look"], "[history-survives-deploys]"

    @case(_renamed, runs_worker=False)
    async def test_F28_a_tool_is_renamed_while_its_approval_waits(self, run: CaseRun) -> None:
        """A call of the old name runs nothing; the model learns the new name from the tools that it is offered."""
        worker = await self._come_to_approval(run)
        await _deploy(run, worker, "newer")
        await run.client.approve(SESSION)
        await run.finish()
        assert await run.statuses() == [("pay", "failed"), ("transfer", "succeeded")], "[a-removed-tool-fails]"
        assert run.effects == {"transfer": 1}
        assert run.last_request.tool_names == ("transfer",), "[the-deployed-tools-are-offered]"

    @case(_needs_value, runs_worker=False)
    async def test_F28_arguments_no_longer_fit_the_deployed_schema(self, run: CaseRun) -> None:
        """They are checked again when the call runs: it fails, names what is missing, and does nothing."""
        worker = await self._come_to_approval(run)
        await _deploy(run, worker, "newer")
        await run.client.approve(SESSION)
        await run.finish()
        assert run.effects == {}, "[arguments-are-checked-by-the-deployed-schema]"
        assert await run.statuses() == [("pay", "failed")], "[arguments-are-checked-by-the-deployed-schema]"
        assert "value" in run.results_seen[0], "[the-problem-is-named]"
        assert run.model_calls == {"go#0": 1, "go#1": 1}, "[a-deploy-repeats-no-model-call]"

    @case(_needs_value, runs_worker=False)
    async def test_the_deployed_instructions_count_from_the_next_model_call(self, run: CaseRun) -> None:
        """Also within a turn that began before."""
        worker = await self._come_to_approval(run)
        await _deploy(run, worker, "newer")
        await run.client.reject(SESSION)
        await run.finish()
        before, after = run.requests
        assert _OLD_INSTRUCTIONS in before.instructions
        assert _NEW_INSTRUCTIONS in after.instructions, "[the-deployed-instructions-are-sent]"
        assert _OLD_INSTRUCTIONS not in after.instructions, "[the-deployed-instructions-are-sent]"

    @case(_added, runs_worker=False)
    async def test_an_added_tool_is_offered_and_runs(self, run: CaseRun) -> None:
        """A session that began without it uses it in its next turn."""
        worker = await run.start_worker()
        assert await run.answer_of("go") == "done"
        await _deploy(run, worker, "newer")
        assert await run.answer_of("again") == "paid"
        assert run.last_request.tool_names == ("look", "pay"), "[the-deployed-tools-are-offered]"
        assert run.effects == {"look": 1, "pay": 1}

    @case(_other_effect, parameters=("stricter", "looser"), runs_worker=False)
    async def test_F28_the_effect_at_the_time_of_the_call_counts(self, run: CaseRun) -> None:
        """The person approved that policy: a deploy changes only later calls."""
        worker = await self._come_to_approval(run)
        await _deploy(run, worker, "newer")
        await run.client.approve(SESSION)
        await run.finish()
        if run.parameter == "stricter":
            assert run.effects == {"pay": 2}, "[the-stored-effect-decides]"
            assert len(set(run.idempotency_keys)) == 1, "[the-same-key-on-every-attempt]"
            assert run.results_seen == ["paid"]
        else:
            assert run.effects == {"pay": 1}, "[the-stored-effect-decides]"
            assert OUTCOME_UNKNOWN_TOOL_RESULT in run.results_seen[0], "[unknown-outcome-is-told]"

    @case(_asks_from_now_on, runs_worker=False)
    async def test_an_approval_required_from_now_on_is_for_later_calls(self, run: CaseRun) -> None:
        """A call that ran already is repeated without asking; the next one asks."""
        gate = run.gate("tool")
        gate.close()
        worker = await run.start_worker()
        await run.start("go")
        await run.wait_at_gate(gate.name)
        await worker.kill()
        gate.open()
        await run.start_worker("newer")
        await run.finish_unasked()
        assert run.effects == {"pay": 1}
        assert (await run.run_turn("again")).status == "waiting_for_person", "[the-deployed-policy-is-for-later-calls]"
        await run.client.approve(SESSION)
        await run.finish()
        assert run.effects == {"pay": 2}

    @case(_removed_while_it_runs, runs_worker=False)
    async def test_F28_a_tool_is_removed_while_it_runs(self, run: CaseRun) -> None:
        """The worker died in it, and the deployed build cannot repeat it: it fails by name, and the turn goes on."""
        gate = run.gate("tool")
        gate.close()
        worker = await run.start_worker()
        await run.start("go")
        await run.wait_at_gate(gate.name)
        await worker.kill()
        gate.open()
        await run.start_worker("newer")
        await run.finish()
        assert await run.statuses() == [("pay", "failed")], "[a-removed-tool-fails]"
        assert unknown_tool_text("pay") in run.results_seen[0], "[a-removed-tool-is-named]"
        assert await run.answer_of("later") == "still here"

    @case(_added, runs_worker=False)
    async def test_a_rolling_deploy_loses_nothing(self, run: CaseRun) -> None:
        """Both builds take work for a while; the first ends in good order, and the session goes on with the other."""
        first = await run.start_worker()
        await run.start("go")
        second = await run.start_worker("newer")
        await asyncio.gather(first.stop(), run.finish())
        assert run.results_seen == ["seen"]
        assert await run.answer_of("again") == "paid"
        assert _NEW_INSTRUCTIONS in run.last_request.instructions, "[the-deployed-instructions-are-sent]"
        assert second.is_running

    async def _come_to_approval(self, run: CaseRun) -> KillableWorkerProcess:
        worker = await run.start_worker()
        await run.start("go")
        await run.client.wait_for_interrupt(SESSION, tool_name="pay")
        return worker


async def _deploy(run: CaseRun, worker: KillableWorkerProcess, build: str) -> KillableWorkerProcess:
    """End the worker in good order, and start one of another build."""
    await worker.stop()
    return await run.start_worker(build)
