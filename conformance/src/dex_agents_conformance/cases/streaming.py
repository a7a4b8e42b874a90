"""What people see while the model speaks, and reasoning that must come back as it was."""

from __future__ import annotations

import asyncio

from dex_agents import ToolEffect
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
    say,
)

__all__ = ["StreamingCases"]

_LONG_TEXT = "The quick brown fox jumps over the lazy dog. " * 20


def _spoken(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(directory=setup.directory, replies={"speak": [say(_LONG_TEXT)]})


def _held(setup: CaseSetup) -> ConversationScript:
    parts = (TextPart(text="first half,"), TextPart(text=" second half"))
    return ConversationScript(
        directory=setup.directory,
        replies={"speak": [ScriptedReply(parts=parts, gate="model", parts_before_gate=1)]},
    )


def _broken_stream(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"speak": [say(_LONG_TEXT, failures=1, fails_behind_gate=True)]},
    )


def _spoken_around_a_tool(setup: CaseSetup) -> ConversationScript:
    parts = (TextPart(text="Let me look."), ToolCallPart(tool_call_id="c1", tool_name="look"))
    return ConversationScript(
        directory=setup.directory,
        replies={"speak": [ScriptedReply(parts=parts), say("There it is.")]},
        tools=[setup.tool("look")],
    )


_INTERLEAVED = (
    ReasoningPart(text="first I look", signature="proof-1"),
    TextPart(text="Let me look."),
    ToolCallPart(tool_call_id="c1", tool_name="look", arguments='{"value":"1"}'),
    ReasoningPart(text="and then I pay", signature="proof-2"),
    ToolCallPart(tool_call_id="c2", tool_name="pay", arguments='{"value":"2"}'),
)


def _reasoning(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={
            "go": [ScriptedReply(parts=_INTERLEAVED), say("done")],
            "think": [ScriptedReply(parts=(ReasoningPart(text="hm, well", signature="proof-3"), TextPart(text="yes")))],
            "next": [say("well")],
        },
        tools=[
            setup.tool("look"),
            setup.tool("pay", effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True),
        ],
    )


