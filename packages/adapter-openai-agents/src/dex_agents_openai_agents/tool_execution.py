"""Running one deferred tool call, in any process, through the SDK's own tool pipeline."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Sequence
from typing import Any

from agents import (
    Agent,
    FunctionTool,
    MaxTurnsExceeded,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    Runner,
    Tool,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
    ToolsToFinalOutputResult,
    UserError,
)
from openai.types.responses import (
    ResponseApplyPatchToolCall,
    ResponseCustomToolCall,
    ResponseFunctionShellToolCall,
    ResponseFunctionToolCall,
)

from dex_agents import DeferredToolExecution, ToolExecutionError, ToolExecutionResult, ToolTaskStarted
from dex_agents_openai_agents.canned_model import CannedModel
from dex_agents_openai_agents.run_hooks import StepAgentHooks, StepRunHooks
from dex_agents_openai_agents.run_state import CallReference
from dex_agents_openai_agents.runnable_tool import ToolErrors, runnable_tool
from dex_agents_openai_agents.step_agent import find_function_tool, find_item_tool
from dex_agents_openai_agents.stored_items import item_to_json

__all__ = ["execute_tool_call", "find_tool"]

_PROGRAM_TOOL = "ProgrammaticToolCallingTool"
_ITEM_TYPES: dict[str, Any] = {
    "shell_call": ResponseFunctionShellToolCall,
    "apply_patch_call": ResponseApplyPatchToolCall,
    "custom_tool_call": ResponseCustomToolCall,
}


async def find_tool(
    agent: Agent[Any], name: str, reference: CallReference, context: RunContextWrapper[Any]
) -> Tool | None:
    """The tool of a recorded call. Whether it is enabled was decided when the model was asked.

    Raises:
        UserError: An MCP server of the agent is not connected in this process.
    """
    if reference.kind == "function_call":
        own = find_function_tool(agent.tools, name, reference.namespace)
        if own is not None or not agent.mcp_servers:
            return own
        return find_function_tool(await agent.get_mcp_tools(context), name, reference.namespace)
    return find_item_tool(agent.tools, reference.kind, name)


async def execute_tool_call(
    call: DeferredToolExecution,
    reference: CallReference,
    agent: Agent[Any],
    tool: Tool,
    *,
    context: Any,
    run_config: RunConfig,
    hooks: RunHooks[Any] | None,
    tool_errors: ToolErrors,
) -> ToolExecutionResult | ToolTaskStarted:
    """Run the tool with its guardrails, hooks and timeout.

    Args:
        call: The call.
        reference: What this adapter knows of it.
        agent: The agent that was offered the tool.
        tool: The tool.
        context: The application's context object.
        run_config: The step's run config.
        hooks: The application's run hooks.
        tool_errors: See `ToolErrors`.

    Raises:
        ToolExecutionError: A failure that the model reads.
        Exception: The attempt failed.
    """
    name = call.tool_call.tool_name
    reported: list[str] = []
    started: list[ToolTaskStarted] = []
    step_tool = runnable_tool(tool, call, reference, run_config, tool_errors, reported, started)
    step_agent = Agent(
        name=agent.name,
        model=CannedModel(*_calling_program(reference), _recorded_item(call, reference)),
        tools=[step_tool, *(other for other in agent.tools if type(other).__name__ == _PROGRAM_TOOL)],
        tool_use_behavior=_stop,
        hooks=None if agent.hooks is None else StepAgentHooks(agent.hooks, agent, tool=tool),
    )
    config = dataclasses.replace(
        run_config,
        model=None,
        input_guardrails=None,
        output_guardrails=None,
        call_model_input_filter=None,
        model_settings=None,
    )
    run_hooks = None if hooks is None else StepRunHooks(hooks, agent, tool=tool)
    try:
        result = await Runner.run(
            step_agent,
            [{"role": "user", "content": "-"}],
            context=context,
            max_turns=1,
            run_config=config,
            hooks=run_hooks,
        )
        items, interruptions = result.new_items, result.interruptions
    except MaxTurnsExceeded as error:
        if isinstance(tool, FunctionTool) or error.run_data is None:
            raise  # of an agent behind the tool; other kinds of tools cannot end the run
        items, interruptions = error.run_data.new_items, []
    except ToolInputGuardrailTripwireTriggered as error:
        if error.guardrail not in (getattr(tool, "tool_input_guardrails", None) or ()):
            raise  # of a tool of an agent behind the tool
        guardrail = error.guardrail.get_name()
        raise ToolExecutionError(f"The tool {name} was not run: its input guardrail {guardrail} stopped it.") from error
    except ToolOutputGuardrailTripwireTriggered as error:
        if error.guardrail not in (getattr(tool, "tool_output_guardrails", None) or ()):
            raise
        guardrail = error.guardrail.get_name()
        raise ToolExecutionError(
            f"The tool {name} ran, but its output guardrail {guardrail} withheld the result. "
            "What the tool did has taken effect."
        ) from error
    except UserError as error:
        # The SDK wraps what a tool raises.
        raise (error.__cause__ if isinstance(error.__cause__, Exception) else error) from None
    if interruptions:
        raise _nested_approval_error(name, interruptions)
    if reported:
        raise ToolExecutionError(reported[-1])
    if started:
        return started[-1]
    return _result(items, reference)


def _stop(context: Any, results: Any) -> ToolsToFinalOutputResult:
    return ToolsToFinalOutputResult(is_final_output=True, final_output="-")


def _calling_program(reference: CallReference) -> list[Any]:
    """What stands for the program that made the call, without which the SDK does not accept it."""
    caller = (reference.raw or {}).get("caller", {}) if reference.kind == "function_call" else {}
    if caller.get("type") != "program":
        return []
    program = {"type": "program", "id": "program", "call_id": caller["caller_id"], "status": "completed"}
    return [{**program, "code": "", "fingerprint": ""}]


def _recorded_item(call: DeferredToolExecution, reference: CallReference) -> Any:
    if reference.kind != "function_call":
        return _ITEM_TYPES[reference.kind].model_validate(reference.raw)
    fields: dict[str, Any] = {
        **(reference.raw or {}),
        "type": "function_call",
        # The SDK keeps unfinished runs of agents used as tools in the process, under all that tells a call from others.
        "id": uuid.uuid4().hex,
        "call_id": reference.call_id,
        "name": call.tool_call.tool_name,
        "arguments": call.tool_call.arguments_to_run,
    }
    if reference.namespace is not None:
        fields["namespace"] = reference.namespace
    return ResponseFunctionToolCall.model_validate(fields)


def _nested_approval_error(tool_name: str, interruptions: Sequence[Any]) -> ToolExecutionError:
    names = ", ".join(sorted({str(item.name or "?") for item in interruptions}))
    return ToolExecutionError(
        f"The tool {tool_name} is an agent whose own tool ({names}) needs an approval, which nobody can give inside "
        "one tool call. That tool was not run."
    )


def _result(items: Sequence[Any], reference: CallReference) -> ToolExecutionResult:
    outputs = [item for item in items if item.type == "tool_call_output_item"]
    if not outputs:
        raise ToolExecutionError("the tool gave no result")
    item = item_to_json(outputs[-1])
    if reference.kind != "function_call":
        return ToolExecutionResult(output=_readable(item), framework_result=_json_text(item))
    output = item["output"]
    if isinstance(output, str):
        return ToolExecutionResult(output=output)
    return ToolExecutionResult(output=_readable(item), framework_result=_json_text(output))


def _readable(item: dict[str, Any]) -> str:
    """What people read of a result that is no plain text."""
    output = item.get("output")
    if isinstance(output, str):
        return output
    texts = []
    for part in output or ():
        if part.get("type") == "input_text":
            texts.append(str(part["text"]))
        elif "stdout" in part:
            texts.append("\n".join(text for text in (part["stdout"], part.get("stderr")) if text))
        else:
            texts.append(f"[{str(part.get('type', 'content')).removeprefix('input_')}]")
    return "\n".join(texts)


def _json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
