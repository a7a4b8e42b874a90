"""Tasks of both generations as tool tasks, and what servers ask for as questions of the session."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from .mcp_raw_server import LEGACY, MODERN
from .mcp_scene import call, mcp_session, raw_peer, script


def form(message: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


RESULT = {"content": [{"type": "text", "text": "the report"}]}


@pytest.mark.parametrize("era", [MODERN, LEGACY])
def test_a_task_of_an_http_server_is_polled_by_the_session(tmp_path: Path, era: str) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", era, "http") as peer:
            async with mcp_session(tmp_path, [peer.config()], script([call("s__job")])) as session:
                await session.say()
                record = await session.record("s__job", "waiting_for_task")
                assert record.task_id == "task-1"
                peer.set_task("task-1", status="completed", result=RESULT)
                await session.poll_now()
                assert await session.ended() == [("s__job", "succeeded")]
                assert session.results() == ["the report"]
                assert len(peer.runs("job")) == 1
                statuses = [event.payload["status"] for event in await session.events("mcp.task_status")]
                assert statuses == ["completed"]

    asyncio.run(scenario())


@pytest.mark.parametrize(("tool", "status"), [("job", "failed"), ("work", "outcome_unknown")])
def test_a_task_that_the_server_forgot_is_recorded_by_effect(tmp_path: Path, tool: str, status: str) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            async with mcp_session(tmp_path, [peer.config()], script([call(f"s__{tool}")])) as session:
                await session.say()
                await session.record(f"s__{tool}", "waiting_for_task")
                (peer.directory / "tasks" / "task-1.json").unlink()
                await session.poll_now()
                assert await session.ended() == [(f"s__{tool}", status)]

    asyncio.run(scenario())


def test_a_task_that_asks_gets_the_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            async with mcp_session(tmp_path, [peer.config()], script([call("s__job")])) as session:
                await session.say()
                await session.record("s__job", "waiting_for_task")
                city = form("Where?", city={"type": "string", "enum": ["Graz", "Linz"]})
                peer.set_task("task-1", status="input_required", inputRequests={"city": city})
                await session.poll_now()
                question = await session.question()
                assert (question.question, question.choices) == ("Where?", ("Graz", "Linz"))
                await session.answer("Graz")
                # The poll that hands over the answer has no interval; the next one has.
                await session.record("s__job", "waiting_for_task")
                assert await session.ended() == [("s__job", "succeeded")]
                answered = {"city": {"action": "accept", "content": {"city": "Graz"}}}
                assert session.results() == [json.dumps(answered)]
                assert peer.requests("tasks/update") != []

    asyncio.run(scenario())


def test_cancelling_the_turn_cancels_the_task(tmp_path: Path) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            async with mcp_session(tmp_path, [peer.config()], script([call("s__work")])) as session:
                await session.say()
                await session.record("s__work", "waiting_for_task")
                assert await session.client.cancel_turn("s")
                assert await session.ended() == [("s__work", "outcome_unknown")]
                assert peer.task("task-1")["status"] == "cancelled"

    asyncio.run(scenario())


@pytest.mark.parametrize("transport", ["http", "stdio"])
def test_a_call_that_asks_for_several_fields_runs_once_with_all_answers(tmp_path: Path, transport: str) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, transport) as peer:
            order = form("Which order?", number={"type": "integer"}, express={"type": "boolean"})
            peer.write("asks.json", {"order": order})
            async with mcp_session(tmp_path, [peer.config()], script([call("s__ask")])) as session:
                await session.say()
                assert (await session.question()).question == "Which order?\n\nnumber"
                await session.answer("many")
                assert "not a whole number" in (await session.question()).question
                await session.answer("7")
                assert (await session.question()).choices == ("yes", "no")
                await session.answer("yes")
                assert await session.ended() == [("s__ask", "succeeded")]
                content = {"express": True, "number": 7}
                answered = {"order": {"action": "accept", "content": content}}
                assert session.results() == [f"ask: {json.dumps(answered, sort_keys=True)}"]
                assert len(peer.runs("ask")) == 1

    asyncio.run(scenario())
