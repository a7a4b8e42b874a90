"""A session each Step of which runs in a process of its own, to show that nothing lives outside what is stored."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from dex_agents.testing.session_driver import SessionDriver
from dex_agents.testing.step_program import StepRequest
from dex_flow.kernel import ClaimedAttempt
from dex_flow.testing import ProcessFailedError, ProgramProcesses
from dex_flow.testing.fork_server import ForkServer

__all__ = ["SessionOfStepProcesses", "StepProcess", "cold_step_processes", "forked_step_processes"]

StepProcess: TypeAlias = Callable[[Path, Path], None]
"""Runs a program that calls `run_step_program`, with these two arguments, to its end."""

_TIMEOUT_SECONDS = 300


@contextlib.contextmanager
def forked_step_processes(
    program: Path, environment: Mapping[str, str], *, exit_code: int = 0
) -> Iterator[StepProcess]:
    """Processes that are forked behind the program's imports: as empty as new ones, and there at once.

    Args:
        program: Calls `run_step_program` when it is the main program; its folder is on the import path.
        environment: Variables of the processes.
        exit_code: How they must end; negative for a signal.
    """
    own = {"PYTHONPATH": str(program.parent), **environment}
    with ForkServer([program.stem], own) as server, ProgramProcesses() as processes:

        def run(request: Path, outcome: Path) -> None:
            process = processes.start(program, str(request), str(outcome), fork_server=server, ready_line=None)
            _check_end(process.wait_for_end(timeout=_TIMEOUT_SECONDS), exit_code, process.output)

        yield run


def cold_step_processes(
    program: Path, environment: Mapping[str, str], pythons: Iterable[str], *, exit_code: int = 0
) -> StepProcess:
    """Processes of other Pythons, for other versions of a framework.

    Args:
        program: As in `forked_step_processes`.
        environment: Variables added to those of this process.
        pythons: The executable for each Step, in order.
        exit_code: As in `forked_step_processes`.
    """
    following = iter(pythons)

    def run(request: Path, outcome: Path) -> None:
        ended = subprocess.run(
            [next(following), str(program), str(request), str(outcome)],
            env={**os.environ, **environment},
            timeout=_TIMEOUT_SECONDS,
            check=False,
            capture_output=True,
            text=True,
        )
        _check_end(ended.returncode, exit_code, ended.stdout + ended.stderr)

    return run


def _check_end(code: int, wanted: int, output: str) -> None:
    if code != wanted:
        raise ProcessFailedError(f"the process of a Step ended with {code}, not with {wanted}; it said:\n{output}")


class SessionOfStepProcesses:
    """A session on the kernel alone, whose Steps run elsewhere.

    Args:
        directory: Where requests and outcomes are written.
        run_process: Runs a Step.
        driver: The session.

    Attributes:
        driver: The session: starts it, sends to it, decides.
        step_types: Types of the Steps that ran.
        outcomes: What they gave.
    """

    def __init__(self, directory: Path, run_process: StepProcess, driver: SessionDriver) -> None:
        self.driver = driver
        self.step_types: list[str] = []
        self.outcomes: list[Any] = []
        self._request, self._outcome = directory / "request", directory / "outcome"
        self._run_process = run_process

    def run_steps(self) -> None:
        """Run Steps, one after the other, until the session waits for a person.

        Raises:
            ProcessFailedError: A process ended without an outcome.
        """
        while self.driver.running:
            self._run(next(iter(self.driver.running.values())))

    def _run(self, claim: ClaimedAttempt) -> None:
        request = StepRequest(
            flow_id=self.driver.flow_id,
            step_type=claim.step_type,
            step_execution_id=claim.step_execution_id,
            attempt=claim.attempt,
            snapshot=self.driver.snapshot_of(claim),
        )
        self._request.write_bytes(pickle.dumps(request))
        self._outcome.unlink(missing_ok=True)
        self._run_process(self._request, self._outcome)
        outcome = pickle.loads(self._outcome.read_bytes())
        self.step_types.append(claim.step_type)
        self.outcomes.append(outcome)
        self.driver.succeed(claim, outcome)
