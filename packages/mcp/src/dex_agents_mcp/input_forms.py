"""What a server asks for, asked field by field as questions of the session, and the answers in the server's form.

Pure: a form is stored with the question and taken up again when the answer is there, on whichever worker.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import msgspec
from jsonschema.exceptions import SchemaError, ValidationError  # type: ignore[import-untyped]
from jsonschema.validators import Draft202012Validator  # type: ignore[import-untyped]
from msgspec.structs import replace

from dex_agents import QuestionAnswer, ToolExecutionError, ToolInputRequested

__all__ = ["LEAVE_OUT", "InputForm", "next_question", "unanswerable_request_error", "with_answer"]

LEAVE_OUT = "(leave out)"
DONE = "Done"
CONTINUE = "Continue"
_YES_NO = {"yes": True, "no": False}
_MAX_QUESTION_CHARACTERS = 4_000


class InputForm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requests of a server and what the user has said to them so far.

    Attributes:
        requests: What the server asks for, by its keys.
        responses: The finished answers, by the same keys.
        content: Answered fields of the first request without a finished answer.
        problem: Why the latest answer was not taken.
    """

    requests: dict[str, dict[str, Any]]
    responses: dict[str, dict[str, Any]] = {}
    content: dict[str, Any] = {}
    problem: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether every request has its answer."""
        return self.open_key is None

    @property
    def open_key(self) -> str | None:
        """The request that is being answered."""
        return next((key for key in self.requests if key not in self.responses), None)


def unanswerable_request_error(requests: Mapping[str, Any]) -> ToolExecutionError | None:
    """What to say of requests that no question can carry, such as sampling; None when every one can be asked."""
    for request in requests.values():
        method = request.get("method") if isinstance(request, Mapping) else None
        if method != "elicitation/create" or not isinstance(request.get("params"), Mapping):
            return ToolExecutionError(
                "the MCP server asked for input that this agent session cannot provide yet "
                f"({method if isinstance(method, str) else 'an unreadable request'})"
            )
    return None


def next_question(form: InputForm, continuation: str) -> ToolInputRequested:
    """The question for the first field that has no answer; the form must not be complete.

    Args:
        form: The form.
        continuation: What is stored with the question.
    """
    key = form.open_key
    assert key is not None
    params = form.requests[key]["params"]
    message = str(params.get("message") or "The tool asks for input.")
    if params.get("mode") == "url":
        text = f"{message}\n\nOpen this link, and answer when you are done: {params.get('url')}"
        return _question(form, text, (DONE,), allows_free_text=False, continuation=continuation)
    field = _open_field(form, params)
    if field is None:
        return _question(form, message, (CONTINUE,), allows_free_text=False, continuation=continuation)
    schema = _properties(params)[field]
    described = message
    if _label(schema) or len(_properties(params)) > 1 or "default" in schema:
        described = f"{message}\n\n{_field_text(field, schema)}"
    choices = list(_choices(schema))
    allows_free_text = not choices
    if schema.get("type") == "array" and choices:
        described += "\n\nAnswer with one or more of these, separated by commas: " + ", ".join(choices)
        choices, allows_free_text = [], True
    if field not in _required(params):
        choices.append(LEAVE_OUT)
    return _question(form, described, tuple(choices), allows_free_text=allows_free_text, continuation=continuation)


def with_answer(form: InputForm, answer: QuestionAnswer) -> InputForm:
    """The form after the question of its open field has ended."""
    key = form.open_key
    assert key is not None
    if answer.resolution != "answered":
        action = "decline" if answer.resolution == "declined" else "cancel"
        return _finished(form, key, {"action": action})
    params = form.requests[key]["params"]
    field = None if params.get("mode") == "url" else _open_field(form, params)
    if field is None:
        response: dict[str, Any] = {"action": "accept"}
        return _finished(form, key, response if params.get("mode") == "url" else {**response, "content": {}})
    text = answer.answer or ""
    schema = _properties(params)[field]
    if text == LEAVE_OUT and field not in _required(params):
        content = {**form.content, field: None}
    else:
        try:
            value = _value(schema, text)
        except ValueError as error:
            return replace(form, problem=str(error))
        content = {**form.content, field: value}
    answered = replace(form, content=content, problem=None)
    if _open_field(answered, params) is not None:
        return answered
    given = {name: value for name, value in content.items() if value is not None}
    return _finished(answered, key, {"action": "accept", "content": given})


def _finished(form: InputForm, key: str, response: dict[str, Any]) -> InputForm:
    return replace(form, responses={**form.responses, key: response}, content={}, problem=None)


def _question(
    form: InputForm, text: str, choices: tuple[str, ...], *, allows_free_text: bool, continuation: str
) -> ToolInputRequested:
    if form.problem is not None:
        text = f"The answer was not accepted: {form.problem}\n\n{text}"
    return ToolInputRequested(
        question=text[:_MAX_QUESTION_CHARACTERS],
        choices=choices,
        allows_free_text=allows_free_text,
        continuation=continuation,
    )


def _properties(params: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    schema = params.get("requestedSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping):
        return {}
    return {name: field if isinstance(field, Mapping) else {} for name, field in properties.items()}


def _required(params: Mapping[str, Any]) -> frozenset[str]:
    required = params["requestedSchema"].get("required")
    return frozenset(name for name in required if isinstance(name, str)) if isinstance(required, list) else frozenset()


def _open_field(form: InputForm, params: Mapping[str, Any]) -> str | None:
    return next((name for name in _properties(params) if name not in form.content), None)


def _label(schema: Mapping[str, Any]) -> str:
    texts = [schema.get("title"), schema.get("description")]
    return ": ".join(text for text in texts if isinstance(text, str) and text.strip())


def _field_text(field: str, schema: Mapping[str, Any]) -> str:
    text = _label(schema) or field
    if "default" in schema:
        text += f" (the default is {json.dumps(schema['default'], ensure_ascii=False)})"
    return text


def _choices(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The values that the schema lists, by the words a person chooses."""
    if schema.get("type") == "boolean":
        return dict(_YES_NO)
    if schema.get("type") == "array":
        items = schema.get("items")
        return _choices(items) if isinstance(items, Mapping) else {}
    for keyword in ("oneOf", "anyOf"):
        options = schema.get(keyword)
        if isinstance(options, list) and options and all(isinstance(o, Mapping) and "const" in o for o in options):
            return _by_words([(o.get("title"), o["const"]) for o in options])
    values = schema.get("enum")
    if not isinstance(values, list):
        return {}
    names = schema.get("enumNames")
    titles = names if isinstance(names, list) and len(names) == len(values) else [None] * len(values)
    return _by_words(list(zip(titles, values, strict=True)))


