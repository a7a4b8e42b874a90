"""Questions of a tool to the user: asked before the effect, answered once, by the right person, for the right call."""

from __future__ import annotations

from datetime import timedelta

from dex_agents import AnswerResult, ResolveResult, ToolEffect
from dex_agents.session.texts import (
    QUESTION_DEADLINE_PASSED,
    QUESTION_DECLINED,
    TOOL_CALL_CANCELLED_BY_STEERING_RESULT,
)
from dex_agents.testing import poll_until
from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.capabilities import Capability
from dex_agents_conformance.case_run import SESSION, CaseRun
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conformance_case import case
from dex_agents_conformance.conversation_script import ConversationScript, calls, say
from dex_agents_conformance.scripted_tools import ScriptedQuestion

__all__ = ["QuestionCases"]

_WHERE = ScriptedQuestion(question="Which environment?", choices=("staging", "production"))
_SURE = ScriptedQuestion(question="Are you sure?")
_ANSWERS = {
    "newlines": " first\n\nsecond\t",
    "emoji": "👩‍🚀 ja",
    "json": '{"answer": "\\"no\\""}',
}


def _asks(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "deploy")), say("done")], "next": [say("well")], "hello": [say("hi")]},
        tools=[setup.tool("deploy", questions=(_WHERE,), echoes_value=True)],
        interrupt_deadline=timedelta(days=7),
    )


def _asks_for_a_choice(setup: CaseSetup) -> ConversationScript:
    question = ScriptedQuestion(question=_WHERE.question, choices=_WHERE.choices, allows_free_text=False)
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "deploy")), say("done")]},
        tools=[setup.tool("deploy", questions=(question,), echoes_value=True)],
    )


def _asks_twice(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "deploy")), say("done")]},
        tools=[setup.tool("deploy", questions=(_WHERE, _SURE), echoes_value=True)],
    )


def _asks_before_a_write(setup: CaseSetup) -> ConversationScript:
    effect = ToolEffect(setup.parameter)
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "deploy")), say("done")]},
        tools=[setup.tool("deploy", effect=effect, questions=(_WHERE,), echoes_value=True)],
    )


def _asks_behind_an_approval(setup: CaseSetup) -> ConversationScript:
    effect = ToolEffect.NON_IDEMPOTENT_WRITE
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "deploy")), say("done")]},
        tools=[setup.tool("deploy", effect=effect, requires_approval=True, questions=(_SURE,), echoes_value=True)],
    )


def _batch(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "colour"), ("c2", "look"), ("c3", "size")), say("done")]},
        tools=[
            setup.tool("colour", questions=(ScriptedQuestion(question="Which colour?"),), echoes_value=True),
            setup.tool("look", returns="seen"),
            setup.tool("size", questions=(ScriptedQuestion(question="Which size?"),), echoes_value=True),
        ],
    )


