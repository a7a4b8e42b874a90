"""The CI matrix: lint, types, import contracts, tests per package, Python versions found on the machine."""

from __future__ import annotations

import shutil

import nox

nox.options.default_venv_backend = "uv"
nox.options.sessions = ["lint", "types", "contracts", "tests"]

PACKAGES = ["flow", "core", "stepwise", "server"]
PYTHONS = [version for version in ("3.11", "3.12", "3.13", "3.14") if shutil.which(f"python{version}")]


def _install(session: nox.Session, *extra: str) -> None:
    session.run_install(
        "uv", "sync", "--locked", *extra, env={"UV_PROJECT_ENVIRONMENT": session.virtualenv.location}, silent=True
    )


@nox.session
def lint(session: nox.Session) -> None:
    _install(session)
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")


@nox.session
def types(session: nox.Session) -> None:
    _install(session)
    session.run("mypy", "packages", "bench", "tests", "tools", "conftest.py")


@nox.session
def contracts(session: nox.Session) -> None:
    _install(session)
    session.run("lint-imports")


@nox.session(python=PYTHONS)
@nox.parametrize("package", [*PACKAGES, "workspace"])
def tests(session: nox.Session, package: str) -> None:
    _install(session, "--python", str(session.python))
    folder = "tests" if package == "workspace" else f"packages/{package}/tests"
    session.run("pytest", "-n", "auto", folder, *session.posargs)


@nox.session
def lowest(session: nox.Session) -> None:
    """The tests on the lowest dependency versions the packages allow."""
    packages = [f"./packages/{package}" for package in PACKAGES]
    session.install("--resolution", "lowest-direct", *packages)
    session.install("pytest>=8.3", "pytest-timeout>=2.3", "pytest-xdist>=3.6", "hypothesis>=6.112")
    session.run("pytest", "-n", "auto", *session.posargs)
