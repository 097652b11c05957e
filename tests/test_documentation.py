import ast
import inspect
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from fake_model import ScriptedModel
from fakes import HashingEmbeddings, make_catalogue

from langchain_toolrag import cli
from langchain_toolrag.catalogue.sources.directory import ToolDirectory
from langchain_toolrag.catalogue.sources.python_tools import read_python
from langchain_toolrag.index.adapter import PACKAGED, Adapter, write_adapter

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SERVERS = ROOT / "examples" / "servers"


@pytest.fixture
def _learned(tmp_path, monkeypatch):
    """The files that the README's examples of `finetune` wrote."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.safetensors").write_bytes(PACKAGED.read_bytes())
    dim = len(HashingEmbeddings().embed_query("a request"))
    shapes = {"first.weight": (4, dim), "first.bias": (4,), "second.weight": (dim, 4)}
    shapes["second.bias"] = (dim,)
    weights = {
        f"{side}.{name}": np.zeros(shape)
        for side in ("request", "tool")
        for name, shape in shapes.items()
    }
    heads = Adapter("heads", "HashingEmbeddings", 1.0, weights, {})
    write_adapter(heads, tmp_path / "heads.safetensors")


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.usefixtures("_learned")
async def test_every_python_block_of_the_readme_runs_in_order(tmp_path, dsn):
    tools = read_python(f"{ROOT / 'examples' / 'tools.py'}:TOOLS", name="demo")
    ToolDirectory(tmp_path / "data").replace([tools])
    names = {
        "data": tmp_path / "data",
        "dsn": dsn,
        "MyEmbeddings": HashingEmbeddings,
        "model": ScriptedModel(),
        "tools": make_catalogue(),
        "connections": {
            "weather": {
                "transport": "stdio",
                "command": sys.executable,
                "args": [str(SERVERS / "weather_server.py")],
            }
        },
    }
    for block in BLOCKS:
        code = compile(block, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, names)
        if inspect.isawaitable(result):
            await result
    assert names["follow_up"].names[: len(names["selection"].names)] == names["selection"].names
    assert names["result"]["selected_tools"]


def test_ci_runs_the_readmes_test_command():
    command = re.search(r"pip install -e '\.\[offline,dev\]' && \.venv/bin/pytest", README)
    assert command is not None
    assert command.group().replace(".venv/bin/", "") in (ROOT / ".ci" / "run").read_text()


COMMANDS = [
    *("select", "search", "lint", "eval", "finetune", "ingest mcp", "ingest openapi"),
    *("ingest python", "list", "status", "call", "serve", "usage"),
    *("learn", "ab", "replay", "db upgrade"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_of_a_command_is_in_the_readme(command, capsys):
    with pytest.raises(SystemExit):
        cli.main([*command.split(), "--help"])
    options = set(re.findall(r"(?<!\w)--[a-z][a-z-]*", capsys.readouterr().out)) - {"--help"}
    assert options
    assert {option for option in options if option not in README} == set()
