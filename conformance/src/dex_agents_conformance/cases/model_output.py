"""What models really send: nothing, broken arguments, unknown tools, broken connections."""

from __future__ import annotations

from dex_agents import ToolEffect
from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.case_run import CaseRun
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

__all__ = ["ModelOutputCases"]

_EMPTY_REPLIES = {
    "nothing": ScriptedReply(),
    "empty_text": say(""),
    "blank_text": say("  \n"),
    "reasoning_alone": ScriptedReply(parts=(ReasoningPart(text="hm", signature="proof-1"),)),
    "length_stop_without_text": ScriptedReply(finish_reason="length"),
    "filtered": ScriptedReply(finish_reason="content_filter"),
}

_BROKEN_ARGUMENTS = {
    "truncated": '{"value": "7',
    "null": "null",
    "array": '["7"]',
    "text": '"{}"',
    "number": "7",
    "not_a_number": '{"value": NaN}',
    "raw_newline": '{"value": "a\nb"}',
    "words": "value=7",
}


def _empty_reply(setup: CaseSetup) -> ConversationScript:
    reply = _EMPTY_REPLIES[setup.parameter]
    return ConversationScript(
        directory=setup.directory, replies={"speak": [reply, say("at last"), say("at last")], "next": [say("well")]}
    )


def _empty_reply_behind_a_tool(setup: CaseSetup) -> ConversationScript:
    reply = _EMPTY_REPLIES[setup.parameter]
    return ConversationScript(
        directory=setup.directory,
        replies={"speak": [calls(("c1", "work")), reply, say("at last"), say("at last")], "next": [say("well")]},
        tools=[setup.tool("work")],
    )


def _length_stop(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"speak": [say("it was a dark and", finish_reason="length")], "next": [say("well")]},
    )


def _broken_arguments(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={
            "go": [calls(("c1", "work", _BROKEN_ARGUMENTS[setup.parameter]), ("c2", "fine")), say("done")],
            "next": [say("well")],
        },
        tools=[
            setup.tool("work", effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True),
            setup.tool("fine", returns="fine"),
        ],
    )


def _blank_arguments(setup: CaseSetup) -> ConversationScript:
    text = {"empty": "", "space": " ", "object": "{}"}[setup.parameter]
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "work", text)), say("done")]},
        tools=[setup.tool("work", echoes_value=True)],
    )


def _missing_argument(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "work", "{}")), say("done")], "next": [say("well")]},
        tools=[setup.tool("work", requires_value=True)],
    )


def _unknown_tool(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "no_such_tool"), ("c2", "work")), say("done")], "next": [say("well")]},
        tools=[setup.tool("work", returns="fine")],
    )


def _text_beside_calls(setup: CaseSetup) -> ConversationScript:
    parts = (
        TextPart(text="Let me look."),
        ToolCallPart(tool_call_id="c1", tool_name="work"),
    )
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [ScriptedReply(parts=parts), say("done")], "next": [say("well")]},
        tools=[setup.tool("work")],
    )


def _many_calls(setup: CaseSetup) -> ConversationScript:
    asked = [(f"c{number}", "work", f'{{"value": "{number}"}}') for number in range(20)]
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(*asked), say("done")]},
        tools=[setup.tool("work", echoes_value=True)],
    )


def _broken_model(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={
            "go": [calls(("c1", "work"), failures=1), say("done", failures=1)],
            "down": [say("never", failures=100)],
            "next": [say("well")],
        },
        tools=[setup.tool("work")],
    )


def _broken_behind_a_tool(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={
            "go": [calls(("c1", "work"), ("c2", "work")), say("never", failures=100)],
            "next": [say("well")],
        },
        tools=[setup.tool("work", effect=ToolEffect.NON_IDEMPOTENT_WRITE)],
    )


_SURROGATE = "half \ud83d emoji"


def _lone_surrogates(setup: CaseSetup) -> ConversationScript:
    replies = {
        "model_text": [say(_SURROGATE)],
        "arguments": [calls(("c1", "work", '{"value": "\\ud83d"}')), say("done")],
        "user_text": [say("done")],
    }
    user_text = "half \N{REPLACEMENT CHARACTER} emoji" if setup.parameter == "user_text" else "go"
    return ConversationScript(
        directory=setup.directory,
        replies={user_text: replies[setup.parameter], "next": [say("well")]},
        tools=[setup.tool("work", echoes_value=True)],
    )


