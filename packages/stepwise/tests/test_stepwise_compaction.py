"""Estimates, cuts and summary calls of the loop, one by one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dex_agents import (
    SUMMARY_REQUEST_TEXT,
    AgentPlan,
    AgentPlanTask,
    AgentToolCallStatus,
    AgentUsage,
    ContextCompactor,
    FrameworkMessage,
    InteractionMode,
    ModelCallMetadata,
    TurnRefusedError,
)
from dex_agents.session.texts import (
    CONTEXT_SUMMARY_INSTRUCTIONS,
    CONTEXT_SUMMARY_NOTE_HEADER,
    context_summary_omission_note,
)
from dex_agents_stepwise import (
    AgentDefinition,
    ModelOutput,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    ModelToolCall,
    ModelToolResult,
    ModelUserText,
    ScriptedModelClient,
    ScriptedModelReply,
    StepwiseAgentRunner,
    TokenCounter,
)

from .stepwise_agent import TOOLS, Agent, ask, call, say
from .stepwise_session_driver import NOW, SessionDriver


def estimate(agent: Agent, **fields: Any) -> int:
    return agent.runner.estimate_input_tokens(agent.session.turn_context(**fields))


def started(text: str = "", **fields: Any) -> Agent:
    agent = Agent(**{"tools": (), "instructions": "", **fields})
    agent.session.begin_turn(text)
    return agent


def test_the_runner_compacts() -> None:
    assert isinstance(Agent().runner, ContextCompactor)


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 4), ("a", 5), ("a" * 7, 6), ("a" * 7_000, 2_004), ("é" * 7, 8), ("日" * 7, 10)]
)
def test_two_tokens_are_seven_bytes_and_each_message_four_more(text: str, tokens: int) -> None:
    assert estimate(started(text)) == tokens


def test_everything_the_model_reads_is_counted() -> None:
    agent = started("hi")
    plain = estimate(agent)
    large = "x" * 7_000
    agent.session.store_summary(large, 0)
    assert 2_000 < estimate(agent) - plain < 2_050
    agent.session.context_summary = None
    agent.session.plan = AgentPlan(revision=1, status="active", updated_at=NOW, tasks=(AgentPlanTask(content=large),))
    assert 2_000 < estimate(agent) - plain < 2_050
    agent.session.plan = None
    assert 2_000 < estimate(started("hi", instructions=large)) - plain < 2_050
    assert 0 < estimate(started("hi", instructions=lambda context: context.turn_id)) - plain < 20
    assert 100 < estimate(started("hi", tools=TOOLS)) - plain < 250
    assert 50 < estimate(started("hi", built_in_tools=["ask_user"])) - plain < 250


def test_tools_that_are_not_offered_are_not_counted() -> None:
    agent = started("hi", tools=TOOLS)
    assert estimate(agent, turn_limit_reached="stop") == estimate(started("hi"))
    planning = estimate(agent, interaction_mode=InteractionMode.PLANNING)
    note = agent.session.turn_context(interaction_mode=InteractionMode.PLANNING)
    assert planning < estimate(agent)
    assert note.interaction_mode is InteractionMode.PLANNING


def test_pending_results_are_counted() -> None:
    async def run() -> None:
        agent = Agent(ask(call("note", {"text": "x" * 7_000})))
        agent.session.begin_turn("go")
        await agent.session.model_step()
        call_only = agent.runner.estimate_input_tokens(agent.session.turn_context(tool_calls=()))
        await agent.session.run_tools()
        assert 2_000 < estimate(agent) - call_only < 2_010

    asyncio.run(run())


def test_an_asynchronous_functions_instructions_count_as_long_as_the_last_ones() -> None:
    async def instructions(context: object) -> str:
        return "x" * 7_000

    class Callable:
        async def __call__(self, context: object) -> str:
            return "x" * 7_000

    for function in (instructions, Callable()):
        agent = Agent(say("one"), tools=(), instructions=function)
        agent.session.begin_turn("hi")
        before = estimate(agent)
        asyncio.run(agent.session.model_step())
        assert 2_000 < estimate(agent) - before < 2_050


@pytest.mark.parametrize(
    ("text", "calls"),
    [("", ()), ("é" * 500, (ModelToolCall(tool_call_id="c", tool_name="note", arguments="{}"),))],
)
def test_a_response_counts_in_its_own_form_for_its_own_provider_alone(text: str, calls: tuple[ModelToolCall]) -> None:
    """Encrypted reasoning is in the item and nowhere else."""
    item = f'{{"encrypted": "{"x" * 7_000}", "text": "{text}"}}'
    response = ModelResponse(text=text, item=item, tool_calls=calls)
    models = {provider: FixedModel(response, provider) for provider in ("acme", "other")}
    definition = AgentDefinition(
        name="a", instructions="", model=models["acme"], resolve_model=lambda settings: models[settings["model"]]
    )
    session = SessionDriver(StepwiseAgentRunner(definition))
    session.settings = {"model": "acme"}
    session.begin_turn("hi")
    asyncio.run(session.model_step())
    own = session.runner.estimate_input_tokens(session.turn_context(tool_calls=()))
    session.settings = {"model": "other"}
    others = session.runner.estimate_input_tokens(session.turn_context(tool_calls=()))
    assert 1_900 < own - others < 2_050


def test_quotes_and_lines_of_code_do_not_count_as_reasoning() -> None:
    """They are escaped twice where the response is stored in its provider's own form."""
    agent = Agent(ask(call("note", {"text": 'print("hello")\n' * 500}), text='say "hi"\n' * 500))
    agent.session.begin_turn("go")
    before = estimate(agent)
    asyncio.run(agent.session.model_step())
    (sent,) = agent.session.messages[1].tool_calls
    read = len(agent.session.messages[1].text) + len(sent.arguments)
    added = agent.runner.estimate_input_tokens(agent.session.turn_context(tool_calls=())) - before
    assert read * 2 / 7 < added < read * 2 / 7 * 1.05


