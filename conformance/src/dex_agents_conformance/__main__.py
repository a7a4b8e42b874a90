"""`python -m dex_agents_conformance NAME --report FILE`: the suite on one adapter, without a test file."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dex_agents_conformance.adapter_loading import AdapterNotFoundError, load_adapter, resolve_adapter_name
from dex_agents_conformance.report import read_report
from dex_agents_conformance.report_table import MissingTablePlaceError, update_readme

__all__ = ["main"]

_TEST_FILE = """\
from dex_agents_conformance.adapter_loading import load_adapter

TestAdapter = type("TestAdapter", (load_adapter({location!r}),), {{"__module__": __name__}})
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suite on one adapter; the exit code is pytest's, or 2 for an adapter that cannot be found.

    Args:
        arguments: The command line; None takes the process's own.
    """
    parser = argparse.ArgumentParser(
        prog="python -m dex_agents_conformance",
        description="Runs the conformance suite on one adapter for durable agent sessions.",
    )
    parser.add_argument(
        "name", help="module:Class, path/to/file.py:Class, or the short name of a package of this workspace"
    )
    parser.add_argument("--engine", choices=["embedded"], default="embedded", help="which engine runs the sessions")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the results as JSON")
    parser.add_argument("--readme", type=Path, metavar="FILE", help="put the table of the results into this README")
    parser.add_argument("-k", dest="keyword", metavar="EXPRESSION", help="only cases whose names match, as in pytest")
    parser.add_argument(
        "-n", dest="processes", default="auto", metavar="N", help="parallel test processes, with pytest-xdist installed"
    )
    given = parser.parse_args(arguments)
    try:
        location = resolve_adapter_name(given.name)
        load_adapter(location)
    except (AdapterNotFoundError, TypeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="dex-agents-conformance-") as folder:
        report = Path(folder, "report.json") if given.report is None else given.report.resolve()
        options = ["--conformance-name", given.name, "--conformance-report", str(report)]
        if importlib.util.find_spec("xdist") is not None:
            options += ["-n", given.processes]
        if given.keyword is not None:
            options += ["-k", given.keyword]
        code = _run_suite(Path(folder), location, options)
        if not report.is_file():
            return code
        results = read_report(report)
        print(
            f"{results.count('passed')} passed, {results.count('unsupported')} unsupported, "
            f"{results.count('failed')} failed"
        )
        if given.readme is not None:
            try:
                update_readme(given.readme, results)
            except MissingTablePlaceError as error:
                print(f"error: {error}", file=sys.stderr)
                return 2
    return code


def _run_suite(folder: Path, location: str, options: Sequence[str]) -> int:
    test_file = folder / "test_adapter.py"
    test_file.write_text(_TEST_FILE.format(location=location))
    # An empty configuration: whatever the current project demands of its own tests is none of the suite's.
    configuration = folder / "pytest.ini"
    configuration.write_text("[pytest]\n")
    own_options = ["-c", str(configuration), "--rootdir", str(folder), "-p", "no:cacheprovider", "-q"]
    # Not in this process: it has imported the suite, and pytest explains failures only of modules it imports itself.
    command = [sys.executable, "-m", "pytest", *own_options, *options, str(test_file)]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
