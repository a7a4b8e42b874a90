"""Durable sessions for Pydantic AI agents."""

from __future__ import annotations

from dex_agents_pydantic_ai.agent_runs import DepsFactory, ResolveModel
from dex_agents_pydantic_ai.current_tool_call import CONTEXT_METADATA_KEY, SessionContext, current_tool_call
from dex_agents_pydantic_ai.framework_messages import IncompatibleFrameworkVersionError, UnreadableFrameworkItemError
from dex_agents_pydantic_ai.pydantic_ai_runner import PydanticAIRunner
from dex_agents_pydantic_ai.remote_tasks import RemoteTask
from dex_agents_pydantic_ai.run_capability import ToolTimedOutError
from dex_agents_pydantic_ai.run_errors import AgentRunRefusedError
from dex_agents_pydantic_ai.session_flow import create_pydantic_ai_session_flow
from dex_agents_pydantic_ai.tool_execution import APPROVE, EnqueuedMessagesError, UnrenderableToolResultError
from dex_agents_pydantic_ai.tool_policies import EFFECT_METADATA_KEY, InvalidToolEffectError
from dex_agents_pydantic_ai.tool_questions import SwallowedQuestionError, ToolInputRequired

__all__ = (
    "APPROVE",
    "CONTEXT_METADATA_KEY",
    "EFFECT_METADATA_KEY",
    "AgentRunRefusedError",
    "DepsFactory",
    "EnqueuedMessagesError",
    "IncompatibleFrameworkVersionError",
    "InvalidToolEffectError",
    "PydanticAIRunner",
    "RemoteTask",
    "ResolveModel",
    "SessionContext",
    "SwallowedQuestionError",
    "ToolInputRequired",
    "ToolTimedOutError",
    "UnreadableFrameworkItemError",
    "UnrenderableToolResultError",
    "create_pydantic_ai_session_flow",
    "current_tool_call",
)
