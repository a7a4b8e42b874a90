"""Approving with other arguments: what ran is what was approved, both forms are kept, and the model is told."""

from __future__ import annotations

import json

from dex_agents import AgentToolCallRecordStatus, ResolveResult, ToolEffect
from dex_agents.session.texts import ARGUMENTS_CHANGED_BY_USER
from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.capabilities import Capability
from dex_agents_conformance.case_run import SESSION, CaseRun
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conformance_case import case
from dex_agents_conformance.conversation_script import ConversationScript, calls, say
from dex_agents_conformance.scripted_tools import ScriptedQuestion

__all__ = ["ChangedArgumentCases"]

_CHANGES = {"words": "fünfzig 👩‍🚀", "quotes": '"; drop\n', "empty": ""}


def _pays(setup: CaseSetup) -> ConversationScript:
    pay = setup.tool(
        "pay",
        effect=ToolEffect.NON_IDEMPOTENT_WRITE,
        requires_approval=True,
        requires_value=True,
        echoes_value=True,
        gate="pay",
    )
    return ConversationScript(
        directory=setup.directory,
        replies={"pay": [calls(("c1", "pay", '{"value": "500"}')), say("done")], "next": [say("well")]},
        tools=[pay],
    )


def _pays_three(setup: CaseSetup) -> ConversationScript:
    same = [(f"c{number}", "pay", f'{{"value": "{number}"}}') for number in (1, 2, 3)]
    return ConversationScript(
        directory=setup.directory,
        replies={"pay": [calls(*same), say("done")]},
        tools=[setup.tool("pay", effect=ToolEffect.IDEMPOTENT_WRITE, requires_approval=True, echoes_value=True)],
    )


def _breaks(setup: CaseSetup) -> ConversationScript:
    tool = setup.tool(
        "pay", effect=ToolEffect.IDEMPOTENT_WRITE, requires_approval=True, echoes_value=True, broken_runs=1
    )
    return ConversationScript(
        directory=setup.directory,
        replies={"pay": [calls(("c1", "pay", '{"value": "500"}')), say("done")]},
        tools=[tool],
    )


def _asks(setup: CaseSetup) -> ConversationScript:
    questions = (ScriptedQuestion(question="Are you sure?"),)
    tool = setup.tool("pay", requires_approval=True, echoes_value=True, questions=questions)
    return ConversationScript(
        directory=setup.directory,
        replies={"pay": [calls(("c1", "pay", '{"value": "500"}')), say("done")]},
        tools=[tool],
    )


