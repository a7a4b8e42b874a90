"""Keeping what the configuration holds back out of error texts and logs."""

from __future__ import annotations

from collections.abc import Iterable

import httpx2

from dex_agents_mcp.server_configs import McpServer, McpStdioServer

__all__ = ["SecretRedactor"]

REDACTED = "[redacted]"
MIN_SECRET_LENGTH = 6


class SecretRedactor:
    """Replaces secrets of one server in texts.

    Secrets are the values of its environment and headers, and what its URL carries as user information and query.
    Values of fewer than 6 characters stay: they are switches, and replacing them would make texts unreadable.

    Args:
        server: The server.
    """

    def __init__(self, server: McpServer) -> None:
        self._secrets: set[str] = set()
        if isinstance(server, McpStdioServer):
            self.add(server.env.values())
            return
        url = httpx2.URL(server.url)
        self.add([url.username, url.password, url.query.decode(errors="replace"), *url.params.values()])
        if not callable(server.headers):
            self.add(server.headers.values())

    def add(self, secrets: Iterable[str]) -> None:
        """Learn more of them, such as the headers that a function returned; credentials behind a scheme alone too."""
        for secret in secrets:
            for part in (secret, secret.partition(" ")[2]):
                if len(part) >= MIN_SECRET_LENGTH:
                    self._secrets.add(part)

    def redact(self, text: str) -> str:
        """The text without the secrets."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, REDACTED)
        return text
