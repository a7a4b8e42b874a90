"""Each model call of a session reads byte for byte what the model of a native `Runner.run` reads.

The agents follow the patterns of the SDK's published examples, written anew: routing, deterministic flows, agents as
tools, guardrails on tools, forced tool use, lifecycle hooks, image results, structured output, message filters.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    HandoffInputData,
    ModelSettings,
    ProgrammaticToolCallingTool,
    RunConfig,
    RunContextWrapper,
    Runner,
    StopAtTools,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    ToolOutputFileContent,
    ToolOutputGuardrailData,
    ToolOutputImage,
    ToolsToFinalOutputResult,
    function_tool,
    handoff,
    tool_input_guardrail,
    tool_namespace,
    tool_output_guardrail,
)
from agents.extensions import handoff_filters
from openai.types.responses import Response
from openai_agents_sessions import open_session
from pydantic import BaseModel

from dex_agents_openai_agents.testing import ScriptedModel, call_item, reasoning_item, refusal_item, text_item


@dataclass
class Customer:
    """The application's context."""

    name: str = "Ada"
    is_staff: bool = True


@function_tool
def weather(city: str) -> str:
    """The weather of a city.

    Args:
        city: Its name.
    """
    return f"sunny in {city}"


@function_tool
async def customer_name(context: RunContextWrapper[Customer]) -> str:
    """Who asks."""
    await asyncio.sleep(0)
    return context.context.name


@function_tool
def broken(order: int) -> str:
    """Fails."""
    raise LookupError(f"there is no order {order}")


def _apology(context: RunContextWrapper[Any], error: Exception) -> str:
    return f"Sorry: {error}"


@function_tool(failure_error_function=_apology)
def politely_broken() -> str:
    """Fails with words of its own."""
    raise LookupError("nothing here")


@function_tool
def photo() -> ToolOutputImage:
    """A picture."""
    return ToolOutputImage(image_url="data:image/png;base64,iVBORw0KGgo=", detail="low")


@function_tool
def report() -> list[ToolOutputFileContent]:
    """A file."""
    return [ToolOutputFileContent(file_data="data:text/plain;base64,aGk=", filename="report.txt")]


@function_tool
def numbers() -> dict[str, Any]:
    """Not text."""
    return {"sum": 3, "parts": [1, 2]}


@function_tool(strict_mode=False)
def search(query: str = "all", limit: int = 3) -> str:
    """A tool whose schema is not strict."""
    return f"{limit} of {query}"


