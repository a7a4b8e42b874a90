"""What is stored: the header's format, values of older and newer workers, time, and commands that change nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from dex_flow import (
    Attribute,
    Flow,
    FlowNotFoundError,
    Rpc,
    StepOptions,
    StoredFormatError,
    Timer,
    Wait,
    complete,
    dead_end,
    go_to,
)
from dex_flow.kernel import (
    FORMAT_VERSION,
    AttemptsLost,
    ClaimReady,
    FireTimers,
    FlowHeader,
    InvokeRpc,
    Kernel,
    OpenStep,
    SkipTimer,
    StartFlow,
    decode_header,
    encode_header,
    microseconds,
    state,
    timestamp,
)
from dex_flow.testing import MemoryStore

from .kernel_driver import BEGIN, COUNT, SECOND, TEXT, A, Driver, activity, attempts, inline, note


def waiting_flow() -> Driver:
    return Driver(
        inline("W", wait=lambda view, _: Wait.any_of(A.receive(), Timer(view.now + timedelta(hours=1))))
    ).start()


# Commands that change nothing


@pytest.mark.parametrize("command", [FireTimers(), ClaimReady(), AttemptsLost(), SkipTimer(99)])
def test_a_command_that_changes_nothing_needs_no_commit(command: Any) -> None:
    driver = waiting_flow()
    assert driver.apply(command, slots=5).changes is None


def test_an_rpc_that_only_reads_needs_no_commit() -> None:
    driver = waiting_flow()
    driver.flow.rpcs["read"] = Rpc("read", lambda tx, _: [tx.get(TEXT), tx.count_messages(A)], Any, Any)
    result = driver.apply(InvokeRpc("read", b"null"))
    assert (result.output, result.changes) == ([None, 0], None)


def test_a_message_for_nobody_changes_no_step() -> None:
    driver = Driver(inline("Start")).start()
    driver.send("kept")
    assert driver.store.bodies == {}
    assert driver.waiting_messages(A) == ["kept"]


def test_a_step_without_input_has_no_body_row() -> None:
    driver = waiting_flow()
    assert driver.store.bodies == {}
    assert not driver.step("W").has_body


def test_a_body_row_lives_as_long_as_its_step() -> None:
    driver = Driver(activity("Work", lambda tx, _, outcome: go_to("Work", outcome))).start("first")
    assert set(driver.store.bodies) == {1}
    driver.succeed(driver.claim(), "second")
    assert set(driver.store.bodies) == {2}
    driver.succeed(driver.claim())
    assert driver.store.bodies == {}


def test_a_body_that_comes_and_goes_in_one_command_is_never_stored() -> None:
    driver = Driver(inline("Start", lambda tx, _: go_to("Next", "input")), inline("Next"))
    changes = driver.apply(StartFlow(b'"input"')).changes
    assert changes is not None
    assert changes.step_bodies == {}


def test_a_message_that_comes_and_goes_in_one_command_is_never_stored() -> None:
    driver = Driver(
        inline("Start", lambda tx, _: (tx.publish(A, "x"), go_to("W"))[1]),
        inline("W", wait=lambda view, _: Wait.any_of(A.receive())),
    )
    changes = driver.apply(StartFlow(b"null")).changes
    assert changes is not None
    assert (changes.published, changes.consumed) == ([], [])
    assert driver.log == ["W"]


# Time


def test_time_never_goes_backwards() -> None:
    def execute(tx: Any, input: Any) -> Any:
        note(tx, str(microseconds(tx.now) - BEGIN))
        return go_to("W")

    driver = Driver(inline("W", execute, wait=lambda view, _: Wait.any_of(A.receive())))
    driver.apply(StartFlow(b"null"), after=10)
    driver.call(lambda tx: tx.publish(A, "x"), after=5)
    driver.call(lambda tx: tx.publish(A, "x"), after=-12)
    driver.call(lambda tx: tx.publish(A, "x"), after=11)
    assert driver.log == [str(15 * SECOND), str(15 * SECOND), str(15 * SECOND)]
    assert driver.header.now == BEGIN + 15 * SECOND
    assert driver.kernel.view(driver.store, "flow", 0, lambda view: view.now) == timestamp(BEGIN + 15 * SECOND)


def test_a_timer_is_not_delayed_by_a_clock_that_was_set_back() -> None:
    driver = waiting_flow()
    driver.call(lambda tx: tx.set(COUNT, 1), after=3_000)
    driver.advance(-2_000)
    driver.advance(2_601)
    assert driver.log == ["W"]


def test_microseconds_and_timestamps_are_inverse() -> None:
    for value in (1, BEGIN, BEGIN + 1, -1, 0):
        assert microseconds(timestamp(value)) == value


# The header


@pytest.mark.parametrize("result", [None, b"null", b'{"total":7}', b"[1,2]", b'"text"'])
def test_a_header_survives_its_encoding(result: bytes | None) -> None:
    header = FlowHeader(
        status="completed",
        started_at=1,
        now=2,
        next_step=3,
        next_message=4,
        next_history=5,
        next_request=6,
        result=None if result is None else msgspec.Raw(result),
        failure="why",
        steps={
            2: OpenStep(2, "B", "ready", options=attempts(3, window=timedelta(minutes=30))),
            1: OpenStep(1, "A", "running", attempt=4),
        },
    )
    again = decode_header(encode_header(header))
    assert again == header
    assert list(again.steps) == [1, 2]
    assert encode_header(again) == encode_header(header)


def test_a_completed_flow_can_be_read_again() -> None:
    driver = Driver(inline("Start", lambda tx, _: complete({"total": 7}))).start()
    assert driver.header.result is not None
    assert msgspec.json.decode(driver.header.result) == {"total": 7}
    assert driver.apply(FireTimers()).changes is None


def _stored_as(data: bytes, change: Callable[[list[Any]], None]) -> bytes:
    content = msgspec.json.decode(data)
    change(content)
    return msgspec.json.encode(content)


def test_a_newer_format_is_refused() -> None:
    driver = waiting_flow()
    assert driver.store.header_data is not None

    def newer(content: list[Any]) -> None:
        content[0] = FORMAT_VERSION + 1

    driver.store.header_data = _stored_as(driver.store.header_data, newer)
    with pytest.raises(
        StoredFormatError, match=f"format {FORMAT_VERSION + 1} by a newer release.*up to {FORMAT_VERSION}"
    ):
        driver.apply(FireTimers())


def test_a_newer_format_of_another_shape_is_refused_by_its_number() -> None:
    with pytest.raises(StoredFormatError, match="newer release"):
        decode_header(b'[99, {"entirely": "different"}]')


@pytest.mark.parametrize(
    "data",
    [b"", b"not json", b"{}", b"[]", b'["one"]', b'[1,"open"]', b'[1,"unknown status",0,0,1,1,1,1,[],null,null]'],
)
def test_a_damaged_header_says_so(data: bytes) -> None:
    with pytest.raises(StoredFormatError, match="damaged"):
        decode_header(data)


def test_an_older_format_is_migrated_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(inline("Start", lambda tx, _: complete({"total": 7}))).start()
    assert driver.store.header_data is not None

    def oldest(content: list[Any]) -> None:
        content[0] = -1
        content[1] = "done"

    def rename_status(content: list[Any]) -> list[Any]:
        return [0, "ended", *content[2:]]

    def rename_again(content: list[Any]) -> list[Any]:
        assert content[1] == "ended"
        return [1, "completed", *content[2:]]

    monkeypatch.setitem(state.MIGRATIONS, -1, rename_status)
    monkeypatch.setitem(state.MIGRATIONS, 0, rename_again)
    header = decode_header(_stored_as(driver.store.header_data, oldest))
    assert header == driver.header
    assert header.format == FORMAT_VERSION


def test_a_format_without_a_migration_is_refused() -> None:
    with pytest.raises(StoredFormatError, match="format 0, which this release no longer reads"):
        decode_header(b'[0,"open"]')


def test_every_older_format_has_a_migration() -> None:
    assert set(state.MIGRATIONS) == set(range(1, FORMAT_VERSION))


def test_a_header_of_a_release_with_more_fields_is_read() -> None:
    driver = waiting_flow()
    assert driver.store.header_data is not None

    def extended(content: list[Any]) -> None:
        content.append("new header field")
        for step in content[8]:
            step.append("new step field")

    assert decode_header(_stored_as(driver.store.header_data, extended)) == driver.header


# Values of older and newer workers


class OldOrder(msgspec.Struct):
    number: int


class NewOrder(msgspec.Struct):
    number: int
    currency: str = "EUR"
    notes: list[str] = []


@pytest.mark.parametrize(
    ("stored", "read_as", "expected"),
    [(NewOrder(7, "USD", ["x"]), OldOrder, OldOrder(7)), (OldOrder(7), NewOrder, NewOrder(7, "EUR", []))],
)
def test_unknown_fields_are_ignored_and_missing_ones_defaulted(stored: Any, read_as: Any, expected: Any) -> None:
    store = MemoryStore()

    def kernel(value_type: Any) -> tuple[Kernel, Attribute[Any]]:
        attribute = Attribute[Any]("order", value_type)
        set_order: Rpc[Any, Any] = Rpc("set", lambda tx, value: tx.set(attribute, value), value_type, None)
        get_order: Rpc[Any, Any] = Rpc("get", lambda tx, _: tx.get(attribute), None, value_type)
        flow = Flow(
            "Orders", steps=[inline("Start")], start_step="Start", declarations=[attribute], rpcs=[set_order, get_order]
        )
        return Kernel(flow), attribute

    writer, _ = kernel(type(stored))
    reader, attribute = kernel(read_as)
    for command in (StartFlow(b"null"), InvokeRpc("set", msgspec.json.encode(stored))):
        changes = writer.apply(store, "flow", BEGIN, command).changes
        assert changes is not None
        store.apply(changes)
    assert reader.view(store, "flow", BEGIN, lambda view: view.get(attribute)) == expected
    assert reader.apply(store, "flow", BEGIN, InvokeRpc("get", b"null")).output == expected


def test_stored_options_of_one_execution_are_read_again() -> None:
    options = StepOptions(
        attempt_timeout=timedelta(minutes=2),
        heartbeat_timeout=timedelta(milliseconds=1_500),
        start_timeout=timedelta(days=2),
        retry=attempts(3, window=timedelta(seconds=90), backoff=timedelta(microseconds=250)).retry,
    )
    driver = Driver(inline("Start", lambda tx, _: go_to("Work", options=options)), activity("Work")).start()
    assert driver.step("Work").options == options
    assert driver.claim().options == options


# Executions that do not exist


def test_commands_need_a_started_flow() -> None:
    driver = Driver(inline("Start"))
    for command in (FireTimers(), ClaimReady(), AttemptsLost(), SkipTimer(1)):
        with pytest.raises(FlowNotFoundError):
            driver.apply(command)
    with pytest.raises(FlowNotFoundError):
        driver.get(COUNT)
    assert driver.store.header_data is None


def test_history_rows_carry_times_and_details() -> None:
    driver = Driver(activity("Work", lambda tx, _, outcome: dead_end())).start()
    claim = driver.claim()
    begun = driver.now
    driver.advance(2)
    driver.succeed(claim)
    (row,) = driver.store.history
    assert (row.started_at, row.finished_at, row.detail) == (begun, driver.now, None)
