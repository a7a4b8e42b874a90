"""docs/write-an-adapter.md, followed by the letter: its files in an empty folder pass the suite."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from dex_agents_conformance.report import read_report

PAGE = Path(__file__).resolve().parents[2] / "docs" / "write-an-adapter.md"
FILE = re.compile(r"^```python file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MOST_LINES = 120


def files_of_the_page() -> dict[str, str]:
    return {name: text for name, text in FILE.findall(PAGE.read_text(encoding="utf-8"))}


def test_the_adapter_has_fewer_than_120_lines() -> None:
    files = files_of_the_page()
    assert set(files) == {"toy_framework.py", "toy_adapter.py", "conformance_adapter.py"}
    lines = [line for name in ("toy_adapter.py", "conformance_adapter.py") for line in files[name].splitlines()]
    assert len([line for line in lines if line.strip()]) < MOST_LINES


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_the_page_leads_to_an_adapter_that_passes(tmp_path: Path) -> None:
    for name, text in files_of_the_page().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "dex_agents_conformance", "conformance_adapter.py:Adapter", "-n", "0"]
    finished = subprocess.run(
        [*command, "--report", "report.json"], cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False
    )
    assert finished.returncode == 0, finished.stdout[-6000:]
    report = read_report(tmp_path / "report.json")
    assert report.count("failed") == 0
    assert report.count("passed") >= 80
