"""Databases of every release go on with today's code (F19): copies of the golden files, every session to its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dex_agents import AgentSessionClient, AgentSessionFlow
from dex_agents.session.persistence import AGENT_TOOL_CALLS
from dex_flow.codec import decode, encode
from dex_flow.embedded import EmbeddedEngine
from tools.golden_agents import (
    RETAINED_MESSAGES,
    GoldenRunner,
    create_golden_flow,
    create_golden_stepwise_flow,
)
from tools.golden_database import GOLDEN_DIRECTORY, write_golden_database
from tools.golden_sessions import GOLDEN_SESSIONS, WAIT_SECONDS, WRITTEN_AT, GoldenSession, Said

FILES = sorted(GOLDEN_DIRECTORY.glob("*.sqlite3"))
RELEASES = [file.stem for file in FILES]
LARGEST_FILE = 300_000
# Every timer that was set is due, and what an interrupted model call may take in all has not passed.
LATER = int((WRITTEN_AT + timedelta(minutes=20)).timestamp()) * 1_000_000
MACHINE_MARKS = (b"/home/", b"/tmp/", b"/Users/", b"/root/", b".py", b"python")


def release_number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))


def sessions_of(release: str) -> list[GoldenSession]:
    return [session for session in GOLDEN_SESSIONS if release_number(session.since) <= release_number(release)]


@contextlib.asynccontextmanager
async def opened(
    database: Path, *, runs_worker: bool = True
) -> AsyncIterator[tuple[EmbeddedEngine, dict[str, AgentSessionFlow]]]:
    flows = {"runner": create_golden_flow(GoldenRunner()), "stepwise": create_golden_stepwise_flow()}
    engine = EmbeddedEngine(
        database, list(flows.values()), durability="process", runs_worker=runs_worker, clock=lambda: LATER
    )
    async with engine:
        yield engine, flows


async def said(client: AgentSessionClient, session: GoldenSession) -> tuple[int, list[Said]]:
    """The first stored sequence, and what the stored messages say."""
    messages = (await client.get_agent_snapshot(session.session_id)).messages
    sequences = [message.sequence for message in messages]
    assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))
    return sequences[0], [(message.role, message.text) for message in messages]


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def database(release: str, tmp_path: Path) -> Path:
    """A copy of the release's file, which the test may change."""
    return Path(shutil.copyfile(GOLDEN_DIRECTORY / f"{release}.sqlite3", tmp_path / "sessions.db"))


def test_there_is_a_file_and_each_is_small_complete_and_of_no_machine() -> None:
    assert FILES
    for file in FILES:
        content = file.read_bytes()
        assert len(content) < LARGEST_FILE
        assert content.startswith(b"SQLite format 3\0")
        assert [mark for mark in MACHINE_MARKS if mark in content] == []
        assert not list(file.parent.glob(f"{file.name}-*"))


async def check_as_left(engine: EmbeddedEngine, session: GoldenSession, flow: AgentSessionFlow) -> None:
    """The session reads as its release left it."""
    client = AgentSessionClient(engine, flow)
    snapshot = await client.get_agent_snapshot(session.session_id)
    assert snapshot.state is not None
    assert snapshot.state.turn_count == len(session.ended_turns) + (session.open_turn is not None)
    assert (snapshot.state.active_turn_id is None) == (session.open_turn is None)
    assert snapshot.session_settings == session.settings
    assert [message.text for message in snapshot.queued_messages] == list(session.queued)
    statuses = [record.status for record in snapshot.tool_calls]
    assert session.waits_for is None or session.waits_for in statuses
    first, stored = await said(client, session)
    assert stored == list(session.said[first - 1 :][: len(stored)])


async def check_continued(engine: EmbeddedEngine, session: GoldenSession, flow: AgentSessionFlow) -> None:
    """The session came to its end and takes another message."""
    client = AgentSessionClient(engine, flow)
    await session.go_on(engine, flow)
    first, stored = await said(client, session)
    assert stored == list(session.said[first - 1 :])
    result = await client.send_and_wait(session.session_id, "and now?", timeout=WAIT_SECONDS)
    model = session.settings.get("model")
    assert result.text == ("done" if model is None else f"{model} done")
    assert await engine.wait_until(session.session_id, lambda view: not view.read_range(AGENT_TOOL_CALLS), timeout=0)


