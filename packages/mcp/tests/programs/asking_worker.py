"""Runs a session until a server's question waits in it, and then until it is killed.

python asking_worker.py <directory> <directory of the server> [<url>]
"""

import asyncio
import importlib
import sys
from pathlib import Path

from dex_agents_mcp import McpHttpServer

sys.path.insert(0, str(Path(__file__).parents[2]))
scene = importlib.import_module("tests.mcp_scene")


async def main() -> None:
    if len(sys.argv) > 3:
        server = McpHttpServer(name="s", url=sys.argv[3])
    else:
        server = scene.RawPeer(Path(sys.argv[2]), "modern", "stdio").config()
    reply = scene.script([scene.call("s__ask")])
    async with scene.mcp_session(Path(sys.argv[1]), [server], reply) as session:
        await session.say()
        await session.question()
        print("asked", flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
