"""Field scenario of retries (F33): the session alone repeats model calls, as often and as late as the provider says."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from dex_agents_stepwise import ModelRequest, ScriptedModelClient, ScriptedModelReply
from dex_flow import OpenStepDescription
from tests.session_kill.sessions import Sessions
from tests.session_kill.strict_model import StrictModel, open_sessions, say

RESET = "reset"
OK = "200 OK"
WAIT_SECONDS = 60.0


class ProviderError(Exception):
    """What a model client makes of an HTTP status."""

    def __init__(self, status: int, retry_after_seconds: float | None) -> None:
        super().__init__(f"HTTP {status}")
        self.is_retryable = status >= 500 or status == 429
        self.retry_after_seconds = retry_after_seconds


class Provider:
    """A local HTTP provider that gives its answers in turn; an answer is a status line with headers, or `RESET`."""

    def __init__(self, answers: Sequence[str]) -> None:
        self._answers = iter(answers)
        self.requests = 0
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request."""
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1
        answer = next(self._answers)
        if answer == RESET:
            # Half of the promised body, then nothing.
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhel")
        else:
            writer.write(f"HTTP/1.1 {answer}\r\nContent-Length: 5\r\n\r\nhello".encode())
        await writer.drain()
        writer.close()

    async def call(self, request: ModelRequest) -> ScriptedModelReply:
        """One model call over HTTP, without retries of its own."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(b"POST /v1/messages HTTP/1.1\r\nHost: provider\r\n\r\n")
            status_line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
            headers = dict(line.lower().split(": ") for line in lines)
            if " 200 " not in f"{status_line} ":
                retry_after = headers.get("retry-after")
                raise ProviderError(int(status_line.split()[1]), None if retry_after is None else float(retry_after))
            return say((await reader.readexactly(int(headers["content-length"]))).decode())
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


@contextlib.asynccontextmanager
async def provider(answers: Sequence[str]) -> AsyncIterator[Provider]:
    """A provider that is gone at the end."""
    served = Provider(answers)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
        await server.wait_closed()


class Clock:
    """The engine's clock, which a test can put forward."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def __call__(self) -> int:
        return time.time_ns() // 1_000 + self.ahead // timedelta(microseconds=1)


async def waiting_for_retry(sessions: Sessions, attempt: int) -> OpenStepDescription:
    """The `RunModel` Step once this many attempts have failed and another one is due later."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            for step in (await sessions.engine.describe_flow("s")).open_steps:
                if (step.step_type, step.attempt) == ("RunModel", attempt) and step.due is not None:
                    return step
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        (["500 Broken", OK], None),
        (["503 Busy", RESET, OK], None),
        ([RESET, OK], None),
        (["500 Broken"] * 3, "HTTP 500"),
        ([RESET] * 3, "3 bytes read"),
        (["400 Bad request"], "HTTP 400"),
        (["401 Who are you"], "HTTP 401"),
        (["500 Broken", "400 Bad request"], "HTTP 400"),
    ],
    ids=lambda value: "-".join(answer.split()[0] for answer in value) if isinstance(value, list) else "",
)
def test_f33_requests_are_as_many_as_attempts(tmp_path: Path, answers: list[str], error: str | None) -> None:
    """Three attempts at most, and one when the provider says that another cannot help."""

    async def scenario() -> None:
        async with provider([*answers, OK]) as served:
            model = StrictModel(served.call)
            async with open_sessions(tmp_path, model) as sessions:
                await sessions.client.start_session("s", initial_message="hi")
                state = await sessions.idle("s")
                attempts = await sessions.attempts("s", "RunModel")
                assert served.requests == len(attempts) == len(answers)
                assert [number for number, _ in attempts] == list(range(1, len(answers) + 1))
                if error is None:
                    assert state.last_turn_error is None
                    assert await sessions.completed("s") == "hello"
                    assert await sessions.endings("s") == ["turn_completed"]
                else:
                    assert state.last_turn_error is not None
                    assert error in state.last_turn_error.message
                    assert await sessions.endings("s") == ["turn_failed"]
                if error is not None:
                    # A failed attempt counts no usage, and the next turn has attempts of its own.
                    assert await sessions.client.send_user_message("s", "hi again")
                    assert await sessions.completed("s") == "hello"
                    assert ScriptedModelClient.user_texts(model.requests[-1]) == ["hi", "hi again"]
                    assert (await sessions.client.get_agent_snapshot("s")).usage.model_calls == 1

    asyncio.run(scenario())


def test_f33_retry_after_is_waited_for(tmp_path: Path) -> None:
    """The hint beats the backoff, for each attempt again; only the engine's clock moves."""

    async def scenario() -> None:
        clock = Clock()
        answers = ["429 Slow down\r\nRetry-After: 20", "429 Slow down\r\nRetry-After: 300", OK]
        async with provider(answers) as served:
            model = StrictModel(served.call)
            async with open_sessions(tmp_path, model, engine_options={"clock": clock}) as sessions:
                await sessions.client.start_session("s", initial_message="hi")
                for attempt, seconds in ((1, 20), (2, 300)):
                    step = await waiting_for_retry(sessions, attempt)
                    history = await sessions.engine.read_step_history("s")
                    failed = [entry for entry in history if (entry.step_type, entry.method) == ("RunModel", "run")][-1]
                    assert step.due is not None
                    assert step.due - failed.finished_at >= timedelta(seconds=seconds)
                    retrying = [event for event in await sessions.events("s") if event.type == "model_call_retrying"]
                    assert len(retrying) == served.requests == attempt
                    clock.ahead += timedelta(seconds=seconds + 1)
                assert await sessions.completed("s") == "hello"
                assert served.requests == len(await sessions.attempts("s", "RunModel")) == 3

    asyncio.run(scenario())


def test_f33_a_hint_beyond_the_window_ends_the_turn_at_once(tmp_path: Path) -> None:
    """Attempts begin within 30 minutes of the first one's start; waiting longer for none would help nobody."""

    async def scenario() -> None:
        async with provider(["429 Slow down\r\nRetry-After: 7200", OK]) as served:
            model = StrictModel(served.call)
            async with open_sessions(tmp_path, model) as sessions:
                await sessions.client.start_session("s", initial_message="hi")
                state = await sessions.idle("s")
                assert state.last_turn_error is not None
                assert (state.last_turn_error.type, state.last_turn_error.message) == ("ProviderError", "HTTP 429")
                assert served.requests == 1
                assert await sessions.client.send_user_message("s", "hi again")
                assert await sessions.completed("s") == "hello"

    asyncio.run(scenario())
