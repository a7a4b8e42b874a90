"""Rules of approvals with changed arguments, in the session and in the client that asks it."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest

from dex_agents import (
    AgentSessionClient,
    AgentSessionOptions,
    ExecutePlanResult,
    ResolveResult,
    SendResult,
    create_agent_session_flow,
)
from dex_agents.runner import FrameworkMessage
from dex_agents.session.outcomes import ToolCallInputRequested, ToolCallSucceeded
from dex_agents.session.texts import ARGUMENTS_CHANGED_BY_USER
from dex_agents.session.tool_results import tool_result_text
from dex_agents.session.tool_values import ToolEffect
from dex_agents.testing import SessionDriver
from dex_flow.codec import decode

from .session_scripts import answer, asks, finish_model, payloads, started, wanted

SCHEMA = json.dumps(
    {"type": "object", "properties": {"to": {"type": "string"}, "n": {}}, "additionalProperties": False}
)


def waiting(arguments: str = '{"to":"a"}', schema: str | None = SCHEMA, **options: Any) -> SessionDriver:
    driver = started(**options)
    effect = ToolEffect.NON_IDEMPOTENT_WRITE
    call = wanted("c1", "send", arguments=arguments, requires_approval=True, effect=effect, arguments_schema=schema)
    finish_model(driver, asks(call))
    return driver


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def resolved(driver: SessionDriver) -> bool:
    """Whether the approval with changes counted as one."""
    (payload,) = payloads(driver, "interrupt_resolved")
    changed: bool = payload["arguments_changed"]
    assert changed is (driver.snapshot().tool_calls[0].executed_arguments is not None)
    return changed


@pytest.mark.parametrize(
    ("proposed", "approved", "is_changed"),
    [
        ('{"n":1,"to":"a"}', {"to": "a", "n": 1}, False),
        ('{"n":1.0}', {"n": 1}, False),
        ('{"n":[1,{"a":null}]}', {"n": [1, {"a": None}]}, False),
        ('{"n":1}', {"n": True}, True),
        ('{"n":true}', {"n": 1}, True),
        ('{"n":[0]}', {"n": [False]}, True),
        ('{"n":{"a":1}}', {"n": {"a": True}}, True),
        ('{"n":[1,2]}', {"n": [1]}, True),
        ('{"n":null}', {}, True),
        ('{"n":"1"}', {"n": 1}, True),
    ],
)
def test_only_another_json_value_is_a_change(proposed: str, approved: dict[str, Any], is_changed: bool) -> None:
    driver = waiting(proposed)
    assert driver.resolve("turn-1.c1", True, arguments=approved)
    assert resolved(driver) is is_changed
    call = driver.snapshot_of(driver.attempt_of("CallSingleAttemptTool")).record.to_tool_call()
    assert json.loads(call.arguments_to_run) == approved
    assert type(json.loads(call.arguments_to_run).get("n")) is type(approved.get("n")) or not is_changed


def test_without_a_schema_any_object_may_run_and_the_runner_has_the_last_word() -> None:
    driver = waiting(schema=None)
    assert driver.resolve("turn-1.c1", True, arguments={"anything": [1, 2]})
    assert resolved(driver)


@pytest.mark.parametrize("schema", [SCHEMA, None])
def test_changes_nested_too_deeply_are_refused_and_the_approval_stays(schema: str | None) -> None:
    driver = waiting(schema=schema)
    for depth in (60, 600):
        assert not driver.resolve("turn-1.c1", True, arguments={"n": nested(depth)})
    assert driver.resolve("turn-1.c1", True)


def test_texts_of_changed_arguments_are_repaired() -> None:
    driver = waiting()
    assert driver.resolve("turn-1.c1", True, arguments={"to": "b\0"})
    assert driver.snapshot().tool_calls[0].executed_arguments == '{"to": "b\ufffd"}'


def test_changes_to_an_unknown_or_decided_call_are_false() -> None:
    driver = waiting()
    assert not driver.resolve("turn-1.c2", True, arguments={"to": "b"})
    assert driver.resolve("turn-1.c1", True, arguments={"to": "b"})
    assert not driver.resolve("turn-1.c1", True, arguments={"to": "c"})
    assert driver.snapshot().tool_calls[0].executed_arguments == '{"to": "b"}'


def test_changes_at_the_deadline_are_too_late() -> None:
    driver = waiting(interrupt_deadline=timedelta(seconds=10))
    driver.now += 10_000_000
    assert not driver.resolve("turn-1.c1", True, arguments={"to": "b"})
    driver.advance(0)
    assert payloads(driver, "tool_call_finished")[0]["status"] == "rejected"


def test_a_question_takes_no_arguments() -> None:
    driver = started(built_in_tools=("ask_user",))
    finish_model(driver, asks(wanted("q", "ask_user", arguments='{"question":"Which?"}')))
    for approved in (True, False):
        assert not driver.resolve("turn-1.q", approved, arguments={"question": "That?"})
    assert len(driver.snapshot().pending_interrupts) == 1


def test_every_run_of_the_call_gets_the_changed_arguments_also_after_a_question() -> None:
    driver = waiting()
    assert driver.resolve("turn-1.c1", True, arguments={"to": "b"})
    driver.succeed(driver.attempt_of("CallSingleAttemptTool"), ToolCallInputRequested(question="Sure?"))
    assert driver.answer("turn-1.c1-input-1", "yes")
    call = driver.snapshot_of(driver.attempt_of("CallSingleAttemptTool")).record.to_tool_call()
    assert (call.arguments, call.arguments_to_run) == ('{"to":"a"}', '{"to": "b"}')
    driver.succeed(driver.attempt_of("CallSingleAttemptTool"), ToolCallSucceeded(output="sent"))
    (seen,) = driver.snapshot_of(driver.attempt_of("RunModel")).tool_calls
    assert tool_result_text(seen) == f'{ARGUMENTS_CHANGED_BY_USER}{{"to": "b"}}\nsent'


def test_a_changed_call_that_is_lost_still_says_what_it_ran_with() -> None:
    driver = waiting()
    assert driver.resolve("turn-1.c1", True, arguments={"to": "b"})
    driver.lose_worker()
    (seen,) = driver.snapshot_of(driver.attempt_of("RunModel")).tool_calls
    assert seen.status == "outcome_unknown"
    assert tool_result_text(seen).startswith(f'{ARGUMENTS_CHANGED_BY_USER}{{"to": "b"}}\n')


def test_an_approval_with_changes_survives_workers_that_die() -> None:
    driver = waiting()
    driver.stop_worker()
    assert driver.resolve("turn-1.c1", True, arguments={"to": "b"})
    driver.take_work()
    record = driver.snapshot_of(driver.attempt_of("CallSingleAttemptTool")).record
    assert record.executed_arguments == '{"to": "b"}'


# The client: why it was refused


class Runner:
    """A runner that is never asked."""

    supports_plan_mode = True

    def build_user_message(self, text: str) -> FrameworkMessage:
        raise AssertionError

    async def run_model_step(self, turn: Any) -> Any:
        raise AssertionError

    async def execute_deferred_tool_call(self, call: Any) -> Any:
        raise AssertionError


class DrivenEngine:
    """The part of an engine that a client calls, over one driven session."""

    def __init__(self, driver: SessionDriver) -> None:
        self._driver = driver

    async def invoke_rpc(self, flow: Any, flow_id: str, rpc: Any, input: Any, *, request_id: str | None = None) -> Any:
        return self._driver.call(rpc, input)

    async def get_attribute(self, flow_id: str, attribute: Any) -> Any:
        stored = self._driver.store.attributes.get((attribute.name, ""))
        return None if stored is None else decode(attribute.value_type, stored)


def client_of(driver: SessionDriver) -> AgentSessionClient:
    flow = create_agent_session_flow(Runner(), "DrivenAgent")
    return AgentSessionClient(DrivenEngine(driver), flow)  # type: ignore[arg-type]


def test_the_client_says_why_changes_were_refused() -> None:
    driver = waiting()
    client = client_of(driver)

    async def resolve(arguments: dict[str, Any]) -> ResolveResult:
        return await client.resolve_interrupt_with_reason("s", "turn-1.c1", approved=True, arguments=arguments)

    assert asyncio.run(resolve({"to": 3})) is ResolveResult.INVALID_ARGUMENTS
    reason = asyncio.run(client.invalid_arguments_reason("s", "turn-1.c1", {"to": 3}))
    assert reason == "to: 3 is not of type string"
    assert asyncio.run(client.invalid_arguments_reason("s", "turn-1.c1", {"to": "b"})) is None
    assert asyncio.run(client.invalid_arguments_reason("s", "turn-1.c9", {"to": 3})) is None
    assert asyncio.run(resolve({"to": "b"})) is ResolveResult.ACCEPTED
    assert asyncio.run(resolve({"to": "b"})) is ResolveResult.NOT_PENDING


def test_the_client_refuses_arguments_with_a_rejection() -> None:
    client = client_of(waiting())
    with pytest.raises(ValueError, match="arguments are for approved=True"):
        asyncio.run(client.resolve_interrupt("s", "turn-1.c1", approved=False, arguments={"to": "b"}))


def test_the_client_says_why_a_plan_was_not_executed() -> None:
    driver = SessionDriver(AgentSessionOptions(built_in_tools=("write_todos",), plan_mode_enabled=True))
    driver.start()
    client = client_of(driver)

    async def execute(revision: int) -> ExecutePlanResult:
        return await client.execute_plan_with_reason("s", revision)

    assert asyncio.run(execute(1)) is ExecutePlanResult.NOTHING_TO_EXECUTE
    assert asyncio.run(client.send_user_message("s", "Plan it", plan_mode=True))
    todo = '{"todos":[{"content":"one","status":"pending"}]}'
    finish_model(driver, asks(wanted("t", "write_todos", arguments=todo)))
    assert asyncio.run(execute(1)) is ExecutePlanResult.BUSY
    finish_model(driver, answer())
    assert asyncio.run(execute(2)) is ExecutePlanResult.ANOTHER_REVISION
    assert asyncio.run(execute(1)) is ExecutePlanResult.ACCEPTED
    assert asyncio.run(execute(1)) is ExecutePlanResult.BUSY


def test_the_client_updates_settings_and_says_where_plan_mode_is_off() -> None:
    driver = SessionDriver()
    driver.start(None, a=1)
    client = client_of(driver)
    assert asyncio.run(client.update_session_settings("s", {"b": 2}))
    assert driver.snapshot().session_settings == {"b": 2}
    sent = asyncio.run(client.send_user_message_with_reason("s", "Plan it", plan_mode=True))
    assert sent is SendResult.PLAN_MODE_UNAVAILABLE
    assert driver.snapshot().queued_messages == ()
