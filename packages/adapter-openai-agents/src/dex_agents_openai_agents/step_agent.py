"""The copy of an agent that one model step runs: it is offered the agent's tools, and none of them can run."""

from __future__ import annotations

import copy
import dataclasses
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from agents import (
    Agent,
    FunctionTool,
    Handoff,
    HostedMCPTool,
    InputGuardrail,
    ModelRetrySettings,
    ModelSettings,
    OutputGuardrail,
    RunContextWrapper,
    Tool,
)
from agents import handoff as make_handoff

from dex_agents import BUILT_IN_TOOL_DEFINITIONS, TurnRefusedError
from dex_agents_openai_agents.run_hooks import StepAgentHooks

__all__ = ["OfferedTools", "ToolRanInModelStepError", "build_step_agent", "resolve_maybe_awaitable", "resolve_tools"]

Value = TypeVar("Value")

_ITEM_TOOLS = {
    "shell_call": ("ShellTool",),
    "apply_patch_call": ("ApplyPatchTool",),
    "custom_tool_call": ("CustomTool", "ApplyPatchTool"),
}


class ToolRanInModelStepError(RuntimeError):
    """The SDK tried to run a tool inside a model step; nothing ran."""

    def __init__(self) -> None:
        super().__init__("a tool of a durable session runs in a step of its own")


@dataclass(frozen=True, kw_only=True)
class OfferedTools:
    """What an agent offers its model now.

    Attributes:
        tools: The agent's enabled tools, those of MCP servers first, as the SDK orders them.
        handoffs: Its enabled handoffs by the name of their tool.
        built_in: Names of the session's own tools.
        is_reduced: Whether the session holds back tools of the agent.
    """

    tools: tuple[Tool, ...]
    handoffs: Mapping[str, Handoff[Any, Any]]
    built_in: tuple[str, ...] = ()
    is_reduced: bool = False

    def find_function_tool(self, name: str, namespace: str | None) -> FunctionTool | None:
        """The function tool a call means."""
        return find_function_tool(self.tools, name, namespace)


def find_function_tool(tools: Iterable[Tool], name: str, namespace: str | None) -> FunctionTool | None:
    """The function tool a call means, by name and namespace."""
    qualified = f"{namespace}.{name}" if namespace and namespace != name else name
    for tool in tools:
        if isinstance(tool, FunctionTool) and tool.name == name and tool.qualified_name in (qualified, name):
            return tool
    return None


def find_item_tool(tools: Iterable[Tool], kind: str, name: object) -> Tool | None:
    """The tool that a call means which is no function call: custom tools by name, of the others there is one."""
    kinds = _ITEM_TOOLS.get(kind, ())
    found = (tool for tool in tools if type(tool).__name__ in kinds)
    return next((tool for tool in found if kind != "custom_tool_call" or getattr(tool, "name", None) == name), None)


async def resolve_maybe_awaitable(value: Value | Awaitable[Value]) -> Value:
    """A value that the SDK allows to be awaitable."""
    return await value if inspect.isawaitable(value) else value


async def resolve_tools(
    agent: Agent[Any], context: RunContextWrapper[Any], *, built_in: Iterable[str] = ()
) -> OfferedTools:
    """The tools and handoffs that are enabled in this context.

    Raises:
        UserError: An MCP server of the agent is not connected.
        TurnRefusedError: A tool, of an MCP server for example, has the name of an enabled built-in tool.
    """
    handoffs: dict[str, Handoff[Any, Any]] = {}
    for entry in agent.handoffs:
        handoff = entry if isinstance(entry, Handoff) else make_handoff(entry)
        enabled = handoff.is_enabled
        if enabled if isinstance(enabled, bool) else await resolve_maybe_awaitable(enabled(context, agent)):
            handoffs[handoff.tool_name] = handoff
    tools = tuple(await agent.get_all_tools(context))
    offered = OfferedTools(tools=tools, handoffs=handoffs, built_in=tuple(built_in))
    names = {*handoffs, *(getattr(tool, "name", None) for tool in tools)}
    if taken := [name for name in offered.built_in if name in names]:
        raise TurnRefusedError(f"a tool of the agent {agent.name!r} has the name of the built-in tool {taken[0]!r}")
    return offered


