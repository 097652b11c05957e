"""MCP servers for tests: how to start one, over stdio and over HTTP."""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import odd_mcp_server

SCRIPT = str(Path(odd_mcp_server.__file__))
LIMIT_SECONDS = 60


def command(script=SCRIPT):
    """Return a server's command line."""
    return f"{sys.executable} {script}"


def odd(**environment):
    """Return the odd server as an mcp.json describes it."""
    return {"command": sys.executable, "args": [SCRIPT], "env": environment}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class HttpServer:
    """The odd server over HTTP; it can be ended and started again on its port."""

    def __init__(self, **environment):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._environment = {**os.environ, **environment}
        self.start()

    def start(self):
        self._process = subprocess.Popen(
            [sys.executable, SCRIPT, str(self.port)],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.05)
        raise TimeoutError(f"no server on port {self.port}")

    def end(self):
        self._process.kill()
        self._process.wait(LIMIT_SECONDS)
