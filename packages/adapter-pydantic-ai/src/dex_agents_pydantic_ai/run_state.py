"""What a turn must remember between two model steps, besides its stored messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from pydantic import TypeAdapter
from pydantic_ai.usage import RunUsage

from dex_agents_pydantic_ai.framework_messages import FRAMEWORK_VERSION, IncompatibleFrameworkVersionError

__all__ = ["RunState", "decode_run_state", "encode_usage"]

FORMAT_VERSION = 1

_usage_adapter = TypeAdapter(RunUsage)


class RunState(msgspec.Struct, frozen=True, kw_only=True):
    """The run state of a turn.

    Attributes:
        pydantic_ai: The version of the framework that wrote it.
        format_version: Version of this form.
        tool_retries: How often each tool asked for a retry in a row.
        output_retries: How often the output was refused in this turn.
        usage: What the turn used so far, in the framework's own form.
        call_ids: The deferred calls of the latest response, in call order, by their IDs there.
        output_call_ids: Calls of output tools in the latest response, to settle once its other calls are final.
        session_settings: The turn's settings, for tool calls.
    """

    pydantic_ai: str = FRAMEWORK_VERSION
    format_version: int = FORMAT_VERSION
    tool_retries: dict[str, int] = {}
    output_retries: int = 0
    usage: dict[str, Any] | None = None
    call_ids: tuple[str, ...] = ()
    output_call_ids: tuple[str, ...] = ()
    session_settings: dict[str, Any] = {}

    def encode(self) -> str:
        """The opaque text the session stores."""
        return _encoder.encode(self).decode()

    def run_usage(self) -> RunUsage:
        """What the turn used so far, as an object of its own that a run may count on.

        Raises:
            IncompatibleFrameworkVersionError: The installed version cannot read it.
        """
        if self.usage is None:
            return RunUsage()
        try:
            return _usage_adapter.validate_python(self.usage)
        except ValueError as error:
            raise IncompatibleFrameworkVersionError(self.pydantic_ai, str(error)) from error


def encode_usage(usage: RunUsage) -> dict[str, Any]:
    """A run's usage in stored form."""
    stored: dict[str, Any] = _usage_adapter.dump_python(usage, mode="json")
    return stored


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(RunState)


def decode_run_state(text: str | None, session_settings: Mapping[str, Any] | None = None) -> RunState:
    """The run state from its stored text; None is the beginning of a turn.

    Raises:
        IncompatibleFrameworkVersionError: A newer release of this adapter wrote it in another form.
    """
    if text is None:
        return RunState(session_settings=dict(session_settings or {}))
    state = _decoder.decode(text)
    if state.format_version > FORMAT_VERSION:
        raise IncompatibleFrameworkVersionError(
            state.pydantic_ai, f"format {state.format_version} of the run state, newer than {FORMAT_VERSION}"
        )
    return state
