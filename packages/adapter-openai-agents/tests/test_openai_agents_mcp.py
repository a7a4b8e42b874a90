"""Tools of MCP servers: local ones are calls of the session, hosted ones ask it for approvals."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import openai_agents_mcp_server
import pytest
from agents import Agent, HostedMCPTool, Runner, UserError
from agents.mcp import MCPServerStdio, MCPToolMetaContext
from openai.types.responses.response_output_item import McpApprovalRequest, McpCall
from openai_agents_sessions import SESSION, open_session

from dex_agents import ToolEffect, ToolPolicy
from dex_agents_openai_agents import current_tool_call
from dex_agents_openai_agents.testing import ScriptedModel, call_item, text_item


def _meta(context: MCPToolMetaContext) -> dict[str, Any]:
    return {"idempotency-key": current_tool_call().idempotency_key}


def _server(**options: Any) -> MCPServerStdio:
    params: Any = {"command": sys.executable, "args": [openai_agents_mcp_server.__file__]}
    return MCPServerStdio(params=params, name="demo", cache_tools_list=True, **options)


def _agent(model: ScriptedModel, **fields: Any) -> Agent[Any]:
    return Agent[Any](name="Assistant", instructions="You help.", model=model, **fields)


def _results(model: ScriptedModel) -> list[Any]:
    return [item["output"] for item in model.requests[-1].items if item.get("type") == "function_call_output"]


def _four_calls() -> ScriptedModel:
    calls = [call_item(name, {"text": "x"}, f"c{n}") for n, name in enumerate(("find", "put", "send", "fail"))]
    return ScriptedModel(calls, [text_item("done")])


def test_calls_of_a_local_server_are_deferred_with_the_effects_it_claims(tmp_path: Path) -> None:
    async def main() -> None:
        async with _server(tool_meta_resolver=_meta) as server:
            model = _four_calls()
            async with open_session(_agent(model, mcp_servers=[server]), tmp_path) as session:
                await session.answer_of("go")
                effects = {event["tool_name"]: event["effect"] for event in await session.events("tool_call_deferred")}
                statuses = dict(await session.statuses())
        assert effects == {"find": "read", "put": "idempotent_write", "send": "unclassified", "fail": "read"}
        # Of an MCP result that is an error, the SDK keeps the text alone.
        assert set(statuses.values()) == {"succeeded"}
        found, put, sent, failed = (str(result) for result in _results(model))
        assert "found x" in found
        assert f"{SESSION}/turn-1/c1" in put
        assert "sent x" in sent
        assert "Error executing tool fail" in failed

    asyncio.run(main())


def test_the_model_reads_what_it_reads_in_a_native_run(tmp_path: Path) -> None:
    async def main() -> None:
        async with _server() as server:
            native = _four_calls()
            await Runner.run(_agent(native, mcp_servers=[server]), "go")
            model = _four_calls()
            async with open_session(_agent(model, mcp_servers=[server]), tmp_path) as session:
                await session.answer_of("go")
        assert [request.tools for request in model.requests] == [request.tools for request in native.requests]
        assert model.requests[1].items == native.requests[1].items

    asyncio.run(main())


def test_the_servers_approval_rule_becomes_the_sessions(tmp_path: Path) -> None:
    async def main() -> None:
        async with _server(require_approval={"always": {"tool_names": ["send"]}}) as server:
            model = ScriptedModel([call_item("send", {"text": "x"}), call_item("find", {"text": "y"}, "c2")])
            policies = {"send": ToolPolicy(effect=ToolEffect.NON_IDEMPOTENT_WRITE)}
            for number, options in enumerate(({}, {"tool_policies": policies})):
                directory = tmp_path / str(number)
                directory.mkdir()
                model.answers = [[call_item("send", {"text": "x"})], [text_item("done")]]
                async with open_session(_agent(model, mcp_servers=[server]), directory, **options) as session:
                    assert (await session.say("go")).status == "waiting_for_person"
                    await session.client.approve(SESSION)
                    await session.finished()
                assert "sent x" in str(_results(model))

    asyncio.run(main())


def test_a_server_that_is_not_connected_fails_the_turn_by_name(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_session(_agent(ScriptedModel(), mcp_servers=[_server()]), tmp_path) as session:
            assert (await session.say("go")).status == "failed"
            assert "connect()" in await session.error()

    asyncio.run(main())


def test_a_plain_run_has_no_key_to_send() -> None:
    with pytest.raises((LookupError, UserError)):
        _meta(MCPToolMetaContext(run_context=None, server_name="demo", tool_name="put", arguments=None))  # type: ignore[arg-type]


@pytest.mark.parametrize("approves", [True, False])
def test_a_hosted_servers_request_for_approval_is_the_sessions(tmp_path: Path, approves: bool) -> None:
    hosted = HostedMCPTool(
        tool_config={"type": "mcp", "server_label": "shop", "server_url": "https://shop.invalid"},
    )
    request = McpApprovalRequest(
        id="mcpr_1", type="mcp_approval_request", name="buy", server_label="shop", arguments='{"item": "shoe"}'
    )
    bought = McpCall(id="mcp_1", type="mcp_call", name="buy", server_label="shop", arguments="{}", output="bought")

    async def main() -> None:
        model = ScriptedModel([request], [bought, text_item("done")] if approves else [text_item("done")])
        async with open_session(_agent(model, tools=[hosted]), tmp_path) as session:
            await session.say("go")
            interrupt = await session.client.wait_for_interrupt(SESSION)
            assert (interrupt.tool_name, interrupt.arguments) == ("shop.buy", '{"item": "shoe"}')
            if approves:
                await session.client.approve(SESSION)
            else:
                await session.client.reject(SESSION, "too expensive")
            await session.finished()
        response = model.requests[1].items[2]
        assert (response["type"], response["approval_request_id"]) == ("mcp_approval_response", "mcpr_1")
        assert response["approve"] is approves
        assert response.get("reason") == (None if approves else "too expensive")

    asyncio.run(main())