class QuestionCases(AdapterDescription):
    """A question takes no effect, waits as long as it must, and its answer reaches the tool that asked."""

    @case(_asks, capability=Capability.TOOL_QUESTIONS)
    async def test_F53_a_tool_asks_and_goes_on_with_the_answer(self, run: CaseRun) -> None:
        """The user sees question and choices, nothing has happened yet, and then the tool runs once with the answer."""
        await run.start("go")
        asked = await run.wait_for_question()
        assert (asked.tool_name, asked.question) == ("deploy", _WHERE.question), "[a-question-reaches-the-user]"
        assert (asked.choices, asked.allows_free_text) == (_WHERE.choices, True), "[a-question-reaches-the-user]"
        assert run.effects == {}, "[a-question-comes-before-the-effect]"
        assert await run.client.answer_question(SESSION, asked.interrupt_id, "the moon")
        await run.finish_unasked()
        assert run.values == ["the moon"], "[the-answer-reaches-the-tool]"
        assert run.results_seen == ["deploy:the moon"]
        assert await run.statuses() == [("deploy", "succeeded")]
        assert run.model_calls == {"go#0": 1, "go#1": 1}, "[one-model-call-per-model-step]"

    @case(_asks, capability=Capability.TOOL_QUESTIONS, parameters=tuple(_ANSWERS))
    async def test_F53_an_answer_reaches_the_tool_unchanged(self, run: CaseRun) -> None:
        """Character for character."""
        await run.start("go")
        await _answer(run, _ANSWERS[run.parameter])
        await run.finish_unasked()
        assert run.values == [_ANSWERS[run.parameter]], "[the-answer-reaches-the-tool]"

    @case(_asks_for_a_choice, capability=Capability.TOOL_QUESTIONS)
    async def test_F53_the_first_valid_answer_wins(self, run: CaseRun) -> None:
        """Blank answers, ones that are no choice, an approval and a second answer do not count."""
        await run.start("go")
        asked = await run.wait_for_question()
        assert not asked.allows_free_text, "[a-question-reaches-the-user]"

        async def answer(text: str) -> AnswerResult:
            return await run.client.answer_question_with_reason(SESSION, asked.interrupt_id, text)

        assert await answer(" ") is AnswerResult.BLANK_ANSWER
        assert await answer("the moon") is AnswerResult.NOT_A_CHOICE
        approved = await run.client.resolve_interrupt_with_reason(SESSION, asked.interrupt_id, approved=True)
        assert approved is ResolveResult.NOT_AN_APPROVAL
        assert run.effects == {}, "[a-question-comes-before-the-effect]"
        assert await answer("staging") is AnswerResult.ACCEPTED
        assert not await run.client.answer_question(SESSION, asked.interrupt_id, "production")
        await run.finish_unasked()
        assert run.values == ["staging"], "[the-answer-reaches-the-tool]"

    @case(_asks, capability=Capability.TOOL_QUESTIONS, parameters=("in_words", "without_words"))
    async def test_a_declined_question_ends_the_call(self, run: CaseRun) -> None:
        """The tool takes no effect, and the model reads what the person said, or that they declined."""
        words = "Not on a Friday" if run.parameter == "in_words" else None
        await run.start("go")
        asked = await run.wait_for_question()
        assert await run.client.resolve_interrupt(SESSION, asked.interrupt_id, approved=False, rejection_message=words)
        await run.finish_unasked()
        assert run.effects == {}, "[a-declined-call-never-runs]"
        assert run.results_seen == [words or QUESTION_DECLINED], "[the-persons-words-reach-the-model]"
        assert await run.statuses() == [("deploy", "rejected")]

    @case(_asks, capability=Capability.TOOL_QUESTIONS)
    async def test_F53_a_question_ends_at_its_deadline(self, run: CaseRun) -> None:
        """Nobody answered: the tool takes no effect, the model is told, and an answer comes too late."""
        await run.start("go")
        asked = await run.wait_for_question()
        assert asked.deadline is not None
        await run.skip_timer("AwaitQuestionAnswer")
        await run.finish_unasked()
        assert run.effects == {}, "[a-declined-call-never-runs]"
        assert run.results_seen == [QUESTION_DEADLINE_PASSED]
        assert not await run.client.answer_question(SESSION, asked.interrupt_id, "staging")

    @case(_asks_twice, capability=Capability.TOOL_QUESTIONS)
    async def test_a_tool_asks_two_questions(self, run: CaseRun) -> None:
        """Each is asked once, in order; the tool takes its effect behind the second answer, under one key."""
        await run.start("go")
        first = await _answer(run, "production", question=_WHERE.question)
        second = await _answer(run, "yes", question=_SURE.question)
        assert first != second, "[every-question-has-an-interrupt-of-its-own]"
        assert not await run.client.answer_question(SESSION, first, "staging")
        await run.finish_unasked()
        assert run.effects == {"deploy": 1}, "[a-question-comes-before-the-effect]"
        assert run.values == ["production, yes"], "[the-answer-reaches-the-tool]"
        assert [asked["question"] for asked in await run.event_payloads("interrupt_raised")] == [
            _WHERE.question,
            _SURE.question,
        ], "[a-question-is-asked-once]"

    @case(_asks_twice, capability=Capability.TOOL_QUESTIONS)
    async def test_a_second_question_may_be_declined(self, run: CaseRun) -> None:
        """The answer to the first changes nothing: no effect was taken."""
        await run.start("go")
        await _answer(run, "production", question=_WHERE.question)
        asked = await run.wait_for_question()
        assert await run.client.resolve_interrupt(SESSION, asked.interrupt_id, approved=False)
        await run.finish_unasked()
        assert run.effects == {}, "[a-declined-call-never-runs]"
        assert run.results_seen == [QUESTION_DECLINED]

    @case(_batch, capability=Capability.TOOL_QUESTIONS)
    async def test_F53_two_tools_of_a_batch_ask_at_once(self, run: CaseRun) -> None:
        """Both questions wait, the free call does not; each answer reaches its own call, in whichever order."""
        await run.start("go")
        asked = await run.client.wait_for_interrupts(SESSION, count=2, timeout=30)
        await poll_until(lambda: run.effects["look"] or None, awaited="the free call")
        for interrupt in sorted(asked, key=lambda interrupt: interrupt.question or "", reverse=True):
            assert run.model_calls == {"go#0": 1}, "[the-model-waits-for-every-result]"
            assert await run.client.answer_question(SESSION, interrupt.interrupt_id, f"to {interrupt.question}")
        await run.finish_unasked()
        assert run.results_seen == ["colour:to Which colour?", "seen", "size:to Which size?"], (
            "[each-answer-reaches-its-own-call]"
        )

    @case(
        _asks_before_a_write,
        capability=Capability.TOOL_QUESTIONS,
        parameters=tuple(effect.value for effect in ToolEffect),
    )
    async def test_F21_a_tool_that_asks_takes_its_effect_once(self, run: CaseRun) -> None:
        """Also one that must never run twice: its first run only asked."""
        await run.start("go")
        await _answer(run, "staging")
        await run.finish_unasked()
        assert run.effects == {"deploy": 1}, "[non-idempotent-effects-happen-once]"
        assert await run.statuses() == [("deploy", "succeeded")], "[a-question-is-no-failed-attempt]"
        assert run.results_seen == ["deploy:staging"]

    @case(_asks_behind_an_approval, capability=Capability.TOOL_QUESTIONS)
    async def test_a_question_follows_an_approval(self, run: CaseRun) -> None:
        """The call is approved once, asks, and runs."""
        await run.start("go")
        approval = await run.client.approve(SESSION)
        asked = await _answer(run, "yes")
        assert asked != approval.interrupt_id, "[every-question-has-an-interrupt-of-its-own]"
        await run.finish_unasked()
        assert run.results_seen == ["deploy:yes"]
        assert run.effects == {"deploy": 1}

    @case(_asks, capability=Capability.TOOL_QUESTIONS)
    async def test_F03_steering_ends_a_question(self, run: CaseRun) -> None:
        """The call is not run, its question is gone, and the new message is answered."""
        await run.start("go")
        asked = await run.wait_for_question()
        assert await run.client.steer_user_message(SESSION, "next")
        snapshot = await run.finish()
        assert snapshot.messages[-1].text == "well"
        assert snapshot.pending_interrupts == ()
        assert run.effects == {}, "[a-stopped-turn-runs-nothing-more]"
        assert await run.statuses() == [("deploy", "rejected")]
        assert not await run.client.answer_question(SESSION, asked.interrupt_id, "staging")
        results = [message.text for message in await run.messages() if message.role == "tool"]
        assert results in ([], [TOOL_CALL_CANCELLED_BY_STEERING_RESULT])

    @case(_asks, capability=Capability.TOOL_QUESTIONS)
    async def test_F53_an_answer_to_another_sessions_question_is_refused(self, run: CaseRun) -> None:
        """The same call of the same turn in another session asks for itself."""
        await run.start("go")
        await run.start("go", session_id="session-2")
        await run.wait_for_question(session_id="session-2")
        asked = await run.wait_for_question()
        assert await run.client.answer_question(SESSION, asked.interrupt_id, "staging")
        await run.finish()
        assert run.values == ["staging"], "[sessions-do-not-mix]"
        (other,) = await run.client.pending_interrupts("session-2")
        assert await run.client.answer_question("session-2", other.interrupt_id, "production")
        await run.finish(session_id="session-2")
        assert run.values == ["staging", "production"], "[sessions-do-not-mix]"

    @case(_asks_twice, capability=Capability.TOOL_QUESTIONS)
    async def test_F48_a_question_outlives_its_process(self, run: CaseRun) -> None:
        """A new runner goes on with the answers that an old one never saw."""
        await run.start("go")
        await _answer(run, "production")
        await run.wait_for_question()
        await run.reopen(self.make_flow(run.script))
        await _answer(run, "yes")
        await run.finish_unasked()
        assert run.values == ["production, yes"], "[runners-keep-no-session-state]"
        assert run.model_calls == {"go#0": 1, "go#1": 1}, "[one-model-call-per-model-step]"


async def _answer(run: CaseRun, answer: str, *, question: str | None = None) -> str:
    """Answer the oldest question once there is one; its interrupt ID."""
    asked = await run.wait_for_question()
    if question is not None:
        assert asked.question == question, "[questions-come-in-order]"
    assert await run.client.answer_question(SESSION, asked.interrupt_id, answer)
    return asked.interrupt_id
