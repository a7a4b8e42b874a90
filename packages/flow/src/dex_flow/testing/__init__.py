"""Helpers for tests of Flows and engines."""

from dex_flow.testing.memory_store import MemoryStore

__all__ = ("MemoryStore",)
