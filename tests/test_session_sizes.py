"""Field scenario F09: results, messages and turns of every size, within limits that are as they are by default."""

from __future__ import annotations

import asyncio
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from bench.compacting_runner import ANSWER_TEXT, TOOL_OUTPUT, CompactingRunner, create_compacting_flow
from dex_agents import (
    AgentSessionClient,
    AgentSessionFlow,
    AgentTurnContext,
    AgentTurnOutcome,
    AgentUsage,
    FrameworkMessage,
    TurnCompleted,
)
from dex_agents_stepwise import (
    FunctionTool,
    ModelOutput,
    ModelRequest,
    ModelUserText,
    ScriptedModelReply,
    function_tool,
)
from dex_flow.embedded import EmbeddedEngine
from tests.long_sessions.stored_bytes import StoredBytes, Written
from tests.session_kill.sessions import WAIT_SECONDS
from tests.session_kill.strict_model import StrictModel, call, calls, open_sessions, say, script

MIB = 1024 * 1024
# What a turn with one tool call writes beside its texts.
TURN_OVERHEAD = 20_000


def sized_tool(output: str, runs: list[int]) -> FunctionTool[..., Any]:
    """A tool that must not run twice and returns a text."""

    @function_tool(effect="non_idempotent_write", requires_approval=False)
    async def act() -> str:
        runs.append(len(output))
        return output

    return act


@pytest.mark.parametrize("overflow", ["fail", "truncate"])
@pytest.mark.parametrize("size", [100, MIB - 1, MIB, MIB + 1, 5_000_000, 50_000_000])
def test_f09_a_result_beyond_the_default_limit_fails_or_is_cut_and_is_not_stored(
    tmp_path: Path, size: int, overflow: str
) -> None:
    async def scenario() -> None:
        runs: list[int] = []
        model = StrictModel(script([calls(call("act")), say("done")], [say("again")]))
        tool = sized_tool("x" * size, runs)
        async with open_sessions(tmp_path, model, [tool], tool_result_overflow=overflow) as sessions:
            await sessions.client.start_session("s")
            with StoredBytes(tmp_path / "sessions.db") as stored:
                result = await sessions.client.send_and_wait("s", "go", timeout=WAIT_SECONDS)
                assert result.text == "done"
                written = stored.written().size
            (told,) = model.results()
            (status,) = await sessions.statuses("s")
            assert runs == [size]
            if size <= MIB:
                assert (told, status) == ("x" * size, ("act", "succeeded"))
            elif overflow == "fail":
                assert status == ("act", "failed")
                assert "act" in told
                assert f"{size} bytes" in told
                assert f"{MIB} bytes" in told
                assert written < TURN_OVERHEAD
            else:
                assert status == ("act", "succeeded")
                assert len(told.encode()) <= MIB
                assert "\n[Dex]" in told
                assert str(size) in told
            # The record, the message's framework item and its text: no copy per Step.
            assert written < TURN_OVERHEAD + 3 * min(size, MIB)
            assert (await sessions.client.send_and_wait("s", "go on", timeout=WAIT_SECONDS)).text == "again"

    asyncio.run(scenario())


def test_f09_a_result_within_its_limit_whose_message_is_too_large_fails_the_turn_named(tmp_path: Path) -> None:
    """A message holds a result as text and in the framework's form, so it is about twice as large."""

    async def scenario() -> None:
        runs: list[int] = []
        model = StrictModel(script([calls(call("act")), say("done")], [say("again")]))
        async with open_sessions(
            tmp_path, model, [sized_tool("x" * 5_000_000, runs)], max_tool_result_bytes=6_000_000
        ) as sessions:
            await sessions.client.start_session("s", initial_message="go")
            error = (await sessions.idle("s")).last_turn_error
            assert error is not None
            assert error.type == "MessageTooLargeError"
            assert "max_message_bytes" in error.message
            assert runs == [5_000_000]
            assert await sessions.statuses("s") == [("act", "succeeded")]
            result = await sessions.client.send_and_wait("s", "go on", timeout=WAIT_SECONDS)
            assert result.text == "again"
            assert runs == [5_000_000]

    asyncio.run(scenario())


class LargeAnswers(CompactingRunner):
    """Answers with a text of three million bytes in the turns it is told."""

    def __init__(self, *turns: int) -> None:
        super().__init__()
        self._turns = {f"turn-{turn}" for turn in turns}

    async def run_model_step(self, turn: AgentTurnContext) -> AgentTurnOutcome:
        """The answer of a turn with a large one has no tool call before it."""
        if turn.turn_id not in self._turns:
            return await super().run_model_step(turn)
        self.input_messages.append(len(turn.messages))
        text = "€" * 1_000_000
        message = FrameworkMessage(role="assistant", framework_item='{"kind":"answer"}', text=text)
        return TurnCompleted(new_messages=(message,), usage=AgentUsage(model_calls=1))


def create_small_flow(runner: CompactingRunner) -> AgentSessionFlow:
    """Summaries every few turns, and retention right behind them."""
    return create_compacting_flow(runner, retained_message_limit=80, context_window_tokens=3_000)


