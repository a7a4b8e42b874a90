"""Calls that a person decides: each on its own, once, and exactly as it was shown."""

from __future__ import annotations

import json
from datetime import timedelta

from dex_agents import ToolEffect
from dex_agents.session.texts import APPROVAL_DEADLINE_PASSED, TOOL_CALL_REJECTED_RESULT
from dex_agents.testing import poll_until
from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.capabilities import Capability
from dex_agents_conformance.case_run import SESSION, CaseRun
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conformance_case import case
from dex_agents_conformance.conversation_script import ConversationScript, calls, say

__all__ = ["ApprovalCases"]


def _gated(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"pay": [calls(("c1", "pay", '{"value": "7"}')), say("done")], "next": [say("well")]},
        tools=[
            setup.tool("pay", effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True, echoes_value=True),
        ],
    )


def _three_gated(setup: CaseSetup) -> ConversationScript:
    same = [(f"c{number}", "pay", f'{{"value": "{number}"}}') for number in (1, 2, 3)]
    return ConversationScript(
        directory=setup.directory,
        replies={"pay": [calls(*same), say("done")], "next": [say("well")]},
        tools=[setup.tool("pay", effect=ToolEffect.IDEMPOTENT_WRITE, requires_approval=True, echoes_value=True)],
    )


def _gated_and_free(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "pay"), ("c2", "look")), say("done")], "next": [say("well")]},
        tools=[setup.tool("pay", requires_approval=True, returns="paid"), setup.tool("look", returns="seen")],
    )


def _deadline(setup: CaseSetup) -> ConversationScript:
    script = _gated(setup)
    return ConversationScript(
        directory=script.directory,
        replies=script.replies,
        tools=script.tools,
        interrupt_deadline=timedelta(days=1),
    )


def _two_rounds(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={
            "pay": [calls(("c1", "pay", '{"value": "1"}')), calls(("c2", "pay", '{"value": "2"}')), say("done")],
        },
        tools=[setup.tool("pay", requires_approval=True, echoes_value=True)],
    )


def _by_effect(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "work")), say("done")]},
        tools=[setup.tool("work", effect=ToolEffect(setup.parameter), requires_approval=None)],
    )


def _by_framework(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "work")), say("done")]},
        tools=[setup.tool("work", has_session_policy=False, requires_approval=True)],
    )


