"""Tools of MCP servers: sent once with the call's key, never repeated blindly, asked about by their annotations."""

from __future__ import annotations

import json

from dex_agents.testing import poll_until
from dex_agents_conformance.adapter import AdapterDescription
from dex_agents_conformance.capabilities import Capability
from dex_agents_conformance.case_run import SESSION, CaseRun
from dex_agents_conformance.case_setup import CaseSetup
from dex_agents_conformance.conformance_case import case
from dex_agents_conformance.conversation_script import ConversationScript, calls, say
from dex_agents_conformance.scripted_mcp_server import ODD_ARGUMENTS, ScriptedMcpServer, ScriptedMcpTool
from dex_agents_conformance.scripted_tools import ScriptedQuestion

__all__ = ["McpToolCases"]

_ANNOTATIONS = {
    "read": {"readOnlyHint": True},
    "idempotent_write": {"idempotentHint": True, "destructiveHint": True},
    "write": {"destructiveHint": True},
}
_LOOK = ScriptedMcpTool(name="look", annotations=_ANNOTATIONS["read"])
_WHERE = ScriptedQuestion(question="Which environment?", choices=("staging", "production"))


def _script(setup: CaseSetup, *tools: ScriptedMcpTool) -> ConversationScript:
    return ConversationScript(
        directory=setup.directory,
        replies={
            "go": [calls(("c1", f"s__{tools[0].name}", '{"value": "seven"}')), say("done")],
            "next": [calls(("c2", "s__look", '{"value": "eight"}')), say("well")],
            "find": [calls(("c3", "s__find", '{"value": "nine"}')), say("found")],
        },
        mcp_servers=[setup.mcp_server(*tools)],
    )


def _reads(setup: CaseSetup) -> ConversationScript:
    return _script(setup, _LOOK)


_ARGUMENTS = {name: [None, 1.5, {"deep": [True, "ü"]}] for name in ODD_ARGUMENTS}


def _takes_odd_arguments(setup: CaseSetup) -> ConversationScript:
    tool = ScriptedMcpTool(name="take", annotations=_ANNOTATIONS["read"], takes_odd_arguments=True)
    arguments = json.dumps(_ARGUMENTS)
    return ConversationScript(
        directory=setup.directory,
        replies={"go": [calls(("c1", "s__take", arguments)), say("done")]},
        mcp_servers=[setup.mcp_server(tool)],
    )


def _fails(setup: CaseSetup) -> ConversationScript:
    tool = ScriptedMcpTool(name="shut", annotations=_ANNOTATIONS["read"], failure="the door is shut")
    return _script(setup, tool, _LOOK)


def _annotated(setup: CaseSetup) -> ConversationScript:
    return _script(setup, ScriptedMcpTool(name="act", annotations=_ANNOTATIONS[setup.parameter]), _LOOK)


def _dies(setup: CaseSetup) -> ConversationScript:
    return _script(setup, ScriptedMcpTool(name="act", annotations=_ANNOTATIONS[setup.parameter], deaths=1), _LOOK)


def _never_answers(setup: CaseSetup) -> ConversationScript:
    return _script(setup, ScriptedMcpTool(name="act", annotations=_ANNOTATIONS[setup.parameter], unanswered=1), _LOOK)


def _asks(setup: CaseSetup) -> ConversationScript:
    return _script(setup, ScriptedMcpTool(name="deploy", annotations=_ANNOTATIONS["read"], question=_WHERE))


def _server(run: CaseRun) -> ScriptedMcpServer:
    (server,) = run.script.mcp_servers
    return server


def _check_read(run: CaseRun, text: str) -> None:
    """The turn's one result holds the tool's text, in whatever form the framework gives a model content blocks."""
    results = run.results_seen
    assert len(results) == 1, f"[a-call-has-one-result] {results}"
    assert text in results[0], f"[the-model-reads-what-an-mcp-tool-says] {text!r} is not in {results[0]!r}"


