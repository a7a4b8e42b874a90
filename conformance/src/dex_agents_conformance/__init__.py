"""One set of scenarios that proves an adapter for durable agent sessions."""

from __future__ import annotations

__all__: tuple[str, ...] = ()
