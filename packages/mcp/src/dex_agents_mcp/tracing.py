"""Makes a call's stored trace the parent of its request's span, which the SDK opens and sends on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from opentelemetry import context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

__all__ = ["remote_parent"]


@contextlib.contextmanager
def remote_parent(traceparent: str | None) -> Iterator[None]:
    """Make a W3C `traceparent` current, unless a span of this process already is.

    Args:
        traceparent: The stored text; None changes nothing.
    """
    if traceparent is None or trace.get_current_span().get_span_context().is_valid:
        yield
        return
    token = context.attach(TraceContextTextMapPropagator().extract({"traceparent": traceparent}))
    try:
        yield
    finally:
        context.detach(token)
