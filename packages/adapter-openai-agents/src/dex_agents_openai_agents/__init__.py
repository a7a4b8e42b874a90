"""Durable sessions for agents written with the OpenAI Agents SDK."""

from __future__ import annotations

__all__: tuple[str, ...] = ()
