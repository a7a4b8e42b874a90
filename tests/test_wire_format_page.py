"""docs/wire-format.md lists what the code stores and sends."""

from __future__ import annotations

import pytest

from dex_agents.session import events
from tools.wire_format import PAGE, RENDERERS, render_page


def test_generated_tables_are_current() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert render_page(text) == text, "run: uv run python -m tools.wire_format"


@pytest.mark.parametrize("section", sorted(RENDERERS))
def test_every_section_is_on_the_page_and_has_rows(section: str) -> None:
    assert f"<!-- generated: {section} -->" in PAGE.read_text(encoding="utf-8")
    assert len(RENDERERS[section]().splitlines()) > 4


def test_every_event_type_is_described() -> None:
    text = PAGE.read_text(encoding="utf-8")
    types = [getattr(events, name) for name in events.__all__ if name.isupper()]
    assert types
    assert [event_type for event_type in types if f"`{event_type}`" not in text] == []
