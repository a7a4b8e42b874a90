"""What a function's docstring tells the model: the description and one line per parameter."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["FunctionDocstring", "read_function_docstring"]

_ARGUMENT_HEADINGS = frozenset({"args:", "arguments:", "parameters:", "params:"})
_SECTION_HEADING = re.compile(
    r"(args|arguments|attributes|examples?|notes?|other parameters|parameters|params|raises|references|returns?"
    r"|see also|todo|warnings?|warns|yields?):",
    re.IGNORECASE,
)
_NUMPY_UNDERLINE = re.compile(r"-{3,}\s*")
_GOOGLE_ARGUMENT = re.compile(r"\*{0,2}(?P<name>\w+)\s*(\([^)]*\))?\s*:\s*(?P<text>.*)")
_FIELD = re.compile(r":(?P<kind>\w+)(\s+(?P<subject>[^:]*))?:\s*(?P<text>.*)")


@dataclass(frozen=True)
class FunctionDocstring:
    """The parts of a docstring that reach the model.

    Attributes:
        description: Everything before the first section (`Args:`, `Returns:`, `:param x:`, a NumPy heading).
        parameters: Description by parameter name, from an `Args:` section or from `:param name:` fields.
    """

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def read_function_docstring(function: Callable[..., Any]) -> FunctionDocstring:
    """Read the Google or reST style docstring of `function`; empty parts where it has none."""
    lines = (inspect.getdoc(function) or "").splitlines()
    end_of_description = next((index for index in range(len(lines)) if _begins_section(lines, index)), len(lines))
    description = "\n".join(lines[:end_of_description]).strip()
    return FunctionDocstring(description, {**_google_arguments(lines), **_field_arguments(lines)})


def _begins_section(lines: list[str], index: int) -> bool:
    line = lines[index]
    if _SECTION_HEADING.fullmatch(line.rstrip()) or _FIELD.match(line):
        return True
    return bool(line.strip()) and index + 1 < len(lines) and _NUMPY_UNDERLINE.fullmatch(lines[index + 1]) is not None


def _google_arguments(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    inside = False
    argument_indent: int | None = None
    current: list[str] | None = None
    for line in lines:
        indent = len(line) - len(line.lstrip())
        if line.strip() and indent == 0:
            inside = line.strip().lower() in _ARGUMENT_HEADINGS
            argument_indent = current = None
            continue
        if not inside or not line.strip():
            continue
        if argument_indent is None:
            argument_indent = indent
        argument = _GOOGLE_ARGUMENT.fullmatch(line.strip()) if indent == argument_indent else None
        if argument is not None:
            current = found.setdefault(argument["name"], [])
            current.append(argument["text"])
        elif current is not None:
            current.append(line.strip())
    return {name: " ".join(texts).strip() for name, texts in found.items()}


def _field_arguments(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        field_line = _FIELD.match(line)
        if field_line is not None:
            words = (field_line["subject"] or "").split()
            current = None
            if field_line["kind"] in {"param", "parameter", "arg", "argument"} and words:
                current = found.setdefault(words[-1].lstrip("*"), [])
                current.append(field_line["text"])
        elif current is not None and line.strip():
            current.append(line.strip())
    return {name: " ".join(texts).strip() for name, texts in found.items()}
