"""Durable sessions for LangChain agents and LangGraph graphs."""

from __future__ import annotations

__all__: tuple[str, ...] = ()