class ApprovalCases(AdapterDescription):
    """A decision counts once, for the call it was made for."""

    @case(_gated)
    async def test_an_approved_call_runs_once(self, run: CaseRun) -> None:
        """Nothing runs before the approval, and one thing after it."""
        await run.start("pay")
        interrupt = await run.client.wait_for_interrupt(SESSION)
        assert (interrupt.tool_name, json.loads(interrupt.arguments)) == ("pay", {"value": "7"})
        assert run.effects == {}, "[nothing-runs-before-its-approval]"
        await run.client.approve(SESSION)
        await run.finish()
        assert run.effects == {"pay": 1}
        assert run.values == ["7"], "[what-was-approved-is-what-runs]"
        assert run.results_seen == ["pay:7"]

    @case(_gated)
    async def test_a_rejection_reaches_the_model_in_the_persons_words(self, run: CaseRun) -> None:
        """The call does not run, and the model reads why."""
        await run.start("pay")
        await run.client.reject(SESSION, "too expensive")
        await run.finish()
        assert run.effects == {}, "[a-rejected-call-never-runs]"
        assert run.results_seen == ["too expensive"], "[rejection-text-reaches-the-model]"
        assert await run.statuses() == [("pay", "rejected")]

    @case(_gated)
    async def test_a_rejection_without_words_has_the_sessions_text(self, run: CaseRun) -> None:
        """The model is told that the user said no."""
        await run.start("pay")
        await run.client.reject(SESSION)
        await run.finish()
        assert run.results_seen == [TOOL_CALL_REJECTED_RESULT], "[rejection-text-reaches-the-model]"

    @case(_three_gated, parameters=("2-1-3", "3-2-1", "1-2-3"))
    async def test_F11_parallel_approvals_in_any_order(self, run: CaseRun) -> None:
        """Each decision reaches its own call; the model is asked once, behind the last one."""
        await run.start("pay")
        interrupts = await run.client.wait_for_interrupts(SESSION, count=3, timeout=30)
        by_value = {json.loads(interrupt.arguments)["value"]: interrupt for interrupt in interrupts}
        assert len({interrupt.interrupt_id for interrupt in interrupts}) == 3
        for value in run.parameter.split("-"):
            assert run.model_calls == {"pay#0": 1}, "[the-model-waits-for-every-result]"
            words = None if value != "2" else "not this one"
            assert await run.client.resolve_interrupt(
                SESSION, by_value[value].interrupt_id, approved=value != "2", rejection_message=words
            )
        await run.finish()
        assert run.results_seen == ["pay:1", "not this one", "pay:3"], "[each-decision-reaches-its-own-call]"
        assert sorted(run.values) == ["1", "3"]
        assert run.model_calls == {"pay#0": 1, "pay#1": 1}

    @case(_gated_and_free)
    async def test_a_free_call_does_not_wait_for_its_neighbours_approval(self, run: CaseRun) -> None:
        """It runs at once; the model is asked when both are done."""
        await run.start("go")
        await run.client.wait_for_interrupt(SESSION)
        await poll_until(lambda: run.effects["look"] or None, awaited="the free call")
        assert run.model_calls == {"go#0": 1}, "[the-model-waits-for-every-result]"
        await run.client.approve(SESSION)
        await run.finish()
        assert run.results_seen == ["paid", "seen"]

    @case(_gated)
    async def test_F04_a_decision_for_nothing_pending_is_refused(self, run: CaseRun) -> None:
        """Unknown, decided and foreign IDs change nothing."""
        await run.start("pay")
        interrupt = await run.client.wait_for_interrupt(SESSION)
        await run.start("next", session_id="session-2")
        await run.finish(session_id="session-2")
        assert not await run.client.resolve_interrupt(SESSION, "turn-9.none", approved=True)
        assert not await run.client.resolve_interrupt("session-2", interrupt.interrupt_id, approved=True)
        assert run.effects == {}
        assert await run.client.resolve_interrupt(SESSION, interrupt.interrupt_id, approved=False)
        assert not await run.client.resolve_interrupt(SESSION, interrupt.interrupt_id, approved=True)
        await run.finish()
        assert run.effects == {}, "[a-rejected-call-never-runs]"

    @case(_gated)
    async def test_F14_an_approved_call_never_runs_again(self, run: CaseRun) -> None:
        """Neither in later turns, nor when the same decision comes again."""
        await run.start("pay")
        interrupt = await run.client.approve(SESSION)
        await run.finish()
        for _ in range(3):
            await run.answer_of("next")
        assert not await run.client.resolve_interrupt(SESSION, interrupt.interrupt_id, approved=True)
        await run.finish()
        assert run.effects == {"pay": 1}, "[an-approval-counts-once]"

    @case(_two_rounds)
    async def test_F14_each_round_asks_again(self, run: CaseRun) -> None:
        """An approval is for one call: the next call of the same tool waits for its own."""
        await run.start("pay")
        first = await run.client.approve(SESSION)
        second = await run.client.approve(SESSION)
        assert first.interrupt_id != second.interrupt_id
        await run.finish()
        assert run.values == ["1", "2"]

    @case(_deadline)
    async def test_a_passed_deadline_rejects_the_call(self, run: CaseRun) -> None:
        """Nobody decided: the call does not run, the model is told, and the turn goes on."""
        await run.start("pay")
        await run.skip_timer("AwaitToolApproval")
        await run.finish()
        assert run.effects == {}
        assert await run.statuses() == [("pay", "rejected")]
        assert run.results_seen == [APPROVAL_DEADLINE_PASSED]

    @case(_gated)
    async def test_a_message_sent_meanwhile_waits_for_the_turns_end(self, run: CaseRun) -> None:
        """It starts the next turn, behind the answer of this one."""
        await run.start("pay")
        await run.client.wait_for_interrupt(SESSION)
        assert await run.client.send_user_message(SESSION, "next")
        assert run.model_calls == {"pay#0": 1}
        await run.client.approve(SESSION)
        await run.finish()
        assert run.last_request.user_texts == ["pay", "next"]
        assert [message.text for message in await run.messages() if message.role == "assistant"] == ["", "done", "well"]

    @case(_by_effect, parameters=("non_idempotent_write", "unclassified"))
    async def test_dangerous_effects_ask_by_default(self, run: CaseRun) -> None:
        """A write that must not happen twice waits for a person unless the policy says otherwise."""
        await run.start("go")
        await run.client.approve(SESSION)
        await run.finish()
        assert run.effects == {"work": 1}

    @case(_by_framework, capability=Capability.FRAMEWORK_APPROVALS)
    async def test_the_frameworks_own_approval_becomes_the_sessions(self, run: CaseRun) -> None:
        """A tool that its framework would ask about waits for a decision of the session."""
        result = await run.run_turn("go")
        assert result.status == "waiting_for_person", "[framework-approval-becomes-the-sessions]"
        assert run.effects == {}
        await run.client.approve(SESSION)
        await run.finish()
        assert run.results_seen == ["done"]
