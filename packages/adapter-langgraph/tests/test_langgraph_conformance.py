"""The conformance suite on LangChain's `create_agent`."""

from __future__ import annotations

from pathlib import Path

from dex_agents_conformance.adapter_loading import load_adapter

# The folder's name is no package name, so the class is loaded the way the suite's worker processes load it.
TestLangGraphConformance = load_adapter(f"{Path(__file__).with_name('conformance_adapter.py')}:Adapter")
