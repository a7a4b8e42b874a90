"""How every test process starts, and how property tests search: new examples in every local run, the same in CI."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

# Containers often forbid bytecode; then each of the hundreds of processes that the tests start compiles everything
# that it imports, and pytest rewrites every module's assertions again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

import pytest  # noqa: E402 -- what these import is to be cached too
from hypothesis import settings  # noqa: E402

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


# Nothing that collection makes is garbage before the last test, and there is much of it: every framework's modules. The
# garbage collector would walk over all of it again and again.
gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage as ever from here on, in what the tests make."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """`-n auto`: three for two processors, because a third of the time of a test is waiting for other processes."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    processors = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, processors * 3 // 2)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A process without tests takes some from the one that has most left, so that all end together."""
    from xdist.scheduler import WorkStealingScheduling  # type: ignore[import-untyped]

    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None
