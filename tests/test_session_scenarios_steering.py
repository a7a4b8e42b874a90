"""Field scenarios of messages during a turn (F03) and of gates after a restart (F45)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dex_agents import ToolPolicy
from dex_agents.session.texts import TOOL_CALL_CANCELLED_BY_STEERING_RESULT
from dex_agents_stepwise import (
    FunctionTool,
    ModelOutput,
    ModelRequest,
    ModelToolResult,
    ModelUserText,
    ScriptedModelClient,
    ScriptedModelReply,
    ScriptedReplyHold,
    function_tool,
)
from tests.session_kill.sessions import Sessions
from tests.session_kill.strict_model import StrictModel, call, calls, open_sessions, say, script

RACES = 60
LATER_SECONDS = 0.0002  #: each steer comes so much later in its turn than the one before


class Payments:
    """A tool that a test holds, and one that needs approval."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.started = asyncio.Event()
        self.released = asyncio.Event()

    def tools(self) -> Sequence[FunctionTool[..., Any]]:
        @function_tool(effect="non_idempotent_write", requires_approval=False)
        async def pay() -> str:
            self.effects.append("pay")
            self.started.set()
            await self.released.wait()
            return "paid"

        @function_tool(effect="non_idempotent_write")
        async def refund() -> str:
            self.effects.append("refund")
            return "refunded"

        return [pay, refund]


async def queue(sessions: Sessions, text: str) -> int:
    """Queue a message and return its ID."""
    assert await sessions.client.send_user_message("s", text)
    queued = (await sessions.client.get_agent_snapshot("s")).queued_messages
    assert queued[-1].text == text
    return queued[-1].message_id


async def user_texts(sessions: Sessions) -> list[tuple[str, str]]:
    """Turn and text of every user message."""
    messages = (await sessions.client.get_agent_snapshot("s")).messages
    return [(message.turn_id, message.text) for message in messages if message.role == "user"]


def test_f03_queue_steer_and_delete_are_three_different_things(tmp_path: Path) -> None:
    """While c1 runs: m1 is queued, m2 and m3 steer, m4 is queued and deleted, m5 is queued and then steers."""

    async def scenario() -> None:
        payments = Payments()
        model = StrictModel(script([calls(call("pay"), call("refund"))], [], [], [say("new")], [say("queued")]))
        async with open_sessions(tmp_path, model, payments.tools()) as sessions:
            await sessions.client.start_session("s", initial_message="pay")
            await payments.started.wait()
            await queue(sessions, "m1")
            assert await sessions.client.steer_user_message("s", "m2")
            assert await sessions.client.steer_user_message("s", "m3")
            unwanted = await queue(sessions, "m4")
            moved = await queue(sessions, "m5")
            assert await sessions.client.delete_queued_message("s", unwanted)
            assert await sessions.client.steer_user_message("s", message_id=moved)
            for gone in (unwanted, moved):
                assert not await sessions.client.delete_queued_message("s", gone)
                assert not await sessions.client.steer_user_message("s", message_id=gone)
            snapshot = await sessions.client.get_agent_snapshot("s")
            assert [message.text for message in snapshot.queued_messages] == ["m1"]
            assert [message.text for message in snapshot.steered_messages] == ["m2", "m3", "m5"]
            payments.released.set()
            assert await sessions.completed("s") == "queued"

            turns = [("turn-1", "pay"), *(("turn-2", text) for text in ("m2", "m3", "m5")), ("turn-3", "m1")]
            assert await user_texts(sessions) == turns
            assert await sessions.endings("s") == ["turn_steered", "turn_completed", "turn_completed"]
            assert await sessions.statuses("s") == [("pay", "succeeded"), ("refund", "rejected")]
            assert payments.effects == ["pay"]
            # The results of the old turn stand before the new messages.
            kinds = [type(item) for item in model.requests[1].input_items]
            assert kinds == [ModelUserText, ModelOutput, ModelToolResult, ModelToolResult, *[ModelUserText] * 3]
            results = [item.output for item in model.requests[1].input_items if isinstance(item, ModelToolResult)]
            assert results == ["paid", TOOL_CALL_CANCELLED_BY_STEERING_RESULT]

    asyncio.run(scenario())


def test_f03_a_final_answer_of_a_steered_turn_counts_and_the_message_starts_a_turn(tmp_path: Path) -> None:
    async def scenario() -> None:
        hold = ScriptedReplyHold()
        model = StrictModel(script([ScriptedModelReply(text="one", hold=hold)], [say("two")]))
        async with open_sessions(tmp_path, model) as sessions:
            await sessions.client.start_session("s", initial_message="1")
            await hold.wait_until_reached()
            assert await sessions.client.steer_user_message("s", "2")
            hold.release()
            assert await sessions.completed("s") == "two"
            assert await sessions.answers("s") == ["one", "two"]
            assert await sessions.endings("s") == ["turn_completed", "turn_completed"]
            assert await user_texts(sessions) == [("turn-1", "1"), ("turn-2", "2")]

    asyncio.run(scenario())