class ModelOutputCases(AdapterDescription):
    """Bad output ends a call or a turn by name; it never poisons the session."""

    @case(_empty_reply, parameters=tuple(_EMPTY_REPLIES))
    async def test_F08_a_reply_without_content_ends_the_turn(self, run: CaseRun) -> None:
        """The turn completes, possibly after asking again, or fails with a named error; the next one works."""
        result = await run.run_turn("speak")
        assert result.status in ("completed", "failed")
        assert result.error is None or result.error.message
        await self._check_one_call_per_attempt(run)
        assert await run.answer_of("next") == "well"

    @case(_empty_reply_behind_a_tool, parameters=("nothing", "blank_text", "reasoning_alone"))
    async def test_F08_a_reply_without_content_behind_a_tool_ends_the_turn(self, run: CaseRun) -> None:
        """The same behind a tool's result, which stays in the history."""
        result = await run.run_turn("speak")
        assert result.status in ("completed", "failed")
        assert run.effects == {"work": 1}
        await self._check_one_call_per_attempt(run)
        assert await run.answer_of("next") == "well"

    @case(_length_stop)
    async def test_a_reply_that_was_cut_off_is_kept(self, run: CaseRun) -> None:
        """What the model said before it ran out of tokens is the answer, or the turn fails and says why."""
        result = await run.run_turn("speak")
        assert result.text == "it was a dark and" or (result.error is not None and result.error.message)
        assert await run.answer_of("next") == "well"

    @case(_broken_arguments, parameters=tuple(_BROKEN_ARGUMENTS))
    async def test_F13_broken_arguments_fail_the_call_without_asking_anybody(self, run: CaseRun) -> None:
        """Nobody approves what cannot run; the model reads what is wrong, and the history stays valid."""
        assert await run.answer_of("go") == "done"
        assert run.effects == {"fine": 1}, "[broken-arguments-never-run]"
        assert ("work", "failed") in await run.statuses()
        assert "work" in run.results_seen[0], "[failure-text]"
        assert run.results_seen[1] == "fine"
        assert not await run.event_payloads("interrupt_raised"), "[broken-arguments-ask-nobody]"
        assert await run.answer_of("next") == "well"

    @case(_blank_arguments, parameters=("empty", "space", "object"))
    async def test_F13_blank_arguments_are_an_empty_object(self, run: CaseRun) -> None:
        """Some providers send nothing for a tool without arguments."""
        await run.answer_of("go")
        assert run.results_seen == ["work:"]

    @case(_missing_argument)
    async def test_F13_a_missing_argument_fails_the_call(self, run: CaseRun) -> None:
        """The model reads which argument is missing; the tool does not run."""
        await run.answer_of("go")
        assert run.effects == {}
        assert await run.statuses() == [("work", "failed")]
        assert "value" in run.results_seen[0], "[failure-text]"

    @case(_unknown_tool)
    async def test_an_unknown_tool_fails_its_call_alone(self, run: CaseRun) -> None:
        """The model reads that there is no such tool, and the call beside it runs."""
        assert await run.answer_of("go") == "done"
        assert sorted(await run.statuses()) == [("no_such_tool", "failed"), ("work", "succeeded")]
        assert "no_such_tool" in run.results_seen[0], "[failure-text]"
        assert run.results_seen[1] == "fine"
        assert await run.answer_of("next") == "well"

    @case(_text_beside_calls)
    async def test_text_beside_calls_is_kept(self, run: CaseRun) -> None:
        """What the model says before it calls a tool is stored, shown and sent back."""
        await run.answer_of("go")
        assert run.last_request.outputs[0].text == "Let me look.", "[model-text-is-sent-back]"
        messages = await run.messages()
        assert messages[1].text == "Let me look."
        assert [call.tool_name for call in messages[1].tool_calls] == ["work"]

    @case(_many_calls)
    async def test_F09_many_calls_in_one_reply_all_run(self, run: CaseRun) -> None:
        """Twenty calls, twenty effects, twenty results in order."""
        await run.answer_of("go")
        assert run.results_seen == [f"work:{number}" for number in range(20)]
        assert run.effects == {"work": 20}

    @case(_broken_model)
    async def test_F33_a_failed_model_call_is_repeated_by_the_session(self, run: CaseRun) -> None:
        """Once for each failure: neither the framework nor the client tries again by itself."""
        assert await run.answer_of("go") == "done"
        assert run.model_calls == {"go#0": 2, "go#1": 2}, "[one-model-call-per-attempt]"
        assert run.effects == {"work": 1}, "[a-repeated-model-call-repeats-no-tool]"
        await self._check_one_call_per_attempt(run)

    @case(_broken_model)
    async def test_F33_a_model_that_stays_down_fails_the_turn(self, run: CaseRun) -> None:
        """The turn fails with the error's text, and the next one works."""
        result = await run.run_turn("down")
        assert result.status == "failed"
        assert result.error is not None
        assert "the connection to the model broke" in result.error.message, "[turn-error-says-why]"
        await self._check_one_call_per_attempt(run)
        assert await run.answer_of("next") == "well"

    @case(_broken_behind_a_tool)
    async def test_F01_a_failed_turn_keeps_its_results(self, run: CaseRun) -> None:
        """Calls that ran have their results in the next turn's request, and run no more."""
        result = await run.run_turn("go")
        assert result.status == "failed"
        assert await run.answer_of("next") == "well"
        assert run.effects == {"work": 2}
        assert run.last_request.user_texts[-1] == "next"

    @case(_lone_surrogates, parameters=("model_text", "arguments", "user_text"))
    async def test_F10_a_lone_surrogate_is_replaced(self, run: CaseRun) -> None:
        """Text that no provider takes is repaired on its way in, and the session goes on."""
        result = await run.run_turn(_SURROGATE if run.parameter == "user_text" else "go")
        assert result.status == "completed"
        if run.parameter == "model_text":
            assert result.text == "half \N{REPLACEMENT CHARACTER} emoji"
        assert await run.answer_of("next") == "well"

    async def _check_one_call_per_attempt(self, run: CaseRun) -> None:
        attempts = await run.model_attempts()
        asked = sum(run.model_calls.values())
        assert asked == attempts, f"[one-model-call-per-attempt] {attempts} attempts asked the model {asked} times"
