"""A thousand random histories of whole sessions on the kernel: no engine, no event loop, no clock.

`session_machine` plays everybody, `session_oracle` says what has to come of it. CI runs the same histories every time,
a local run new ones. `SESSION_FUZZ_SEED` chooses them and `SESSION_FUZZ_HISTORIES` says how many; `nox -s fuzz` sets
both.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from .session_machine import SessionMachine

CI_SEED = 20_260_101
CI_HISTORIES = 1_024
SHARD_HISTORIES = 128
HISTORIES = int(os.environ.get("SESSION_FUZZ_HISTORIES", CI_HISTORIES))
SHARDS = -(-HISTORIES // SHARD_HISTORIES)

#: What every shard meets many times; histories that do not would prove little.
COMMON = {
    "turn_completed",
    "turn_failed",
    "turn_steered",
    "turn_cancelled",
    "succeeded",
    "failed",
    "rejected",
    "outcome_unknown",
    "interrupt_resolved",
    "tool_task_started",
    "PollToolTask claimed",
    "chunk written",
    "compaction_finished",
    "plan_updated",
}

#: What some shard of some seed may miss; with the seed of CI every shard meets it.
RARE = {"timer_started", "steered: an attempt runs", "chunk deleted", "turn_limit_reached", "arguments changed"}


def base_seed() -> int:
    given = os.environ.get("SESSION_FUZZ_SEED")
    if given is not None:
        return int(given)
    return CI_SEED if os.environ.get("CI") else random.SystemRandom().randrange(10**9)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_the_session_keeps_its_promises_in_every_history(shard: int) -> None:
    base = base_seed()

    class Machine(SessionMachine):
        histories = 0
        reached = Counter()

    try:
        run_state_machine_as_test(
            seed(base * 10_000 + shard)(Machine),
            settings=settings(
                max_examples=SHARD_HISTORIES,
                stateful_step_count=30,
                deadline=None,
                derandomize=False,
                database=None,
                print_blob=False,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
    except BaseException as error:
        error.add_note(f"run it again with SESSION_FUZZ_SEED={base} and `pytest {__file__} -k 'history[{shard}]'`")
        raise
    assert Machine.histories >= SHARD_HISTORIES
    assert Machine.reached.keys() >= (COMMON | RARE if base == CI_SEED else COMMON)


@pytest.mark.skipif("SESSION_FUZZ_HISTORIES" in os.environ, reason="the number of histories was given")
def test_at_least_a_thousand_histories_run() -> None:
    assert SHARDS * SHARD_HISTORIES >= 1_000
