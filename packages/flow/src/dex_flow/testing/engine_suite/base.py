"""What every group of engine tests stands on: the engine factory of the adopter, deadlines and polling."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from dex_flow.engine import Engine, FlowDescription, OpenStepDescription
from dex_flow.flow import Flow

__all__ = ["EngineFactory", "EngineSuiteBase", "eventually", "wait_for_end", "wait_for_step"]

Value = TypeVar("Value")

POLL_SECONDS = 0.01


class EngineFactory(Protocol):
    """Opens engines on one storage: every call on the same factory shares it."""

    def __call__(self, *, flows: Sequence[Flow], runs_worker: bool = True) -> AbstractAsyncContextManager[Engine]:
        """An engine to enter; without a worker it is a client only."""
        ...


class EngineSuiteBase:
    """Base of the groups of tests.

    Class attributes:
        deadline_seconds: The longest time one test may take before it fails.
    """

    deadline_seconds: ClassVar[float] = 60.0

    def engine_factory(self, tmp_path: Path) -> EngineFactory:
        """The factory of the engine under test; its storage lives below `tmp_path` and starts empty."""
        raise NotImplementedError(f"{type(self).__name__} must define engine_factory(tmp_path)")

    def play(self, tmp_path: Path, flow: Flow, scenario: Callable[[Engine], Awaitable[None]]) -> None:
        """Run `scenario` on one engine with a worker for `flow`."""

        async def on_one_engine(open_engine: EngineFactory) -> None:
            async with open_engine(flows=[flow]) as engine:
                await scenario(engine)

        self.play_shared(tmp_path, on_one_engine)

    def play_shared(self, tmp_path: Path, scenario: Callable[[EngineFactory], Awaitable[None]]) -> None:
        """Run `scenario` with a factory, for tests of several engines or of reopening."""

        async def within_deadline() -> None:
            async with asyncio.timeout(self.deadline_seconds):
                await scenario(self.engine_factory(tmp_path))

        asyncio.run(within_deadline())


async def eventually(check: Callable[[], Awaitable[Value | None]]) -> Value:
    """Poll `check` until it returns something other than None; the test's deadline ends it."""
    while True:
        value = await check()
        if value is not None:
            return value
        await asyncio.sleep(POLL_SECONDS)


async def wait_for_end(engine: Engine, flow_id: str) -> FlowDescription:
    """The description of the execution once it is no longer open."""

    async def ended() -> FlowDescription | None:
        description = await engine.describe_flow(flow_id)
        return None if description.status == "open" else description

    return await eventually(ended)


async def wait_for_step(engine: Engine, flow_id: str, step_type: str, status: str) -> OpenStepDescription:
    """The first open Step of this type and status, as soon as there is one."""

    async def found() -> OpenStepDescription | None:
        description = await engine.describe_flow(flow_id)
        matching = (step for step in description.open_steps if step.step_type == step_type and step.status == status)
        return next(matching, None)

    return await eventually(found)
