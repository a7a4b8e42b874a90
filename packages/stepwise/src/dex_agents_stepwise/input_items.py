"""The model's input from the stored transcript: every tool call with exactly one result right behind its output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from dex_agents_stepwise.framework_items import (
    ModelOutputItem,
    StoredItem,
    StoredToolCall,
    ToolResultItem,
    UserTextItem,
)
from dex_agents_stepwise.model_client import (
    ModelInputItem,
    ModelOutput,
    ModelToolCall,
    ModelToolResult,
    ModelUserText,
)

__all__ = ["build_input_items"]

_CALL_NUMBER = re.compile(r"call-[0-9]+")


def build_input_items(
    stored: Iterable[StoredItem], *, provider: str, api: str, missing_result: str
) -> tuple[ModelInputItem, ...]:
    """Build the input of a model call.

    Results are matched to calls by position, since a provider's call IDs may be blank or repeat. A call without a
    stored result gets `missing_result`; a result without a call is left out. A model output of this `provider` and
    `api` keeps its item; any other becomes text and calls, under IDs that are unique in the input.

    Args:
        stored: The stored items, oldest first.
        provider: Provider of the client that gets the input.
        api: API of that client.
        missing_result: The text of a result that is not stored.
    """
    rounds = list(_rounds(stored))
    new_ids = _unused_ids(rounds)
    items: list[ModelInputItem] = []
    for head, results in rounds:
        if isinstance(head, UserTextItem):
            items.append(ModelUserText(text=head.text))
            continue
        is_own = (head.provider, head.api) == (provider, api)
        output = _model_output(head, is_own, new_ids)
        if output.item is None and not output.text and not output.tool_calls:
            continue  # providers refuse an empty message
        items.append(output)
        for call, result in zip(output.tool_calls, _matched(head.tool_calls, results), strict=True):
            text = missing_result if result is None else result.output
            items.append(ModelToolResult(tool_call_id=call.tool_call_id, tool_name=call.tool_name, output=text))
    return tuple(items)


def _rounds(stored: Iterable[StoredItem]) -> Iterator[tuple[UserTextItem | ModelOutputItem, list[ToolResultItem]]]:
    """Each user text or model output with the results behind it."""
    head: UserTextItem | ModelOutputItem | None = None
    results: list[ToolResultItem] = []
    for item in stored:
        if isinstance(item, ToolResultItem):
            results.append(item)
            continue
        if head is not None:
            yield head, results
        head, results = item, []
    if head is not None:
        yield head, results


def _unused_ids(rounds: Sequence[tuple[UserTextItem | ModelOutputItem, list[ToolResultItem]]]) -> Iterator[str]:
    used = {call.tool_call_id for head, _ in rounds if isinstance(head, ModelOutputItem) for call in head.tool_calls}
    number = 0
    while True:
        number += 1
        if (new_id := f"call_{number}") not in used:
            yield new_id


def _model_output(stored: ModelOutputItem, is_own: bool, new_ids: Iterator[str]) -> ModelOutput:
    return ModelOutput(
        item=stored.item if is_own else None,
        text=stored.text if stored.text.strip() else "",
        tool_calls=tuple(
            ModelToolCall(
                tool_call_id=call.tool_call_id if is_own else next(new_ids),
                tool_name=call.tool_name,
                arguments=call.arguments,
            )
            for call in stored.tool_calls
        ),
    )


def _matched(calls: Sequence[StoredToolCall], results: Sequence[ToolResultItem]) -> list[ToolResultItem | None]:
    if len(calls) == len(results):
        return list(results)
    remaining = iter(results)
    candidate = next(remaining, None)
    matched: list[ToolResultItem | None] = []
    for call in calls:
        if candidate is not None and _may_belong(call, candidate):
            matched.append(candidate)
            candidate = next(remaining, None)
        else:
            matched.append(None)
    return matched


def _may_belong(call: StoredToolCall, result: ToolResultItem) -> bool:
    """Whether the session may have given the call this result's ID."""
    if call.tool_name != result.tool_name:
        return False
    provider_id, durable_id = call.tool_call_id, result.tool_call_id
    return (
        durable_id == provider_id
        or durable_id.startswith(f"{provider_id}~")
        or _CALL_NUMBER.fullmatch(durable_id) is not None
    )
