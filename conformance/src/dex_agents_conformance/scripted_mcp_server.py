"""The MCP server of a case: a real process whose tools do what the case says."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dex_agents_conformance.scripted_tools import TOOL_LOG, ScriptedQuestion

__all__ = ["ODD_ARGUMENTS", "ScriptedMcpServer", "ScriptedMcpTool"]

_PROGRAM = Path(__file__).with_name("mcp_server_program.py")
_SCHEMA = {"type": "object", "properties": {"value": {"type": "string"}}, "additionalProperties": False}
#: Names that frameworks have parameters of their own under.
ODD_ARGUMENTS = (
    "self",
    "ctx",
    "context",
    "config",
    "run_manager",
    "runtime",
    "state",
    "name",
    "arguments",
    "a b",
    "日本",
)


@dataclass(frozen=True, kw_only=True)
class ScriptedMcpTool:
    """A tool of the server, with one optional text `value`; it returns `<name>:<value>`.

    Attributes:
        name: Its MCP name.
        annotations: Its annotations as the server lists them.
        failure: Text of the `isError` result it returns instead.
        deaths: How many of its runs kill the server behind the effect, before it answers.
        unanswered: How many of its runs the server never answers, behind the effect.
        question: What it asks the user before its effect; the answer takes the place of the value.
        is_listed: Whether the server lists it; it can be called all the same.
        takes_odd_arguments: Whether it takes anything under the names of `ODD_ARGUMENTS`, and returns all it got as
            JSON with sorted keys behind its name.
    """

    name: str
    annotations: Mapping[str, bool] = field(default_factory=dict)
    failure: str | None = None
    deaths: int = 0
    unanswered: int = 0
    question: ScriptedQuestion | None = None
    is_listed: bool = True
    takes_odd_arguments: bool = False

    def _as_json(self) -> dict[str, Any]:
        listed = {
            "name": self.name,
            "description": "Does what its test says.",
            "inputSchema": self._schema,
            "annotations": dict(self.annotations),
        }
        return {
            "listed": listed,
            "failure": self.failure,
            "deaths": self.deaths,
            "unanswered": self.unanswered,
            "question": None if self.question is None else self.question.question,
            "choices": [] if self.question is None else list(self.question.choices),
            "is_listed": self.is_listed,
            "echoes_arguments": self.takes_odd_arguments,
        }

    @property
    def _schema(self) -> dict[str, Any]:
        if not self.takes_odd_arguments:
            return _SCHEMA
        anything = {"description": "Anything."}
        return {"type": "object", "properties": dict.fromkeys(ODD_ARGUMENTS, anything), "required": ["self"]}


@dataclass(frozen=True, kw_only=True)
class ScriptedMcpServer:
    """A server over standard input and output; its tools are offered as `<name>__<tool>`.

    Attributes:
        name: The name it is configured under.
        directory: The case's directory. What its tools really did stands in the log of the case's tools.
    """

    name: str
    directory: Path

    @property
    def command(self) -> str:
        """The program that starts it."""
        return sys.executable

    @property
    def args(self) -> tuple[str, ...]:
        """The program's arguments."""
        return ("-I", "-S", str(_PROGRAM), str(self._listing), str(self.directory / TOOL_LOG))

    @property
    def has_tools(self) -> bool:
        """Whether `set_tools` was called for the case, in any process."""
        return self._listing.exists()

    def set_tools(self, tools: Sequence[ScriptedMcpTool]) -> None:
        """Change what the server lists and does from its next start on."""
        part = self._listing.with_suffix(".part")
        part.write_text(json.dumps([tool._as_json() for tool in tools]))
        part.rename(self._listing)

    @property
    def _listing(self) -> Path:
        return self.directory / f"mcp_{self.name}.json"