def test_f19_every_session_of_a_release_reads_as_it_was_left(release: str, database: Path) -> None:
    async def scenario() -> None:
        async with opened(database, runs_worker=False) as (engine, flows):
            listed = await engine.list_flows()
            assert {flow.flow_id for flow in listed} == {session.session_id for session in sessions_of(release)}
            assert {flow.status for flow in listed} == {"open"}
            for session in sessions_of(release):
                await check_as_left(engine, session, flows[session.agent])

    asyncio.run(scenario())


def test_f19_every_session_of_a_release_goes_on_to_its_end(release: str, database: Path) -> None:
    async def scenario() -> None:
        async with opened(database) as (engine, flows):
            for session in sessions_of(release):
                await check_continued(engine, session, flows[session.agent])

    asyncio.run(scenario())


def lost_fields(stored: Any, kept: Any, path: str) -> list[str]:
    """Where the stored JSON says something that is gone from what today's code made of it."""
    if isinstance(stored, dict) and isinstance(kept, dict):
        gone = [f"{path}.{key}" for key in stored.keys() - kept.keys()]
        return gone + [
            found
            for key in stored.keys() & kept.keys()
            for found in lost_fields(stored[key], kept[key], f"{path}.{key}")
        ]
    if isinstance(stored, list) and isinstance(kept, list) and len(stored) == len(kept):
        return [
            found for one, other in zip(stored, kept, strict=True) for found in lost_fields(one, other, f"{path}[]")
        ]
    return [] if stored == kept else [path]


def test_f19_todays_code_knows_every_field_that_a_release_stored(database: Path) -> None:
    """A renamed field reads as its default, which a session may not notice before it matters."""
    flow = create_golden_flow(GoldenRunner())
    with contextlib.closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(
            "SELECT name, value FROM attribute UNION ALL SELECT channel, value FROM message"
        ).fetchall()
    assert {"AgentState", "AgentToolCalls", "AgentMessages", "AgentMessageChunks"} <= {name for name, _ in rows}
    lost = set()
    for name, value in rows:
        declaration = flow.declarations[name]
        kept = encode(decode(declaration.value_type, value))
        lost.update(lost_fields(json.loads(value), json.loads(kept), name))
    assert lost == set()


def test_f19_a_plan_draft_and_a_compacted_session_of_a_release_are_whole(release: str, database: Path) -> None:
    async def scenario() -> None:
        async with opened(database, runs_worker=False) as (engine, flows):
            flow = flows["runner"]
            client = AgentSessionClient(engine, flow)
            plan = (await client.get_agent_snapshot("plan-draft")).plan
            assert plan is not None
            assert (plan.revision, plan.status, [task.content for task in plan.tasks]) == (1, "draft", ["measure"])
            snapshot = await client.get_agent_snapshot("compacted")
            summary = snapshot.context_summary
            assert summary is not None
            assert summary.generation > 1
            assert summary.text == f"until message {summary.last_sequence}"
            index = await engine.get_attribute("compacted", flow.agent_message_index)
            assert index is not None
            assert index.chunks
            assert index.first_sequence > 1
            assert len(snapshot.messages) >= RETAINED_MESSAGES
            page = await client.list_agent_messages("compacted", before_sequence=index.first_sequence + 1)
            assert [message.sequence for message in page.messages] == [index.first_sequence]
            assert page.next_before_sequence is None
            assert page.deleted_before_sequence == index.first_sequence

    asyncio.run(scenario())


def test_a_file_of_this_release_has_the_sessions_that_the_committed_one_has(tmp_path: Path) -> None:
    """The script works, and nobody has to find out on the day of a release."""
    path = tmp_path / "written.sqlite3"
    asyncio.run(write_golden_database(path))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        written = {flow_id for (flow_id,) in connection.execute("SELECT flow_id FROM flow")}
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert written == {session.session_id for session in GOLDEN_SESSIONS}
    assert path.stat().st_size < LARGEST_FILE