def test_f03_a_steer_that_races_the_end_of_a_turn_is_in_one_new_turn(tmp_path: Path) -> None:
    """It comes from another engine of the same file, at every moment of a turn with a tool, and behind its answer."""

    async def scenario() -> None:
        @function_tool(effect="read")
        def look() -> str:
            return "seen"

        async def answer(request: ModelRequest) -> ScriptedModelReply:
            text = ScriptedModelClient.user_texts(request)[-1]
            if text.startswith("first") and not ScriptedModelClient.tool_results(request):
                return calls(call("look"))
            return say(f"re: {text}")

        model = StrictModel(answer)
        async with (
            open_sessions(tmp_path, model, [look]) as sessions,
            open_sessions(tmp_path, model, [look], engine_options={"runs_worker": False}) as others,
        ):
            await sessions.client.start_session("s")
            sent: list[str] = []
            for number in range(RACES):
                first, second = f"first {number}", f"second {number}"
                assert await sessions.client.send_user_message("s", first)
                await asyncio.sleep(number * LATER_SECONDS)
                assert await others.client.steer_user_message("s", second)
                await sessions.idle("s")
                sent += [first, second]
            await sessions.completed("s")
            assert [text for _, text in await user_texts(sessions)] == sent
            endings = await sessions.endings("s")
            answers = await sessions.answers("s")
            assert len(endings) == len(answers) == 2 * RACES
            print(f"{endings.count('turn_steered')} of {RACES} turns were steered")
            for ending, text, said in zip(endings, sent, answers, strict=True):
                if ending == "turn_steered":
                    assert said in ("seen", TOOL_CALL_CANCELLED_BY_STEERING_RESULT)
                else:
                    assert said == f"re: {text}"

    asyncio.run(scenario())


@pytest.mark.parametrize("second_release_frees_it", [True, False])
def test_f45_the_gate_of_a_call_is_decided_by_its_record(tmp_path: Path, second_release_frees_it: bool) -> None:
    """A restarted process, of a release with another policy, neither runs a gated call nor gates a free one."""

    async def scenario() -> None:
        payments = Payments()
        payments.released.set()
        gated, free = ToolPolicy(requires_approval=True), ToolPolicy(requires_approval=False)
        policies = [{"refund": gated}, {"refund": free}]
        if not second_release_frees_it:
            policies.reverse()
        steps = [calls(call("refund"), call("ask_user", {"question": "Sure?"})), say("done")]
        model = StrictModel(script(steps, [calls(call("refund")), say("again")]))
        arguments = (tmp_path, model, payments.tools())
        async with open_sessions(*arguments, tool_policies=policies[0], built_in_tools=["ask_user"]) as sessions:
            await sessions.client.start_session("s", initial_message="refund")
            before = await sessions.client.wait_for_interrupts("s", count=1 + second_release_frees_it, timeout=60)
            if not second_release_frees_it:
                await sessions.succeeded("s", "refund")
        effects = list(payments.effects)
        assert effects == ([] if second_release_frees_it else ["refund"])
        async with open_sessions(*arguments, tool_policies=policies[1], built_in_tools=["ask_user"]) as sessions:
            assert await sessions.client.pending_interrupts("s") == before
            question = next(interrupt for interrupt in before if interrupt.kind == "question")
            assert await sessions.client.answer_question("s", question.interrupt_id, "yes")
            if second_release_frees_it:
                # The answer of its sibling is stored, and still nothing runs ungated.
                await sessions.succeeded("s", "ask_user")
                assert payments.effects == []
                (approval,) = await sessions.client.pending_interrupts("s")
                assert await sessions.client.resolve_interrupt("s", approval.interrupt_id, approved=True)
            assert await sessions.completed("s") == "done"
            assert payments.effects == ["refund"]
            # The new policy holds for new calls.
            assert await sessions.client.send_user_message("s", "refund again")
            if not second_release_frees_it:
                (approval,) = await sessions.client.wait_for_interrupts("s", timeout=60)
                assert payments.effects == ["refund"]
                assert await sessions.client.resolve_interrupt("s", approval.interrupt_id, approved=True)
            assert await sessions.completed("s") == "again"
            assert payments.effects == ["refund", "refund"]

    asyncio.run(scenario())


def test_f45_a_call_without_a_gate_of_its_own_is_closed(tmp_path: Path) -> None:
    """No effect, no policy: a person decides, whichever process asks."""

    async def scenario() -> None:
        ran: list[str] = []

        @function_tool()
        def unknown_effect() -> str:
            ran.append("ran")
            return "ran"

        model = StrictModel(script([calls(call("unknown_effect")), say("done")]))
        async with open_sessions(tmp_path, model, [unknown_effect]) as sessions:
            await sessions.client.start_session("s", initial_message="go")
            (before,) = await sessions.client.wait_for_interrupts("s", timeout=60)
        async with open_sessions(tmp_path, model, [unknown_effect]) as sessions:
            (approval,) = await sessions.client.wait_for_interrupts("s", timeout=60)
            assert (approval, approval.kind, ran) == (before, "approval", [])
            assert await sessions.client.resolve_interrupt("s", approval.interrupt_id, approved=False)
            assert await sessions.completed("s") == "done"
            assert ran == []

    asyncio.run(scenario())
