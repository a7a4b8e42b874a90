"""Field scenarios of decisions: parallel approvals (F11), replays (F14), rejection texts (F27), result order (F35),
a turn that fails after an approval (F38), a restart while a person thinks (F48)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dex_agents.session.texts import NOTE_PREFIX, TOOL_CALL_REJECTED_RESULT
from dex_agents_stepwise import FunctionTool, ScriptedModelClient, ToolCallContext, function_tool
from tests.session_kill.sessions import WAIT_SECONDS, Sessions
from tests.session_kill.strict_model import Script, StrictModel, call, calls, open_sessions, say, script


class Payments:
    """A gated tool and a free one that count what they did, and can be held."""

    def __init__(self) -> None:
        self.effects: list[str] = []
        self.is_open = asyncio.Event()
        self.is_open.set()

    def tools(self) -> list[FunctionTool[..., Any]]:
        @function_tool(effect="non_idempotent_write")
        async def pay(to: str, context: ToolCallContext) -> str:
            self.effects.append(f"pay {to} {context.idempotency_key}")
            await self.is_open.wait()
            return f"paid {to}"

        @function_tool(effect="read")
        async def look(at: str) -> str:
            self.effects.append(f"look {at}")
            return f"saw {at}"

        return [pay, look]

    def paid(self, to: str) -> int:
        return sum(effect.startswith(f"pay {to} ") for effect in self.effects)


async def interrupt_ids(sessions: Sessions, count: int) -> list[str]:
    interrupts = await sessions.client.wait_for_interrupts("s", count=count, timeout=WAIT_SECONDS)
    return [interrupt.interrupt_id for interrupt in interrupts]


async def decide(sessions: Sessions, interrupt_id: str, approved: bool, message: str | None = None) -> None:
    assert await sessions.client.resolve_interrupt("s", interrupt_id, approved=approved, rejection_message=message)


async def resolved_count(sessions: Sessions) -> int:
    return sum(event.type == "interrupt_resolved" for event in await sessions.events("s"))


def test_f11_three_approvals_of_one_response_are_decided_in_any_order(tmp_path: Path) -> None:
    """By two clients on two engines; the model is called once, after the last decision."""

    async def scenario() -> None:
        payments = Payments()
        same = call("pay", {"to": "x"})
        model = StrictModel(script([calls(same, same, same), say("done")]))
        async with (
            open_sessions(tmp_path, model, payments.tools()) as first,
            open_sessions(tmp_path, model, payments.tools()) as second,
        ):
            await first.client.start_session("s", initial_message="pay")
            ids = await interrupt_ids(first, 3)
            assert len(set(ids)) == 3
            await decide(second, ids[1], approved=False, message="no: use y")
            assert await interrupt_ids(second, 2) == [ids[0], ids[2]]
            await decide(first, ids[0], approved=True)
            await first.succeeded("s", "pay")
            assert len(model.requests) == 1
            await decide(second, ids[2], approved=True)
            assert await second.completed("s") == "done"
            assert len(model.requests) == 2
            assert model.results() == ["paid x", "no: use y", "paid x"]
            assert [effect.rpartition("/")[2] for effect in payments.effects] == ["call_1_1", "call_1_3"]
            statuses = [("pay", "succeeded"), ("pay", "rejected"), ("pay", "succeeded")]
            assert await first.statuses("s") == statuses
            assert await resolved_count(first) == 3

    asyncio.run(scenario())


def test_f14_an_approved_call_never_runs_again_and_a_rejected_one_never_runs(tmp_path: Path) -> None:
    async def scenario() -> None:
        payments = Payments()
        turns = [[calls(call("look", {"at": str(number)})), say(str(number))] for number in range(2, 5)]
        model = StrictModel(
            script(
                [calls(call("pay", {"to": "a"}), call("pay", {"to": "b"}), call("look", {"at": "c"})), say("1")], *turns
            )
        )
        async with open_sessions(tmp_path, model, payments.tools()) as sessions:
            await sessions.client.start_session("s", initial_message="one")
            approved, rejected = await interrupt_ids(sessions, 2)
            await decide(sessions, rejected, approved=False)
            await decide(sessions, approved, approved=True)
            assert await sessions.completed("s") == "1"
        for number in range(2, 5):
            # A restarted process before every turn, and late repetitions of both decisions.
            async with open_sessions(tmp_path, model, payments.tools()) as sessions:
                for interrupt_id in (approved, rejected):
                    for decision in (True, False):
                        assert not await sessions.client.resolve_interrupt("s", interrupt_id, approved=decision)
                assert await sessions.client.send_user_message("s", "go on")
                assert await sessions.completed("s") == str(number)
                assert await resolved_count(sessions) == 2
        assert (payments.paid("a"), payments.paid("b")) == (1, 0)
        assert [effect for effect in payments.effects if effect.startswith("look")] == [
            "look c",
            "look 2",
            "look 3",
            "look 4",
        ]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("no: use b@x", "no: use b@x"),
        (None, TOOL_CALL_REJECTED_RESULT),
        ("", TOOL_CALL_REJECTED_RESULT),
        (" \n", TOOL_CALL_REJECTED_RESULT),
        ("nö " * 3_500, "nö " * 3_500),
        ("  keep the spaces \n", "  keep the spaces \n"),
        ("不行 🙅‍♀️ \u2028 {json: 'no'}", "不行 🙅‍♀️ \u2028 {json: 'no'}"),
        ("a\ud800b\0", "a\ufffdb\ufffd"),
    ],
)
def test_f27_the_model_gets_exactly_the_words_of_the_rejection(tmp_path: Path, message: str | None, told: str) -> None:
    async def scenario() -> None:
        payments = Payments()
        answer = script([calls(call("pay", {"to": "a"}), call("look", {"at": "b"})), say("done")])
        model = StrictModel(answer)
        async with open_sessions(tmp_path, model, payments.tools()) as sessions:
            await sessions.client.start_session("s", initial_message="pay")
            (interrupt_id,) = await interrupt_ids(sessions, 1)
            await decide(sessions, interrupt_id, approved=False, message=message)
            assert await sessions.completed("s") == "done"
            assert model.results() == [told, "saw b"]
            assert payments.effects == ["look b"]

    asyncio.run(scenario())


def test_f35_results_reach_the_model_and_clients_in_call_order(tmp_path: Path) -> None:
    async def scenario() -> None:
        payments = Payments()
        payments.is_open.clear()
        model = StrictModel(
            script(
                [calls(call("pay", {"to": "1"}), call("look", {"at": "2"}), call("pay", {"to": "3"})), say("done")],
                [say("next")],
            )
        )
        async with open_sessions(tmp_path, model, payments.tools()) as sessions:
            await sessions.client.start_session("s", initial_message="go")
            first, third = await interrupt_ids(sessions, 2)
            await decide(sessions, first, approved=True)
            await sessions.succeeded("s", "look")
            await decide(sessions, third, approved=False, message="no")
            assert await sessions.client.pending_interrupts("s") == ()
            snapshot = await sessions.client.get_agent_snapshot("s")
            assert [(record.tool_name, record.status) for record in snapshot.tool_calls] == [
                ("pay", "approved"),
                ("look", "succeeded"),
                ("pay", "rejected"),
            ]
            payments.is_open.set()
            assert await sessions.completed("s") == "done"
            assert model.results() == ["paid 1", "saw 2", "no"]
            messages = (await sessions.client.get_agent_snapshot("s")).messages
            assert [message.text for message in messages if message.role == "tool"] == ["paid 1", "saw 2", "no"]
            finished = [event.payload for event in await sessions.events("s") if event.type == "tool_call_finished"]
            assert [payload["status"] for payload in finished] == ["succeeded", "rejected", "succeeded"]
            assert await sessions.client.send_user_message("s", "more")
            assert await sessions.completed("s") == "next"

    asyncio.run(scenario())


def test_f38_a_turn_that_fails_after_an_approved_call_keeps_its_result(tmp_path: Path) -> None:
    async def scenario() -> None:
        payments = Payments()
        failure = ConnectionError("provider 500")
        model = StrictModel(
            script([calls(call("pay", {"to": "a"}), call("look", {"at": "b"})), failure], [say("fine")])
        )
        async with open_sessions(tmp_path, model, payments.tools()) as sessions:
            await sessions.client.start_session("s", initial_message="pay")
            (interrupt_id,) = await interrupt_ids(sessions, 1)
            await decide(sessions, interrupt_id, approved=True)
            state = await sessions.idle("s")
            assert state.last_turn_error is not None
            error = state.last_turn_error
            assert (error.turn_id, error.type, error.message) == ("turn-1", "ConnectionError", "provider 500")
            assert len(model.requests) == 1 + 3
            messages = (await sessions.client.get_agent_snapshot("s")).messages
            assert [message.role for message in messages] == ["user", "assistant", "tool", "tool", "user"]
            note = messages[-1].text
            assert note.startswith(NOTE_PREFIX)
            assert '- pay {"to": "a"}: succeeded\n- look {"at": "b"}: succeeded\n' in note
            for decision in (True, False):
                assert not await sessions.client.resolve_interrupt("s", interrupt_id, approved=decision)
            failed = [event for event in await sessions.events("s") if event.type == "turn_failed"]
            assert [event.payload for event in failed] == [{"error": "ConnectionError: provider 500"}]
            retries = [event.payload for event in await sessions.events("s") if event.type == "model_call_retrying"]
            assert [payload["attempt"] for payload in retries] == [1, 2]

            assert await sessions.client.send_user_message("s", "and now?")
            assert await sessions.completed("s") == "fine"
            assert ScriptedModelClient.user_texts(model.requests[-1]) == ["pay", note, "and now?"]
            assert payments.paid("a") == 1
            assert (await sessions.client.get_agent_snapshot("s")).usage.model_calls == 2

    asyncio.run(scenario())


def test_f48_a_restart_while_a_person_thinks_calls_no_model(tmp_path: Path) -> None:
    async def scenario() -> None:
        payments = Payments()
        answer: Script = script([calls(call("pay", {"to": "a"}), call("look", {"at": "b"})), say("done")])
        model = StrictModel(answer)
        async with open_sessions(tmp_path, model, payments.tools()) as sessions:
            await sessions.client.start_session("s", initial_message="pay")
            (interrupt_id,) = await interrupt_ids(sessions, 1)
            await sessions.succeeded("s", "look")
            before = await sessions.client.get_agent_snapshot("s")
        for _ in range(3):
            async with open_sessions(tmp_path, model, payments.tools()) as sessions:
                assert await sessions.client.get_agent_snapshot("s") == before
        assert len(model.requests) == 1
        async with open_sessions(tmp_path, model, payments.tools()) as sessions:
            await decide(sessions, interrupt_id, approved=True)
            assert await sessions.completed("s") == "done"
        assert len(model.requests) == 2
        assert model.results() == ["paid a", "saw b"]
        assert (payments.paid("a"), payments.effects.count("look b")) == (1, 1)

    asyncio.run(scenario())
