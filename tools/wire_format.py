"""Writes the generated tables of docs/wire-*.md from the code: `uv run python -m tools.wire_format`."""

from __future__ import annotations

import enum
import inspect
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from dex_agents.session import (
    event_values,
    message_values,
    outcomes,
    plan_values,
    rpc_values,
    rpcs,
    texts,
    tool_values,
    transition_rules,
    values,
)
from dex_agents.session.built_in_tools import BUILT_IN_TOOL_DEFINITIONS
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.persistence import session_declarations
from dex_agents.session.session_flow import build_agent_session_flow
from dex_flow import ActivityStep, AttributeMap, ChannelMap, Step

_DOCUMENTATION = Path(__file__).resolve().parents[1] / "docs"
PAGES = (_DOCUMENTATION / "wire-format.md", _DOCUMENTATION / "wire-values.md")
VALUE_MODULES = (values, message_values, tool_values, rpc_values, event_values, plan_values, outcomes)
_MAP_KEYS = {
    "AgentMessages": "sequence",
    "AgentMessageChunks": "first sequence",
    "AgentToolCalls": "tool call ID",
    "InterruptResolutions": "interrupt ID",
    "PlanExecutions": "plan revision",
    "ToolCallCancellations": "interrupt ID",
}
_SECTION = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def stored_structs() -> Iterator[type[msgspec.Struct]]:
    """Every struct that is stored or sent, in module order."""
    for module in VALUE_MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, type) and issubclass(value, msgspec.Struct):
                yield value


def stored_enums() -> Iterator[type[enum.Enum]]:
    """Every enumeration that is stored or sent."""
    for module in VALUE_MODULES:
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, type) and issubclass(value, enum.Enum):
                yield value


def render_values() -> str:
    """A table per struct, with types, defaults and meanings."""
    lines = []
    for struct in stored_structs():
        meanings = _attribute_meanings(struct)
        tag = struct.__struct_config__.tag
        tagged = "" if tag is None else f" Tagged `{struct.__struct_config__.tag_field}` = `{tag}`."
        lines += [f"**`{struct.__name__}`**: {_first_paragraph(struct)}{tagged}", ""]
        fields = msgspec.structs.fields(struct)
        if not fields:
            continue
        lines += ["| Field | Type | Default | Meaning |", "|---|---|---|---|"]
        lines += [
            f"| `{field.encode_name}` | {_type_name(field.type)} | {_default(field)} | {meanings.get(field.name, '')} |"
            for field in fields
        ]
        lines.append("")
    return "\n".join(lines)


def render_enums() -> str:
    """Enumerations and their values."""
    lines = ["| Type | Values |", "|---|---|"]
    lines += [f"| `{kind.__name__}` | {', '.join(f'`{m.value}`' for m in kind)} |" for kind in stored_enums()]
    return "\n".join([*lines, ""])


def render_persistence() -> str:
    """Durable names."""
    lines = ["| Persistence name | Kind | Value |", "|---|---|---|"]
    for declaration in session_declarations(1):
        kind = type(declaration).__name__
        key = f", key = {_MAP_KEYS[declaration.name]}" if isinstance(declaration, (AttributeMap, ChannelMap)) else ""
        lines.append(f"| `{declaration.name}` | {kind}{key} | {_type_name(declaration.value_type)} |")
    return "\n".join([*lines, ""])


def render_rpcs() -> str:
    """RPCs."""
    lines = ["| RPC | Input | Output | Read-only |", "|---|---|---|---|"]
    lines += [
        f"| `{rpc.name}` | {_type_name(rpc.input_type)} | {_type_name(rpc.output_type)} | "
        f"{'yes' if rpc.read_only else 'no'} |"
        for rpc in rpcs.SESSION_RPCS
    ]
    return "\n".join([*lines, ""])


def render_steps() -> str:
    """Step types with their attempt rules and where they go."""
    lines = ["| Step type | Kind | Input | Goes to | Attempts | Failure route |", "|---|---|---|---|---|---|"]
    for step in _session_steps():
        options = step.options
        kind = "ActivityStep" if isinstance(step, ActivityStep) else "InlineStep"
        targets = ", ".join(f"`{target}`" for target in step.next_steps or ()) or "dead end"
        attempts = "" if options.retry.attempts is None else str(options.retry.attempts)
        if options.retry.window is not None:
            attempts += f" within {options.retry.window.total_seconds() / 60:g} min"
        if options.attempt_timeout is not None:
            attempts += f", {options.attempt_timeout.total_seconds():g} s each"
        routes = transition_rules.FAILURE_ROUTES.get(step.step_type, ())
        route = " or ".join(f"`{target}`" for target in routes)
        lines.append(
            f"| `{step.step_type}` | {kind} | {_type_name(step.input_type)} | {targets} | {attempts} | {route} |"
        )
    return "\n".join([*lines, ""])


