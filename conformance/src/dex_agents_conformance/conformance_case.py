"""How a case is declared, collected, run and refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import pytest

from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.capabilities import Capability
from dex_agents_conformance.case_run import CaseRun, open_case_run
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conversation_script import ConversationScript

__all__ = ["CaseMethod", "case", "is_case", "refuse_overridden_cases", "script_of_case", "unsupported"]

CaseBody: TypeAlias = Callable[[Any, CaseRun], Awaitable[None]]
ScriptFactory: TypeAlias = Callable[[CaseSetup], ConversationScript]
CaseMethod: TypeAlias = Callable[..., None]
Method = TypeVar("Method", bound=Callable[..., Any])

_CASE = "_conformance_case"
_UNSUPPORTED = "_conformance_unsupported"


@dataclass(frozen=True)
class _Unsupported:
    reason: str
    parameters: tuple[str, ...]


def case(
    script: ScriptFactory,
    *,
    capability: Capability | None = None,
    parameters: Sequence[str] = (),
    runs_worker: bool = True,
) -> Callable[[CaseBody], CaseMethod]:
    """Make a pytest test of a case's body.

    Args:
        script: Builds the script; a function of a module, since worker processes build it again.
        capability: What the adapter must declare for the case to run.
        parameters: One test for each, read as `run.parameter`.
        runs_worker: Whether the test's own process runs Steps.
    """

    def declare(body: CaseBody) -> CaseMethod:
        def run_case(self: AdapterDescription, tmp_path: Path, parameter: str = "") -> None:
            if capability is not None:
                self.require(capability)
            setup = CaseSetup(directory=tmp_path, parameter=parameter)

            async def run_body() -> None:
                async with open_case_run(self, run_case.__name__, setup, script, runs_worker=runs_worker) as run:
                    await body(self, run)

            asyncio.run(run_body())

        def without_parameter(self: AdapterDescription, tmp_path: Path) -> None:
            run_case(self, tmp_path)

        def with_parameter(self: AdapterDescription, tmp_path: Path, parameter: str) -> None:
            run_case(self, tmp_path, parameter)

        test: CaseMethod = without_parameter
        if parameters:
            test = pytest.mark.parametrize("parameter", list(parameters))(with_parameter)
        if not runs_worker:
            test = pytest.mark.conformance_processes(test)
        for function in (run_case, test):
            function.__name__ = body.__name__
            function.__qualname__ = body.__qualname__
            function.__doc__ = body.__doc__
            function.__module__ = body.__module__
        setattr(test, _CASE, script)
        return test

    return declare


def is_case(function: Callable[..., Any]) -> bool:
    """Whether a test function is a case of the suite."""
    return hasattr(function, _CASE)


def script_of_case(adapter: type[AdapterDescription], name: str) -> ScriptFactory:
    """What builds a case's script.

    Raises:
        LookupError: There is no case of this name.
    """
    script = getattr(getattr(adapter, name, None), _CASE, None)
    if script is None:
        raise LookupError(f"{adapter.__name__} has no case {name}")
    return cast("ScriptFactory", script)


def unsupported(reason: str, *, parameters: Sequence[str] = ()) -> Callable[[Method], Method]:
    """Mark an overridden case: the adapter cannot pass it, and says why.

    The body is never called; the suite's own case runs, and passing it fails the test, so that the mark goes away with
    its reason.

    Args:
        reason: For the report and the adapter's README.
        parameters: Only these parameters of the case.

    Raises:
        ValueError: The reason is blank.
    """
    if not reason.strip():
        raise ValueError("say why the case is unsupported")

    def mark(method: Method) -> Method:
        setattr(method, _UNSUPPORTED, _Unsupported(reason, tuple(parameters)))
        return method

    return mark


def refuse_overridden_cases(adapter: type[AdapterDescription]) -> None:
    """Put the suite's case back in place of every `@unsupported` override; refuse any other override.

    Raises:
        TypeError: A case is overridden, so nobody would know what the adapter passes.
    """
    for name, method in list(vars(adapter).items()):
        inherited = next((vars(base)[name] for base in adapter.__mro__[1:] if name in vars(base)), None)
        if not hasattr(inherited, _CASE):
            if hasattr(method, _UNSUPPORTED):
                raise TypeError(f"{adapter.__name__}.{name} is @unsupported, but the suite has no such case")
            continue
        declared = getattr(method, _UNSUPPORTED, None)
        if declared is None:
            raise TypeError(
                f"{adapter.__name__}.{name} overrides a case of the suite; mark it with @unsupported(reason) instead"
            )
        setattr(adapter, name, _expected_to_fail(inherited, declared))


def _expected_to_fail(inherited: Any, declared: _Unsupported) -> CaseMethod:
    def without_parameter(self: AdapterDescription, tmp_path: Path) -> None:
        inherited(self, tmp_path)

    def with_parameter(self: AdapterDescription, tmp_path: Path, parameter: str) -> None:
        inherited(self, tmp_path, parameter)

    mark = pytest.mark.xfail(reason=declared.reason, strict=True)
    values = _parameters(inherited)
    test: CaseMethod
    if not values:
        test = mark(without_parameter)
    else:
        if missing := set(declared.parameters) - set(values):
            raise TypeError(f"{inherited.__name__} has no parameters {', '.join(sorted(missing))}")
        chosen = declared.parameters or values
        marked = [pytest.param(value, marks=mark if value in chosen else (), id=value) for value in values]
        test = pytest.mark.parametrize("parameter", marked)(with_parameter)
    test.__name__ = inherited.__name__
    test.__qualname__ = inherited.__qualname__
    test.__doc__ = inherited.__doc__
    test.__module__ = inherited.__module__
    setattr(test, _CASE, getattr(inherited, _CASE))
    return test


def _parameters(method: Any) -> list[str]:
    for mark in getattr(method, "pytestmark", ()):
        if mark.name == "parametrize":
            return [value if isinstance(value, str) else value.values[0] for value in mark.args[1]]
    return []
