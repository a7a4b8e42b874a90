"""Durable sessions for agents written with the OpenAI Agents SDK."""

from dex_agents_openai_agents.agent_graph import UnsupportedAgentError
from dex_agents_openai_agents.guardrails import GuardrailTrip, GuardrailTrippedError
from dex_agents_openai_agents.handoff_history import HandoffFilterError
from dex_agents_openai_agents.openai_agents_runner import OpenAIAgentsRunner, SessionStep
from dex_agents_openai_agents.provider_errors import ProviderBusyError
from dex_agents_openai_agents.remote_tasks import RemoteTask
from dex_agents_openai_agents.session_flow import create_openai_agents_session_flow
from dex_agents_openai_agents.tool_call_info import CurrentToolCall, current_tool_call
from dex_agents_openai_agents.tool_questions import SwallowedQuestionError, ToolInputRequired

__all__ = (
    "CurrentToolCall",
    "GuardrailTrip",
    "GuardrailTrippedError",
    "HandoffFilterError",
    "OpenAIAgentsRunner",
    "ProviderBusyError",
    "RemoteTask",
    "SessionStep",
    "SwallowedQuestionError",
    "ToolInputRequired",
    "UnsupportedAgentError",
    "create_openai_agents_session_flow",
    "current_tool_call",
)
