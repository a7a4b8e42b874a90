"""Starting Flows: once per ID, IDs of every shape, and request IDs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from dex_flow.engine import Engine
from dex_flow.errors import (
    DexFlowError,
    FlowAlreadyStartedError,
    FlowClosedError,
    FlowDefinitionMismatchError,
    FlowNotFoundError,
    InvalidFlowIdError,
    RequestIdReusedError,
)
from dex_flow.testing.engine_suite.base import EngineFactory, EngineSuiteBase
from dex_flow.testing.engine_suite.counter_flow import ADD, FINISH, READ_TOTAL, TOTAL, counter_flow
from dex_flow.testing.engine_suite.mailbox_flow import mailbox_flow

__all__ = ["StartingTests"]

LONGEST_ID = "x" * 256
VALID_IDS = (
    "plain",
    "Plain",
    "plain ",
    "a/b",
    "../x",
    "..",
    "日本",
    "👩‍🚀",
    "per%cent?&#",
    "new\nline",
    "'; drop table flows; --",
    LONGEST_ID,
)
INVALID_IDS = ("", "x" * 257, "lone \ud800 surrogate")


class StartingTests(EngineSuiteBase):
    """`start_flow`."""

    def test_start_runs_the_start_step_with_the_input(self, tmp_path: Path) -> None:
        """A new execution is started by this call, and its start Step has run."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            assert await engine.start_flow(flow, "first", 5) is True
            assert await engine.get_attribute("first", TOTAL) == 5
            assert (await engine.describe_flow("first")).status == "open"

        self.play(tmp_path, flow, scenario)

    def test_start_without_an_input(self, tmp_path: Path) -> None:
        """The input is optional."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            assert await engine.start_flow(flow, "bare") is True
            assert await engine.get_attribute("bare", TOTAL) == 0

        self.play(tmp_path, flow, scenario)

    def test_a_second_start_is_an_error_and_changes_nothing(self, tmp_path: Path) -> None:
        """The ID is taken, and the error names it."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "taken", 5)
            with pytest.raises(FlowAlreadyStartedError, match="taken") as caught:
                await engine.start_flow(flow, "taken", 9)
            assert caught.value.flow_id == "taken"
            assert await engine.get_attribute("taken", TOTAL) == 5

        self.play(tmp_path, flow, scenario)

    def test_a_second_start_can_be_ignored(self, tmp_path: Path) -> None:
        """`already_started="ignore"` says whether this call started it."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            assert await engine.start_flow(flow, "once", 5, already_started="ignore") is True
            assert await engine.start_flow(flow, "once", 9, already_started="ignore") is False
            assert await engine.get_attribute("once", TOTAL) == 5

        self.play(tmp_path, flow, scenario)

    def test_an_id_stays_taken_after_the_flow_has_ended(self, tmp_path: Path) -> None:
        """IDs are never used twice."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "ended", 5)
            await engine.invoke_rpc(flow, "ended", FINISH, "done")
            with pytest.raises(FlowAlreadyStartedError):
                await engine.start_flow(flow, "ended", 9)
            assert await engine.start_flow(flow, "ended", 9, already_started="ignore") is False
            assert (await engine.describe_flow("ended")).status == "completed"

        self.play(tmp_path, flow, scenario)

    def test_an_id_is_taken_across_flow_types(self, tmp_path: Path) -> None:
        """Executions of different types share one space of IDs."""
        first, second = counter_flow("FirstType"), counter_flow("SecondType")

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[first, second]) as engine:
                await engine.start_flow(first, "shared", 5)
                with pytest.raises((FlowAlreadyStartedError, FlowDefinitionMismatchError), match="shared"):
                    await engine.start_flow(second, "shared", 9)
                assert (await engine.describe_flow("shared")).flow_type == "FirstType"

        self.play_shared(tmp_path, scenario)

    def test_concurrent_starts_start_once(self, tmp_path: Path) -> None:
        """Exactly one of many callers started it."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            starts = [engine.start_flow(flow, "race", number, already_started="ignore") for number in range(1, 21)]
            answers = await asyncio.gather(*starts)
            assert answers.count(True) == 1
            assert await engine.get_attribute("race", TOTAL) == answers.index(True) + 1

        self.play(tmp_path, flow, scenario)

    def test_a_repeated_start_request_gets_the_first_answer(self, tmp_path: Path) -> None:
        """Its sender cannot know whether the first one arrived."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            assert await engine.start_flow(flow, "again", 5, request_id="start-1") is True
            await engine.invoke_rpc(flow, "again", ADD, 1)
            assert await engine.start_flow(flow, "again", 5, request_id="start-1") is True
            assert await engine.start_flow(flow, "again", 5, request_id="start-1", already_started="ignore") is True
            assert await engine.get_attribute("again", TOTAL) == 6
            with pytest.raises(FlowAlreadyStartedError):
                await engine.start_flow(flow, "again", 5, request_id="start-2")

        self.play(tmp_path, flow, scenario)

    def test_a_start_request_with_another_input_is_refused(self, tmp_path: Path) -> None:
        """A request ID stands for one request."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "reused", 5, request_id="start-1")
            with pytest.raises(RequestIdReusedError, match="start-1"):
                await engine.start_flow(flow, "reused", 6, request_id="start-1")
            with pytest.raises(RequestIdReusedError):
                await engine.invoke_rpc(flow, "reused", ADD, 5, request_id="start-1")
            assert await engine.get_attribute("reused", TOTAL) == 5

        self.play(tmp_path, flow, scenario)

    def test_odd_ids_are_valid_and_distinct(self, tmp_path: Path) -> None:
        """Any text of 1 to 256 characters names its own execution."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            for number, flow_id in enumerate(VALID_IDS):
                assert await engine.start_flow(flow, flow_id, number) is True
            for number, flow_id in enumerate(VALID_IDS):
                assert await engine.invoke_rpc(flow, flow_id, ADD, 100) == number + 100
                assert await engine.get_attribute(flow_id, TOTAL) == number + 100
                assert (await engine.describe_flow(flow_id)).flow_id == flow_id
                assert await engine.read_step_history(flow_id)
            listed = [description.flow_id for description in await engine.list_flows()]
            assert listed == sorted(VALID_IDS)

        self.play(tmp_path, flow, scenario)

    @pytest.mark.parametrize("flow_id", INVALID_IDS, ids=["empty", "too long", "lone surrogate"])
    def test_invalid_ids_are_refused(self, tmp_path: Path, flow_id: str) -> None:
        """Nothing can be started under them, and no call on them breaks the engine."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            with pytest.raises(InvalidFlowIdError):
                await engine.start_flow(flow, flow_id, 1)
            with pytest.raises(InvalidFlowIdError):
                await engine.start_flow(flow, flow_id, 1, already_started="ignore", request_id="r")
            unusable = (InvalidFlowIdError, FlowNotFoundError)
            with pytest.raises(unusable):
                await engine.invoke_rpc(flow, flow_id, ADD, 1)
            with pytest.raises(unusable):
                await engine.invoke_rpc(flow, flow_id, READ_TOTAL, None)
            with pytest.raises(unusable):
                await engine.get_attribute(flow_id, TOTAL)
            with pytest.raises(unusable):
                await engine.describe_flow(flow_id)
            with pytest.raises(unusable):
                await engine.stop_flow(flow_id)
            with pytest.raises(unusable):
                await engine.read_step_history(flow_id)
            assert await engine.list_flows() == []
            assert await engine.start_flow(flow, "valid", 1) is True

        self.play(tmp_path, flow, scenario)

    def test_an_input_of_the_wrong_type_starts_nothing(self, tmp_path: Path) -> None:
        """The caller gets the error, and the ID stays free."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            for wrong in ("not a number", object()):
                with pytest.raises((TypeError, ValueError, msgspec.MsgspecError, DexFlowError)):
                    await engine.start_flow(flow, "wrong", wrong)
                with pytest.raises(FlowNotFoundError):
                    await engine.describe_flow("wrong")
            assert await engine.start_flow(flow, "wrong", 3) is True

        self.play(tmp_path, flow, scenario)

    def test_a_call_with_another_flow_type_is_refused(self, tmp_path: Path) -> None:
        """A definition applies only to executions of its own type."""
        counter, mailbox = counter_flow(), mailbox_flow()

        async def scenario(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[counter, mailbox]) as engine:
                await engine.start_flow(mailbox, "mailbox", [])
                with pytest.raises(FlowDefinitionMismatchError):
                    await engine.invoke_rpc(counter, "mailbox", ADD, 1)
                with pytest.raises(FlowDefinitionMismatchError):
                    await engine.invoke_rpc(counter, "mailbox", READ_TOTAL, None)

        self.play_shared(tmp_path, scenario)

    def test_an_unknown_id_is_not_found_by_any_call(self, tmp_path: Path) -> None:
        """`FlowNotFoundError` names the ID."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            calls = [
                engine.invoke_rpc(flow, "nobody", ADD, 1),
                engine.invoke_rpc(flow, "nobody", READ_TOTAL, None),
                engine.get_attribute("nobody", TOTAL),
                engine.wait_until("nobody", lambda view: view.get(TOTAL), timeout=30),
                engine.read_step_history("nobody"),
                engine.describe_flow("nobody"),
                engine.skip_timer("nobody", 1),
                engine.stop_flow("nobody"),
            ]
            for call in calls:
                with pytest.raises(FlowNotFoundError, match="nobody") as caught:
                    await call
                assert caught.value.flow_id == "nobody"

        self.play(tmp_path, flow, scenario)

    def test_a_start_request_is_remembered_after_the_flow_has_ended(self, tmp_path: Path) -> None:
        """The repeated start gets its answer; later commands find the Flow closed."""
        flow = counter_flow()

        async def scenario(engine: Engine) -> None:
            await engine.start_flow(flow, "short", 1, request_id="start-1")
            await engine.invoke_rpc(flow, "short", FINISH, "done")
            assert await engine.start_flow(flow, "short", 1, request_id="start-1") is True
            with pytest.raises(FlowClosedError):
                await engine.invoke_rpc(flow, "short", ADD, 1)

        self.play(tmp_path, flow, scenario)
