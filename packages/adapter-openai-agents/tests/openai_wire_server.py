"""A provider on the loopback interface that speaks the wire formats of Responses and Chat Completions."""

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
        headers: Their headers.
    """

    answers: list[Answer]
    requests: list[tuple[str, Body]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

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
        """The base URL for a client."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wire: WireServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.wire.requests.append((self.path, body))
        self.wire.headers.append({name.lower(): value for name, value in self.headers.items()})
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
    body = json.dumps({"error": {"message": message, "type": "test", "code": None, "param": None}}).encode()
    return lambda handler: handler.send(code, "application/json", body, **headers)


def responses_stream(*items: Body, breaks_off: bool = False) -> Answer:
    """A stream of the Responses API."""
    events = list(_response_events(items))
    if breaks_off:
        part = b"".join(_event(event["type"], event) for event in events[:-1])
        return lambda handler: handler.send_part(part)
    whole = b"".join(_event(event["type"], event) for event in events)
    return lambda handler: handler.send(200, "text/event-stream", whole)


def incomplete_stream(text: str, reason: str) -> Answer:
    """A stream of the Responses API that ends before the answer does."""
    *events, completed = _response_events((message(text),))
    response = {**completed["response"], "status": "incomplete", "incomplete_details": {"reason": reason}}
    events.append({**completed, "type": "response.incomplete", "response": response})
    whole = b"".join(_event(event["type"], event) for event in events)
    return lambda handler: handler.send(200, "text/event-stream", whole)


def _event(name: str, data: Body) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


def _response(items: tuple[Body, ...], state: str) -> Body:
    usage = {
        "input_tokens": 50,
        "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 0},
        "output_tokens": 9,
        "output_tokens_details": {"reasoning_tokens": 4},
        "total_tokens": 59,
    }
    return {
        "id": "resp_wire",
        "object": "response",
        "created_at": 1,
        "status": state,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": "gpt-wire-2026",
        "output": list(items) if state == "completed" else [],
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": usage if state == "completed" else None,
    }


def _response_events(items: tuple[Body, ...]) -> Iterator[Body]:
    number = 0

    def event(type: str, **fields: Any) -> Body:
        nonlocal number
        number += 1
        return {"type": type, "sequence_number": number, **fields}

    yield event("response.created", response=_response((), "in_progress"))
    for index, item in enumerate(items):
        yield event("response.output_item.added", output_index=index, item={**item, "status": "in_progress"})
        if item["type"] == "message":
            text = item["content"][0]["text"]
            for piece in (text[: len(text) // 2], text[len(text) // 2 :]):
                yield event(
                    "response.output_text.delta",
                    output_index=index,
                    content_index=0,
                    item_id=item["id"],
                    delta=piece,
                    logprobs=[],
                )
        if item["type"] == "reasoning":
            yield event(
                "response.reasoning_summary_text.delta",
                output_index=index,
                summary_index=0,
                item_id=item["id"],
                delta=item["summary"][0]["text"],
            )
        yield event("response.output_item.done", output_index=index, item=item)
    yield event("response.completed", response=_response(items, "completed"))


def message(text: str) -> Body:
    """A message item of the Responses API."""
    return {
        "id": "msg_wire",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
    }


def function_call(name: str, arguments: str, call_id: str) -> Body:
    """A function call item of the Responses API."""
    return {
        "id": f"fc_{call_id}",
        "type": "function_call",
        "status": "completed",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def reasoning(text: str, proof: str) -> Body:
    """A reasoning item of the Responses API."""
    return {
        "id": "rs_wire",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text}],
        "encrypted_content": proof,
    }


def chat_stream(text: str = "", *, calls: tuple[tuple[str, str, str], ...] = (), breaks_off: bool = False) -> Answer:
    """A stream of Chat Completions; a call is `(call_id, name, arguments)`."""
    deltas: list[Body] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": piece} for piece in (text[:3], text[3:]) if piece]
    for index, (call_id, name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": arguments}
        deltas.append({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})
    chunks = [_chunk(choices=[{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    if breaks_off:
        part = b"".join(chunks)
        return lambda handler: handler.send_part(part)
    reason = "tool_calls" if calls else "stop"
    usage = {
        "prompt_tokens": 50,
        "completion_tokens": 9,
        "total_tokens": 59,
        "prompt_tokens_details": {"cached_tokens": 20},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    chunks.append(_chunk(choices=[{"index": 0, "delta": {}, "finish_reason": reason}]))
    chunks.append(_chunk(choices=[], usage=usage))
    whole = b"".join([*chunks, b"data: [DONE]\n\n"])
    return lambda handler: handler.send(200, "text/event-stream", whole)


def _chunk(**fields: Any) -> bytes:
    chunk = {"id": "chat_wire", "object": "chat.completion.chunk", "created": 1, "model": "gpt-wire-2026", **fields}
    return f"data: {json.dumps(chunk)}\n\n".encode()
