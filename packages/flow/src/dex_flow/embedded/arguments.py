"""Arguments of the engine's methods, checked before anything is done with them."""

from __future__ import annotations

from collections.abc import Sequence

from dex_flow.errors import DefinitionError, InvalidFlowIdError
from dex_flow.flow import Flow

__all__ = ["check_flow_id", "check_flows", "check_one_of", "check_request_id"]

MAX_FLOW_ID_CHARACTERS = 256


def check_flow_id(flow_id: str) -> None:
    """`InvalidFlowIdError` unless it can be stored."""
    if not isinstance(flow_id, str) or not flow_id:
        raise InvalidFlowIdError(f"a flow ID must be non-empty text, not {flow_id!r}")
    if len(flow_id) > MAX_FLOW_ID_CHARACTERS:
        raise InvalidFlowIdError(f"a flow ID has at most {MAX_FLOW_ID_CHARACTERS} characters, this one {len(flow_id)}")
    try:
        flow_id.encode()
    except UnicodeEncodeError:
        raise InvalidFlowIdError(f"flow ID {flow_id!a} is not valid Unicode text") from None


def check_request_id(request_id: str | None) -> None:
    """`ValueError` unless it can be stored; otherwise the commit of other requests would fail with this one's."""
    if request_id is None:
        return
    if not isinstance(request_id, str):
        raise ValueError(f"a request ID must be text or None, not {request_id!r}")
    try:
        request_id.encode()
    except UnicodeEncodeError:
        raise ValueError(f"request ID {request_id!a} is not valid Unicode text") from None


def check_flows(flows: Sequence[Flow]) -> Sequence[Flow]:
    """The same; `DefinitionError` when something in it is no Flow."""
    wrong = [flows] if isinstance(flows, Flow) else [flow for flow in flows if not isinstance(flow, Flow)]
    if wrong:
        raise DefinitionError(f"flows must be a list of Flow definitions, not {wrong[0]!r}")
    return flows


def check_one_of(option: str, value: object, allowed: Sequence[object]) -> None:
    """`ValueError` with what is allowed, for a misspelt choice."""
    if value not in allowed:
        raise ValueError(f"{option} must be one of {', '.join(map(repr, allowed))}, not {value!r}")
