"""Field scenarios of IDs: forged decisions (F04), odd session IDs (F05), repeated tool call IDs (F16)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from dex_agents import AgentSnapshot, ResolveResult
from dex_agents_stepwise import (
    ModelRequest,
    ModelToolResult,
    ScriptedModelClient,
    ScriptedModelReply,
    ToolCallContext,
    function_tool,
)
from tests.session_kill.sessions import WAIT_SECONDS, Sessions
from tests.session_kill.strict_model import StrictModel, call, calls, open_sessions, say, script

SESSION_IDS = ["a/b", "../x", "ü ñ/日本", "s" * 256, "a%2Fb", ".", "a", "b", "~", "turn-1", "\x00nul", " ", "é" * 256]


async def state_of(sessions: Sessions, *session_ids: str) -> list[tuple[AgentSnapshot, int, int]]:
    """Everything that a decision could change."""
    return [
        (
            await sessions.client.get_agent_snapshot(session_id),
            len(await sessions.events(session_id)),
            len(await sessions.engine.read_step_history(session_id)),
        )
        for session_id in session_ids
    ]


def test_f04_decisions_for_unknown_old_and_other_interrupts_change_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        runs: list[str] = []

        @function_tool(effect="non_idempotent_write", parameters={"type": "object"})
        def pay(arguments: dict[str, Any], context: ToolCallContext) -> str:
            runs.append(f"{context.flow_id} {context.tool_call_id} {arguments['to']}")
            return "paid"

        # The two sessions' calls have IDs of their own, and so have the first session's two turns.
        asked = '{"to" : "ü",\n "amount": 1.50, "b": {"z": 1, "a": 2}}'

        def answer(request: ModelRequest) -> ScriptedModelReply:
            if ScriptedModelClient.tool_results(request):
                return say("done")
            texts = ScriptedModelClient.user_texts(request)
            return calls(call("pay", asked, f"{texts[0]}-{len(texts)}"))

        model = StrictModel(answer)
        async with open_sessions(tmp_path, model, [pay]) as sessions:
            client = sessions.client
            for session_id in ("a", "b"):
                await client.start_session(session_id, initial_message=session_id)
            (of_a,) = await client.wait_for_interrupts("a", timeout=WAIT_SECONDS)
            (of_b,) = await client.wait_for_interrupts("b", timeout=WAIT_SECONDS)
            assert of_a.arguments == asked
            before = await state_of(sessions, "a", "b")
            forged = [
                of_b.interrupt_id,
                of_a.tool_call_id,
                of_a.interrupt_id.replace("turn-1", "turn-2"),
                of_a.interrupt_id.upper(),
                f"{of_a.interrupt_id} ",
                f"{of_a.interrupt_id}\0",
                f"a/{of_a.interrupt_id}",
                "pay",
                "",
                "%",
                "turn-1.\ud800",
            ]
            for interrupt_id in forged:
                for approved in (True, False):
                    assert not await client.resolve_interrupt("a", interrupt_id, approved=approved), interrupt_id
                    reason = await client.resolve_interrupt_with_reason("a", interrupt_id, approved=approved)
                    assert reason is ResolveResult.NOT_PENDING
            assert await state_of(sessions, "a", "b") == before
            assert runs == []

            assert await client.resolve_interrupt("a", of_a.interrupt_id, approved=True)
            await sessions.completed("a")
            assert runs == ["a a-1 ü"]
            # A page that is still open on the first turn cannot decide the second one's call.
            assert await client.send_user_message("a", "again")
            (of_second_turn,) = await client.wait_for_interrupts("a", timeout=WAIT_SECONDS)
            before = await state_of(sessions, "a", "b")
            for approved in (True, False):
                assert not await client.resolve_interrupt("a", of_a.interrupt_id, approved=approved)
            assert await state_of(sessions, "a", "b") == before
            assert runs == ["a a-1 ü"]
            assert await client.resolve_interrupt("a", of_second_turn.interrupt_id, approved=False)
            await sessions.completed("a")
            assert runs == ["a a-1 ü"]
            assert await client.pending_interrupts("b") == (of_b,)

    asyncio.run(scenario())


def test_f05_a_session_id_is_any_text_and_keys_stay_unambiguous(tmp_path: Path) -> None:
    async def scenario() -> None:
        keys: list[str] = []

        @function_tool(effect="non_idempotent_write")
        def pay(context: ToolCallContext) -> str:
            keys.append(context.idempotency_key)
            return context.flow_id

        model = StrictModel(
            script([calls(call("pay", tool_call_id="b/c"), call("pay", tool_call_id="c")), say("done")])
        )
        async with open_sessions(tmp_path, model, [pay]) as sessions:
            client = sessions.client
            for session_id in SESSION_IDS:
                await client.start_session(session_id, initial_message="pay")
                interrupts = await client.wait_for_interrupts(session_id, count=2, timeout=WAIT_SECONDS)
                for interrupt in interrupts:
                    assert await client.resolve_interrupt(session_id, interrupt.interrupt_id, approved=True)
                assert await sessions.completed(session_id) == "done"
                # The path of live events leads to the session, too.
                async for event in client.stream_events(session_id):
                    if event.type == "turn_completed":
                        break
                stored = (await client.get_agent_snapshot(session_id)).messages
                assert [message.text for message in stored if message.role == "tool"] == [
                    session_id.replace("\0", "\ufffd")
                ] * 2
            listed = {flow.flow_id for flow in await sessions.engine.list_flows()}
            assert listed == set(SESSION_IDS)
            assert len(set(keys)) == len(keys) == 2 * len(SESSION_IDS)
            for key in keys:
                assert key.count("/") == 2
                assert key.isascii()
                assert key.isprintable()
                assert len(key) <= 255

    asyncio.run(scenario())
    assert not (tmp_path.parent / "x").exists()


def test_f05_a_session_id_that_cannot_be_one_is_refused_with_one_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with open_sessions(tmp_path, StrictModel(script())) as sessions:
            client = sessions.client
            for session_id, message in (
                ("s" * 300, "a session ID has at most 256 characters, this one has 300"),
                ("", "a session ID must not be empty"),
                ("a\ud800", "lone surrogate at position 1"),
            ):
                for attempted in (
                    client.start_session(session_id),
                    client.send_user_message(session_id, "hi"),
                    client.get_agent_snapshot(session_id),
                    client.resolve_interrupt(session_id, "i", approved=True),
                ):
                    with pytest.raises(ValueError, match=message):
                        await attempted
            assert await sessions.engine.list_flows() == []

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "provider_ids",
    [
        ["same", "same", "same"],
        ["", "", ""],
        ["  ", "", "\t"],
        ["x" * 400, "x" * 400, "x" * 401],
        ["a:b/c", "a:b/c", "a%3Ab"],
        ["c~2", "c", "c"],
        ["call-2", "", "call-1"],
        ["pay", "pay~2", "pay"],
        ["turn-1.c", "c", "\ud800"],
    ],
)
def test_f16_every_occurrence_of_a_repeated_id_is_a_call_of_its_own(tmp_path: Path, provider_ids: list[str]) -> None:
    """In one response, in the next response of the turn, and in a later turn."""

    async def scenario() -> None:
        keys: dict[str, str] = {}

        @function_tool(effect="non_idempotent_write")
        def pay(number: int, context: ToolCallContext) -> str:
            assert context.idempotency_key not in keys
            keys[context.idempotency_key] = f"{context.turn_id} {number}"
            return f"paid {number}"

        responses = [
            calls(*(call("pay", {"number": 10 * response + n}, i) for n, i in enumerate(provider_ids)))
            for response in range(3)
        ]
        model = StrictModel(
            script([responses[0], responses[1], say("one")], [responses[2], say("two")]), repeats_ids=True
        )
        async with open_sessions(tmp_path, model, [pay]) as sessions:
            client = sessions.client

            async def decide_all() -> None:
                """Reject the second, approve the third, then the first."""
                interrupts = await client.wait_for_interrupts("s", count=3, timeout=WAIT_SECONDS)
                assert len({interrupt.interrupt_id for interrupt in interrupts}) == 3
                first, second, third = (interrupt.interrupt_id for interrupt in interrupts)
                assert await client.resolve_interrupt("s", second, approved=False, rejection_message="not this")
                assert await client.resolve_interrupt("s", third, approved=True)
                assert await client.resolve_interrupt("s", first, approved=True)
                for interrupt_id in (first, second, third):
                    assert not await client.resolve_interrupt("s", interrupt_id, approved=True)

            await client.start_session("s", initial_message="one")
            await decide_all()
            await decide_all()
            assert await sessions.completed("s") == "one"
            assert model.results() == ["paid 0", "not this", "paid 2", "paid 10", "not this", "paid 12"]
            assert await client.send_user_message("s", "two")
            await decide_all()
            assert await sessions.completed("s") == "two"
            assert model.results() == ["paid 20", "not this", "paid 22"]
            assert list(keys.values()).count("turn-2 20") == 1
            assert sorted(keys.values()) == sorted(
                ["turn-1 0", "turn-1 2", "turn-1 10", "turn-1 12", "turn-2 20", "turn-2 22"]
            )
            # The provider gets its own IDs back.
            sent = [item.tool_call_id for item in model.requests[-1].input_items if isinstance(item, ModelToolResult)]
            assert sent == [provider_id.replace("\ud800", "\ufffd") for provider_id in provider_ids * 3]

    asyncio.run(scenario())