class FixedModel:
    """A model client with one response."""

    api = "chat"

    def __init__(self, response: ModelResponse, provider: str = "acme") -> None:
        self.response = response
        self.provider = provider
        self.requests: list[ModelRequest] = []

    async def generate(self, request: ModelRequest) -> ModelResponse:
        self.requests.append(request)
        return self.response


class CountingModel(FixedModel):
    """A model client that counts one token per character."""

    def __init__(self) -> None:
        super().__init__(ModelResponse(text="ok"))
        self.counted: list[str] = []
        self.answer: Any = None

    def count_tokens(self, text: str) -> Any:
        self.counted.append(text)
        return len(text) if self.answer is None else self.answer


def test_a_client_that_counts_is_asked_once_per_text() -> None:
    model = CountingModel()
    assert isinstance(model, TokenCounter)
    agent = started("hello", model=model, instructions="Help.")
    assert estimate(agent) == 5 + 4 + 5 + 4
    assert estimate(agent) == 5 + 4 + 5 + 4
    assert sorted(model.counted) == ["Help.", "hello"]


@pytest.mark.parametrize("answer", ["many", 1.5, True])
def test_a_count_must_be_a_number(answer: Any) -> None:
    model = CountingModel()
    model.answer = answer
    with pytest.raises(TypeError, match=r"CountingModel\.count_tokens must return a whole number"):
        estimate(started("hello", model=model))


def test_instructions_that_cannot_be_encoded_can_be_measured() -> None:
    assert estimate(started("", instructions="\ud800")) > 4


async def long_turn(agent: Agent, batches: int) -> None:
    agent.session.begin_turn("go")
    for _ in range(batches):
        await agent.session.model_step()
        await agent.session.run_tools()


def batch(number: int) -> ScriptedModelReply:
    return ask(call("note", {"text": f"{number}" * 100}), call("note", {"text": f"{number}" * 100}))


def test_the_active_turns_message_stays_unless_the_turn_is_long() -> None:
    agent = Agent(say("a" * 700), say("b" * 700), batch(1), batch(2), batch(3))
    asyncio.run(agent.session.run_turn("first"))
    asyncio.run(agent.session.run_turn("second"))
    asyncio.run(long_turn(agent, 3))
    turn = agent.session.turn_context()
    roles = [message.role for message in turn.messages]
    assert roles == ["user", "assistant"] * 2 + ["user"] + ["assistant", "tool", "tool"] * 2 + ["assistant"]

    whole = agent.runner.estimate_input_tokens(turn)
    cutoffs = [agent.runner.select_compaction_cutoff(turn, budget) for budget in range(whole, -1, -1)]
    # Before the turn anywhere; within it only when all of it is too much, and never behind the response that waits.
    assert list(dict.fromkeys(cutoffs)) == [None, 1, 2, 3, 4, 5, 8, 11]
    turn_tokens = estimate(agent, messages=turn.messages[4:])
    assert cutoffs[whole - turn_tokens] == 4


def test_a_turn_of_one_message_has_nothing_to_cut() -> None:
    agent = started("x" * 7_000)
    assert agent.runner.select_compaction_cutoff(agent.session.turn_context(), 1) is None


def test_nothing_is_cut_when_the_messages_fit_and_something_else_is_too_large() -> None:
    """F39: a summary per model call would make nothing smaller."""
    agent = Agent(say("one"), say("two"), instructions="x" * 70_000)
    asyncio.run(agent.session.run_turn("first"))
    agent.session.begin_turn("second")
    assert estimate(agent) > 20_000
    assert agent.runner.select_compaction_cutoff(agent.session.turn_context(), 1_000) is None


SUMMARY = AgentUsage(model_calls=1, input_tokens=50, output_tokens=5)


def summary_agent(*replies: ScriptedModelReply, **fields: Any) -> Agent:
    return Agent(*replies, ScriptedModelReply(text="the summary", reasoning="hm", usage=SUMMARY), **fields)


async def two_turns(agent: Agent) -> None:
    await agent.session.run_turn("first")
    await agent.session.run_turn("second")


