"""The session's own tools: offered by the runner, run by the session, never mistaken for one of the agent's."""

from __future__ import annotations

import dataclasses
import json
from datetime import timedelta

from dex_agents import AgentToolCallRecordStatus
from dex_agents.session.texts import (
    QUESTION_DEADLINE_PASSED,
    QUESTION_DECLINED,
    TOOL_CALL_CANCELLED_BY_STEERING_RESULT,
    invalid_built_in_arguments_text,
)
from dex_agents.testing import poll_until
from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.capabilities import Capability
from dex_agents_conformance.case_run import SESSION, CaseRun
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conformance_case import case
from dex_agents_conformance.conversation_script import ConversationScript, ToolCallPart, calls, say

__all__ = ["BuiltInToolCases"]

_BOTH = ("ask_user", "durable_wait")
_QUESTION = {"question": "Which environment?", "choices": ["staging", "production"]}
_WAIT = {"duration_seconds": 86_400, "reason": "the build"}

_INVALID = {
    "blank_question": ("ask_user", {"question": " "}, "question must be text that is not blank"),
    "unknown_argument": ("ask_user", {"question": "Where?", "colour": "red"}, "there is no argument colour"),
    "no_way_to_answer": (
        "ask_user",
        {"question": "Where?", "allows_free_text": False},
        "without choices, allows_free_text must be true",
    ),
    "no_seconds": ("durable_wait", {"duration_seconds": 0, "reason": "x"}, "duration_seconds must be from 1 to 3600"),
    "too_long": ("durable_wait", {"duration_seconds": 3_601, "reason": "x"}, "duration_seconds must be from 1 to 3600"),
}


def _call(tool_call_id: str, tool_name: str, arguments: object) -> ToolCallPart:
    return ToolCallPart(tool_call_id=tool_call_id, tool_name=tool_name, arguments=json.dumps(arguments))


def _tools_and_text(setup: CaseSetup) -> ConversationScript:
    enabled = () if setup.parameter == "none" else tuple(setup.parameter.split("+"))
    return ConversationScript(
        directory=setup.directory,
        replies={"look": [calls(("c1", "look")), say("found")]},
        tools=[setup.tool("look")],
        built_in_tools=enabled,
    )


def _asks(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(_call("c1", "ask_user", _QUESTION), ("c2", "look")), say("done")], "next": [say("well")]},
        tools=[setup.tool("look", returns="seen")],
        built_in_tools=_BOTH,
        interrupt_deadline=timedelta(days=7),
    )


def _waits(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={
            "go": [calls(_call("c1", "durable_wait", _WAIT), ("c2", "look")), say("built")],
            "next": [say("well")],
        },
        tools=[setup.tool("look", returns="seen")],
        built_in_tools=_BOTH,
    )


def _invalid(setup: CaseSetup) -> ConversationScript:
    tool_name, arguments, _ = _INVALID[setup.parameter]
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(_call("c1", tool_name, arguments)), say("sorry")]},
        built_in_tools=_BOTH,
        session_options={"max_durable_wait": timedelta(hours=1)},
    )


