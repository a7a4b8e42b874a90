"""A local server that streams words for ever, as a provider does: every model call holds a socket of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from dex_agents_stepwise import ModelRequest, ScriptedModelReply

__all__ = ["TokenServer", "token_server"]

SECONDS_BETWEEN_WORDS = 0.002


class TokenServer:
    """Counts its connections, and streams from them into model requests."""

    def __init__(self) -> None:
        self.connections = 0
        self.open_connections = 0
        self._port = 0

    async def stream(self, request: ModelRequest, streams: asyncio.Event) -> ScriptedModelReply:
        """A reply that streams until it is cancelled.

        Args:
            request: The model call.
            streams: Set when its first word has arrived.
        """
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            # Frameworks read in a task of their own.
            async with asyncio.TaskGroup() as group:
                group.create_task(_forward(reader, request, streams))
        finally:
            writer.close()
            await writer.wait_closed()
        raise AssertionError("the server does not end")

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self.connections += 1
        self.open_connections += 1
        ended = asyncio.create_task(reader.read())
        try:
            while not ended.done():
                writer.write(b"word ")
                await asyncio.wait([ended], timeout=SECONDS_BETWEEN_WORDS)
            with contextlib.suppress(ConnectionError):
                await ended
        finally:
            self.open_connections -= 1
            writer.close()

    async def start(self) -> asyncio.Server:
        """Listen on a free port."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        return server


async def _forward(reader: asyncio.StreamReader, request: ModelRequest, streams: asyncio.Event) -> None:
    while data := await reader.read(100):
        request.on_text_delta(data.decode())
        streams.set()


@contextlib.asynccontextmanager
async def token_server() -> AsyncIterator[TokenServer]:
    """A server that is gone at the end, with all of its connections."""
    tokens = TokenServer()
    server = await tokens.start()
    try:
        yield tokens
    finally:
        server.close()
        await server.wait_closed()
    assert tokens.open_connections == 0
