"""What people and the model do about plans, settings, changed arguments and the context, in a random history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from dex_agents.session.outcomes import ContextSummarized, ModelStepNeedsCompaction, ModelStepOutcome, ModelStepSnapshot
from dex_agents.session.tool_values import AgentToolCallRecordStatus as Status
from dex_agents.session.values import AgentUsage
from dex_agents.testing import SessionDriver
from dex_flow.kernel import ClaimedAttempt

from .session_oracle import SessionOracle
from .session_pairing_runner import PairingRunner, check_transcript
from .session_strategies import EDITS, SETTINGS, Edit, picks, requested_plan

__all__ = ["ContextRules"]

Choice = TypeVar("Choice")


class ContextRules(RuleBasedStateMachine):
    """The part of the machine for what surrounds turns and calls."""

    driver: SessionDriver
    oracle: SessionOracle
    runner: PairingRunner

    def says(self, expected: Any, command: Callable[[], Any]) -> None:
        raise NotImplementedError

    def pick(self, pick: int, choices: list[Choice]) -> Choice:
        raise NotImplementedError

    def started(self, *step_types: str) -> list[ClaimedAttempt]:
        raise NotImplementedError

    def new_text(self) -> str:
        raise NotImplementedError

    def new_usage(self) -> AgentUsage:
        raise NotImplementedError

    def input_of(self, claim: ClaimedAttempt) -> ModelStepSnapshot:
        raise NotImplementedError

    def end_model_step(self, outcome_of: Callable[[ModelStepSnapshot, AgentUsage], ModelStepOutcome]) -> None:
        raise NotImplementedError

    # Plans

    @rule()
    def send_for_a_plan(self) -> None:
        text = self.new_text()
        self.says(self.oracle.send(text, True), lambda: self.driver.send(text, plan_mode=True))

    @precondition(lambda self: self.oracle.configuration.has_plans and self.started("RunModel"))
    @rule(pick=picks)
    def model_writes_a_plan(self, pick: int) -> None:
        call = requested_plan(pick)
        self.end_model_step(lambda input, usage: self.runner.tool_calls(input, [call], usage))

    @precondition(lambda self: self.oracle.plans.revision)
    @rule(behind=st.sampled_from([0, 0, 0, 1, -1]), twice=st.booleans())
    def approve_plan(self, behind: int, twice: bool) -> None:
        revision = self.oracle.plans.revision - behind
        self.says(self.oracle.execute_plan(revision), lambda: self.driver.execute_plan(revision))
        if twice:
            self.says(self.oracle.execute_plan(revision), lambda: self.driver.execute_plan(revision))

    # Settings and changed arguments

    @rule(pick=picks)
    def update_settings(self, pick: int) -> None:
        settings, is_valid = self.pick(pick, list(SETTINGS))
        self.says(self.oracle.update_settings(settings, is_valid), lambda: self.driver.update_settings(settings))

    @precondition(lambda self: any(interrupt.kind == "approval" for interrupt in self.oracle.pending.values()))
    @rule(pick=picks, edit=st.sampled_from(EDITS), approved=st.sampled_from([True, True, True, False]))
    def approve_with_changes(self, pick: int, edit: Edit, approved: bool) -> None:
        key = self.pick(pick, [key for key, i in self.oracle.pending.items() if i.kind == "approval"])
        self.says(
            self.oracle.resolve(key, approved, None, edit),
            lambda: self.driver.resolve(key, approved, arguments=edit.arguments),
        )

    # The context

    def cutoffs(self, claim: ClaimedAttempt) -> list[int]:
        """Where the input of a model step may be cut; nowhere once a summary has failed in the turn."""
        if not self.oracle.configuration.compacts or self.oracle.context.has_failed:
            return []
        return self.runner.cutoffs(self.input_of(claim))

    @precondition(lambda self: any(self.cutoffs(claim) for claim in self.started("RunModel")))
    @rule(pick=picks, goes_on=st.booleans())
    def model_needs_compaction(self, pick: int, goes_on: bool) -> None:
        (claim,) = self.started("RunModel")
        cutoffs = self.cutoffs(claim)
        through = self.pick(pick, cutoffs[::-1])
        self.end_model_step(lambda _input, _usage: ModelStepNeedsCompaction(through_sequence=through))
        if goes_on and self.started("CompactContext"):
            self.summary_ends()

    @precondition(lambda self: self.started("CompactContext"))
    @rule()
    def summary_ends(self) -> None:
        (claim,) = self.started("CompactContext")
        snapshot = self.driver.snapshot_of(claim)
        self.oracle.context.check_input(snapshot)
        assert snapshot.session_settings == self.oracle.settings.of_turn
        check_transcript(self.runner.summary_input(snapshot), self.oracle.unbuilt_turns)
        outcome = ContextSummarized(text=self.new_text(), usage=self.new_usage())
        self.oracle.summarized(outcome)
        self.oracle.reached["summary"] += 1
        self.driver.succeed(claim, outcome)

    @precondition(lambda self: self.started("CompactContext"))
    @rule(may_retry=st.booleans())
    def summary_attempt_fails(self, may_retry: bool) -> None:
        (claim,) = self.started("CompactContext")
        self.oracle.context.attempt_fails(may_retry=may_retry, is_lost=False)
        self.oracle.reached["summary failed"] += 1
        self.driver.fail(claim, is_retryable=may_retry)

    # What the model reads

    def check_model_input(self, snapshot: ModelStepSnapshot) -> None:
        """A model step reads what the session promises, and it is a valid transcript."""
        oracle = self.oracle
        covered = oracle.messages.summarized
        assert list(snapshot.messages) == oracle.messages.after(covered)
        assert snapshot.first_stored_sequence == oracle.messages.first_sequence
        assert (snapshot.context_summary is None) == (covered == 0)
        assert snapshot.session_settings == oracle.settings.of_turn, "a turn reads settings that are not its own"
        oracle.plans.check(snapshot.plan)
        items = self.runner.model_input(snapshot)
        check_transcript(items, oracle.unbuilt_turns)
        assert snapshot.turn_id == oracle.turn
        assert (snapshot.framework_run_state is None) == (snapshot.state.turn_model_step_count == 0)
        own_ids = [call.tool_call_id for call in oracle.calls]
        assert [call.tool_call_id for call in snapshot.tool_calls] == own_ids
        summarized = [oracle.messages.messages[sequence] for sequence in range(1, covered + 1)]
        answered = [m.tool_call_id for m in summarized if m.role == "tool" and m.turn_id == snapshot.turn_id]
        answered += [item.own_id for item in items if item.role == "tool" and item.turn_id == snapshot.turn_id]
        assert answered == own_ids, "a call of the turn has not exactly one result in the model input"
        ran = [call for call in oracle.calls if call.status is not Status.REJECTED]
        changed = {call.tool_call_id for call in ran if call.executed_arguments is not None}
        for item in items:
            if item.turn_id == snapshot.turn_id and item.own_id in changed:
                assert item.text.startswith("The user changed the arguments before approving; the tool ran with: {")
