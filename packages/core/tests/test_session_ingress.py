from typing import Any

import pytest

from dex_agents.runner import (
    DeferredToolCall,
    ModelStepContinues,
    ResolvedToolPolicy,
    ToolCallsRequested,
    ToolExecutionError,
    ToolExecutionResult,
    ToolInputRequested,
    ToolTaskStarted,
    TurnCompleted,
    TurnRefusedError,
)
from dex_agents.session.ingress import (
    RunnerContractError,
    failed_tool_call,
    model_step_outcome,
    refused_model_step,
    tool_outcome,
    unfinished_turn_outcome,
)
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import (
    ModelStepCompleted,
    ModelStepContinued,
    ModelStepRefused,
    ModelStepToolCallsRequested,
    ToolCallFailed,
    ToolCallInputRequested,
    ToolCallSucceeded,
    ToolCallTaskStarted,
)
from dex_agents.session.tool_values import ToolEffect
from dex_agents.session.values import AgentMessageToolCall, AgentUsage, FrameworkMessage
from dex_flow.codec import encode

OPTIONS = AgentSessionOptions()
READ = ResolvedToolPolicy(effect=ToolEffect.READ, requires_approval=False)
NASTY = "\ud800 \0"
REPAIRED = "\ufffd \ufffd"


def assistant(text: str = "done", **fields: Any) -> FrameworkMessage:
    return FrameworkMessage(role="assistant", framework_item='{"x":1}', text=text, **fields)


def call(**fields: Any) -> DeferredToolCall:
    return DeferredToolCall(
        **{"tool_call_id": "c1", "tool_name": "lookup", "arguments": "{}", "policy": READ, **fields}
    )


def test_every_text_of_a_model_step_is_repaired() -> None:
    outcome = model_step_outcome(
        ToolCallsRequested(
            framework_run_state=f'{{"s":"{NASTY}\\ud800"}}',
            tool_calls=(
                call(tool_call_id=NASTY, tool_name=NASTY, arguments='{"a":"\ud800"}', tool_source_reference=NASTY),
            ),
            new_messages=(
                FrameworkMessage(
                    role="assistant",
                    framework_item=f'"{NASTY}\\ud800"',
                    text=NASTY,
                    reasoning_text=NASTY,
                    tool_calls=(AgentMessageToolCall(tool_call_id=NASTY, tool_name=NASTY, arguments=NASTY),),
                    tool_call_id=NASTY,
                ),
            ),
        ),
        OPTIONS,
    )
    stored = encode(outcome).decode()
    assert "\\u0000" not in stored
    assert isinstance(outcome, ModelStepToolCallsRequested)
    assert outcome.tool_calls[0].tool_call_id == outcome.tool_calls[0].tool_name == REPAIRED
    assert outcome.tool_calls[0].arguments == '{"a":"\ufffd"}'
    assert outcome.new_messages[0].framework_item == f'"{REPAIRED}\\ufffd"'
    assert outcome.new_messages[0].text == outcome.new_messages[0].reasoning_text == REPAIRED


@pytest.mark.parametrize(
    ("usage", "stored"),
    [
        (None, AgentUsage(model_calls=1)),
        (AgentUsage(), AgentUsage()),
        (AgentUsage(model_calls=1, input_tokens=5), AgentUsage(model_calls=1, input_tokens=5)),
        (
            AgentUsage(model_calls=None, input_tokens=None, output_tokens=7),  # type: ignore[arg-type]
            AgentUsage(model_calls=1, output_tokens=7),
        ),
        (AgentUsage(model_calls=1, input_tokens=-3), AgentUsage(model_calls=1)),
    ],
)
def test_missing_usage_counts_one_model_call_and_unknown_tokens_count_nothing(
    usage: AgentUsage | None, stored: AgentUsage
) -> None:
    outcome = model_step_outcome(TurnCompleted(new_messages=(assistant(),), usage=usage), OPTIONS)
    assert isinstance(outcome, ModelStepCompleted)
    assert outcome.usage == stored


