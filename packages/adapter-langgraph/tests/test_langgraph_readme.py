"""The examples of the README run, and do what the README says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dex_agents_langgraph.session_flow import create_langgraph_session_flow

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
FENCES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_examples_print_what_the_readme_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "readme_example"}
    for fence in FENCES:
        exec(compile(fence, "README.md", "exec", dont_inherit=True), names)
    assert capsys.readouterr().out == "Your order is refunded.\nYou said yes.\n"


def test_every_argument_of_the_factory_is_documented() -> None:
    arguments = create_langgraph_session_flow.__kwdefaults__ or {}
    table = README[README.index("| Argument |") : README.index("## What of LangChain")]
    assert set(re.findall(r"`(\w+)`", table)) >= set(arguments)
    assert arguments
