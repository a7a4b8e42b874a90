"""Tokens and model calls, as far as the model tells."""

from __future__ import annotations

from dex_agents import AgentUsage
from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.capabilities import Capability
from dex_agents_conformance.case_run import CaseRun
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conformance_case import case
from dex_agents_conformance.conversation_script import ConversationScript, calls, say

__all__ = ["UsageCases"]


def _tokens(number: int) -> AgentUsage:
    return AgentUsage(
        model_calls=1,
        input_tokens=100 * number,
        output_tokens=10 * number,
        cached_input_tokens=5 * number,
        reasoning_tokens=2 * number,
        total_tokens=110 * number,
    )


def _counted(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={
            "go": [calls(("c1", "work"), usage=_tokens(1)), say("done", usage=_tokens(2))],
            "next": [say("well", usage=_tokens(4))],
        },
        tools=[setup.tool("work")],
    )


def _unknown(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "work")), say("done")]},
        tools=[setup.tool("work")],
    )


def _repeated(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(directory=setup.directory, replies={"go": [say("done", usage=_tokens(1), failures=1)]})


class UsageCases(AdapterDescription):
    """Totals count each model call once; unknown tokens count as none."""

    @case(_counted, capability=Capability.USAGE)
    async def test_F20_tokens_add_up_over_steps_and_turns(self, run: CaseRun) -> None:
        """Input, output and total tokens of three model calls."""
        await run.answer_of("go")
        await run.answer_of("next")
        usage = (await run.finish()).usage
        assert usage is not None
        assert usage.model_calls == 3
        assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (700, 70, 770), "[usage-adds-up]"

    @case(_counted, capability=Capability.USAGE)
    async def test_F20_cached_and_reasoning_tokens_are_kept(self, run: CaseRun) -> None:
        """They are part of what a team pays, or does not."""
        await run.answer_of("go")
        usage = (await run.finish()).usage
        assert usage is not None
        assert (usage.cached_input_tokens, usage.reasoning_tokens) == (15, 6), "[usage-adds-up]"

    @case(_unknown)
    async def test_F20_a_model_without_usage_still_counts_its_calls(self, run: CaseRun) -> None:
        """Two model calls, no tokens, no crash."""
        await run.answer_of("go")
        usage = (await run.finish()).usage
        assert usage is not None
        assert (usage.model_calls, usage.total_tokens) == (2, 0), "[unknown-usage-counts-the-call]"

    @case(_repeated, capability=Capability.USAGE)
    async def test_F20_a_failed_attempt_is_not_counted_twice(self, run: CaseRun) -> None:
        """One failed attempt, one answer: the tokens of the answer, once."""
        await run.answer_of("go")
        usage = (await run.finish()).usage
        assert usage is not None
        assert (usage.model_calls, usage.input_tokens) == (1, 100), "[usage-adds-up]"
