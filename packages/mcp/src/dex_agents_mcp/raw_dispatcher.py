"""Requests of the SDK's session whose results are read as the server sent them.

The session refuses what it does not expect: one malformed tool hides a listing, and an unknown content block turns a
call that ran into an exception. So it gets a result it always accepts, and callers read the raw one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.shared.dispatcher import CallOptions
from mcp.shared.inbound import mcp_param_headers
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp_types import RequestId

__all__ = ["RawDispatcher"]

_READ_BY_THE_SESSION = frozenset({"initialize", "server/discover"})
_ACCEPTED_BY_THE_SESSION: Mapping[str, Mapping[str, Any]] = {
    "tools/call": {"content": []},
    "tools/list": {"tools": []},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "resources/read": {"contents": []},
    "prompts/list": {"prompts": []},
    "prompts/get": {"messages": []},
}


class RawDispatcher(JSONRPCDispatcher[Any]):
    """Keeps the raw result of the latest request.

    Attributes:
        raw_result: What the server answered last.
        parameter_headers: Which arguments of the called tool a 2026-07-28 HTTP server wants as headers too, by path.
    """

    raw_result: dict[str, Any] | None = None
    parameter_headers: Mapping[tuple[str, ...], str] | None = None

    async def send_raw_request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: CallOptions | None = None,
        *,
        _related_request_id: RequestId | None = None,
    ) -> dict[str, Any]:
        """Send a request and give the session a result it accepts."""
        self.raw_result = None
        if method == "initialize":
            params = _without_elicitation(params)
        if method == "tools/call" and self.parameter_headers:
            arguments = (params or {}).get("arguments") or {}
            extra = mcp_param_headers(dict(self.parameter_headers), arguments)
            opts = {**(opts or {}), "headers": {**((opts or {}).get("headers") or {}), **extra}}
        result = await super().send_raw_request(method, params, opts, _related_request_id=_related_request_id)
        self.raw_result = result
        if method in _READ_BY_THE_SESSION:
            return result
        accepted = _ACCEPTED_BY_THE_SESSION.get(method, {})
        return {**accepted, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def _without_elicitation(params: Mapping[str, Any] | None) -> dict[str, Any]:
    """Before 2026-07-28 a server asks during the call and waits on the connection, which no durable question can."""
    params = dict(params or {})
    capabilities = dict(params.get("capabilities") or {})
    capabilities.pop("elicitation", None)
    return {**params, "capabilities": capabilities}
