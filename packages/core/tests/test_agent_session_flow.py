"""What building a session Flow checks, and what the Flow exposes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import dex_agents
from dex_agents import AgentSessionFlow, FrameworkMessage, ToolEffect, ToolPolicy, create_agent_session_flow
from dex_flow import DefinitionError, Flow


class MinimalRunner:
    """The three methods every runner has."""

    def build_user_message(self, text: str) -> FrameworkMessage:
        return FrameworkMessage(role="user", framework_item="{}", text=text)

    async def run_model_step(self, turn: Any) -> Any:
        raise AssertionError

    async def execute_deferred_tool_call(self, call: Any) -> Any:
        raise AssertionError


@pytest.mark.parametrize("method", ["build_user_message", "run_model_step", "execute_deferred_tool_call"])
def test_a_runner_without_a_method_is_refused_by_its_name(method: str) -> None:
    incomplete = type("IncompleteRunner", (MinimalRunner,), {method: None})
    with pytest.raises(TypeError, match=f"IncompleteRunner is not an AgentFrameworkRunner: it has no method {method};"):
        create_agent_session_flow(incomplete(), "SupportAgent")


def test_a_runner_class_in_place_of_an_instance_is_refused() -> None:
    with pytest.raises(TypeError, match="pass an instance of MinimalRunner"):
        create_agent_session_flow(MinimalRunner, "SupportAgent")  # type: ignore[arg-type]


def test_half_a_capability_is_refused() -> None:
    class HalfCompactor(MinimalRunner):
        def estimate_input_tokens(self, turn: Any) -> int:
            raise AssertionError

    with pytest.raises(TypeError, match="no method select_compaction_cutoff, summarize_context"):
        create_agent_session_flow(HalfCompactor(), "SupportAgent")


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"interrupt_deadlin": timedelta(1)}, TypeError, "interrupt_deadlin"),
        ({"interrupt_deadline": 60}, TypeError, "interrupt_deadline"),
        ({"default_tool_effect": "safe"}, ValueError, "default_tool_effect"),
        ({"tool_policies": {"refund": "read"}}, TypeError, "tool_policies"),
        ({"event_stream_capacity_bytes": 0}, ValueError, "event_stream_capacity_bytes"),
    ],
)
def test_wrong_options_are_refused_by_their_name(options: dict[str, Any], error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        create_agent_session_flow(MinimalRunner(), "SupportAgent", **options)


@pytest.mark.parametrize("flow_type", ["", None])
def test_a_flow_type_must_be_a_name(flow_type: Any) -> None:
    with pytest.raises(DefinitionError, match="flow type"):
        create_agent_session_flow(MinimalRunner(), flow_type)


def test_the_flow_exposes_its_durable_names_rpcs_and_options() -> None:
    runner = MinimalRunner()
    policies = {"lookup": ToolPolicy(effect=ToolEffect.READ)}
    flow = create_agent_session_flow(runner, "SupportAgent", tool_policies=policies, event_stream_capacity_bytes=4_096)
    assert isinstance(flow, AgentSessionFlow)
    assert isinstance(flow, Flow)
    assert (flow.flow_type, flow.start_step, flow.runner) == ("SupportAgent", "StartAgentSession", runner)
    assert flow.options.tool_policies == policies
    for declaration in (
        flow.agent_state,
        flow.agent_messages,
        flow.agent_tool_calls,
        flow.pending_interrupts,
        flow.agent_usage,
        flow.framework_run_state,
        flow.queued_user_messages,
        flow.agent_events,
    ):
        assert flow.declarations[declaration.name] is declaration
    assert flow.agent_events.capacity_bytes == 4_096
    for rpc in (
        flow.send_user_message,
        flow.delete_queued_message,
        flow.resolve_interrupt,
        flow.get_agent_snapshot,
        flow.list_agent_messages,
    ):
        assert flow.rpcs[rpc.name] is rpc


def test_two_flows_of_one_process_are_independent() -> None:
    first = create_agent_session_flow(MinimalRunner(), "First", event_stream_capacity_bytes=1_024)
    second = create_agent_session_flow(MinimalRunner(), "Second", event_stream_capacity_bytes=2_048)
    assert (first.agent_events.capacity_bytes, second.agent_events.capacity_bytes) == (1_024, 2_048)
    assert first.fingerprint != second.fingerprint


def test_the_public_names_are_a_tuple_of_what_is_there() -> None:
    names = dex_agents.__all__
    assert isinstance(names, tuple)
    assert len(set(names)) == len(names)
    assert all(hasattr(dex_agents, name) for name in names)
