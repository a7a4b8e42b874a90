"""`python -m dex_agents_server` is the `dex-agents` command."""

from __future__ import annotations

from dex_agents_server.command_line import main

main()
