"""The CI matrix: lint, types, import contracts, tests per package, Python versions found on the machine."""

from __future__ import annotations

import argparse
import pathlib
import random
import shutil
import time
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv"
nox.options.sessions = ["lint", "types", "contracts", "tests"]

PACKAGES = [
    "flow",
    "core",
    "stepwise",
    "mcp",
    "adapter-openai-agents",
    "adapter-pydantic-ai",
    "adapter-langgraph",
    "server",
]
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
    session.run("mypy", "packages", "conformance", "bench", "tests", "tools", "conftest.py")
    for adapter in sorted(pathlib.Path("packages").glob("adapter-*/tests/conformance_adapter.py")):
        session.run("mypy", str(adapter))


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
def fuzz(session: nox.Session) -> None:
    """Random histories of whole sessions: `nox -s fuzz -- [--histories N] [--minutes M] [--seed S]`.

    Without `--minutes` one round runs; with it, rounds of N histories follow each other, each with the next seed.
    """
    arguments = argparse.ArgumentParser(prog="nox -s fuzz --")
    arguments.add_argument("--histories", type=int, default=20_000, help="histories of one round")
    arguments.add_argument("--minutes", type=float, default=0, help="begin no further round after this time")
    arguments.add_argument("--seed", type=int, default=None, help="the first round's seed; a random one by default")
    given = arguments.parse_args(session.posargs)
    first_seed = random.SystemRandom().randrange(10**9) if given.seed is None else given.seed
    _install(session)
    ends_at = time.monotonic() + given.minutes * 60
    next_seed = first_seed
    while next_seed == first_seed or time.monotonic() < ends_at:
        session.log(f"SESSION_FUZZ_SEED={next_seed} SESSION_FUZZ_HISTORIES={given.histories}")
        chosen = {"SESSION_FUZZ_SEED": str(next_seed), "SESSION_FUZZ_HISTORIES": str(given.histories)}
        module = "packages/core/tests/test_session_state_machine.py"
        session.run("pytest", "-n", "auto", "-q", module, env=chosen)
        next_seed += 1


@nox.session
def packaging(session: nox.Session) -> None:
    """The wheels in an empty environment, outside of this checkout: the suite on Stepwise, and the demo."""
    wheels = Path(session.create_tmp(), "wheels")
    shutil.rmtree(wheels, ignore_errors=True)
    session.run_install("uv", "build", "--all-packages", "--wheel", "--out-dir", str(wheels), external=True)
    adapter = Path("packages/stepwise/tests/conformance_adapter.py").resolve()
    built = sorted(str(wheel.resolve()) for wheel in wheels.glob("*.whl"))
    if len(built) != len(PACKAGES) + 1:
        session.error(f"{len(PACKAGES) + 1} wheels should have been built, not {built}")
    session.install(*built, "pytest-xdist>=3.6")
    elsewhere = Path(session.create_tmp(), "elsewhere").resolve()
    shutil.rmtree(elsewhere, ignore_errors=True)
    elsewhere.mkdir()
    shutil.copy(adapter, elsewhere)
    with session.chdir(elsewhere):
        session.run("python", "-m", "dex_agents_conformance", "conformance_adapter.py:Adapter", *session.posargs)
        session.run("dex-agents", "demo", "--json")


# What an adapter's tests need: its own extras, what is resolved together with it, and what only stands beside it.
ADAPTER_EXTRAS = {"langgraph": "[langchain]"}
ADAPTER_REQUIREMENTS = {"pydantic-ai": ["pydantic-ai-slim[anthropic,mcp,openai]"]}
# Older versions do not say that they cannot work with releases that came after them.
OLDER_VERSIONS_REQUIREMENTS = {"pydantic-ai": ["anthropic<1", "mcp<2"]}
ADAPTER_PEERS = {"langgraph": ["langgraph-checkpoint-sqlite>=3.0"]}
# These need newer versions of the framework than the lowest ones.
NEWEST_PEERS = {"langgraph": ["deepagents>=0.5", "langchain-anthropic>=1.0", "langchain-openai>=1.0"]}
# A framework's versions between the lowest and the newest one where something changed that an adapter's tests know of.
MIDDLE_VERSIONS = {"pydantic-ai": ["pydantic-ai-slim==1.107.*", "pydantic-ai-slim==2.0.0"]}
ADAPTER_VERSIONS = [
    (adapter, versions)
    for adapter in ("openai-agents", "pydantic-ai", "langgraph")
    for versions in ("lowest-direct", *MIDDLE_VERSIONS.get(adapter, ()), "highest")
]


@nox.session
@nox.parametrize(("adapter", "versions"), ADAPTER_VERSIONS)
def adapters(session: nox.Session, adapter: str, versions: str) -> None:
    """An adapter's tests on the lowest and the newest versions of its framework, and on named ones between them.

    The run with the newest ones also hops between processes with both.
    """
    packages = ("flow", "core", f"adapter-{adapter}{ADAPTER_EXTRAS.get(adapter, '')}")
    installed = [*(f"./packages/{package}" for package in packages), *ADAPTER_REQUIREMENTS.get(adapter, ())]
    kit = ["./packages/mcp", "./conformance"]
    tools = [*kit, "pytest>=8.3", "pytest-timeout>=2.3", "pytest-xdist>=3.6", "hypothesis>=6.112"]
    resolution = "lowest-direct" if versions == "lowest-direct" else "highest"
    chosen = [versions] if "==" in versions else []
    if versions != "highest":
        chosen += OLDER_VERSIONS_REQUIREMENTS.get(adapter, ())
    session.install("--resolution", resolution, *installed, *chosen)
    tools += ADAPTER_PEERS.get(adapter, ())
    if versions == "highest":
        tools += NEWEST_PEERS.get(adapter, ())
    session.install(*tools)
    environment = {}
    if versions == "highest":
        lowest = Path(session.create_tmp(), "lowest").resolve()
        session.run_install("uv", "venv", "--clear", str(lowest), external=True)
        python = str(lowest / "bin" / "python")
        lowest_direct = ("--python", python, "--resolution", "lowest-direct")
        session.run_install("uv", "pip", "install", *lowest_direct, *installed, external=True)
        environment[f"DEX_{adapter.upper().replace('-', '_')}_OTHER_PYTHON"] = python
    session.run("pytest", "-n", "auto", f"packages/adapter-{adapter}/tests", *session.posargs, env=environment)


@nox.session
def long(session: nox.Session) -> None:
    """One session of 2,000 turns, with times: for a machine that does nothing else meanwhile."""
    _install(session)
    session.run("pytest", "-s", "tests/long_sessions", *session.posargs, env={"LONG_SESSION_TURNS": "2000"})


@nox.session
def lowest(session: nox.Session) -> None:
    """The tests on the lowest dependency versions the packages allow."""
    packages = [f"./packages/{package}" for package in PACKAGES]
    session.install("--resolution", "lowest-direct", *packages)
    session.install("pytest>=8.3", "pytest-timeout>=2.3", "pytest-xdist>=3.6", "hypothesis>=6.112")
    session.run("pytest", "-n", "auto", *session.posargs)
