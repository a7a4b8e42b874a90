"""The pages docs/wire-*.md list what the code stores and sends."""

from __future__ import annotations

from pathlib import Path

import pytest

from dex_agents.session import events
from tools.wire_format import PAGES, RENDERERS, render_page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_generated_tables_are_current(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert render_page(text) == text, "run: uv run python -m tools.wire_format"


@pytest.mark.parametrize("section", sorted(RENDERERS))
def test_every_section_is_on_a_page_and_has_rows(section: str) -> None:
    assert f"<!-- generated: {section} -->" in _all_pages()
    assert len(RENDERERS[section]().splitlines()) > 4


def test_every_event_type_is_described() -> None:
    text = _all_pages()
    types = [getattr(events, name) for name in events.__all__ if name.isupper()]
    assert types
    assert [event_type for event_type in types if f"`{event_type}`" not in text] == []


def _all_pages() -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
