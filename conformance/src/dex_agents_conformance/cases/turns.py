"""Turns without tools, and what later turns see of earlier ones."""

from __future__ import annotations

from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.case_run import CaseRun
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conformance_case import case
from dex_agents_conformance.conversation_script import ConversationScript, calls, say

__all__ = ["TurnCases"]


def _three_answers(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"one": [say("first")], "two": [say("second")], "three": [say("third")]},
    )


def _lookup(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"look": [calls(("c1", "lookup", '{"value": "7"}')), say("found")], "again": [say("as before")]},
        tools=[setup.tool("lookup", echoes_value=True)],
    )


def _long_chain(setup: CaseSetup) -> ConversationScript:
    steps = [calls((f"c{number}", "lookup", f'{{"value": "{number}"}}')) for number in range(1, 9)]
    return ConversationScript(
        directory=setup.directory,
        replies={"count": [*steps, say("counted")]},
        tools=[setup.tool("lookup", echoes_value=True)],
    )


_TEXTS = {
    "emoji": "👩‍🚀 🇫🇷",
    "newlines": "a\n\nb\r\nc\t",
    "quotes": '{"a": "\'\\""}',
    "right_to_left": "שלום עולם",
    "long": "word " * 20_000,
    "markup": "<tool_call>{}</tool_call> [INST]",
}


def _user_text(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(directory=setup.directory, replies={_TEXTS[setup.parameter]: [say("read")]})


def _model_text(setup: CaseSetup) -> ConversationScript:
    text = _TEXTS[setup.parameter]
    return ConversationScript(
        directory=setup.directory, replies={"speak": [say(text, delta_characters=997)], "go on": [say("done")]}
    )


class TurnCases(AdapterDescription):
    """One model call per model step, and a history that grows by what was said."""

    @case(_three_answers)
    async def test_a_turn_completes_with_the_models_text(self, run: CaseRun) -> None:
        """The model's text is the turn's answer, and the stored assistant message has it."""
        assert await run.answer_of("one") == "first"
        assert [(message.role, message.text) for message in await run.messages()] == [
            ("user", "one"),
            ("assistant", "first"),
        ]

    @case(_three_answers)
    async def test_later_turns_see_earlier_ones(self, run: CaseRun) -> None:
        """Each request has the whole conversation, and nothing twice."""
        for text in ("one", "two", "three"):
            await run.answer_of(text)
        assert run.last_request.user_texts == ["one", "two", "three"]
        assert [output.text for output in run.last_request.outputs] == ["first", "second"]

    @case(_three_answers)
    async def test_each_turn_makes_one_model_call(self, run: CaseRun) -> None:
        """A turn of text alone asks the model once."""
        await run.answer_of("one")
        await run.answer_of("two")
        assert run.model_calls == {"one#0": 1, "two#0": 1}, "[one-model-call-per-model-step]"

    @case(_lookup)
    async def test_a_tool_result_reaches_the_model(self, run: CaseRun) -> None:
        """The call runs once, in a Step of its own, and the model reads what it returned."""
        assert await run.answer_of("look") == "found"
        assert run.results_seen == ["lookup:7"]
        assert run.effects == {"lookup": 1}
        assert await run.statuses() == [("lookup", "succeeded")]

    @case(_lookup)
    async def test_tool_calls_stay_in_the_history(self, run: CaseRun) -> None:
        """A later turn sees the call with its result."""
        await run.answer_of("look")
        await run.answer_of("again")
        assert [output.text for output in run.last_request.outputs] == ["", "found"]
        call = run.last_request.outputs[0].tool_calls[0]
        assert (call.tool_call_id, call.tool_name) == ("c1", "lookup")

    @case(_lookup)
    async def test_stored_messages_name_their_calls(self, run: CaseRun) -> None:
        """People see which tool the model asked for, and the result in a message of its own."""
        await run.answer_of("look")
        messages = await run.messages()
        assert [message.role for message in messages] == ["user", "assistant", "tool", "assistant"]
        assert [call.tool_name for call in messages[1].tool_calls] == ["lookup"]
        assert messages[2].text == "lookup:7"

    @case(_long_chain)
    async def test_a_chain_of_tool_calls_makes_one_model_call_each(self, run: CaseRun) -> None:
        """Eight rounds in one turn: nine model calls, eight effects, every result in its place."""
        assert await run.answer_of("count") == "counted"
        assert run.results_seen == [f"lookup:{number}" for number in range(1, 9)]
        assert run.model_calls == {f"count#{number}": 1 for number in range(9)}, "[one-model-call-per-model-step]"
        assert run.effects == {"lookup": 8}

    @case(_user_text, parameters=tuple(_TEXTS))
    async def test_user_text_arrives_unchanged(self, run: CaseRun) -> None:
        """What the user said reaches the model character for character."""
        assert await run.answer_of(_TEXTS[run.parameter]) == "read"
        assert run.last_request.user_texts == [_TEXTS[run.parameter]]

    @case(_model_text, parameters=tuple(_TEXTS))
    async def test_model_text_is_stored_and_replayed_unchanged(self, run: CaseRun) -> None:
        """What the model said is shown, stored and sent back character for character."""
        assert await run.answer_of("speak") == _TEXTS[run.parameter]
        await run.answer_of("go on")
        assert [output.text for output in run.last_request.outputs] == [_TEXTS[run.parameter]]
