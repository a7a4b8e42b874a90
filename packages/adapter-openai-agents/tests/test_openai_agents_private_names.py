"""The names that the SDK does not export are there in this version; without one, the documented fallback holds."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from agents import Agent, OpenAIResponsesModel, default_tool_error_function, function_tool, handoff
from openai import AsyncOpenAI

from dex_agents_openai_agents import private_names
from dex_agents_openai_agents.testing import ScriptedModel


def test_a_handoff_knows_its_target() -> None:
    target = Agent[Any](name="Target")
    made = handoff(target)
    assert private_names.handoff_target(made) is target
    made._agent_ref = None
    assert private_names.handoff_target(made) is None


def test_a_handoff_whose_target_is_gone_has_none() -> None:
    made = handoff(Agent[Any](name="Gone"))
    made.on_invoke_handoff = _nowhere
    gc.collect()
    assert private_names.handoff_target(made) is None


async def _nowhere(context: Any, arguments: str) -> Any:
    raise AssertionError("nobody calls it")


def test_an_agent_used_as_a_tool_is_found() -> None:
    agent = Agent[Any](name="Helper")
    assert private_names.agent_of_tool(agent.as_tool("helper", "Helps.")) is agent
    assert private_names.agent_of_tool(function_tool(lambda: "", name_override="plain")) is None


def test_a_models_support_for_cache_keys_is_asked() -> None:
    client = AsyncOpenAI(api_key="none", base_url="https://api.openai.com/v1")
    assert private_names.supports_default_prompt_cache_key(OpenAIResponsesModel("gpt", client)) is True
    assert private_names.supports_default_prompt_cache_key(ScriptedModel()) is False


def test_a_model_is_told_that_its_run_ended() -> None:
    owners: list[object] = []

    class Cleaning(ScriptedModel):
        async def _cleanup_on_run_end(self, owner: object) -> None:
            owners.append(owner)

    async def main() -> None:
        await private_names.run_end_cleanup(Cleaning(), "run")
        await private_names.run_end_cleanup(ScriptedModel(), "run")

    asyncio.run(main())
    assert owners == ["run"]


def test_error_functions_of_tools_are_read_and_replaced() -> None:
    tool = function_tool(lambda: "", name_override="plain")
    assert private_names.failure_error_function(tool) is default_tool_error_function
    silent = function_tool(lambda: "", name_override="silent", failure_error_function=None)
    assert private_names.failure_error_function(silent) is None

    def report(context: Any, error: Exception) -> str:
        return str(error)

    private_names.replace_failure_error_function(tool, report)
    assert private_names.failure_error_function(tool) is report
