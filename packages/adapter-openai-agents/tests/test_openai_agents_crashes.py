"""Workers killed at the telling moments: nothing runs twice silently, and what waits, waits in no process."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, function_tool
from openai_agents_sessions import SESSION

from dex_agents import AgentSessionFlow, ToolEffect, ToolPolicy
from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents.testing import AgentTestEnvironment, FileGate, InvocationLog
from dex_agents_openai_agents import create_openai_agents_session_flow, current_tool_call
from dex_agents_openai_agents.testing import ScriptedModel, SeenRequest, call_item, text_item


def create_flow(directory: Path) -> AgentSessionFlow:
    """An agent whose model and tools stop at gates of the test."""
    log = InvocationLog(directory / "invocations.jsonl")

    async def charge(effect: str) -> str:
        log.record(current_tool_call().idempotency_key, effect)
        await FileGate(directory, "charging").pass_through()
        return "charged"

    @function_tool
    async def charge_once() -> str:
        return await charge("charge_once")

    @function_tool
    async def charge_safely() -> str:
        return await charge("charge_safely")

    @function_tool(needs_approval=True)
    async def refund() -> str:
        return await charge("refund")

    async def answer(request: SeenRequest) -> list[Any]:
        log.record(str(len(request.items)), "model")
        await FileGate(directory, "thinking").pass_through()
        last = request.items[-1]
        if last.get("type") == "function_call_output":
            return [text_item(f"It is {last['output']}", len(request.items))]
        return [call_item(str(last["content"]), "{}", f"c{len(request.items)}")]

    model = ScriptedModel(*[answer] * 50)
    tools: list[Any] = [charge_once, charge_safely, refund]
    agent = Agent[Any](name="Assistant", model=model, tools=tools)
    return create_openai_agents_session_flow(
        agent,
        "CrashAgent",
        attempt_backoff=timedelta(0),
        tool_policies={"charge_safely": ToolPolicy(effect=ToolEffect.IDEMPOTENT_WRITE)},
    )


@pytest.mark.processes
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("tool", "runs", "status", "answer"),
    [
        ("charge_once", 1, "outcome_unknown", f"It is {OUTCOME_UNKNOWN_TOOL_RESULT}"),
        ("charge_safely", 2, "succeeded", "It is charged"),
    ],
)
def test_a_worker_killed_behind_a_tools_effect(tmp_path: Path, tool: str, runs: int, status: str, answer: str) -> None:
    async def main() -> None:
        async with AgentTestEnvironment(create_flow, directory=tmp_path, timeout=120) as environment:
            gate = environment.gate("charging")
            gate.close()
            worker = await environment.start_worker()
            await environment.client.start_session(SESSION, initial_message=tool)
            await gate.wait_until_reached(process=worker.process_id, timeout=120)
            await worker.kill()
            gate.open()
            await worker.start()
            await environment.client.wait_until_idle(SESSION)
            assert sum(environment.log.count(tool).values()) == runs
            assert len(environment.log.count(tool)) == 1, "every attempt has the same key"
            assert await environment.client.read_tool_call_statuses(SESSION) == [(tool, status)]
            messages = (await environment.client.get_agent_snapshot(SESSION)).messages
            assert messages[-1].text == answer

    asyncio.run(main())


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_a_worker_killed_while_the_model_thinks_and_another_while_a_person_does(tmp_path: Path) -> None:
    async def main() -> None:
        async with AgentTestEnvironment(create_flow, directory=tmp_path, timeout=120) as environment:
            gate, sessions = environment.gate("thinking"), environment.client
            gate.close()
            worker = await environment.start_worker()
            await sessions.start_session(SESSION, initial_message="refund")
            await gate.wait_until_reached(process=worker.process_id, timeout=120)
            await worker.kill()
            gate.open()
            await worker.start()
            await sessions.wait_for_interrupt(SESSION)
            await worker.kill()
            asked = environment.log.count("model")
            await sessions.approve(SESSION)
            await worker.start()
            await sessions.wait_until_idle(SESSION)
            assert asked == {"1": 2}
            assert environment.log.count("model") == {"1": 2, "3": 1}
            assert environment.log.count("refund") == {f"{SESSION}/turn-1/c1": 1}
            assert (await sessions.get_agent_snapshot(SESSION)).messages[-1].text == "It is charged"

    asyncio.run(main())


def test_many_sessions_share_one_agent(tmp_path: Path) -> None:
    async def main() -> None:
        async with AgentTestEnvironment(create_flow, directory=tmp_path, runs_worker=True, timeout=100) as environment:
            names = [f"session-{number}" for number in range(20)]
            for name in names:
                await environment.client.start_session(name, initial_message="charge_safely")
            for name in names:
                await environment.client.wait_until_idle(name)
            assert environment.log.count("charge_safely") == {f"{name}/turn-1/c1": 1 for name in names}

    asyncio.run(main())
