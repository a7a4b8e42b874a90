"""How often a turn makes the disk flush: counted in the system calls of a process of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["count_sync_calls_per_turn"]

_SYNC_CALLS = ("fsync", "fdatasync", "sync_file_range", "msync")
_CALL = re.compile(rf"\b(?:{'|'.join(_SYNC_CALLS)})\(")
_TIMEOUT_SECONDS = 60.0


def count_sync_calls_per_turn(fewer_turns: int, more_turns: int) -> float | None:
    """Trace two runs of different length with strace; their difference leaves out opening and closing.

    Returns:
        Calls per turn, or None where there is no strace or it may not trace.
    """
    if not _can_trace():
        return None
    difference = _count_sync_calls(more_turns) - _count_sync_calls(fewer_turns)
    return round(difference / (more_turns - fewer_turns), 2)


def _can_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    # A container may have the program and forbid what it does.
    probe = ["strace", "-f", "-o", os.devnull, sys.executable, "-c", ""]
    return subprocess.run(probe, check=False, capture_output=True, timeout=_TIMEOUT_SECONDS).returncode == 0


def _count_sync_calls(turns: int) -> int:
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        trace = Path(directory) / "trace"
        command = ["strace", "-f", "-qq", "-e", f"trace={','.join(_SYNC_CALLS)}", "-e", "signal=none", "-o", str(trace)]
        command += [sys.executable, "-m", "bench", "run-turns", "--turns", str(turns)]
        root = Path(__file__).resolve().parents[1]
        done = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
        if done.returncode != 0:
            raise RuntimeError(f"the traced run of {turns} turns failed:\n{done.stderr}")
        return len(_CALL.findall(trace.read_text(encoding="utf-8", errors="replace")))
