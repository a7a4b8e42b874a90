"""What users of other MCP clients reported, one group of reports for each test.

Calls that hang, results that are too large and writes that are repeated are faults of `test_mcp_faults.py`, forgotten
protocol sessions are F12 of `test_mcp_field_scenarios.py`, and orphaned processes stand in `test_mcp_orphans.py`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import json
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dex_agents import QuestionAnswer, ToolEffect, ToolExecutionError, ToolInputRequested, ToolPolicy
from dex_agents.testing import poll_until
from dex_agents_mcp import McpHttpServer, McpServer, McpStdioServer, McpToolCallInterruptedError, McpToolSource
from dex_agents_stepwise import AgentDefinition, ScriptedModelClient

from .mcp_raw_server import LEGACY, MODERN
from .mcp_scene import PATIENT, ListingClock, call, mcp_session, raw_peer, script

PEERS = [("stdio", MODERN), ("stdio", LEGACY), ("http", MODERN), ("http", LEGACY)]
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def tool(name: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}, **fields}


def source_of(*servers: McpServer, **options: Any) -> McpToolSource:
    return McpToolSource(servers, options=dataclasses.replace(PATIENT, **options))


def played(scenario: Callable[[], Awaitable[None]]) -> None:
    """Run it on a loop that must end with no task and no exception that nobody saw."""
    unseen: list[dict[str, Any]] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unseen.append(context))
        await scenario()
        gc.collect()  # closes the SDK's abandoned generators now, each in a task of its own
        await poll_until(lambda: len(asyncio.all_tasks()) == 1 or None, awaited="the end of every task", timeout=60)

    asyncio.run(run())
    assert unseen == []


@pytest.mark.parametrize(("transport", "era"), PEERS)
def test_reported_1_cancelling_a_call_reaches_the_server_and_breaks_nothing_else(
    tmp_path: Path, transport: str, era: str
) -> None:
    """Cancel scopes left in the wrong task, and the process cancelled much later."""

    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", era, transport) as peer:
            source = source_of(peer.config())
            await source.list_tools()
            peer.set_fault("hang")
            running = asyncio.create_task(source.call_tool("s__look", {}, idempotency_key="k"))
            await poll_until(lambda: peer.runs("look") or None, awaited="the call", timeout=60)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            if (transport, era) == ("http", LEGACY):  # a process is stopped, and in 2026-07-28 the request ends
                await poll_until(
                    lambda: "notifications/cancelled" in peer.notifications() or None, awaited="the news", timeout=60
                )
            peer.clear_fault()
            task = asyncio.current_task()
            assert task is not None
            assert task.cancelling() == 0
            assert await source.call_tool("s__look", {"text": "a"}, idempotency_key="k") == "look: a"

    played(scenario)


@pytest.mark.parametrize("status", [401, 502])
def test_reported_2_an_http_error_leaves_nothing_running(tmp_path: Path, status: int) -> None:
    """A processor that was busy for hours after one refused request."""

    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            source = source_of(peer.config())
            await source.list_tools()
            peer.set_fault(f"status {status}", "*")
            with pytest.raises(ToolExecutionError, match=f"HTTP status {status}"):
                await source.call_tool("s__look", {}, idempotency_key="k")

    played(scenario)


def test_reported_5_tools_of_one_name_are_told_apart_by_their_servers_and_a_repeated_one_is_offered_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "one", MODERN, "http") as one, raw_peer(tmp_path / "two", MODERN, "http") as two:
            one.write("tools.json", [tool("search"), tool("search", description="again")])
            two.write("tools.json", [tool("search")])
            source = source_of(one.config("one"), two.config("two"))
            assert [(found.name, found.description) for found in await source.list_tools()] == [
                ("one__search", ""),
                ("two__search", ""),
            ]
            await source.call_tool("two__search", {}, idempotency_key="k")
            assert (len(one.runs()), len(two.runs())) == (0, 1)
            assert "'search' would be offered as one__search" in caplog.text

    played(scenario)


def test_reported_6_a_bad_tool_hides_no_other_and_no_schema_is_offered_that_a_provider_refuses(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [
        None,
        {"inputSchema": {"type": "object"}},
        {"name": "no_schema"},
        tool("text_schema", inputSchema="object"),
        tool("array_schema", inputSchema={"type": "array"}),
        tool("broken_schema", inputSchema={"type": "object", "properties": {"x": {"type": "strnig"}}}),
        tool("broken_header", inputSchema={"type": "object", "properties": {"x": {"x-mcp-header": "a b"}}}),
    ]
    repaired = [
        tool("untyped", inputSchema={}),
        tool("nulls", inputSchema={"type": "object", "properties": None, "required": None}),
        tool("odd_hints", annotations={"readOnlyHint": "yes", "idempotentHint": 1}, description=7),
    ]

    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            peer.write("tools.json", [*bad, *repaired, tool("good")])
            tools = {found.mcp_name: found for found in await source_of(peer.config()).list_tools()}
            assert list(tools) == ["untyped", "nulls", "odd_hints", "good"]
            assert {json.dumps(found.input_schema, sort_keys=True) for found in tools.values()} == {
                '{"properties": {}, "type": "object"}'
            }
            assert (tools["odd_hints"].effect, tools["odd_hints"].description) == (None, "")
            warnings = [entry for entry in caplog.records if "is left out" in entry.getMessage()]
            assert len(warnings) == len(bad)

    played(scenario)


@pytest.mark.parametrize("era", [MODERN, LEGACY])
def test_reported_8_a_listing_of_several_megabytes_is_read(tmp_path: Path, era: str) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", era, "http") as peer:
            peer.write("tools.json", [tool("big", description="x" * 3_000_000), tool("small")])
            assert [found.mcp_name for found in await source_of(peer.config()).list_tools()] == ["big", "small"]

    played(scenario)


def test_reported_10_headers_are_made_for_each_connection_so_that_a_token_may_expire(tmp_path: Path) -> None:
    async def scenario() -> None:
        made: list[str] = []

        async def headers() -> dict[str, str]:
            made.append(f"Bearer token-{len(made)}")
            return {"authorization": made[-1]}

        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            source = source_of(peer.config(headers=headers))
            await source.list_tools()
            await source.call_tool("s__look", {}, idempotency_key="k")
            assert peer.http is not None
            sent = [sent["authorization"] for sent in peer.http.headers]
            assert list(dict.fromkeys(sent)) == made
            assert len(made) == 2

    played(scenario)


def test_reported_11_a_warning_says_which_tools_are_missing_and_the_model_never_reads_an_old_success(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            peer.stop()
            async with mcp_session(tmp_path, [peer.config()], script([call("s__look")])) as session:
                assert await session.turn() == [("s__look", "failed")]
                assert "s__look" in session.results()[0]
        assert "the tools of the MCP server 's' are not offered" in caplog.text

    asyncio.run(scenario())


def test_reported_12_a_result_that_does_not_fit_its_output_schema_is_a_result(tmp_path: Path) -> None:
    """Clients that validate it lose the result of a write that has taken effect."""

    async def scenario() -> None:
        schema = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            peer.write("tools.json", [tool("act", outputSchema=schema, annotations={})])
            async with mcp_session(tmp_path, [peer.config()], script([call("s__act", {"text": "x"})])) as session:
                assert await session.turn() == [("s__act", "succeeded")]
                assert session.results() == ["act: x"]
                assert len(peer.requests("tools/list")) == 1

    asyncio.run(scenario())


def test_reported_13_a_server_without_annotations_need_not_ask_for_every_call(tmp_path: Path) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            peer.write("tools.json", [tool("find", annotations=None), tool("send", annotations={})])
            server = peer.config(default_tool_effect=ToolEffect.READ)
            policies = {"s__send": ToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE)}
            calls = [call("s__find"), call("s__send")]
            async with mcp_session(tmp_path, [server], script(calls), policies=policies) as session:
                await session.say()
                (interrupt,) = await session.client.wait_for_interrupts("s", timeout=60)
                assert interrupt.tool_name == "s__send"
                assert await session.client.resolve_interrupt("s", interrupt.interrupt_id, approved=True)
                assert await session.ended() == [("s__find", "succeeded"), ("s__send", "succeeded")]

    asyncio.run(scenario())


def test_reported_13_a_server_whose_hints_nobody_trusts_is_asked_about(tmp_path: Path) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            tools = await source_of(peer.config(trusts_tool_annotations=False)).list_tools()
            assert {found.effect for found in tools} == {None}

    played(scenario)


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_reported_14_an_older_server_is_probed_once_and_not_before_every_call(tmp_path: Path, transport: str) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", LEGACY, transport) as peer:
            source = source_of(peer.config())
            await source.list_tools()
            for _ in range(3):
                await source.call_tool("s__look", {}, idempotency_key="k")
            assert len(peer.requests("server/discover")) == 1
            configured = source_of(peer.config(protocol="legacy"))
            await configured.list_tools()
            await configured.call_tool("s__look", {}, idempotency_key="k")
            assert len(peer.requests("server/discover")) == 1

    played(scenario)


def test_a_listing_is_refreshed_in_the_background_when_the_server_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ListingClock(monkeypatch)

    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            peer.write("listing.json", {"ttlMs": 60_000})
            source = source_of(peer.config())
            await source.list_tools()
            peer.write("tools.json", [tool("new")])
            clock.pass_time(timedelta(seconds=59))
            await source.list_tools()
            assert len(peer.requests("tools/list")) == 1
            clock.pass_time(timedelta(seconds=2))
            assert len(await source.list_tools()) == 6  # what is known, at once
            await poll_until(
                lambda: [found.name for found in source.cached_tools()] == ["s__new"] or None,
                awaited="the new listing",
                timeout=60,
            )
            assert len(peer.requests("tools/list")) == 2
            await source.aclose()

    played(scenario)


@pytest.mark.parametrize("fault", ["status 503", "html"])
def test_a_listing_that_cannot_be_refreshed_leaves_the_earlier_one(
    tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            source = source_of(peer.config())
            first = await source.list_tools()
            peer.set_fault(fault, "*")
            assert await source.list_tools(refresh=True) == first
            assert "are those of an earlier listing" in caplog.text
            peer.clear_fault()
            assert await source.list_tools(refresh=True) == first

    played(scenario)


SCHEMA_WITH_HEADER = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}, "text": {"type": "string"}},
}


def test_an_argument_that_the_server_wants_as_a_header_is_sent_as_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            peer.write("tools.json", [tool("look", inputSchema=SCHEMA_WITH_HEADER)])
            peer.set_fault("needs_region_header")
            calls = [call("s__look", {"region": "eu", "text": "a"})]
            async with mcp_session(tmp_path, [peer.config()], script(calls)) as session:
                assert await session.turn() == [("s__look", "succeeded")]
                assert peer.http is not None
                assert peer.http.headers[-1]["mcp-param-region"] == "eu"
                assert len(peer.requests("tools/list")) == 1

    asyncio.run(scenario())


def test_a_call_whose_headers_the_server_refuses_is_sent_again_once_after_another_listing(tmp_path: Path) -> None:
    """The refusal comes before the tool runs, so that also a write may be sent again."""

    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            source = source_of(peer.config())
            await source.list_tools()
            peer.set_fault("needs_region_header")
            with pytest.raises(ToolExecutionError, match="header mismatch"):
                await source.call_tool("s__act", {"region": "eu", "text": "a"}, idempotency_key="k")
            assert peer.runs() == []
            peer.write("tools.json", [tool("act", inputSchema=SCHEMA_WITH_HEADER)])
            text = await source.call_tool("s__act", {"region": "eu", "text": "a"}, idempotency_key="k")
            assert (text, len(peer.runs())) == ("act: a", 1)

    played(scenario)


@pytest.mark.parametrize(("transport", "era"), PEERS)
def test_the_trace_of_a_call_reaches_the_server(tmp_path: Path, transport: str, era: str) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", era, transport) as peer:
            source = source_of(peer.config())
            await source.call_tool("s__look", {}, idempotency_key="k", trace_context=TRACEPARENT)
            (params,) = peer.requests("tools/call")
            version, trace_id, _, _ = params["_meta"]["traceparent"].split("-")
            assert [version, trace_id] == TRACEPARENT.split("-")[:2]

    played(scenario)


SECRET_HEADERS = {"authorization": "Bearer hunter2-header"}


@pytest.mark.parametrize("headers", [SECRET_HEADERS, lambda: SECRET_HEADERS], ids=["fixed", "made"])
@pytest.mark.parametrize("methods", ["*", "tools/call"], ids=["listing", "call"])
def test_secrets_that_an_http_server_says_stand_in_no_log_event_result_or_repr(
    tmp_path: Path, headers: Any, methods: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="dex_agents_mcp")

    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            url = f"http://ada:hunter2-password@127.0.0.1:{peer.port}/mcp?key=hunter2-query"
            server = McpHttpServer(name="s", url=url, headers=headers, protocol="2026-07-28")
            await check_secrets(tmp_path, server, lambda: peer.set_fault("echo_secrets", methods), caplog)

    asyncio.run(scenario())


def test_secrets_that_a_process_writes_stand_in_no_log_event_result_or_repr(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    args = ["-c", 'echo "no $TOKEN" >&2; exit 3']
    server = McpStdioServer(name="s", command="sh", args=args, env={"TOKEN": "hunter2-environment"})
    asyncio.run(check_secrets(tmp_path, server, lambda: None, caplog))
    assert "it wrote: no [redacted]" in caplog.text


async def check_secrets(
    directory: Path, server: McpServer, break_it: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    assert "hunter2" not in repr(server)
    break_it()
    async with mcp_session(directory, [server], script([call("s__look")])) as session:
        assert await session.turn() == [("s__look", "failed")]
        assert "hunter2" not in "".join(str(event.payload) for event in await session.events())
        assert "hunter2" not in "".join(session.results())
        messages = (await session.client.get_agent_snapshot("s")).messages
        assert "hunter2" not in "".join(str(message) for message in messages)
        logged = [entry.getMessage() for entry in caplog.records if entry.name.startswith("dex_agents")]
        assert "hunter2" not in "".join(logged)
        assert "[redacted]" in "".join([*session.results(), *logged])


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_what_a_server_asks_goes_to_the_framework_that_called_the_tool(tmp_path: Path, transport: str) -> None:
    """Also when the framework runs its tool again from the beginning, with the answers it has by then."""

    class NoAnswerYet(BaseException):
        pass

    async def scenario() -> None:
        properties = {"number": {"type": "integer"}, "express": {"type": "boolean"}}
        schema = {"type": "object", "properties": properties, "required": ["number", "express"]}
        request = {"method": "elicitation/create", "params": {"message": "Which?", "requestedSchema": schema}}
        with raw_peer(tmp_path / "peer", MODERN, transport) as peer:
            peer.write("asks.json", {"order": request})
            source = source_of(peer.config())
            answers: list[str] = []
            for given in ("many", "7", "yes"):
                asked: list[str] = []

                def ask_user(question: ToolInputRequested, asked: list[str] = asked) -> QuestionAnswer:
                    asked.append(question.question)
                    if len(asked) > len(answers):
                        raise NoAnswerYet
                    return QuestionAnswer(question=question.question, answer=answers[len(asked) - 1])

                with pytest.raises(NoAnswerYet):
                    await source.call_tool("s__ask", {}, idempotency_key="k", ask_user=ask_user)
                answers.append(given)
                assert peer.runs() == []
            asked = []

            def answer(question: ToolInputRequested) -> QuestionAnswer:
                asked.append(question.question)
                return QuestionAnswer(question=question.question, answer=answers[len(asked) - 1])

            text = await source.call_tool("s__ask", {}, idempotency_key="k", ask_user=answer)
            assert '"content": {"express": true, "number": 7}' in text
            assert len(peer.runs("ask")) == 1
            with pytest.raises(ToolExecutionError, match="cannot provide"):
                await source.call_tool("s__ask", {}, idempotency_key="k")

    played(scenario)


def test_a_call_that_was_lost_is_told_from_one_that_was_never_sent(tmp_path: Path) -> None:
    async def scenario() -> None:
        with raw_peer(tmp_path / "peer", MODERN, "http") as peer:
            source = source_of(peer.config())
            await source.list_tools()
            peer.set_fault("close")
            with pytest.raises(McpToolCallInterruptedError):
                await source.call_tool("s__act", {}, idempotency_key="k")
            peer.stop()
            with pytest.raises(ToolExecutionError, match="was not run"):
                await source.call_tool("s__act", {}, idempotency_key="k")
            assert len(peer.runs("act")) == 1

    played(scenario)


def test_a_policy_for_a_name_that_no_server_could_list_is_refused() -> None:
    servers = [
        McpStdioServer(name="crm", command="crm"),
        McpStdioServer(name="files", command="files", allowed_tools=["read.file"]),
    ]
    source = McpToolSource(servers, resource_and_prompt_tools_enabled=True)
    known = ("crm__find", "files__read_file", "mcp_read_resource")
    unknown = ("cmr__find", "crm_find", "find", "files__write_file", "mcp_read_resources")
    assert [name for name in (*known, *unknown) if source.could_offer(name)] == list(known)
    fields: dict[str, Any] = {"name": "a", "instructions": "", "model": ScriptedModelClient(script([]))}
    AgentDefinition(**fields, tool_sources=[source], tool_policies=dict.fromkeys(known, ToolPolicy()))
    for name in unknown:
        with pytest.raises(ValueError, match="no tool named"):
            AgentDefinition(**fields, tool_sources=[source], tool_policies={name: ToolPolicy()})
