"""An MCP server of 2026-07-28 over standard input and output, in the standard library alone, so that it starts quickly.

    python -I -S mcp_server_program.py <listing> <log>

The listing names the tools and what they do; `scripted_mcp_server.py` writes it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

IDEMPOTENCY_KEY = "io.superdurable.dex/idempotencyKey"
VERSION = "2026-07-28"


class _Refusal(Exception):
    """A JSON-RPC error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class _Server:
    def __init__(self, listing: str, log: str) -> None:
        self._listing = listing
        self._log = log

    def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """The result; None for a request that is never answered."""
        if method == "server/discover":
            return {"supportedVersions": [VERSION], "capabilities": {"tools": {}}}
        if method == "tools/list":
            return {"tools": [tool["listed"] for tool in self._tools() if tool["is_listed"]]}
        if method == "tools/call":
            return self._call(params)
        raise _Refusal(-32601, f"unknown method {method}")

    def _tools(self) -> list[dict[str, Any]]:
        with open(self._listing, encoding="utf-8") as file:
            tools: list[dict[str, Any]] = json.load(file)
        return tools

    def _call(self, params: dict[str, Any]) -> dict[str, Any] | None:
        name = params["name"]
        tool = next((tool for tool in self._tools() if tool["listed"]["name"] == name), None)
        if tool is None:
            raise _Refusal(-32602, f"unknown tool {name}")
        arguments = params.get("arguments") or {}
        value = arguments.get("value", "")
        if tool["echoes_arguments"]:
            value = json.dumps(arguments, sort_keys=True, ensure_ascii=False)
        if tool["question"] is not None:
            answers = [response for response in (params.get("inputResponses") or {}).values()]
            if not answers:
                return {"resultType": "input_required", "inputRequests": {"choice": _request(tool)}}
            value = answers[0].get("content", {}).get("answer", answers[0]["action"])
        self._record(name, "effect")
        self._record(value, "value")
        self._record(params.get("_meta", {}).get(IDEMPOTENCY_KEY, ""), "key")
        if self._runs(name) <= tool["deaths"]:
            os._exit(3)
        if self._runs(name) <= tool["unanswered"]:
            return None
        is_error = tool["failure"] is not None
        text = tool["failure"] if is_error else f"{name}:{value}"
        return {"content": [{"type": "text", "text": text}], "isError": is_error}

    def _record(self, key: str, event: str) -> None:
        line = json.dumps({"key": key, "event": event, "attempt": 0, "process": os.getpid()})
        descriptor = os.open(self._log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(descriptor, line.encode() + b"\n")
        os.close(descriptor)

    def _runs(self, name: str) -> int:
        with open(self._log, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        return sum(line["event"] == "effect" and line["key"] == name for line in lines)


def _request(tool: dict[str, Any]) -> dict[str, Any]:
    answer = {"type": "string", "enum": tool["choices"]} if tool["choices"] else {"type": "string"}
    schema = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    params = {"message": tool["question"], "requestedSchema": schema}
    return {"method": "elicitation/create", "params": params}


def _main() -> None:
    server = _Server(sys.argv[1], sys.argv[2])
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        response: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        try:
            result = server.answer(message["method"], message.get("params") or {})
            if result is None:
                continue
            response["result"] = {"resultType": "complete", **result}
        except _Refusal as refusal:
            response["error"] = {"code": refusal.code, "message": str(refusal)}
        sys.stdout.write(json.dumps(response) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _main()
