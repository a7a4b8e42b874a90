"""Checks of option values that name the option and what it must be."""

from __future__ import annotations

from datetime import timedelta

__all__ = ["LONGEST_DURATION", "check_bool", "check_duration", "check_ratio", "check_whole_number"]

# Now and this is still a date of the calendar; beyond it, the commit that adds them could never succeed.
LONGEST_DURATION = timedelta(days=365_000)


def check_whole_number(name: str, value: object, least: int, most: int | None = None) -> None:
    """A whole number from `least` to `most`.

    Raises:
        TypeError: It is no whole number.
        ValueError: It is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be a whole number, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    if most is not None and value > most:
        raise ValueError(f"{name} must be at most {most}, not {value}")


def check_duration(name: str, value: object, least: timedelta) -> None:
    """A `datetime.timedelta` of at least `least`.

    Raises:
        TypeError: It is no timedelta.
        ValueError: It is too short or too long.
    """
    if not isinstance(value, timedelta):
        raise TypeError(f"{name} must be a datetime.timedelta, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    if value > LONGEST_DURATION:
        raise ValueError(f"{name} must be at most {LONGEST_DURATION}, not {value}")


def check_ratio(name: str, value: object) -> None:
    """A number above 0 and at most 1.

    Raises:
        TypeError: It is no number.
        ValueError: It is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number, not {value!r}")
    if not 0 < value <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, not {value}")


def check_bool(name: str, value: object) -> None:
    """True or False.

    Raises:
        TypeError: It is something else.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be a bool, not {value!r}")
