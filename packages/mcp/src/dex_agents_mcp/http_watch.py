"""What the HTTP answers of a connection were: the SDK turns them into JSON-RPC errors that no server sent."""

from __future__ import annotations

import json

import httpx2

__all__ = ["HttpWatch"]


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

    async def on_response(self, response: httpx2.Response) -> None:
        """Event hook of the HTTP client; runs before the body is read."""
        self.session_id = response.headers.get("mcp-session-id", self.session_id)
        if response.request.method != "POST":
            return
        method = _method(response.request)
        if method is not None:
            self.status = response.status_code
            self._responses[method] = response

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


def _method(request: httpx2.Request) -> str | None:
    """The JSON-RPC method of a request; None for a notification or a reply."""
    try:
        body = json.loads(request.content)
    except (ValueError, httpx2.StreamError):
        return None
    if not isinstance(body, dict) or "id" not in body or not isinstance(body.get("method"), str):
        return None
    return str(body["method"])
