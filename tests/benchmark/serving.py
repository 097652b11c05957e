"""How a server answers many clients at once: errors, times, requests a second.

    python -m tests.benchmark.serving [--clients 50] [--seconds 60] [--tools 2000] [--json FILE]

A server process with made-up tools, and requests that the real model embeds. Each client searches,
calls a tool that answers at once, and so on without a pause; no request is made twice. Clients and
server share the machine. The status is 1 after an error, or where p95 is above five times p50.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from statistics import quantiles

from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.stored import Listing, StoredSource, StoredTool
from langchain_toolrag.server.options import ServerOptions
from langchain_toolrag.server.run import run_http
from langchain_toolrag.server.services import Services
from tests.benchmark.catalogue import MadeUpToolVectors, made_up_requests, made_up_tools

MOST_RATIO = 5
START_SECONDS = 120
ECHO = '''
from langchain_core.tools import tool

@tool
def echo(text: str) -> str:
    """Says the same."""
    return text

TOOLS = [echo]
'''
CALL = {"name": "echo/echo", "arguments": {"text": "hello"}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--tools", type=int, default=2_000)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--serve", nargs=2, metavar=("DIR", "PORT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(*arguments.serve)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        directory = make_directory(Path(folder), arguments.tools)
        results = measure(directory, arguments.clients, arguments.seconds)
    print(as_text(results))
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=1))
    ratios = [results[kind]["p95"] / results[kind]["p50"] for kind in ("search", "call")]
    return int(results["errors"] > 0 or max(ratios) > MOST_RATIO)


def serve(directory: str, port: str) -> None:
    options = ServerOptions(port=int(port))
    run_http(Services(directory, options, embeddings=MadeUpToolVectors()))


def make_directory(folder: Path, tools: int) -> Path:
    module = folder / "echo.py"
    module.write_text(ECHO)
    shop = [_stored("shop", **tool) for tool in made_up_tools(tools)]
    echo = _stored("echo", name="echo", description="Says the same.", parameters={})
    ToolDirectory(folder / "data").replace(
        [
            Listing(StoredSource("shop", "mcp", "made up"), shop),
            Listing(StoredSource("echo", "python", f"{module}:TOOLS"), [echo]),
        ]
    )
    return folder / "data"


def _stored(source, name, description, parameters):
    kind = "mcp" if source == "shop" else "python"
    return StoredTool(f"{source}/{name}", source, kind, name, description, parameters)


def measure(directory: Path, clients: int, seconds: float) -> dict:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "tests.benchmark.serving", "--serve", str(directory)]
    start = time.monotonic()
    process = subprocess.Popen([*command, str(port)], stderr=subprocess.DEVNULL)
    try:
        first, ready = wait_until_ready(process, port, start)
        results = asyncio.run(load(port, clients, seconds))
        return {"lexical after": first, "semantic after": ready, **results}
    finally:
        process.terminate()
        process.wait(30)


def wait_until_ready(process, port: int, start: float) -> tuple[float, float]:
    """Return after how many seconds it answered, and was ready."""
    first = 0.0
    while time.monotonic() < start + START_SECONDS and process.poll() is None:
        with contextlib.suppress(OSError):
            status, _ = asyncio.run(_once(port))
            now = time.monotonic() - start
            first = first or now
            if status == 200:
                return first, now
        time.sleep(0.02 if not first else 0.5)
    raise SystemExit("the server does not become ready")


async def _once(port: int) -> tuple[int, bytes]:
    async with Connection(port) as connection:
        return await connection.ask("GET", "/healthz")


async def load(port: int, clients: int, seconds: float) -> dict:
    times: dict[str, list[float]] = {"search": [], "call": []}
    errors: list[str] = []
    requests, number = made_up_requests(1_000), count()
    ends = time.monotonic() + seconds

    async def client() -> None:
        async with Connection(port) as connection:
            while time.monotonic() < ends:
                turn = next(number)
                query = f"{requests[turn % len(requests)]} {turn}"
                found = await timed(connection, "search", {"query": query})
                search_id = json.loads(found).get("search_id", "") if found else ""
                await timed(connection, "call", {**CALL, "search_id": search_id})

    async def timed(connection: Connection, kind: str, body: dict) -> bytes:
        start = time.perf_counter()
        status, answer = await connection.ask("POST", f"/v1/{kind}", body)
        times[kind].append(time.perf_counter() - start)
        if status != 200 or (kind == "call" and json.loads(answer)["outcome"] != "ok"):
            errors.append(f"{status} {answer[:200]!r}")
        return answer

    started = time.perf_counter()
    ended = await asyncio.gather(*(client() for _ in range(clients)), return_exceptions=True)
    errors += [repr(error) for error in ended if error is not None]
    spent = time.perf_counter() - started
    return {
        "clients": clients,
        "seconds": spent,
        "errors": len(errors),
        "first errors": errors[:3],
        "requests a second": sum(map(len, times.values())) / spent,
        **{kind: summary(values) for kind, values in times.items()},
    }


def summary(values: list[float]) -> dict[str, float]:
    cuts = quantiles(values, n=100)
    return {"number": len(values), "p50": cuts[49], "p95": cuts[94], "most": max(values)}


class Connection:
    """HTTP/1.1 without what a library adds to its times."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Connection:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *error: object) -> None:
        self.writer.close()

    async def ask(self, method: str, path: str, body: dict | None = None) -> tuple[int, bytes]:
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        )
        self.writer.write(head.encode() + content)
        answer = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(answer.split("content-length:")[1].split("\r\n")[0])
        return int(answer.split()[1]), await self.reader.readexactly(length)


def as_text(results: dict) -> str:
    lines = [
        f"{results['clients']} clients, {results['seconds']:.0f} s: {results['errors']} errors, "
        f"{results['requests a second']:.0f} requests/s; answers after "
        f"{results['lexical after']:.1f} s, by meaning after {results['semantic after']:.1f} s",
        *results["first errors"],
    ]
    for kind in ("search", "call"):
        found = results[kind]
        p50, p95, most = (1_000 * found[key] for key in ("p50", "p95", "most"))
        lines.append(
            f"{kind:7} {found['number']:7,}  p50 {p50:6.1f} ms  p95 {p95:6.1f} ms "
            f"({p95 / p50:.1f} times p50)  most {most:6.1f} ms"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
