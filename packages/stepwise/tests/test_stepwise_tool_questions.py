"""Questions of function tools: asked before the tool takes effect, and answered on its next run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from dex_agents import (
    DeferredToolOutcome,
    QuestionAnswer,
    ToolExecutionError,
    ToolExecutionResult,
    ToolInputRequested,
)
from dex_agents.session.texts import QUESTION_DEADLINE_PASSED, QUESTION_DECLINED
from dex_agents_stepwise import (
    FunctionTool,
    SwallowedQuestionError,
    ToolCallContext,
    ToolInputRequired,
    function_tool,
)

from .stepwise_session_driver import tool_call, tool_execution

WHICH = "Refund to which account?"
SURE = "Really all of it?"

effects: list[str] = []


@function_tool
def refund_in_thread(amount: int, context: ToolCallContext) -> str:
    account = context.ask_user(WHICH, choices=("card", "bank"), allows_free_text=False)
    if amount > 100 and context.ask_user(SURE, continuation="asked twice") != "yes":
        return "nothing refunded"
    effects.append(account)
    return f"refunded {amount} to the {account}"


@function_tool
async def refund_on_loop(amount: int, context: ToolCallContext) -> str:
    await asyncio.sleep(0)
    return refund_in_thread(amount, context)


REFUNDS = [refund_in_thread, refund_on_loop]


def answered(*pairs: tuple[str, str]) -> tuple[QuestionAnswer, ...]:
    return tuple(QuestionAnswer(question=question, answer=answer) for question, answer in pairs)


def run(
    tool: FunctionTool[..., Any], answers: Sequence[QuestionAnswer] = (), arguments: str = "{}", **fields: Any
) -> DeferredToolOutcome:
    execution = tool_execution(tool_call(tool.name, arguments, **fields), input_answers=tuple(answers))
    return asyncio.run(tool.execute(execution))


@pytest.mark.parametrize("tool", REFUNDS, ids=lambda tool: tool.name)
def test_each_question_ends_the_run_until_it_has_an_answer(tool: FunctionTool[..., Any]) -> None:
    effects.clear()
    large = '{"amount": 500}'
    assert run(tool, arguments=large) == ToolInputRequested(
        question=WHICH, choices=("card", "bank"), allows_free_text=False
    )
    assert run(tool, answered((WHICH, "card")), large) == ToolInputRequested(question=SURE, continuation="asked twice")
    assert effects == []
    assert run(tool, answered((WHICH, "card"), (SURE, "no")), large) == ToolExecutionResult(output="nothing refunded")
    assert effects == []
    outcome = run(tool, answered((WHICH, "card"), (SURE, "yes")), large)
    assert outcome == ToolExecutionResult(output="refunded 500 to the card")
    assert effects == ["card"]


def test_the_same_words_twice_are_two_questions() -> None:
    @function_tool
    def name_two(context: ToolCallContext) -> list[str]:
        return [context.ask_user("Name a file") for _ in range(2)]

    assert run(name_two) == ToolInputRequested(question="Name a file")
    assert run(name_two, answered(("Name a file", "a"))) == ToolInputRequested(question="Name a file")
    outcome = run(name_two, answered(("Name a file", "a"), ("Name a file", "b")))
    assert outcome == ToolExecutionResult(output='["a", "b"]')


def test_an_answer_never_counts_for_a_question_in_other_words() -> None:
    """A deploy or a changed price between two runs: the user has not seen the new words."""

    def tool(price: int) -> FunctionTool[..., Any]:
        @function_tool
        def buy(context: ToolCallContext) -> str:
            return context.ask_user(f"Buy for {price}?")

        return buy

    answers = answered(("Buy for 10?", "yes"))
    assert run(tool(10), answers) == ToolExecutionResult(output="yes")
    assert run(tool(20), answers) == ToolInputRequested(question="Buy for 20?")
    assert run(tool(20), (*answers, *answered(("Buy for 20?", "no")))) == ToolExecutionResult(output="no")


def test_words_that_the_session_repairs_still_find_their_answer() -> None:
    @function_tool
    def odd(context: ToolCallContext) -> str:
        return context.ask_user("a\ud800\0")

    assert run(odd, answered(("a\ufffd\ufffd", "fine"))) == ToolExecutionResult(output="fine")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (QuestionAnswer(question=WHICH, resolution="declined"), QUESTION_DECLINED),
        (QuestionAnswer(question=WHICH, resolution="declined", rejection_message="Not now"), "Not now"),
        (QuestionAnswer(question=WHICH, resolution="deadline_passed"), QUESTION_DEADLINE_PASSED),
    ],
)
def test_a_question_without_an_answer_is_a_failure_for_the_model(answer: QuestionAnswer, text: str) -> None:
    with pytest.raises(ToolExecutionError) as raised:
        run(refund_on_loop, (answer,), '{"amount": 5}')
    assert str(raised.value) == text


@pytest.mark.parametrize("is_async", [False, True])
def test_the_raw_form_returns_the_question_and_reads_the_answers(is_async: bool) -> None:
    def refund(context: ToolCallContext) -> str | ToolInputRequested:
        if not context.input_answers:
            return ToolInputRequested(question=WHICH, choices=("card",), continuation="page 2")
        return f"{context.input_answers[-1].answer} {context.input_continuation}"

    async def refund_async(context: ToolCallContext) -> str | ToolInputRequested:
        return refund(context)

    tool: FunctionTool[..., Any] = function_tool(refund_async) if is_async else function_tool(refund)
    assert run(tool) == ToolInputRequested(question=WHICH, choices=("card",), continuation="page 2")
    outcome = run(tool, answered((WHICH, "card")), input_continuation="page 2")
    assert outcome == ToolExecutionResult(output="card page 2")


def test_a_tool_that_asks_can_be_tested_like_a_function() -> None:
    with pytest.raises(ToolInputRequired) as raised:
        refund_in_thread(5, ToolCallContext(idempotency_key="key"))
    assert raised.value.request.choices == ("card", "bank")
    context = ToolCallContext(idempotency_key="key", input_answers=answered((WHICH, "bank")))
    assert refund_in_thread(5, context) == "refunded 5 to the bank"


def go_on(context: ToolCallContext) -> str:
    try:
        return context.ask_user(WHICH)
    except BaseException:
        return "went on"


async def ask_in_a_task_group(context: ToolCallContext) -> str:
    async def ask() -> None:
        context.ask_user(WHICH)

    async with asyncio.TaskGroup() as group:
        group.create_task(ask())
    return "went on"


@pytest.mark.parametrize("function", [go_on, ask_in_a_task_group])
def test_a_swallowed_question_is_named_and_not_tried_again(function: Callable[..., Any]) -> None:
    tool = function_tool(function)
    with pytest.raises(SwallowedQuestionError, match=tool.name) as raised:
        run(tool)
    assert raised.value.is_retryable is False
    assert isinstance(run(function_tool(go_on), answered((WHICH, "card"))), ToolExecutionResult)


def test_a_tool_may_clean_up_before_it_asks() -> None:
    @function_tool
    def tidy(context: ToolCallContext) -> str | ToolInputRequested:
        try:
            return context.ask_user(WHICH)
        except ToolInputRequired as required:
            return required.request

    assert run(tidy) == ToolInputRequested(question=WHICH)


def test_an_except_clause_for_errors_does_not_stop_a_question() -> None:
    @function_tool
    def careful(context: ToolCallContext) -> str:
        try:
            return context.ask_user(WHICH)
        except Exception:
            return "caught"

    assert run(careful) == ToolInputRequested(question=WHICH)


async def fail_in_a_task_group() -> None:
    async def fail() -> None:
        raise ConnectionResetError("reset")

    async with asyncio.TaskGroup() as group:
        group.create_task(fail())


def test_other_groups_of_errors_pass_through() -> None:
    with pytest.raises(ExceptionGroup) as raised:
        run(function_tool(fail_in_a_task_group))
    assert isinstance(raised.value.exceptions[0], ConnectionResetError)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"question": " "}, ValueError),
        ({"question": 3}, TypeError),
        ({"question": "?", "choices": "yes"}, TypeError),
        ({"question": "?", "choices": [1]}, TypeError),
        ({"question": "?", "choices": ["yes", " "]}, ValueError),
        ({"question": "?", "allows_free_text": False}, ValueError),
    ],
)
def test_a_question_nobody_could_answer_is_refused(fields: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        ToolCallContext(idempotency_key="key").ask_user(**fields)