def build_step_agent(
    agent: Agent[Any],
    offered: OfferedTools,
    approvals: dict[str, bool],
    *,
    checks_input: bool,
    has_used_tools: bool,
    announces_start: bool,
) -> Agent[Any]:
    """The copy of an agent for one model step.

    Every tool needs approval, so the run ends with the calls as interruptions; a handoff is a tool like any other.
    What the application reads of the agent, in instructions, guardrails and hooks, is the agent itself.

    Args:
        agent: The application's agent.
        offered: Its tools.
        approvals: Receives, by call ID, what a tool's approval function says; a call that is missing needs approval.
        checks_input: Whether input guardrails run: at a turn's first model call only.
        has_used_tools: Whether the agent has used tools since it took over, which resets `tool_choice`.
        announces_start: Whether start hooks run.
    """
    tools = [_deferred(tool, approvals) for tool in offered.tools]
    tools += [_handoff_tool(handoff) for handoff in offered.handoffs.values()]
    tools += [_built_in_tool(name) for name in offered.built_in]
    instructions = agent.instructions
    return dataclasses.replace(
        agent,
        instructions=_for_agent(instructions, agent) if callable(instructions) else instructions,
        tools=tools,
        mcp_servers=[],
        handoffs=[],
        model_settings=_settings(agent, offered, resets_tool_choice=has_used_tools, has_tools=bool(tools)),
        input_guardrails=[_input_guardrail(guardrail, agent) for guardrail in agent.input_guardrails]
        if checks_input
        else [],
        output_guardrails=[_output_guardrail(guardrail, agent) for guardrail in agent.output_guardrails],
        tool_use_behavior="run_llm_again",
        hooks=None if agent.hooks is None else StepAgentHooks(agent.hooks, agent, announces_start=announces_start),
    )


def _settings(agent: Agent[Any], offered: OfferedTools, *, resets_tool_choice: bool, has_tools: bool) -> ModelSettings:
    settings = agent.model_settings
    choice = settings.tool_choice
    # Providers refuse a choice of a tool that is not offered.
    is_held_back = offered.is_reduced and (not has_tools or choice not in ("auto", "required", "none"))
    if choice is not None and (is_held_back or (resets_tool_choice and agent.reset_tool_choice)):
        return dataclasses.replace(settings, tool_choice=None)
    return settings


def without_retries(settings: ModelSettings | None) -> ModelSettings:
    """Settings under which neither the SDK nor the provider's client repeats a request: the session does."""
    no_retries = ModelRetrySettings(max_retries=0)
    return ModelSettings(retry=no_retries) if settings is None else dataclasses.replace(settings, retry=no_retries)


def _for_agent(function: Callable[..., Any], agent: Agent[Any]) -> Callable[[Any, Any], Awaitable[str]]:
    async def instructions(context: Any, copied_agent: Any) -> str:
        return str(await resolve_maybe_awaitable(function(context, agent)))

    return instructions


def _input_guardrail(guardrail: InputGuardrail[Any], agent: Agent[Any]) -> InputGuardrail[Any]:
    function = guardrail.guardrail_function
    return dataclasses.replace(
        guardrail,
        name=guardrail.get_name(),
        guardrail_function=lambda context, copied_agent, items: function(context, agent, items),
    )


def _output_guardrail(guardrail: OutputGuardrail[Any], agent: Agent[Any]) -> OutputGuardrail[Any]:
    function = guardrail.guardrail_function
    return dataclasses.replace(
        guardrail,
        name=guardrail.get_name(),
        guardrail_function=lambda context, copied_agent, output: function(context, agent, output),
    )


def _deferred(tool: Tool, approvals: dict[str, bool]) -> Tool:
    deferred: Any = copy.copy(tool)
    if isinstance(tool, HostedMCPTool):
        deferred.on_approval_request = None
        return cast("Tool", deferred)
    if not hasattr(tool, "needs_approval"):
        return tool  # hosted by the provider: it runs inside the model call
    if isinstance(tool, FunctionTool):
        deferred.is_enabled = True
        # They run with the tool, in its own step.
        deferred.tool_input_guardrails = None
        deferred.tool_output_guardrails = None
    else:
        deferred.on_approval = None
    asks = deferred.needs_approval
    if callable(asks):
        # The SDK itself decides whether the arguments may be shown to the function, so the invoker stays.
        deferred.needs_approval = _recording(asks, approvals)
    else:
        deferred.needs_approval = True
        if isinstance(tool, FunctionTool):
            deferred.on_invoke_tool = _never
    return cast("Tool", deferred)


def _recording(asks: Callable[..., Any], approvals: dict[str, bool]) -> Callable[[Any, Any, str], Awaitable[bool]]:
    async def needs_approval(context: Any, arguments: Any, call_id: str) -> bool:
        try:
            approvals[call_id] = bool(await resolve_maybe_awaitable(asks(context, arguments, call_id)))
        except Exception:  # a rule that fails has not said that the call is harmless
            approvals[call_id] = True
        return True

    return needs_approval


async def _never(context: Any, arguments: str) -> Any:
    raise ToolRanInModelStepError()


def _handoff_tool(handoff: Handoff[Any, Any]) -> FunctionTool:
    return FunctionTool(
        name=handoff.tool_name,
        description=handoff.tool_description,
        params_json_schema=handoff.input_json_schema,
        strict_json_schema=handoff.strict_json_schema,
        on_invoke_tool=_never,
        needs_approval=True,
    )


def _built_in_tool(name: str) -> FunctionTool:
    definition = BUILT_IN_TOOL_DEFINITIONS[name]
    return FunctionTool(
        name=name,
        description=definition.description,
        params_json_schema=copy.deepcopy(dict(definition.parameters)),
        strict_json_schema=False,
        on_invoke_tool=_never,
        needs_approval=True,
    )
