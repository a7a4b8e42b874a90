"""What a model step does with the model: streams, counts, cancels, chooses, and asks it once."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from agents import Agent, Model, ModelBehaviorError, ModelSettings, RunConfig, RunHooks, function_tool, handoff
from openai.types.responses import ResponseFunctionWebSearch
from openai.types.responses.response_function_web_search import ActionSearch
from openai_agents_sessions import SESSION, open_session
from pydantic import BaseModel

from dex_agents import AgentMessage, AgentTurnContext, TurnLimits, create_agent_session_flow
from dex_agents_openai_agents import OpenAIAgentsRunner, create_openai_agents_session_flow
from dex_agents_openai_agents.stored_items import StoredItems
from dex_agents_openai_agents.testing import ScriptedModel, call_item, reasoning_item, text_item


@function_tool
def look() -> str:
    """Looks."""
    return "seen"


class Forecast(BaseModel):
    """A structured answer."""

    degrees: int


def _agent(model: Model | str | None, **fields: Any) -> Agent[Any]:
    return Agent[Any](**{"name": "Assistant", "instructions": "You help.", "model": model, "tools": [look], **fields})


def _search(number: int = 1) -> ResponseFunctionWebSearch:
    return ResponseFunctionWebSearch(
        id=f"ws_{number}", type="web_search_call", status="completed", action=ActionSearch(type="search", query="x")
    )


def test_text_and_reasoning_stream_and_are_stored(tmp_path: Path) -> None:
    async def main() -> None:
        model = ScriptedModel([reasoning_item("let me think"), text_item("a long answer")])
        async with open_session(_agent(model), tmp_path) as session:
            await session.answer_of("hello")
            assert await session.streamed_text() == "a long answer"
            reasoning = "".join(event["text"] for event in await session.events("reasoning_delta"))
            message = (await session.messages())[1]
        assert reasoning == "let me think"
        assert (message.text, message.reasoning_text) == ("a long answer", "let me think")

    asyncio.run(main())


@pytest.mark.parametrize("is_streaming", [True, False])
def test_usage_reaches_the_session(tmp_path: Path, is_streaming: bool) -> None:
    async def main() -> None:
        model = ScriptedModel([call_item("look")], [text_item("done")])
        async with open_session(_agent(model), tmp_path, is_streaming=is_streaming) as session:
            await session.answer_of("hello")
            usage = (await session.client.get_agent_snapshot(SESSION)).usage
        assert (usage.model_calls, usage.input_tokens, usage.output_tokens, usage.total_tokens) == (2, 300, 30, 330)
        assert (usage.cached_input_tokens, usage.reasoning_tokens) == (14, 6)
        assert bool(model.closed_streams) is is_streaming

    asyncio.run(main())


def test_a_cancelled_turn_ends_the_model_call_and_stores_no_answer(tmp_path: Path) -> None:
    async def main() -> None:
        asked, never = asyncio.Event(), asyncio.Event()

        async def hang(request: Any) -> list[Any]:
            asked.set()
            await never.wait()
            return [text_item("too late")]

        model = ScriptedModel(hang, [text_item("hello again", 2)])
        async with open_session(_agent(model), tmp_path) as session:
            await session.client.start_session(SESSION, initial_message="hello")
            await asyncio.wait_for(asked.wait(), 30)
            tasks = asyncio.all_tasks()
            assert await session.client.cancel_turn(SESSION)
            await session.finished()
            assert model.closed_streams == 1
            left = {task for task in asyncio.all_tasks() - tasks if "run" in str(task.get_coro())}
            assert not [task for task in left if "agents/" in str(task)]
            assert "too late" not in str(await session.messages())
            assert await session.answer_of("hello?") == "hello again"

    asyncio.run(main())


def test_a_failed_attempt_is_repeated_from_the_same_state(tmp_path: Path) -> None:
    async def main() -> None:
        model = ScriptedModel(ConnectionError("down"), ModelBehaviorError("odd"), [text_item("up")])
        async with open_session(_agent(model), tmp_path) as session:
            assert await session.answer_of("hello") == "up"
        assert [len(request.items) for request in model.requests] == [1, 1, 1]

    asyncio.run(main())


def test_an_answer_that_does_not_fit_the_output_type_fails_the_attempt(tmp_path: Path) -> None:
    async def main() -> None:
        model = ScriptedModel([text_item("warm")], [text_item('{"degrees": 20}')])
        async with open_session(_agent(model, output_type=Forecast), tmp_path) as session:
            assert await session.answer_of("hello") == '{"degrees": 20}'
        assert len(model.requests) == 2

    asyncio.run(main())


def test_a_response_that_only_searches_is_followed_by_another_step_with_its_items(tmp_path: Path) -> None:
    async def main() -> None:
        model = ScriptedModel([reasoning_item("search"), _search()], [text_item("found")])
        async with open_session(_agent(model), tmp_path) as session:
            assert await session.answer_of("hello") == "found"
            usage = (await session.client.get_agent_snapshot(SESSION)).usage
            history = await session.client.read_step_history(SESSION)
        assert [item.get("type") for item in model.requests[1].items] == [None, "reasoning", "web_search_call"]
        assert usage.model_calls == 2
        assert len({entry.step_execution_id for entry in history if entry.step_type == "RunModel"}) == 2

    asyncio.run(main())


def test_a_structured_agent_that_only_reasons_is_asked_again_in_another_step(tmp_path: Path) -> None:
    async def main() -> None:
        model = ScriptedModel([reasoning_item("hm")], [text_item('{"degrees": 1}')])
        async with open_session(_agent(model, output_type=Forecast), tmp_path) as session:
            assert await session.answer_of("hello") == '{"degrees": 1}'
        assert len(model.requests) == 2

    asyncio.run(main())


def test_search_results_beside_a_call_are_sent_back_in_place(tmp_path: Path) -> None:
    async def main() -> None:
        model = ScriptedModel([_search(), call_item("look", "{}", "c1"), _search(2)], [text_item("done")])
        async with open_session(_agent(model), tmp_path) as session:
            await session.answer_of("hello")
        types = [item.get("type") for item in model.requests[1].items]
        assert types == [None, "web_search_call", "function_call", "web_search_call", "function_call_output"]

    asyncio.run(main())


def test_after_a_turn_limit_no_tools_are_offered(tmp_path: Path) -> None:
    async def main() -> None:
        model = ScriptedModel([call_item("look")], [text_item("enough")])
        limits = TurnLimits(model_calls=1)
        agent = _agent(model, model_settings=ModelSettings(tool_choice="required"), reset_tool_choice=False)
        async with open_session(agent, tmp_path, turn_limits=limits) as session:
            await session.answer_of("hello")
        assert [request.tool_names for request in model.requests] == [["look"], []]
        assert [request.tool_choice for request in model.requests] == ["required", None]

    asyncio.run(main())


def test_planning_offers_write_todos_alone(tmp_path: Path) -> None:
    async def main() -> None:
        todos = {"todos": [{"content": "look", "status": "pending"}]}
        model = ScriptedModel([call_item("write_todos", todos, "p1")], [text_item("planned")])
        settings = ModelSettings(tool_choice="look")
        agent = _agent(model, handoffs=[_agent(model, name="Other")], model_settings=settings)
        options = {"built_in_tools": ["write_todos", "ask_user"], "plan_mode_enabled": True}
        async with open_session(agent, tmp_path, **options) as session:
            await session.say("plan it", plan_mode=True)
            plan = (await session.client.get_agent_snapshot(SESSION)).plan
        assert plan is not None
        assert [task.content for task in plan.tasks] == ["look"]
        assert [request.tool_names for request in model.requests] == [["write_todos"], ["write_todos"]]
        assert model.requests[0].tool_choice is None
        assert "only plans" in model.requests[0].items[0]["content"]

    asyncio.run(main())


def test_the_settings_model_takes_over_and_provider_bound_items_stay_behind(tmp_path: Path) -> None:
    class OtherProvidersModel(ScriptedModel):
        pass

    async def main() -> None:
        first = ScriptedModel([reasoning_item("hm"), call_item("look", "{}", "c1")], [text_item("one", 1)])
        other = OtherProvidersModel([text_item("two", 2)], name="other")
        models: dict[str, Model] = {"other": other}
        agent = _agent(first)
        async with open_session(
            agent, tmp_path, resolve_model=lambda settings: models.get(str(settings.get("model")))
        ) as session:
            assert await session.answer_of("hello") == "one"
            await session.client.update_session_settings(SESSION, {"model": "other"})
            assert await session.answer_of("hello") == "two"
        items = other.requests[0].items
        assert [item.get("type") for item in items] == [
            None,
            "function_call",
            "function_call_output",
            "message",
            None,
        ]
        assert not any("id" in item for item in items)
        assert first.requests[1].items[1]["id"] == "rs_1"

    asyncio.run(main())


def test_a_setting_that_names_no_model_fails_the_turn(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_session(_agent(ScriptedModel()), tmp_path) as session:
            await session.client.start_session(SESSION, session_settings={"model": 3})
            assert (await session.say("hello")).status == "failed"
            assert "must be the name of a model, not 3" in await session.error()

    asyncio.run(main())


def test_a_session_has_one_prompt_cache_key_of_its_own(tmp_path: Path) -> None:
    class CachingModel(ScriptedModel):
        def _supports_default_prompt_cache_key(self) -> bool:
            return True

    async def main() -> None:
        model = CachingModel([call_item("look")], [text_item("done", 1)], [text_item("more", 2)], [text_item("x", 3)])
        async with open_session(_agent(model), tmp_path) as session:
            await session.answer_of("hello")
            await session.answer_of("hello")
            await session.client.start_session("other", initial_message="hello")
            await session.client.wait_until_idle("other", timeout=30)
        keys = [(request.settings.extra_args or {}).get("prompt_cache_key") for request in model.requests]
        assert len(set(keys[:3])) == 1
        assert keys[0] is not None
        assert keys[3] not in (None, keys[0])

    asyncio.run(main())


def test_the_application_may_give_the_model_in_the_run_config(tmp_path: Path) -> None:
    async def main() -> None:
        model = ScriptedModel([text_item("from the run config")])
        config = RunConfig(model=model)
        async with open_session(_agent("gpt-4.1"), tmp_path, run_config=config) as session:
            assert await session.answer_of("hello") == "from the run config"

    asyncio.run(main())


def test_each_turn_may_start_with_the_first_agent(tmp_path: Path) -> None:
    async def main(start: str, directory: Path) -> list[str | None]:
        model = ScriptedModel([call_item("transfer_to_second", "{}", "h1")], [text_item("a", 1)], [text_item("b", 2)])
        second = _agent(model, name="Second", instructions="second")
        first = _agent(model, instructions="first", handoffs=[second])
        async with open_session(first, directory, start_each_turn_with=start) as session:
            await session.answer_of("hello")
            await session.answer_of("hello")
        return [request.instructions for request in model.requests]

    (tmp_path / "last").mkdir()
    (tmp_path / "first").mkdir()
    assert asyncio.run(main("last_agent", tmp_path / "last")) == ["first", "second", "second"]
    assert asyncio.run(main("first_agent", tmp_path / "first")) == ["first", "second", "first"]


def test_a_turn_with_an_agent_that_a_release_removed_fails_by_name(tmp_path: Path) -> None:
    async def main() -> None:
        gated = function_tool(lambda: "x", name_override="gated", needs_approval=True)
        model = ScriptedModel([call_item("transfer_to_second", "{}", "h1")], [call_item("gated", "{}", "c1")])
        second = _agent(model, name="Second", tools=[gated])
        flow = create_openai_agents_session_flow(_agent(model, handoffs=[second]), "TestAgent")
        async with open_session(flow, tmp_path) as session:
            assert (await session.say("hello")).status == "waiting_for_person"
        later = create_openai_agents_session_flow(_agent(model), "TestAgent")
        async with open_session(later, tmp_path) as session:
            await session.client.approve(SESSION)
            await session.finished()
            assert "'Second'" in await session.error()

    asyncio.run(main())


def test_a_message_of_another_runner_fails_the_turn_by_name(tmp_path: Path) -> None:
    class Other(OpenAIAgentsRunner):
        def build_user_message(self, text: str) -> Any:
            message = super().build_user_message(text)
            return type(message)(role="user", text=text, framework_item='{"kind": "other"}')

    async def main() -> None:
        flow = create_agent_session_flow(Other(_agent(ScriptedModel())), "TestAgent")
        async with open_session(flow, tmp_path) as session:
            assert (await session.say("hello")).status == "failed"
            assert "not one of the OpenAI Agents adapter" in await session.error()

    asyncio.run(main())


def test_stored_items_of_a_newer_release_are_read() -> None:
    item = json.dumps({"items": [{"role": "user", "content": "hi"}], "a_new_field": 1})
    assert msgspec.json.decode(item, type=StoredItems).items == [{"role": "user", "content": "hi"}]


def test_the_answer_to_a_built_in_question_is_not_taken_for_a_tools_final_answer(tmp_path: Path) -> None:
    async def main() -> None:
        model = ScriptedModel([call_item("ask_user", {"question": "Which?"}, "q1")], [text_item("thanks")])
        agent = _agent(model, tool_use_behavior="stop_on_first_tool")
        async with open_session(agent, tmp_path, built_in_tools=["ask_user"]) as session:
            await session.say("go")
            await session.client.answer(SESSION, "this one")
            await session.finished()
            assert (await session.messages())[-1].text == "thanks"

    asyncio.run(main())


@pytest.mark.parametrize("is_streaming", [True, False])
def test_a_cancellation_that_nobody_asked_for_is_no_answer(tmp_path: Path, is_streaming: bool) -> None:
    async def main() -> None:
        def cancelled(request: Any) -> list[Any]:
            raise asyncio.CancelledError("a task of the provider's client was cancelled")

        model = ScriptedModel(cancelled, [text_item("an answer")])
        async with open_session(_agent(model), tmp_path, is_streaming=is_streaming) as session:
            assert await session.answer_of("hello") == "an answer"
            assert len(await session.events("model_call_retrying")) == 1
        assert len(model.requests) == 2

    asyncio.run(main())


def test_a_run_that_is_cancelled_from_inside_is_no_answer(tmp_path: Path) -> None:
    class Impatient(RunHooks[Any]):
        def __init__(self) -> None:
            self.is_first = True

        async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
            if self.is_first:
                self.is_first = False
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(0)

    async def main() -> None:
        model = ScriptedModel([text_item("an answer")])
        async with open_session(_agent(model), tmp_path, hooks=Impatient()) as session:
            assert await session.answer_of("hello") == "an answer"
        assert len(model.requests) == 1

    asyncio.run(main())


def test_the_outcome_says_which_model_answered() -> None:
    class NoEvents:
        def write_text_delta(self, text: str) -> None: ...

        def write_reasoning_delta(self, text: str) -> None: ...

        def write_event(self, type: str, payload: Any) -> None: ...

    async def main() -> None:
        runner = OpenAIAgentsRunner(_agent(ScriptedModel([text_item("hi")])))
        message = runner.build_user_message("hello")
        stored = AgentMessage(
            sequence=1,
            turn_id="turn-1",
            role="user",
            framework_item=message.framework_item,
            created_at=datetime(2026, 12, 2, tzinfo=UTC),
            text="hello",
        )
        turn = AgentTurnContext(
            flow_id=SESSION,
            turn_id="turn-1",
            attempt=1,
            step_execution_id=1,
            messages=(stored,),
            events=NoEvents(),
            heartbeat=lambda: None,
        )
        metadata = (await runner.run_model_step(turn)).model_call_metadata
        assert metadata is not None
        assert metadata.request_model == "scripted-1"
        assert metadata.response_model == "scripted-1-2026"
        assert metadata.response_id == "resp_1"

    asyncio.run(main())


def test_a_handoff_with_the_name_of_a_built_in_tool_fails_the_turn_by_name(tmp_path: Path) -> None:
    async def main() -> None:
        other = Agent[Any](name="Other")
        agent = _agent(ScriptedModel(), handoffs=[other])
        flow = create_openai_agents_session_flow(agent, "TestAgent", built_in_tools=["ask_user"])
        agent.handoffs = [handoff(other, tool_name_override="ask_user")]
        async with open_session(flow, tmp_path) as session:
            assert (await session.say("go")).status == "failed"
            assert "has the name of the built-in tool 'ask_user'" in await session.error()

    asyncio.run(main())