def _hello(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(directory=setup.directory, replies={"hello": [say("hi")]}, built_in_tools=_BOTH)


class BuiltInToolCases(AdapterDescription):
    """The runner offers what is enabled and hands the calls over; everything else is the session's."""

    @case(
        _tools_and_text,
        capability=Capability.BUILT_IN_TOOLS,
        parameters=("ask_user+durable_wait", "ask_user", "durable_wait", "none"),
    )
    async def test_the_enabled_built_in_tools_are_offered(self, run: CaseRun) -> None:
        """Beside the agent's own, in every model call, and no others."""
        assert await run.answer_of("look") == "found"
        wanted = sorted(["look", *run.script.built_in_tools])
        for request in run.requests:
            assert sorted(request.tool_names) == wanted, "[enabled-built-in-tools-are-offered]"

    @case(_asks, capability=Capability.BUILT_IN_TOOLS, parameters=("staging", "the moon"))
    async def test_F53_ask_user_is_answered(self, run: CaseRun) -> None:
        """The user sees the question, and the model reads the answer beside the results of other calls."""
        await run.start("go")
        asked = await run.wait_for_question()
        assert (asked.tool_name, asked.question) == ("ask_user", _QUESTION["question"])
        assert asked.choices == ("staging", "production"), "[a-question-reaches-the-user]"
        await poll_until(lambda: run.effects["look"] or None, awaited="the call beside it")
        assert run.model_calls == {"go#0": 1}, "[the-model-waits-for-every-result]"
        assert await run.client.answer_question(SESSION, asked.interrupt_id, run.parameter)
        await run.finish()
        answer, seen = run.results_seen
        assert json.loads(answer) == {"status": "answered", "answer": run.parameter}, "[the-answer-reaches-the-model]"
        assert seen == "seen"

    @case(_asks, capability=Capability.BUILT_IN_TOOLS, parameters=("in_words", "without_words"))
    async def test_F53_ask_user_is_declined(self, run: CaseRun) -> None:
        """The model reads what the person said, or that they declined."""
        words = "Ask me tomorrow" if run.parameter == "in_words" else None
        await run.start("go")
        asked = await run.wait_for_question()
        assert await run.client.resolve_interrupt(SESSION, asked.interrupt_id, approved=False, rejection_message=words)
        await run.finish()
        assert run.results_seen == [words or QUESTION_DECLINED, "seen"], "[the-persons-words-reach-the-model]"

    @case(_asks, capability=Capability.BUILT_IN_TOOLS)
    async def test_F53_ask_user_ends_at_its_deadline(self, run: CaseRun) -> None:
        """Nobody answered; the model is told, and the turn goes on."""
        await run.start("go")
        await run.wait_for_question()
        await run.skip_timer("AwaitQuestionAnswer")
        await run.finish()
        assert run.results_seen == [QUESTION_DEADLINE_PASSED, "seen"]

    @case(_invalid, capability=Capability.BUILT_IN_TOOLS, parameters=tuple(_INVALID))
    async def test_F13_invalid_arguments_of_a_built_in_tool_are_told_to_the_model(self, run: CaseRun) -> None:
        """Nobody is asked and nothing waits: the model reads the session's reason and tries again."""
        tool_name, _, reason = _INVALID[run.parameter]
        assert await run.answer_of("go") == "sorry"
        assert run.results_seen == [invalid_built_in_arguments_text(tool_name, reason)], (
            "[built-in-calls-are-the-sessions]"
        )
        assert await run.statuses() == [(tool_name, "failed")]
        assert not await run.event_payloads("interrupt_raised")

    @case(_waits, capability=Capability.BUILT_IN_TOOLS)
    async def test_a_durable_wait_ends_with_its_time(self, run: CaseRun) -> None:
        """The model is asked again when the time is over, and a message sent meanwhile waits for the turn's end."""
        await run.start("go")
        await _waiting(run)
        assert run.model_calls == {"go#0": 1}, "[the-model-waits-for-every-result]"
        assert await run.client.send_user_message(SESSION, "next")
        await run.skip_timer("AwaitTimer")
        await run.finish()
        assert [output.text for output in run.last_request.outputs] == ["", "built"]
        assert run.last_request.user_texts == ["go", "next"]
        waited = next(message.text for message in await run.messages() if message.role == "tool")
        assert json.loads(waited) == {"status": "completed", "waited_seconds": 86_400, "reason": "the build"}

    @case(_waits, capability=Capability.BUILT_IN_TOOLS)
    async def test_F03_steering_ends_a_durable_wait(self, run: CaseRun) -> None:
        """At once; the new message is answered behind the results of the old turn."""
        await run.start("go")
        await _waiting(run)
        assert await run.client.steer_user_message(SESSION, "next")
        snapshot = await run.finish()
        assert snapshot.messages[-1].text == "well"
        assert ("durable_wait", "rejected") in await run.statuses()
        results = [message.text for message in await run.messages() if message.role == "tool"]
        assert results in ([], [TOOL_CALL_CANCELLED_BY_STEERING_RESULT, "seen"])

    @case(_waits, capability=Capability.BUILT_IN_TOOLS)
    async def test_F40_a_durable_wait_is_cancelled(self, run: CaseRun) -> None:
        """The turn ends without another model call, and the next one has a valid history."""
        await run.start("go")
        await _waiting(run)
        assert await run.client.cancel_turn(SESSION)
        await run.finish()
        assert run.model_calls == {"go#0": 1}
        assert await run.answer_of("next") == "well"

    @case(_hello, capability=Capability.BUILT_IN_TOOLS)
    async def test_F22_a_tool_with_the_name_of_a_built_in_tool_is_refused(self, run: CaseRun) -> None:
        """By name, when the Flow is built, or in the first turn at the latest: the model never sees two of a name."""
        tool = dataclasses.replace(
            CaseSetup(directory=run.script.directory).tool("ask_user"),
            has_session_policy=False,
            requires_approval=False,
        )
        clashing = dataclasses.replace(run.script, tools=[tool])
        try:
            flow = self.make_flow(clashing)
        except (TypeError, ValueError) as error:
            refusal = str(error)
        else:
            await run.reopen(flow)
            result = await run.run_turn("hello")
            refusal = "" if result.error is None else result.error.message
        assert "ask_user" in refusal, "[a-name-clash-is-refused-by-name]"
        assert run.requests == [], "[a-name-clash-is-refused-by-name]"


async def _waiting(run: CaseRun) -> None:
    """Until the wait has begun and the call beside it is done."""
    await run.wait_for_call("durable_wait", AgentToolCallRecordStatus.WAITING_FOR_TIMER)
    await poll_until(lambda: run.effects["look"] or None, awaited="the call beside it")
