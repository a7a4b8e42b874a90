"""What pure code decides: where the Flow goes next, and which Step executions end with it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dex_flow.options import StepOptions

if TYPE_CHECKING:
    from dex_flow.steps import Step

__all__ = ["Decision", "Movement", "complete", "dead_end", "fail", "go_to", "go_to_many", "move"]

StepReference = "type[Step[Any]] | str"


def step_type_name(step: type[Step[Any]] | str) -> str:
    """The durable name of a Step class, or the name itself."""
    return step if isinstance(step, str) else step.step_type


@dataclass(frozen=True, slots=True)
class Movement:
    """One Step execution to begin."""

    step_type: str
    input: Any = None
    options: StepOptions | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The end of one Step execution and what follows from it.

    Attributes:
        kind: `go_to`, `dead_end`, `complete` or `fail`.
        movements: Step executions to begin, in order.
        cancelled_step_types: Every other open execution of these Step types is cancelled.
        cancelled_step_ids: These open executions are cancelled.
        result: The Flow's result for `complete`.
        reason: Why the Flow failed, for `fail`.
    """

    kind: Literal["go_to", "dead_end", "complete", "fail"]
    movements: tuple[Movement, ...] = ()
    cancelled_step_types: tuple[str, ...] = ()
    cancelled_step_ids: tuple[int, ...] = ()
    result: Any = None
    reason: str = ""

    def cancelling(self, *steps: type[Step[Any]] | str | int) -> Decision:
        """The same decision, which also cancels executions by Step type, type name or execution ID."""
        types = tuple(step_type_name(step) for step in steps if not isinstance(step, int))
        ids = tuple(step for step in steps if isinstance(step, int))
        return replace(
            self,
            cancelled_step_types=self.cancelled_step_types + types,
            cancelled_step_ids=self.cancelled_step_ids + ids,
        )


def move(step: type[Step[Any]] | str, input: Any = None, *, options: StepOptions | None = None) -> Movement:
    """One movement for `go_to_many`."""
    return Movement(step_type_name(step), input, options)


def go_to(step: type[Step[Any]] | str, input: Any = None, *, options: StepOptions | None = None) -> Decision:
    """Begin one execution of `step`; `options` replaces the Step type's options for this execution."""
    return Decision("go_to", (Movement(step_type_name(step), input, options),))


def go_to_many(*movements: Movement) -> Decision:
    """Begin several executions at once, in order."""
    return Decision("go_to", movements)


def dead_end() -> Decision:
    """End this execution; the Flow goes on with its other executions."""
    return Decision("dead_end")


def complete(result: Any = None) -> Decision:
    """Complete the Flow with a result; every other execution is cancelled."""
    return Decision("complete", result=result)


def fail(reason: str) -> Decision:
    """Fail the Flow; every other execution is cancelled."""
    return Decision("fail", reason=reason)
