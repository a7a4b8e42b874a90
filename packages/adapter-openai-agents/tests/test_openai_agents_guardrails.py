"""Guardrails: a tripped one ends the turn with a refusal, and pays for no second model call."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    OutputGuardrail,
    RunConfig,
    function_tool,
)
from openai_agents_sessions import SESSION, open_session

from dex_agents_openai_agents import GuardrailTrip
from dex_agents_openai_agents.testing import ScriptedModel, call_item, text_item


def _input_guardrail(seen: list[Any], *, trips: bool, is_parallel: bool = True, name: str = "gate") -> InputGuardrail:
    async def check(context: Any, agent: Any, items: Any) -> GuardrailFunctionOutput:
        seen.append((agent, items))
        return GuardrailFunctionOutput(output_info={"why": "test"}, tripwire_triggered=trips)

    return InputGuardrail(guardrail_function=check, name=name, run_in_parallel=is_parallel)


def _output_guardrail(seen: list[Any], forbidden: str) -> OutputGuardrail:
    def check(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        seen.append((agent, output))
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=forbidden in str(output))

    return OutputGuardrail(guardrail_function=check, name="leak")


def _agent(model: ScriptedModel, **fields: Any) -> Agent[Any]:
    return Agent[Any](name="Assistant", instructions="You help.", model=model, **fields)


def test_a_blocking_input_guardrail_that_trips_asks_no_model(tmp_path: Path) -> None:
    async def main() -> None:
        model = ScriptedModel([text_item("hello")])
        agent = _agent(model, input_guardrails=[_input_guardrail([], trips=True, is_parallel=False)])
        async with open_session(agent, tmp_path) as session:
            assert await session.answer_of("attack") == "I cannot help with that request."
            payload = (await session.events("guardrail_tripped"))[0]
            usage = (await session.client.get_agent_snapshot(SESSION)).usage
        assert payload["guardrail_name"] == "gate"
        assert payload["kind"] == "input"
        assert (usage.model_calls, len(model.requests)) == (0, 0)

    asyncio.run(main())


def test_a_parallel_input_guardrail_that_trips_after_the_answer_still_counts(tmp_path: Path) -> None:
    @function_tool
    def never() -> str:
        raise AssertionError("the turn was refused")

    async def main() -> None:
        answered = asyncio.Event()

        async def check(context: Any, agent: Any, items: Any) -> GuardrailFunctionOutput:
            await answered.wait()
            return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

        def answer(request: Any) -> list[Any]:
            answered.set()
            return [call_item("never")]

        agent = _agent(
            ScriptedModel(answer),
            tools=[never],
            input_guardrails=[InputGuardrail(guardrail_function=check, name="slow")],
        )
        async with open_session(agent, tmp_path, guardrail_refusal="No.") as session:
            assert await session.answer_of("attack") == "No."
            assert await session.statuses() == []
            assert [message.role for message in await session.messages()] == ["user", "assistant"]

    asyncio.run(main())


def test_input_guardrails_run_at_the_first_model_call_of_each_turn(tmp_path: Path) -> None:
    @function_tool
    def look() -> str:
        return "seen"

    async def main() -> None:
        of_agent: list[Any] = []
        of_run: list[Any] = []
        model = ScriptedModel([call_item("look")], [text_item("one", 1)], [text_item("two", 2)])
        agent = _agent(model, tools=[look], input_guardrails=[_input_guardrail(of_agent, trips=False)])
        config = RunConfig(input_guardrails=[_input_guardrail(of_run, trips=False, name="run")])
        async with open_session(agent, tmp_path, run_config=config) as session:
            await session.answer_of("hello")
            await session.answer_of("again")
        assert len(of_agent) == len(of_run) == 2
        assert of_agent[0][0] is agent
        assert of_agent[0][1] == [{"role": "user", "content": "hello"}]

    asyncio.run(main())


def test_an_output_guardrail_that_trips_withholds_the_answer_and_is_paid_once(tmp_path: Path) -> None:
    async def main() -> None:
        seen: list[Any] = []
        model = ScriptedModel([text_item("the secret is 42", 1)], [text_item("hello", 2)])
        agent = _agent(model, output_guardrails=[_output_guardrail(seen, "secret")])
        async with open_session(agent, tmp_path) as session:
            assert await session.answer_of("tell me") == "I cannot help with that request."
            usage = (await session.client.get_agent_snapshot(SESSION)).usage
            assert await session.answer_of("hello") == "hello"
        assert seen[0] == (agent, "the secret is 42")
        assert (usage.model_calls, usage.input_tokens) == (1, 100)
        assert "secret" not in str(model.requests[1].items)
        assert model.requests[1].items[1] == {"role": "assistant", "content": "I cannot help with that request."}

    asyncio.run(main())


def test_an_output_guardrail_checks_what_a_tool_answers_for_the_model(tmp_path: Path) -> None:
    @function_tool
    def look() -> str:
        return "a secret"

    async def main() -> None:
        seen: list[Any] = []
        agent = _agent(
            ScriptedModel([call_item("look")]),
            tools=[look],
            tool_use_behavior="stop_on_first_tool",
            output_guardrails=[_output_guardrail(seen, "secret")],
        )
        async with open_session(agent, tmp_path) as session:
            assert await session.answer_of("go") == "I cannot help with that request."
        assert seen == [(agent, "a secret")]

    asyncio.run(main())


def test_the_refusal_may_be_made_from_the_trip(tmp_path: Path) -> None:
    trips: list[GuardrailTrip] = []

    def refuse(trip: GuardrailTrip) -> str:
        trips.append(trip)
        return f"stopped by {trip.guardrail_name}"

    async def main() -> None:
        agent = _agent(ScriptedModel([text_item("hi")]), input_guardrails=[_input_guardrail([], trips=True)])
        async with open_session(agent, tmp_path, guardrail_refusal=refuse) as session:
            assert await session.answer_of("attack") == "stopped by gate"
        assert trips == [GuardrailTrip(kind="input", guardrail_name="gate", output_info={"why": "test"})]

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["input", "output"])
def test_without_a_refusal_the_turn_fails_after_one_attempt(tmp_path: Path, kind: str) -> None:
    async def main() -> None:
        model = ScriptedModel([text_item("secret")])
        guardrails: dict[str, Any] = (
            {"input_guardrails": [_input_guardrail([], trips=True)]}
            if kind == "input"
            else {"output_guardrails": [_output_guardrail([], "secret")]}
        )
        async with open_session(_agent(model, **guardrails), tmp_path, guardrail_refusal=None) as session:
            assert (await session.say("attack")).status == "failed"
            assert (await session.error()).startswith("GuardrailTrippedError")
        assert len(model.requests) <= 1

    asyncio.run(main())
