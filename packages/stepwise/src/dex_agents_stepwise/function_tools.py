"""Function tools: a Python function, what the model reads about it, and what it does to the world."""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, ParamSpec, TypeAlias, TypeVar, overload

from pydantic import ValidationError

from dex_agents import (
    DeferredToolExecution,
    DeferredToolOutcome,
    RunnerContractError,
    ToolEffect,
    ToolExecutionError,
    ToolExecutionResult,
    ToolInputRequested,
    ToolTaskCancellation,
    ToolTaskPending,
    ToolTaskPoll,
    ToolTaskPollOutcome,
    ToolTaskStarted,
)
from dex_agents.session.argument_validation import ArgumentValidator
from dex_agents.session.arguments import check_arguments
from dex_agents.session.texts import invalid_arguments_text
from dex_agents_stepwise.application_function import ApplicationFunction
from dex_agents_stepwise.argument_validation import conversion_problems
from dex_agents_stepwise.function_docstring import read_function_docstring
from dex_agents_stepwise.function_signature import (
    SignatureArguments,
    find_annotated_parameters,
    read_signature_arguments,
)
from dex_agents_stepwise.parameter_schema import checked_parameter_schema
from dex_agents_stepwise.tool_call_context import ToolCallContext, context_of_execution
from dex_agents_stepwise.tool_questions import SwallowedQuestionError, ToolInputRequired, ToolQuestions
from dex_agents_stepwise.tool_results import UnrenderableToolResultError, render_tool_result
from dex_agents_stepwise.tool_tasks import (
    ToolTaskFunction,
    context_of_cancellation,
    context_of_poll,
    missing_task_poller,
    task_function,
)

__all__ = ["FunctionTool", "ToolEffectName", "function_tool"]

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
ToolEffectName: TypeAlias = Literal["read", "idempotent_write", "non_idempotent_write", "unclassified"]