class StreamingCases(AdapterDescription):
    """Live text is what will be stored; reasoning is the provider's, byte for byte."""

    @case(_spoken, capability=Capability.STREAMING)
    async def test_F24_text_deltas_add_up_to_the_stored_text(self, run: CaseRun) -> None:
        """Nothing is missing, nothing comes twice."""
        await run.answer_of("speak")
        assert await _live_text(run, "text_delta") == [_LONG_TEXT], "[deltas-add-up-to-the-text]"
        assert (await run.messages())[-1].text == _LONG_TEXT

    @case(_held, capability=Capability.STREAMING)
    async def test_text_is_shown_while_the_model_still_speaks(self, run: CaseRun) -> None:
        """The first half is an event before the model has said the second."""
        gate = run.gate("model")
        gate.close()
        await run.start("speak")
        await run.wait_at_gate(gate.name)
        shown = ""

        async def watch() -> None:
            nonlocal shown
            async for event in run.client.stream_events(SESSION):
                shown += event.payload["text"] if event.type == "text_delta" else ""
                if shown == "first half,":
                    return

        try:
            await asyncio.wait_for(watch(), timeout=30)
        except TimeoutError:
            raise AssertionError(f"[text-streams-while-the-model-speaks] shown so far: {shown!r}") from None
        gate.open()
        await run.finish()
        assert await _live_text(run, "text_delta") == ["first half, second half"]

    @case(_broken_stream, capability=Capability.STREAMING)
    async def test_F42_a_failed_attempts_partial_text_is_dropped(self, run: CaseRun) -> None:
        """Of one model step, the highest attempt's text alone is what the model said."""
        assert await run.answer_of("speak") == _LONG_TEXT
        assert await _live_text(run, "text_delta") == [_LONG_TEXT], "[deltas-add-up-to-the-text]"
        assert [message.text for message in await run.messages() if message.role == "assistant"] == [_LONG_TEXT]

    @case(_spoken_around_a_tool, capability=Capability.STREAMING)
    async def test_each_model_step_streams_its_own_text(self, run: CaseRun) -> None:
        """Text before a tool call and text behind its result are two live texts."""
        await run.answer_of("speak")
        assert await _live_text(run, "text_delta") == ["Let me look.", "There it is."]

    @case(_reasoning, capability=Capability.REASONING)
    async def test_reasoning_is_shown_and_stored(self, run: CaseRun) -> None:
        """People may read it, apart from the text."""
        await run.answer_of("think")
        message = (await run.messages())[-1]
        assert (message.text, message.reasoning_text) == ("yes", "hm, well"), "[reasoning-is-stored]"
        if Capability.STREAMING in self.capabilities:
            assert await _live_text(run, "reasoning_delta") == ["hm, well"]
            assert await _live_text(run, "text_delta") == ["yes"]

    @case(_reasoning, capability=Capability.REASONING)
    async def test_F02_reasoning_comes_back_in_its_place(self, run: CaseRun) -> None:
        """Reasoning, text and calls of a reply are sent back in their order, byte for byte, also behind an approval."""
        await run.start("go")
        await run.client.approve(SESSION)
        await run.finish()
        assert run.last_request.outputs[0].parts == _INTERLEAVED, "[reasoning-stands-where-it-stood]"

    @case(_reasoning, capability=Capability.REASONING)
    async def test_F02_reasoning_comes_back_in_later_turns(self, run: CaseRun) -> None:
        """A provider that signs its reasoning wants it back next to what it led to."""
        await run.answer_of("think")
        await run.answer_of("next")
        (first,) = run.last_request.outputs
        reasoning = [part for part in first.parts if isinstance(part, ReasoningPart)]
        assert reasoning == [ReasoningPart(text="hm, well", signature="proof-3")], "[reasoning-is-byte-equal]"

    @case(_reasoning, capability=Capability.REASONING)
    async def test_F02_reasoning_of_a_stopped_turn_stays_valid(self, run: CaseRun) -> None:
        """Steered away while a call waits: what comes back of the reply is in its order, with all its partners."""
        await run.start("go")
        await run.client.wait_for_interrupt(SESSION)
        assert await run.client.steer_user_message(SESSION, "next")
        await run.finish()
        outputs = run.last_request.outputs
        assert not outputs or outputs[0].parts == _INTERLEAVED, "[reasoning-stands-where-it-stood]"

    @case(_reasoning)
    async def test_a_reply_with_reasoning_runs_its_calls(self, run: CaseRun) -> None:
        """An adapter without reasoning may drop it, and must not stumble over it."""
        await run.start("go")
        await run.client.approve(SESSION)
        snapshot = await run.finish()
        assert snapshot.messages[-1].text == "done"
        assert run.results_seen == ["done", "done"]

    @case(_spoken_around_a_tool)
    async def test_a_turns_events_begin_and_end_once(self, run: CaseRun) -> None:
        """A browser can follow the turn: it begins, its call begins and ends, it completes."""
        await run.answer_of("speak")
        types = [event.type for event in await run.events()]
        for event_type in ("turn_started", "tool_call_started", "tool_call_finished", "turn_completed"):
            assert types.count(event_type) == 1, f"[events-come-once] {event_type} in {types}"

    @case(_spoken)
    async def test_a_short_answer_needs_no_deltas(self, run: CaseRun) -> None:
        """With or without streaming, the stored text is whole."""
        assert await run.answer_of("speak") == _LONG_TEXT
        assert not [text for text in await _live_text(run, "text_delta") if text not in _LONG_TEXT]

    @case(_spoken_around_a_tool)
    async def test_calls_are_announced_with_their_arguments(self, run: CaseRun) -> None:
        """The event of a call names its tool before the call has a result."""
        await run.answer_of("speak")
        (started,) = await run.event_payloads("tool_call_started")
        assert started["tool_name"] == "look"


async def _live_text(run: CaseRun, event_type: str) -> list[str]:
    """The live texts, one for each model step: of its attempts, the highest counts."""
    attempts: dict[int, int] = {}
    texts: dict[tuple[int, int], str] = {}
    payloads = iter(await run.event_payloads(event_type))
    for event in await run.events():
        if event.type != event_type:
            continue
        step = event.step_execution_id
        attempts[step] = max(attempts.get(step, 0), event.attempt)
        texts[step, event.attempt] = texts.get((step, event.attempt), "") + next(payloads)["text"]
    return [texts[step, attempt] for step, attempt in attempts.items()]
