"""A model's client that repeats requests by itself multiplies what an attempt of the session costs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

__all__ = ["ClientRetryWarnings"]

_LOG = logging.getLogger(__name__)

#: Clients that repeat requests when the model says nothing of it.
_RETRY_BY_DEFAULT = frozenset({"openai", "azure_openai"})


class ClientRetryWarnings:
    """Names each kind of model once whose client has retries of its own."""

    def __init__(self) -> None:
        self._named: set[str] = set()

    def check(self, serialized: Mapping[str, Any] | None) -> None:
        """Look at the model that is about to be called.

        Args:
            serialized: What LangChain's callbacks say of it.
        """
        path = [str(part) for part in (serialized or {}).get("id") or ()]
        if not path or path[-1] in self._named:
            return
        retries = ((serialized or {}).get("kwargs") or {}).get("max_retries")
        if retries is None and _RETRY_BY_DEFAULT.isdisjoint(path):
            return
        if retries != 0:
            self._named.add(path[-1])
            _LOG.warning(
                "%s repeats failed requests by itself, so an attempt of the session may cost several; give it "
                "max_retries=0, since the session repeats failed attempts",
                path[-1],
            )
