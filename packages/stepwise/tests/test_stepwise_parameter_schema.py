"""Schemas from signatures, and checks of schemas that are given."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError

from dex_agents.session.argument_validation import ArgumentValidator
from dex_agents_stepwise.argument_validation import conversion_problems
from dex_agents_stepwise.function_docstring import read_function_docstring
from dex_agents_stepwise.function_signature import read_signature_arguments
from dex_agents_stepwise.parameter_schema import checked_parameter_schema


class Item(BaseModel):
    sku: str
    count: int = Field(default=1, ge=1)


SENTINEL: Any = object()


def place_order(
    schema: int,
    when: datetime.datetime,
    items: list[Item],
    *,
    kind: Literal["gift", "own"] = "own",
    copy: str | None = None,
    weight: Annotated[float, Field(description="In kilograms", gt=0)] = 1.0,
    retries: int = Field(default=3, description="How often"),
    extra: Any = SENTINEL,
) -> dict[str, Any]:
    """Place an order.

    It is confirmed by mail.

    Args:
        schema: The price list
            to use.
        when (datetime): Delivery time.
        weight: Ignored, since the annotation describes it.

    Returns:
        The order.
    """
    return {"schema": schema, "when": when, "items": items, "retries": retries, "extra": extra, "kind": kind}


def test_schema_of_a_signature() -> None:
    signature = read_signature_arguments(place_order, "place_order")

    properties = signature.schema["properties"]
    assert list(properties) == ["schema", "when", "items", "kind", "copy", "weight", "retries", "extra"]
    assert signature.schema["required"] == ["schema", "when", "items"]
    assert signature.schema["additionalProperties"] is False
    assert properties["schema"] == {"type": "integer", "description": "The price list to use."}
    assert properties["when"]["description"] == "Delivery time."
    assert properties["weight"]["description"] == "In kilograms"
    assert properties["retries"] == {"type": "integer", "default": 3, "description": "How often"}
    assert properties["extra"] == {}
    checked_parameter_schema("place_order", signature.schema)


def test_arguments_become_python_types_and_keep_the_functions_defaults() -> None:
    signature = read_signature_arguments(place_order, "place_order")

    arguments = signature.convert({"schema": 1, "when": "2026-01-02T03:04:05Z", "items": [{"sku": "a"}]})

    assert arguments["when"] == datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    assert arguments["items"] == [Item(sku="a")]
    assert set(arguments) == {"schema", "when", "items", "retries"}  # a Field(...) default cannot apply itself
    result = place_order(**arguments)
    assert result["extra"] is SENTINEL
    assert result["retries"] == 3


def test_conversion_problems_name_the_path() -> None:
    signature = read_signature_arguments(place_order, "place_order")
    with pytest.raises(ValidationError) as raised:
        signature.convert({"schema": 1, "when": "2026-01-02T99:00:00Z", "items": [{"sku": "a", "count": 0}]})

    problems = conversion_problems(raised.value)
    assert problems[0].startswith("when: ")
    assert problems[1].startswith("items[0].count: ")


def test_docstring_styles() -> None:
    def rest(order_id: int) -> None:
        """Refund an order.

        :param int order_id: The order
            to refund.
        :returns: nothing
        """

    def numpy(order_id: int) -> None:
        """Refund an order.

        Parameters
        ----------
        order_id : int
            Left out.
        """

    def plain() -> None:
        """Note: this colon is text, and so is a URL like https://example.com."""

    def bare() -> None:
        pass

    assert read_function_docstring(rest).description == "Refund an order."
    assert read_function_docstring(rest).parameters == {"order_id": "The order to refund."}
    assert read_function_docstring(numpy).description == "Refund an order."
    assert read_function_docstring(plain).description.startswith("Note: this colon")
    assert read_function_docstring(bare).description == ""


class NotJson:
    pass


def test_signatures_that_cannot_be_tools_name_tool_and_parameter() -> None:
    def variadic(*orders: int) -> None: ...
    def named(**orders: int) -> None: ...
    def positional(order: int, /) -> None: ...
    def untyped(order: NotJson) -> None: ...

    for function in (variadic, named, positional, untyped):
        with pytest.raises(TypeError, match=r"tool 'refund': .*'orders?'"):
            read_signature_arguments(function, "refund")


def test_annotations_that_are_not_visible_are_named() -> None:
    namespace: dict[str, Any] = {}
    exec("from __future__ import annotations\ndef refund(order: Missing): ...", namespace)
    with pytest.raises(TypeError, match=r"'refund'.*'Missing'"):
        read_signature_arguments(namespace["refund"], "refund")


def test_a_given_schema_gets_the_object_type_and_is_a_copy() -> None:
    given_schema = {"properties": {"a": {"type": "string"}}}
    checked = checked_parameter_schema("tool", given_schema)
    assert checked == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert "type" not in given_schema


@pytest.mark.parametrize(
    ("schema", "error"),
    [
        ({"type": "array"}, "type 'object'"),
        ({"properties": {"a": {"type": "text"}}}, "not a valid JSON Schema"),
        ({"properties": {"a": {"$ref": "https://example.com/schema"}}}, "https://example.com/schema"),
        ({"properties": {"a": {"$ref": "#/$defs/Missing"}}}, "#/$defs/Missing"),
        ({"properties": {"a": {"pattern": "("}}}, "not a valid JSON Schema|bad pattern"),
    ],
)
def test_wrong_schemas_are_refused_by_name(schema: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=rf"tool 'refund': .*({error.replace('$', '[$]')})"):
        checked_parameter_schema("refund", schema)


@pytest.mark.parametrize("schema", [[], "text", {"default": object()}, {"default": float("nan")}])
def test_schemas_that_are_not_json_are_refused(schema: Any) -> None:
    with pytest.raises(TypeError, match="tool 'refund': parameters"):
        checked_parameter_schema("refund", schema)


def test_references_and_data_that_look_like_keywords_are_fine() -> None:
    schema = {
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
        "properties": {
            "node": {"$ref": "#/$defs/Node"},
            "pattern": {"type": "string", "enum": ["("], "default": "("},
            "$ref": {"type": "string", "const": {"$ref": "https://example.com"}},
        },
    }
    validator = ArgumentValidator(checked_parameter_schema("tool", schema))
    assert validator.problems({"node": {"next": {"next": {}}}, "pattern": "("}) == []
    assert validator.problems({"node": {"next": {"next": 1}}}) == ["node.next.next: 1 is not of type object"]
