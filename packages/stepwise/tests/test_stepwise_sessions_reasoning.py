"""F02: what a provider signed comes back as it was, in its place: after an approval, a steer and a compaction."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from pathlib import Path

import pytest

from dex_agents import AgentSessionClient, CompactionPolicy
from dex_agents_stepwise import (
    AgentDefinition,
    ModelOutput,
    ModelRequest,
    ModelResponse,
    ModelToolCall,
    ScriptedModelClient,
    create_stepwise_agent_session_flow,
    function_tool,
)
from dex_flow import Flow
from dex_flow.embedded import EmbeddedEngine

SESSION_ID = "s"
WAIT_SECONDS = 60.0

# Keys out of order, spaces, escapes and a float: whatever reads and writes it again changes it.
SIGNED = (
    '[ {"type":"thinking","signature":"c2lnMQ==","thinking":"hm \\u00e9"},{"text":"Let me.","type":"text"},'
    ' {"type":"call","id":"fc_1","n":1.0},{"type":"thinking","thinking":"","signature":"c2lnMg=="},'
    '{"id":"fc_2","type":"call"}]'
)
LONG = "x" * 2_000


@function_tool(effect="read")
def look() -> str:
    return "seen"


@function_tool(effect="read", requires_approval=True)
def send() -> str:
    return "sent"


class SigningModel:
    """A provider that signs its reasoning, and asks for two calls in its first response."""

    provider = "signing"
    api = "items"

    def __init__(self) -> None:
        self.requests: list[ModelRequest] = []

    async def generate(self, request: ModelRequest) -> ModelResponse:
        self.requests.append(request)
        if ScriptedModelClient.is_summary_request(request):
            return ModelResponse(text="They said a lot.")
        texts = ScriptedModelClient.user_texts(request)
        if texts[-1] == "talk":
            return ModelResponse(text=LONG, item=f'[{{"text":"{LONG}","type":"text"}}]')
        if texts[-1] == "go" and not ScriptedModelClient.tool_results(request):
            calls = (("fc_1", "look"), ("fc_2", "send"))
            return ModelResponse(
                text="Let me.",
                reasoning_text="hm é",
                tool_calls=tuple(
                    ModelToolCall(tool_call_id=key, tool_name=name, arguments="{}") for key, name in calls
                ),
                item=SIGNED,
            )
        return ModelResponse(text="done", item='[{"text":"done","type":"text"}]')

    def signed_parts(self) -> list[str | None]:
        """The responses with calls in the last request, in the provider's own form."""
        outputs = [item for item in self.requests[-1].input_items if isinstance(item, ModelOutput)]
        return [output.item for output in outputs if output.tool_calls]


def flow_of(model: SigningModel) -> Flow:
    agent = AgentDefinition(
        name="signer",
        instructions="You help.",
        model=model,
        tools=[look, send],
        compaction=CompactionPolicy(context_window_tokens=1_500, trigger_ratio=0.5, retained_ratio=0.35),
    )
    return create_stepwise_agent_session_flow(agent, "Signer")


async def _ask(path: Path, first: str | None) -> None:
    flow = flow_of(SigningModel())
    async with EmbeddedEngine(path, flows=[flow]) as engine:
        client = AgentSessionClient(engine, flow)
        await client.start_session(SESSION_ID)
        if first is not None:
            await client.send_and_wait(SESSION_ID, first, timeout=WAIT_SECONDS)
        await client.send_user_message(SESSION_ID, "go")
        await client.wait_for_interrupts(SESSION_ID, timeout=WAIT_SECONDS)
        os._exit(7)  # like a kill: nothing is closed or written


def ask_and_die(path: Path, first: str | None) -> None:
    asyncio.run(_ask(path, first))


@pytest.mark.parametrize("then", ["approve", "steer", "compact"])
def test_f02_signed_items_come_back_byte_equal_and_in_place_in_another_process(tmp_path: Path, then: str) -> None:
    """The process that got the response is gone before anybody decides."""
    path = tmp_path / "agents.db"
    process = multiprocessing.get_context("spawn").Process(
        target=ask_and_die, args=(path, "talk" if then == "compact" else None)
    )
    process.start()
    process.join(WAIT_SECONDS)
    assert process.exitcode == 7

    async def scenario() -> None:
        model = SigningModel()
        flow = flow_of(model)
        async with EmbeddedEngine(path, flows=[flow]) as engine:
            client = AgentSessionClient(engine, flow)
            (interrupt,) = await client.pending_interrupts(SESSION_ID)
            if then == "steer":
                assert await client.steer_user_message(SESSION_ID, "never mind")
            else:
                assert await client.resolve_interrupt(SESSION_ID, interrupt.interrupt_id, approved=True)
            await client.wait_until_idle(SESSION_ID, timeout=WAIT_SECONDS)
            assert model.signed_parts() == [SIGNED]
            await client.send_and_wait(SESSION_ID, "y" * 1_200 if then == "compact" else "next", timeout=WAIT_SECONDS)
            snapshot = await client.get_agent_snapshot(SESSION_ID)
            (stored,) = [message for message in snapshot.messages if message.tool_calls]
            assert model.signed_parts() == [SIGNED]
            if then == "compact":
                summary = snapshot.context_summary
                assert summary is not None
                assert summary.last_sequence < stored.sequence

    asyncio.run(scenario())
