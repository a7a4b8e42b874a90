"""The model's input from the stored transcript: pairs, order, and what another provider gets."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from dex_agents_stepwise import (
    ModelInputItem,
    ModelOutput,
    ModelOutputItem,
    ModelRequest,
    ModelToolCall,
    ModelToolResult,
    ModelUserText,
    StoredItem,
    StoredToolCall,
    ToolResultItem,
    UnreadableFrameworkItemError,
    UserTextItem,
    build_input_items,
    decode_framework_item,
    encode_framework_item,
)

from .stepwise_session_driver import check_transcript, patient, storable_text

MISSING = "nobody knows"


def build(*stored: StoredItem, provider: str = "acme", api: str = "chat") -> tuple[ModelInputItem, ...]:
    return build_input_items(stored, provider=provider, api=api, missing_result=MISSING)


def output(*calls: tuple[str, str], text: str = "", item: str | None = "{}", provider: str = "acme") -> ModelOutputItem:
    return ModelOutputItem(
        provider=provider,
        api="chat",
        item=item,
        text=text,
        tool_calls=tuple(
            StoredToolCall(tool_call_id=call_id, tool_name=name, arguments='{"n": 1}') for call_id, name in calls
        ),
    )


def result(call_id: str, name: str, text: str) -> ToolResultItem:
    return ToolResultItem(tool_call_id=call_id, tool_name=name, output=text)


@pytest.mark.parametrize(
    ("item", "shape"),
    [
        (UserTextItem(text="hi"), {"type": "user_text", "text": "hi"}),
        (
            ModelOutputItem(
                provider="acme",
                api="chat",
                item='{"id": "rs_1"}',
                text="ok",
                tool_calls=(StoredToolCall(tool_call_id="c1", tool_name="t", arguments="{}"),),
            ),
            {
                "type": "model_output",
                "provider": "acme",
                "api": "chat",
                "item": '{"id": "rs_1"}',
                "text": "ok",
                "tool_calls": [{"tool_call_id": "c1", "tool_name": "t", "arguments": "{}"}],
            },
        ),
        (
            ToolResultItem(tool_call_id="c1", tool_name="t", output="é"),
            {"type": "tool_result", "tool_call_id": "c1", "tool_name": "t", "output": "é"},
        ),
    ],
)
def test_stored_shapes(item: StoredItem, shape: dict[str, object]) -> None:
    encoded = encode_framework_item(item)
    assert encoded == json.dumps(shape, ensure_ascii=False, separators=(",", ":"))
    assert decode_framework_item(encoded) == item
    assert decode_framework_item(json.dumps({**shape, "added_later": 1})) == item


@given(st.one_of(storable_text, st.text('\x00\x1f"\\/\b\f\n\r\t\x7f\u2028é😀')))
def test_stored_bytes_are_those_of_earlier_releases(text: str) -> None:
    """They wrote items with pydantic."""
    item = UserTextItem(text=text)
    assert encode_framework_item(item) == to_json({"type": "user_text", "text": text}).decode()
    assert decode_framework_item(encode_framework_item(item)) == item


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"type":"other"}',
        '{"type":3,"text":"a"}',
        '{"type":"user_text"}',
        '{"type":"user_text","text":3}',
        '{"type":"user_text","text":"\\ud800"}',
        '{"type":"user_text","text":"\ud800"}',
        '{"type":"user_text","text":"a","added_later":' + "[" * 100_000 + "]" * 100_000 + "}",
        "not JSON",
    ],
    ids=lambda text: ascii(text)[:40],
)
def test_items_of_other_runners_are_refused(text: str) -> None:
    with pytest.raises(UnreadableFrameworkItemError, match="start a new session"):
        decode_framework_item(text)


def test_own_items_are_replayed_byte_for_byte_with_the_providers_ids() -> None:
    item = '{"id":"rs_1",  "signature": "\\u00e9"}'
    items = build(UserTextItem(text="hi"), output(("fc_1", "t"), item=item), result("fc_1", "t", "done"))
    assert items == (
        ModelUserText(text="hi"),
        ModelOutput(
            item=item, text="", tool_calls=(ModelToolCall(tool_call_id="fc_1", tool_name="t", arguments='{"n": 1}'),)
        ),
        ModelToolResult(tool_call_id="fc_1", tool_name="t", output="done"),
    )


@pytest.mark.parametrize(("provider", "api"), [("other", "chat"), ("acme", "responses")])
def test_another_provider_gets_text_and_calls_under_unique_ids(provider: str, api: str) -> None:
    items = build(
        UserTextItem(text="hi"),
        output(("", "t"), ("x", "t"), text="calling"),
        result("call-1", "t", "one"),
        result("x", "t", "two"),
        output(("x", "t")),
        result("x~3", "t", "three"),
        UserTextItem(text="go on"),
        provider=provider,
        api=api,
    )
    check_transcript(ModelRequest(instructions="", input_items=items))
    outputs = [item for item in items if isinstance(item, ModelOutput)]
    assert [item.item for item in outputs] == [None, None]
    assert outputs[0].text == "calling"
    assert [item.output for item in items if isinstance(item, ModelToolResult)] == ["one", "two", "three"]


def test_new_ids_keep_clear_of_the_providers_ids() -> None:
    items = build(
        output(("call_1", "t"), provider="other"),
        result("call_1", "t", "other's"),
        output(("call_1", "t"), ("call_2", "t")),
        result("call_1", "t", "own"),
        result("call_2", "t", "own"),
    )
    check_transcript(ModelRequest(instructions="", input_items=items))


def test_repeated_and_blank_ids_pair_by_position() -> None:
    items = build(
        output(("", "t"), ("", "t"), ("same", "u"), ("same", "u")),
        result("call-1", "t", "one"),
        result("call-2", "t", "two"),
        result("same", "u", "three"),
        result("same~4", "u", "four"),
    )
    check_transcript(ModelRequest(instructions="", input_items=items), has_odd_ids=True)
    results = [item for item in items if isinstance(item, ModelToolResult)]
    assert [(item.tool_call_id, item.output) for item in results] == [
        ("", "one"),
        ("", "two"),
        ("same", "three"),
        ("same", "four"),
    ]


def test_a_missing_result_is_filled_in_and_leaves_its_siblings_theirs() -> None:
    items = build(
        output(("a", "t"), ("b", "t"), ("c", "u"), ("x" * 300, "t")),
        result("b", "t", "b's"),
        result("call-4", "t", "the long one's"),
        UserTextItem(text="next"),
        output(("d", "t")),
    )
    check_transcript(ModelRequest(instructions="", input_items=items))
    assert [item.output for item in items if isinstance(item, ModelToolResult)] == [
        MISSING,
        "b's",
        MISSING,
        "the long one's",
        MISSING,
    ]


def test_results_without_a_call_and_empty_outputs_are_left_out() -> None:
    items = build(
        result("gone", "t", "orphan"),
        UserTextItem(text="hi"),
        result("gone", "t", "orphan"),
        output(text=" \n", item=None),
        output(text="", provider="other"),
        output(("a", "t")),
        result("a", "t", "a's"),
        result("b", "t", "orphan"),
    )
    check_transcript(ModelRequest(instructions="", input_items=items))
    assert [type(item).__name__ for item in items] == ["ModelUserText", "ModelOutput", "ModelToolResult"]


call_ids = st.sampled_from(["", " ", "same", "call_1", "call_2", "a/b:c", "x" * 300])
tool_names = st.sampled_from(["t", "u"])
outputs = st.builds(
    lambda calls, text, provider, has_item: ModelOutputItem(
        provider=provider,
        api="chat",
        item="{}" if has_item else None,
        text=text,
        tool_calls=tuple(
            StoredToolCall(tool_call_id=call_id, tool_name=name, arguments="{}") for call_id, name in calls
        ),
    ),
    st.lists(st.tuples(call_ids, tool_names), max_size=4),
    storable_text,
    st.sampled_from(["acme", "other"]),
    st.booleans(),
)
stored_items = st.lists(
    st.builds(UserTextItem, text=st.just("hi"))
    | outputs
    | st.builds(ToolResultItem, tool_call_id=call_ids, tool_name=tool_names, output=storable_text),
    max_size=12,
)


@patient
@given(stored_items, st.sampled_from(["acme", "third"]))
def test_any_stored_list_gives_a_transcript_that_providers_accept(stored: list[StoredItem], provider: str) -> None:
    items = build(UserTextItem(text="first"), *stored, provider=provider)
    check_transcript(ModelRequest(instructions="", input_items=items), has_odd_ids=provider == "acme")


@patient
@given(st.lists(outputs.filter(lambda item: bool(item.tool_calls)), min_size=1, max_size=4))
def test_complete_rounds_keep_every_result_at_its_call(rounds: list[ModelOutputItem]) -> None:
    stored: list[StoredItem] = []
    expected = []
    for number, item in enumerate(rounds):
        stored.append(item)
        for position, call in enumerate(item.tool_calls):
            text = f"{number}.{position}"
            expected.append((call.tool_name, text))
            stored.append(result(f"durable {text}", call.tool_name, text))
    items = build(*stored)
    assert [(item.tool_name, item.output) for item in items if isinstance(item, ModelToolResult)] == expected
