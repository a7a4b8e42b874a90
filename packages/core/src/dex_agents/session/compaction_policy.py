"""When a session's context is compacted, and how much of it stays."""

from __future__ import annotations

from dataclasses import dataclass

from dex_agents.session.option_checks import check_ratio, check_whole_number

__all__ = ["CompactionPolicy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """Keeps the model input under the context window by summarising older messages.

    Args:
        context_window_tokens: The model's context window, one value for every model of the session.
        trigger_ratio: The share of the window at which messages are summarised.
        retained_ratio: The share of the window that the newest messages may keep.

    Raises:
        TypeError: A field has the wrong type; names it.
        ValueError: A field has a value it cannot have; names it.
    """

    context_window_tokens: int
    trigger_ratio: float = 0.85
    retained_ratio: float = 0.3

    def __post_init__(self) -> None:
        check_whole_number("compaction.context_window_tokens", self.context_window_tokens, 1)
        check_ratio("compaction.trigger_ratio", self.trigger_ratio)
        check_ratio("compaction.retained_ratio", self.retained_ratio)
        if self.retained_ratio >= self.trigger_ratio:
            raise ValueError(
                f"compaction.retained_ratio must be below trigger_ratio, or nothing could be summarised; "
                f"they are {self.retained_ratio} and {self.trigger_ratio}"
            )

    @property
    def trigger_tokens(self) -> int:
        """From this many tokens of model input on, messages are summarised."""
        return int(self.context_window_tokens * self.trigger_ratio)

    @property
    def retained_token_budget(self) -> int:
        """About how many tokens the messages after the summary may have."""
        return int(self.context_window_tokens * self.retained_ratio)
