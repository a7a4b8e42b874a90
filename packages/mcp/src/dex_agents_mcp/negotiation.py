"""Which protocol a server speaks: 2026-07-28, or the `initialize` handshake of 2025-11-25 and older."""

from __future__ import annotations

import mcp_types as types
from mcp import ClientSession, MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from dex_agents_mcp.http_watch import HttpWatch
from dex_agents_mcp.server_configs import McpProtocol

__all__ = ["REFUSED_CREDENTIALS", "negotiate"]

REFUSED_CREDENTIALS = frozenset({401, 403})
_TOO_MANY_REQUESTS = 429

_DISCOVER = "server/discover"


async def negotiate(session: ClientSession, protocol: McpProtocol, watch: HttpWatch) -> None:
    """Find out, and make the session speak it.

    An HTTP error of a server that is down or refuses the credentials is no verdict about its protocol.

    Args:
        session: A session that has sent nothing yet.
        protocol: What is known or configured; `auto` probes.
        watch: The connection's HTTP answers.

    Raises:
        MCPError: The server refused, or shares no protocol version with this client.
        ValidationError: It answered the handshake with something else.
    """
    if protocol == "legacy":
        await session.initialize()
        return
    version = LATEST_MODERN_VERSION
    for attempt in range(2):
        try:
            raw = await session.send_discover(version)
        except MCPError as error:
            if error.code == types.UNSUPPORTED_PROTOCOL_VERSION:
                supported = _supported_versions(error)
                mutual = [known for known in MODERN_PROTOCOL_VERSIONS if known in supported]
                if mutual and attempt == 0:
                    version = mutual[-1]
                    continue
                if supported and not any(known in HANDSHAKE_PROTOCOL_VERSIONS for known in supported):
                    raise
            if protocol != "auto" or _is_outage(watch.status_of(_DISCOVER)):
                raise
            try:
                await session.initialize()
            except MCPError as handshake:
                # A slow modern server: the probe was over here, and made the connection a modern one there.
                if handshake.code != types.UNSUPPORTED_PROTOCOL_VERSION or attempt:
                    raise
                continue
            return
        if not _adopt(session, raw):
            await session.initialize()
        return


def _adopt(session: ClientSession, raw: dict[str, object]) -> bool:
    try:
        discovered = types.DiscoverResult.model_validate(raw)
    except ValidationError:
        return False
    if not any(version in MODERN_PROTOCOL_VERSIONS for version in discovered.supported_versions):
        return False
    session.adopt(discovered)
    return True


def _supported_versions(error: MCPError) -> list[str]:
    try:
        return list(types.UnsupportedProtocolVersionErrorData.model_validate(error.data).supported)
    except ValidationError:
        return []


def _is_outage(status: int | None) -> bool:
    return status is not None and (status in REFUSED_CREDENTIALS or status == _TOO_MANY_REQUESTS or status >= 500)
