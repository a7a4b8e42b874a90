"""The tools of MCP servers as durable tools of an agent session."""

from __future__ import annotations

__all__: tuple[str, ...] = ()
