"""Why the demo stopped."""

from __future__ import annotations

__all__ = ["DemoError"]


class DemoError(Exception):
    """The demo cannot go on; the text tells the user what happened."""
