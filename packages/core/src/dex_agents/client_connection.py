"""What every part of the session client does: call an RPC, wait for a state, and say why a wait did not end."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from dex_agents.session.event_values import AgentEvent
from dex_agents.session.persistence import AGENT_EVENTS
from dex_agents.session.rpcs import SEND_USER_MESSAGE
from dex_agents.session_activity import describe_activity
from dex_agents.session_ids import check_request_id, check_session_id
from dex_flow import Engine, Flow, FlowClosedError, Rpc, StateView, Stream

__all__ = ["SessionConnection"]

Value = TypeVar("Value")
Input = TypeVar("Input")
Output = TypeVar("Output")


class SessionConnection:
    """An engine and the Flow whose sessions it runs.

    Args:
        engine: Runs the sessions, or reaches the store they are in.
        flow: What `create_agent_session_flow` or an adapter's factory returned.

    Raises:
        TypeError: The Flow is none of an agent session.
    """

    def __init__(self, engine: Engine, flow: Flow) -> None:
        if not isinstance(flow, Flow) or SEND_USER_MESSAGE.name not in flow.rpcs:
            raise TypeError(f"{flow!r} is not an agent session flow; build one with create_agent_session_flow")
        self._engine = engine
        self._flow = flow
        self._events: Stream[AgentEvent] = flow.streams[AGENT_EVENTS.name]

    async def _call(
        self, session_id: str, rpc: Rpc[Input, Output], input: Input, request_id: str | None = None
    ) -> Output:
        return await self._engine.invoke_rpc(
            self._flow, check_session_id(session_id), rpc, input, request_id=check_request_id(request_id)
        )

    async def _wait_until(
        self, session_id: str, condition: Callable[[StateView], Value | None], timeout: float | None, awaited: str
    ) -> Value:
        try:
            return await self._engine.wait_until(check_session_id(session_id), condition, timeout=timeout)
        except TimeoutError:
            await self._raise_timeout(session_id, timeout, awaited)

    async def _read(self, session_id: str, read: Callable[[StateView], Value]) -> Value:
        """What `read`, which gives neither None nor False, says of the session's committed state."""
        return await self._engine.wait_until(check_session_id(session_id), read, timeout=0)

    async def _raise_timeout(self, session_id: str, timeout: float | None, awaited: str) -> NoReturn:
        activity = await self._read(session_id, describe_activity)
        limit = "in time" if timeout is None else f"within {timeout:g} s"
        raise TimeoutError(f"session {session_id!r} did not reach {awaited} {limit}: {activity}") from None

    async def _check_open(self, session_id: str) -> None:
        """Refuse what a session's last state says when nothing can come of it any more."""
        description = await self._engine.describe_flow(session_id)
        if description.status != "open":
            raise FlowClosedError(session_id, description.status)
