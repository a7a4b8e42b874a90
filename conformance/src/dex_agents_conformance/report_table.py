"""The table in an adapter's README, made from its report."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from dex_agents_conformance.report import CaseResult, ConformanceReport

__all__ = ["MissingTablePlaceError", "render_table", "update_readme"]

_BEGIN = "<!-- conformance: begin -->"
_END = "<!-- conformance: end -->"


class MissingTablePlaceError(Exception):
    """The README does not say where the table goes."""


def render_table(report: ConformanceReport) -> str:
    """The report as Markdown: a row for each group, and every unsupported case with its reason."""
    framework = f"{report.framework} {report.framework_version}".strip()
    subject = f"{framework}, {report.engine} engine" if framework else f"{report.engine} engine"
    lines = [
        f"{report.count('passed')} cases passed, {report.count('unsupported')} unsupported, "
        f"{report.count('failed')} failed ({subject}).",
        "",
        f"Capabilities: {', '.join(f'`{capability}`' for capability in report.capabilities) or 'none'}.",
        "",
        "| Group | Passed | Unsupported | Failed |",
        "| --- | --- | --- | --- |",
    ]
    groups: dict[str, Counter[str]] = {}
    for result in report.cases:
        groups.setdefault(_group(result), Counter())[result.status] += 1
    for group, counts in sorted(groups.items()):
        lines.append(
            f"| {group.replace('_', ' ')} | {counts['passed']} | {counts['unsupported']} | {counts['failed']} |"
        )
    for status, title in (("unsupported", "Unsupported"), ("failed", "Failed")):
        found = [result for result in report.cases if result.status == status]
        if found:
            lines += ["", f"{title}:", "", *_by_reason(found)]
    return "\n".join(lines) + "\n"


def update_readme(readme: Path, report: ConformanceReport) -> None:
    """Put the table between the README's two marks.

    Raises:
        MissingTablePlaceError: They are not there.
    """
    text = readme.read_text()
    begin, end = text.find(_BEGIN), text.find(_END)
    if begin < 0 or end < begin:
        raise MissingTablePlaceError(f"{readme} needs a line {_BEGIN} and, behind it, a line {_END}")
    readme.write_text(f"{text[: begin + len(_BEGIN)]}\n{render_table(report)}{text[end:]}")


def _group(result: CaseResult) -> str:
    return result.id.partition(".")[0]


def _by_reason(results: list[CaseResult]) -> list[str]:
    by_reason: dict[str, list[str]] = {}
    for result in results:
        first_line = result.reason.strip().partition("\n")[0]
        by_reason.setdefault(first_line, []).append(f"`{result.id}`")
    return [f"- {reason}: {', '.join(ids)}" for reason, ids in by_reason.items()]
