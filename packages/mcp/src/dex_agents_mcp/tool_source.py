"""The tools of MCP servers as durable tools of an agent session."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import msgspec

from dex_agents import (
    AgentTurnContext,
    DeferredToolCall,
    DeferredToolExecution,
    DeferredToolOutcome,
    QuestionAnswer,
    ToolExecutionError,
    ToolExecutionResult,
    ToolInputRequested,
    ToolPolicy,
    ToolTaskCancellation,
    ToolTaskPoll,
    ToolTaskPollOutcome,
)
from dex_agents.session.texts import unknown_tool_text
from dex_agents_mcp.call_attempt import CallAttempt
from dex_agents_mcp.errors import McpServerUnreachableError
from dex_agents_mcp.listed_tools import McpTool
from dex_agents_mcp.resource_prompt_tools import (
    RESOURCE_AND_PROMPT_TOOL_NAMES,
    resource_and_prompt_tools,
    run_resource_or_prompt_tool,
)
from dex_agents_mcp.server_client import McpServerClient, ProcessStarts
from dex_agents_mcp.server_configs import McpServer, check_servers
from dex_agents_mcp.server_listing import ServerListing
from dex_agents_mcp.source_options import McpSourceOptions
from dex_agents_mcp.tool_calls import run_call
from dex_agents_mcp.tool_names import offered_tool_name
from dex_agents_mcp.tool_references import ToolReference, decode_reference, encode_reference, reference_of
from dex_agents_mcp.tool_task_polls import poll_task, stop_task

__all__ = ["AskUser", "McpToolHandler", "McpToolSource"]

logger = logging.getLogger("dex_agents_mcp")

McpToolHandler: TypeAlias = Callable[[DeferredToolExecution], Awaitable[DeferredToolOutcome]]
#: Answers what a server asks, or leaves the tool with what its framework raises until there is an answer.
AskUser: TypeAlias = Callable[[ToolInputRequested], QuestionAnswer]


class McpToolSource:
    """Offers the tools of MCP servers to an agent, and runs their calls in tool Steps.

    Make one per worker process and agent; it holds no state of a session. Stepwise takes it in `tool_sources`; see
    `deferred_tool_call` and `execute_deferred_tool_call` for another runner, and `call_tool` for a framework's tools.

    Args:
        servers: The servers, in the order in which their tools are offered.
        source_name: Name that stored calls carry; unique among an agent's sources and the same across deploys.
        resource_and_prompt_tools_enabled: Offer three tools that list and read resources and prompts.
        options: Limits; see `McpSourceOptions`.

    Raises:
        TypeError: An argument has the wrong type; names it.
        ValueError: Two servers have the same name, or an argument has a value it cannot have.
    """

    def __init__(
        self,
        servers: Sequence[McpServer],
        *,
        source_name: str = "mcp",
        resource_and_prompt_tools_enabled: bool = False,
        options: McpSourceOptions | None = None,
    ) -> None:
        if not isinstance(source_name, str) or not source_name.strip():
            raise ValueError(f"source_name must be non-blank text, not {source_name!r}")
        self.options = McpSourceOptions() if options is None else options
        self._source_name = source_name
        process_starts = ProcessStarts(self.options.max_process_starts)
        self._clients = {
            name: McpServerClient(server, self.options, process_starts)
            for name, server in check_servers(servers).items()
        }
        self._listings = [
            ServerListing(
                client,
                ttl=self.options.listing_ttl,
                failure_backoff=self.options.listing_failure_backoff,
                request_timeout=self.options.request_timeout,
            )
            for client in self._clients.values()
        ]
        self._own_tools = resource_and_prompt_tools(tuple(self._clients)) if resource_and_prompt_tools_enabled else ()
        self._reported_collisions: set[tuple[str, str]] = set()

    @property
    def source_name(self) -> str:
        """The name that stored calls carry."""
        return self._source_name

    async def list_tools(self, *, refresh: bool = False) -> tuple[McpTool, ...]:
        """The tools to offer now, in server order.

        The first call waits for every server, `listing_wait_timeout` at most; later ones return what is known and
        refresh it in the background. A server that cannot be listed is left out, with a warning.

        Args:
            refresh: List every server again and wait for all of them.
        """
        started = [listing.start_when_due(is_forced=refresh) for listing in self._listings]
        awaited = [task for task in started if task is not None]
        if awaited:
            timeout = None if refresh else self.options.listing_wait_timeout.total_seconds()
            await asyncio.wait(awaited, timeout=timeout)
        return self.cached_tools()

    def cached_tools(self) -> tuple[McpTool, ...]:
        """The tools of the latest listing, without any I/O; none of a server that was never listed."""
        tools: dict[str, McpTool] = {}
        for tool in (tool for listing in self._listings for tool in listing.tools):
            other = tools.get(tool.name)
            if other is None:
                tools[tool.name] = tool
                continue
            tools[tool.name], left_out = sorted((other, tool), key=lambda found: found.name_precedence)
            self._report_collision(tools[tool.name], left_out)
        for tool in self._own_tools:
            if tools.setdefault(tool.name, tool) is not tool:
                self._report_collision(tools[tool.name], tool)
                tools[tool.name] = tool  # the source declares these names, so they mean the same on every worker
        return tuple(tools.values())

    def declared_tool_names(self) -> tuple[str, ...]:
        """Names that every listing has."""
        return tuple(tool.name for tool in self._own_tools)

    def could_offer(self, tool_name: str) -> bool:
        """Whether a listing could ever have a tool of this name: one of the source's own, or `<server>__<tool>`."""
        if tool_name in self.declared_tool_names():
            return True
        servers = [
            client.server for client in self._clients.values() if tool_name.startswith(f"{client.server.name}__")
        ]
        return any(
            server.allowed_tools is None
            or any(offered_tool_name(server.name, allowed) == tool_name for allowed in server.allowed_tools)
            for server in servers
        )

    def tool_policies(self) -> dict[str, ToolPolicy]:
        """A policy with the effect of every known tool, for an adapter's `tool_policies`; call `list_tools` first."""
        return {tool.name: ToolPolicy(effect=tool.effect) for tool in self.cached_tools() if tool.effect is not None}

    def deferred_tool_call(
        self,
        turn: AgentTurnContext,
        *,
        tool_call_id: str,
        tool_name: str,
        arguments: str,
        listed_tool: McpTool | None = None,
    ) -> DeferredToolCall:
        """A model's call of a listed tool in the form the session stores.

        Args:
            turn: The model step that made the call.
            tool_call_id: The provider's ID of the call.
            tool_name: The name the model used.
            arguments: The arguments as the model sent them.
            listed_tool: The tool as it was offered; None for the latest listing's.

        Raises:
            LookupError: No listing has the name.
        """
        tool = self._find(tool_name) if listed_tool is None else listed_tool
        if tool is None:
            raise LookupError(f"no MCP server lists a tool {tool_name!r}")
        policy = turn.resolve_tool_policy(tool_name, tool.effect)
        return DeferredToolCall(
            tool_call_id=tool_call_id,
            tool_name=tool_name,
            arguments=arguments,
            policy=policy,
            tool_source_reference=encode_reference(tool) if tool.server_name else None,
            arguments_schema=json.dumps(tool.input_schema, ensure_ascii=False) if policy.requires_approval else None,
        )

    async def execute_deferred_tool_call(self, call: DeferredToolExecution) -> DeferredToolOutcome:
        """Run one attempt of a stored call.

        Raises:
            ToolExecutionError: The tool failed, the server refused the call, or it was never sent.
            McpToolCallInterruptedError: It was sent, and nobody knows what came of it; the effect decides.
            McpToolSourceReferenceError: The stored reference cannot be read.
        """
        arguments = json.loads(call.tool_call.arguments_to_run)
        tool_name = call.tool_call.tool_name
        text = call.tool_call.tool_source_reference
        if text is None and tool_name in RESOURCE_AND_PROMPT_TOOL_NAMES:
            return await run_resource_or_prompt_tool(self._clients, tool_name, arguments, self.options)
        attempt = CallAttempt(
            reference=await self._reference_of_name(tool_name) if text is None else decode_reference(text),
            tool_name=tool_name,
            arguments=arguments,
            idempotency_key=call.idempotency_key,
            tool_call_id=call.tool_call.tool_call_id,
            events=call.events,
            heartbeat=call.heartbeat,
            save_checkpoint=call.save_heartbeat_checkpoint if call.supports_tool_tasks else None,
            checkpoint=call.heartbeat_checkpoint,
            can_ask=True,
            continuation=call.tool_call.input_continuation,
            answers=call.input_answers,
            trace_context=call.tool_call.trace_context,
        )
        return await self._run(attempt)

    async def poll_tool_task(self, poll: ToolTaskPoll) -> ToolTaskPollOutcome:
        """Ask the server once how the task of a call is; see `poll_task` for what it raises."""
        return await poll_task(self._client_of_task(poll.tool_call.tool_source_reference), poll, self.options)

    async def cancel_tool_task(self, cancellation: ToolTaskCancellation) -> None:
        """Ask the server to stop the task of a call; see `stop_task` for what it raises."""
        client = self._client_of_task(cancellation.tool_call.tool_source_reference)
        await stop_task(client, cancellation, self.options)

    async def deferred_tool_handlers(self) -> dict[str, McpToolHandler]:
        """What runs the stored calls of each tool that is offered now, by the tool's name."""
        tools = await self.list_tools()
        return {tool.name: partial(self._handle, tool) for tool in tools}

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        idempotency_key: str,
        trace_context: str | None = None,
        ask_user: AskUser | None = None,
    ) -> str:
        """Run a tool and return its text, for a tool of another framework that is called inside a tool Step.

        A task is polled inside the call.

        Args:
            name: The name the tool is offered under.
            arguments: Its arguments.
            idempotency_key: The same on every attempt of the call, such as `DeferredToolExecution.idempotency_key`.
            trace_context: The W3C `traceparent` of the call.
            ask_user: Answers each question of the server, in order; servers ask before a tool takes effect. What it
                raises leaves the call, and a later run may start over with the same answers. None fails a call whose
                server asks.

        Raises:
            ToolExecutionError: The tool failed, the server refused the call, it was never sent, or no server lists it.
            McpToolCallInterruptedError: It was sent, and nobody knows what came of it: let it leave the framework, so
                that the tool's effect decides.
        """
        if name in self.declared_tool_names():
            return (await run_resource_or_prompt_tool(self._clients, name, arguments, self.options)).output
        attempt = CallAttempt(
            reference=await self._reference_of_name(name),
            tool_name=name,
            arguments=arguments,
            idempotency_key=idempotency_key,
            can_ask=ask_user is not None,
            trace_context=trace_context,
        )
        outcome = await self._run(attempt)
        while isinstance(outcome, ToolInputRequested):
            assert ask_user is not None  # the attempt may not ask without
            answers = (*attempt.answers, ask_user(outcome))
            attempt = dataclasses.replace(attempt, answers=answers, continuation=outcome.continuation)
            outcome = await self._run(attempt)
        assert isinstance(outcome, ToolExecutionResult)  # a task needs a checkpoint to outlive its call
        return outcome.output

    async def aclose(self) -> None:
        """Cancel listings that run in the background. Optional: the event loop does it at its end."""
        for listing in self._listings:
            await listing.stop()

    async def _handle(self, tool: McpTool, call: DeferredToolExecution) -> DeferredToolOutcome:
        if call.tool_call.tool_source_reference is None and tool.server_name:
            named = msgspec.structs.replace(call.tool_call, tool_source_reference=encode_reference(tool))
            call = dataclasses.replace(call, tool_call=named)
        return await self.execute_deferred_tool_call(call)

    async def _run(self, attempt: CallAttempt) -> DeferredToolOutcome:
        client = self._clients.get(attempt.reference.server)
        if client is None:
            raise ToolExecutionError(
                f"The tool {attempt.tool_name} was not run: the MCP server {attempt.reference.server!r} "
                "is not configured"
            )
        return await run_call(client, attempt, self.options)

    async def _reference_of_name(self, name: str) -> ToolReference:
        tool = self._find(name)
        if tool is None:
            await self.list_tools()
            tool = self._find(name)
        if tool is None:
            raise ToolExecutionError(unknown_tool_text(name))
        return reference_of(tool)

    def _client_of_task(self, reference: str | None) -> McpServerClient:
        name = "" if reference is None else decode_reference(reference).server
        client = self._clients.get(name)
        if client is None:
            raise McpServerUnreachableError(name, "this worker has no such server", is_permanent=True)
        return client

    def _find(self, name: str) -> McpTool | None:
        return next((tool for tool in self.cached_tools() if tool.name == name), None)

    def _report_collision(self, first: McpTool, second: McpTool) -> None:
        problem = (first.name, second.server_name)
        if problem not in self._reported_collisions:
            self._reported_collisions.add(problem)
            logger.warning(
                "tool %r of the MCP server %r is left out: the name %s is taken by %r of %r",
                second.mcp_name,
                second.server_name,
                first.name,
                first.mcp_name,
                first.server_name,
            )