def test_invalid_arguments_are_checked_before_they_are_stored() -> None:
    outcome = model_step_outcome(
        ToolCallsRequested(framework_run_state="s", tool_calls=(call(arguments="[1]"), call(arguments=" "))), OPTIONS
    )
    assert isinstance(outcome, ModelStepToolCallsRequested)
    first, second = outcome.tool_calls
    assert first.arguments == "{}"
    assert "not a JSON object" in (first.arguments_error or "")
    assert (second.arguments, second.arguments_error) == ("{}", None)


def test_a_continuing_step_keeps_its_state_and_messages() -> None:
    outcome = model_step_outcome(ModelStepContinues(framework_run_state="s", new_messages=(assistant(),)), OPTIONS)
    assert outcome == ModelStepContinued(
        framework_run_state="s", new_messages=(assistant(),), usage=AgentUsage(model_calls=1)
    )


def test_a_message_too_large_to_store_refuses_the_turn_and_keeps_the_usage() -> None:
    options = AgentSessionOptions(max_message_bytes=64 * 1024)
    outcome = model_step_outcome(TurnCompleted(new_messages=(assistant("日" * 30_000),)), options)
    assert isinstance(outcome, ModelStepRefused)
    assert outcome.error_type == "MessageTooLargeError"
    assert "90007 bytes; the limit is 65536 bytes (max_message_bytes)" in outcome.message
    assert outcome.usage == AgentUsage(model_calls=1)


@pytest.mark.parametrize(
    ("outcome", "problem"),
    [
        (ToolCallsRequested(framework_run_state="s", tool_calls=()), "at least one tool call"),
        (ToolCallsRequested(framework_run_state="", tool_calls=(call(),)), "framework_run_state must not be empty"),
        (ModelStepContinues(framework_run_state=""), "framework_run_state must not be empty"),
        (ToolCallsRequested(framework_run_state=None, tool_calls=(call(),)), "must be text"),  # type: ignore[arg-type]
        (ToolCallsRequested(framework_run_state="s", tool_calls=({},)), "DeferredToolCall"),  # type: ignore[arg-type]
        (TurnCompleted(new_messages=("done",)), "FrameworkMessage"),  # type: ignore[arg-type]
        (TurnCompleted(new_messages=(assistant(7),)), "FrameworkMessage.text must be text"),  # type: ignore[arg-type]
        (None, "must return TurnCompleted"),
    ],
)
def test_a_broken_runner_contract_is_named(outcome: Any, problem: str) -> None:
    with pytest.raises(RunnerContractError, match=problem):
        model_step_outcome(outcome, OPTIONS)


def test_a_refusal_names_its_error() -> None:
    class ContextTooLongError(TurnRefusedError):
        pass

    assert refused_model_step(ContextTooLongError(f"too long {NASTY}")) == ModelStepRefused(
        error_type="ContextTooLongError", message=f"too long {REPAIRED}"
    )


def test_a_tool_result_is_repaired() -> None:
    result = ToolExecutionResult(output=NASTY, framework_result=NASTY)
    assert tool_outcome(result, "lookup", OPTIONS) == ToolCallSucceeded(output=REPAIRED, framework_result=REPAIRED)


def test_a_tool_failure_is_repaired_and_never_blank() -> None:
    assert failed_tool_call(ToolExecutionError(NASTY), OPTIONS).message == REPAIRED
    assert failed_tool_call(ToolExecutionError(), OPTIONS).message == "the tool failed without a message"


def test_a_tool_failure_hands_the_frameworks_own_form_back() -> None:
    failure = failed_tool_call(ToolExecutionError("broken", framework_result=NASTY), OPTIONS)
    assert failure == ToolCallFailed(message="broken", framework_result=REPAIRED)
    options = AgentSessionOptions(max_message_bytes=65_536)
    too_large = ToolExecutionError("broken", framework_result="x" * 70_000)
    assert failed_tool_call(too_large, options) == ToolCallFailed(message="broken")


