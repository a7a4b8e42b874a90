"""IDs of the session: turns, durable tool call IDs, interrupt IDs and idempotency keys.

A provider's tool call ID is data, not identity: it repeats, is constant, or is blank. The session allocates its own,
unique in the turn; everything a later turn could confuse carries the turn as well.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from urllib.parse import quote

__all__ = ["allocate_tool_call_id", "idempotency_key", "interrupt_id", "question_interrupt_id", "turn_id"]

MAX_LITERAL_ID_CHARACTERS = 200

_LOOKS_ALLOCATED = re.compile(r"call-[0-9]+|.*~[0-9]+|.*-input-[0-9]+", re.DOTALL)
_KEY_SAFE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) not in "%/")
_MAX_SESSION_KEY_CHARACTERS = 128
_MAX_PART_KEY_CHARACTERS = 60


def turn_id(number: int) -> str:
    """The ID of the session's turn `number`, from 1."""
    return f"turn-{number}"


def allocate_tool_call_id(provider_id: str, deferral_order: int, is_taken: Callable[[str], bool]) -> str:
    """The durable ID of a tool call, unique in its turn.

    The provider's ID stays when it is new in the turn and does not look like one this function makes. Otherwise it
    gets the suffix `~<n>`; a blank or over-long one becomes `call-<n>`. `n` is the call's position in the turn from 1,
    and a literal that ends like an allocated ID is always suffixed, so an ID made here never meets a later literal one.

    Args:
        provider_id: What the provider sent.
        deferral_order: The call's position in the turn, from 0.
        is_taken: Whether a call of the turn has this ID.
    """
    number = deferral_order + 1
    if not provider_id.strip() or len(provider_id) > MAX_LITERAL_ID_CHARACTERS:
        return f"call-{number}"
    if _LOOKS_ALLOCATED.fullmatch(provider_id) or is_taken(provider_id):
        return f"{provider_id}~{number}"
    return provider_id


def interrupt_id(turn: str, tool_call_id: str) -> str:
    """The ID of a call's approval or `ask_user` question, and the key of its channel instances."""
    return f"{turn}.{tool_call_id}"


def question_interrupt_id(turn: str, tool_call_id: str, number: int) -> str:
    """The ID of the `number`th question, from 1, that a call's tool asks; no call's own ID can end like it."""
    return f"{turn}.{tool_call_id}-input-{number}"


def idempotency_key(flow_id: str, turn: str, tool_call_id: str) -> str:
    """`<session>/<turn>/<call>`: the same on every attempt of a call, different for every call of every session.

    Each part is printable ASCII with `%` and `/` percent-encoded, so that the parts cannot run into each other; a part
    too long for common key limits is `%h` and its SHA-256, which no encoded part can be. At most 255 characters.
    """
    session = _key_part(flow_id, _MAX_SESSION_KEY_CHARACTERS)
    return f"{session}/{_key_part(turn, _MAX_PART_KEY_CHARACTERS)}/{_key_part(tool_call_id, _MAX_PART_KEY_CHARACTERS)}"


def _key_part(text: str, limit: int) -> str:
    encoded = quote(text, safe=_KEY_SAFE)
    if len(encoded) <= limit:
        return encoded
    return f"%h{hashlib.sha256(text.encode()).hexdigest()[: _MAX_PART_KEY_CHARACTERS - 2]}"
