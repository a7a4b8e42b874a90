"""What compaction promises: one summary at a time, each covering more, and a turn that goes on when it fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dex_agents.session.outcomes import CompactionSnapshot, ContextSummarized
from dex_agents.session.plan_values import ContextSummary

from .session_call_model import ATTEMPTS, BACKOFFS, RETRY_WINDOW

__all__ = ["AttemptModel", "ContextModel"]


class AttemptModel:
    """The attempts of a Step that calls the model.

    Args:
        clock: Virtual time, microseconds since the epoch.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self.is_retried = False
        self._clock = clock
        self._count = 0
        self._started_at = 0

    def claimed(self, attempt: int) -> None:
        """An attempt begins."""
        if attempt == 1:
            self._count, self._started_at = 0, self._clock()
        self._count += 1
        self.is_retried = False
        assert attempt == self._count <= ATTEMPTS

    def fails(self, *, may_retry: bool, is_lost: bool) -> bool:
        """The running attempt failed; returns whether another one follows."""
        delay = 0 if is_lost or self._count > len(BACKOFFS) else BACKOFFS[self._count - 1]
        is_late = self._clock() + delay - self._started_at > RETRY_WINDOW
        self.is_retried = may_retry and self._count < ATTEMPTS and not is_late
        return self.is_retried

    def is_too_late(self) -> bool:
        """Whether the next attempt begins after the window, so that there is none."""
        return self.is_retried and self._clock() - self._started_at > RETRY_WINDOW


class ContextModel:
    """The summary, and the one that is being written.

    Args:
        clock: Virtual time, microseconds since the epoch.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self.generation = 0
        self.text = ""
        self.last_sequence = 0
        self.through: int | None = None
        self.has_failed = False
        self.attempts = AttemptModel(clock)
        self._finished: dict[str, int] | None = None

    def wanted(self, through: int) -> None:
        """The model step asks for a summary."""
        assert self.through is None
        self.through = through

    def claimed(self, attempt: int, through: int) -> None:
        """An attempt of the summary begins."""
        assert through == self.through, "another summary is written than the model step asked for"
        self.attempts.claimed(attempt)

    def attempt_fails(self, *, may_retry: bool, is_lost: bool) -> None:
        if not self.attempts.fails(may_retry=may_retry, is_lost=is_lost):
            self._fail()

    def _fail(self) -> None:
        self.through, self.has_failed, self.attempts.is_retried = None, True, False

    def summarized(self, outcome: ContextSummarized) -> None:
        """The summary is written."""
        assert self.through is not None
        self.generation, self.text = self.generation + 1, outcome.text
        self.last_sequence, self.through = self.through, None
        self._finished = {"generation": self.generation, "through_sequence": self.last_sequence}

    def turn_ends(self) -> None:
        self.through, self.has_failed, self.attempts.is_retried = None, False, False

    def event(self, event_type: str, attempt: int, payload: dict[str, Any]) -> None:
        """An event about the summary comes."""
        if event_type == "compaction_started":
            assert (attempt, payload) == (1, {"through_sequence": self.through})
        else:
            assert payload == self._finished
            self._finished = None

    def check(self, summary: ContextSummary | None, error: str | None) -> None:
        """What is stored is the summary, and whether the turn knows of a failed one."""
        assert self._finished is None, "compaction_finished did not come"
        if summary is None:
            assert self.generation == 0
        else:
            stored = (summary.generation, summary.text, summary.last_sequence)
            assert stored == (self.generation, self.text, self.last_sequence)
        if error is not None and self.attempts.is_too_late():
            self._fail()
        assert (error is not None) == self.has_failed, f"the turn knows of {error}"

    def check_input(self, snapshot: CompactionSnapshot) -> None:
        """The summary call reads everything after the summary before, up to where it has to."""
        assert self.through is not None
        sequences = [message.sequence for message in snapshot.messages]
        assert sequences == list(range(self.last_sequence + 1, self.through + 1)), "a summary of other messages"
        previous = snapshot.previous_summary
        assert (0 if previous is None else previous.generation) == self.generation
