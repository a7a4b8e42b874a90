"""The built-in agent loop of durable agent sessions: agent definitions, function tools and model clients."""

from dex_agents_stepwise.agent_definition import (
    AgentDefinition,
    InstructionContext,
    Instructions,
    ModelResolutionError,
    PlanningToolChoice,
    ResolveModel,
)
from dex_agents_stepwise.framework_items import (
    ModelOutputItem,
    StoredItem,
    StoredToolCall,
    ToolResultItem,
    UnreadableFrameworkItemError,
    UserTextItem,
    decode_framework_item,
    encode_framework_item,
)
from dex_agents_stepwise.function_tools import FunctionTool, ToolEffectName, function_tool
from dex_agents_stepwise.input_items import build_input_items
from dex_agents_stepwise.model_client import (
    ModelClient,
    ModelInputItem,
    ModelOutput,
    ModelRequest,
    ModelResponse,
    ModelSettings,
    ModelToolCall,
    ModelToolDefinition,
    ModelToolResult,
    ModelUserText,
    RequiredTool,
    TokenCounter,
)
from dex_agents_stepwise.scripted_model_client import (
    ScriptedModelClient,
    ScriptedModelReply,
    ScriptedReplyHold,
    ScriptedToolCall,
)
from dex_agents_stepwise.session_flow import create_stepwise_agent_session_flow
from dex_agents_stepwise.stepwise_agent_runner import StepwiseAgentRunner
from dex_agents_stepwise.tool_call_context import ToolCallContext
from dex_agents_stepwise.tool_questions import SwallowedQuestionError, ToolInputRequired
from dex_agents_stepwise.tool_results import UnrenderableToolResultError, render_tool_result
from dex_agents_stepwise.tool_sources import ListedTool, ToolSource, UnknownToolSourceError
from dex_agents_stepwise.tool_tasks import MissingToolTaskPollerError, ToolTaskContext, ToolTaskFunction

__all__ = (
    "AgentDefinition",
    "FunctionTool",
    "InstructionContext",
    "Instructions",
    "ListedTool",
    "MissingToolTaskPollerError",
    "ModelClient",
    "ModelInputItem",
    "ModelOutput",
    "ModelOutputItem",
    "ModelRequest",
    "ModelResolutionError",
    "ModelResponse",
    "ModelSettings",
    "ModelToolCall",
    "ModelToolDefinition",
    "ModelToolResult",
    "ModelUserText",
    "PlanningToolChoice",
    "RequiredTool",
    "ResolveModel",
    "ScriptedModelClient",
    "ScriptedModelReply",
    "ScriptedReplyHold",
    "ScriptedToolCall",
    "StepwiseAgentRunner",
    "StoredItem",
    "StoredToolCall",
    "SwallowedQuestionError",
    "TokenCounter",
    "ToolCallContext",
    "ToolEffectName",
    "ToolInputRequired",
    "ToolResultItem",
    "ToolSource",
    "ToolTaskContext",
    "ToolTaskFunction",
    "UnknownToolSourceError",
    "UnreadableFrameworkItemError",
    "UnrenderableToolResultError",
    "UserTextItem",
    "build_input_items",
    "create_stepwise_agent_session_flow",
    "decode_framework_item",
    "encode_framework_item",
    "function_tool",
    "render_tool_result",
)
