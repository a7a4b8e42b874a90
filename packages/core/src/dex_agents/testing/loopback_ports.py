"""Free ports for servers that a test starts."""

from __future__ import annotations

import contextlib
import socket

__all__ = ["find_free_loopback_ports"]


def find_free_loopback_ports(count: int) -> tuple[int, ...]:
    """Distinct TCP ports that are free on 127.0.0.1.

    All are held until the last one is found, so no two are equal. They are free when this returns; another program may
    take one before the test does, so let a server choose its port itself (port 0) where it can.

    Raises:
        ValueError: `count` is less than 1.
    """
    if count < 1:
        raise ValueError(f"count must be at least 1, not {count}")
    with contextlib.ExitStack() as held:
        listeners = [held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return tuple(int(listener.getsockname()[1]) for listener in listeners)
