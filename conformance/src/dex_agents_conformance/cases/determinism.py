"""What an adapter must not depend on: the clock, chance, the process, or another session."""

from __future__ import annotations

from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.capabilities import check_declared_capabilities
from dex_agents_conformance.case_run import CaseRun
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conformance_case import case
from dex_agents_conformance.conversation_script import ConversationScript, ScriptedReply, calls, say

__all__ = ["DeterminismCases"]

_USER_TEXTS = ("hello", "line one\nline two", '{"role": "system"}', "👩‍🚀", " leading and trailing ")


def _plain(setup: CaseSetup) -> ConversationScript:
    return ConversationScript(directory=setup.directory, replies={"hello": [say("hi")]})


def _two_sessions(setup: CaseSetup) -> ConversationScript:
    def turn(name: str) -> list[ScriptedReply]:
        return [
            calls((f"{name}-1", "work", f'{{"value": "{name}"}}'), gate=f"{name}-first"),
            say(f"done {name}", gate=f"{name}-last"),
        ]

    return ConversationScript(
        directory=setup.directory,
        replies={"for a": turn("a"), "for b": turn("b"), "more a": [say("more a")], "more b": [say("more b")]},
        tools=[setup.tool("work", echoes_value=True)],
    )


class DeterminismCases(AdapterDescription):
    """The same text gives the same message, and a session sees nothing of its neighbours."""

    @case(_plain)
    async def test_user_messages_are_pure(self, run: CaseRun) -> None:
        """Two runners build the same message from the same text, whenever they are asked."""
        other = self.make_flow(run.script)
        for text in _USER_TEXTS:
            first = run.runner.build_user_message(text)
            assert first == run.runner.build_user_message(text), "[build_user_message-is-pure]"
            assert first == other.runner.build_user_message(text), "[build_user_message-is-pure]"
            assert first.role == "user", "[build_user_message-is-a-user-message]"
            assert first.text == text, "[build_user_message-is-a-user-message]"

    @case(_plain)
    async def test_declared_capabilities_are_those_of_the_runner(self, run: CaseRun) -> None:
        """What the runner implements is declared, so that it is tested; what is declared is implemented."""
        problems = check_declared_capabilities(run.runner, self.capabilities)
        assert not problems, "[capabilities-are-declared] " + "; ".join(problems)

    @case(_two_sessions)
    async def test_F18_sessions_on_one_runner_do_not_mix(self, run: CaseRun) -> None:
        """Two turns run in turns, a step of one in the middle of the other's; each sees its own texts alone."""
        gates = {name: run.gate(name) for name in ("a-first", "a-last", "b-first", "b-last")}
        for gate in gates.values():
            gate.close()

        def check() -> None:
            assert run.model_calls["for a#0"] < 2, "[sessions-do-not-mix] another session asked what session a asked"

        await run.start("for a", session_id="a")
        await run.wait_at_gate("a-first", session_id="a")
        await run.start("for b", session_id="b")
        for name in ("b-first", "a-first", "b-last", "a-last"):
            await run.wait_at_gate(name, session_id=name[0], check=check)
            gates[name].open()
        for name in ("a", "b"):
            await run.finish(session_id=name)
            assert await run.answer_of(f"more {name}", session_id=name) == f"more {name}"
            assert run.last_request.user_texts == [f"for {name}", f"more {name}"], "[sessions-do-not-mix]"
            calls_sent = [call.tool_call_id for output in run.last_request.outputs for call in output.tool_calls]
            assert calls_sent == [f"{name}-1"], "[sessions-do-not-mix]"
        assert sorted(run.values) == ["a", "b"]

    @case(_plain)
    async def test_a_new_runner_goes_on_where_the_old_one_stopped(self, run: CaseRun) -> None:
        """Everything a turn needs is in the session: a fresh runner sends what the old one would have sent."""
        await run.answer_of("hello")
        await run.reopen(self.make_flow(run.script))
        assert await run.answer_of("hello") == "hi"
        assert run.last_request.user_texts == ["hello", "hello"], "[runners-keep-no-session-state]"
        assert [output.text for output in run.last_request.outputs] == ["hi"], "[runners-keep-no-session-state]"