def _session_steps() -> Iterator[Step[Any]]:
    runner: Any = object()  # the definition only hands it on
    flow = build_agent_session_flow(
        "Any",
        build_user_message=lambda text: values.FrameworkMessage(role="user", text=text, framework_item="{}"),
        model_execution=runner,
        tool_execution=runner,
        unfinished_turn_execution=runner,
        compaction_execution=runner,
        tool_task_poll_execution=runner,
        tool_task_cancel_execution=runner,
        options=AgentSessionOptions(),
    )
    yield from flow.steps.values()


def render_texts() -> str:
    """Texts the model sees; those of functions with `{name}` for every argument."""
    lines = ["| Name | Text |", "|---|---|"]
    for name in texts.__all__:
        value = getattr(texts, name)
        if callable(value):
            parameters = inspect.signature(value).parameters
            name, value = f"{name}({', '.join(parameters)})", value(*(f"{{{parameter}}}" for parameter in parameters))
        lines.append(f"| `{name}` | {value.strip()} |")
    return "\n".join([*lines, ""])


def render_status_moves() -> str:
    """Record statuses and where a record may go from each."""
    lines = ["| From | To |", "|---|---|"]
    for status, targets in transition_rules.ALLOWED_STATUS_MOVES.items():
        ordered = [target for target in tool_values.AgentToolCallRecordStatus if target in targets]
        moves = ", ".join(f"`{target.value}`" for target in ordered) or "nowhere: it is final"
        lines.append(f"| `{status.value}` | {moves} |")
    return "\n".join([*lines, ""])


def render_turn_endings() -> str:
    """How turns end and which Steps may end them so."""
    lines = ["| A turn ends with | Only in |", "|---|---|"]
    for event, step_types in transition_rules.TURN_ENDINGS.items():
        lines.append(f"| `{event}` | {', '.join(f'`{step_type}`' for step_type in step_types)} |")
    return "\n".join([*lines, ""])


def render_built_in_tools() -> str:
    """Built-in tools with what the model reads about them."""
    lines = ["| Built-in tool | Argument | What the model reads |", "|---|---|---|"]
    for tool in BUILT_IN_TOOL_DEFINITIONS.values():
        lines.append(f"| `{tool.name}` | | {tool.description} |")
        required = tool.parameters["required"]
        for name, schema in tool.parameters["properties"].items():
            optional = "" if name in required else " (optional)"
            lines.append(f"| | `{name}`{optional} | {schema['description']} |")
    return "\n".join([*lines, ""])


RENDERERS = {
    "status_moves": render_status_moves,
    "turn_endings": render_turn_endings,
    "built_in_tools": render_built_in_tools,
    "steps": render_steps,
    "texts": render_texts,
    "values": render_values,
    "enumerations": render_enums,
    "persistence": render_persistence,
    "rpcs": render_rpcs,
}


def render_page(text: str) -> str:
    """The page with its generated sections replaced."""
    return _SECTION.sub(lambda match: f"{match[1]}\n{RENDERERS[match[2]]()}\n{match[3]}", text)


def _first_paragraph(struct: type) -> str:
    return " ".join(inspect.cleandoc(struct.__doc__ or "").split("\n\n")[0].split())


def _attribute_meanings(struct: type) -> dict[str, str]:
    meanings: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        documentation = inspect.cleandoc(base.__doc__ or "") if issubclass(base, msgspec.Struct) else ""
        _, _, section = documentation.partition("Attributes:\n")
        name = ""
        for line in section.splitlines():
            if match := re.match(r"    (\w+): (.*)", line):
                name = match[1]
                meanings[name] = match[2]
            elif line.startswith("        ") and name:
                meanings[name] += f" {line.strip()}"
            elif line.strip():
                break
    return {name: meaning.replace("|", "\\|") for name, meaning in meanings.items()}


def _default(field: Any) -> str:
    if field.required:
        return "required"
    value = field.default_factory() if field.default is msgspec.NODEFAULT else field.default
    return f"`{msgspec.json.encode(value).decode()}`"


def _type_name(annotation: Any) -> str:
    return f"`{_plain_type_name(annotation)}`"


def _plain_type_name(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if annotation is type(None) or annotation is None:
        return "null"
    if origin in (types.UnionType, typing.Union):
        return " or ".join(_plain_type_name(argument) for argument in arguments)
    if origin is typing.Literal:
        return " or ".join(str(argument) for argument in arguments)
    if origin in (tuple, list):
        return f"{_plain_type_name(arguments[0])}[]"
    if origin is dict:
        return f"object of {_plain_type_name(arguments[1])}"
    names = {str: "text", int: "integer", float: "number", bool: "boolean", typing.Any: "any JSON"}
    if annotation in names:
        return names[annotation]
    name: str = getattr(annotation, "__name__", str(annotation))
    return {"datetime": "time"}.get(name, name)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(render_page(page.read_text(encoding="utf-8")), encoding="utf-8")
