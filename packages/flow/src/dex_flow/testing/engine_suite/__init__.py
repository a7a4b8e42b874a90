"""The executable specification of the engine port: a base class of tests that any engine passes.

Needs pytest, which is no dependency of the package itself. Subclass it in a test module:

    class TestMyEngine(EngineSuite):
        def engine_factory(self, tmp_path):
            return lambda *, flows, runs_worker=True: MyEngine(tmp_path / "storage", flows, runs_worker)

Each call of the factory opens another engine on the same storage. Every test is a plain function that runs its own
event loop, so no asyncio plugin is needed. A test that an engine cannot pass may be overridden only with an `xfail`
mark that names the reason.
"""

from __future__ import annotations

from typing import Any

import pytest

_GROUPS = (
    "base",
    "starting",
    "rpcs",
    "reading",
    "waiting",
    "timers",
    "activities",
    "attempt_limits",
    "streams",
    "pure_failures",
    "history",
    "sharing",
)

# Before the groups are imported: only then do their plain asserts report values.
pytest.register_assert_rewrite(*(f"{__name__}.{group}" for group in _GROUPS))

from dex_flow.testing.engine_suite.activities import ActivityTests  # noqa: E402
from dex_flow.testing.engine_suite.attempt_limits import AttemptLimitTests  # noqa: E402
from dex_flow.testing.engine_suite.base import EngineFactory  # noqa: E402
from dex_flow.testing.engine_suite.history import HistoryTests  # noqa: E402
from dex_flow.testing.engine_suite.pure_failures import PureFailureTests  # noqa: E402
from dex_flow.testing.engine_suite.reading import ReadingTests  # noqa: E402
from dex_flow.testing.engine_suite.rpcs import RpcTests  # noqa: E402
from dex_flow.testing.engine_suite.sharing import SharingTests  # noqa: E402
from dex_flow.testing.engine_suite.starting import StartingTests  # noqa: E402
from dex_flow.testing.engine_suite.streams import StreamTests  # noqa: E402
from dex_flow.testing.engine_suite.timers import TimerTests  # noqa: E402
from dex_flow.testing.engine_suite.waiting import WaitingTests  # noqa: E402

__all__ = ("EngineFactory", "EngineSuite")


class EngineSuite(
    StartingTests,
    RpcTests,
    ReadingTests,
    WaitingTests,
    TimerTests,
    ActivityTests,
    AttemptLimitTests,
    StreamTests,
    PureFailureTests,
    HistoryTests,
    SharingTests,
):
    """All groups. Subclass it as `Test...` and define `engine_factory`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, test in cls.__dict__.items():
            if name.startswith("test_") and hasattr(EngineSuite, name):
                marks = getattr(test, "pytestmark", [])
                if not any(mark.name == "xfail" and mark.kwargs.get("reason") for mark in marks):
                    raise TypeError(
                        f"{cls.__name__}.{name} replaces a test of the engine suite; "
                        "mark it with pytest.mark.xfail(reason=...) to say what the engine cannot do"
                    )
