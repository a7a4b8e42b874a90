"""Scenario `wait`: a wait outlives its worker, and ends late rather than never."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

from dex_agents.session import events
from dex_agents.session.built_in_tools import DURABLE_WAIT, DurableWaitArguments, durable_wait_result
from dex_agents_server.demo.demo_session import DemoSession
from dex_agents_server.demo.pauses import Pauses
from dex_agents_server.demo.report import Check, DemoReport, ExpectedSession, ToolCallFound
from dex_agents_server.demo.scenario import Scenario
from dex_agents_server.demo.scenario_name import ScenarioName
from dex_agents_server.demo.script_helpers import ask_tools, latest_user_text, result_of
from dex_agents_server.demo.story import Story
from dex_agents_server.demo.support_agent import LOOKUP_TOOL
from dex_agents_stepwise import ModelRequest, ScriptedModelReply

__all__ = ["WAIT"]

_ORDER = 7
_WAIT_SECONDS = 3
#: How long after the due time no worker runs.
_OVERDUE = timedelta(seconds=0.5)
_REASON = "the bank needs a moment"
_REQUEST = f"Look at order {_ORDER} in {_WAIT_SECONDS} seconds, not earlier"
_QUEUED = "Thank you!"
_FIRST_ANSWER = f"I waited, and order {_ORDER} has 0 refunds."
_SECOND_ANSWER = "You are welcome."


def _script(request: ModelRequest, pauses: Pauses) -> ScriptedModelReply:
    lookup = result_of(request, LOOKUP_TOOL)
    if latest_user_text(request) == _QUEUED:
        return ScriptedModelReply(text=_SECOND_ANSWER)
    if result_of(request, DURABLE_WAIT) is None:
        return ask_tools("I wait a moment.", (DURABLE_WAIT, {"duration_seconds": _WAIT_SECONDS, "reason": _REASON}))
    if lookup is None:
        return ask_tools("The time has come.", (LOOKUP_TOOL, {"order_id": _ORDER}))
    return ScriptedModelReply(text=f"I waited, and order {_ORDER} has {json.loads(lookup)['refunds']} refunds.")


async def _tell(story: Story) -> DemoReport:
    story.next_phase()
    worker = await story.start_worker()
    async with story.session(f"wait-order-{_ORDER}", _REQUEST) as session:
        timer = await session.wait_for_event(worker, events.TIMER_STARTED)
        due = datetime.fromisoformat(timer.payload["wait_until"])
        await session.send(_QUEUED)
        queued = await session.count_queued_messages()
        session.say("user", f"messages that wait for the end of the turn: {queued}")
        story.next_phase()
        await session.kill(worker, "the due time stands in the database")
        back_at = due + _OVERDUE
        session.say("worker", f"no worker runs for {(back_at - datetime.now(UTC)).total_seconds():.1f} s")
        await asyncio.sleep(max(0.0, (due - datetime.now(UTC)).total_seconds()))
        session.say("worker", "the wait is due, and there is nobody to end it", due)
        await asyncio.sleep(max(0.0, (back_at - datetime.now(UTC)).total_seconds()))
        finished_without_worker = await _finished_calls(session)
        story.next_phase()
        worker = await story.start_worker()
        await session.wait_until_idle(worker)
        session.measure_recovery(max(worker.ready_at, due))
        checks = [
            Check("a message sent meanwhile waits for its turn and does not end the wait", queued == 1),
            Check("nothing happened while no worker ran", finished_without_worker == 0),
            Check("the wait ended after its due time, with the new worker", _wait_ended(session, worker.ready_at, due)),
            Check("both messages were answered, in their order", session.answers()[2:] == _ANSWERS),
        ]
        report = await session.report(story.orders, _EXPECTED, checks)
    await worker.stop()
    return DemoReport(sessions=(report,))


_ANSWERS = [_FIRST_ANSWER, _SECOND_ANSWER]
_EXPECTED = ExpectedSession(
    calls=(ToolCallFound(DURABLE_WAIT, "succeeded"), ToolCallFound(LOOKUP_TOOL, "succeeded")),
    tool_runs={LOOKUP_TOOL: 1},
    payments={_ORDER: 0},
    told=(durable_wait_result(DurableWaitArguments(duration_seconds=_WAIT_SECONDS, reason=_REASON)),),
    final_text=_SECOND_ANSWER,
)


async def _finished_calls(session: DemoSession) -> int:
    await session.feed.collect()
    return len(session.events_of(events.TOOL_CALL_FINISHED))


def _wait_ended(session: DemoSession, worker_ready_at: datetime, due: datetime) -> bool:
    ended_at = session.time_of(events.TOOL_CALL_FINISHED)
    return due < worker_ready_at and due <= ended_at


WAIT = Scenario(
    name=ScenarioName.WAIT,
    summary="a wait is due while there is no worker",
    explanation=f"The model calls durable_wait for {_WAIT_SECONDS} seconds. The worker is killed during the wait and "
    "stays away past the due time; meanwhile the customer writes again.",
    watch="A wait is a time in the database, not a sleeping process: it ends as soon as a worker is there again. The "
    "second message neither ends the wait nor is lost: it gets the next turn.",
    phases=(
        f"A customer asks for something in {_WAIT_SECONDS} seconds, and writes again",
        "The worker is killed, and nobody is there when the wait is due",
        "A new worker starts: the wait ends at once, and both messages are answered",
    ),
    script=_script,
    tell=_tell,
)
