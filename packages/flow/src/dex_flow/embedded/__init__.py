"""The embedded engine: durable Flows in one SQLite file, shared by any number of processes on one machine."""

from dex_flow.embedded.engine import EmbeddedEngine

__all__ = ("EmbeddedEngine",)
