"""Which reply of a script a request gets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dex_agents.session.texts import CONTEXT_SUMMARY_INSTRUCTIONS, CONTEXT_SUMMARY_NOTE_HEADER
from dex_agents_conformance import (
    ConversationScript,
    ProviderRequest,
    RequestItem,
    RequestOutput,
    RequestToolResult,
    RequestUserText,
    ScriptedReply,
    StrictProvider,
    StrictProviderError,
    TextPart,
    ToolCallPart,
)
from dex_agents_conformance.conversation_script import calls, say

NOTE = f"{CONTEXT_SUMMARY_NOTE_HEADER}\nThey counted sheep."


def script(directory: Path) -> ConversationScript:
    return ConversationScript(
        directory=directory,
        replies={
            "go": [calls(("c1", "look")), calls(("c2", "look"), ("c3", "look")), say("done")],
            "next": [say("well")],
        },
        summaries=(say("They counted sheep."), say("They counted goats.")),
    )


def round_of(*tool_call_ids: str) -> list[RequestItem]:
    parts = tuple(ToolCallPart(tool_call_id=tool_call_id, tool_name="look") for tool_call_id in tool_call_ids)
    results = [RequestToolResult(tool_call_id=tool_call_id, output="seen") for tool_call_id in tool_call_ids]
    return [RequestOutput(parts=parts), *results]


def reply_to(directory: Path, *items: RequestItem, instructions: str = "You are tested.") -> ScriptedReply:
    provider = StrictProvider(script(directory))
    return asyncio.run(provider.reply(ProviderRequest(instructions=instructions, items=items)))


def test_the_place_is_read_from_the_request(tmp_path: Path) -> None:
    said = RequestUserText(text="go")
    assert reply_to(tmp_path, said).tool_calls[0].tool_call_id == "c1"
    assert reply_to(tmp_path, said, *round_of("c1"), *round_of("c2", "c3")).text == "done"
    answered = RequestOutput(parts=(TextPart(text="done"),))
    asked = (said, *round_of("c1"), *round_of("c2", "c3"), answered, RequestUserText(text="next"))
    assert reply_to(tmp_path, *asked).text == "well"


def test_a_turn_that_was_cut_in_its_middle_goes_on_at_its_place(tmp_path: Path) -> None:
    assert reply_to(tmp_path, RequestUserText(text=NOTE), *round_of("c2", "c3")).text == "done"


def test_a_turn_of_which_nothing_is_left_has_no_reply(tmp_path: Path) -> None:
    with pytest.raises(StrictProviderError, match="model-call-was-expected"):
        reply_to(tmp_path, RequestUserText(text=NOTE))


def test_a_summary_follows_the_one_that_the_request_carries(tmp_path: Path) -> None:
    said = RequestUserText(text="go")
    note = RequestUserText(text=NOTE)
    last = RequestUserText(text=f"[Dex] {CONTEXT_SUMMARY_INSTRUCTIONS}")
    assert reply_to(tmp_path, said, last).text == "They counted sheep."
    assert reply_to(tmp_path, note, said, last).text == "They counted goats."
    assert (
        reply_to(tmp_path, said, instructions=f"{CONTEXT_SUMMARY_INSTRUCTIONS}\n{NOTE}").text == "They counted goats."
    )
    assert reply_to(tmp_path, RequestUserText(text="[Dex] They counted goats."), last).text == "They counted goats."
