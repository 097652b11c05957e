import ast
import inspect
import re
import sys
from pathlib import Path

import pytest
from fake_model import ScriptedModel
from fakes import make_catalogue

from langchain_toolrag import cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SERVERS = ROOT / "examples" / "servers"


@pytest.mark.filterwarnings("ignore::ResourceWarning")
async def test_every_python_block_of_the_readme_runs_in_order():
    names = {
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


def test_every_option_of_select_is_in_the_readme(capsys):
    with pytest.raises(SystemExit):
        cli.main(["select", "--help"])
    options = set(re.findall(r"--[a-z]+", capsys.readouterr().out)) - {"--help"}
    assert options
    assert {option for option in options if option not in README} == set()
