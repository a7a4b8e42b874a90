"""Scenario `cancel`: the user stops an answer that streams, and a turn whose refund has begun."""

from __future__ import annotations

from datetime import datetime

from dex_agents.session import events
from dex_agents_server.demo.demo_session import DemoSession
from dex_agents_server.demo.pauses import ANSWER, TURN_END, Pauses, tool_pause
from dex_agents_server.demo.report import Check, DemoReport, ExpectedSession, SessionReport, ToolCallFound
from dex_agents_server.demo.scenario import Scenario
from dex_agents_server.demo.scenario_name import ScenarioName
from dex_agents_server.demo.script_helpers import ask_tools, latest_user_text, result_of
from dex_agents_server.demo.story import Story
from dex_agents_server.demo.support_agent import LOOKUP_TOOL, REFUND_TOOL, REFUNDED
from dex_agents_server.demo.worker_messages import ModelCallCancelled, Paused
from dex_agents_server.demo.worker_process import WorkerProcess
from dex_agents_stepwise import ModelRequest, ScriptedModelReply

__all__ = ["CANCEL"]

_ORDER = 12
_ADVICE_REQUEST = "How do I care for my walking boots?"
_SHORTER = "Shorter, please"
_REFUND_REQUEST = f"Refund order {_ORDER}"
_FOLLOW_UP = "Did I get my money?"
_DELTAS_BEFORE_STOP = 4
_LONG_ANSWER = (
    "The history of leather goes back seven thousand years, and to understand how to look after your boots we have to "
    "begin with the tanners of the Neolithic, who discovered that the bark of the oak"
)
_SHORT_ANSWER = "Brush them, let them dry slowly, and wax them twice a year."


def _script(request: ModelRequest, pauses: Pauses) -> ScriptedModelReply:
    order = {"order_id": _ORDER}
    refund = result_of(request, REFUND_TOOL)
    match latest_user_text(request):
        case text if text == _ADVICE_REQUEST:
            hold = pauses.hold_reply(ANSWER, after_deltas=_DELTAS_BEFORE_STOP)
            return ScriptedModelReply(text=_LONG_ANSWER, hold=hold)
        case text if text == _SHORTER:
            return ScriptedModelReply(text=_SHORT_ANSWER)
        case text if text == _FOLLOW_UP and refund is not None and refund.startswith(REFUNDED):
            return ScriptedModelReply(text=f"Yes. {refund}")
        case text if text == _FOLLOW_UP:
            return ScriptedModelReply(text="I do not know what became of your refund.")
        case _ if result_of(request, LOOKUP_TOOL) is None:
            return ask_tools(f"Let me look at order {_ORDER}.", (LOOKUP_TOOL, order))
        case _:
            return ask_tools(f"I found order {_ORDER} and ask for its refund.", (REFUND_TOOL, order))


async def _tell(story: Story) -> DemoReport:
    story.next_phase()
    worker = await story.start_worker(ANSWER)
    first, worker = await _stop_an_answer(story, worker)
    second, worker = await _stop_a_refund(story, worker)
    await worker.stop()
    return DemoReport(sessions=(first, second))


async def _stop_an_answer(story: Story, worker: WorkerProcess) -> tuple[SessionReport, WorkerProcess]:
    async with story.session("walking-boots", _ADVICE_REQUEST) as session:
        await worker.wait_for_message(Paused)
        delta = await session.wait_for_event(worker, events.TEXT_DELTA)
        session.say("model", f"streams {delta.payload['text']!r}...", delta.event.created_at)
        await session.cancel_turn()
        cancelled = await worker.wait_for_message(ModelCallCancelled)
        session.say("worker", f"the coroutine of the model call in worker {worker.number} is cancelled", cancelled.at)
        await session.wait_until_idle(worker)
        story.next_phase()
        await session.kill(worker, "nothing is lost, and nobody is there to answer")
        await session.send(_SHORTER)
        story.next_phase()
        worker = await story.start_worker(tool_pause(REFUND_TOOL, _ORDER), TURN_END)
        await session.wait_until_idle(worker)
        session.measure_recovery(worker.ready_at)
        streamed = "".join(
            event.payload["text"] for event in session.events_of(events.TEXT_DELTA) if event.turn_id == delta.turn_id
        )
        checks = [
            Check("the model call was cancelled in the middle of its answer", 0 < len(streamed) < len(_LONG_ANSWER)),
            Check("no part of that answer is stored", session.answers() == [_SHORT_ANSWER]),
            Check("the first turn ended as cancelled, the second with an answer", _turn_endings(session)),
        ]
        expected = ExpectedSession(tool_runs={}, payments={}, final_text=_SHORT_ANSWER)
        return await session.report(story.orders, expected, checks), worker


