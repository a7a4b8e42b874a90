"""How every test process starts, and how property tests search: new examples in every local run, the same in CI."""

from __future__ import annotations

import os
import sys

# Containers often forbid bytecode; then each of the hundreds of processes that the tests start compiles everything
# that it imports, and pytest rewrites every module's assertions again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

from hypothesis import settings  # noqa: E402 -- what it imports is to be cached too

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")
