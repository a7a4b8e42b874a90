"""Field scenarios of tools: result sizes (F09), bad arguments (F13), effects (F21), deploys (F28), failures (F30)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dex_agents import ToolEffect, ToolExecutionError, ToolPolicy
from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents_stepwise import FunctionTool, ToolCallContext, function_tool
from tests.session_kill.sessions import WAIT_SECONDS
from tests.session_kill.strict_model import StrictModel, call, calls, open_sessions, say, script

LIMIT = 64 * 1024
FREE = ToolPolicy(requires_approval=False)


def counting_tool(
    body: Callable[[ToolCallContext], object], effect: ToolEffect, runs: list[tuple[str, int]], name: str = "act"
) -> FunctionTool[..., Any]:
    """A tool that records the key and the attempt of every run, whatever its body does then."""

    @function_tool(effect=effect, name=name)
    async def act(context: ToolCallContext) -> Any:
        runs.append((context.idempotency_key, context.attempt))
        return body(context)

    return act


@pytest.mark.parametrize("effect", list(ToolEffect))
@pytest.mark.parametrize("overflow", ["fail", "truncate"])
@pytest.mark.parametrize(
    ("character", "size"),
    [("x", 100), ("x", LIMIT), ("x", LIMIT + 1), ("x", 5_000_000), ("€", LIMIT + 1), ("😀", 5_000_000)],
)
def test_f09_a_large_result_fails_or_is_cut_once(
    tmp_path: Path, effect: ToolEffect, overflow: str, character: str, size: int
) -> None:
    width = len(character.encode())
    output = character * (size // width) + "x" * (size % width)

    async def scenario() -> None:
        runs: list[tuple[str, int]] = []
        tool = counting_tool(lambda context: output, effect, runs)
        model = StrictModel(script([calls(call("act")), say("done")], [calls(call("act")), say("again")]))
        async with open_sessions(
            tmp_path,
            model,
            [tool],
            tool_policies={"act": FREE},
            max_tool_result_bytes=LIMIT,
            tool_result_overflow=overflow,
        ) as sessions:
            await sessions.client.start_session("s", initial_message="go")
            assert await sessions.completed("s") == "done"
            (told,) = model.results()
            (status,) = await sessions.statuses("s")
            if size <= LIMIT:
                assert told == output
            elif overflow == "fail":
                assert "act" in told
                assert f"{size} bytes" in told
                assert f"{LIMIT} bytes" in told
                assert status == ("act", "failed")
            else:
                assert len(told.encode()) <= LIMIT
                kept, mark, facts = told.partition("\n[Dex]")
                assert mark
                assert str(size) in facts
                assert output.startswith(kept)
                assert LIMIT - len(kept.encode()) < len(mark + facts) + width
                assert status == ("act", "succeeded")
            assert await sessions.client.send_user_message("s", "go on")
            assert await sessions.completed("s") == "again"
            assert [attempt for _, attempt in runs] == [1, 1]

    asyncio.run(scenario())


def test_f09_a_model_text_that_is_too_large_fails_its_turn_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        model = StrictModel(script([say("x" * 3_000_000)], [say("short")]))
        async with open_sessions(tmp_path, model, max_message_bytes=1024 * 1024) as sessions:
            await sessions.client.start_session("s", initial_message="go")
            error = (await sessions.idle("s")).last_turn_error
            assert error is not None
            assert error.type == "MessageTooLargeError"
            assert "max_message_bytes" in error.message
            assert len(model.requests) == 1
            assert await sessions.client.send_user_message("s", "shorter")
            assert await sessions.completed("s") == "short"

    asyncio.run(scenario())


BAD_ARGUMENTS = {
    "truncated": '{"number": 1, "text": "a',
    "null": "null",
    "list": "[]",
    "string": '"{}"',
    "number": "7",
    "true": "true",
    "NaN": '{"number": NaN}',
    "infinity": '{"number": -Infinity}',
    "out of range": '{"number": 1e999}',
    "repeated key": '{"number": 1, "number": 2}',
    "two objects": '{"number": 1}{"number": 2}',
    "raw newline": '{"text": "a\nb"}',
    "single quotes": "{'number': 1}",
    "prose": "Sure! number = 1",
    "too large": json.dumps({"text": "x" * 5_000_000}),
    "too deep": '{"text": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "huge integer": '{"number": ' + "9" * 5_000 + "}",
}


@pytest.mark.parametrize("arguments", BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS.keys())
@pytest.mark.parametrize("is_gated", [False, True])
def test_f13_bad_arguments_fail_without_approval_and_the_model_is_told(
    tmp_path: Path, arguments: str, is_gated: bool
) -> None:
    async def scenario() -> None:
        runs: list[int] = []

        @function_tool(effect="non_idempotent_write", requires_approval=is_gated)
        def act(number: int = 0, text: str = "") -> str:
            runs.append(number)
            return "acted"

        model = StrictModel(script([calls(call("act", arguments)), say("done")], [say("fine")]))
        async with open_sessions(tmp_path, model, [act]) as sessions:
            await sessions.client.start_session("s", initial_message="go")
            assert await sessions.completed("s") == "done"
            (told,) = model.results()
            assert told.startswith("The tool act was not run: its arguments are invalid: ")
            assert len(told) < 5_000
            assert runs == []
            assert await sessions.statuses("s") == [("act", "failed")]
            assert all(event.type != "interrupt_raised" for event in await sessions.events("s"))
            # The stored transcript can be sent for ever: the strict model checks it again.
            assert await sessions.client.send_user_message("s", "next")
            assert await sessions.completed("s") == "fine"

    asyncio.run(scenario())


@pytest.mark.parametrize("arguments", ["", " ", "\n\t", "\ufeff", "{}", "\ufeff{}", " {} "])
@pytest.mark.parametrize("is_gated", [False, True])
def test_f13_blank_arguments_are_an_empty_object(tmp_path: Path, arguments: str, is_gated: bool) -> None:
    async def scenario() -> None:
        @function_tool(effect="non_idempotent_write", requires_approval=is_gated)
        def act(number: int = 4) -> str:
            return f"acted {number}"

        @function_tool(effect="read")
        def must(number: int) -> str:
            raise AssertionError("a required argument is missing")

        model = StrictModel(script([calls(call("act", arguments), call("must", arguments)), say("done")]))
        async with open_sessions(tmp_path, model, [act, must]) as sessions:
            await sessions.client.start_session("s", initial_message="go")
            if is_gated:
                (interrupt,) = await sessions.client.wait_for_interrupts("s", timeout=WAIT_SECONDS)
                assert interrupt.arguments == "{}"
                assert await sessions.client.resolve_interrupt("s", interrupt.interrupt_id, approved=True)
            assert await sessions.completed("s") == "done"
            acted, missing = model.results()
            assert acted == "acted 4"
            assert "number" in missing
            assert await sessions.statuses("s") == [("act", "succeeded"), ("must", "failed")]

    asyncio.run(scenario())


EFFECTS = {
    ToolEffect.READ: (3, "failed", "ConnectionResetError: after the effect"),
    ToolEffect.IDEMPOTENT_WRITE: (3, "outcome_unknown", OUTCOME_UNKNOWN_TOOL_RESULT),
    ToolEffect.NON_IDEMPOTENT_WRITE: (1, "outcome_unknown", OUTCOME_UNKNOWN_TOOL_RESULT),
    ToolEffect.UNCLASSIFIED: (1, "outcome_unknown", OUTCOME_UNKNOWN_TOOL_RESULT),
}


@pytest.mark.parametrize("effect", list(ToolEffect))
@pytest.mark.parametrize("failures", [1, 99])
def test_f21_the_effect_decides_attempts_and_what_the_model_is_told(
    tmp_path: Path, effect: ToolEffect, failures: int
) -> None:
    """Two calls; each raises after its effect, the first time or always."""

    async def scenario() -> None:
        runs: list[tuple[str, int]] = []

        def body(context: ToolCallContext) -> str:
            if context.attempt <= failures:
                raise ConnectionResetError("after the effect")
            return "done"

        model = StrictModel(script([calls(call("act"), call("act")), say("told")]))
        tool = counting_tool(body, effect, runs)
        async with open_sessions(tmp_path, model, [tool], tool_policies={"act": FREE}) as sessions:
            await sessions.client.start_session("s", initial_message="go")
            assert await sessions.completed("s") == "told"
            attempts, status, text = EFFECTS[effect]
            if failures < attempts:
                attempts, status, text = failures + 1, "succeeded", "done"
            assert model.results() == [text, text]
            assert await sessions.statuses("s") == [("act", status)] * 2
            by_key = Counter(key for key, _ in runs)
            assert sorted(by_key.values()) == [attempts, attempts]
            for key in by_key:
                assert [attempt for other, attempt in runs if other == key] == list(range(1, attempts + 1))

    asyncio.run(scenario())


@pytest.mark.parametrize("effect", list(ToolEffect))
def test_f21_approval_is_asked_for_by_effect(tmp_path: Path, effect: ToolEffect) -> None:
    async def scenario() -> None:
        runs: list[tuple[str, int]] = []
        tool = counting_tool(lambda context: "done", effect, runs)
        model = StrictModel(script([calls(call("act")), say("told")]))
        async with open_sessions(tmp_path, model, [tool]) as sessions:
            await sessions.client.start_session("s", initial_message="go")
            if effect in (ToolEffect.NON_IDEMPOTENT_WRITE, ToolEffect.UNCLASSIFIED):
                (interrupt,) = await sessions.client.wait_for_interrupts("s", timeout=WAIT_SECONDS)
                assert runs == []
                assert await sessions.client.resolve_interrupt("s", interrupt.interrupt_id, approved=True)
            assert await sessions.completed("s") == "told"
            assert len(runs) == 1

    asyncio.run(scenario())


def test_f28_an_unknown_tool_fails_without_approval(tmp_path: Path) -> None:
    async def scenario() -> None:
        runs: list[tuple[str, int]] = []
        tool = counting_tool(lambda context: "done", ToolEffect.READ, runs)
        model = StrictModel(script([calls(call("nope", {"a": 1}), call("act"), call("ACT")), say("told")]))
        async with open_sessions(tmp_path, model, [tool]) as sessions:
            await sessions.client.start_session("s", initial_message="go")
            assert await sessions.completed("s") == "told"
            assert model.results() == ["unknown tool nope", "done", "unknown tool ACT"]
            assert await sessions.statuses("s") == [("nope", "failed"), ("act", "succeeded"), ("ACT", "failed")]
            assert all(event.type != "interrupt_raised" for event in await sessions.events("s"))
            assert len(model.requests) == 2

    asyncio.run(scenario())


async def _approve_after_deploy(
    directory: Path, before: Sequence[FunctionTool[..., Any]], after: Sequence[FunctionTool[..., Any]], told: str
) -> list[tuple[str, str]]:
    """Ask for the gated tool `act`, deploy other tools, and approve; returns the statuses."""
    model = StrictModel(script([calls(call("act", {"number": 1})), say("done")], [say("fine")]))
    async with open_sessions(directory, model, before) as sessions:
        await sessions.client.start_session("s", initial_message="go")
        (interrupt,) = await sessions.client.wait_for_interrupts("s", timeout=WAIT_SECONDS)
    async with open_sessions(directory, model, after) as sessions:
        assert await sessions.client.resolve_interrupt("s", interrupt.interrupt_id, approved=True)
        assert await sessions.completed("s") == "done"
        assert told in model.results()[0]
        assert await sessions.client.send_user_message("s", "next")
        assert await sessions.completed("s") == "fine"
        return await sessions.statuses("s")


def test_f28_a_tool_changes_while_its_call_waits_for_approval(tmp_path: Path) -> None:
    runs: list[str] = []

    @function_tool(name="act", effect="non_idempotent_write")
    def old(number: int) -> str:
        runs.append("old")
        return "old"

    @function_tool(name="act", effect="non_idempotent_write")
    def other_schema(number: str, unit: str) -> str:
        runs.append("other schema")
        return "other"

    @function_tool(name="act", effect="read")
    def now_a_read(number: int) -> str:
        runs.append("now a read")
        raise ConnectionResetError

    cases: list[tuple[str, list[FunctionTool[..., Any]], str, str]] = [
        ("gone", [], "unknown tool act", "failed"),
        ("schema", [other_schema], "unit", "failed"),
        ("effect", [now_a_read], OUTCOME_UNKNOWN_TOOL_RESULT, "outcome_unknown"),
        ("back", [old], "old", "succeeded"),
    ]
    for name, after, told, status in cases:
        directory = tmp_path / name
        directory.mkdir()
        assert asyncio.run(_approve_after_deploy(directory, [old], after, told)) == [("act", status)]
    # The policy in force when the model asked decides: one attempt, although the tool is a read by now.
    assert runs == ["now a read", "old"]


class _Unrenderable:
    pass


def _raise(error: Exception) -> Callable[[ToolCallContext], object]:
    def body(context: ToolCallContext) -> object:
        raise error

    return body


@pytest.mark.parametrize("effect", list(ToolEffect))
@pytest.mark.parametrize(
    ("body", "told"),
    [
        (_raise(ToolExecutionError("no such order")), "no such order"),
        (_raise(ToolExecutionError("")), "the tool failed without a message"),
        (lambda context: _Unrenderable(), "cannot be turned into text"),
        (lambda context: {1: object()}, "cannot be turned into text"),
    ],
)
def test_f30_a_failure_for_the_model_is_not_repeated(
    tmp_path: Path, effect: ToolEffect, body: Callable[[ToolCallContext], object], told: str
) -> None:
    async def scenario() -> None:
        runs: list[tuple[str, int]] = []
        model = StrictModel(script([calls(call("act")), say("told")]))
        tool = counting_tool(body, effect, runs)
        async with open_sessions(tmp_path, model, [tool], tool_policies={"act": FREE}) as sessions:
            await sessions.client.start_session("s", initial_message="go")
            assert await sessions.completed("s") == "told"
            assert told in model.results()[0]
            assert len(runs) == 1
            assert await sessions.statuses("s") == [("act", "failed")]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "error", [TypeError("our own bug"), MemoryError(), RecursionError("deep"), OSError(28, "full")]
)
def test_f30_a_programming_error_is_tried_a_bounded_number_of_times(tmp_path: Path, error: Exception) -> None:
    async def scenario() -> None:
        runs: list[tuple[str, int]] = []
        model = StrictModel(script([calls(call("act")), say("told")]))
        tool = counting_tool(_raise(error), ToolEffect.READ, runs)
        async with open_sessions(tmp_path, model, [tool]) as sessions:
            await sessions.client.start_session("s", initial_message="go")
            assert await sessions.completed("s") == "told"
            assert [attempt for _, attempt in runs] == [1, 2, 3]
            assert type(error).__name__ in model.results()[0]

    asyncio.run(scenario())


def test_f30_arguments_that_do_not_fit_the_schema_are_not_repeated(tmp_path: Path) -> None:
    async def scenario() -> None:
        @function_tool(effect="read")
        def act(number: int) -> str:
            raise AssertionError("the arguments do not fit")

        model = StrictModel(script([calls(call("act", {"number": "many"}), call("act", {"numbre": 1})), say("told")]))
        async with open_sessions(tmp_path, model, [act]) as sessions:
            await sessions.client.start_session("s", initial_message="go")
            assert await sessions.completed("s") == "told"
            wrong_type, wrong_name = model.results()
            assert "'many' is not of type integer" in wrong_type
            assert "number" in wrong_name
            assert await sessions.attempts("s", "CallTool") == [(1, "succeeded"), (1, "succeeded")]

    asyncio.run(scenario())
