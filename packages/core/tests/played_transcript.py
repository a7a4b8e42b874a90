"""A runner that stores its transcript as it goes, played on a driven session, and a provider that refuses bad input."""

from __future__ import annotations

import json
from typing import Any

from dex_agents.session.outcomes import (
    ModelStepCompleted,
    ModelStepSnapshot,
    ModelStepToolCallsRequested,
    RequestedToolCall,
    UnfinishedTurnOutcome,
)
from dex_agents.session.tool_results import tool_result_text
from dex_agents.session.values import AgentMessageToolCall, AgentUsage, FrameworkMessage

from .played_session import PlayedSession

Item = dict[str, Any]


class PlayedTranscript:
    """Plays model calls and unfinished turns the way a runner with incremental messages does.

    The results of a model step's calls are stored with the next model output, or when the turn ends without one.
    """

    def __init__(self, session: PlayedSession) -> None:
        self.session = session

    def model_input(self) -> list[Item]:
        """What the model call that runs is given; refused when a strict provider would refuse it."""
        snapshot = self.session.snapshot_of(self.session.attempt_of("RunModel"))
        items = [json.loads(message.framework_item) for message in snapshot.messages]
        items += [json.loads(message.framework_item) for message in unstored_results(snapshot)]
        check_transcript(items)
        return items

    def ask_for(self, *calls: RequestedToolCall) -> None:
        """The model asks for tools."""
        self.model_input()
        snapshot = self.session.snapshot_of(self.session.attempt_of("RunModel"))
        output = message(
            {
                "role": "assistant",
                "calls": [{"id": call.tool_call_id, "arguments": call.arguments} for call in calls],
            },
            tool_calls=tuple(
                AgentMessageToolCall(tool_call_id=call.tool_call_id, tool_name=call.tool_name, arguments=call.arguments)
                for call in calls
            ),
        )
        outcome = ModelStepToolCallsRequested(
            framework_run_state="state",
            tool_calls=calls,
            usage=AgentUsage(model_calls=1),
            new_messages=(*unstored_results(snapshot), output),
        )
        self.session.succeed(self.session.attempt_of("RunModel"), outcome)

    def answer(self, text: str = "done") -> None:
        """The model gives its final answer."""
        self.model_input()
        snapshot = self.session.snapshot_of(self.session.attempt_of("RunModel"))
        new_messages = (*unstored_results(snapshot), message({"role": "assistant", "text": text, "calls": []}))
        outcome = ModelStepCompleted(new_messages=new_messages, usage=AgentUsage(model_calls=1))
        self.session.succeed(self.session.attempt_of("RunModel"), outcome)

    def end_turn(self) -> None:
        """Complete the transcript of the turn that ends without an answer, if one does."""
        for claim in list(self.session.running.values()):
            if claim.step_type in ("ApplyTurnControl", "RecordTurnFailure"):
                results = unstored_results(self.session.snapshot_of(claim))
                self.session.succeed(claim, UnfinishedTurnOutcome(messages=results))


def message(item: Item, **fields: Any) -> FrameworkMessage:
    """A message around its framework item."""
    return FrameworkMessage(role=item["role"], text=item.get("text", ""), framework_item=json.dumps(item), **fields)


def unstored_results(snapshot: ModelStepSnapshot) -> tuple[FrameworkMessage, ...]:
    """Results of the calls that the latest model step asked for."""
    return tuple(
        message(
            {"role": "tool", "id": call.provider_tool_call_id, "text": tool_result_text(call)},
            tool_call_id=call.tool_call_id,
        )
        for call in snapshot.tool_calls
        if call.model_step_number == snapshot.state.turn_model_step_count
    )


def check_transcript(items: list[Item]) -> None:
    """Raise AssertionError for what a strict provider refuses.

    Every call has exactly one result, right behind the message that asked, in call order; IDs are new; arguments are
    JSON objects; no text is empty.
    """
    assert items, "the input is empty"
    assert items[0]["role"] == "user"
    rest = list(items)
    seen: set[str] = set()
    while rest:
        item = rest.pop(0)
        assert item["role"] != "tool", f"a result without a call: {item}"
        if item["role"] == "user":
            assert item["text"].strip(), "a blank user text"
            continue
        for call in item["calls"]:
            assert call["id"] not in seen, f"the ID {call['id']} repeats"
            seen.add(call["id"])
            assert isinstance(json.loads(call["arguments"]), dict)
        for call in item["calls"]:
            assert rest, f"no result behind {call}"
            result = rest.pop(0)
            assert (result["role"], result["id"]) == ("tool", call["id"]), f"no result behind {call}, but {result}"
            assert result["text"].strip(), "an empty result"
    assert items[-1]["role"] in ("user", "tool"), "nothing to answer"