class ChangedArgumentCases(AdapterDescription):
    """The tool's JSON Schema, stored with the call, decides what a person may put in place of the model's arguments."""

    @case(_pays, capability=Capability.CHANGED_ARGUMENTS)
    async def test_F29_changed_arguments_run_and_both_forms_are_kept(self, run: CaseRun) -> None:
        """The record says what the model proposed and what runs; the events say that a person changed it."""
        run.gate("pay").close()
        await run.start("pay")
        asked = await run.client.approve(SESSION, arguments={"value": "50"})
        assert json.loads(asked.arguments) == {"value": "500"}
        await run.wait_at_gate("pay")
        record = await run.wait_for_call("pay", AgentToolCallRecordStatus.APPROVED)
        assert json.loads(record.arguments) == {"value": "500"}
        assert json.loads(record.executed_arguments or "null") == {"value": "50"}
        run.gate("pay").open()
        await run.finish()
        assert run.values == ["50"], "[what-was-approved-is-what-runs]"
        (resolved,) = await run.event_payloads("interrupt_resolved")
        assert resolved["arguments_changed"]

    @case(_pays, capability=Capability.CHANGED_ARGUMENTS)
    async def test_F29_the_model_is_told_of_changed_arguments(self, run: CaseRun) -> None:
        """With the result; its own call stays as it made it, in later turns too."""
        await run.start("pay")
        await run.client.approve(SESSION, arguments={"value": "50"})
        await run.finish()
        (seen,) = run.results_seen
        assert seen.startswith(ARGUMENTS_CHANGED_BY_USER), "[changed-arguments-are-told-to-the-model]"
        assert '"50"' in seen, "[changed-arguments-are-told-to-the-model]"
        assert seen.endswith("pay:50"), "[changed-arguments-are-told-to-the-model]"
        await run.answer_of("next")
        proposed = run.last_request.outputs[0].tool_calls[0].arguments
        assert json.loads(proposed) == {"value": "500"}, "[the-models-own-call-is-unchanged]"

    @case(_pays, capability=Capability.CHANGED_ARGUMENTS, parameters=tuple(_CHANGES))
    async def test_F29_changed_arguments_reach_the_tool_unchanged(self, run: CaseRun) -> None:
        """Character for character."""
        await run.start("pay")
        await run.client.approve(SESSION, arguments={"value": _CHANGES[run.parameter]})
        await run.finish()
        assert run.values == [_CHANGES[run.parameter]], "[what-was-approved-is-what-runs]"

    @case(_pays, capability=Capability.CHANGED_ARGUMENTS, parameters=("wrong_type", "missing"))
    async def test_F29_arguments_that_do_not_fit_are_refused(self, run: CaseRun) -> None:
        """By the tool's own schema; the approval stays and can still be given."""
        wrong: dict[str, object] = {"value": {"amount": 50}} if run.parameter == "wrong_type" else {}
        await run.start("pay")
        asked = await run.client.wait_for_interrupt(SESSION, kind="approval")
        refused = await run.client.resolve_interrupt_with_reason(
            SESSION, asked.interrupt_id, approved=True, arguments=wrong
        )
        assert refused is ResolveResult.INVALID_ARGUMENTS, "[calls-carry-their-schema]"
        assert await run.client.invalid_arguments_reason(SESSION, asked.interrupt_id, wrong)
        assert run.effects == {}, "[nothing-runs-before-its-approval]"
        await run.client.approve(SESSION)
        await run.finish()
        assert run.values == ["500"], "[what-was-approved-is-what-runs]"

    @case(_pays, capability=Capability.CHANGED_ARGUMENTS)
    async def test_F29_the_same_arguments_are_no_change(self, run: CaseRun) -> None:
        """The model reads the plain result."""
        await run.start("pay")
        await run.client.approve(SESSION, arguments={"value": "500"})
        await run.finish()
        assert run.results_seen == ["pay:500"]
        (resolved,) = await run.event_payloads("interrupt_resolved")
        assert not resolved["arguments_changed"]

    @case(_pays_three, capability=Capability.CHANGED_ARGUMENTS)
    async def test_F11_one_call_of_a_batch_is_changed(self, run: CaseRun) -> None:
        """The change reaches that call alone."""
        await run.start("pay")
        waiting = await run.client.wait_for_interrupts(SESSION, count=3, timeout=30)
        for asked in reversed(waiting):
            is_second = json.loads(asked.arguments)["value"] == "2"
            assert await run.client.resolve_interrupt(
                SESSION, asked.interrupt_id, approved=True, arguments={"value": "20"} if is_second else None
            )
        await run.finish()
        assert sorted(run.values) == ["1", "20", "3"], "[each-decision-reaches-its-own-call]"
        first, second, third = run.results_seen
        assert (first, third) == ("pay:1", "pay:3"), "[each-decision-reaches-its-own-call]"
        assert second.endswith("pay:20"), "[each-decision-reaches-its-own-call]"

    @case(_breaks, capability=Capability.CHANGED_ARGUMENTS)
    async def test_F21_every_attempt_runs_with_the_changed_arguments(self, run: CaseRun) -> None:
        """Under one idempotency key."""
        await run.start("pay")
        await run.client.approve(SESSION, arguments={"value": "50"})
        await run.finish()
        assert run.values == ["50", "50"], "[what-was-approved-is-what-runs]"
        assert len(set(run.idempotency_keys)) == 1, "[idempotency-key-is-the-same-on-every-attempt]"

    @case(_asks, capability=Capability.CHANGED_ARGUMENTS)
    async def test_F29_a_change_survives_a_question(self, run: CaseRun) -> None:
        """The tool asks after its approval; what the model reads still names the changed arguments."""
        self.require(Capability.TOOL_QUESTIONS)
        await run.start("pay")
        await run.client.approve(SESSION, arguments={"value": "50"})
        asked = await run.wait_for_question()
        assert await run.client.answer_question(SESSION, asked.interrupt_id, "yes")
        await run.finish()
        (seen,) = run.results_seen
        assert seen.startswith(f'{ARGUMENTS_CHANGED_BY_USER}{{"value": "50"}}'), (
            "[changed-arguments-are-told-to-the-model]"
        )