async def _stop_a_refund(story: Story, worker: WorkerProcess) -> tuple[SessionReport, WorkerProcess]:
    story.next_phase()
    async with story.session(f"refund-order-{_ORDER}", _REFUND_REQUEST) as session:
        await session.approve(await session.wait_for_interrupt(worker))
        paused = await worker.wait_for_message(Paused)
        session.say("worker", f"worker {worker.number} has paid order {_ORDER} back; the tool still runs", paused.at)
        cancelled_at = await session.cancel_turn()
        session.say("worker", f"the refund in worker {worker.number} is not interrupted and comes to its end")
        await worker.release()
        paused = await worker.wait_for_message(Paused)
        session.say("worker", f"worker {worker.number} is about to end the stopped turn", paused.at)
        await session.feed.collect()
        story.next_phase()
        await session.kill(worker, "the turn is stopped, but not over")
        story.next_phase()
        worker = await story.start_worker()
        await session.wait_for_event(worker, events.TURN_CANCELLED)
        await session.send(_FOLLOW_UP)
        await session.wait_until_idle(worker)
        session.measure_recovery(worker.ready_at)
        checks = [
            Check("the refund was running when the turn was stopped", _refund_spans(session, cancelled_at)),
            Check("the first turn ended as cancelled, the second with an answer", _turn_endings(session)),
        ]
        expected = ExpectedSession(
            calls=(ToolCallFound(LOOKUP_TOOL, "succeeded"), ToolCallFound(REFUND_TOOL, "succeeded")),
            tool_runs={LOOKUP_TOOL: 1, REFUND_TOOL: 1},
            payments={_ORDER: 1},
            told=(f"{REFUNDED} $89.50 for order {_ORDER}.",),
            final_text=f"Yes. {REFUNDED} $89.50 for order {_ORDER}.",
        )
        return await session.report(story.orders, expected, checks), worker


def _refund_spans(session: DemoSession, moment: datetime) -> bool:
    started = session.events_of(events.TOOL_CALL_STARTED)[-1]
    finished = session.events_of(events.TOOL_CALL_FINISHED)[-1]
    return (
        started.payload["tool_name"] == REFUND_TOOL
        and started.payload["tool_call_id"] == finished.payload["tool_call_id"]
        and started.event.created_at < moment < finished.event.created_at
    )


def _turn_endings(session: DemoSession) -> bool:
    started = [event.turn_id for event in session.events_of(events.TURN_STARTED)]
    cancelled = [event.turn_id for event in session.events_of(events.TURN_CANCELLED)]
    completed = [event.turn_id for event in session.events_of(events.TURN_COMPLETED)]
    return len(started) == 2 and [cancelled, completed] == [started[:1], started[1:]]


CANCEL = Scenario(
    name=ScenarioName.CANCEL,
    summary="the user stops an answer, and a begun refund",
    explanation="One customer stops a rambling answer, another one stops a turn whose refund has already begun. The "
    "worker is killed after the first stop and in the middle of the second.",
    watch="The model's coroutine is cancelled at once and its partial text is stored nowhere; the refund that has "
    "begun runs to its end, once, its outcome counts, and the next answer knows it.",
    phases=(
        "A customer stops an answer while it streams",
        "The worker is killed; the next message finds nobody",
        "A new worker answers that message",
        "A second customer stops a turn while its refund runs",
        "The worker is killed while it ends the stopped turn",
        "A new worker ends the turn and answers the next message",
    ),
    script=_script,
    tell=_tell,
)
