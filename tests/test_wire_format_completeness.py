"""What docs/wire-format.md says by hand is complete: when RPCs are false, payloads of events, texts of plans."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from dex_agents import AgentPlan, build_plan_note
from dex_agents.session import events
from dex_agents.session.persistence import session_declarations
from dex_agents.session.plans import InvalidTodosError, plan_execution_message
from dex_agents.session.rpcs import SESSION_RPCS
from dex_agents.session.settings import INVALID_START_SESSION_SETTINGS_REASON
from dex_agents.session.values import InteractionMode

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "wire-format.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())
FALSE_RPCS = [rpc.name for rpc in SESSION_RPCS if rpc.output_type is bool]
#: Deltas are written by runners, not by a function of the session.
DELTAS = {events.TEXT_DELTA, events.REASONING_DELTA}


def bullets() -> list[str]:
    section = PAGE[PAGE.index("## RPCs") : PAGE.index("## Events")]
    return [" ".join(bullet.split()) for bullet in re.split(r"^- ", section, flags=re.MULTILINE)[1:]]


@pytest.mark.parametrize("name", FALSE_RPCS)
def test_the_page_says_when_an_rpc_returns_false(name: str) -> None:
    said = [bullet for bullet in bullets() if re.match(rf"(`\w+` and )?`{name}`", bullet)]
    assert said
    assert any("`false`" in bullet for bullet in said)


def payload_keys(function: str) -> set[str]:
    """The keys an `emit_...` function writes, from the text literals of its source."""
    source = inspect.getsource(getattr(events, function))
    return set(re.findall(r'"(\w+)":', source))


@pytest.mark.parametrize("function", [name for name in events.__all__ if name.startswith("emit_")])
def test_the_payload_of_every_event_is_listed_with_exactly_its_fields(function: str) -> None:
    event_type = getattr(events, function.removeprefix("emit_").upper())
    (row,) = [line for line in PAGE[PAGE.index("## Events") :].splitlines() if line.startswith(f"| `{event_type}` |")]
    listed = re.search(r"\{([^}]*)\}", row)
    assert listed
    assert set(re.findall(r'"(\w+)"', listed[1])) == payload_keys(function)


def test_every_event_type_has_a_function_or_is_a_delta() -> None:
    types = {getattr(events, name) for name in events.__all__ if name.isupper()}
    emitted = {name.removeprefix("emit_") for name in events.__all__ if name.startswith("emit_")}
    assert types - emitted == DELTAS


@pytest.mark.parametrize("declaration", session_declarations(1), ids=lambda declaration: declaration.name)
def test_every_persistence_name_has_its_own_row(declaration: object) -> None:
    name = declaration.name  # type: ignore[attr-defined]
    assert len(re.findall(rf"^\| `{name}` \| {type(declaration).__name__}[, |]", PAGE, re.MULTILINE)) == 1


def test_texts_of_plans_and_settings_are_quoted_as_they_are() -> None:
    assert f"`{plan_execution_message(1).replace(' 1.', ' <n>.')}`" in WORDS
    note = build_plan_note(None, InteractionMode.PLANNING)
    assert note is not None
    assert f"`{note.removeprefix('[Dex] ')}`" in WORDS
    assert f"`{InvalidTodosError('<reason>')}`" in WORDS
    assert f"`{INVALID_START_SESSION_SETTINGS_REASON}: `" in WORDS
    assert AgentPlan.__name__ in WORDS
