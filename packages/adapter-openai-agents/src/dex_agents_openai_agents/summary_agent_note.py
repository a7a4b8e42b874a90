"""The line of a summary that says which agent the conversation is with, when the messages that said so are gone."""

from __future__ import annotations

import json
import re

from dex_agents.session.texts import NOTE_PREFIX

__all__ = ["agent_of_summary", "with_agent_note", "without_agent_note"]

_BEGIN = f"{NOTE_PREFIX} The conversation is with the agent "
_LINE = re.compile(rf'^{re.escape(_BEGIN)}("(?:[^"\\]|\\.)*")\.$\n?', re.MULTILINE)


def with_agent_note(text: str, agent_name: str | None) -> str:
    """A summary with the line of an agent, and with no other; None adds none."""
    summary = without_agent_note(text)
    return summary if agent_name is None else f"{summary}\n{_BEGIN}{json.dumps(agent_name, ensure_ascii=False)}."


def without_agent_note(text: str) -> str:
    """A summary as a model may read and repeat it."""
    return _LINE.sub("", text).rstrip("\n")


def agent_of_summary(text: str) -> str | None:
    """The agent that a summary names."""
    found = _LINE.findall(text)
    return str(json.loads(found[-1])) if found else None
