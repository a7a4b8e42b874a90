"""The check of arguments, a model's or a person's, against a tool's JSON Schema, in words the model can act on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import referencing
from jsonschema.exceptions import ValidationError as SchemaViolation  # type: ignore[import-untyped]
from jsonschema.validators import Draft202012Validator, extend, validator_for  # type: ignore[import-untyped]

from dex_agents.session.sanitizer import is_deeper_than

__all__ = ["MAX_DEPTH", "NESTED_TOO_DEEPLY", "ArgumentValidator", "argument_path", "first_problems"]

MAX_DEPTH = 50
MAX_PROBLEMS = 5
MAX_SHOWN_VALUE = 80
ROOT = "arguments"
NESTED_TOO_DEEPLY = f"{ROOT}: nested too deeply"


class ArgumentValidator:
    """Checks arguments against one JSON Schema.

    `enum` compares with Python's `==`, so that `true` matches `1`; everything else follows the schema's own draft.

    Args:
        schema: A valid JSON Schema.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        draft = validator_for(schema, default=Draft202012Validator)
        # An empty registry: validating must never fetch a remote schema.
        self._validator = extend(draft, {"enum": _python_enum})(schema, registry=referencing.Registry())

    def problems(self, arguments: Mapping[str, Any]) -> list[str]:
        """What is wrong with `arguments`, each line naming the path; empty when nothing is.

        The first few problems in a stable order; a long list would bury them.
        """
        # The validator recurses, and the compiled code below it turns an exhausted stack into a panic.
        if is_deeper_than(arguments, MAX_DEPTH):
            return [NESTED_TOO_DEEPLY]
        violations = sorted(
            self._validator.iter_errors(dict(arguments)),
            key=lambda violation: (argument_path(violation.absolute_path), str(violation.validator)),
        )
        return first_problems(_violation_text(violation) for violation in violations)


def first_problems(problems: Iterable[str]) -> list[str]:
    """The first few different problems, and how many more there are."""
    listed = list(dict.fromkeys(problems))
    if len(listed) <= MAX_PROBLEMS:
        return listed
    return [*listed[:MAX_PROBLEMS], f"and {len(listed) - MAX_PROBLEMS} more"]


def argument_path(parts: Iterable[str | int]) -> str:
    """Where in the arguments a problem is, such as `order.lines[2].sku`."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or ROOT


def _violation_text(violation: Any) -> str:
    keyword, expected = violation.validator, violation.validator_value
    path = argument_path(violation.absolute_path)
    if keyword == "type":
        types = [expected] if isinstance(expected, str) else list(expected)
        return f"{path}: {_shown(violation.instance)} is not of type {' or '.join(types)}"
    if keyword == "enum":
        return f"{path}: {_shown(violation.instance)} is not one of {_shown(list(expected))}"
    if keyword in {"anyOf", "oneOf"} and violation.context:
        # The branch that got furthest says what the model most likely meant.
        deepest = max(violation.context, key=lambda branch: len(branch.absolute_path))
        if len(deepest.absolute_path) > len(violation.absolute_path):
            return _violation_text(deepest)
        alternatives = dict.fromkeys(_violation_text(branch).removeprefix(f"{path}: ") for branch in violation.context)
        return f"{path}: {'; '.join(alternatives)}"
    if keyword in {"required", "additionalProperties", "dependentRequired", "unevaluatedProperties"}:
        return f"{path}: {_shortened(violation.message)}"
    if len(violation.message) <= 2 * MAX_SHOWN_VALUE:
        return f"{path}: {violation.message}"
    return f"{path}: {_shown(violation.instance)} does not satisfy {keyword} {_shown(expected)}"


def _shown(value: Any) -> str:
    return _shortened(repr(value))


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_SHOWN_VALUE else f"{text[: MAX_SHOWN_VALUE - 3]}..."


def _python_enum(validator: Any, allowed: list[Any], instance: Any, schema: Any) -> Iterator[Any]:
    if instance not in allowed:
        yield SchemaViolation(f"{instance!r} is not one of {allowed!r}")
