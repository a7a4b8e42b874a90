"""Each rule of the strict provider: what breaks it, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from dex_agents_conformance import (
    ConversationScript,
    ProviderRequest,
    ReasoningPart,
    ReplyPart,
    RequestItem,
    RequestOutput,
    RequestToolResult,
    RequestUserText,
    ScriptedReply,
    TextPart,
    ToolCallPart,
)
from dex_agents_conformance.strict_transcript import ProviderRule, find_violations

REASONING = ReasoningPart(text="hm", signature="proof")
FIRST = ToolCallPart(tool_call_id="c1", tool_name="work")
SECOND = ToolCallPart(tool_call_id="c2", tool_name="work")
REPLY = (REASONING, TextPart(text="let me"), FIRST, SECOND)
USER = RequestUserText(text="go")


def result(tool_call_id: str, output: str = "done") -> RequestToolResult:
    return RequestToolResult(tool_call_id=tool_call_id, output=output)


def output(*parts: ReplyPart) -> RequestOutput:
    return RequestOutput(parts=parts)


GOOD: tuple[RequestItem, ...] = (USER, output(*REPLY), result("c1"), result("c2"))


def rules(
    items: Sequence[RequestItem], *, instructions: str = "You are tested.", script: ConversationScript | None = None
) -> set[ProviderRule]:
    request = ProviderRequest(instructions=instructions, items=tuple(items))
    script = script or ConversationScript(directory=Path(), replies={"go": [ScriptedReply(parts=REPLY)]})
    return {violation.rule for violation in find_violations(request, script)}


def test_a_good_request_breaks_no_rule() -> None:
    assert rules(GOOD) == set()
    assert rules([*GOOD, output(TextPart(text="let me")), USER]) == set()


BROKEN: dict[str, tuple[Sequence[RequestItem], ProviderRule]] = {
    "no conversation": ([], ProviderRule.CONTENT),
    "blank user text": ([RequestUserText(text=" ")], ProviderRule.CONTENT),
    "empty output": ([USER, output(), USER], ProviderRule.CONTENT),
    "empty text": ([USER, output(TextPart(text="")), USER], ProviderRule.CONTENT),
    "surrogate": ([RequestUserText(text="half \ud83d")], ProviderRule.ENCODABLE),
    "surrogate in a result": ([*GOOD[:3], result("c2", "\udc00")], ProviderRule.ENCODABLE),
    "NUL": ([RequestUserText(text="a\0b")], ProviderRule.ENCODABLE),
    "begins with the model": ([output(TextPart(text="let me")), USER], ProviderRule.FIRST_IS_USER),
    "ends with the model": ([USER, output(TextPart(text="let me"))], ProviderRule.LAST_IS_INPUT),
    "missing result": (GOOD[:3], ProviderRule.RESULT_PER_CALL),
    "two results": ([*GOOD, result("c2")], ProviderRule.RESULT_PER_CALL),
    "user between call and result": ([*GOOD[:2], USER, *GOOD[2:]], ProviderRule.RESULT_PER_CALL),
    "wrong order": ([*GOOD[:2], GOOD[3], GOOD[2]], ProviderRule.RESULT_ORDER),
    "result without call": ([USER, result("c1")], ProviderRule.RESULT_WITHOUT_CALL),
    "unknown result": ([*GOOD, result("c9")], ProviderRule.RESULT_WITHOUT_CALL),
    "same ID twice": ([*GOOD, output(FIRST), result("c1")], ProviderRule.UNIQUE_IDS),
    "unknown ID": (
        [USER, output(ToolCallPart(tool_call_id="x", tool_name="work")), result("x")],
        ProviderRule.KNOWN_IDS,
    ),
    "broken arguments": (
        [USER, output(ToolCallPart(tool_call_id="c1", tool_name="work", arguments='{"a')), result("c1")],
        ProviderRule.ARGUMENTS,
    ),
    "NaN": (
        [USER, output(ToolCallPart(tool_call_id="c1", tool_name="work", arguments='{"a": NaN}')), result("c1")],
        ProviderRule.ARGUMENTS,
    ),
    "array": (
        [USER, output(ToolCallPart(tool_call_id="c1", tool_name="work", arguments="[]")), result("c1")],
        ProviderRule.ARGUMENTS,
    ),
    "unknown signature": (
        [USER, output(ReasoningPart(text="hm", signature="forged"), TextPart(text="let me")), USER],
        ProviderRule.KNOWN_REASONING,
    ),
    "rewritten reasoning": (
        [USER, output(ReasoningPart(text="h", signature="proof"), TextPart(text="let me")), USER],
        ProviderRule.KNOWN_REASONING,
    ),
    "moved reasoning": ([USER, output(TextPart(text="let me"), REASONING), USER], ProviderRule.REASONING_ORDER),
    "rewritten text": ([USER, output(TextPart(text="LET ME")), USER], ProviderRule.OUTPUT_TEXT),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_named(name: str) -> None:
    items, rule = BROKEN[name]
    assert rule in rules(items)


def test_every_rule_of_a_request_has_a_test() -> None:
    tested = {rule for _, rule in BROKEN.values()}
    assert tested == set(ProviderRule) - {ProviderRule.INSTRUCTIONS, ProviderRule.EXPECTED_CALL}


def test_missing_instructions_are_named() -> None:
    assert rules(GOOD, instructions="Be nice.") == {ProviderRule.INSTRUCTIONS}


def test_reasoning_may_be_dropped_with_the_rest_in_order() -> None:
    assert rules([USER, output(TextPart(text="let me"), FIRST), result("c1")]) == set()


def test_repeated_ids_are_allowed_where_the_model_repeats_them() -> None:
    script = ConversationScript(
        directory=Path(), replies={"go": [ScriptedReply(parts=(FIRST, FIRST)), ScriptedReply(parts=(FIRST,))]}
    )
    items: list[RequestItem] = [USER, output(FIRST, FIRST), result("c1"), result("c1"), output(FIRST), result("c1")]
    assert rules(items, script=script) == set()
