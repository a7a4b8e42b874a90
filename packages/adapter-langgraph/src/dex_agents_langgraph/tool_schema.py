"""The JSON schema of a tool's arguments as a model reads it."""

from __future__ import annotations

import json
from typing import Any

from langchain_core.tools import BaseTool
from pydantic import BaseModel

__all__ = ["tool_schema_text"]


def tool_schema_text(tool: BaseTool) -> str:
    """The schema's text, without injected arguments."""
    schema: Any = tool.tool_call_schema
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        schema = schema.model_json_schema()
    elif not isinstance(schema, dict):
        schema = schema.schema()
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
