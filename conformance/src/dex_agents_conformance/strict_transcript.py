"""The rules of the strictest provider. A request that breaks one would be refused, now and in every later turn."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from dex_agents.session.sanitizer import sanitize_text
from dex_agents_conformance.conversation_script import (
    ConversationScript,
    ReasoningPart,
    ReplyPart,
    TextPart,
    ToolCallPart,
)
from dex_agents_conformance.provider_request import (
    ProviderRequest,
    RequestItem,
    RequestOutput,
    RequestToolResult,
    RequestUserText,
)

__all__ = ["ProviderRule", "Violation", "find_violations"]


class ProviderRule(StrEnum):
    """What a request must hold; the value stands in the message of a violation."""

    CONTENT = "content-is-not-empty"  #: no blank user text, no output without parts, no empty conversation
    ENCODABLE = "text-is-unicode"  #: every text is valid UTF-8 without NUL
    FIRST_IS_USER = "conversation-begins-with-the-user"
    LAST_IS_INPUT = "request-ends-with-something-to-answer"
    RESULT_PER_CALL = "one-result-per-call"  #: every call has exactly one result right behind its output
    RESULT_ORDER = "results-in-call-order"
    RESULT_WITHOUT_CALL = "no-result-without-its-call"
    UNIQUE_IDS = "tool-call-ids-are-unique"  #: waived only where the script repeats them
    KNOWN_IDS = "tool-call-ids-are-the-providers"  #: no invented IDs
    ARGUMENTS = "arguments-are-a-json-object"
    KNOWN_REASONING = "reasoning-is-byte-equal"  #: the provider's own items come back as they were
    REASONING_ORDER = "reasoning-stands-where-it-stood"
    OUTPUT_TEXT = "model-text-is-unchanged"
    INSTRUCTIONS = "instructions-are-sent"
    EXPECTED_CALL = "model-call-was-expected"  #: the script has a reply for this place of the conversation


class Violation(NamedTuple):
    """A broken rule."""

    rule: ProviderRule
    detail: str

    def __str__(self) -> str:
        return f"[{self.rule.value}] {self.detail}"


def find_violations(request: ProviderRequest, script: ConversationScript) -> list[Violation]:
    """Every rule that the request breaks."""
    return [
        *_encoding(request),
        *_ends(request, script),
        *_pairs(request.items),
        *_identifiers(request, script),
        *_outputs(request, script),
    ]


def _ends(request: ProviderRequest, script: ConversationScript) -> Iterator[Violation]:
    if not request.is_summary_request and script.instructions not in request.instructions:
        yield Violation(ProviderRule.INSTRUCTIONS, f"the system prompt is {request.instructions!r}")
    if not request.items:
        yield Violation(ProviderRule.CONTENT, "the conversation is empty")
        return
    if not isinstance(request.items[0], RequestUserText):
        yield Violation(ProviderRule.FIRST_IS_USER, f"it begins with {request.items[0]!r}")
    if isinstance(request.items[-1], RequestOutput):
        yield Violation(ProviderRule.LAST_IS_INPUT, "it ends with the model's own output")
    for item in request.items:
        if isinstance(item, RequestUserText) and not item.text.strip():
            yield Violation(ProviderRule.CONTENT, "a user text is blank")
        if isinstance(item, RequestOutput) and not any(_has_content(part) for part in item.parts):
            yield Violation(ProviderRule.CONTENT, "an output of the model has nothing in it")


def _has_content(part: ReplyPart) -> bool:
    return not isinstance(part, TextPart) or part.text != ""


def _encoding(request: ProviderRequest) -> Iterator[Violation]:
    texts = [request.instructions, *request.tool_names]
    for item in request.items:
        match item:
            case RequestUserText():
                texts.append(item.text)
            case RequestToolResult():
                texts += [item.tool_call_id, item.output]
            case RequestOutput():
                for part in item.parts:
                    texts += _texts(part)
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError:
            yield Violation(ProviderRule.ENCODABLE, f"a text has a lone surrogate: {text!r}")
        if "\0" in text:
            yield Violation(ProviderRule.ENCODABLE, f"a text has a NUL: {text!r}")


def _texts(part: ReplyPart) -> list[str]:
    match part:
        case TextPart():
            return [part.text]
        case ReasoningPart():
            return [part.text, part.signature]
        case ToolCallPart():
            return [part.tool_call_id, part.tool_name, part.arguments]


def _pairs(items: Sequence[RequestItem]) -> Iterator[Violation]:
    position = 0
    while position < len(items):
        item = items[position]
        position += 1
        if isinstance(item, RequestToolResult):
            yield Violation(ProviderRule.RESULT_WITHOUT_CALL, f"no call stands before the result {item.tool_call_id!r}")
        if not isinstance(item, RequestOutput):
            continue
        results = []
        while position < len(items) and isinstance(behind := items[position], RequestToolResult):
            results.append(behind)
            position += 1
        yield from _results(item.tool_calls, results)


def _results(tool_calls: Sequence[ToolCallPart], results: Sequence[RequestToolResult]) -> Iterator[Violation]:
    wanted = [call.tool_call_id for call in tool_calls]
    found = [result.tool_call_id for result in results]
    if wanted == found:
        return
    if sorted(wanted) == sorted(found):
        yield Violation(ProviderRule.RESULT_ORDER, f"the calls are {wanted}, the results behind them {found}")
        return
    if missing := [tool_call_id for tool_call_id in wanted if wanted.count(tool_call_id) > found.count(tool_call_id)]:
        yield Violation(ProviderRule.RESULT_PER_CALL, f"no result for {missing} behind the calls {wanted}")
    if extra := [tool_call_id for tool_call_id in found if found.count(tool_call_id) > wanted.count(tool_call_id)]:
        rule = ProviderRule.RESULT_PER_CALL if set(extra) <= set(wanted) else ProviderRule.RESULT_WITHOUT_CALL
        yield Violation(rule, f"results {extra} too many behind the calls {wanted}")


def _identifiers(request: ProviderRequest, script: ConversationScript) -> Iterator[Violation]:
    scripted = {
        call.tool_call_id for replies in script.replies.values() for reply in replies for call in reply.tool_calls
    }
    seen: set[str] = set()
    for call in (call for output in request.outputs for call in output.tool_calls):
        if problem := _arguments_problem(call.arguments):
            yield Violation(ProviderRule.ARGUMENTS, f"call {call.tool_call_id!r} of {call.tool_name}: {problem}")
        if script.repeats_tool_call_ids:
            continue
        if call.tool_call_id in seen:
            yield Violation(ProviderRule.UNIQUE_IDS, f"{call.tool_call_id!r} stands for two calls")
        seen.add(call.tool_call_id)
        if call.tool_call_id not in scripted:
            yield Violation(ProviderRule.KNOWN_IDS, f"no reply had a call {call.tool_call_id!r}")


def _arguments_problem(arguments: str) -> str | None:
    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no JSON")

    try:
        value = json.loads(arguments, parse_constant=refuse)
    except ValueError as error:
        return f"{arguments!r} is no JSON: {error}"
    return None if isinstance(value, dict) else f"{arguments!r} is no JSON object"


def _outputs(request: ProviderRequest, script: ConversationScript) -> Iterator[Violation]:
    replies = [reply for replies in script.replies.values() for reply in replies]
    proofs = {part.signature: part for reply in replies for part in reply.parts if isinstance(part, ReasoningPart)}
    for output in request.outputs:
        reasoning = [part for part in output.parts if isinstance(part, ReasoningPart)]
        for part in reasoning:
            if proofs.get(part.signature) != part:
                yield Violation(ProviderRule.KNOWN_REASONING, f"no reply had the reasoning {part!r}")
        if reasoning and not any(_is_part_of(output.parts, reply.parts) for reply in replies):
            yield Violation(ProviderRule.REASONING_ORDER, f"no reply had these parts in this order: {output.parts!r}")
        if output.text and not any(_same_text(output.text, reply.text) for reply in replies):
            yield Violation(ProviderRule.OUTPUT_TEXT, f"no reply said {output.text!r}")


def _same_text(text: str, scripted: str) -> bool:
    return text in (scripted, sanitize_text(scripted))


def _is_part_of(parts: Sequence[ReplyPart], reply: Sequence[ReplyPart]) -> bool:
    """Whether the parts stand in the reply in this order; arguments may be written another way."""
    position = 0
    for part in parts:
        while position < len(reply) and _identity(reply[position]) != _identity(part):
            position += 1
        if position == len(reply):
            return False
        position += 1
    return True


def _identity(part: ReplyPart) -> tuple[str, ...]:
    match part:
        case TextPart():
            return ("text", part.text)
        case ReasoningPart():
            return ("reasoning", part.text, part.signature)
        case ToolCallPart():
            return ("tool_call", part.tool_call_id, part.tool_name)
