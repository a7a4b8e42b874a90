"""Streams of Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from openai_wire_server import Answer, Body

USAGE = {
    "input_tokens": 10,
    "cache_read_input_tokens": 100,
    "cache_creation_input_tokens": 7,
    "output_tokens": 1,
}


def thinking(text: str, signature: str) -> Body:
    return {"type": "thinking", "thinking": text, "signature": signature}


def redacted_thinking(data: str) -> Body:
    return {"type": "redacted_thinking", "data": data}


def tool_use(name: str, arguments: Any, call_id: str) -> Body:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def text(content: str) -> Body:
    return {"type": "text", "text": content}


def messages_stream(*blocks: Body, breaks_off: bool = False, stop_reason: str | None = None) -> Answer:
    """A streamed answer of the Messages API; one that breaks off ends before its last block does."""
    events = list(_events(blocks, stop_reason))
    if breaks_off:
        part = b"".join(map(_encoded, events[:-3]))
        return lambda handler: handler.send_part(part)
    whole = b"".join(map(_encoded, events))
    return lambda handler: handler.send(200, "text/event-stream", whole)


def _encoded(event: Body) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _events(blocks: tuple[Body, ...], stop_reason: str | None) -> Iterator[Body]:
    message: Body = {
        "id": "msg_wire",
        "type": "message",
        "role": "assistant",
        "model": "claude-wire-2026",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": USAGE,
    }
    yield {"type": "message_start", "message": message}
    for index, block in enumerate(blocks):
        start, deltas = _block_in_pieces(block)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    reason = stop_reason or ("tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn")
    delta = {"stop_reason": reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}}
    yield {"type": "message_stop"}


def _block_in_pieces(block: Body) -> tuple[Body, list[Body]]:
    match block["type"]:
        case "text":
            words = block["text"]
            pieces = [words[: len(words) // 2], words[len(words) // 2 :]]
            return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]
        case "thinking":
            deltas: list[Body] = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
            return {"type": "thinking", "thinking": "", "signature": ""}, deltas
        case "tool_use":
            arguments = json.dumps(block["input"])
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": arguments}]
        case _:
            return block, []
