"""The same commands at the same times give the same rows in every process, whatever its hash seed."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import hashlib

import msgspec

from dex_flow import AttributeMap, Channel, ChannelMap, Flow, InlineStep, Rpc, Wait, dead_end, go_to_many, move
from dex_flow.kernel import InvokeRpc, Kernel, StartFlow
from dex_flow.testing import MemoryStore

names = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
channels = [Channel(name, str) for name in names]
keyed, seen = ChannelMap("keyed", str), AttributeMap("seen", list[str])


class Start(InlineStep[None]):
    def execute(self, tx, input):
        return go_to_many(*(move(Listen, name) for name in names for _ in range(3)))


class Listen(InlineStep[str]):
    def wait_for(self, view, input):
        others = [channel.receive(2) for channel in channels if channel.name != input]
        return Wait.any_of(*others, keyed.receive(input))

    def execute(self, tx, input):
        taken = list(tx.wait_result.received)
        tx.set_instance(seen, f"{input} {tx.step_execution_id}", taken)
        tx.publish_instance(keyed, taken[0], input)
        return dead_end()


def send(tx, text):
    for channel in channels:
        tx.publish(channel, text)
        tx.publish_instance(keyed, channel.name, text)


flow = Flow("F", steps=[Start(), Listen()], start_step=Start, declarations=[*channels, keyed, seen],
            rpcs=[Rpc("send", send, str, None)])
kernel, store = Kernel(flow), MemoryStore()
commands = [StartFlow(b"null", "s1")]
commands += [InvokeRpc("send", msgspec.json.encode(name), name) for name in names]
digest = hashlib.sha256()
for number, command in enumerate(commands):
    changes = kernel.apply(store, "flow", 1_000_000 + number, command).changes
    store.apply(changes)
    digest.update(repr((changes.header, changes.attributes, changes.published, changes.consumed)).encode())
    digest.update(repr((changes.step_bodies, changes.history, changes.next_due)).encode())
assert len(store.history) == 19, store.history
print(digest.hexdigest())
"""


def test_rows_do_not_depend_on_the_hash_seed() -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(digests) == 1
    assert len(digests.pop().strip()) == 64
