"""A tool's JSON Schema and argument conversion from a Python signature, through pydantic."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from dex_agents_stepwise.function_docstring import read_function_docstring

__all__ = ["SignatureArguments", "find_annotated_parameters", "read_signature_arguments"]


class _SchemaWithoutGeneratedTitles(GenerateJsonSchema):
    # A default that JSON cannot hold (a sentinel) is simply left out of what the model sees.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@dataclass(frozen=True)
class SignatureArguments:
    """What a signature says about a tool's arguments.

    Attributes:
        schema: JSON Schema of the arguments.
        model: Converts JSON arguments into the annotated Python types; its fields carry the parameters as aliases.
        always_passed: Fields whose default lives in a pydantic `Field(...)`, which the function itself cannot apply.
    """

    schema: dict[str, Any]
    model: type[BaseModel]
    always_passed: frozenset[str]

    def convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments of the function for these JSON values.

        Raises:
            pydantic.ValidationError: A value cannot be converted; locations name the parameters.
        """
        # JSON mode, so that strict annotations accept what JSON can express (a date as text, a set as a list).
        validated = self.model.model_validate_json(json.dumps(arguments))
        passed = validated.model_fields_set | self.always_passed
        return {
            _parameter_name(field): getattr(validated, name)
            for name, field in self.model.model_fields.items()
            if name in passed
        }


def _parameter_name(field: FieldInfo) -> str:
    assert field.alias is not None
    return field.alias


def find_annotated_parameters(function: Callable[..., Any], annotation: Any) -> list[str]:
    """Names of the parameters annotated with `annotation`, also as `annotation | None` or inside `Annotated`.

    Raises:
        TypeError: The annotations cannot be evaluated.
    """
    hints = _evaluated_hints(function)
    return [name for name in inspect.signature(function).parameters if _mentions(hints.get(name), annotation)]


def read_signature_arguments(
    function: Callable[..., Any], tool_name: str, excluded: frozenset[str] = frozenset()
) -> SignatureArguments:
    """Read the JSON Schema and the conversion of every parameter that is not in `excluded`.

    Descriptions come from `Annotated[..., Field(description=...)]`, else from the docstring. A parameter without an
    annotation accepts any JSON value. Arguments that no parameter takes are refused.

    Raises:
        TypeError: A parameter cannot be passed by name, or its type has no JSON Schema; names tool and parameter.
    """
    hints = _evaluated_hints(function)
    descriptions = read_function_docstring(function).parameters
    fields: dict[str, Any] = {}
    always_passed = set()
    for name, parameter in inspect.signature(function).parameters.items():
        if name in excluded:
            continue
        if parameter.kind not in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY):
            raise TypeError(
                f"tool {tool_name!r}: parameter {name!r} is {parameter.kind.description}; a tool's arguments are "
                "passed by name, so give each one a parameter of its own, or pass parameters= and take one dict"
            )
        # Python's own names never clash with a pydantic model's attributes this way; the alias is what JSON uses.
        field_name = f"parameter_{len(fields)}"
        annotation = hints.get(name, Any)
        _check_has_schema(annotation, tool_name, name)
        fields[field_name] = (annotation, _field(parameter, annotation, descriptions.get(name)))
        if isinstance(parameter.default, FieldInfo) and not parameter.default.is_required():
            always_passed.add(field_name)
    model = create_model(f"{tool_name}_arguments", __config__=_MODEL_CONFIG, **fields)
    schema = model.model_json_schema(schema_generator=_SchemaWithoutGeneratedTitles)
    schema.pop("title", None)
    return SignatureArguments(schema, model, frozenset(always_passed))


_MODEL_CONFIG = ConfigDict(extra="forbid", allow_inf_nan=False)


def _field(parameter: inspect.Parameter, annotation: Any, description: str | None) -> FieldInfo:
    name = parameter.name
    settings: dict[str, Any] = {"alias": name, "validation_alias": name, "serialization_alias": name}
    if isinstance(parameter.default, FieldInfo):
        if description and not parameter.default.description:
            settings["description"] = description
        return FieldInfo.merge_field_infos(parameter.default, **settings)
    if description and not FieldInfo.from_annotation(annotation).description:
        settings["description"] = description
    default = ... if parameter.default is inspect.Parameter.empty else parameter.default
    field: FieldInfo = Field(default, **settings)
    return field


def _check_has_schema(annotation: Any, tool_name: str, parameter: str) -> None:
    try:
        create_model("probe", __config__=_MODEL_CONFIG, value=(annotation, ...)).model_json_schema(
            schema_generator=_SchemaWithoutGeneratedTitles
        )
    except (PydanticUserError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise TypeError(
            f"tool {tool_name!r}: the type of parameter {parameter!r} has no JSON Schema ({reason}); annotate it with "
            "a type that JSON can express, or pass parameters="
        ) from error


def _evaluated_hints(function: Callable[..., Any]) -> dict[str, Any]:
    annotated = function if inspect.isroutine(function) else getattr(function, "func", type(function).__call__)
    try:
        return typing.get_type_hints(annotated, include_extras=True)
    except NameError as error:
        name = getattr(function, "__name__", repr(function))
        raise TypeError(
            f"function {name!r}: the annotation names {error.name!r}, which is not visible in its module at run time; "
            "define or import it at module level, outside of 'if TYPE_CHECKING'"
        ) from error


def _mentions(hint: Any, annotation: Any) -> bool:
    return hint is annotation or any(argument is annotation for argument in typing.get_args(hint))
