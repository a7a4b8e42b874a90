"""Durable sessions for LangChain agents and LangGraph graphs."""

from __future__ import annotations

from dex_agents_langgraph.checkpoint_state import RefusedStateError
from dex_agents_langgraph.graph_runner import LangGraphRunner
from dex_agents_langgraph.model_calls import UndeferredToolError
from dex_agents_langgraph.model_step_context import (
    SessionModelStep,
    current_session_model_step,
    offered_tools,
    session_messages,
    session_tools,
)
from dex_agents_langgraph.remote_tasks import RemoteTask
from dex_agents_langgraph.session_flow import create_langgraph_session_flow
from dex_agents_langgraph.stored_messages import UnstorableMessageError
from dex_agents_langgraph.tool_call_context import SessionToolCall, current_session_tool_call

__all__ = (
    "LangGraphRunner",
    "RefusedStateError",
    "RemoteTask",
    "SessionModelStep",
    "SessionToolCall",
    "UndeferredToolError",
    "UnstorableMessageError",
    "create_langgraph_session_flow",
    "current_session_model_step",
    "current_session_tool_call",
    "offered_tools",
    "session_messages",
    "session_tools",
)
