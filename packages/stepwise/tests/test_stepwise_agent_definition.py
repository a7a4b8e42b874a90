"""Agent definitions and the Flow built from them: every wrong field is named."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

import dex_agents_stepwise
from dex_agents import AgentSessionOptions, CompactionPolicy, ToolEffect, ToolPolicy
from dex_agents_stepwise import (
    AgentDefinition,
    ModelResolutionError,
    ModelSettings,
    ScriptedModelClient,
    ScriptedModelReply,
    StepwiseAgentRunner,
    create_stepwise_agent_session_flow,
    function_tool,
)

MODEL = ScriptedModelClient(lambda request: ScriptedModelReply(text="hi"))


@function_tool
def refund(order_id: int) -> str:
    return f"refunded {order_id}"


async def resolve_slowly(settings: object) -> ScriptedModelClient:
    return MODEL


def define(**fields: Any) -> AgentDefinition:
    return AgentDefinition(**{"name": "support", "instructions": "Help.", "model": MODEL, **fields})


def test_defaults() -> None:
    definition = define()
    assert definition.model_settings == ModelSettings()
    assert definition.tools == ()
    assert definition.default_tool_effect is ToolEffect.UNCLASSIFIED
    assert definition.max_model_calls_per_turn == 100
    assert define(default_tool_effect="read").default_tool_effect is ToolEffect.READ


@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("name", " ", ValueError),
        ("name", None, ValueError),
        ("instructions", 3, TypeError),
        ("model", "gpt", TypeError),
        ("model", ScriptedModelClient, TypeError),
        ("model_settings", {"temperature": 1}, TypeError),
        ("tools", [print], TypeError),
        ("tools", [refund, refund], ValueError),
        ("tool_policies", {"refund": "read"}, TypeError),
        ("tool_policies", {"refnd": ToolPolicy()}, ValueError),
        ("default_tool_effect", "destroy", ValueError),
        ("tool_policies", {"ask_user": ToolPolicy()}, ValueError),
        ("built_in_tools", ["ask_users"], ValueError),
        ("built_in_tools", ["ask_user", "durable_wait", "ask_user"], ValueError),
        ("built_in_tools", [["ask_user"]], ValueError),
        ("built_in_tools", "ask_user", TypeError),
        ("plan_mode_enabled", 1, TypeError),
        ("plan_mode_enabled", True, ValueError),
        ("planning_tool_choice", "forced", ValueError),
        ("compaction", 400_000, TypeError),
        ("resolve_model", "gpt", TypeError),
        ("resolve_model", resolve_slowly, TypeError),
        ("max_durable_wait", 60, TypeError),
        ("max_durable_wait", timedelta(0), ValueError),
        ("max_durable_wait", timedelta(seconds=1.5), ValueError),
        ("max_model_calls_per_turn", 0, ValueError),
        ("max_model_calls_per_turn", 2.5, TypeError),
        ("max_model_calls_per_turn", True, TypeError),
        ("event_stream_capacity_bytes", 0, ValueError),
        ("interrupt_deadline", 5, TypeError),
        ("interrupt_deadline", timedelta(0), ValueError),
    ],
)
def test_errors_name_the_field(field: str, value: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=rf"AgentDefinition\.{field}"):
        define(**{"tools": [refund], field: value})


def test_the_flow_takes_its_options_from_the_definition() -> None:
    policies = {"refund": ToolPolicy(requires_approval=False)}
    definition = define(
        tools=[refund],
        tool_policies=policies,
        default_tool_effect=ToolEffect.READ,
        interrupt_deadline=timedelta(hours=1),
        built_in_tools=["ask_user", "durable_wait", "write_todos"],
        plan_mode_enabled=True,
        compaction=CompactionPolicy(context_window_tokens=400_000),
        max_durable_wait=timedelta(days=7),
        event_stream_capacity_bytes=4096,
    )
    flow = create_stepwise_agent_session_flow(definition, "SupportAgent", max_tool_result_bytes=2048)
    assert flow.flow_type == "SupportAgent"
    assert isinstance(flow.runner, StepwiseAgentRunner)
    assert flow.options.tool_policies == policies
    assert flow.options.default_tool_effect is ToolEffect.READ
    assert flow.options.interrupt_deadline == timedelta(hours=1)
    assert flow.options.built_in_tools == ("ask_user", "durable_wait", "write_todos")
    assert flow.options.plan_mode_enabled is True
    assert flow.options.compaction == CompactionPolicy(context_window_tokens=400_000)
    assert flow.options.max_durable_wait == timedelta(days=7)
    assert flow.options.event_stream_capacity_bytes == 4096
    assert flow.options.max_tool_result_bytes == 2048


def test_a_model_is_resolved_from_settings_that_cannot_be_changed() -> None:
    def resolve(settings: Mapping[str, Any]) -> ScriptedModelClient:
        with pytest.raises(TypeError):
            settings["model"] = "other"  # type: ignore[index]
        return MODEL if settings["model"] == "known" else None  # type: ignore[return-value]

    definition = define(resolve_model=resolve)
    assert definition.model_for({"model": "known"}) is MODEL
    with pytest.raises(ModelResolutionError, match="must return a ModelClient, not a NoneType"):
        definition.model_for({"model": "unknown"})
    with pytest.raises(ModelResolutionError, match=r"^AgentDefinition\.resolve_model raised KeyError$"):
        definition.model_for({})
    assert define().model_for({"model": "any"}) is MODEL


def test_the_flow_keeps_the_sessions_defaults() -> None:
    flow = create_stepwise_agent_session_flow(define(), "SupportAgent")
    assert flow.options.built_in_tools == ()
    assert flow.options.plan_mode_enabled is False
    assert flow.options.compaction is None
    assert flow.options.max_durable_wait == AgentSessionOptions().max_durable_wait
    assert flow.options.event_stream_capacity_bytes == AgentSessionOptions().event_stream_capacity_bytes


@pytest.mark.parametrize(
    "option",
    [
        "tool_policies",
        "default_tool_effect",
        "interrupt_deadline",
        "built_in_tools",
        "plan_mode_enabled",
        "compaction",
    ],
)
def test_an_option_that_belongs_into_the_definition_is_refused(option: str) -> None:
    with pytest.raises(TypeError, match=f"set {option} in the AgentDefinition"):
        create_stepwise_agent_session_flow(define(), "SupportAgent", **{option: None})


@pytest.mark.parametrize(
    ("option", "value"), [("max_durable_wait", timedelta(hours=1)), ("event_stream_capacity_bytes", 4096)]
)
def test_an_option_is_given_once(option: str, value: Any) -> None:
    flow = create_stepwise_agent_session_flow(define(), "SupportAgent", **{option: value})
    assert getattr(flow.options, option) == value
    with pytest.raises(TypeError, match=f"set {option} in the AgentDefinition"):
        create_stepwise_agent_session_flow(define(**{option: value}), "SupportAgent", **{option: value})


@pytest.mark.parametrize("name", ["ask_user", "durable_wait"])
def test_a_function_tool_must_not_have_the_name_of_an_enabled_built_in_tool(name: str) -> None:
    own = function_tool(refund.function, name=name)
    with pytest.raises(ValueError, match=rf"AgentDefinition\.tools: tool '{name}' uses the name of an enabled"):
        define(tools=[refund, own], built_in_tools=[name])
    assert define(tools=[refund, own]).tools == (refund, own)


def test_public_names() -> None:
    assert isinstance(dex_agents_stepwise.__all__, tuple)
    submodules = {module.name for module in pkgutil.iter_modules(dex_agents_stepwise.__path__)}
    public = {name for name in vars(dex_agents_stepwise) if not name.startswith("_")} - submodules
    assert public == set(dex_agents_stepwise.__all__)
    for name in submodules:
        module = importlib.import_module(f"dex_agents_stepwise.{name}")
        assert all(hasattr(module, exported) for exported in module.__all__)
