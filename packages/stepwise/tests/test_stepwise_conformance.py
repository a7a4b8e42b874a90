"""The conformance suite on the built-in loop."""

from __future__ import annotations

from .conformance_adapter import Adapter


class TestStepwiseConformance(Adapter):
    """Every case of the suite."""
