"""Compaction: when earlier messages are summarised, what the summary call gets, and what the model reads behind it.

Frameworks count tokens in ways of their own, so the texts are far from every limit: a long one has 8,000 characters,
1,300 to 2,700 tokens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from dex_agents import AgentTurnContext, CompactionPolicy, ContextCompactor
from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.capabilities import Capability
from dex_agents_conformance.case_run import SESSION, CaseRun
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conformance_case import case
from dex_agents_conformance.conversation_script import (
    ConversationScript,
    ReasoningPart,
    ScriptedReply,
    TextPart,
    ToolCallPart,
    calls,
    say,
)
from dex_agents_conformance.provider_request import ProviderRequest

__all__ = ["CompactionCases"]

#: Two long texts are too much, and hold less than half of the window.
_ROOMY = CompactionPolicy(context_window_tokens=12_000, trigger_ratio=0.1, retained_ratio=0.05)
#: One long text does not fit.
_SMALL = CompactionPolicy(context_window_tokens=1_000, trigger_ratio=0.8, retained_ratio=0.3)
_LONG = "word " * 1_600
_SUMMARIES = (say("They counted sheep."), say("They counted sheep and goats."))
_ATTEMPTS = 3


def _script(setup: CaseSetup, **fields: Any) -> ConversationScript:
    script: dict[str, Any] = {
        "directory": setup.directory,
        "replies": {
            "one": [say(f"first {_LONG}")],
            "two": [say("second")],
            "three": [say(f"third {_LONG}")],
            "four": [say("fourth")],
        },
        "compaction": _ROOMY,
        "summaries": _SUMMARIES,
        **fields,
    }
    return ConversationScript(**script)


def _long_talk(setup: CaseSetup) -> ConversationScript:
    return _script(setup)


def _short_talk(setup: CaseSetup) -> ConversationScript:
    return _script(setup, replies={"one": [say("first")], "two": [say("second")]})


def _broken_summary(setup: CaseSetup) -> ConversationScript:
    broken = {
        "breaks": ScriptedReply(parts=(TextPart(text="They counted sheep."),), failures=_ATTEMPTS),
        "blank": say(" "),
        "longer": say(f"They said: {_LONG * 3}"),
    }[setup.parameter]
    return _script(setup, summaries=(broken,))


def _broken_once(setup: CaseSetup) -> ConversationScript:
    return _script(setup, summaries=(ScriptedReply(parts=(TextPart(text="They counted sheep."),), failures=1),))


def _broken_in_a_small_window(setup: CaseSetup) -> ConversationScript:
    summary = ScriptedReply(parts=(TextPart(text="They counted sheep."),), failures=_ATTEMPTS)
    return _script(setup, summaries=(summary,), compaction=_SMALL)


def _held_summary(setup: CaseSetup) -> ConversationScript:
    return _script(setup, summaries=(ScriptedReply(parts=(TextPart(text="They counted sheep."),), gate="summary"),))


def _tools(setup: CaseSetup) -> ConversationScript:
    """Turns whose batches have this many calls, with results that make each turn too large for the next one."""
    size = int(setup.parameter)
    replies: dict[str, Sequence[ScriptedReply]] = {}
    for turn in ("one", "two", "three", "four"):
        batches = [
            calls(*(_note(f"{turn}-{batch}-{number}") for number in range(size)))
            for batch in range(1 if turn == "four" else 2)
        ]
        replies[turn] = [*batches, say(f"noted {turn}")]
    return _script(setup, replies=replies, tools=[setup.tool("note", returns="noted " + _LONG[: 6_000 // size])])


def _uncut_tools(setup: CaseSetup) -> ConversationScript:
    policy = CompactionPolicy(context_window_tokens=1_000_000)
    return dataclasses.replace(_tools(setup), compaction=policy)


def _long_turn(setup: CaseSetup) -> ConversationScript:
    batches = [calls(_note(f"go-{batch}-1"), _note(f"go-{batch}-2")) for batch in range(6)]
    return _script(
        setup,
        replies={"go": [*batches, say("noted")], "next": [say("well")]},
        tools=[setup.tool("note", returns="noted " + _LONG[:3_000])],
    )


def _reasoning(setup: CaseSetup) -> ConversationScript:
    thinks = ScriptedReply(
        parts=(
            ReasoningPart(text="I look.", signature="sig-1"),
            TextPart(text="Looking."),
            _note("c1"),
            ReasoningPart(text="And once more.", signature="sig-2"),
            _note("c2"),
        )
    )
    answers = ScriptedReply(parts=(ReasoningPart(text="I know.", signature="sig-3"), TextPart(text="seen")))
    return _script(
        setup,
        replies={
            "one": [say(f"first {_LONG}")],
            "two": [thinks, answers],
            "three": [say("third")],
            "four": [say("fourth")],
        },
        tools=[setup.tool("note", returns="noted")],
    )


def _note(tool_call_id: str) -> ToolCallPart:
    return ToolCallPart(tool_call_id=tool_call_id, tool_name="note", arguments='{"value": "x"}')


class _NoEvents:
    def write_text_delta(self, text: str) -> None:
        raise AssertionError("choosing a cut shows nothing")

    def write_reasoning_delta(self, text: str) -> None:
        raise AssertionError("choosing a cut shows nothing")

    def write_event(self, type: str, payload: Mapping[str, Any]) -> None:
        raise AssertionError("choosing a cut shows nothing")


class CompactionCases(AdapterDescription):
    """A summary stands for what it covers and for nothing else; no cut separates a call from its result."""

    @case(_long_talk, capability=Capability.COMPACTION)
    async def test_a_long_conversation_is_summarised(self, run: CaseRun) -> None:
        """Before the model is asked, with one call; the model reads the summary in the messages' place."""
        await run.answer_of("one")
        await run.answer_of("two")
        assert run.model_calls == {"one#0": 1, "summary#0": 1, "two#0": 1}, "[one-model-call-per-model-step]"
        assert "They counted sheep." in run.last_request.told, "[the-summary-reaches-the-model]"
        assert run.last_request.outputs == [], "[a-summary-replaces-its-messages]"
        assert run.last_request.user_texts == ["two"], "[a-summary-replaces-its-messages]"
        snapshot = await run.client.get_agent_snapshot(SESSION)
        summary = snapshot.context_summary
        assert summary is not None
        assert (summary.generation, summary.last_sequence) == (1, 2)
        assert [message.text[:6] for message in snapshot.messages] == ["one", "first ", "two", "second"]
        assert snapshot.usage.model_calls == 3, "[usage-adds-up]"

    @case(_short_talk, capability=Capability.COMPACTION)
    async def test_what_fits_is_not_summarised(self, run: CaseRun) -> None:
        """Far below the trigger the model reads everything."""
        await run.answer_of("one")
        await run.answer_of("two")
        assert run.model_calls == {"one#0": 1, "two#0": 1}, "[what-fits-is-not-summarised]"
        assert [output.text for output in run.last_request.outputs] == ["first"]

    @case(_long_talk, capability=Capability.COMPACTION)
    async def test_the_summary_call_has_the_instructions_and_no_tools(self, run: CaseRun) -> None:
        """And everything that it is to stand for."""
        await run.answer_of("one")
        await run.answer_of("two")
        (request,) = _summary_requests(run)
        assert request.tool_names == (), "[a-summary-call-offers-no-tools]"
        assert request.user_texts == ["one"], "[a-summary-call-gets-its-messages]"
        assert [output.text[:6] for output in request.outputs] == ["first "], "[a-summary-call-gets-its-messages]"

    @case(_long_talk, capability=Capability.COMPACTION)
    async def test_the_next_summary_knows_the_one_before(self, run: CaseRun) -> None:
        """It covers what came since, is told what stood for the rest, and takes its place."""
        for text in ("one", "two", "three", "four"):
            await run.answer_of(text)
        _, second = _summary_requests(run)
        assert "They counted sheep." in second.told, "[a-summary-knows-the-one-before]"
        assert second.user_texts == ["two", "three"], "[a-summary-call-gets-its-messages]"
        assert "They counted sheep and goats." in run.last_request.told, "[the-summary-reaches-the-model]"
        assert run.last_request.told.count("They counted sheep") == 1, "[only-the-newest-summary-is-shown]"
        summary = (await run.client.get_agent_snapshot(SESSION)).context_summary
        assert summary is not None
        assert summary.generation == 2

    @case(_long_talk, capability=Capability.COMPACTION)
    async def test_nothing_of_a_summary_is_shown(self, run: CaseRun) -> None:
        """It is for the model alone: no delta has it, and no message is stored of it."""
        await run.answer_of("one")
        await run.answer_of("two")
        deltas = [
            payload["text"]
            for kind in ("text_delta", "reasoning_delta")
            for payload in await run.event_payloads(kind)
            if "sheep" in payload["text"]
        ]
        assert deltas == [], "[nothing-of-a-summary-streams]"
        assert all("sheep" not in message.text for message in await run.messages()), "[notes-are-not-stored]"

    @case(_tools, capability=Capability.COMPACTION, parameters=("1", "2", "4"))
    async def test_F06_no_cut_separates_a_call_from_its_results(self, run: CaseRun) -> None:
        """Batches of calls, summarised over and over; the provider takes every request, that of a summary too."""
        for text in ("one", "two", "three", "four"):
            result = await run.run_turn(text)
            summary = (await run.client.get_agent_snapshot(SESSION)).context_summary
            covered = 0 if summary is None else summary.last_sequence
            kept = [message.role for message in await run.messages() if message.sequence > covered]
            assert kept[:1] != ["tool"], "[no-cut-separates-a-call-from-its-results]"
            assert (result.status, result.text) == ("completed", f"noted {text}")
        assert len(_summary_requests(run)) >= 2, "[a-long-conversation-is-summarised]"
        size = int(run.parameter)
        assert run.results_seen == ["noted " + _LONG[: 6_000 // size]] * size, "[every-result-reaches-the-model]"

    @case(_uncut_tools, capability=Capability.COMPACTION, parameters=("1", "3"))
    async def test_F06_no_budget_separates_a_call_from_its_results(self, run: CaseRun) -> None:
        """Whatever may stay, what stays begins between two rounds."""
        compactor = run.runner
        assert isinstance(compactor, ContextCompactor)
        for text in ("one", "two", "three", "four"):
            await run.answer_of(text)
        messages = tuple(await run.messages())
        turn = AgentTurnContext(
            flow_id=SESSION,
            turn_id=messages[-1].turn_id,
            attempt=1,
            step_execution_id=1,
            messages=messages,
            events=_NoEvents(),
            heartbeat=lambda: None,
        )
        everything = compactor.estimate_input_tokens(turn)
        roles = {message.sequence: message.role for message in messages}
        cuts = {compactor.select_compaction_cutoff(turn, everything * part // 100) for part in range(100)}
        assert len(cuts - {None}) > 3, "[a-cut-leaves-what-the-budget-allows]"
        for cut in cuts - {None}:
            assert cut in roles, "[a-cut-is-a-stored-message]"
            assert roles.get(cut + 1) != "tool", f"[no-cut-separates-a-call-from-its-results] {cut} of {roles}"

    @case(_long_turn, capability=Capability.COMPACTION)
    async def test_F06_a_turn_that_grows_too_large_goes_on(self, run: CaseRun) -> None:
        """Cut in its middle or not, as the runner can: each call behind the cut has its result, and none runs twice."""
        assert await run.answer_of("go") == "noted"
        assert run.effects == {"note": 12}, "[a-summary-runs-nothing-again]"
        last_turn = [request for request in run.requests if not request.is_summary_request][-1]
        asked = [call.tool_call_id for output in last_turn.outputs for call in output.tool_calls]
        assert asked[-2:] == ["go-5-1", "go-5-2"], "[every-result-reaches-the-model]"
        assert await run.answer_of("next") == "well"
        assert _summary_requests(run), "[a-long-conversation-is-summarised]"

    @case(_reasoning, capability=Capability.COMPACTION)
    async def test_F02_reasoning_behind_the_cut_is_unchanged(self, run: CaseRun) -> None:
        """What the summary does not cover comes back byte for byte, in its place."""
        self.require(Capability.REASONING)
        for text in ("one", "two", "three", "four"):
            await run.answer_of(text)
        summary = (await run.client.get_agent_snapshot(SESSION)).context_summary
        assert summary is not None, "[a-long-conversation-is-summarised]"
        assert summary.last_sequence == 2, "[the-newest-messages-stay]"
        signatures = [
            part.signature
            for output in run.last_request.outputs
            for part in output.parts
            if isinstance(part, ReasoningPart)
        ]
        assert signatures == ["sig-1", "sig-2", "sig-3"], "[reasoning-is-byte-equal]"

    @case(_broken_once, capability=Capability.COMPACTION)
    async def test_F39_a_broken_summary_call_is_repeated_by_the_session(self, run: CaseRun) -> None:
        """One invocation for each attempt; the turn goes on with the summary."""
        await run.answer_of("one")
        assert await run.answer_of("two") == "second"
        assert run.model_calls == {"one#0": 1, "summary#0": 2, "two#0": 1}, "[one-model-call-per-model-step]"
        assert "They counted sheep." in run.last_request.told, "[the-summary-reaches-the-model]"

    @case(_broken_summary, capability=Capability.COMPACTION, parameters=("breaks", "blank", "longer"))
    async def test_F39_a_turn_goes_on_without_a_summary_while_it_fits(self, run: CaseRun) -> None:
        """The attempts of one summary, and then the model reads everything."""
        await run.answer_of("one")
        assert await run.answer_of("two") == "second"
        assert run.model_calls["summary#0"] == _ATTEMPTS, "[one-model-call-per-model-step]"
        assert run.last_request.user_texts == ["one", "two"], "[a-failed-summary-loses-nothing]"
        assert [output.text[:6] for output in run.last_request.outputs] == ["first "]
        assert (await run.client.get_agent_snapshot(SESSION)).context_summary is None
        if run.parameter == "breaks":
            await run.answer_of("three")
            assert (await run.client.get_agent_snapshot(SESSION)).context_summary is not None

    @case(_broken_in_a_small_window, capability=Capability.COMPACTION)
    async def test_F39_a_turn_that_does_not_fit_without_a_summary_fails_by_name(self, run: CaseRun) -> None:
        """The model is not asked; the next turn tries again and goes on."""
        await run.answer_of("one")
        result = await run.run_turn("two")
        assert result.status == "failed", "[what-does-not-fit-fails-by-name]"
        assert result.error is not None
        assert result.error.type == "ContextTooLargeError", "[what-does-not-fit-fails-by-name]"
        assert run.model_calls == {"one#0": 1, "summary#0": _ATTEMPTS}, "[what-does-not-fit-is-not-sent]"
        assert await run.answer_of("four") == "fourth"
        assert "They counted sheep." in run.last_request.told, "[the-summary-reaches-the-model]"

    @case(_held_summary, capability=Capability.COMPACTION)
    async def test_F39_a_turn_is_cancelled_while_it_is_summarised(self, run: CaseRun) -> None:
        """The summary is dropped with it, and the next turn makes its own."""
        run.gate("summary").close()
        await run.answer_of("one")
        await run.client.send_user_message(SESSION, "two")
        await run.wait_at_gate("summary")
        assert (await run.client.get_agent_snapshot(SESSION)).state.status == "compacting_context"  # type: ignore[union-attr]
        assert await run.client.cancel_turn(SESSION)
        run.gate("summary").open()
        snapshot = await run.finish()
        assert snapshot.context_summary is None
        assert await run.answer_of("four") == "fourth"
        assert "They counted sheep." in run.last_request.told, "[the-summary-reaches-the-model]"

    @case(_long_talk, capability=Capability.COMPACTION)
    async def test_the_settings_choose_the_model_of_a_summary(self, run: CaseRun) -> None:
        """The model of the turn also summarises."""
        self.require(Capability.SETTINGS)
        await run.start("one", session_settings={"model": "small"})
        await run.finish()
        await run.answer_of("two")
        assert [request.model for request in run.requests] == ["small"] * 3, "[settings-choose-the-model]"

    @case(_long_talk, capability=Capability.COMPACTION)
    async def test_a_summary_outlives_its_process(self, run: CaseRun) -> None:
        """A new runner reads the summary that another one made."""
        await run.answer_of("one")
        await run.answer_of("two")
        await run.reopen(self.make_flow(run.script))
        await run.answer_of("three")
        assert "They counted sheep." in run.last_request.told, "[runners-keep-no-session-state]"
        assert [output.text for output in run.last_request.outputs] == ["second"], "[runners-keep-no-session-state]"


def _summary_requests(run: CaseRun) -> list[ProviderRequest]:
    return [request for request in run.requests if request.is_summary_request]
