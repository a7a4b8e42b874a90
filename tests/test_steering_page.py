"""The guarantees of docs/steering.md name tests that exist, and every text of the model is on a page."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from pathlib import Path

import pytest

from dex_agents.session import texts

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "steering.md"
TEST_NAME = re.compile(r"`(test_\w+)`")
#: Modules whose tests are all guarantees, so that none is missing on the page.
LISTED_MODULES = ("test_session_steering_messages.py", "test_session_steering_cancellation.py")
#: Tests of those modules that hold something more general than steering.
NOT_LISTED = {
    "test_steered_text_is_repaired_and_limited",
    "test_a_queued_message_starts_the_next_turn_after_a_cancelled_one",
    "test_cancel_turn_abandons_every_task_and_rejects_every_waiting_call_at_once",
    "test_a_durable_wait_that_was_cancelled_does_not_wake_a_later_turn",
}


def collected_tests() -> Counter[str]:
    """Names of the test functions in `packages/core/tests`, with how many modules have one of that name."""
    names: Counter[str] = Counter()
    for module in sorted((ROOT / "packages" / "core" / "tests").glob("test_*.py")):
        names.update(names_in(module))
    return names


def names_in(module: Path) -> set[str]:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def guarantee_rows() -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    section = text[text.index("<!-- guarantees -->") : text.index("<!-- end -->")]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [row for row in rows if not row.endswith(("| Test |", "| Test for both |"))]


def test_every_guarantee_names_tests_that_exist() -> None:
    rows = guarantee_rows()
    assert len(rows) > 40
    collected = collected_tests()
    assert [row for row in rows if not TEST_NAME.findall(row)] == []
    named = [name for row in rows for name in TEST_NAME.findall(row)]
    assert [name for name in named if collected[name] != 1] == []
    assert [name for name, count in Counter(named).items() if count > 1] == []


@pytest.mark.parametrize("module", LISTED_MODULES)
def test_every_test_of_steering_is_a_guarantee_on_the_page(module: str) -> None:
    tests = names_in(ROOT / "packages" / "core" / "tests" / module)
    assert len(tests) > 10
    named = set(TEST_NAME.findall("\n".join(guarantee_rows())))
    assert tests - named - NOT_LISTED == set()


def test_the_page_quotes_texts_as_the_model_sees_them() -> None:
    page = " ".join(PAGE.read_text(encoding="utf-8").split())
    assert f"`{texts.TOOL_CALL_CANCELLED_BY_STEERING_RESULT}`" in page
    assert texts.TOOL_CALL_CANCELLED_BY_TURN_CANCELLATION_RESULT in page
    assert f"`{texts.NOTE_PREFIX}`" in page


@pytest.mark.parametrize("name", texts.__all__)
def test_every_text_the_model_sees_is_in_the_wire_format(name: str) -> None:
    value = getattr(texts, name)
    if callable(value):
        parameters = inspect.signature(value).parameters
        value = value(*(f"{{{parameter}}}" for parameter in parameters))
    page = (ROOT / "docs" / "wire-format.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `{name}[`(].* \| {re.escape(value.strip())} \|$", page, re.MULTILINE)
