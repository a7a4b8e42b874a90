"""The two kinds of Step: bookkeeping without I/O (`InlineStep`), and I/O between two commits (`ActivityStep`)."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, get_args, get_origin

import msgspec

from dex_flow.decisions import Decision
from dex_flow.options import StepOptions
from dex_flow.waits import Wait

if TYPE_CHECKING:
    from dex_flow.declarations import Stream
    from dex_flow.transaction import StateView, Transaction

__all__ = [
    "Activity",
    "ActivityStep",
    "AttemptFailure",
    "AttemptProgress",
    "InlineStep",
    "Proceed",
    "RecoveryError",
    "Step",
]

Input = TypeVar("Input")
Snapshot = TypeVar("Snapshot")
Outcome = TypeVar("Outcome")


class AttemptProgress(StrEnum):
    """How far a failed Step came."""

    NOT_STARTED = "NOT_STARTED"  #: no attempt ever began: the effect cannot have happened
    NOT_COMPLETED = "NOT_COMPLETED"  #: an attempt began: the effect may have happened


class AttemptFailure(msgspec.Struct, frozen=True, kw_only=True):
    """One failed attempt.

    Attributes:
        error_type: Class name of the exception, or `WorkerLost`, `StepAttemptTimeoutError`, `HeartbeatTimeoutError`.
        message: Its text.
        is_retryable: False ends the Step without further attempts.
        retry_after_seconds: The shortest wait before the next attempt, when the failure names one.
        attempt: Which attempt, from 1.
        next_attempt_at: When the next one begins; None when there is none.
    """

    error_type: str
    message: str
    is_retryable: bool = True
    retry_after_seconds: float | None = None
    attempt: int = 0
    next_attempt_at: datetime | None = None


class RecoveryError(msgspec.Struct, frozen=True, kw_only=True):
    """Why a Step failed for good, as its failure route sees it."""

    error_type: str
    message: str
    attempt_progress: AttemptProgress
    attempts: int
    step_type: str
    step_execution_id: int


class Proceed:
    """`before_run` lets the attempt run."""

    __slots__ = ()


class Activity(Protocol):
    """What a running attempt may do besides its I/O."""

    @property
    def flow_id(self) -> str:
        """The ID of the Flow execution."""
        ...

    @property
    def step_execution_id(self) -> int:
        """The Step execution, the same for every attempt."""
        ...

    @property
    def attempt(self) -> int:
        """From 1."""
        ...

    @property
    def deadline(self) -> datetime | None:
        """When the attempt times out, aware UTC; None without an attempt timeout."""
        ...

    @property
    def heartbeat_checkpoint(self) -> str | None:
        """The text an earlier attempt saved last."""
        ...

    def emit(self, stream: Stream[Any], event: Any) -> None:
        """Append a live event; best effort, never waits, dropped once the attempt is over."""
        ...

    def heartbeat(self) -> None:
        """Say that the attempt lives; never waits."""
        ...

    async def save_heartbeat_checkpoint(self, text: str) -> None:
        """Store `text` durably for the next attempt and heartbeat."""
        ...


def _bound_arguments(cls: type, base: type) -> tuple[Any, ...]:
    """The arguments `cls` binds `base`'s type parameters to, through generic bases between them."""
    bases: tuple[Any, ...] = cls.__dict__.get("__orig_bases__", cls.__bases__)
    for candidate in bases:
        origin = get_origin(candidate) or candidate
        if not isinstance(origin, type) or not issubclass(origin, base):
            continue
        arguments = get_args(candidate)
        if origin is base:
            return arguments
        inherited = _bound_arguments(origin, base)
        parameters = getattr(origin, "__parameters__", ())
        replacements = dict(zip(parameters, arguments, strict=False))
        return tuple(replacements.get(argument, argument) for argument in inherited)
    return ()


class Step(Generic[Input]):
    """Base of both kinds. Subclass `InlineStep` or `ActivityStep`.

    Class attributes:
        step_type: The durable name; the class name unless given.
        options: Attempt rules.
        next_steps: Names of the Step types its decisions may go to; None allows every declared Step.
        input_type: Type of the input: what the class, or the nearest base that does, says in its body; else the type
            argument of its base.
    """

    step_type: ClassVar[str]
    options: StepOptions = StepOptions()
    next_steps: ClassVar[tuple[str, ...] | None] = None
    input_type: ClassVar[Any] = None
    _says_input_type: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "step_type" not in cls.__dict__:
            cls.step_type = cls.__name__
        if "input_type" in cls.__dict__:
            cls._says_input_type = True
        bound = () if cls._says_input_type else _bound_arguments(cls, Step)
        if bound and not isinstance(bound[0], TypeVar):
            cls.input_type = bound[0]

    def wait_for(self, view: StateView, input: Input) -> Wait:
        """What this execution waits for, evaluated once and stored; by default nothing."""
        return Wait.nothing


class InlineStep(Step[Input]):
    """Bookkeeping: pure, no I/O, no clock, no randomness."""

    def execute(self, tx: Transaction, input: Input) -> Decision:
        """Apply the Step and decide what comes next."""
        raise NotImplementedError(f"{type(self).__name__} must define execute")


class ActivityStep(Step[Input], Generic[Input, Snapshot, Outcome]):
    """I/O between two commits: `before_run` in the commit that starts an attempt, `commit` with its outcome."""

    outcome_type: ClassVar[Any] = None
    _says_outcome_type: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "outcome_type" in cls.__dict__:
            cls._says_outcome_type = True
        bound = () if cls._says_outcome_type else _bound_arguments(cls, ActivityStep)
        if bound and not isinstance(bound[2], TypeVar):
            cls.outcome_type = bound[2]

    def before_run(self, tx: Transaction, input: Input) -> Proceed | Decision:
        """Pure code of the commit that starts an attempt; a Decision ends the Step without running it."""
        return Proceed()

    def load(self, view: StateView, input: Input) -> Snapshot:
        """Everything `run` needs, from one consistent read."""
        raise NotImplementedError(f"{type(self).__name__} must define load")

    async def run(self, activity: Activity, snapshot: Snapshot) -> Outcome:
        """The I/O. It has no access to state; cancellation is asyncio cancellation.

        An exception fails the attempt. One with an attribute `is_retryable` that is false ends the Step without another
        attempt, and one with `retry_after_seconds` makes the next attempt wait at least that long.
        """
        raise NotImplementedError(f"{type(self).__name__} must define run")

    def commit(self, tx: Transaction, input: Input, outcome: Outcome) -> Decision:
        """Apply the outcome to the current state. When it raises, it is retried; `run` is not."""
        raise NotImplementedError(f"{type(self).__name__} must define commit")

    def on_attempt_failed(self, tx: Transaction, input: Input, failure: AttemptFailure) -> None:
        """Pure code of a failed attempt that a retry follows."""
