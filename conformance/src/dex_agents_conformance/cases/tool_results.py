"""What tools return, how they fail, and what the model reads of it."""

from __future__ import annotations

from dex_agents import ToolEffect
from dex_agents.session.texts import OUTCOME_UNKNOWN_TOOL_RESULT
from dex_agents.testing import poll_until
from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.capabilities import Capability
from dex_agents_conformance.case_run import CaseRun
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conformance_case import case
from dex_agents_conformance.conversation_script import ConversationScript, calls, say
from dex_agents_conformance.result_values import RESULT_VALUES

__all__ = ["ToolResultCases"]


def _one_call(setup: CaseSetup, **options: object) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "work", '{"value": "7"}')), say("done")], "next": [say("still here")]},
        tools=[setup.tool("work", **options)],
    )


def _returned_value(setup: CaseSetup) -> ConversationScript:
    return _one_call(setup, make_result=RESULT_VALUES[setup.parameter])


def _failing(setup: CaseSetup) -> ConversationScript:
    return _one_call(setup, failure="order 7 is closed", effect=ToolEffect(setup.parameter))


def _broken_once(setup: CaseSetup) -> ConversationScript:
    return _one_call(setup, broken_runs=1, effect=ToolEffect(setup.parameter))


def _always_broken(setup: CaseSetup) -> ConversationScript:
    return _one_call(setup, broken_runs=100)


def _blocking(setup: CaseSetup) -> ConversationScript:
    return _one_call(setup, is_blocking=True, echoes_value=True)


def _blocking_failure(setup: CaseSetup) -> ConversationScript:
    return _one_call(setup, is_blocking=True, failure="order 7 is closed")


def _parallel(setup: CaseSetup) -> ConversationScript:
    asked = [(f"c{number}", "work", f'{{"value": "{number}"}}') for number in (1, 2, 3)]
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c0", "slow"), *asked), say("done")], "next": [say("still here")]},
        tools=[setup.tool("slow", returns="slow", gate="slow"), setup.tool("work", echoes_value=True)],
    )


def _mixed(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "good"), ("c2", "bad"), ("c3", "good")), say("done")]},
        tools=[setup.tool("good", returns="fine"), setup.tool("bad", failure="order 7 is closed")],
    )


def _same_call_twice(setup: CaseSetup) -> ConversationScript:
    same = '{"value": "7"}'
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "work", same), ("c2", "work", same)), calls(("c3", "work", same)), say("done")]},
        tools=[setup.tool("work", effect=ToolEffect.IDEMPOTENT_WRITE)],
    )


def _large_result(setup: CaseSetup) -> ConversationScript:
    script = _one_call(setup, returns="ü" * 2_000)
    options = {"max_tool_result_bytes": 1_024, "tool_result_overflow": setup.parameter}
    return ConversationScript(
        directory=script.directory, replies=script.replies, tools=script.tools, session_options=options
    )


_REPEATED_IDS = {
    "same_id_in_one_reply": (["call", "call"], ["c3"], ["c4"]),
    "same_id_in_the_next_reply": (["call", "c2"], ["call"], ["c4"]),
    "same_id_in_a_later_turn": (["call", "c2"], ["c3"], ["call"]),
    "blank_ids": (["", ""], [""], [""]),
    "ids_like_paths": (["a/b", "a:b"], ["../a"], ["a b"]),
    "long_ids": (["x" * 400, "y" * 400], ["z" * 400], ["w" * 400]),
}


def _repeated_ids(setup: CaseSetup) -> ConversationScript:
    first, second, third = _REPEATED_IDS[setup.parameter]

    def asked(ids: list[str], start: int) -> list[tuple[str, str, str]]:
        return [(tool_call_id, "work", f'{{"value": "{start + offset}"}}') for offset, tool_call_id in enumerate(ids)]

    return ConversationScript(
        directory=setup.directory,
        replies={
            "go": [calls(*asked(first, 1)), calls(*asked(second, 3)), say("done")],
            "next": [calls(*asked(third, 4)), say("done again")],
        },
        tools=[setup.tool("work", echoes_value=True, effect=ToolEffect.NON_IDEMPOTENT_WRITE)],
    )