@pytest.mark.parametrize(("size", "fits"), [(100, True), (1024, True), (1025, False), (5_000_000, False)])
def test_a_result_above_the_limit_fails_with_tool_name_and_size(size: int, fits: bool) -> None:
    options = AgentSessionOptions(max_tool_result_bytes=1024)
    outcome = tool_outcome(ToolExecutionResult(output="x" * size), "export", options)
    if fits:
        assert outcome == ToolCallSucceeded(output="x" * size)
    else:
        assert isinstance(outcome, ToolCallFailed)
        assert "export" in outcome.message
        assert f"{size} bytes and the limit is 1024 bytes" in outcome.message


@pytest.mark.parametrize("character", ["x", "ü", "日", "😀"])
def test_a_truncated_result_is_marked_and_never_splits_a_character(character: str) -> None:
    options = AgentSessionOptions(max_tool_result_bytes=1_025, tool_result_overflow="truncate")
    outcome = tool_outcome(ToolExecutionResult(output=character * 2_000), "export", options)
    assert isinstance(outcome, ToolCallSucceeded)
    kept, mark = outcome.output.split("\n")
    assert set(kept) == {character}
    assert f"{len(character.encode()) * 2_000} bytes" in mark
    assert 1_025 - 4 < len(outcome.output.encode()) <= 1_025


def test_a_huge_opaque_result_fails_rather_than_being_cut() -> None:
    options = AgentSessionOptions(max_message_bytes=64 * 1024, tool_result_overflow="truncate")
    outcome = tool_outcome(ToolExecutionResult(output="ok", framework_result="x" * 70_000), "export", options)
    assert isinstance(outcome, ToolCallFailed)
    assert "70000 bytes" in outcome.message


def test_questions_and_tasks_are_repaired() -> None:
    question = ToolInputRequested(question=NASTY, choices=(NASTY,), allows_free_text=False, continuation=NASTY)
    assert tool_outcome(question, "ask", OPTIONS) == ToolCallInputRequested(
        question=REPAIRED, choices=(REPAIRED,), allows_free_text=False, continuation=REPAIRED
    )


@pytest.mark.parametrize(
    ("seconds", "stored"), [(0, 1), (0.2, 1), (1.2, 2), (90_000.0, 86_400), (float("inf"), 86_400)]
)
def test_a_poll_interval_is_whole_seconds_from_one_to_a_day(seconds: float, stored: int) -> None:
    task = ToolTaskStarted(task_id="t", poll_interval_seconds=seconds)
    assert tool_outcome(task, "t", OPTIONS) == ToolCallTaskStarted(task_id="t", poll_interval_seconds=stored)


@pytest.mark.parametrize("result", [None, "text", ToolExecutionResult(output=b"bytes")])  # type: ignore[arg-type]
def test_a_tool_result_of_another_type_breaks_the_contract(result: Any) -> None:
    with pytest.raises(TypeError, match=r"must return|must be text"):
        tool_outcome(result, "lookup", OPTIONS)


def test_unfinished_turn_messages_or_why_there_are_none() -> None:
    assert unfinished_turn_outcome((assistant(),), None, OPTIONS).messages == (assistant(),)
    assert unfinished_turn_outcome((), KeyError("gone"), OPTIONS).error == "KeyError: 'gone'"
    broken = unfinished_turn_outcome(({},), None, OPTIONS)  # type: ignore[arg-type]
    assert broken.messages == ()
    assert "RunnerContractError" in (broken.error or "")


def test_a_broken_runner_contract_is_not_tried_again() -> None:
    error = RunnerContractError("run_model_step must return an outcome")
    assert error.is_retryable is False


def test_a_tool_output_that_is_no_text_names_the_field() -> None:
    with pytest.raises(RunnerContractError, match=r"ToolExecutionResult\.output"):
        tool_outcome(ToolExecutionResult(output=b"bytes"), "lookup", AgentSessionOptions())  # type: ignore[arg-type]
