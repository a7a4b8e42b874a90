"""Rules that hold for the whole repository."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAX_LINES = 600
PROJECT_FILES = sorted([*ROOT.glob("packages/*/pyproject.toml"), ROOT / "conformance" / "pyproject.toml"])


def source_files(*suffixes: str) -> list[Path]:
    hidden_or_made = {".venv", ".nox", "dist", "node_modules"}
    found = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(set(folders) - hidden_or_made)
        found += [Path(folder, name) for name in sorted(names) if name.endswith(suffixes)]
    return found


def test_no_source_file_is_longer_than_the_limit() -> None:
    files = source_files(".py", ".md")
    assert files
    too_long = {str(file.relative_to(ROOT)): lines for file in files if (lines := _line_count(file)) > MAX_LINES}
    assert too_long == {}


def _line_count(file: Path) -> int:
    return file.read_text(encoding="utf-8").count("\n")


def test_all_packages_have_one_version_and_the_licence() -> None:
    projects = {file.parent: tomllib.loads(file.read_text(encoding="utf-8"))["project"] for file in PROJECT_FILES}
    assert len({project["version"] for project in projects.values()}) == 1
    assert {project["license"] for project in projects.values()} == {"Apache-2.0"}
    for folder, project in projects.items():
        assert (folder / str(project["readme"])).is_file()
        [package] = [path for path in (folder / "src").iterdir() if path.is_dir() and path.name != "__pycache__"]
        assert (package / "py.typed").is_file()


def test_every_dependency_of_a_package_has_a_lower_bound() -> None:
    for file in PROJECT_FILES:
        for requirement in tomllib.loads(file.read_text(encoding="utf-8"))["project"]["dependencies"]:
            assert requirement.startswith("dex-") or ">=" in requirement, f"{file}: {requirement}"