class McpToolCases(AdapterDescription):
    """Tools of MCP servers."""

    @case(_reads, capability=Capability.MCP_TOOLS)
    async def test_an_mcp_tool_is_offered_and_called(self, run: CaseRun) -> None:
        """The model is offered it, each call reaches the server once, and its text is the result."""
        assert await run.answer_of("go") == "done"
        assert "s__look" in run.last_request.tool_names, "[mcp-tools-are-offered]"
        _check_read(run, "look:seven")
        assert await run.statuses() == [("s__look", "succeeded")]
        assert run.effects == {"look": 1}, "[an-mcp-call-is-sent-once]"

    @case(_reads, capability=Capability.MCP_TOOLS)
    async def test_F21_the_server_gets_the_idempotency_key_of_the_call(self, run: CaseRun) -> None:
        """It stands in the request's `_meta`, and no two calls share one."""
        await run.answer_of("go")
        await run.answer_of("next")
        keys = run.idempotency_keys
        assert len(keys) == 2, f"[an-mcp-call-is-sent-once] {keys}"
        assert all(keys), "[the-idempotency-key-reaches-the-server]"
        assert len(set(keys)) == 2, f"[calls-have-keys-of-their-own] {keys}"

    @case(_takes_odd_arguments, capability=Capability.MCP_TOOLS)
    async def test_arguments_reach_the_server_unchanged(self, run: CaseRun) -> None:
        """Also those that are named like something of the framework's own."""
        assert await run.answer_of("go") == "done"
        assert await run.statuses() == [("s__take", "succeeded")], run.results_seen
        assert [json.loads(value) for value in run.values] == [_ARGUMENTS], "[arguments-reach-the-server-unchanged]"

    @case(_fails, capability=Capability.MCP_TOOLS)
    async def test_an_mcp_tools_error_is_a_failure_that_the_model_reads(self, run: CaseRun) -> None:
        """An `isError` result is a failed call with the tool's words, and is not tried again."""
        assert await run.answer_of("go") == "done"
        assert await run.statuses() == [("s__shut", "failed")], "[an-mcp-error-is-a-failed-call]"
        _check_read(run, "the door is shut")
        assert run.effects == {"shut": 1}, "[a-tools-failure-is-final]"

    @case(_annotated, capability=Capability.MCP_TOOLS, parameters=tuple(_ANNOTATIONS))
    async def test_annotations_decide_about_approval(self, run: CaseRun) -> None:
        """A read and a write that may be repeated run at once; a person approves any other write."""
        result = await run.run_turn("go")
        wanted = "waiting_for_person" if run.parameter == "write" else "completed"
        assert result.status == wanted, f"[approvals-follow-annotations] {result}"
        if run.parameter == "write":
            assert run.effects == {}, "[nothing-runs-before-its-approval]"
            assert await run.client.approve(SESSION)
            await run.finish()
        assert await run.statuses() == [("s__act", "succeeded")]
        assert run.effects == {"act": 1}
        _check_read(run, "act:seven")

    @case(_dies, capability=Capability.MCP_TOOLS, parameters=tuple(_ANNOTATIONS))
    async def test_F12_a_server_that_dies_in_a_call_is_asked_again_only_when_that_is_safe(self, run: CaseRun) -> None:
        """A call that may be repeated is, with the same key; any other has an unknown outcome. The next one works."""
        result = await run.run_turn("go")
        if run.parameter == "write":
            assert result.status == "waiting_for_person", f"[approvals-follow-annotations] {result}"
            assert await run.client.approve(SESSION)
            await run.finish()
        is_repeated = run.parameter != "write"
        wanted = "succeeded" if is_repeated else "outcome_unknown"
        assert await run.statuses() == [("s__act", wanted)], "[a-lost-mcp-call-is-decided-by-its-effect]"
        assert run.effects == {"act": 2 if is_repeated else 1}, "[a-lost-mcp-call-is-decided-by-its-effect]"
        assert len(set(run.idempotency_keys)) == 1, "[attempts-share-their-key]"
        assert await run.answer_of("next") == "well"
        _check_read(run, "look:eight")

    @case(_never_answers, capability=Capability.MCP_TOOLS, parameters=("read", "write"), runs_worker=False)
    async def test_F12_a_worker_that_dies_in_a_call_leaves_it_to_its_effect(self, run: CaseRun) -> None:
        """Another worker repeats what may be repeated, with the same key, and says of the rest that nobody knows."""
        worker = await run.start_worker()
        await run.start("go")
        if run.parameter == "write":
            await run.client.wait_for_interrupt(SESSION, kind="approval")
            assert await run.client.approve(SESSION)
        await poll_until(lambda: run.effects["act"] or None, awaited="the call at the server", timeout=60)
        await worker.kill()
        await run.start_worker()
        await run.finish_unasked()
        is_repeated = run.parameter != "write"
        wanted = "succeeded" if is_repeated else "outcome_unknown"
        assert await run.statuses() == [("s__act", wanted)], "[a-lost-mcp-call-is-decided-by-its-effect]"
        assert run.effects == {"act": 2 if is_repeated else 1}, "[a-lost-mcp-call-is-decided-by-its-effect]"
        assert len(set(run.idempotency_keys)) == 1, "[attempts-share-their-key]"

    @case(_asks, capability=Capability.MCP_TOOLS)
    async def test_F53_a_servers_question_in_the_middle_of_a_call_reaches_the_user(self, run: CaseRun) -> None:
        """A new process goes on with the answer, and the call takes its effect once."""
        self.require(Capability.TOOL_QUESTIONS)
        await run.start("go")
        question = await run.wait_for_question()
        assert _WHERE.question in (question.question or ""), "[a-question-reaches-the-user]"
        assert question.choices == _WHERE.choices, "[a-question-reaches-the-user]"
        assert run.effects == {}, "[a-tool-asks-before-its-effect]"
        await run.reopen(self.make_flow(run.script))
        assert await run.client.answer_question(SESSION, question.interrupt_id, "production")
        await run.finish_unasked()
        assert await run.statuses() == [("s__deploy", "succeeded")]
        _check_read(run, "deploy:production")
        assert run.effects == {"deploy": 1}, "[a-tool-that-asks-takes-its-effect-once]"

    @case(_reads, capability=Capability.MCP_TOOLS)
    async def test_F46_the_server_lists_other_tools_after_a_restart(self, run: CaseRun) -> None:
        """The model is offered what there is now, may call it, and reads that what is gone is gone."""
        assert await run.answer_of("go") == "done"
        _server(run).set_tools([ScriptedMcpTool(name="find", annotations=_ANNOTATIONS["read"])])
        await run.reopen(self.make_flow(run.script))
        assert await run.answer_of("find") == "found"
        offered = set(run.last_request.tool_names)
        assert "s__find" in offered, "[the-tools-of-the-latest-listing-are-offered]"
        assert "s__look" not in offered, "[the-tools-of-the-latest-listing-are-offered]"
        _check_read(run, "find:nine")
        assert await run.answer_of("next") == "well"
        assert (await run.statuses())[-1] == ("s__look", "failed"), "[a-tool-that-is-gone-fails-its-call]"
        assert "s__look" in run.results_seen[0], "[a-tool-that-is-gone-fails-its-call]"
        assert run.effects == {"look": 1, "find": 1}

    @case(_annotated, capability=Capability.MCP_TOOLS, parameters=("write",))
    async def test_F46_an_approved_call_of_a_tool_that_is_listed_no_more_runs_once_or_fails_by_name(
        self, run: CaseRun
    ) -> None:
        """The server can still run it; a worker whose listing lacks it must not lose the call or ask again."""
        result = await run.run_turn("go")
        assert result.status == "waiting_for_person", f"[approvals-follow-annotations] {result}"
        act = ScriptedMcpTool(name="act", annotations=_ANNOTATIONS["write"], is_listed=False)
        _server(run).set_tools([act, _LOOK])
        await run.reopen(self.make_flow(run.script))
        assert await run.client.approve(SESSION)
        await run.finish_unasked()
        ((name, status),) = await run.statuses()
        ran = run.effects["act"]
        assert (name, status, ran) in (("s__act", "succeeded", 1), ("s__act", "failed", 0)), (
            f"[a-recorded-call-runs-once-or-fails-by-name] {status} after {ran} runs"
        )
        assert "act" in run.results_seen[0], "[a-recorded-call-runs-once-or-fails-by-name]"
