"""The examples of the README run, and do what the README says."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from dex_agents import QuestionAnswer, ToolExecutionResult, ToolInputRequested, ToolTaskPending, ToolTaskStarted
from dex_agents_stepwise import AgentDefinition, ScriptedModelClient, ScriptedModelReply, StepwiseAgentRunner

from .stepwise_session_driver import task_cancellation, task_poll, tool_call, tool_execution

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The names of all examples, run in order as one program."""
    monkeypatch.chdir(tmp_path)
    text = README.read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    # Not the test's own annotations, or the tools could not evaluate theirs.
    code = compile(program, "README.md", "exec", dont_inherit=True)
    names: dict[str, Any] = {"__name__": "readme_example"}
    exec(code, names)
    return names


@pytest.fixture
def runner(example: dict[str, Any]) -> StepwiseAgentRunner:
    model = ScriptedModelClient(lambda request: ScriptedModelReply())
    tools = [example["refund_order"], example["build_report"]]
    return StepwiseAgentRunner(AgentDefinition(name="readme", instructions="", model=model, tools=tools))


def test_the_examples_print_what_the_readme_says(example: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    printed = re.findall(r"It prints `(.*?)`", README.read_text(encoding="utf-8"))
    assert len(printed) == 3
    assert example["flow"].flow_type == "SupportAgent"
    assert capsys.readouterr().out.splitlines() == printed


def test_the_refund_asks_first(runner: StepwiseAgentRunner) -> None:
    def refund(*answers: tuple[str, str]) -> object:
        given = tuple(QuestionAnswer(question=question, answer=answer) for question, answer in answers)
        call = tool_execution(tool_call("refund_order", '{"order_id": 7}'), input_answers=given)
        return asyncio.run(runner.execute_deferred_tool_call(call))

    which = ToolInputRequested(question="Refund to which account?", choices=("card", "bank"), allows_free_text=False)
    assert refund() == which
    assert refund((which.question, "card")) == ToolExecutionResult(output="refunded order 7 to the card")
    assert refund((which.question, "bank")) == ToolInputRequested(question="Which IBAN?")
    answers = ((which.question, "bank"), ("Which IBAN?", "DE02"))
    assert refund(*answers) == ToolExecutionResult(output="refunded order 7 to DE02")


def test_the_report_is_started_once_polled_and_cancelled(runner: StepwiseAgentRunner, example: dict[str, Any]) -> None:
    saved: list[str] = []

    async def save(text: str) -> None:
        saved.append(text)

    def start(checkpoint: str | None) -> object:
        call = tool_execution(
            tool_call("build_report"),
            supports_tool_tasks=True,
            heartbeat_checkpoint=checkpoint,
            save_heartbeat_checkpoint=save,
        )
        return asyncio.run(runner.execute_deferred_tool_call(call))

    started = start(None)
    assert isinstance(started, ToolTaskStarted)
    assert saved == [started.task_id]
    assert start(saved[0]) == started
    assert len(saved) == len(example["reports"].jobs) == 1

    def poll(answer: QuestionAnswer | None = None) -> object:
        asked = task_poll(tool_call("build_report", task_id=started.task_id), pending_answer=answer)
        return asyncio.run(runner.poll_tool_task(asked))

    question = ToolInputRequested(question="In which currency?", choices=("EUR", "USD"))
    assert poll() == question
    declined = poll(QuestionAnswer(question=question.question, resolution="declined"))
    assert declined == ToolExecutionResult(output="There is no report without a currency.")
    pending = ToolTaskPending(poll_interval_seconds=5)
    assert poll(QuestionAnswer(question=question.question, answer="EUR")) == pending
    assert poll() == ToolExecutionResult(output="The report in EUR: all is well.")

    for _ in range(2):
        asyncio.run(runner.cancel_tool_task(task_cancellation(tool_call("build_report", task_id=started.task_id))))
    assert example["reports"].jobs == {}


@pytest.mark.parametrize("option", [field.name for field in dataclasses.fields(AgentDefinition)])
def test_every_field_of_the_definition_is_in_the_table(option: str) -> None:
    assert f"\n| `{option}` | " in README.read_text(encoding="utf-8")
