"""Pages that list guarantees name tests that exist, miss none of theirs, and quote texts as they are."""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dex_agents.session import texts

ROOT = Path(__file__).resolve().parents[1]
TEST_NAME = re.compile(r"`(test_\w+)`")


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page of the documentation that lists guarantees.

    Attributes:
        name: Its file in `docs`.
        listed_modules: Test modules whose tests are all guarantees, so that none is missing on the page.
        not_listed: Tests of those modules that hold something else, or that another page lists.
        package: The package whose tests those modules are.
    """

    name: str
    listed_modules: tuple[str, ...]
    package: str = "core"
    not_listed: frozenset[str] = field(default_factory=frozenset)

    @property
    def text(self) -> str:
        return (ROOT / "docs" / self.name).read_text(encoding="utf-8")

    def rows(self) -> list[str]:
        section = self.text[self.text.index("<!-- guarantees -->") : self.text.index("<!-- end -->")]
        rows = [line for line in section.splitlines() if line.startswith("| ")]
        return [row for row in rows if not row.endswith(("| Test |", "| Test for both |"))]

    def named_tests(self) -> list[str]:
        return [name for row in self.rows() for name in TEST_NAME.findall(row)]


PAGES = (
    Page(
        name="steering.md",
        listed_modules=("test_session_steering_messages.py", "test_session_steering_cancellation.py"),
        not_listed=frozenset(
            {
                "test_steered_text_is_repaired_and_limited",
                "test_a_queued_message_starts_the_next_turn_after_a_cancelled_one",
                "test_cancel_turn_abandons_every_task_and_rejects_every_waiting_call_at_once",
                "test_a_durable_wait_that_was_cancelled_does_not_wake_a_later_turn",
            }
        ),
    ),
    Page(name="plans.md", listed_modules=("test_session_plans.py", "test_session_plans_guarantees.py")),
    Page(name="compaction.md", listed_modules=("test_session_compaction.py", "test_session_compaction_guarantees.py")),
    Page(
        name="settings.md",
        listed_modules=("test_session_settings_and_limits.py", "test_session_settings_guarantees.py"),
        not_listed=frozenset(
            {
                # On the page of approvals.
                "test_f29_a_broken_schema_refuses_the_edit_and_not_the_approval",
                "test_f29_a_rejection_with_arguments_is_refused",
                "test_f29_arguments_that_do_not_fit_the_stored_schema_are_refused_and_the_approval_stays",
                "test_f29_changed_arguments_run_and_both_forms_are_kept",
                "test_f29_the_same_arguments_are_no_change",
                "test_the_schema_is_kept_only_while_a_person_may_change_the_arguments",
                "test_an_unchanged_call_says_nothing_about_arguments",
            }
        ),
    ),
    Page(
        name="mcp.md",
        package="mcp",
        listed_modules=("test_mcp_field_scenarios.py", "test_mcp_reported_bugs.py"),
    ),
    Page(name="messages.md", listed_modules=("test_session_message_store.py", "test_session_messages_guarantees.py")),
    Page(
        name="approvals.md",
        listed_modules=("test_session_approvals_guarantees.py",),
        not_listed=frozenset(
            {
                # On the page of plans, and of settings.
                "test_the_client_says_why_a_plan_was_not_executed",
                "test_the_client_updates_settings_and_says_where_plan_mode_is_off",
            }
        ),
    ),
)


@functools.cache
def collected_tests() -> Counter[str]:
    """Names of the test functions of all packages, with how many modules have one of that name."""
    names: Counter[str] = Counter()
    for module in sorted([*ROOT.glob("packages/*/tests/test_*.py"), *ROOT.glob("tests/test_*.py")]):
        names.update(names_in(module))
    return names


def names_in(module: Path) -> set[str]:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_guarantee_names_tests_that_exist(page: Page) -> None:
    rows = page.rows()
    assert len(rows) > 10
    collected = collected_tests()
    assert [row for row in rows if not TEST_NAME.findall(row)] == []
    assert [name for name in page.named_tests() if name not in collected] == []
    assert [name for name, count in Counter(page.named_tests()).items() if count > 1] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_test_of_the_pages_modules_is_a_guarantee_on_it(page: Page) -> None:
    for module in page.listed_modules:
        tests = names_in(ROOT / "packages" / page.package / "tests" / module)
        assert len(tests) > 5
        assert tests - set(page.named_tests()) - page.not_listed == set()


def test_every_page_with_guarantees_is_checked() -> None:
    marked = {page.name for page in (ROOT / "docs").glob("*.md") if "<!-- guarantees -->" in page.read_text("utf-8")}
    assert marked == {page.name for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_page_with_guarantees_is_linked_from_the_readme(page: Page) -> None:
    assert f"(docs/{page.name})" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_steering_page_quotes_texts_as_the_model_sees_them() -> None:
    page = " ".join(PAGES[0].text.split())
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
