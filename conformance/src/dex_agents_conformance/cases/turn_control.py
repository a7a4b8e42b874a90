"""Steering and cancelling a turn at any moment; what is left of it is a valid history."""

from __future__ import annotations

from dex_agents import ToolEffect, UnfinishedTurnMessageBuilder
from dex_agents.session.texts import (
    TOOL_CALL_CANCELLED_BY_STEERING_RESULT,
    TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT,
    TURN_CANCELLED_NOTE_HEADER,
    TURN_STEERED_NOTE_HEADER,
)
from dex_agents.testing import poll_until
from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.case_run import SESSION, CaseRun
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conformance_case import case
from dex_agents_conformance.conversation_script import ConversationScript, ScriptedReply, TextPart, calls, say
from dex_agents_conformance.provider_request import RequestToolResult

__all__ = ["TurnControlCases"]

_MOMENTS = ("model_call", "tool_runs", "approval_waits", "one_done_one_waits")


def _interrupted(setup: CaseSetup) -> ConversationScript:
    first = {
        "model_call": ScriptedReply(
            parts=(TextPart(text="I am thinking"), TextPart(text=" aloud")), gate="model", parts_before_gate=1
        ),
        "tool_runs": calls(("c1", "slow"), ("c2", "look")),
        "approval_waits": calls(("c1", "pay")),
        "one_done_one_waits": calls(("c1", "look"), ("c2", "pay")),
    }[setup.parameter]
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [first, say("never")], "stop that": [say("well")], "next": [say("at last")]},
        tools=[
            setup.tool("slow", gate="slow", returns="slow"),
            setup.tool("look", returns="seen"),
            setup.tool("pay", effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True),
        ],
    )


def _behind_a_step(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={
            "go": [calls(("c1", "look"), ("c2", "look")), calls(("c3", "pay")), say("never")],
            "next": [say("at last")],
        },
        tools=[
            setup.tool("look", returns="seen"),
            setup.tool("pay", effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True),
        ],
    )


def _queue(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={
            "go": [calls(("c1", "slow")), say("done")],
            "m1": [say("a1")],
            "m2": [say("a2")],
            "m3": [say("a3")],
        },
        tools=[setup.tool("slow", gate="slow")],
    )


class TurnControlCases(AdapterDescription):
    """Stopped turns leave no call without a result, and nothing runs that nobody waits for."""

    @case(_interrupted, parameters=_MOMENTS)
    async def test_F01_a_cancelled_turn_leaves_a_valid_history(self, run: CaseRun) -> None:
        """Wherever it was: the next request has each stored call with one result, and runs nothing again."""
        await self._come_to_the_moment(run)
        assert await run.client.cancel_turn(SESSION)
        self._let_go(run)
        await run.finish()
        effects = run.effects
        assert await run.answer_of("next") == "at last"
        assert run.last_request.user_texts[-1] == "next"
        assert run.effects == effects, "[a-stopped-turn-runs-nothing-more]"
        assert run.effects["pay"] == 0, "[a-cancelled-call-never-runs]"

    @case(_interrupted, parameters=_MOMENTS)
    async def test_F03_a_steered_turn_gives_way_to_the_new_message(self, run: CaseRun) -> None:
        """The new turn begins with it, behind the results of the old one, and answers it."""
        await self._come_to_the_moment(run)
        assert await run.client.steer_user_message(SESSION, "stop that")
        self._let_go(run)
        snapshot = await run.finish()
        assert snapshot.messages[-1].text == "well"
        assert run.last_request.user_texts[-1] == "stop that"
        assert "go#1" not in run.model_calls, "[a-steered-turn-asks-the-model-no-more]"
        assert run.effects["pay"] == 0, "[a-cancelled-call-never-runs]"
        assert await run.answer_of("next") == "at last"

    @case(_behind_a_step)
    async def test_F01_a_cancelled_turns_calls_are_told_to_the_model(self, run: CaseRun) -> None:
        """Finished calls keep their results, a cancelled one says that the user stopped the turn; or a note does."""
        await run.start("go")
        await run.client.wait_for_interrupt(SESSION)
        assert await run.client.cancel_turn(SESSION)
        await run.finish()
        await run.answer_of("next")
        _check_told(run, TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT, TURN_CANCELLED_NOTE_HEADER)

    @case(_behind_a_step)
    async def test_F03_a_steered_turns_calls_are_told_to_the_model(self, run: CaseRun) -> None:
        """The same for a turn that gave way to a new message."""
        await run.start("go")
        await run.client.wait_for_interrupt(SESSION)
        assert await run.client.steer_user_message(SESSION, "next")
        await run.finish()
        _check_told(run, TOOL_CALL_CANCELLED_BY_STEERING_RESULT, TURN_STEERED_NOTE_HEADER)
        assert run.last_request.user_texts[-1] == "next"

    @case(_interrupted, parameters=("model_call",))
    async def test_F40_a_cancelled_model_call_ends_as_a_cancellation(self, run: CaseRun) -> None:
        """It is never read as an answer: nothing of it is stored, and no attempt follows."""
        await self._come_to_the_moment(run)
        assert await run.client.cancel_turn(SESSION)
        self._let_go(run)
        await run.finish()
        assert run.model_calls == {"go#0": 1}
        assert [message.text for message in await run.messages() if message.role == "assistant"] == []
        assert await run.event_payloads("turn_cancelled"), "[cancellation-is-never-completion]"
        assert not await run.event_payloads("turn_completed"), "[cancellation-is-never-completion]"

    @case(_queue)
    async def test_F03_queued_messages_are_answered_in_order(self, run: CaseRun) -> None:
        """One turn each, none lost, none twice."""
        gate = run.gate("slow")
        gate.close()
        await run.start("go")
        await run.wait_at_gate(gate.name)
        for text in ("m1", "m2", "m3"):
            assert await run.client.send_user_message(SESSION, text)
        queued = (await run.client.get_agent_snapshot(SESSION)).queued_messages
        assert await run.client.delete_queued_message(SESSION, queued[1].message_id)
        gate.open()
        await run.finish()
        answers = [message.text for message in await run.messages() if message.role == "assistant"]
        assert answers == ["", "done", "a1", "a3"]

    async def _come_to_the_moment(self, run: CaseRun) -> None:
        for name in ("model", "slow"):
            run.gate(name).close()
        await run.start("go")
        match run.parameter:
            case "model_call":
                await run.wait_at_gate("model")
            case "tool_runs":
                await run.wait_at_gate("slow")
            case _:
                await run.client.wait_for_interrupt(SESSION)
        if run.parameter in ("tool_runs", "one_done_one_waits"):
            await poll_until(lambda: run.effects["look"] or None, awaited="the call beside it")

    def _let_go(self, run: CaseRun) -> None:
        for name in ("model", "slow"):
            run.gate(name).open()


def _check_told(run: CaseRun, cancelled_result: str, note_header: str) -> None:
    """What the latest request says of the stopped turn: results, or the session's note where the runner has none."""
    results = [item.output for item in run.last_request.items if isinstance(item, RequestToolResult)]
    if isinstance(run.runner, UnfinishedTurnMessageBuilder):
        assert results == ["seen", "seen", cancelled_result], "[stopped-calls-are-told-to-the-model]"
        return
    (note,) = run.last_request.notes
    assert note.startswith(note_header), "[stopped-calls-are-told-to-the-model]"
    assert note.count("look") == 2, "[stopped-calls-are-told-to-the-model]"
