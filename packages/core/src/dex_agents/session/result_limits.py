"""The size limit of tool results: a larger one fails its call or is cut visibly, and is never tried again."""

from __future__ import annotations

from dex_agents.runner_outcomes import ToolExecutionResult
from dex_agents.session.options import AgentSessionOptions
from dex_agents.session.outcomes import ToolCallFailed, ToolCallSucceeded
from dex_agents.session.sanitizer import sanitize_json_text, sanitize_text, text_size
from dex_agents.session.texts import result_dropped_text, result_truncated_mark

__all__ = ["limit_tool_result"]


def limit_tool_result(
    tool_name: str, result: ToolExecutionResult, options: AgentSessionOptions
) -> ToolCallSucceeded | ToolCallFailed:
    """The repaired result within the session's limits.

    Args:
        tool_name: Named in the failure.
        result: What the tool returned.
        options: The limit, and what a larger output does. The opaque `framework_result` is never cut; one above the
            limit of messages fails the call.

    Raises:
        TypeError: A text of the result is not a string.
    """
    framework_result = None
    if result.framework_result is not None:
        framework_result = sanitize_json_text(result.framework_result)
        size = text_size(framework_result)
        if size > options.max_message_bytes:
            return ToolCallFailed(message=result_dropped_text(tool_name, size, options.max_message_bytes))
    output = sanitize_text(result.output)
    limit = options.max_tool_result_bytes
    if len(output) * 4 > limit and (size := text_size(output)) > limit:
        if options.tool_result_overflow == "fail":
            return ToolCallFailed(message=result_dropped_text(tool_name, size, limit))
        mark = result_truncated_mark(size, limit)
        output = output.encode()[: limit - len(mark)].decode(errors="ignore") + mark
    return ToolCallSucceeded(output=output, framework_result=framework_result)
