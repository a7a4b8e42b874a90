"""`python -m dex_agents_conformance`: what it runs, prints, writes and returns."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dex_agents_conformance import AdapterConformance, Capability, ConversationScript, unsupported
from dex_agents_conformance.__main__ import main
from dex_agents_conformance.adapter_loading import AdapterNotFoundError, load_adapter, resolve_adapter_name
from dex_agents_conformance.report import CaseResult, ConformanceReport, read_report
from dex_agents_conformance.report_table import MissingTablePlaceError, render_table, update_readme

ROOT = Path(__file__).resolve().parents[2]
BROKEN = """\
from packages.stepwise.tests.conformance_adapter import Adapter as Stepwise
from dex_agents_conformance import unsupported


class Adapter(Stepwise):
    capabilities = frozenset()

    @unsupported("it cannot speak")
    def test_a_turn_completes_with_the_models_text(self): ...
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dex_agents_conformance", *arguments, "-n", "0"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)


@pytest.mark.processes
def test_a_short_name_runs_the_workspaces_adapter_and_writes_a_report(tmp_path: Path) -> None:
    report_file, readme = tmp_path / "reports" / "stepwise.json", tmp_path / "README.md"
    readme.write_text("before\n<!-- conformance: begin -->\nold\n<!-- conformance: end -->\nafter\n")
    finished = run("stepwise", "--report", str(report_file), "--readme", str(readme), "-k", "later_turns")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    report = read_report(report_file)
    assert (report.adapter, report.engine, report.framework) == ("stepwise", "embedded", "")
    assert report.capabilities == tuple(sorted(capability.value for capability in Capability))
    assert report.count("failed") == 0
    assert "turns.later_turns_see_earlier_ones" in [case.id for case in report.cases]
    assert "0 failed" in finished.stdout.splitlines()[-1]
    assert readme.read_text().startswith("before\n<!-- conformance: begin -->\n2 cases passed")
    assert "old" not in readme.read_text()


@pytest.mark.processes
def test_failures_and_unsupported_cases_are_in_the_report_with_their_reasons(tmp_path: Path) -> None:
    adapter = tmp_path / "conformance_adapter.py"
    adapter.write_text(BROKEN)
    finished = run(
        f"{adapter}:Adapter", "--report", str(tmp_path / "r.json"), "-k", "completes_with or declared or deltas"
    )
    assert finished.returncode == 1
    cases = {case.id: case for case in read_report(tmp_path / "r.json").cases}
    undeclared = cases["determinism.declared_capabilities_are_those_of_the_runner"]
    assert undeclared.status == "failed"
    assert "declare it" in undeclared.reason, "the assertion explains itself"
    assert cases["streaming.F24_text_deltas_add_up_to_the_stored_text"].reason == "streaming is not declared"
    passing = cases["turns.a_turn_completes_with_the_models_text"]
    assert passing.status == "failed", "a case that is marked unsupported and passes fails"


def test_an_adapter_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-adapter"]) == 2
    assert "no adapter 'no-such-adapter'" in capsys.readouterr().err
    assert main(["no_such_module:Adapter"]) == 2
    assert "no module 'no_such_module'" in capsys.readouterr().err
    assert main(["json:JSONDecoder"]) == 2
    assert "no subclass of AdapterConformance" in capsys.readouterr().err


def test_names_of_adapters() -> None:
    assert resolve_adapter_name("module:Class") == "module:Class"
    assert resolve_adapter_name("stepwise").endswith("packages/stepwise/tests/conformance_adapter.py:Adapter")
    with pytest.raises(AdapterNotFoundError, match="short name"):
        resolve_adapter_name("nothing")
    with pytest.raises(AdapterNotFoundError, match="no class 'Nothing'"):
        load_adapter(resolve_adapter_name("stepwise").replace(":Adapter", ":Nothing"))


def test_an_overridden_case_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="overrides a case of the suite"):

        class Silent(AdapterConformance):
            def test_a_turn_completes_with_the_models_text(self, tmp_path: Path) -> None:
                """Passes, whatever the adapter does."""


def test_an_unsupported_case_must_exist_and_say_why() -> None:
    with pytest.raises(TypeError, match="no such case"):

        class Wrong(AdapterConformance):
            @unsupported("it is another one")
            def test_no_such_case(self) -> None: ...

    with pytest.raises(ValueError, match="say why"):
        unsupported(" ")


def test_an_unsupported_case_is_expected_to_fail_strictly() -> None:
    class Honest(AdapterConformance):
        @unsupported("it cannot speak")
        def test_a_turn_completes_with_the_models_text(self) -> None: ...

    (mark,) = Honest.test_a_turn_completes_with_the_models_text.pytestmark  # type: ignore[attr-defined]
    assert (mark.name, mark.kwargs) == ("xfail", {"reason": "it cannot speak", "strict": True})


def test_an_adapter_must_make_a_flow(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="make_flow or make_runner"):
        AdapterConformance().make_flow(ConversationScript(directory=tmp_path, replies={}))


def test_the_table_names_every_unsupported_case_with_its_reason(tmp_path: Path) -> None:
    report = ConformanceReport(
        adapter="mine",
        framework="my-framework",
        framework_version="1.2.3",
        engine="embedded",
        capabilities=("streaming",),
        cases=(
            CaseResult(id="tool_results.one", status="passed"),
            CaseResult(id="turns.two", status="unsupported", reason="it cannot"),
            CaseResult(id="turns.three", status="unsupported", reason="it cannot"),
        ),
    )
    assert render_table(report).splitlines() == [
        "1 cases passed, 2 unsupported, 0 failed (my-framework 1.2.3, embedded engine).",
        "",
        "Capabilities: `streaming`.",
        "",
        "| Group | Passed | Unsupported | Failed |",
        "| --- | --- | --- | --- |",
        "| tool results | 1 | 0 | 0 |",
        "| turns | 0 | 2 | 0 |",
        "",
        "Unsupported:",
        "",
        "- it cannot: `turns.two`, `turns.three`",
    ]
    readme = tmp_path / "README.md"
    readme.write_text("no marks")
    with pytest.raises(MissingTablePlaceError, match="conformance: begin"):
        update_readme(readme, report)
