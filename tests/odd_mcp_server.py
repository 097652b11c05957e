"""An MCP server whose tools go wrong on purpose: `python odd_mcp_server.py [stdio | PORT]`.

Environment: ODD_LIST is `twice`, `endless`, `broken` or a number of tools to list on pages of ten;
ODD_FILE is where each start and each call writes a line.
"""

import asyncio
import os
import sys
from pathlib import Path

from mcp import types
from mcp.server.fastmcp import Context, FastMCP, Image

server = FastMCP("odd", log_level="ERROR")


def note(text):
    if "ODD_FILE" in os.environ:
        with Path(os.environ["ODD_FILE"]).open("a") as file:
            file.write(f"{text}\n")


@server.tool()
def echo(text: str) -> str:
    """Say the text again."""
    note(f"echo {text}")
    return text


@server.tool(annotations=types.ToolAnnotations(destructiveHint=True), title="Delete it all")
def wipe() -> str:
    """Delete everything."""
    note("wipe")
    return "gone"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("the disk is on fire")


@server.tool()
async def wait(seconds: float) -> str:
    """Wait."""
    note("wait")
    await asyncio.sleep(seconds)
    return "waited"


@server.tool()
def crash() -> str:
    """End the server in the middle of a call."""
    note("crash")
    sys.stderr.write("out of cheese\n")
    sys.stderr.flush()
    os._exit(3)


@server.tool()
def variable(name: str) -> str:
    """Return a variable of the server's environment."""
    return os.environ.get(name, "not set")


@server.tool()
def process() -> str:
    """Return the id of the server's process."""
    return str(os.getpid())


@server.tool()
def header(context: Context, name: str) -> str:
    """Return a header of the request."""
    request = context.request_context.request
    return request.headers.get(name, "not sent") if request is not None else "no request"


@server.tool()
def picture() -> Image:
    """Return a picture."""
    return Image(data=b"12345678", format="png")


@server.tool()
def long(size: int) -> str:
    """Return a long text."""
    return "x" * size


@server.tool()
def config(config: str, self: str, run_manager: str) -> str:
    """Take arguments with names that LangChain has a use for."""
    return f"{config} {self} {run_manager}"


def extra(city: str) -> str:
    """Buy tickets for a football game in a city."""
    return f"two for {city}"


@server.tool()
async def grow(context: Context) -> str:
    """Give the server one tool more, and say so several times."""
    server.add_tool(extra)
    for _ in range(5):
        await context.session.send_tool_list_changed()
    return "grown"


@server.tool()
async def rot(context: Context) -> str:
    """Make the server's list fail from now on, and say that it changed."""
    os.environ["ODD_LIST"] = "broken"
    await context.session.send_tool_list_changed()
    return "rotten"


def _numbered(first, last):
    schema = {"type": "object", "properties": {}}
    return [types.Tool(name=f"tool_{n}", inputSchema=schema) for n in range(first, last)]


def _page(cursor):
    kind = os.environ.get("ODD_LIST", "")
    start = int(cursor or 0)
    if kind == "twice":
        return types.ListToolsResult(tools=[*_numbered(0, 2), *_numbered(1, 3)])
    if kind == "endless":
        return types.ListToolsResult(tools=_numbered(start, start + 1), nextCursor="1")
    if kind == "broken":
        raise ValueError("the list is lost")
    end = min(int(kind), start + 10)
    more = str(end) if end < int(kind) else None
    return types.ListToolsResult(tools=_numbered(start, end), nextCursor=more)


_listed = server._mcp_server.request_handlers[types.ListToolsRequest]


async def _list(request):
    if not os.environ.get("ODD_LIST"):
        return await _listed(request)
    return types.ServerResult(_page(request.params.cursor if request.params else None))


server._mcp_server.request_handlers[types.ListToolsRequest] = _list

if __name__ == "__main__":
    note("start")
    if sys.argv[1:] in ([], ["stdio"]):
        server.run()
    else:
        server.settings.port = int(sys.argv[1])
        server.run("streamable-http")