@tool_input_guardrail
def no_secrets(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
    """Refuses calls with a password."""
    if "password" in data.context.tool_arguments:
        return ToolGuardrailFunctionOutput.reject_content("Do not send passwords.")
    return ToolGuardrailFunctionOutput.allow()


@tool_output_guardrail
def no_numbers(data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
    """Withholds card numbers."""
    if "4111" in str(data.output):
        return ToolGuardrailFunctionOutput.reject_content("withheld")
    return ToolGuardrailFunctionOutput.allow()


@function_tool(tool_input_guardrails=[no_secrets], tool_output_guardrails=[no_numbers])
def look_up(text: str) -> str:
    """Guarded on both sides."""
    return "card 4111" if text == "card" else f"found {text}"


class Forecast(BaseModel):
    """A structured answer."""

    city: str
    degrees: int


class Reason(BaseModel):
    """Why a handoff is made."""

    reason: str


async def _noted(context: RunContextWrapper[Any], reason: Reason) -> None:
    await asyncio.sleep(0)


def _greets(context: RunContextWrapper[Customer], agent: Agent[Customer]) -> str:
    return f"{agent.name}: {len(agent.tools)} tools, {len(agent.handoffs)} handoffs; {context.context.name} asks."


def _is_staff(context: RunContextWrapper[Customer], agent: Any) -> bool:
    return context.context.is_staff


def _is_guest(context: RunContextWrapper[Customer], agent: Any) -> bool:
    return not context.context.is_staff


def _keeps_first_and_last(data: HandoffInputData) -> HandoffInputData:
    assert isinstance(data.input_history, tuple)
    if data.new_items or data.pre_handoff_items:  # a native run, which holds back what the run itself made
        return data.clone(pre_handoff_items=(), new_items=())
    return data.clone(input_history=data.input_history[:1])


def _until_found(context: RunContextWrapper[Any], results: list[Any]) -> ToolsToFinalOutputResult:
    found = next((result.output for result in results if "sunny" in str(result.output)), None)
    return ToolsToFinalOutputResult(is_final_output=found is not None, final_output=found)


@function_tool(allowed_callers=["programmatic"])
def for_programs() -> str:
    """Only programs of the model call it."""
    return "7"


def _in_namespace(name: str, namespace: str, arguments: dict[str, Any]) -> Any:
    return call_item(name, arguments).model_copy(update={"namespace": namespace})


def _program_with_a_call(name: str) -> list[Any]:
    program = {
        "type": "program",
        "id": "pr_1",
        "call_id": "p1",
        "code": "x()",
        "fingerprint": "f",
        "status": "completed",
    }
    call = {**call_item(name).model_dump(exclude_unset=True), "caller": {"type": "program", "caller_id": "p1"}}
    response = {"id": "r", "created_at": 0, "model": "m", "object": "response", "output": [program, call]}
    settings = {"tool_choice": "auto", "tools": [], "parallel_tool_calls": True}
    return list(Response.model_validate({**response, **settings}).output)


BuildAgent = Callable[[ScriptedModel], Agent[Any]]


@dataclass(frozen=True)
class Case:
    """An agent, what its model says, and what the user says."""

    build: BuildAgent
    answers: list[Any]
    texts: tuple[str, ...] = ("hello",)
    run_config: Callable[[], RunConfig] = RunConfig


def _agent(model: ScriptedModel, **fields: Any) -> Agent[Any]:
    return Agent[Any](**{"name": "Assistant", "instructions": "You help.", "model": model, **fields})


def _triage(model: ScriptedModel, **fields: Any) -> Agent[Any]:
    billing = _agent(model, name="Billing", instructions="You bill.", tools=[weather], handoff_description="Money.")
    return _agent(model, name="Triage", handoffs=[billing], **fields)


def _filtered(model: ScriptedModel, input_filter: Any) -> Agent[Any]:
    billing = _agent(model, name="Billing", instructions="You bill.", tools=[weather])
    return _agent(model, name="Triage", tools=[weather], handoffs=[handoff(billing, input_filter=input_filter)])


def _helper_as_tool(model: ScriptedModel) -> Agent[Any]:
    helper_model = ScriptedModel([call_item("weather", {"city": "Oslo"})], [text_item("It is sunny.")])
    helper = _agent(helper_model, name="Helper", tools=[weather])
    return _agent(model, tools=[helper.as_tool("ask_helper", "Asks the helper.")])


SUNNY = [call_item("weather", {"city": "Oslo"}, "c1")]

CASES: dict[str, Case] = {
    "text_only": Case(_agent, [[text_item("hi", 1)], [text_item("still here", 2)]], ("hello", "again")),
    "sync_tool": Case(lambda m: _agent(m, tools=[weather]), [SUNNY, [text_item("sunny")]]),
    "async_tool_with_context": Case(
        lambda m: _agent(m, tools=[customer_name]), [[call_item("customer_name")], [text_item("Ada")]]
    ),
    "parallel_calls": Case(
        lambda m: _agent(m, tools=[weather, customer_name, numbers]),
        [
            [
                reasoning_item("three things"),
                call_item("numbers", "{}", "c1"),
                call_item("weather", {"city": "Rome"}, "c2"),
                call_item("customer_name", "{}", "c3"),
            ],
            [text_item("done")],
        ],
    ),
    "failing_tools": Case(
        lambda m: _agent(m, tools=[broken, politely_broken]),
        [[call_item("broken", {"order": 7}, "c1"), call_item("politely_broken", "{}", "c2")], [text_item("sorry")]],
    ),
    "reasoning_and_text_beside_calls": Case(
        lambda m: _agent(m, tools=[weather]),
        [
            [reasoning_item("look it up", 1), text_item("One moment.", 1), *SUNNY],
            [reasoning_item("got it", 2, "second=="), text_item("sunny", 2)],
            [text_item("bye", 3)],
        ],
        ("weather?", "thanks"),
    ),
    "image_and_file_results": Case(
        lambda m: _agent(m, tools=[photo, report]),
        [[call_item("photo", "{}", "c1"), call_item("report", "{}", "c2")], [text_item("a picture")]],
    ),
    "schema_that_is_not_strict": Case(
        lambda m: _agent(m, tools=[search]), [[call_item("search", '{"query": "x"}')], [text_item("three")]]
    ),
    "chain_of_calls": Case(
        lambda m: _agent(m, tools=[weather]),
        [*([call_item("weather", {"city": f"city {n}"}, f"c{n}")] for n in range(4)), [text_item("all sunny")]],
    ),
    "handoff": Case(
        _triage,
        [
            [call_item("transfer_to_billing", "{}", "h1")],
            SUNNY,
            [text_item("billed", 1)],
            [text_item("still billing", 2)],
        ],
        ("bill me", "again"),
    ),
    "handoff_beside_a_tool": Case(
        lambda m: _triage(m, tools=[weather]),
        [[call_item("transfer_to_billing", "{}", "h1"), *SUNNY], [text_item("billed")]],
    ),
    "two_handoffs_at_once": Case(
        lambda m: _agent(m, handoffs=[_agent(m, name="Billing"), _agent(m, name="Refunds")]),
        [
            [call_item("transfer_to_billing", "{}", "h1"), call_item("transfer_to_refunds", "{}", "h2")],
            [text_item("billed")],
        ],
    ),
    "handoff_and_back": Case(
        lambda m: _with_way_back(_triage(m)),
        [
            [call_item("transfer_to_billing", "{}", "h1")],
            [call_item("transfer_to_triage", "{}", "h2")],
            [text_item("back")],
        ],
    ),
    "handoff_with_input": Case(
        lambda m: _agent(m, handoffs=[handoff(_agent(m, name="Billing"), on_handoff=_noted, input_type=Reason)]),
        [[call_item("transfer_to_billing", {"reason": "money"}, "h1")], [text_item("billed")]],
    ),
    "handoff_without_tool_items": Case(
        lambda m: _filtered(m, handoff_filters.remove_all_tools),
        [
            SUNNY,
            [call_item("transfer_to_billing", "{}", "h1")],
            [call_item("weather", {"city": "B"}, "c2")],
            [text_item("billed")],
        ],
    ),
    "structured_output": Case(
        lambda m: _agent(m, output_type=Forecast, tools=[weather]),
        [SUNNY, [text_item('{"city": "Oslo", "degrees": 20}')]],
    ),
    "instructions_from_a_function": Case(
        lambda m: _agent(m, instructions=_greets, tools=[weather], handoffs=[_agent(m, name="Billing")]),
        [SUNNY, [text_item("hello Ada")]],
    ),
    "tools_and_handoffs_by_context": Case(
        lambda m: _agent(
            m,
            tools=[
                function_tool(lambda: "secret", name_override="staff_only", is_enabled=_is_staff),
                function_tool(lambda: "tour", name_override="guests_only", is_enabled=_is_guest),
            ],
            handoffs=[
                handoff(_agent(m, name="Office"), is_enabled=_is_staff),
                handoff(_agent(m, name="Lobby"), is_enabled=_is_guest),
            ],
        ),
        [[call_item("staff_only")], [text_item("a secret")]],
    ),
    "required_tool_choice": Case(
        lambda m: _agent(m, tools=[weather], model_settings=ModelSettings(tool_choice="required")),
        [SUNNY, [text_item("sunny")]],
    ),
    "required_tool_choice_that_stays": Case(
        lambda m: _agent(
            m,
            tools=[weather],
            model_settings=ModelSettings(tool_choice="required"),
            reset_tool_choice=False,
            tool_use_behavior=_until_found,
        ),
        [[call_item("weather", {"city": "Oslo"}, "c1")]],
    ),
    "stop_on_first_tool": Case(
        lambda m: _agent(m, tools=[weather, numbers], tool_use_behavior="stop_on_first_tool"),
        [[*SUNNY, call_item("numbers", "{}", "c2")], [text_item("bye")]],
        ("weather?", "thanks"),
    ),
    "stop_at_tools": Case(
        lambda m: _agent(m, tools=[weather, numbers], tool_use_behavior=StopAtTools(stop_at_tool_names=["weather"])),
        [[call_item("numbers", "{}", "c1")], [call_item("weather", {"city": "Oslo"}, "c2")]],
    ),
    "agent_as_tool": Case(_helper_as_tool, [[call_item("ask_helper", {"input": "weather?"})], [text_item("sunny")]]),
    "guarded_tool": Case(
        lambda m: _agent(m, tools=[look_up]),
        [
            [
                call_item("look_up", {"text": "password"}, "c1"),
                call_item("look_up", {"text": "card"}, "c2"),
                call_item("look_up", {"text": "shoe"}, "c3"),
            ],
            [text_item("done")],
        ],
    ),
    "unknown_tool": Case(
        lambda m: _agent(m, tools=[weather]),
        [[call_item("no_such_tool", '{"a": 1}', "c1")], [text_item("sorry")]],
        run_config=lambda: RunConfig(tool_not_found_behavior="return_error_to_model"),
    ),
    "texts_of_the_runs_error_formatter": Case(
        lambda m: _agent(m, tools=[broken, politely_broken]),
        [[call_item("broken", {"order": 7}, "c1"), call_item("politely_broken", "{}", "c2")], [text_item("sorry")]],
        run_config=lambda: RunConfig(tool_error_formatter=lambda error: f"{error.kind} in {error.tool_name}"),
    ),
    "tools_in_a_namespace": Case(
        lambda m: _agent(m, tools=tool_namespace(name="crm", description="Customers.", tools=[weather])),
        [[_in_namespace("weather", "crm", {"city": "Oslo"})], [text_item("sunny")]],
    ),
    "calls_of_a_program": Case(
        lambda m: _agent(m, tools=[for_programs, ProgrammaticToolCallingTool()]),
        [_program_with_a_call("for_programs"), [text_item("seven")]],
    ),
    "input_filter_of_the_run": Case(
        lambda m: _agent(m, tools=[weather]),
        [SUNNY, [text_item("sunny")]],
        run_config=lambda: RunConfig(call_model_input_filter=_adds_a_line),
    ),
    "reasoning_without_ids": Case(
        lambda m: _agent(m, tools=[weather]),
        [[reasoning_item("look"), *SUNNY], [text_item("sunny")]],
        run_config=lambda: RunConfig(reasoning_item_id_policy="omit"),
    ),
}


def _with_way_back(triage: Agent[Any]) -> Agent[Any]:
    billing = triage.handoffs[0]
    assert isinstance(billing, Agent)
    billing.handoffs.append(triage)
    return triage


def _adds_a_line(data: Any) -> Any:
    data.model_data.instructions = f"{data.model_data.instructions} Be brief, {data.context.name}."
    return data.model_data


async def _native(case: Case) -> tuple[ScriptedModel, list[str]]:
    model = ScriptedModel(*case.answers)
    agent, history, outputs = case.build(model), list[Any](), []
    for text in case.texts:
        result = await Runner.run(
            agent, [*history, {"role": "user", "content": text}], context=Customer(), run_config=case.run_config()
        )
        agent, history = result.last_agent, result.to_input_list()
        outputs.append(result.final_output)
    return model, outputs


def _read(model: ScriptedModel) -> str:
    """Everything the model was asked, as text."""
    requests = [
        {
            "instructions": request.instructions,
            "items": request.items,
            "tools": request.tools,
            "tool_choice": request.tool_choice,
            "output_schema": request.output_schema,
        }
        for request in model.requests
    ]
    return json.dumps(requests, indent=1, sort_keys=True)


@pytest.mark.parametrize("name", CASES)
def test_a_session_asks_the_model_what_a_native_run_asks(name: str, tmp_path: Path) -> None:
    async def main() -> None:
        case = CASES[name]
        native, native_outputs = await _native(case)
        model = ScriptedModel(*case.answers)
        async with open_session(
            case.build(model), tmp_path, context_factory=lambda step: Customer(), run_config=case.run_config()
        ) as session:
            answers = [await session.answer_of(text) for text in case.texts]
        assert _read(model) == _read(native)
        assert not model.answers
        shown = [o.model_dump_json() if isinstance(o, BaseModel) else str(o) for o in native_outputs]
        assert [answer.replace(" ", "") for answer in answers] == [text.replace(" ", "") for text in shown]

    asyncio.run(main())


def test_a_handoff_filter_keeps_its_effect_for_the_rest_of_the_turn(tmp_path: Path) -> None:
    async def main() -> None:
        answers: list[Any] = [
            SUNNY,
            [call_item("transfer_to_billing", "{}", "h1")],
            [call_item("weather", {"city": "B"}, "c2")],
            [text_item("billed", 1)],
            [text_item("all of it", 2)],
        ]
        model = ScriptedModel(*answers)
        async with open_session(_filtered(model, _keeps_first_and_last), tmp_path) as session:
            await session.answer_of("hello")
            await session.answer_of("and now?")
        assert [len(request.items) for request in model.requests] == [1, 3, 1, 3, 9]
        assert model.requests[3].items[1]["call_id"] == "c2"

    asyncio.run(main())


def test_a_refusal_of_the_model_ends_the_turn_with_its_text(tmp_path: Path) -> None:
    async def main() -> None:
        model = ScriptedModel([refusal_item("I must not.")], [text_item("hello", 2)])
        async with open_session(_agent(model), tmp_path) as session:
            assert await session.answer_of("do it") == "I must not."
            await session.answer_of("hello")
        assert model.requests[1].items[1]["content"] == [{"refusal": "I must not.", "type": "refusal"}]

    asyncio.run(main())
