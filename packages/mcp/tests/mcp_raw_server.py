"""An MCP server in the standard library alone, of either generation, over stdio or HTTP, that misbehaves on request.

It does what files in its directory say, so that a test controls a process that is started for every request:
`fault.json` names a fault, `tasks/` holds the tasks, `runs.jsonl` records every run of a tool.

    python -I -S mcp_raw_server.py <directory> <modern|legacy> [<port>]
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MODERN, LEGACY = "modern", "legacy"
MODERN_VERSION, LEGACY_VERSION = "2026-07-28", "2025-11-25"
TASKS = "io.modelcontextprotocol/tasks"
KEY = "io.superdurable.dex/idempotencyKey"

_TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}


def _tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "description": f"The tool {name}.", "inputSchema": _TEXT, **fields}


TOOLS = [
    _tool("look", annotations={"readOnlyHint": True}),
    _tool("put", annotations={"idempotentHint": True, "destructiveHint": True}),
    _tool("act", annotations={"destructiveHint": True}),
    _tool("job", annotations={"readOnlyHint": True}, execution={"taskSupport": "required"}),
    _tool("work", execution={"taskSupport": "required"}),
    _tool("ask", annotations={"readOnlyHint": True}),
]


class RawServer:
    """What the server answers, whatever carries it.

    Args:
        directory: Its files.
        era: `modern` or `legacy`.
    """

    def __init__(self, directory: Path, era: str) -> None:
        self.directory = directory
        self.era = era
        self._lock = threading.Lock()

    def fault(self, method: str) -> str | None:
        """What goes wrong with a request of this method."""
        try:
            fault = json.loads((self.directory / "fault.json").read_text())
        except FileNotFoundError:
            return None
        return str(fault["name"]) if method in fault["methods"] or "*" in fault["methods"] else None

    def answer(self, message: Mapping[str, Any], notify: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        """The JSON-RPC response to a request."""
        method, params = message["method"], message.get("params") or {}
        self._write("requests.jsonl", {"method": method, "params": params})
        handler = getattr(self, "_on_" + method.replace("/", "_"), None)
        try:
            if handler is None:
                raise RpcError(-32601, f"unknown method {method}")
            return {"jsonrpc": "2.0", "id": message["id"], "result": handler(params, notify)}
        except RpcError as error:
            body = {"code": error.code, "message": str(error), **({"data": error.data} if error.data else {})}
            return {"jsonrpc": "2.0", "id": message["id"], "error": body}

    def _write(self, name: str, line: Mapping[str, Any]) -> None:
        with self._lock, (self.directory / name).open("a") as file:
            file.write(json.dumps(line) + "\n")

    def _runs_of(self, tool: str) -> int:
        lines = (self.directory / "runs.jsonl").read_text().splitlines()
        return sum(json.loads(line)["tool"] == tool for line in lines)

    def _on_server_discover(self, params: Mapping[str, Any], notify: object) -> dict[str, Any]:
        if self.era != MODERN:
            raise RpcError(-32601, "unknown method server/discover")
        capabilities: dict[str, Any] = {"tools": {}, "extensions": {TASKS: {}}}
        return self._complete({"supportedVersions": [MODERN_VERSION], "capabilities": capabilities})

    def _on_initialize(self, params: Mapping[str, Any], notify: object) -> dict[str, Any]:
        if self.era == MODERN:
            raise RpcError(-32022, "unsupported protocol version", {"supported": [MODERN_VERSION], "requested": "?"})
        capabilities: dict[str, Any] = {"tools": {}, "tasks": {"requests": {"tools": {"call": {}}}}}
        info = {"name": "raw", "version": "1"}
        return {"protocolVersion": LEGACY_VERSION, "capabilities": capabilities, "serverInfo": info}

    def _on_tools_list(self, params: Mapping[str, Any], notify: object) -> dict[str, Any]:
        try:
            tools = json.loads((self.directory / "tools.json").read_text())
        except FileNotFoundError:
            tools = TOOLS
        return self._complete({"tools": tools, **self._listing_fields()})

    def _listing_fields(self) -> dict[str, Any]:
        try:
            fields: dict[str, Any] = json.loads((self.directory / "listing.json").read_text())
        except FileNotFoundError:
            return {}
        return fields

    def _on_tools_call(self, params: Mapping[str, Any], notify: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
        name, arguments = params["name"], params.get("arguments") or {}
        fault = self.fault("tools/call")
        if fault is not None and fault.startswith("rpc_error "):
            raise RpcError(int(fault.removeprefix("rpc_error ")), "refused")
        if name == "ask" and (asked := self._ask(params)) is not None:
            return asked
        if fault == "exit_before_run":
            os._exit(3)
        key = params.get("_meta", {}).get(KEY)
        self._write("runs.jsonl", {"tool": name, "key": key, "arguments": arguments, "pid": os.getpid()})
        if fault == "exit_after_run" or (fault == "exit_after_first_run" and self._runs_of(name) == 1):
            os._exit(3)
        if fault == "internal_error":
            raise RpcError(-32603, "internal error")
        if name in ("job", "work"):
            return self._start_task(params)
        return self._result(name, params, fault, notify)

    def _result(
        self, name: str, params: Mapping[str, Any], fault: str | None, notify: Callable[[dict[str, Any]], None]
    ) -> dict[str, Any]:
        text = f"{name}: {(params.get('arguments') or {}).get('text')}"
        if name == "ask":
            text = f"ask: {json.dumps(params['inputResponses'], sort_keys=True)}"
        content: list[dict[str, Any]] = [{"type": "text", "text": text}]
        if fault == "is_error":
            return self._complete({"content": [{"type": "text", "text": "the tool says no"}], "isError": True})
        if fault == "wrong_shape":
            return self._complete({"nothing": "useful"})
        if fault == "unknown_result_type":
            return {"content": content, "resultType": "mystery"}
        if fault == "unknown_block":
            content.append({"type": "video", "data": "x"})
        if fault == "oversized":
            content = [{"type": "text", "text": "x" * 3_000_000}]
        if fault == "progress":
            token = params["_meta"]["progressToken"]
            for number in (1, 2, 3):
                progress = {"progressToken": token, "progress": number, "total": 3, "message": f"part {number}"}
                notify({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
        return self._complete({"content": content})

    def _ask(self, params: Mapping[str, Any]) -> dict[str, Any] | None:
        state = f"state of {os.getpid() if not self.shares_state else 'all'}"
        responses = params.get("inputResponses") or {}
        if "requestState" in params and params["requestState"] != state:
            raise RpcError(-32602, "invalid request state", {"reason": "invalid_request_state"})
        requests = json.loads((self.directory / "asks.json").read_text())
        missing = {key: request for key, request in requests.items() if key not in responses}
        if not missing:
            return None
        return {"resultType": "input_required", "inputRequests": requests, "requestState": state}

    shares_state = True

    def _complete(self, result: dict[str, Any]) -> dict[str, Any]:
        return {**result, "resultType": "complete"} if self.era == MODERN else result

    # Tasks

    def _task_file(self, task_id: str) -> Path:
        return self.directory / "tasks" / f"{task_id}.json"

    def _start_task(self, params: Mapping[str, Any]) -> dict[str, Any]:
        (self.directory / "tasks").mkdir(exist_ok=True)
        task_id = f"task-{len(list((self.directory / 'tasks').iterdir())) + 1}"
        view: dict[str, Any] = {"taskId": task_id, "status": "working", "createdAt": "2026-01-01T00:00:00Z"}
        with contextlib.suppress(FileNotFoundError):
            view = {**view, **json.loads((self.directory / "new_task.json").read_text())}
        self._task_file(task_id).write_text(json.dumps(view))
        if self.era == MODERN:
            return {"resultType": "task", **view, "pollIntervalMs": 1_000, "ttlMs": None}
        return {"task": {**view, "pollInterval": 1_000, "ttl": params["task"]["ttl"]}}

    def _task(self, params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            view: dict[str, Any] = json.loads(self._task_file(params["taskId"]).read_text())
        except FileNotFoundError:
            raise RpcError(-32602, "no such task") from None
        return view

    def _on_tasks_get(self, params: Mapping[str, Any], notify: object) -> dict[str, Any]:
        view = self._task(params)
        if self.era == MODERN:
            return self._complete({**view, "pollIntervalMs": 1_000})
        return {**{name: view[name] for name in ("taskId", "status", "createdAt")}, "pollInterval": 1_000, "ttl": 1}

    def _on_tasks_result(self, params: Mapping[str, Any], notify: object) -> dict[str, Any]:
        view = self._task(params)
        if "error" in view:
            raise RpcError(view["error"]["code"], view["error"]["message"])
        result: dict[str, Any] = view["result"]
        return result

    def _on_tasks_update(self, params: Mapping[str, Any], notify: object) -> dict[str, Any]:
        view = self._task(params)
        answered = {**view.get("answered", {})}
        for key, response in params["inputResponses"].items():
            answered.setdefault(key, response)
        rest = {key: value for key, value in view.get("inputRequests", {}).items() if key not in answered}
        status = "input_required" if rest else "completed"
        result = {"content": [{"type": "text", "text": json.dumps(answered, sort_keys=True)}]}
        changed = {**view, "answered": answered, "inputRequests": rest, "status": status, "result": result}
        self._task_file(params["taskId"]).write_text(json.dumps(changed))
        return self._complete({})

    def _on_tasks_cancel(self, params: Mapping[str, Any], notify: object) -> dict[str, Any]:
        view = {**self._task(params), "status": "cancelled"}
        self._task_file(params["taskId"]).write_text(json.dumps(view))
        return self._complete(view if self.era == LEGACY else {})


class RpcError(Exception):
    """A JSON-RPC error response."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def serve_stdio(server: RawServer) -> None:
    """One message a line, until the input ends."""
    server.shares_state = False
    if server.fault("*") == "exit_at_start":
        sys.stderr.write("the configuration is wrong\n")
        sys.exit(3)

    def send(message: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            server._write("notifications.jsonl", message)
            continue
        fault = server.fault(message["method"])
        if fault == "silent":
            continue
        response = server.answer(message, send)
        if fault == "hang":
            continue
        if fault == "noise":
            sys.stdout.write("this is no JSON\n")
        if fault == "close_output":
            os.close(1)
            time.sleep(0.2)
            os._exit(0)
        if fault == "cut_json":
            sys.stdout.write(json.dumps(response)[:20])
            sys.stdout.flush()
            os._exit(0)
        send(response)


class RawHttpServer:
    """The same behind a Streamable HTTP endpoint, in threads of the test's process.

    Args:
        server: What it answers.
        keeps_sessions: Whether a legacy server hands out protocol sessions.
        port: The port; 0 for a free one.
    """

    def __init__(self, server: RawServer, *, keeps_sessions: bool = False, port: int = 0) -> None:
        self.server = server
        self.keeps_sessions = keeps_sessions
        self.sessions: set[str] = set()
        self.headers: list[dict[str, str]] = []
        self.refusals = 0
        self.stopped = threading.Event()
        self._http = _HttpServer(("127.0.0.1", port), _Handler)
        self._http.raw = self
        self.port = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def close(self) -> None:
        """Stop listening, and let go of requests that are never answered."""
        self.stopped.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _HttpServer(ThreadingHTTPServer):
    raw: RawHttpServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error of the test."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _HttpServer

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test's output clean."""

    def do_GET(self) -> None:
        self._send(405, "text/plain", b"")

    def do_DELETE(self) -> None:
        self.server.raw.sessions.discard(self.headers.get("mcp-session-id", ""))
        self._send(200, "text/plain", b"")

    def do_POST(self) -> None:
        raw = self.server.raw
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        raw.headers.append({name.lower(): value for name, value in self.headers.items()})
        if "id" not in message or "method" not in message:
            raw.server._write("notifications.jsonl", message)
            self._send(202, "application/json", b"")
            return
        method = message["method"]
        if self._session_is_gone(method):
            self._send(404, "text/plain", b"session not found")
            return
        fault = raw.server.fault(method)
        if fault in ("silent", "hang_before_run"):
            raw.stopped.wait(60)
            return
        if fault is not None and fault.startswith("status_twice "):
            raw.refusals += 1
            fault = None if raw.refusals > 2 else fault.replace("_twice", "")
        if fault is not None and fault.startswith("status "):
            self._send_status(int(fault.split()[1]))
            return
        if fault == "needs_region_header" and "mcp-param-region" not in raw.headers[-1]:
            error = {"code": -32020, "message": "header mismatch"}
            self._send(
                400, "application/json", json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
            )
            return
        if fault == "echo_secrets":
            said = f"{self.path} and {raw.headers[-1].get('authorization')} are not welcome"
            error = {"code": -32602, "message": said}
            refusal = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error})
            self._send(200, "application/json", refusal.encode())
            return
        notifications: list[dict[str, Any]] = []
        response = raw.server.answer(message, notifications.append)
        body = json.dumps(response).encode()
        if fault is None or not self._misbehave(fault, body):
            self._send_response(method, body, notifications)

    def _session_is_gone(self, method: str) -> bool:
        raw = self.server.raw
        if not raw.keeps_sessions or method in ("initialize", "server/discover"):
            return False
        return self.headers.get("mcp-session-id") not in raw.sessions

    def _send_response(self, method: str, body: bytes, notifications: list[dict[str, Any]]) -> None:
        raw = self.server.raw
        extra = {}
        if raw.keeps_sessions and method == "initialize":
            session_id = f"session-{len(raw.sessions) + 1}-{time.monotonic_ns()}"
            raw.sessions.add(session_id)
            extra["mcp-session-id"] = session_id
        if raw.server.era == LEGACY or notifications:
            events = [*(json.dumps(notification).encode() for notification in notifications), body]
            self._send(200, "text/event-stream", b"".join(b"data: " + event + b"\n\n" for event in events), extra)
        else:
            self._send(200, "application/json", body, extra)

    def _misbehave(self, fault: str, body: bytes) -> bool:
        """What goes wrong after the server did what it was asked for."""
        if fault == "hang":
            self.server.raw.stopped.wait(60)
        elif fault.startswith("status_after "):
            self._send_status(int(fault.split()[1]))
        elif fault == "rpc_error_with_status":
            error = {"jsonrpc": "2.0", "id": json.loads(body)["id"], "error": {"code": -32603, "message": "internal"}}
            self._send(500, "application/json", json.dumps(error).encode())
        elif fault == "html":
            self._send(200, "text/html", b"<h1>Log in</h1>")
        elif fault == "broken_json":
            self._send(200, "application/json", body[:20])
        elif fault == "broken_event":
            self._send(200, "text/event-stream", b"data: " + body[:20] + b"\n\n")
        elif fault == "cut_json":
            self._send_part("application/json", body[:20])
        elif fault == "cut_stream":
            self._send_part("text/event-stream", b": ping\n\n")
        elif fault == "empty_stream":
            self._send(200, "text/event-stream", b"")
        elif fault == "close":
            self.close_connection = True
            self.connection.close()
        else:
            return False
        return True

    def _send_status(self, status: int) -> None:
        if status == 302:
            self._send(302, "text/html", b"", {"location": "https://login.invalid/"})
        elif status == 202:
            self._send(202, "application/json", b"")
        else:
            self._send(status, "text/html", b"<h1>gateway</h1>")

    def _send_part(self, content_type: str, part: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(part) + 500))
        self.end_headers()
        self.wfile.write(part)
        self.close_connection = True

    def _send(self, status: int, content_type: str, body: bytes, extra: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        for name, value in (extra or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    server = RawServer(Path(sys.argv[1]), sys.argv[2])
    if len(sys.argv) == 3:
        serve_stdio(server)
        return
    http = RawHttpServer(server, port=int(sys.argv[3]))
    print(f"port {http.port}", flush=True)
    http.stopped.wait()


if __name__ == "__main__":
    main()
