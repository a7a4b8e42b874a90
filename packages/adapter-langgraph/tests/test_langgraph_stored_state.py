"""Stored states are read strictly: nothing in them is ever executed."""

from __future__ import annotations

import base64
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from dex_agents_langgraph import RefusedStateError
from dex_agents_langgraph.checkpoint_state import CheckpointCodec
from dex_agents_langgraph.private_names import allowed_checkpoint_types


class _Payload:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def _text(kind: str, data: bytes) -> str:
    return json.dumps({"type": kind, "data": base64.b64encode(data).decode()})


def _codec() -> CheckpointCodec:
    return CheckpointCodec(allowed_checkpoint_types([], {}))


@pytest.mark.parametrize("kind", ["pickle", "json", "bytes", "msgpack"])
def test_a_pickled_payload_is_refused_and_runs_nothing(kind: str, tmp_path: Path) -> None:
    trace = tmp_path / "ran"
    with pytest.raises(RefusedStateError):
        _codec().load_value(_text(kind, pickle.dumps(_Payload(f"touch {trace}"))))
    assert not trace.exists()


def test_a_msgpack_extension_that_names_a_foreign_class_is_refused() -> None:
    kind, data = JsonPlusSerializer().dumps_typed({"format": 1, "value": Path("x")})
    assert _codec().load_value(_text(kind, data)) == Path("x")  # on LangGraph's own list of plain values
    forged = data.replace(b"pathlib", b"msgspec")
    assert forged != data
    with pytest.raises(RefusedStateError):
        _codec().load_value(_text(kind, forged))


def test_plain_values_come_back() -> None:
    value = {"todos": ["a", {"done": True}], "count": 3}
    codec = _codec()
    assert codec.load_value(codec.dump_value(value)) == value
