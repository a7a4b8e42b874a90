"""Everything that an adapter's worker imports: a fork server can be told the names of modules only, so this is one.

Import it in such a process alone.
"""

from __future__ import annotations

import os

from dex_agents_conformance.adapter_loading import load_adapter
from dex_agents_conformance.worker_forks import ADAPTER_VARIABLE

__all__: list[str] = []

load_adapter(os.environ[ADAPTER_VARIABLE])
