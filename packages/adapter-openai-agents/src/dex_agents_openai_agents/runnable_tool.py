"""A copy of a tool that runs at once in its own step, and tells failures from results."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
from typing import Any, Literal, TypeAlias

from agents import (
    FunctionTool,
    ItemHelpers,
    RunConfig,
    RunContextWrapper,
    Tool,
    ToolGuardrailFunctionOutput,
    ToolOutputGuardrail,
    ToolOutputGuardrailData,
)
from agents.exceptions import ModelBehaviorError
from agents.run_config import ToolErrorFormatterArgs
from agents.tool_context import ToolContext

from dex_agents import DeferredToolExecution, ToolEffect, ToolExecutionError, ToolTaskStarted
from dex_agents.session.argument_validation import ArgumentValidator
from dex_agents.session.texts import invalid_arguments_text
from dex_agents_openai_agents.private_names import (
    agent_of_tool,
    failure_error_function,
    replace_failure_error_function,
)
from dex_agents_openai_agents.run_state import CallReference
from dex_agents_openai_agents.step_agent import resolve_maybe_awaitable

__all__ = ["ToolErrors", "runnable_tool"]

_LOG = logging.getLogger(__name__)

#: What becomes of an exception that the SDK's default would turn into text for the model: that text, as a failed call,
#: or a failed attempt, which the tool's effect decides about.
ToolErrors: TypeAlias = Literal["report", "retry"]


def runnable_tool(
    tool: Tool,
    call: DeferredToolExecution,
    reference: CallReference,
    run_config: RunConfig,
    tool_errors: ToolErrors,
    reported: list[str],
    started: list[ToolTaskStarted],
) -> Tool:
    """A copy of a tool that runs at once.

    Args:
        tool: The application's tool.
        call: The call.
        reference: What this adapter knows of the call.
        run_config: The session's run config.
        tool_errors: See `ToolErrors`.
        reported: Receives the texts that stand for failures.
        started: Receives the remote work that the tool started.
    """
    runnable: Any = copy.copy(tool)
    runnable.needs_approval = False
    if not isinstance(tool, FunctionTool):
        return runnable  # type: ignore[no-any-return]
    runnable.is_enabled = True
    runnable.defer_loading = False
    formats_error = failure_error_function(tool)
    is_default = formats_error is failure_error_function(_BARE_TOOL)

    async def report(context: RunContextWrapper[Any], error: Exception) -> str:
        if isinstance(error, ToolExecutionError):
            raise error
        retries = is_default and tool_errors == "retry" and not isinstance(error, ModelBehaviorError)
        if formats_error is None or retries:
            raise error
        text = str(await resolve_maybe_awaitable(formats_error(context, error)))
        if is_default:
            text = await _formatted_by_run(
                run_config, call.tool_call.tool_name, reference.call_id, context, error, text
            )
        reported.append(text)
        return text

    async def report_arguments(context: RunContextWrapper[Any], error: Exception) -> str:
        try:
            return await report(context, error)
        except ModelBehaviorError:
            # The model's fault, which another attempt with the same arguments cannot mend.
            raise ToolExecutionError(_arguments_problem(tool, call.tool_call.arguments_to_run, error)) from error

    # An agent that is used as a tool has a model of its own, which may do better at another attempt.
    replace_failure_error_function(runnable, report if agent_of_tool(tool) else report_arguments)
    runnable.tool_output_guardrails = [*(tool.tool_output_guardrails or ()), _last_check(started)]
    if call.tool_call.effect is not ToolEffect.READ and tool.timeout_error_function is None:
        # A write that ran out of time may have taken effect, which is more than a text about time.
        runnable.timeout_behavior = "raise_exception"
    if agent_of_tool(tool) is not None:
        _give_run_config(runnable, run_config)
    return runnable  # type: ignore[no-any-return]


def _give_run_config(tool: FunctionTool, run_config: RunConfig) -> None:
    """Let the agent behind a tool run with the application's run config, and not with that of the recorded call."""
    invoke = tool.on_invoke_tool

    async def invoke_with_run_config(context: ToolContext[Any], arguments: str) -> Any:
        context.run_config = run_config
        return await invoke(context, arguments)

    tool.on_invoke_tool = invoke_with_run_config


async def _nothing(context: Any, arguments: str) -> str:
    return ""


#: Tells which failure function the SDK gives a tool that has none of its own.
_BARE_TOOL = FunctionTool(
    name="bare", description="", params_json_schema={}, on_invoke_tool=_nothing, strict_json_schema=False
)


async def _formatted_by_run(
    run_config: RunConfig,
    tool_name: str,
    call_id: str,
    context: RunContextWrapper[Any],
    error: Exception,
    default_text: str,
) -> str:
    """The text of the run config's `tool_error_formatter`, in SDK versions that ask it about a tool's exceptions."""
    formatter = run_config.tool_error_formatter
    if formatter is None or not any(field.name == "error" for field in dataclasses.fields(ToolErrorFormatterArgs)):
        return default_text
    arguments: ToolErrorFormatterArgs[Any] = ToolErrorFormatterArgs(
        kind="tool_exception",
        tool_type="function",
        tool_name=tool_name,
        call_id=call_id,
        default_message=default_text,
        run_context=context,
        error=error,
    )
    try:
        text = await resolve_maybe_awaitable(formatter(arguments))
    except Exception:  # as in the SDK, a formatter that fails leaves the default
        _LOG.exception("the tool_error_formatter of the run config failed for a call of %s", tool_name)
        return default_text
    return text if isinstance(text, str) else default_text


def _arguments_problem(tool: FunctionTool, arguments: str, error: Exception) -> str:
    """What is wrong with arguments, by the schema when the SDK does not say."""
    problems = ArgumentValidator(tool.params_json_schema).problems(json.loads(arguments))
    return invalid_arguments_text(tool.name, "; ".join(problems) or str(error))


def _last_check(started: list[ToolTaskStarted]) -> ToolOutputGuardrail[Any]:
    """What looks at a tool's output before the SDK turns it into text."""

    def check(data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        if isinstance(data.output, ToolTaskStarted):
            started.append(data.output)
            return ToolGuardrailFunctionOutput.allow()
        return _check_renderable(data)

    return ToolOutputGuardrail(guardrail_function=check, name="result")


def _check_renderable(data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
    """Find out what the SDK cannot turn into text while it can still be said that the tool ran."""
    call = data.context.tool_call
    try:
        if call is not None:
            ItemHelpers.tool_call_output_item(call, data.output)
    except Exception as error:  # whatever user code raises here must not look like a failed attempt
        raise ToolExecutionError(
            f"The tool {data.context.tool_name} ran to its end, but its result of type {type(data.output).__name__} "
            f"cannot be turned into text ({type(error).__name__}: {error}). What the tool did has taken effect."
        ) from error
    return ToolGuardrailFunctionOutput.allow()
