"""Session settings: they choose the model, from the next turn on, for one session."""

from __future__ import annotations

from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.capabilities import Capability
from dex_agents_conformance.case_run import SESSION, CaseRun
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conformance_case import case
from dex_agents_conformance.conversation_script import ConversationScript, ScriptedReply, TextPart, calls, say

__all__ = ["SettingsCases"]


def _slow_tool(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "slow")), say("done")], "next": [say("well")], "last": [say("bye")]},
        tools=[setup.tool("slow", gate="slow")],
    )


def _breaks_once(setup: CaseSetup) -> ConversationScript:
    broken = ScriptedReply(
        parts=(TextPart(text="at last"),), gate="model", parts_before_gate=1, failures=1, fails_behind_gate=True
    )
    return ConversationScript(directory=setup.directory, replies={"go": [broken]})


class SettingsCases(AdapterDescription):
    """`{"model": "small"}` and `{"model": "large"}` choose a model of that name; without, the agent's own is asked."""

    @case(_slow_tool, capability=Capability.SETTINGS, parameters=("small", "large"))
    async def test_the_settings_choose_the_model(self, run: CaseRun) -> None:
        """In every model call of the turn, those behind a tool too."""
        await run.start("go", session_settings={"model": run.parameter})
        await run.finish()
        assert _models(run) == [run.parameter] * 2, "[settings-choose-the-model]"

    @case(_slow_tool, capability=Capability.SETTINGS, parameters=("none", "other"))
    async def test_without_a_setting_the_agents_model_is_asked(self, run: CaseRun) -> None:
        """Settings that mean nothing to the adapter change nothing."""
        await run.start("go", session_settings={} if run.parameter == "none" else {"colour": ["red"]})
        await run.finish()
        assert _models(run) == ["", ""], "[settings-choose-the-model]"

    @case(_slow_tool, capability=Capability.SETTINGS)
    async def test_a_change_counts_from_the_next_turn_on(self, run: CaseRun) -> None:
        """A turn keeps the model it started with; settings are replaced as a whole."""
        run.gate("slow").close()
        await run.start("go", session_settings={"model": "small"})
        await run.wait_at_gate("slow")
        assert await run.client.update_session_settings(SESSION, {"model": "large"})
        run.gate("slow").open()
        await run.finish()
        assert _models(run) == ["small", "small"], "[a-turn-keeps-its-settings]"
        await run.answer_of("next")
        assert _models(run)[-1] == "large", "[settings-choose-the-model]"
        assert await run.client.update_session_settings(SESSION, {"colour": "red"})
        await run.answer_of("last")
        assert _models(run)[-1] == "", "[settings-are-replaced-as-a-whole]"

    @case(_breaks_once, capability=Capability.SETTINGS)
    async def test_a_repeated_model_call_asks_the_same_model(self, run: CaseRun) -> None:
        """Also when the settings changed between the attempts."""
        run.gate("model").close()
        await run.start("go", session_settings={"model": "small"})
        await run.wait_at_gate("model")
        assert await run.client.update_session_settings(SESSION, {"model": "large"})
        run.gate("model").open()
        await run.finish()
        assert _models(run) == ["small", "small"], "[a-turn-keeps-its-settings]"

    @case(_slow_tool, capability=Capability.SETTINGS)
    async def test_F18_sessions_do_not_share_their_settings(self, run: CaseRun) -> None:
        """Two sessions of one runner, each in the middle of its turn, each with its own model."""
        run.gate("slow").close()
        await run.start("go", session_settings={"model": "small"})
        await run.wait_at_gate("slow")
        await run.start("next", session_id="session-2", session_settings={"model": "large"})
        await run.finish(session_id="session-2")
        run.gate("slow").open()
        await run.finish()
        await run.answer_of("last", session_id="session-2")
        assert _models(run) == ["small", "large", "small", "large"], "[sessions-do-not-mix]"

    @case(_slow_tool, capability=Capability.SETTINGS)
    async def test_the_settings_outlive_the_process(self, run: CaseRun) -> None:
        """A new runner asks the model that the session chose."""
        await run.start("go", session_settings={"model": "large"})
        await run.finish()
        await run.reopen(self.make_flow(run.script))
        await run.answer_of("next")
        assert _models(run) == ["large"] * 3, "[runners-keep-no-session-state]"


def _models(run: CaseRun) -> list[str]:
    """The model that each request went to."""
    return [request.model for request in run.requests]
