"""A Flow: the declared Steps, durable names and RPCs of one type of state machine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from dex_flow.decisions import step_type_name
from dex_flow.declarations import Attribute, AttributeMap, Channel, ChannelMap, Declaration, Stream
from dex_flow.errors import DefinitionError, UndeclaredNameError, UnknownRpcError
from dex_flow.rpcs import Rpc
from dex_flow.step_methods import find_step_problem, is_synchronous
from dex_flow.steps import ActivityStep, InlineStep, Step
from dex_flow.stored_types import find_type_problem

__all__ = ["Flow"]


class Flow:
    """The definition of one Flow type; checked as a whole when it is built.

    Args:
        flow_type: Durable name of the type.
        steps: One instance of every Step.
        start_step: The Step class (or its name) that `start_flow` begins with the start input.
        declarations: Every attribute, channel and stream.
        rpcs: Every RPC.
        compatibility: Changes only when stored Flows of an earlier definition can no longer be continued.

    Raises:
        DefinitionError: A duplicate or empty durable name, an unknown target Step, a Step without a method it needs, an
            `async def` where pure code belongs (or none where `run` belongs), or a type that cannot be stored; names
            the culprit.
    """

    def __init__(
        self,
        flow_type: str,
        *,
        steps: Sequence[Step[Any]],
        start_step: type[Step[Any]] | str,
        declarations: Sequence[Declaration[Any]] = (),
        rpcs: Sequence[Rpc[Any, Any]] = (),
        compatibility: int = 1,
    ) -> None:
        if not isinstance(flow_type, str) or not flow_type:
            raise DefinitionError(f"a flow type must be non-empty text, not {flow_type!r}")
        self.flow_type = flow_type
        self.compatibility = compatibility
        self.steps: dict[str, Step[Any]] = {}
        for step in steps:
            self._add_step(step)
        self.declarations: dict[str, Declaration[Any]] = {}
        for declaration in declarations:
            self._add_declaration(declaration)
        self.rpcs: dict[str, Rpc[Any, Any]] = {}
        for rpc in rpcs:
            self._add_rpc(rpc)
        self.start_step = step_type_name(start_step)
        if self.start_step not in self.steps:
            raise DefinitionError(f"flow {flow_type!r}: the start step {self.start_step!r} is not one of its steps")
        self._check_targets()
        self.streams = {name: d for name, d in self.declarations.items() if isinstance(d, Stream)}
        self.fingerprint = self._fingerprint()

    def __repr__(self) -> str:
        return f"Flow({self.flow_type!r})"

    def step(self, step_type: str) -> Step[Any]:
        """The Step with this durable name; `UndeclaredNameError` when there is none."""
        try:
            return self.steps[step_type]
        except KeyError:
            raise UndeclaredNameError(f"flow {self.flow_type!r} has no step {step_type!r}") from None

    def rpc(self, name: str) -> Rpc[Any, Any]:
        """The RPC with this name; `UnknownRpcError` when there is none."""
        try:
            return self.rpcs[name]
        except KeyError:
            raise UnknownRpcError(f"flow {self.flow_type!r} has no RPC {name!r}") from None

    def _add_step(self, step: Step[Any]) -> None:
        if not isinstance(step, (InlineStep, ActivityStep)):
            raise DefinitionError(f"flow {self.flow_type!r}: {step!r} is neither an InlineStep nor an ActivityStep")
        name = step.step_type
        if name in self.steps:
            raise DefinitionError(f"flow {self.flow_type!r}: two steps are named {name!r}")
        problem = find_step_problem(step)
        if problem is not None:
            raise DefinitionError(f"flow {self.flow_type!r}: step {name!r} {problem}")
        self._check_type(f"step {name!r} has an input type", step.input_type)
        if isinstance(step, ActivityStep):
            self._check_type(f"step {name!r} has an outcome type", step.outcome_type)
        self.steps[name] = step

    def _add_declaration(self, declaration: Declaration[Any]) -> None:
        if not isinstance(declaration, (Attribute, AttributeMap, Channel, ChannelMap, Stream)):
            raise DefinitionError(f"flow {self.flow_type!r}: {declaration!r} is not a declaration")
        if declaration.name in self.declarations:
            raise DefinitionError(f"flow {self.flow_type!r}: two declarations are named {declaration.name!r}")
        self._check_type(f"{declaration!r} has a value type", declaration.value_type)
        self.declarations[declaration.name] = declaration

    def _add_rpc(self, rpc: Rpc[Any, Any]) -> None:
        if not isinstance(rpc, Rpc):
            raise DefinitionError(f"flow {self.flow_type!r}: {rpc!r} is not an Rpc")
        if not rpc.name or rpc.name in self.rpcs:
            raise DefinitionError(f"flow {self.flow_type!r}: two RPCs are named {rpc.name!r}, or the name is empty")
        if not callable(rpc.handler):
            raise DefinitionError(f"flow {self.flow_type!r}: the handler of RPC {rpc.name!r} cannot be called")
        if not is_synchronous(rpc.handler):
            raise DefinitionError(
                f"flow {self.flow_type!r}: the handler of RPC {rpc.name!r} must be a plain function; "
                "it is pure and cannot await"
            )
        self._check_type(f"RPC {rpc.name!r} has an input type", rpc.input_type)
        self._check_type(f"RPC {rpc.name!r} has an output type", rpc.output_type)
        self.rpcs[rpc.name] = rpc

    def _check_type(self, what: str, value_type: Any) -> None:
        problem = find_type_problem(value_type)
        if problem is not None:
            raise DefinitionError(f"flow {self.flow_type!r}: {what} that cannot be stored: {value_type!r}: {problem}")

    def _check_targets(self) -> None:
        for name, step in self.steps.items():
            route = step.options.failure_route
            if route is not None and route not in self.steps:
                raise DefinitionError(f"flow {self.flow_type!r}: step {name!r} routes failures to unknown {route!r}")
            if route is not None and self.steps[route].input_type != step.input_type:
                raise DefinitionError(
                    f"flow {self.flow_type!r}: step {name!r} routes failures to {route!r}, "
                    "which takes another input type"
                )
            for target in step.next_steps or ():
                if target not in self.steps:
                    raise DefinitionError(f"flow {self.flow_type!r}: step {name!r} names unknown next step {target!r}")

    def _fingerprint(self) -> str:
        text = f"{self.flow_type}\n{self.compatibility}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]
