"""Calls the stubborn server's tool until it is killed.

python calling_worker.py <directory>
"""

import asyncio
import sys
from pathlib import Path

from dex_agents_mcp import McpStdioServer, McpToolSource


async def main() -> None:
    program = Path(__file__).with_name("stubborn_server.py")
    server = McpStdioServer(name="s", command=sys.executable, args=[str(program), sys.argv[1]], protocol="legacy")
    source = McpToolSource([server])
    await source.list_tools(refresh=True)
    print("listed", flush=True)
    await source.call_tool("s__hang", {}, idempotency_key="k")


asyncio.run(main())
