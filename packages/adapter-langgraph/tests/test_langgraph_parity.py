"""Each model call of a session reads what the model of a native run reads, and the last states are equal.

The native run has LangGraph's in-memory checkpointer. Both runs go turn by turn; a person approves and answers alike.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langgraph_parity_agents import AGENTS, redacted_addresses
from langgraph_parity_graphs import GRAPHS
from langgraph_sessions import MakeGraph, Models, run_native, run_session, shown
from pydantic import BaseModel

TURNS = ["go", "again"]


def _comparable(state: dict[str, Any]) -> dict[str, Any]:
    """The state as values; a stored answer of a type that is in no schema comes back as its fields."""
    values = {name: value.model_dump() if isinstance(value, BaseModel) else value for name, value in state.items()}
    for file in values.get("files", {}).values():
        del file["created_at"], file["modified_at"]
    return {**values, "messages": [shown(message) for message in state["messages"]]}


@pytest.mark.parametrize("make", [*AGENTS, *GRAPHS], ids=lambda make: make.__name__)
def test_models_and_states_see_what_a_native_run_gives(make: MakeGraph, tmp_path: Path) -> None:
    ours, native = Models(), Models()
    _, state = asyncio.run(run_session(tmp_path, make, ours, TURNS, "yes"))
    native_state = asyncio.run(run_native(make, native, TURNS, "yes"))
    assert all(ours.requests.values())
    assert ours.requests == native.requests
    assert ours.unused == native.unused
    assert _comparable(state) == _comparable(native_state)


def test_a_message_that_the_graph_changed_is_read_changed_in_later_turns(tmp_path: Path) -> None:
    ours, native = Models(), Models()
    turns = ["I am bob@example.com", "and now?"]
    asyncio.run(run_session(tmp_path, redacted_addresses, ours, turns, ""))
    asyncio.run(run_native(redacted_addresses, native, turns, ""))
    assert ours.requests == native.requests
    assert "example.com" not in str(ours.requests)
    assert "[REDACTED_EMAIL]" in str(ours.requests["main"][-1])
