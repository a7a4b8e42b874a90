"""A provider on the loopback interface that speaks the wire formats of Chat Completions and of Anthropic's Messages."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Body = dict[str, Any]
Answer = Callable[["_Handler"], None]


@dataclass
class WireServer:
    """Answers requests in order and remembers them; a context manager.

    Attributes:
        answers: What it answers, in order.
        requests: Path and JSON body of every request.
    """

    answers: list[Answer]
    requests: list[tuple[str, Body]] = field(default_factory=list)

    def __enter__(self) -> WireServer:
        handler = type("Handler", (_Handler,), {"wire": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wire: WireServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.wire.requests.append((self.path, body))
        answer = self.wire.answers.pop(0) if self.wire.answers else status(500)
        answer(self)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def send(self, code: int, content_type: str, body: bytes, **headers: str) -> None:
        self.send_response(code)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.send_header("connection", "close")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True

    def send_part(self, part: bytes) -> None:
        """A stream that breaks off: more is announced than comes."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(part) + 1_000))
        self.end_headers()
        self.wfile.write(part)
        self.wfile.flush()
        self.close_connection = True


def status(code: int, message: str = "no", **headers: str) -> Answer:
    """An error of the provider."""
    body = json.dumps({"type": "error", "error": {"message": message, "type": "test", "code": None}}).encode()
    return lambda handler: handler.send(code, "application/json", body, **headers)


def _stream(parts: list[bytes], *, breaks_off: bool) -> Answer:
    if breaks_off:
        part = b"".join(parts[:-2])
        return lambda handler: handler.send_part(part)
    whole = b"".join(parts)
    return lambda handler: handler.send(200, "text/event-stream", whole)


def chat_stream(text: str = "", *, calls: tuple[tuple[str, str, str], ...] = (), breaks_off: bool = False) -> Answer:
    """A stream of Chat Completions; a call is `(call_id, name, arguments)`."""
    deltas: list[Body] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in (text[:3], text[3:]) if piece]
    for index, (call_id, name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": arguments}
        deltas.append({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})
    chunks = [_chunk(choices=[{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    usage = {
        "prompt_tokens": 50,
        "completion_tokens": 9,
        "total_tokens": 59,
        "prompt_tokens_details": {"cached_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    reason = "tool_calls" if calls else "stop"
    chunks.append(_chunk(choices=[{"index": 0, "delta": {}, "finish_reason": reason}]))
    chunks.append(_chunk(choices=[], usage=usage))
    return _stream([*chunks, b"data: [DONE]\n\n"], breaks_off=breaks_off)


def _chunk(**fields: Any) -> bytes:
    chunk = {"id": "chat_wire", "object": "chat.completion.chunk", "created": 1, "model": "gpt-wire-2026", **fields}
    return f"data: {json.dumps(chunk)}\n\n".encode()


def messages_stream(*blocks: Body, breaks_off: bool = False) -> Answer:
    """A stream of the Messages API with these content blocks."""
    parts = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in _message_events(blocks)]
    return _stream(parts, breaks_off=breaks_off)


def text_block(text: str) -> Body:
    """Text."""
    return {"type": "text", "text": text}


def thinking_block(text: str, signature: str) -> Body:
    """Visible reasoning with the provider's proof of it."""
    return {"type": "thinking", "thinking": text, "signature": signature}


def tool_use_block(call_id: str, name: str, **arguments: Any) -> Body:
    """A tool call."""
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def _message_events(blocks: tuple[Body, ...]) -> Iterator[Body]:
    usage = {"input_tokens": 30, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 5, "output_tokens": 1}
    message = {"id": "msg_wire", "type": "message", "role": "assistant", "model": "claude-wire", "content": []}
    yield {
        "type": "message_start",
        "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage},
    }
    for index, block in enumerate(blocks):
        empty: Body = {"thinking": "", "text": "", "signature": "", "input": {}}
        started = {name: empty.get(name, value) for name, value in block.items()}
        yield {"type": "content_block_start", "index": index, "content_block": started}
        for delta in _deltas(block):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    reason = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": None},
        "usage": {**usage, "output_tokens": 9},
    }
    yield {"type": "message_stop"}


def _deltas(block: Body) -> list[Body]:
    if block["type"] == "text":
        half = len(block["text"]) // 2
        return [{"type": "text_delta", "text": piece} for piece in (block["text"][:half], block["text"][half:])]
    if block["type"] == "thinking":
        return [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    return [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
