"""A session that is compacted as the session Flow does it, with every cut and every request checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dex_agents import AgentMessage, CompactionPolicy

from .stepwise_session_driver import SessionDriver


def is_cut(messages: Sequence[AgentMessage], cutoff: int) -> bool:
    """Whether the kept messages begin with no result, and the calls right before them have all of theirs."""
    kept = [message for message in messages if message.sequence > cutoff]
    cut = [message for message in messages if message.sequence <= cutoff]
    if not cut or not kept or kept[0].role == "tool":
        return False
    last_head = max(index for index, message in enumerate(cut) if message.role != "tool")
    return len(cut[last_head].tool_calls) == len(cut) - last_head - 1


class CompactingSession:
    """Compacts a driven session before each of its model steps.

    Args:
        session: The session.
        policy: When.
    """

    def __init__(self, session: SessionDriver, policy: CompactionPolicy) -> None:
        self.session = session
        self.policy = policy
        self.cutoffs: list[int] = []

    async def compact(self) -> None:
        """Compact as often as the session Flow would before the next model step: once at most helps."""
        for _ in range(2):
            turn = self.session.turn_context()
            runner = self.session.runner
            if runner.estimate_input_tokens(turn) < self.policy.trigger_tokens:
                return
            cutoff = runner.select_compaction_cutoff(turn, self.policy.retained_token_budget)
            if cutoff is None:
                return
            assert is_cut(turn.messages, cutoff)
            request = self.session.summary_request(cutoff, input_token_budget=self.policy.context_window_tokens)
            result = await runner.summarize_context(request)
            self.session.store_summary(result.text, cutoff)
            self.cutoffs.append(cutoff)
        raise AssertionError("compacting again made another cut, and would for ever")

    async def model_step(self) -> Any:
        await self.compact()
        return await self.session.model_step()
