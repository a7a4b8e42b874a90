"""Limits of a turn: behind one, the model is asked once more without tools, and nothing else runs."""

from __future__ import annotations

from dex_agents import AgentUsage, TurnLimits
from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.capabilities import Capability
from dex_agents_conformance.case_run import SESSION, CaseRun
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conformance_case import case
from dex_agents_conformance.conversation_script import ConversationScript, ScriptedReply, calls, say
from dex_agents_conformance.provider_request import RequestToolResult

__all__ = ["TurnLimitCases"]


def _script(setup: CaseSetup, *replies: ScriptedReply, limits: TurnLimits | None = None) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"go": replies, "next": [calls(("n1", "look")), say("well")]},
        tools=[setup.tool("look", returns="seen")],
        session_options={} if limits is None else {"turn_limits": limits},
    )


def _answers_in_time(setup: CaseSetup) -> ConversationScript:
    batch = calls(("c1", "look"), ("c2", "look"))
    return _script(setup, batch, say("enough"), limits=TurnLimits(model_calls=1))


def _calls_on(setup: CaseSetup) -> ConversationScript:
    again = calls(("c2", "look"), ("c3", "look"))
    return _script(setup, calls(("c1", "look")), again, limits=TurnLimits(model_calls=1))


def _unlimited(setup: CaseSetup) -> ConversationScript:
    return _script(setup, calls(("c1", "look")), say("enough"))


def _spends_tokens(setup: CaseSetup) -> ConversationScript:
    usage = AgentUsage(model_calls=1, input_tokens=90, output_tokens=20, total_tokens=110)
    return _script(
        setup, calls(("c1", "look"), usage=usage), say("enough", usage=usage), limits=TurnLimits(total_tokens=100)
    )


class TurnLimitCases(AdapterDescription):
    """A limit never stops a tool, and never leaves a call without a result."""

    @case(_answers_in_time)
    async def test_behind_a_limit_no_tools_are_offered(self, run: CaseRun) -> None:
        """The calls so far run to their end, and the model's answer completes the turn."""
        assert await run.answer_of("go") == "enough"
        assert [request.tool_names for request in run.requests] == [("look",), ()], "[no-tools-behind-a-limit]"
        assert run.results_seen == ["seen", "seen"]
        (reached,) = await run.event_payloads("turn_limit_reached")
        assert (reached["limit"], reached["value"]) == ("model_calls", 1)

    @case(_calls_on)
    async def test_calls_behind_a_limit_are_not_run(self, run: CaseRun) -> None:
        """The model asks for tools all the same: the turn ends, and its history stays valid.

        A runner hands the calls over, and the session ends the turn with the limit as its error; or it refuses them by
        itself, and completes the turn.
        """
        result = await run.run_turn("go")
        assert result.status in ("failed", "completed"), "[a-limit-ends-the-turn]"
        if result.error is not None:
            assert result.error.type == "TurnLimitReachedError", "[a-limit-ends-the-turn]"
        assert run.effects == {"look": 1}, "[nothing-runs-behind-a-limit]"
        assert run.model_calls == {"go#0": 1, "go#1": 1}, "[one-model-call-per-model-step]"
        assert await run.answer_of("next") == "well"
        asked = {call.tool_call_id for output in run.last_request.outputs for call in output.tool_calls}
        told = [item.output for item in run.last_request.items if isinstance(item, RequestToolResult)]
        if "c2" in asked:
            assert told[1] == told[2], "[a-limit-is-told-to-the-model]"
            assert "reached its limit of 1 model calls" in told[1], "[a-limit-is-told-to-the-model]"

    @case(_answers_in_time)
    async def test_a_limit_counts_anew_in_the_next_turn(self, run: CaseRun) -> None:
        """Its first call offers the tools again."""
        await run.answer_of("go")
        assert await run.answer_of("next") == "well"
        assert [request.tool_names for request in run.requests[2:]] == [("look",), ()], "[no-tools-behind-a-limit]"

    @case(_unlimited)
    async def test_a_setting_of_the_session_limits_its_turns(self, run: CaseRun) -> None:
        """And no other session's."""
        await run.start("go", session_settings={"turn_limits": {"model_calls": 1}})
        await run.finish()
        await run.start("go", session_id="session-2")
        await run.finish(session_id="session-2")
        assert [request.tool_names for request in run.requests] == [("look",), (), ("look",), ("look",)], (
            "[no-tools-behind-a-limit]"
        )

    @case(_spends_tokens, capability=Capability.USAGE)
    async def test_tokens_limit_a_turn(self, run: CaseRun) -> None:
        """As far as the model reports them."""
        assert await run.answer_of("go") == "enough"
        assert [request.tool_names for request in run.requests] == [("look",), ()], "[no-tools-behind-a-limit]"
        (reached,) = await run.event_payloads("turn_limit_reached")
        assert reached["limit"] == "total_tokens", "[usage-counts-for-limits]"
        assert (await run.client.get_agent_snapshot(SESSION)).usage.total_tokens == 220
