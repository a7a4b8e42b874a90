"""Every Python example in the documentation runs: the fences of one page, in order, as one program."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("packages/*/README.md")])
FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def example_program(page: Path) -> str:
    return "\n".join(FENCE.findall(page.read_text(encoding="utf-8")))


@pytest.mark.processes
@pytest.mark.parametrize(
    "page", [page for page in PAGES if example_program(page)], ids=lambda page: str(page.relative_to(ROOT))
)
def test_examples_run(page: Path, tmp_path: Path) -> None:
    program = tmp_path / "example.py"
    program.write_text(example_program(page), encoding="utf-8")
    finished = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
