"""Says in the log what the history says: pure code that raised, and Steps whose definition is gone."""

from __future__ import annotations

import logging

from dex_flow.kernel import Changes

__all__ = ["log_pure_failures"]

logger = logging.getLogger("dex_flow.embedded")


def log_pure_failures(flow_id: str, changes: Changes) -> None:
    """Log each such row of a committed change; the kernel adds one per Step and error text."""
    for row in changes.history:
        if row.outcome == "held" or (row.outcome == "failed" and row.method != "run"):
            logger.warning(
                "%s of step %s (execution %d, attempt %d) in flow %r %s: %s",
                row.method,
                row.step_type,
                row.step_execution_id,
                row.attempt,
                flow_id,
                row.outcome,
                row.detail,
            )
