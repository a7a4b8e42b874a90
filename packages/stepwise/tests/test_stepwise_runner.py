"""The built-in loop as a runner, driven turn by turn against a provider that refuses every bad transcript."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from dex_agents import (
    AgentSessionOptions,
    AgentToolCall,
    AgentToolCallStatus,
    AgentUsage,
    FrameworkMessage,
    ModelCallMetadata,
    ResolvedToolPolicy,
    ToolCallsRequested,
    ToolEffect,
    ToolExecutionError,
    ToolExecutionResult,
    ToolPolicy,
    TurnCompleted,
    TurnRefusedError,
    UnfinishedTurnMessageBuilder,
)
from dex_agents.session.ingress import model_step_outcome
from dex_agents.session.outcomes import ModelStepCompleted
from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT, TOOL_CALL_REJECTED_RESULT
from dex_agents_stepwise import (
    AgentDefinition,
    InstructionContext,
    ModelOutput,
    ModelRequest,
    ModelResponse,
    ModelToolCall,
    ModelToolResult,
    ModelUserText,
    ScriptedModelClient,
    ScriptedModelReply,
    StepwiseAgentRunner,
)

from .stepwise_agent import TOOLS, Agent, ask, call, say
from .stepwise_session_driver import SessionDriver, StrictModelClient, final, tool_call, tool_execution


def items(messages: Sequence[FrameworkMessage]) -> list[dict[str, Any]]:
    return [json.loads(message.framework_item) for message in messages]


def test_a_turn_with_tools_stores_its_messages_as_it_goes() -> None:
    agent = Agent(ask(call("lookup_order", {"order_id": 7}), text="Let me see."), say("It is paid."))

    assert asyncio.run(agent.session.run_turn("Where is order 7?")) == "It is paid."

    first, second = agent.session.outcomes
    assert isinstance(first, ToolCallsRequested)
    assert json.loads(first.framework_run_state) == {"model_calls": 1}
    assert [item["type"] for item in items(first.new_messages)] == ["model_output"]
    assert isinstance(second, TurnCompleted)
    assert items(second.new_messages)[0] == {
        "type": "tool_result",
        "tool_call_id": "call_1_1",
        "tool_name": "lookup_order",
        "output": '{"order_id": 7, "status": "paid"}',
    }
    assert [message.role for message in agent.session.messages] == ["user", "assistant", "tool", "assistant"]
    projected = agent.session.messages[1]
    assert (projected.text, projected.tool_calls[0].tool_name) == ("Let me see.", "lookup_order")
    assert agent.session.messages[2].tool_call_id == "call_1_1"
    assert len(agent.model.requests) == 2
    assert agent.session.events[0].text == ["Let me see."]


def test_what_the_model_gets() -> None:
    seen: list[InstructionContext] = []

    async def instructions(context: InstructionContext) -> str:
        seen.append(context)
        return f"Help in {context.turn_id}."

    agent = Agent(say("one"), say("two"), instructions=instructions)
    asyncio.run(agent.session.run_turn("first"))
    asyncio.run(agent.session.run_turn("second"))

    request = agent.model.requests[-1]
    assert request.instructions == "Help in turn-2."
    assert (seen[1].flow_id, seen[1].turn_id, seen[1].attempt) == ("session", "turn-2", 1)
    assert [tool.name for tool in request.tools] == ["lookup_order", "refund_order", "note"]
    assert request.tools[0].description == "Look up an order."
    assert request.tool_choice == "auto"
    history = request.input_items
    assert isinstance(history[1], ModelOutput)
    assert history[1].item is not None
    assert (history[0], history[1].text, history[2]) == (
        ModelUserText(text="first"),
        "one",
        ModelUserText(text="second"),
    )


def test_instructions_must_be_text() -> None:
    agent = Agent(say("never"), instructions=lambda context: None)
    with pytest.raises(TypeError, match=r"AgentDefinition\.instructions must return text, not None"):
        asyncio.run(agent.session.run_turn("hi"))
    assert agent.model.requests == ()


def test_results_reach_the_model_in_call_order_whatever_finished_first() -> None:
    """F35."""

    def decide(record: AgentToolCall) -> AgentToolCall | None:
        return final(record, AgentToolCallStatus.REJECTED) if record.tool_name == "refund_order" else None

    agent = Agent(
        ask(call("lookup_order", {"order_id": 1}), call("refund_order"), call("note", {"text": "x"})), say("done")
    )

    async def turn() -> None:
        agent.session.begin_turn("go")
        await agent.session.model_step()
        await agent.session.run_tools(decide, last_first=True)
        agent.session.tool_calls.reverse()
        await agent.session.model_step()

    asyncio.run(turn())
    assert agent.results_seen() == ['{"order_id": 1, "status": "paid"}', TOOL_CALL_REJECTED_RESULT, "noted x"]


def test_every_final_status_has_its_text() -> None:
    texts = {
        1: lambda record: final(record, AgentToolCallStatus.OUTCOME_UNKNOWN, error="worker lost"),
        2: lambda record: final(record, AgentToolCallStatus.REJECTED, rejection_message="no: use b@x"),
        3: lambda record: final(record, AgentToolCallStatus.FAILED, error="no such order"),
    }
    agent = Agent(ask(*(call("lookup_order", {"order_id": number}) for number in texts)), say("done"))
    asyncio.run(agent.session.run_turn("go", lambda record: texts[json.loads(record.arguments)["order_id"]](record)))
    assert agent.results_seen() == [OUTCOME_UNKNOWN_TOOL_RESULT, "no: use b@x", "no such order"]


@pytest.mark.parametrize("call_id", ["", "same", "call-1", "x~2", "x" * 400, "a:b/c,d"])
def test_ids_that_repeat_or_are_blank_keep_calls_and_results_apart(call_id: str) -> None:
    """F16: twice in one response, again in the same turn, and in a later turn."""
    agent = Agent(
        ask(call("note", {"text": "1"}, call_id), call("note", {"text": "2"}, call_id)),
        ask(call("note", {"text": "3"}, call_id)),
        say("done"),
        ask(call("note", {"text": "4"}, call_id)),
        say("done again"),
        has_odd_ids=True,
    )

    asyncio.run(agent.session.run_turn("go"))
    ids = [record.tool_call_id for record in agent.session.tool_calls]
    assert len(set(ids)) == 3
    asyncio.run(agent.session.run_turn("go on"))

    assert agent.results_seen() == ["noted 1", "noted 2", "noted 3", "noted 4"]
    results = [item for item in agent.model.requests[-1].input_items if isinstance(item, ModelToolResult)]
    assert {result.tool_call_id for result in results} == {call_id}  # the provider's own
    stored = [message.tool_call_id for message in agent.session.messages if message.role == "tool"]
    assert stored == [*ids, agent.session.tool_calls[0].tool_call_id]


@pytest.mark.parametrize("arguments", ["", " ", "\n"])
def test_blank_arguments_are_an_empty_object(arguments: str) -> None:
    """F13."""
    agent = Agent(ask(call("refund_order", arguments)), say("done"))
    asyncio.run(agent.session.run_turn("go"))
    assert agent.results_seen() == ["refunded 0"]
    assert agent.session.messages[1].tool_calls[0].arguments == "{}"


@pytest.mark.parametrize(
    "arguments",
    ['{"a": tru', "null", "[]", '"{}"', '{"a":NaN}', '{"a": 1, "a": 2}', '{"a": "x\ny"}', '{"a": "' + "x" * 2_000_000],
)
@pytest.mark.parametrize("tool_name", ["refund_order", "note"])
def test_arguments_that_are_no_object_leave_a_transcript_that_can_be_sent_back(arguments: str, tool_name: str) -> None:
    """F13: the strict provider refuses a history whose arguments are no object."""
    agent = Agent(ask(call(tool_name, arguments), call("note")), say("sorry"), say("hello"))

    asyncio.run(agent.session.run_turn("go"))
    asyncio.run(agent.session.run_turn("again"))

    requested = agent.session.outcomes[0]
    assert isinstance(requested, ToolCallsRequested)
    assert requested.tool_calls[0].arguments == arguments  # the session says what is wrong with them
    failed, other = agent.results_seen(1)
    assert f"The tool {tool_name} was not run" in failed
    assert other == "noted "
    replayed = agent.model.requests[-1].input_items[1]
    assert isinstance(replayed, ModelOutput)
    assert replayed.item is None
    assert json.loads(replayed.tool_calls[0].arguments)["invalid_arguments"].startswith(arguments[:2_000])
    assert sum(len(message.framework_item) for message in agent.session.messages) < 50_000


def test_arguments_that_do_not_fit_the_schema_reach_the_model_as_a_failure() -> None:
    agent = Agent(ask(call("lookup_order", {"order_id": "seven", "extra": 1})), say("sorry"))
    asyncio.run(agent.session.run_turn("go"))
    (text,) = agent.results_seen()
    assert text.startswith("The tool lookup_order was not run")
    assert "order_id: 'seven' is not of type integer" in text
    assert "'extra' was unexpected" in text


def test_unknown_tools_fail_without_an_approval() -> None:
    agent = Agent(ask(call("nope")), say("sorry"), session_policies={"nope": ToolPolicy(requires_approval=True)})
    asyncio.run(agent.session.run_turn("go"))
    requested = agent.session.outcomes[0]
    assert isinstance(requested, ToolCallsRequested)
    assert requested.tool_calls[0].policy == ResolvedToolPolicy(effect=ToolEffect.UNCLASSIFIED, requires_approval=False)
    assert agent.results_seen() == ["unknown tool nope"]


def test_a_tool_that_a_deploy_removed_while_its_call_waited_is_unknown() -> None:
    agent = Agent(tools=())
    with pytest.raises(ToolExecutionError, match=r"^unknown tool refund_order$"):
        asyncio.run(agent.runner.execute_deferred_tool_call(tool_execution(tool_call("refund_order"))))


def policy_in_force(agent: Agent) -> ResolvedToolPolicy:
    agent.session.begin_turn("go")
    outcome = asyncio.run(agent.session.model_step())
    assert isinstance(outcome, ToolCallsRequested)
    return outcome.tool_calls[0].policy


def test_policies_the_session_before_the_definition_before_the_tool() -> None:
    asked = ask(call("refund_order"))
    read = ResolvedToolPolicy(effect=ToolEffect.READ, requires_approval=False)
    write = ResolvedToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE, requires_approval=True)
    approved_read = ResolvedToolPolicy(effect=ToolEffect.READ, requires_approval=True)
    ask_first = {"refund_order": ToolPolicy(effect=ToolEffect.READ, requires_approval=True)}

    assert policy_in_force(Agent(asked)) == write
    assert policy_in_force(Agent(asked, tool_policies=ask_first)) == approved_read
    assert policy_in_force(Agent(asked, session_policies={"refund_order": ToolPolicy(effect=ToolEffect.READ)})) == read
    both = Agent(asked, tool_policies=ask_first, session_policies={"refund_order": ToolPolicy(effect=ToolEffect.READ)})
    assert policy_in_force(both) == read
    assert policy_in_force(Agent(ask(call("note")))) == ResolvedToolPolicy(
        effect=ToolEffect.UNCLASSIFIED, requires_approval=False
    )


def test_after_the_model_call_limit_no_tools_are_offered() -> None:
    again = ask(call("note", {"text": "x"}))
    agent = Agent(again, again, say("enough"), again, again, say("enough"), max_model_calls_per_turn=2)

    assert asyncio.run(agent.session.run_turn("go")) == "enough"
    assert [len(request.tools) for request in agent.model.requests] == [3, 3, 0]
    assert [request.tool_choice for request in agent.model.requests] == ["auto", "auto", "none"]
    assert asyncio.run(agent.session.run_turn("again")) == "enough"  # the limit counts per turn


@pytest.mark.parametrize("call_id", ["", "same", None])
def test_a_model_that_still_asks_for_tools_ends_the_turn(call_id: str | None) -> None:
    again = ask(call("note", {"text": "x"}, call_id))
    last = ask(call("note", {"text": "y"}, call_id), call("refund_order", "{}", call_id), text="I insist.")
    agent = Agent(again, last, say("hello"), max_model_calls_per_turn=1, has_odd_ids=call_id is not None)

    asyncio.run(agent.session.run_turn("go"))
    completed = agent.session.outcomes[-1]
    assert isinstance(completed, TurnCompleted)
    refused = "The tool call was not run: this turn reached its limit of 1 model calls."
    assert [message.role for message in completed.new_messages] == ["tool", "assistant", "tool", "tool"]
    assert [message.text for message in completed.new_messages] == ["noted x", "I insist.", refused, refused]
    ids = [message.tool_call_id for message in agent.session.messages if message.role == "tool"]
    assert len(set(ids)) == 3
    assert all(ids)

    asyncio.run(agent.session.run_turn("next"))
    assert agent.results_seen() == ["noted x", refused, refused]


def test_a_turn_that_fails_keeps_the_results_of_its_calls() -> None:
    agent = Agent(ask(call("note", {"text": "x"}), call("refund_order")), say("hello"))

    async def failing_turn() -> None:
        agent.session.begin_turn("go")
        await agent.session.model_step()
        await agent.session.run_tools()
        messages = agent.runner.build_unfinished_turn_messages(agent.session.turn_context())
        assert [message.text for message in messages] == ["noted x", "refunded 0"]
        agent.session.store(*messages, agent.runner.build_user_message("[Dex] The previous turn failed."))

    asyncio.run(failing_turn())
    asyncio.run(agent.session.run_turn("next"))
    assert agent.results_seen() == ["noted x", "refunded 0"]
    assert isinstance(agent.runner, UnfinishedTurnMessageBuilder)


def test_a_turn_that_fails_in_its_first_model_call_has_nothing_to_add() -> None:
    agent = Agent()
    agent.session.begin_turn("go")
    assert agent.runner.build_unfinished_turn_messages(agent.session.turn_context()) == ()


def test_a_stored_call_without_a_stored_result_may_have_taken_effect() -> None:
    agent = Agent(ask(call("refund_order")), say("hello"))
    agent.session.begin_turn("go")
    asyncio.run(agent.session.model_step())
    asyncio.run(agent.session.run_turn("next"))
    assert agent.results_seen() == [OUTCOME_UNKNOWN_TOOL_RESULT]


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_empty_answers_complete_the_turn_and_are_not_sent_back(text: str) -> None:
    agent = Agent(ScriptedModelReply(text=text, reasoning="hm"), say("hello"))
    assert asyncio.run(agent.session.run_turn("go")) == text
    assert len(agent.model.requests) == 1
    assert asyncio.run(agent.session.run_turn("still there?")) == "hello"
    assert agent.session.messages[1].reasoning_text == "hm"


class FixedModel:
    """A model client with one response."""

    provider = "acme"
    api = "chat"

    def __init__(self, response: Any) -> None:
        self.response = response

    async def generate(self, request: ModelRequest) -> ModelResponse:
        response: ModelResponse = self.response
        return response


def outcome_of(response: Any) -> ToolCallsRequested | TurnCompleted:
    session = SessionDriver(
        StepwiseAgentRunner(AgentDefinition(name="a", instructions="", model=FixedModel(response), tools=TOOLS))
    )
    session.begin_turn("hi")
    return asyncio.run(session.model_step())


def test_usage_may_be_missing_and_counts_one_call() -> None:
    """F20: None counts one model call with unknown tokens."""
    assert outcome_of(ModelResponse(text="hi")).usage is None
    usage = AgentUsage(input_tokens=3, output_tokens=4, reasoning_tokens=1)
    assert outcome_of(ModelResponse(text="hi", usage=usage)).usage == AgentUsage(
        model_calls=1, input_tokens=3, output_tokens=4, reasoning_tokens=1
    )


def test_metadata_is_passed_on() -> None:
    metadata = ModelCallMetadata(response_model="m-1", finish_reasons=("stop",))
    assert outcome_of(ModelResponse(text="hi", metadata=metadata)).model_call_metadata is metadata


def test_the_clients_item_is_stored_byte_for_byte() -> None:
    item = '{"id": "rs_1",  "signature":"\\u00e9\\ud83d\\ude00", "n": 1.0, "path": "C:\\\\ud800"}'
    outcome = model_step_outcome(outcome_of(ModelResponse(text="hi", item=item)), AgentSessionOptions())
    assert isinstance(outcome, ModelStepCompleted)
    (stored,) = items(outcome.new_messages)
    assert stored["item"] == item
    assert (stored["provider"], stored["api"]) == ("acme", "chat")


def test_lone_surrogates_of_a_model_are_repaired_in_all_that_is_stored() -> None:
    response = ModelResponse(
        text="a\ud800",
        reasoning_text="b\udc00",
        item='{"text": "a\ud800", "escaped": "\\ud800x"}',
        tool_calls=(ModelToolCall(tool_call_id="c\ud800", tool_name="note\ud800", arguments='{"text": "\\udc00"}'),),
    )
    outcome = outcome_of(response)
    assert isinstance(outcome, ToolCallsRequested)
    (message,) = outcome.new_messages
    repr(message).encode()
    (stored,) = items(outcome.new_messages)
    assert (stored["text"], json.loads(stored["item"])) == ("a\ufffd", {"text": "a\ufffd", "escaped": "\ufffdx"})
    assert json.loads(stored["tool_calls"][0]["arguments"]) == {"text": "\ufffd"}
    assert outcome.tool_calls[0].tool_name == "note\ufffd"


def test_lone_surrogates_in_broken_arguments_are_repaired_too() -> None:
    broken = ModelToolCall(tool_call_id="c1", tool_name="note", arguments='{"text": "\ud800')
    outcome = outcome_of(ModelResponse(tool_calls=(broken,)))
    (stored,) = items(outcome.new_messages)
    assert json.loads(stored["tool_calls"][0]["arguments"]) == {"invalid_arguments": '{"text": "\ufffd'}


def test_a_client_must_return_a_response() -> None:
    with pytest.raises(TypeError, match="must return a ModelResponse, not dict"):
        outcome_of({})


def test_messages_of_another_runner_refuse_the_turn_at_once() -> None:
    agent = Agent(say("never"))
    agent.session.begin_turn("hi")
    agent.session.store(FrameworkMessage(role="assistant", framework_item='{"kind": "response"}', text="hello"))
    with pytest.raises(TurnRefusedError, match="not a Stepwise item"):
        asyncio.run(agent.session.model_step())
    assert agent.model.requests == ()


def test_a_failing_model_call_is_not_retried_inside_the_step() -> None:
    calls: list[int] = []

    def fail(request: ModelRequest) -> ScriptedModelReply:
        calls.append(1)
        raise ConnectionResetError("reset")

    runner = StepwiseAgentRunner(AgentDefinition(name="a", instructions="", model=ScriptedModelClient(fail)))
    session = SessionDriver(runner)
    with pytest.raises(ConnectionResetError):
        asyncio.run(session.run_turn("hi"))
    assert calls == [1]


def test_one_runner_serves_interleaved_sessions_without_mixing_them() -> None:
    def echo(request: ModelRequest) -> ScriptedModelReply:
        results = ScriptedModelClient.tool_results(request)
        text = ScriptedModelClient.user_texts(request)[-1]
        return say(results[-1].output) if results else ask(call("note", {"text": text}))

    model = StrictModelClient(ScriptedModelClient(echo))
    runner = StepwiseAgentRunner(AgentDefinition(name="a", instructions="", model=model, tools=TOOLS))

    async def both() -> list[str]:
        sessions = [SessionDriver(runner) for _ in range(5)]
        return await asyncio.gather(*(session.run_turn(f"session {n}") for n, session in enumerate(sessions)))

    assert asyncio.run(both()) == [f"noted session {number}" for number in range(5)]


def test_a_call_that_needs_approval_carries_the_schema_for_whoever_changes_it() -> None:
    """F29."""
    agent = Agent(ask(call("refund_order"), call("refund_order"), call("note"), call("lookup_order"), call("nope")))
    agent.session.begin_turn("go")
    outcome = asyncio.run(agent.session.model_step())
    assert isinstance(outcome, ToolCallsRequested)
    first, second, *others = [deferred.arguments_schema for deferred in outcome.tool_calls]
    assert first is not None
    assert json.loads(first) == TOOLS[1].parameters
    assert ": " not in first
    assert second is first
    assert others == [None, None, None]


def test_a_tool_runs_with_the_arguments_of_the_person_who_changed_them() -> None:
    changed = tool_call("refund_order", '{"order_id": 7}', executed_arguments='{"order_id": 9}')
    outcome = asyncio.run(Agent().runner.execute_deferred_tool_call(tool_execution(changed)))
    assert outcome == ToolExecutionResult(output="refunded 9")


def test_a_limit_of_the_session_beats_the_agents_own() -> None:
    again = ask(call("note", {"text": "y"}, "same"), call("refund_order", "{}", "same"))
    agent = Agent(again, max_model_calls_per_turn=1, has_odd_ids=True)
    agent.session.begin_turn("go")
    agent.session.run_state = '{"model_calls": 1}'
    text = "The tool call was not run: this turn reached its limit of 60 seconds."
    outcome = asyncio.run(agent.runner.run_model_step(agent.session.turn_context(turn_limit_reached=text)))
    assert isinstance(outcome, TurnCompleted)
    assert [message.text for message in outcome.new_messages] == ["", text, text]
    (request,) = agent.model.requests
    assert (request.tools, request.tool_choice) == ((), "none")