def test_the_summary_call() -> None:
    settings = ModelSettings(temperature=0.5, max_output_tokens=100)
    agent = summary_agent(ask(call("note", {"text": "n"})), say("one"), say("two"), model_settings=settings)
    asyncio.run(two_turns(agent))
    agent.session.store_summary("what came before", 0)
    request = agent.session.summary_request(6)
    result = asyncio.run(agent.runner.summarize_context(request))
    assert (result.text, result.usage) == ("the summary", SUMMARY)
    sent = agent.model.requests[-1]
    assert (sent.instructions, sent.tools, sent.tool_choice) == (CONTEXT_SUMMARY_INSTRUCTIONS, (), "none")
    assert sent.settings == settings
    assert ScriptedModelClient.is_summary_request(sent)
    assert not ScriptedModelClient.is_summary_request(agent.model.requests[-2])
    assert ScriptedModelClient.user_texts(sent) == [
        f"{CONTEXT_SUMMARY_NOTE_HEADER}\nwhat came before",
        "first",
        "second",
        SUMMARY_REQUEST_TEXT,
    ]
    assert [item.output for item in sent.input_items if isinstance(item, ModelToolResult)] == ["noted n"]
    assert [type(item) for item in sent.input_items].count(ModelOutput) == 3
    # The user reads the conversation, not its summary.
    assert (request.events.text, request.events.reasoning) == ([], [])  # type: ignore[attr-defined]


def test_the_summary_calls_metadata_is_passed_on() -> None:
    metadata = ModelCallMetadata(response_model="m-1")
    model = FixedModel(ModelResponse(text="short", metadata=metadata))
    session = SessionDriver(StepwiseAgentRunner(AgentDefinition(name="a", instructions="", model=model)))
    session.begin_turn("hi")
    result = asyncio.run(session.runner.summarize_context(session.summary_request(1)))
    assert result.model_call_metadata is metadata
    assert result.usage is None  # one call with unknown tokens


def test_the_oldest_rounds_are_left_out_of_a_summary_that_would_not_fit() -> None:
    agent = summary_agent(batch(1), say("one"), batch(2), say("two"))
    asyncio.run(two_turns(agent))

    def omitted(budget: int, **fields: Any) -> tuple[int, list[str]]:
        replies = ScriptedModelClient(lambda request: say("short"))
        agent.runner = StepwiseAgentRunner(AgentDefinition(name="a", instructions="", model=replies, **fields))
        request = agent.session.summary_request(10, input_token_budget=budget)
        asyncio.run(agent.runner.summarize_context(request))
        (sent,) = replies.requests
        notes = [context_summary_omission_note(count) for count in range(11)]
        first = sent.input_items[0]
        assert isinstance(first, ModelUserText)
        count = notes.index(first.text) if first.text in notes else 0
        return count, [type(item).__name__.removeprefix("Model") for item in sent.input_items[bool(count) : -1]]

    everything = ["UserText", "Output", "ToolResult", "ToolResult", "Output"] * 2
    assert omitted(10_000) == (0, everything)
    assert omitted(10_000, model_settings=ModelSettings(max_output_tokens=9_900))[0] == 9
    counts = [omitted(budget)[0] for budget in range(0, 2_000, 5)]
    assert counts == sorted(counts, reverse=True)
    # Never between a response and its results; the first message alone is smaller than the note about it.
    assert set(counts) == {9, 6, 5, 4, 0}
    assert omitted(0) == (9, everything[9:])  # the last round stays whatever its size
    boundary = next(budget for budget in range(2_000) if omitted(budget)[0] == 6)
    assert omitted(boundary) == (6, everything[6:])


def test_messages_of_another_runner_cannot_be_summarised() -> None:
    agent = summary_agent()
    agent.session.begin_turn("hi")
    agent.session.store(FrameworkMessage(role="assistant", framework_item='{"kind": "response"}', text="hello"))
    with pytest.raises(TurnRefusedError, match="not a Stepwise item"):
        asyncio.run(agent.runner.summarize_context(agent.session.summary_request(2)))


def test_a_summary_call_that_answers_nothing_useful_is_the_sessions_to_judge() -> None:
    agent = Agent(ask(call("note")))
    agent.session.begin_turn("hi")
    assert asyncio.run(agent.runner.summarize_context(agent.session.summary_request(1))).text == ""


def test_the_summary_stands_before_the_messages_it_left() -> None:
    agent = Agent(ask(call("note", {"text": "1"})), ask(call("note", {"text": "2"})), say("done"))

    async def turn() -> None:
        await long_turn(agent, 2)
        agent.session.store_summary("so far", 3)
        await agent.session.model_step()

    asyncio.run(turn())
    items = agent.model.requests[-1].input_items
    assert items[0] == ModelUserText(text=f"{CONTEXT_SUMMARY_NOTE_HEADER}\nso far")
    assert agent.results_seen() == ["noted 2"]
    assert agent.session.tool_calls[0].status is AgentToolCallStatus.SUCCEEDED
