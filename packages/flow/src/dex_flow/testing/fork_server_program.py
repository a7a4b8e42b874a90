"""The program of `ForkServer`: imports modules once, then forks a process for every program it is asked to start.

It stays single-threaded and opens no file, database or event loop, so that a fork inherits nothing but imported code.
Between the server and each program stands a process that waits for the program's end: a system call tells the exit
code to the parent alone, and the parent has to be there until somebody has asked for it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import socket
import sys
import threading

__all__: list[str] = []

_MAX_REQUEST_BYTES = 65_536


def _main(control_descriptor: int, modules: list[str]) -> None:
    for module in modules:
        importlib.import_module(module)
    if threading.active_count() != 1:
        raise RuntimeError(f"a fork needs a process without threads; {', '.join(modules)} started some")
    gc.freeze()
    command = _serve(socket.socket(fileno=control_descriptor))
    if command is not None:
        sys.argv = command
        runpy.run_path(command[0], run_name="__main__")


def _serve(control: socket.socket) -> list[str] | None:
    """Answer requests until the test's process is gone; returns a command line in each process that is to run it."""
    with control:
        while True:
            byte, descriptors, _, _ = socket.recv_fds(control, 1, 1)
            _reap_ended()
            if not byte:
                return None
            with socket.socket(fileno=descriptors[0]) as connection:
                if os.fork() == 0:
                    control.close()
                    return _start_and_wait(connection)


def _reap_ended() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _start_and_wait(connection: socket.socket) -> list[str]:
    request, descriptors, _, _ = socket.recv_fds(connection, _MAX_REQUEST_BYTES, 2)
    standard_input, standard_output = descriptors
    process_id = os.fork()
    if process_id == 0:
        connection.close()
        os.setsid()
        for descriptor, standard in ((standard_input, 0), (standard_output, 1), (standard_output, 2)):
            os.dup2(descriptor, standard)
        os.close(standard_input)
        os.close(standard_output)
        command: list[str] = json.loads(request)
        return command
    os.close(standard_input)
    os.close(standard_output)
    connection.sendall(f"{process_id}\n".encode())
    # The ID stays taken until the other side knows of the end, so that a signal never reaches a stranger.
    ended = os.waitid(os.P_PID, process_id, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
    with contextlib.suppress(OSError):  # the test's process is gone
        connection.sendall(f"{code}\n".encode())
        connection.recv(1)
    os.waitpid(process_id, 0)
    os._exit(0)


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