def _by_words(options: list[tuple[Any, Any]]) -> dict[str, Any]:
    words: dict[str, Any] = {}
    for title, value in options:
        plain = value if isinstance(value, str) and value.strip() else json.dumps(value)
        word = title if isinstance(title, str) and title.strip() and title not in words else plain
        words.setdefault(word, value)
    return words


def _value(schema: Mapping[str, Any], text: str) -> Any:
    """The answer as the schema wants it.

    Raises:
        ValueError: It cannot be; says why, for the person who answers again.
    """
    choices = _choices(schema)
    kind = schema.get("type")
    if kind == "array":
        parts = [part.strip() for part in text.split(",") if part.strip()]
        value: Any = [_chosen(choices, part) for part in parts]
    elif choices:
        value = _chosen(choices, text)
    elif kind in ("integer", "number"):
        value = _number(text, is_whole=kind == "integer")
    else:
        value = text
    try:
        Draft202012Validator(dict(schema), format_checker=Draft202012Validator.FORMAT_CHECKER).validate(value)
    except ValidationError as error:
        raise ValueError(str(error.message)[:300]) from error
    except SchemaError:
        return value  # the server wrote a schema that nothing can check; it decides itself
    return value


def _chosen(choices: Mapping[str, Any], text: str) -> Any:
    if not choices:
        return text
    by_lower_case = {word.casefold(): value for word, value in choices.items()}
    if text in choices:
        return choices[text]
    if text.strip().casefold() in by_lower_case:
        return by_lower_case[text.strip().casefold()]
    raise ValueError(f"{text!r} is not one of {', '.join(choices)}")


def _number(text: str, *, is_whole: bool) -> int | float:
    try:
        number = int(text.strip()) if is_whole else float(text.strip())
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a {'whole ' if is_whole else ''}number")
    return number
