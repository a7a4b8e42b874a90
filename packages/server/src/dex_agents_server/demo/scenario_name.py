"""The names of the scenarios, as the command line takes them."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["ScenarioName"]


class ScenarioName(StrEnum):
    """What the demo shows."""

    REFUND = "refund"  #: workers die around a write that must not run twice
    STEER = "steer"  #: the user changes their mind while a tool runs and an approval waits
    CANCEL = "cancel"  #: the user stops an answer, and a refund that has begun
    QUESTION = "question"  #: a question to the user outlives its worker
    WAIT = "wait"  #: a wait outlives its worker, and ends late rather than never