def test_f09_a_model_text_of_three_megabytes_is_stored_once_and_goes_like_every_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        flow = create_small_flow(LargeAnswers(30))
        database = tmp_path / "sessions.db"
        async with EmbeddedEngine(database, [flow], durability="process") as engine:
            client = AgentSessionClient(engine, flow)
            await client.start_session("s")
            for _ in range(29):
                await client.send_and_wait("s", "go", timeout=WAIT_SECONDS)
            with StoredBytes(database) as stored:
                result = await client.send_and_wait("s", "go", timeout=WAIT_SECONDS)
                assert len(result.text.encode()) == 3_000_000
                written = stored.written_to_tables()["attribute"]
                assert 3_000_000 < written.size < 3_000_000 + 2 * TURN_OVERHEAD
                index = await engine.get_attribute("s", flow.agent_message_index)
                assert index is not None
                sequence = result.messages[-1].sequence
                assert (index.chunks[-1].first_sequence, index.chunks[-1].last_sequence) == (sequence, sequence)

                # While the window goes over it nothing of it is written again.
                written = stored.written_to_tables()["attribute"]
                for _ in range(18):
                    await client.send_and_wait("s", "go", timeout=WAIT_SECONDS)
                assert stored.written_to_tables()["attribute"].since(written).size < 1_000_000
                message = await client.get_message("s", sequence)
                assert message is not None
                assert message.text == result.text
                index = await engine.get_attribute("s", flow.agent_message_index)
                assert index is not None
                assert index.window_first_sequence > sequence

                for _ in range(20):
                    await client.send_and_wait("s", "go", timeout=WAIT_SECONDS)
                assert await client.get_message("s", sequence) is None
                assert stored.state().size < 200_000

    asyncio.run(scenario())


def test_f39_one_message_larger_than_the_context_window_is_summarised_around_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        runner = CompactingRunner()
        flow = create_small_flow(runner)
        async with EmbeddedEngine(tmp_path / "sessions.db", [flow], durability="process") as engine:
            client = AgentSessionClient(engine, flow)
            await client.start_session("s")
            await client.send_and_wait("s", "go", timeout=WAIT_SECONDS)
            assert runner.summaries == []
            result = await client.send_and_wait("s", "x" * 500_000, timeout=WAIT_SECONDS)
            assert (result.text, result.error) == (ANSWER_TEXT, None)
            # What came before it is summarised; that it still does not fit is for the model's provider to say.
            assert runner.summaries == [4]
            await client.send_and_wait("s", "go", timeout=WAIT_SECONDS)
            assert runner.summaries == [4, 4]
            assert runner.input_messages[-2:] == [1, 1]
            state = await client.wait_until_idle("s", timeout=WAIT_SECONDS)
            assert (state.status, state.last_turn_error) == ("waiting_for_user_message", None)

    asyncio.run(scenario())


def call_act(steps: int, calls_per_step: int) -> StrictModel:
    """A model that asks for the tool so often in its first turn, then answers."""

    def answer(request: ModelRequest) -> ScriptedModelReply:
        step = 0
        for item in request.input_items:
            if isinstance(item, ModelUserText):
                step = 0
            elif isinstance(item, ModelOutput):
                step += 1
        return say("done") if step == steps else calls(*(call("act") for _ in range(calls_per_step)))

    return StrictModel(answer)


async def measure_calls(directory: Path, steps: int, calls_per_step: int) -> dict[str, Written]:
    """What a turn with these calls writes to each table."""
    directory.mkdir()
    runs: list[int] = []
    model = call_act(steps, calls_per_step)
    async with open_sessions(directory, model, [sized_tool(TOOL_OUTPUT, runs)]) as sessions:
        await sessions.client.start_session("s")
        with StoredBytes(directory / "sessions.db") as stored:
            result = await sessions.client.send_and_wait("s", "go", timeout=WAIT_SECONDS)
            assert (result.text, result.error) == ("done", None)
            assert len(runs) == steps * calls_per_step
            return stored.written_to_tables()


@pytest.mark.parametrize("is_parallel", [True, False], ids=["in one response", "one after the other"])
def test_f09_each_of_a_hundred_tool_calls_of_a_turn_writes_what_each_of_ten_writes(
    tmp_path: Path, is_parallel: bool
) -> None:
    async def scenario() -> None:
        directories = (tmp_path / str(number) for number in count())
        few, many = 10, 100
        measured = [
            await measure_calls(next(directories), *((1, number) if is_parallel else (number, 1)))
            for number in (few, many)
        ]
        # Commits that wait together write a row once, so the numbers vary; growing with the turn would be tenfold.
        for table in ("attribute", "step_body", "history", "event_batch"):
            per_call = [written[table].size / number for written, number in zip(measured, (few, many), strict=True)]
            assert per_call[1] <= 2 * per_call[0], table
        # An execution's header lists its open Steps, so commits of many open calls write it at that length.
        headers = measured[1]["flow"]
        assert headers.size <= headers.rows * (400 + (many if is_parallel else 1) * 100)

    asyncio.run(scenario())