# What every provider known to us accepts; anything else fails the whole request there.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionTool(Generic[Arguments, Result]):
    """A tool made by `function_tool`. Calling it calls the function, so that it stays testable as it is.

    Attributes:
        name: What the model calls.
        description: What the model reads about it.
        parameters: JSON Schema of the arguments object; read-only.
        effect: What the tool does to the world; None leaves it to the agent's `default_tool_effect`.
        requires_approval: Whether a person must approve each call; None leaves it to the effect.
        function: The function.
        poll_task: Asks how the remote work of a call is.
        cancel_task: Stops the remote work of a call.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    effect: ToolEffect | None
    requires_approval: bool | None
    function: Callable[Arguments, Result]
    poll_task: ToolTaskFunction | None
    cancel_task: ToolTaskFunction | None
    _call: ApplicationFunction
    _poll: ApplicationFunction | None
    _cancel: ApplicationFunction | None
    _context_parameter: str | None
    _signature: SignatureArguments | None
    _arguments_parameter: str | None
    _validator: ArgumentValidator

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Call the function directly, without any check."""
        return self.function(*args, **kwargs)

    def read_arguments(self, text: str) -> dict[str, Any]:
        """The keyword arguments for the function from the model's arguments text.

        Raises:
            ToolExecutionError: They are not a JSON object, or do not fit the schema; the text tells the model how.
        """
        checked = check_arguments(self.name, text)
        if checked.error is not None:
            raise ToolExecutionError(checked.error)
        arguments: dict[str, Any] = json.loads(checked.text)
        if problems := self._validator.problems(arguments):
            raise self._invalid_arguments(problems)
        if self._signature is None:
            assert self._arguments_parameter is not None
            return {self._arguments_parameter: arguments}
        try:
            return self._signature.convert(arguments)
        except ValidationError as error:
            raise self._invalid_arguments(conversion_problems(error)) from error

    async def execute(self, execution: DeferredToolExecution) -> DeferredToolOutcome:
        """Run one call: check its arguments, call the function, turn its result into text.

        Synchronous functions run in a thread. What the function raises passes through.

        Raises:
            ToolExecutionError: The arguments do not fit, or the result cannot be turned into text; or a `read` tool
                without `poll_task` started remote work.
            MissingToolTaskPollerError: Another tool without `poll_task` did.
            SwallowedQuestionError: The function caught what `ask_user` raised.
            RunnerContractError: The function returned what only a poll may return.
        """
        arguments = self.read_arguments(execution.tool_call.arguments_to_run)
        questions: ToolQuestions | None = None
        if self._context_parameter is not None:
            context = context_of_execution(execution, asyncio.get_running_loop(), can_poll=self._poll is not None)
            arguments[self._context_parameter], questions = context, context.questions
        try:
            outcome = await self._call.call(self._outcome, **arguments)
        except ToolInputRequired as required:
            return required.request
        except BaseExceptionGroup as group:
            if group.subgroup(ToolInputRequired) is None:
                raise
            raise SwallowedQuestionError(self.name) from group
        if questions is not None and questions.is_asking and not isinstance(outcome, ToolInputRequested):
            raise SwallowedQuestionError(self.name)
        if isinstance(outcome, ToolTaskStarted) and self._poll is None and execution.supports_tool_tasks:
            # The session would poll it: other tools of the agent can.
            raise missing_task_poller(execution.tool_call)
        return outcome

    async def poll(self, poll: ToolTaskPoll) -> ToolTaskPollOutcome:
        """Ask once how the remote work of a call is.

        Raises:
            ToolExecutionError: The result cannot be turned into text; or the tool has no `poll_task` any more and the
                call is a `read`.
            MissingToolTaskPollerError: The same for any other call.
            RunnerContractError: `poll_task` returned nothing, or what only the tool may return.
        """
        if self._poll is None:
            raise missing_task_poller(poll.tool_call)
        return await self._poll.call(self._poll_outcome, context_of_poll(poll))

    async def cancel(self, cancellation: ToolTaskCancellation) -> None:
        """Stop the remote work of a call, when the tool can."""
        if self._cancel is not None:
            await self._cancel.call(_ignore_result, context_of_cancellation(cancellation))

    def _outcome(self, result: object) -> DeferredToolOutcome:
        if isinstance(result, (ToolExecutionResult, ToolInputRequested, ToolTaskStarted)):
            return result
        if isinstance(result, ToolTaskPending):
            raise RunnerContractError(
                f"tool {self.name!r} must return ToolTaskStarted; ToolTaskPending is for its poll_task"
            )
        return self._rendered(result)

    def _poll_outcome(self, result: object) -> ToolTaskPollOutcome:
        if isinstance(result, (ToolExecutionResult, ToolInputRequested, ToolTaskPending)):
            return result
        # A forgotten return must not look like a task that ended.
        if result is None or isinstance(result, ToolTaskStarted):
            raise RunnerContractError(
                f"poll_task of tool {self.name!r} must return ToolTaskPending while the task runs and its result at "
                f"the end, not {result!r}"
            )
        return self._rendered(result)

    def _rendered(self, result: object) -> ToolExecutionResult:
        try:
            return ToolExecutionResult(output=render_tool_result(self.name, result))
        except UnrenderableToolResultError as error:
            raise ToolExecutionError(str(error)) from error

    def _invalid_arguments(self, problems: list[str]) -> ToolExecutionError:
        return ToolExecutionError(invalid_arguments_text(self.name, "; ".join(problems)))


def _ignore_result(result: object) -> None:
    """A cancellation has no result."""


@overload
def function_tool(
    function: Callable[Arguments, Result],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    effect: ToolEffect | ToolEffectName | None = None,
    requires_approval: bool | None = None,
    poll_task: ToolTaskFunction | None = None,
    cancel_task: ToolTaskFunction | None = None,
) -> FunctionTool[Arguments, Result]: ...


@overload
def function_tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    effect: ToolEffect | ToolEffectName | None = None,
    requires_approval: bool | None = None,
    poll_task: ToolTaskFunction | None = None,
    cancel_task: ToolTaskFunction | None = None,
) -> Callable[[Callable[Arguments, Result]], FunctionTool[Arguments, Result]]: ...


