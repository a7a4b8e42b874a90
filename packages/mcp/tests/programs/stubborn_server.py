"""A server that answers everything but the call, ignores the end of its input and SIGTERM, and has a child that does.

python stubborn_server.py <directory>
"""

import json
import os
import signal
import sys
import time
from pathlib import Path

ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "s", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "hang", "inputSchema": {"type": "object"}}]},
}


def main() -> None:
    directory = Path(sys.argv[1])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        (directory / f"{os.getpid()}.pid").touch()
        time.sleep(600)
        os._exit(0)
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "tools/call":
            (directory / f"{os.getpid()}.pid").touch()
        elif "id" in message:
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": ANSWERS[message["method"]]}), flush=True)
    time.sleep(600)


main()
