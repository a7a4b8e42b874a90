"""What the HTTP answers of a connection were: the SDK turns them into JSON-RPC errors that no server sent."""

from __future__ import annotations

import json
from typing import Any

import anyio
import anyio.lowlevel
import httpx2

__all__ = ["HttpWatch"]

_CANCELLED = "notifications/cancelled"
CANCELLATION_TIMEOUT = 1.0
# Enough for the transport to begin a request that was handed to it.
_TURNS_OF_THE_LOOP = 10


class HttpWatch:
    """Remembers the answer to the latest POST of every method.

    Attributes:
        session_id: The protocol session that the server keeps, if it does.
        status: HTTP status of the latest answer to any POST.
    """

    def __init__(self) -> None:
        self.session_id: str | None = None
        self.status: int | None = None
        self._responses: dict[str, httpx2.Response] = {}
        self._is_cancelling = False
        self._has_cancelled = anyio.Event()

    async def on_request(self, request: httpx2.Request) -> None:
        """Event hook of the HTTP client."""
        if request.method == "POST" and _message(request).get("method") == _CANCELLED:
            self._is_cancelling = True

    async def on_response(self, response: httpx2.Response) -> None:
        """Event hook of the HTTP client; runs before the body is read."""
        self.session_id = response.headers.get("mcp-session-id", self.session_id)
        if response.request.method != "POST":
            return
        message = _message(response.request)
        method = message.get("method")
        if method == _CANCELLED:
            self._has_cancelled.set()
        elif isinstance(method, str) and "id" in message:
            self.status = response.status_code
            self._responses[method] = response

    async def wait_until_cancelled(self) -> None:
        """Let the server hear that nobody waits any more, where a request of its own says so: a second at most.

        Closing the connection at once would take that request back.
        """
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CANCELLATION_TIMEOUT):
            for _ in range(_TURNS_OF_THE_LOOP):
                await anyio.lowlevel.checkpoint()
            if self._is_cancelling:
                await self._has_cancelled.wait()

    def forget(self, method: str) -> None:
        """A new request of this method begins."""
        self._responses.pop(method, None)

    def status_of(self, method: str) -> int | None:
        """HTTP status of the answer to a method's latest request."""
        response = self._responses.get(method)
        return None if response is None else response.status_code

    def has_error_body(self, method: str) -> bool | None:
        """Whether the answer's body was a JSON-RPC error; None when that cannot be told, as of an event stream."""
        response = self._responses.get(method)
        if response is None:
            return None
        content_type = response.headers.get("content-type", "").lower()
        if content_type.startswith("application/json"):
            try:
                body = json.loads(response.content)
            except (ValueError, httpx2.StreamError):
                return False
            error = body.get("error") if isinstance(body, dict) else None
            return isinstance(error, dict) and isinstance(error.get("code"), int)
        if response.status_code >= 300 or not content_type.startswith("text/event-stream"):
            return False
        return None


def _message(request: httpx2.Request) -> dict[str, Any]:
    """The JSON-RPC message of a request."""
    try:
        body = json.loads(request.content)
    except (ValueError, httpx2.StreamError):
        return {}
    return body if isinstance(body, dict) else {}
