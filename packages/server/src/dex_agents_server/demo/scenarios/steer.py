"""Scenario `steer`: the user changes their mind while a tool runs and an approval waits."""

from __future__ import annotations

import json
from datetime import datetime

from dex_agents.session import events
from dex_agents.session.texts import TOOL_CALL_CANCELLED_BY_STEERING_RESULT
from dex_agents_server.demo.demo_session import DemoSession
from dex_agents_server.demo.pauses import TURN_END, Pauses, tool_pause
from dex_agents_server.demo.report import Check, DemoReport, ExpectedSession, ToolCallFound
from dex_agents_server.demo.scenario import Scenario
from dex_agents_server.demo.scenario_name import ScenarioName
from dex_agents_server.demo.script_helpers import ask_tools, latest_user_text, result_of
from dex_agents_server.demo.story import Story
from dex_agents_server.demo.support_agent import LOOKUP_TOOL, REFUND_TOOL
from dex_agents_server.demo.worker_messages import Paused
from dex_agents_stepwise import ModelRequest, ScriptedModelReply

__all__ = ["STEER"]

_ORDER = 7
_REQUEST = f"Refund order {_ORDER}"
_STEERING = "Wait, do not refund it! What did I pay?"
_FINAL_TEXT = f"Nothing was refunded. You paid $129.00 for order {_ORDER}."


def _script(request: ModelRequest, pauses: Pauses) -> ScriptedModelReply:
    order = {"order_id": _ORDER}
    if latest_user_text(request) != _STEERING:
        return ask_tools(
            f"I look at order {_ORDER} and ask for its refund.", (LOOKUP_TOOL, order), (REFUND_TOOL, order)
        )
    lookup = result_of(request, LOOKUP_TOOL)
    if lookup is None or result_of(request, REFUND_TOOL) != TOOL_CALL_CANCELLED_BY_STEERING_RESULT:
        return ScriptedModelReply(text="I do not know what became of your refund.")
    return ScriptedModelReply(text=f"Nothing was refunded. You paid {json.loads(lookup)['paid']} for order {_ORDER}.")


async def _tell(story: Story) -> DemoReport:
    story.next_phase()
    worker = await story.start_worker(tool_pause(LOOKUP_TOOL, _ORDER), TURN_END)
    async with story.session(f"steer-order-{_ORDER}", _REQUEST) as session:
        interrupt = await session.wait_for_interrupt(worker)
        await worker.wait_for_message(Paused)
        await session.feed.collect()

        story.next_phase()
        steered_at = await session.steer(_STEERING)
        await session.wait_for_event(worker, events.TOOL_CALL_FINISHED)
        approved_late = await session.try_to_approve(interrupt)
        session.say("decision", f"approving the refund now is {'accepted' if approved_late else 'refused: too late'}")
        session.say("worker", f"the lookup in worker {worker.number} was running all the time and comes to its end")
        await worker.release()
        paused = await worker.wait_for_message(Paused)
        await session.feed.collect()
        session.say("worker", f"worker {worker.number} is about to end the steered turn", paused.at)

        story.next_phase()
        await session.kill(worker, "the steering message waits in the database")

        story.next_phase()
        worker = await story.start_worker()
        await session.wait_until_idle(worker)
        session.measure_recovery(worker.ready_at)
        checks = [
            Check("an approval that comes after the steer is refused", not approved_late),
            Check("the lookup began before the steer and ended after it", _lookup_spans(session, steered_at)),
            Check("the first turn ended as steered, the second with an answer", _turn_endings(session)),
        ]
        report = await session.report(story.orders, _EXPECTED, checks)
    await worker.stop()
    return DemoReport(sessions=(report,))


_EXPECTED = ExpectedSession(
    calls=(ToolCallFound(LOOKUP_TOOL, "succeeded"), ToolCallFound(REFUND_TOOL, "rejected")),
    tool_runs={LOOKUP_TOOL: 1},
    payments={_ORDER: 0},
    told=(TOOL_CALL_CANCELLED_BY_STEERING_RESULT,),
    final_text=_FINAL_TEXT,
)


def _lookup_spans(session: DemoSession, moment: datetime) -> bool:
    started = session.events_of(events.TOOL_CALL_STARTED)
    finished = session.events_of(events.TOOL_CALL_FINISHED)[-1]
    return [event.payload["tool_call_id"] for event in started] == [finished.payload["tool_call_id"]] and started[
        0
    ].event.created_at < moment < finished.event.created_at


def _turn_endings(session: DemoSession) -> bool:
    started = [event.turn_id for event in session.events_of(events.TURN_STARTED)]
    steered = [event.turn_id for event in session.events_of(events.TURN_STEERED)]
    completed = [event.turn_id for event in session.events_of(events.TURN_COMPLETED)]
    return len(started) == 2 and [steered, completed] == [started[:1], started[1:]]


STEER = Scenario(
    name=ScenarioName.STEER,
    summary="the user changes their mind while a tool runs",
    explanation="The model looks an order up and asks for its refund at once. While the lookup runs and the refund "
    "waits for approval, the customer changes their mind, and the worker is killed before it has ended the turn.",
    watch="The refund never runs and is recorded rejected; the lookup that had begun finishes and counts; the new "
    "worker ends the turn and answers the new message, knowing both.",
    phases=(
        "A customer asks for a refund; the lookup runs, the refund waits for approval",
        "The customer steers: the refund is rejected, the lookup finishes",
        "The worker is killed while it ends the steered turn",
        "A new worker ends the turn and answers the new message",
    ),
    script=_script,
    tell=_tell,
)