class ToolResultCases(AdapterDescription):
    """Every call has one result, in its place, in the framework's own words."""

    @case(_returned_value, parameters=tuple(RESULT_VALUES))
    async def test_F17_a_returned_value_reads_as_in_the_framework(self, run: CaseRun) -> None:
        """The model reads what it would read without a session; a value without a text fails the call, once."""
        result = await run.run_turn("go")
        assert result.status == "completed", f"the turn is {result.status}: {result.error}"
        assert run.effects == {"work": 1}, "[a-result-never-repeats-its-tool]"
        seen = run.results_seen[0]
        assert run.parameter in self.result_texts, (
            f"result_texts of {type(self).__name__} does not say what the model reads of {run.parameter!r}; "
            f"it reads {seen!r}"
        )
        wanted = self.result_texts[run.parameter]
        if wanted is None:
            assert await run.statuses() == [("work", "failed")]
        else:
            assert seen == wanted, f"[result-text-is-the-frameworks] {run.parameter}"

    @case(_failing, parameters=("read", "idempotent_write", "non_idempotent_write"))
    async def test_a_failure_for_the_model_is_recorded_and_not_repeated(self, run: CaseRun) -> None:
        """The tool fails once, whatever its effect; the model reads why, in the framework's words."""
        await run.answer_of("go")
        assert run.effects == {"work": 1}, "[a-failure-for-the-model-is-final]"
        assert await run.statuses() == [("work", "failed")], "[failure-is-recorded]"
        assert run.results_seen == [self.failure_text.format(failure="order 7 is closed")], "[failure-text]"

    @case(_broken_once, parameters=("read", "idempotent_write"))
    async def test_F21_a_broken_run_is_repeated_with_the_same_key(self, run: CaseRun) -> None:
        """An exception is no answer: the tool runs again, with the same idempotency key."""
        await run.answer_of("go")
        assert run.effects == {"work": 2}
        assert run.idempotency_keys[0] == run.idempotency_keys[1], "[idempotency-key-is-the-same-on-every-attempt]"
        assert await run.statuses() == [("work", "succeeded")]
        assert run.results_seen == ["done"]

    @case(_broken_once, parameters=("non_idempotent_write", "unclassified"))
    async def test_F21_a_broken_write_is_never_repeated(self, run: CaseRun) -> None:
        """It may have taken effect, so it runs once, and the model is told."""
        await run.answer_of("go")
        assert run.effects == {"work": 1}, "[non-idempotent-effects-happen-once]"
        assert await run.statuses() == [("work", "outcome_unknown")], "[outcome-unknown-is-recorded]"
        assert run.results_seen == [OUTCOME_UNKNOWN_TOOL_RESULT], "[outcome-unknown-text]"

    @case(_always_broken)
    async def test_a_tool_that_stays_broken_fails_its_call_alone(self, run: CaseRun) -> None:
        """After its attempts the model reads the exception's text, and the turn goes on."""
        await run.answer_of("go")
        assert run.effects == {"work": 3}
        assert await run.statuses() == [("work", "failed")]
        assert "work broke" in run.results_seen[0], "[failure-text]"

    @case(_parallel)
    async def test_F35_results_reach_the_model_in_call_order(self, run: CaseRun) -> None:
        """The calls of a batch run beside each other; the first ends last, and its result still comes first."""
        gate = run.gate("slow")
        gate.close()
        await run.start("go")
        await run.wait_at_gate(gate.name)
        await poll_until(lambda: run.effects["work"] == 3 or None, awaited="the calls beside the slow one")
        assert run.model_calls == {"go#0": 1}, "[the-model-waits-for-every-result]"
        gate.open()
        await run.finish()
        assert run.results_seen == ["slow", "work:1", "work:2", "work:3"], (
            "[every-result-reaches-the-model-in-call-order]"
        )

    @case(_parallel)
    async def test_parallel_calls_stay_in_the_history(self, run: CaseRun) -> None:
        """A later turn sees the whole batch with its results, once."""
        await run.answer_of("go")
        await run.answer_of("next")
        (batch, answer) = run.last_request.outputs
        assert [call.tool_call_id for call in batch.tool_calls] == ["c0", "c1", "c2", "c3"]
        assert answer.text == "done"

    @case(_mixed)
    async def test_a_failed_call_leaves_its_neighbours_alone(self, run: CaseRun) -> None:
        """Two calls of a batch succeed, one fails."""
        await run.answer_of("go")
        failure = self.failure_text.format(failure="order 7 is closed")
        assert run.results_seen == ["fine", failure, "fine"]
        assert sorted(await run.statuses()) == [("bad", "failed"), ("good", "succeeded"), ("good", "succeeded")]

    @case(_same_call_twice)
    async def test_F21_equal_calls_have_different_keys(self, run: CaseRun) -> None:
        """Same tool, same arguments, three calls: three effects with three idempotency keys."""
        await run.answer_of("go")
        assert run.effects == {"work": 3}
        assert len(set(run.idempotency_keys)) == 3, "[idempotency-keys-differ-between-calls]"

    @case(_large_result, parameters=("fail", "truncate"))
    async def test_F09_a_result_that_is_too_large_is_dropped_or_cut_once(self, run: CaseRun) -> None:
        """The tool does not run again, the model reads why, and the session stays usable."""
        await run.answer_of("go")
        assert run.effects == {"work": 1}
        (seen,) = run.results_seen
        assert len(seen.encode()) < 1_400
        assert "4000 bytes" in seen
        assert await run.answer_of("next") == "still here"

    @case(_repeated_ids, parameters=tuple(_REPEATED_IDS))
    async def test_F16_tool_call_ids_need_not_be_unique(self, run: CaseRun) -> None:
        """Each call has its own effect, key and result, whatever the provider calls it."""
        await run.answer_of("go")
        assert run.results_seen == ["work:1", "work:2", "work:3"]
        await run.answer_of("next")
        assert run.results_seen == ["work:4"]
        assert sorted(run.values) == ["1", "2", "3", "4"], "[each-call-runs-once]"
        assert len(set(run.idempotency_keys)) == 4, "[idempotency-keys-differ-between-calls]"
        sent = [call.tool_call_id for output in run.last_request.outputs for call in output.tool_calls]
        if not run.script.repeats_tool_call_ids:
            assert sent == [
                *_REPEATED_IDS[run.parameter][0],
                *_REPEATED_IDS[run.parameter][1],
                *_REPEATED_IDS[run.parameter][2],
            ], "[tool-call-ids-are-the-providers]"

    @case(_blocking, capability=Capability.BLOCKING_TOOLS)
    async def test_a_blocking_tool_runs_off_the_event_loop(self, run: CaseRun) -> None:
        """A plain function may block its thread, and reads its key like any other."""
        await run.answer_of("go")
        assert run.results_seen == ["work:7"]
        assert len(run.idempotency_keys) == 1

    @case(_blocking_failure, capability=Capability.BLOCKING_TOOLS)
    async def test_a_blocking_tool_fails_for_the_model(self, run: CaseRun) -> None:
        """Its failure reads like that of a coroutine."""
        await run.answer_of("go")
        assert run.results_seen == [self.failure_text.format(failure="order 7 is closed")]
        assert await run.statuses() == [("work", "failed")]
