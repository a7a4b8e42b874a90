"""One set of scenarios that proves an adapter for durable agent sessions; docs/write-an-adapter.md shows how."""

import pytest

# The entry point does not do it for an editable install, where a failing case would say "AssertionError" and no more.
pytest.register_assert_rewrite(
    "dex_agents_conformance.cases",
    "dex_agents_conformance.case_run",
    "dex_agents_conformance.stored_transcript",
)

from dex_agents_conformance.adapter_conformance import AdapterConformance  # noqa: E402
from dex_agents_conformance.capabilities import Capability  # noqa: E402
from dex_agents_conformance.conformance_case import unsupported  # noqa: E402
from dex_agents_conformance.conversation_script import (  # noqa: E402
    ConversationScript,
    ReasoningPart,
    ReplyPart,
    ScriptedReply,
    TextPart,
    ToolCallPart,
)
from dex_agents_conformance.provider_request import (  # noqa: E402
    ProviderRequest,
    RequestItem,
    RequestOutput,
    RequestToolResult,
    RequestUserText,
)
from dex_agents_conformance.result_values import RESULT_VALUES  # noqa: E402
from dex_agents_conformance.scripted_mcp_server import ScriptedMcpServer, ScriptedMcpTool  # noqa: E402
from dex_agents_conformance.scripted_tools import (  # noqa: E402
    ScriptedQuestion,
    ScriptedTask,
    ScriptedTool,
    ScriptedToolFailure,
)
from dex_agents_conformance.strict_provider import (  # noqa: E402
    ProviderCall,
    ReplyPiece,
    ScriptedModelFailure,
    StrictProvider,
    StrictProviderError,
)

__all__ = (
    "RESULT_VALUES",
    "AdapterConformance",
    "Capability",
    "ConversationScript",
    "ProviderCall",
    "ProviderRequest",
    "ReasoningPart",
    "ReplyPart",
    "ReplyPiece",
    "RequestItem",
    "RequestOutput",
    "RequestToolResult",
    "RequestUserText",
    "ScriptedMcpServer",
    "ScriptedMcpTool",
    "ScriptedModelFailure",
    "ScriptedQuestion",
    "ScriptedReply",
    "ScriptedTask",
    "ScriptedTool",
    "ScriptedToolFailure",
    "StrictProvider",
    "StrictProviderError",
    "TextPart",
    "ToolCallPart",
    "unsupported",
)
