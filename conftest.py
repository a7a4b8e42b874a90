"""How property tests search (new examples locally, the same ones in CI), and how long the long session test is."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_addoption(parser: pytest.Parser) -> None:
    """The long session test is a guard by default; `nox -s long` runs all of it."""
    parser.addoption(
        "--session-turns", type=int, default=800, help="turns of the long session test; from 2000 on it compares times"
    )
