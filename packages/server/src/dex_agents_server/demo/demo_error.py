"""Why the demo stopped."""

from __future__ import annotations

__all__ = ["DemoError", "KeepFolderError"]


class DemoError(Exception):
    """The demo cannot go on; the text tells the user what happened."""


class KeepFolderError(DemoError):
    """The folder the user named cannot take the demo's files."""
