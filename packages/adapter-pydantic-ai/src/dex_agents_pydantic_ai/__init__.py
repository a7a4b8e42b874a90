"""Durable sessions for Pydantic AI agents."""

from __future__ import annotations

__all__: tuple[str, ...] = ()