def function_tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    effect: ToolEffect | ToolEffectName | None = None,
    requires_approval: bool | None = None,
    poll_task: ToolTaskFunction | None = None,
    cancel_task: ToolTaskFunction | None = None,
) -> Any:
    """Make a tool of a function, as a decorator (with or without arguments) or called with the function.

    Without `parameters`, the JSON Schema and the conversion of arguments into Python types come from the signature,
    and descriptions from the docstring. With `parameters`, the function takes one dict of arguments as they came. A
    parameter annotated with `ToolCallContext` receives the context of the call and is no argument of the model.

    The function may be async; a synchronous one runs in a thread. A `str` it returns is the output as it is; anything
    else becomes JSON. It may ask the user first with `ToolCallContext.ask_user`, or return `ToolInputRequested`.

    A tool with `poll_task` may start remote work and return `ToolTaskStarted`. The session then calls `poll_task` from
    time to time; no Step waits in between. It returns `ToolTaskPending` while the work goes on, `ToolInputRequested`
    when the work needs an answer, and the tool's result at the end.

    Args:
        function: The function.
        name: 1 to 64 letters, digits, `_` or `-`; the function's name unless given.
        description: What the model reads; the docstring's description unless given.
        parameters: JSON Schema of the arguments object.
        effect: What the tool does to the world, which decides attempts, approval and how a lost call is recorded.
        requires_approval: Whether a person must approve each call.
        poll_task: Function of a `ToolTaskContext`, sync or async. A crash repeats it, so it must only read the task,
            or deliver an answer idempotently.
        cancel_task: Function of a `ToolTaskContext`, sync or async, that stops the work of a cancelled turn, best
            effort. It may be called again for the same task.

    Raises:
        TypeError: A value has the wrong type, or the function's signature cannot be a tool's; names the tool.
        ValueError: A value is not allowed; names the tool.
    """
    if function is None:
        return functools.partial(
            function_tool,
            name=name,
            description=description,
            parameters=parameters,
            effect=effect,
            requires_approval=requires_approval,
            poll_task=poll_task,
            cancel_task=cancel_task,
        )
    if not callable(function):
        raise TypeError(f"function_tool needs a function, not {function!r}")
    tool_name = _checked_name(function, name)
    if requires_approval is not None and not isinstance(requires_approval, bool):
        raise TypeError(f"tool {tool_name!r}: requires_approval must be True, False or None, not {requires_approval!r}")
    if next(iter(inspect.signature(function).parameters), None) == "self":
        raise TypeError(f"tool {tool_name!r}: make the tool of a bound method: function_tool(object.{tool_name})")
    if cancel_task is not None and poll_task is None:
        raise TypeError(f"tool {tool_name!r}: cancel_task is for a tool with poll_task")
    contexts = find_annotated_parameters(function, ToolCallContext)
    if len(contexts) > 1:
        raise TypeError(f"tool {tool_name!r}: only one parameter can take the ToolCallContext, not {contexts}")
    signature = arguments_parameter = None
    if parameters is None:
        signature = read_signature_arguments(function, tool_name, frozenset(contexts))
        parameters = signature.schema
    else:
        arguments_parameter = _only_parameter(function, tool_name, frozenset(contexts))
    schema = checked_parameter_schema(tool_name, parameters)
    return FunctionTool(
        name=tool_name,
        description=read_function_docstring(function).description if description is None else description,
        parameters=schema,
        effect=_checked_effect(tool_name, effect),
        requires_approval=requires_approval,
        function=function,
        poll_task=poll_task,
        cancel_task=cancel_task,
        _call=ApplicationFunction.of(function, tool_name),
        _poll=task_function(tool_name, "poll_task", poll_task),
        _cancel=task_function(tool_name, "cancel_task", cancel_task),
        _context_parameter=contexts[0] if contexts else None,
        _signature=signature,
        _arguments_parameter=arguments_parameter,
        _validator=ArgumentValidator(schema),
    )


def _checked_name(function: Callable[..., Any], name: str | None) -> str:
    tool_name = getattr(function, "__name__", None) if name is None else name
    if not isinstance(tool_name, str) or not _TOOL_NAME.fullmatch(tool_name):
        raise ValueError(
            f"a tool's name must be 1 to 64 letters, digits, '_' or '-', not {tool_name!r}; pass name= to function_tool"
        )
    return tool_name


def _checked_effect(tool_name: str, effect: ToolEffect | str | None) -> ToolEffect | None:
    try:
        return None if effect is None else ToolEffect(effect)
    except ValueError:
        effects = ", ".join(repr(known.value) for known in ToolEffect)
        raise ValueError(f"tool {tool_name!r}: effect must be one of {effects}, not {effect!r}") from None


def _only_parameter(function: Callable[..., Any], tool_name: str, contexts: frozenset[str]) -> str:
    names = [name for name in inspect.signature(function).parameters if name not in contexts]
    if len(names) != 1:
        raise TypeError(
            f"tool {tool_name!r}: with parameters=, the function takes one dict of arguments besides the "
            f"ToolCallContext, not {names}"
        )
    parameter = inspect.signature(function).parameters[names[0]]
    if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
        raise TypeError(f"tool {tool_name!r}: parameter {names[0]!r} must be one that can be passed by name")
    return names[0]
