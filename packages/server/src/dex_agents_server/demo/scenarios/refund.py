"""Scenario `refund`: workers die around a write that must not run twice."""

from __future__ import annotations

from dex_agents.session import events
from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents_server.demo.pauses import Pauses, tool_pause
from dex_agents_server.demo.report import DemoReport, ExpectedSession, SessionReport, ToolCallFound
from dex_agents_server.demo.scenario import Scenario
from dex_agents_server.demo.scenario_name import ScenarioName
from dex_agents_server.demo.script_helpers import ask_tools, latest_user_text, order_number, result_of
from dex_agents_server.demo.story import Story
from dex_agents_server.demo.support_agent import LOOKUP_TOOL, REFUND_TOOL, REFUNDED
from dex_agents_server.demo.worker_messages import Paused
from dex_agents_server.demo.worker_process import WorkerProcess
from dex_agents_stepwise import ModelRequest, ScriptedModelReply

__all__ = ["REFUND"]

_FIRST_ORDER = 7
_SECOND_ORDER = 12
_PAUSE = tool_pause(REFUND_TOOL, _SECOND_ORDER)


def _script(request: ModelRequest, pauses: Pauses) -> ScriptedModelReply:
    order_id = order_number(latest_user_text(request))
    order = {"order_id": order_id}
    refund = result_of(request, REFUND_TOOL)
    if result_of(request, LOOKUP_TOOL) is None:
        return ask_tools(f"Let me look at order {order_id}.", (LOOKUP_TOOL, order))
    if refund is None:
        return ask_tools(f"I found order {order_id} and ask for its refund.", (REFUND_TOOL, order))
    if refund.startswith(REFUNDED):
        return ScriptedModelReply(text=f"Done. {refund}")
    return ScriptedModelReply(
        text=f"I cannot tell whether the refund of order {order_id} went through, so I did not try it again. "
        "A colleague will check the payment and write to you."
    )


async def _tell(story: Story) -> DemoReport:
    story.next_phase()
    worker = await story.start_worker(_PAUSE)
    first, worker = await _kill_during_approval(story, worker)
    second, worker = await _kill_during_refund(story, worker)
    await worker.stop()
    return DemoReport(sessions=(first, second))


async def _kill_during_approval(story: Story, worker: WorkerProcess) -> tuple[SessionReport, WorkerProcess]:
    async with story.session(f"refund-order-{_FIRST_ORDER}", f"Refund order {_FIRST_ORDER}") as session:
        interrupt = await session.wait_for_interrupt(worker)
        story.next_phase()
        await session.kill(worker, "the approval waits in the database")
        story.next_phase()
        worker = await story.start_worker(_PAUSE)
        await session.approve(interrupt)
        await session.wait_until_idle(worker)
        session.measure_recovery(max(worker.ready_at, session.time_of(events.INTERRUPT_RESOLVED)))
        expected = _expected(_FIRST_ORDER, "succeeded", f"Done. {REFUNDED} $129.00", told=())
        return await session.report(story.orders, expected), worker


async def _kill_during_refund(story: Story, worker: WorkerProcess) -> tuple[SessionReport, WorkerProcess]:
    story.next_phase()
    async with story.session(f"refund-order-{_SECOND_ORDER}", f"Refund order {_SECOND_ORDER}") as session:
        await session.approve(await session.wait_for_interrupt(worker))
        paused = await worker.wait_for_message(Paused)
        await session.feed.collect()
        session.say("worker", f"worker {worker.number} has paid order {_SECOND_ORDER} back", paused.at)
        story.next_phase()
        await session.kill(worker, "the tool's result is lost")
        story.next_phase()
        worker = await story.start_worker()
        await session.wait_until_idle(worker)
        session.measure_recovery(worker.ready_at)
        told = (OUTCOME_UNKNOWN_TOOL_RESULT,)
        expected = _expected(_SECOND_ORDER, "outcome_unknown", "did not try it again", told=told)
        return await session.report(story.orders, expected), worker


def _expected(order_id: int, refund_status: str, final_text: str, *, told: tuple[str, ...]) -> ExpectedSession:
    return ExpectedSession(
        calls=(ToolCallFound(LOOKUP_TOOL, "succeeded"), ToolCallFound(REFUND_TOOL, refund_status)),
        tool_runs={LOOKUP_TOOL: 1, REFUND_TOOL: 1},
        payments={order_id: 1},
        told=told,
        final_text=final_text,
    )


REFUND = Scenario(
    name=ScenarioName.REFUND,
    summary="workers die around a refund, which runs once",
    explanation="Two agent sessions refund an order. Each loses its worker to SIGKILL at a bad moment, and no refund "
    "runs twice.",
    watch="After the second kill nobody can know whether the money moved: the call is recorded outcome_unknown, is not "
    "repeated, and the model is told so.",
    phases=(
        "A customer asks for a refund, and the refund needs approval",
        "The worker is killed while the approval waits",
        "A new worker starts, you approve, the refund runs",
        "A second customer asks, you approve right away",
        "The worker is killed inside the refund, after the money has moved",
        "A new worker starts: nothing is repeated, and the model is told",
    ),
    script=_script,
    tell=_tell,
)
