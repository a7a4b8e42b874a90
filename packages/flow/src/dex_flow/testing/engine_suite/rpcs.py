"""RPCs: mutating and read-only ones, failing ones, and repeated requests."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dex_flow.engine import Engine
from dex_flow.errors import DexFlowError, FlowClosedError, RequestIdReusedError, UnknownRpcError
from dex_flow.testing.engine_suite.base import EngineFactory, EngineSuiteBase
from dex_flow.testing.engine_suite.counter_flow import (
    ABANDON,
    ADD,
    ENTRIES,
    FINISH,
    OVERWRITTEN,
    READ_ENTRIES,
    READ_TOTAL,
    REFUSE,
    SPAWN,
    TOTAL,
    UNDECLARED,
    Entry,
    EntryRange,
    counter_flow,
)

__all__ = ["RpcTests"]


class RpcTests(EngineSuiteBase):
    """`invoke_rpc`."""

    def test_a_mutating_rpc_answers_from_its_own_commit(self, tmp_path: Path) -> None:
        """Output and state agree, and both are there for the next read."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "sum", 1)
            assert await engine.invoke_rpc(flow, "sum", ADD, 2) == 3
            assert await engine.invoke_rpc(flow, "sum", ADD, 4) == 7
            assert await engine.get_attribute("sum", TOTAL) == 7
            assert await engine.get_attribute_instance("sum", ENTRIES, "00000003") == Entry(2)

        self.play(tmp_path, flow, scenario)

    def test_a_read_only_rpc_reads_the_committed_state(self, tmp_path: Path) -> None:
        """It sees every acknowledged change and adds no history."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "read", 1)
            before = await engine.read_step_history("read")
            for expected in (3, 5, 7):
                await engine.invoke_rpc(flow, "read", ADD, 2)
                assert await engine.invoke_rpc(flow, "read", READ_TOTAL, None) == expected
            assert await engine.read_step_history("read") == before

        self.play(tmp_path, flow, scenario)

    def test_range_reads_are_in_key_order(self, tmp_path: Path) -> None:
        """Bounds, limit and direction of a map read, with values decoded as declared."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "range", 0)
            for amount in (1, 2, 3, 4):
                await engine.invoke_rpc(flow, "range", ADD, amount)

            async def totals(range: EntryRange) -> list[int]:
                return [int(key) for key, _ in await engine.invoke_rpc(flow, "range", READ_ENTRIES, range)]

            assert await totals(EntryRange()) == [1, 3, 6, 10]
            assert await totals(EntryRange(at_least="00000003", below="00000010")) == [3, 6]
            assert await totals(EntryRange(limit=2)) == [1, 3]
            assert await totals(EntryRange(limit=2, newest_first=True)) == [10, 6]
            pairs = await engine.invoke_rpc(flow, "range", READ_ENTRIES, EntryRange(limit=1))
            assert [tuple(pair) for pair in pairs] == [("00000001", Entry(1))]

        self.play(tmp_path, flow, scenario)

    def test_a_raising_rpc_changes_nothing(self, tmp_path: Path) -> None:
        """What it wrote and published before is gone, the caller gets its exception, and the Flow goes on."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "refuse", 10)
            with pytest.raises(ValueError, match="refused to add -1"):
                await engine.invoke_rpc(flow, "refuse", REFUSE, -1)
            assert await engine.get_attribute("refuse", TOTAL) == 10
            assert await engine.get_attribute_instance("refuse", ENTRIES, "00000009") is None
            assert (await engine.describe_flow("refuse")).status == "open"
            assert await engine.invoke_rpc(flow, "refuse", REFUSE, 1) == 1
            assert await engine.get_attribute("refuse", TOTAL) == 11

        self.play(tmp_path, flow, scenario)

    def test_a_raising_rpc_fails_alone_among_concurrent_ones(self, tmp_path: Path) -> None:
        """Calls that share a commit with it succeed."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "mixed", 0)
            calls = [engine.invoke_rpc(flow, "mixed", REFUSE, 1 if number % 2 else -1) for number in range(40)]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert sum(isinstance(answer, ValueError) for answer in answers) == 20
            assert sorted(answer for answer in answers if isinstance(answer, int)) == list(range(1, 21))
            assert await engine.get_attribute("mixed", TOTAL) == 20

        self.play(tmp_path, flow, scenario)

    def test_an_undeclared_rpc_is_unknown(self, tmp_path: Path) -> None:
        """The Flow's own declarations count, not the value the caller holds."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "unknown", 1)
            with pytest.raises(UnknownRpcError, match="undeclared"):
                await engine.invoke_rpc(flow, "unknown", UNDECLARED, 1)
            assert await engine.get_attribute("unknown", TOTAL) == 1

        self.play(tmp_path, flow, scenario)

    def test_an_input_of_the_wrong_type_changes_nothing(self, tmp_path: Path) -> None:
        """The caller gets the error."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "typed", 1)
            wrong: list[Any] = ["one", object(), None]
            for value in wrong:
                with pytest.raises((TypeError, ValueError, msgspec.MsgspecError, DexFlowError)):
                    await engine.invoke_rpc(flow, "typed", ADD, value)
            assert await engine.get_attribute("typed", TOTAL) == 1

        self.play(tmp_path, flow, scenario)

    def test_concurrent_calls_are_applied_one_at_a_time(self, tmp_path: Path) -> None:
        """No addition is lost, and every caller saw a different total."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "many", 0)
            totals = await asyncio.gather(*(engine.invoke_rpc(flow, "many", ADD, 1) for _ in range(100)))
            assert sorted(totals) == list(range(1, 101))

        self.play(tmp_path, flow, scenario)

    def test_an_rpc_can_start_a_step(self, tmp_path: Path) -> None:
        """The Step runs in the same commit when it is inline."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "spawn", 1)
            step_execution_id = await engine.invoke_rpc(flow, "spawn", SPAWN, 6)
            assert await engine.get_attribute("spawn", TOTAL) == 7
            last = (await engine.read_step_history("spawn"))[-1]
            assert (last.step_execution_id, last.step_type, last.outcome) == (
                step_execution_id,
                "AddLater",
                "succeeded",
            )

        self.play(tmp_path, flow, scenario)

    def test_an_rpc_can_complete_the_flow(self, tmp_path: Path) -> None:
        """Its output still reaches the caller; mutating calls are refused from then on, reads are not."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "done", 4)
            assert await engine.invoke_rpc(flow, "done", FINISH, "bye") == 4
            description = await engine.describe_flow("done")
            assert (description.status, description.result) == ("completed", {"total": 4, "note": "bye"})
            with pytest.raises(FlowClosedError, match="completed") as caught:
                await engine.invoke_rpc(flow, "done", ADD, 1)
            assert (caught.value.flow_id, caught.value.status) == ("done", "completed")
            assert await engine.invoke_rpc(flow, "done", READ_TOTAL, None) == 4
            assert await engine.get_attribute("done", TOTAL) == 4

        self.play(tmp_path, flow, scenario)

    def test_an_rpc_can_fail_the_flow(self, tmp_path: Path) -> None:
        """Its writes belong to the same commit, and the reason is kept."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "given up", 4)
            await engine.invoke_rpc(flow, "given up", ABANDON, "no hope")
            description = await engine.describe_flow("given up")
            assert (description.status, description.failure) == ("failed", "no hope")
            assert await engine.get_attribute("given up", OVERWRITTEN) == "no hope"
            with pytest.raises(FlowClosedError) as caught:
                await engine.invoke_rpc(flow, "given up", ADD, 1)
            assert caught.value.status == "failed"

        self.play(tmp_path, flow, scenario)

    def test_a_repeated_request_gets_the_first_answer(self, tmp_path: Path) -> None:
        """It changes nothing, however often it comes and whatever happened since."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "repeat", 0)
            assert await engine.invoke_rpc(flow, "repeat", ADD, 5, request_id="add-1") == 5
            assert await engine.invoke_rpc(flow, "repeat", ADD, 5, request_id="add-2") == 10
            assert await engine.invoke_rpc(flow, "repeat", ADD, 5, request_id="add-1") == 5
            answers = await asyncio.gather(
                *(engine.invoke_rpc(flow, "repeat", ADD, 1, request_id="add-3") for _ in range(20))
            )
            assert answers == [11] * 20
            assert await engine.get_attribute("repeat", TOTAL) == 11

        self.play(tmp_path, flow, scenario)

    def test_a_request_id_stands_for_one_request(self, tmp_path: Path) -> None:
        """Another input or another RPC under the same ID is refused."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "reuse", 0)
            await engine.start_flow(flow, "other", 0)
            await engine.invoke_rpc(flow, "reuse", ADD, 5, request_id="one")
            with pytest.raises(RequestIdReusedError, match="one"):
                await engine.invoke_rpc(flow, "reuse", ADD, 6, request_id="one")
            with pytest.raises(RequestIdReusedError):
                await engine.invoke_rpc(flow, "reuse", REFUSE, 5, request_id="one")
            assert await engine.get_attribute("reuse", TOTAL) == 5
            assert await engine.invoke_rpc(flow, "other", ADD, 7, request_id="one") == 7

        self.play(tmp_path, flow, scenario)

    def test_a_failed_request_is_not_remembered(self, tmp_path: Path) -> None:
        """The same ID may be tried again."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "retry", 0)
            for _ in range(2):
                with pytest.raises(ValueError, match="refused"):
                    await engine.invoke_rpc(flow, "retry", REFUSE, -1, request_id="call")
            assert await engine.invoke_rpc(flow, "retry", REFUSE, 1, request_id="call") == 1

        self.play(tmp_path, flow, scenario)

    def test_requests_are_remembered_when_the_flow_has_ended_and_the_engine_was_reopened(self, tmp_path: Path) -> None:
        """The caller of the ending RPC can ask again."""
        flow = counter_flow()

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow]) as engine:
                await engine.start_flow(flow, "late", 3)
                assert await engine.invoke_rpc(flow, "late", FINISH, "bye", request_id="finish") == 3
                assert await engine.invoke_rpc(flow, "late", FINISH, "bye", request_id="finish") == 3
            async with open_engine(flows=[flow]) as engine:
                assert await engine.invoke_rpc(flow, "late", FINISH, "bye", request_id="finish") == 3
                with pytest.raises(FlowClosedError):
                    await engine.invoke_rpc(flow, "late", FINISH, "bye", request_id="new")

        self.play_shared(tmp_path, scenario)
