"""The README of the session lists every option and every method of the client."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path

import pytest

from dex_agents import AgentSessionClient, AgentSessionOptions

PAGE = (Path(__file__).resolve().parents[1] / "packages" / "core" / "README.md").read_text(encoding="utf-8")
METHODS = [
    name
    for name, _ in inspect.getmembers(AgentSessionClient, inspect.isfunction)
    if not name.startswith("_") and not name.endswith("_with_reason")
]


@pytest.mark.parametrize("option", [field.name for field in dataclasses.fields(AgentSessionOptions)])
def test_every_option_is_in_the_table(option: str) -> None:
    rows = PAGE[PAGE.index("## Options") :].splitlines()
    assert [row for row in rows if row.startswith("| `") and f"`{option}`" in row.split(" | ")[0]]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_the_client_is_named(method: str) -> None:
    assert f"`{method}`" in PAGE
