"""Scenario `question`: a question to the user outlives its worker."""

from __future__ import annotations

from dex_agents.session import events
from dex_agents.session.built_in_tools import ASK_USER, ask_user_result
from dex_agents_server.demo.demo_session import DemoSession
from dex_agents_server.demo.pauses import Pauses
from dex_agents_server.demo.report import Check, DemoReport, ExpectedSession, ToolCallFound
from dex_agents_server.demo.scenario import Scenario
from dex_agents_server.demo.scenario_name import ScenarioName
from dex_agents_server.demo.script_helpers import ask_tools, result_of
from dex_agents_server.demo.story import Story
from dex_agents_server.demo.support_agent import LOOKUP_TOOL, REFUND_TOOL
from dex_agents_stepwise import ModelRequest, ScriptedModelReply

__all__ = ["QUESTION"]

_ORDER = 7
_REQUEST = f"I do not like order {_ORDER}"
_QUESTION = f"Shall I refund order {_ORDER}, or exchange it?"
_CHOICES = ("refund", "exchange")
_NO_CHOICE = "whatever"
_ANSWER = "refund"


def _script(request: ModelRequest, pauses: Pauses) -> ScriptedModelReply:
    order = {"order_id": _ORDER}
    answer, refund = result_of(request, ASK_USER), result_of(request, REFUND_TOOL)
    if result_of(request, LOOKUP_TOOL) is None:
        return ask_tools(f"Let me look at order {_ORDER}.", (LOOKUP_TOOL, order))
    if answer is None:
        question = {"question": _QUESTION, "choices": list(_CHOICES), "allows_free_text": False}
        return ask_tools("I have to ask you something.", (ASK_USER, question))
    if answer != ask_user_result(_ANSWER):
        return ScriptedModelReply(text=f"I do not know what to do with {answer}")
    if refund is None:
        return ask_tools("A refund it is.", (REFUND_TOOL, order))
    return ScriptedModelReply(text=f"As you chose: {refund}")


async def _tell(story: Story) -> DemoReport:
    story.next_phase()
    worker = await story.start_worker()
    async with story.session(f"question-order-{_ORDER}", _REQUEST) as session:
        question = await session.wait_for_interrupt(worker)
        story.next_phase()
        await session.kill(worker, "the question waits in the database")
        story.next_phase()
        worker = await story.start_worker()
        session.say("user", f"answers: {_NO_CHOICE!r}")
        accepted_no_choice = await session.try_to_answer(question, _NO_CHOICE)
        session.say("user", f"{_NO_CHOICE!r} is {'accepted' if accepted_no_choice else 'refused: it is no choice'}")
        await session.answer(question, _ANSWER)
        approval = await session.wait_for_interrupt(worker)
        session.measure_recovery(max(worker.ready_at, session.time_of(events.INTERRUPT_RESOLVED)))
        story.next_phase()
        await session.approve(approval)
        await session.wait_until_idle(worker)
        checks = [
            Check("it was a question with the model's choices", (question.kind, question.choices) == _ASKED),
            Check("an answer that is no choice is refused", not accepted_no_choice),
            Check("the question was asked once", [question.interrupt_id] == _asked_questions(session)),
        ]
        report = await session.report(story.orders, _EXPECTED, checks)
    await worker.stop()
    return DemoReport(sessions=(report,))


_ASKED = ("question", _CHOICES)
_EXPECTED = ExpectedSession(
    calls=(
        ToolCallFound(LOOKUP_TOOL, "succeeded"),
        ToolCallFound(ASK_USER, "succeeded"),
        ToolCallFound(REFUND_TOOL, "succeeded"),
    ),
    tool_runs={LOOKUP_TOOL: 1, REFUND_TOOL: 1},
    payments={_ORDER: 1},
    told=(ask_user_result(_ANSWER),),
    final_text="As you chose: Refunded $129.00",
)


def _asked_questions(session: DemoSession) -> list[str]:
    raised = [event.payload for event in session.events_of(events.INTERRUPT_RAISED)]
    return [payload["interrupt_id"] for payload in raised if payload["kind"] == "question"]


QUESTION = Scenario(
    name=ScenarioName.QUESTION,
    summary="a question to the user outlives its worker",
    explanation="The model asks the customer a question with ask_user and choices. The worker is killed while the "
    "question waits, and the answer comes after a new one has started.",
    watch="While a question waits, no Step runs and no worker is needed; it is asked once, an answer that is none of "
    "its choices is refused, and the turn goes on from the answer.",
    phases=(
        "A customer writes, and the agent has a question",
        "The worker is killed while the question waits",
        "A new worker starts, and the customer answers",
        "You approve the refund, and it runs",
    ),
    script=_script,
    tell=_tell,
)
