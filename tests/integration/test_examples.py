"""Every example runs as a user runs it: a process of its own, with warnings as errors."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_demo_keeps_the_weather_tool_for_do_it_for_kolkata_too():
    printed = run("chatbot.py", "--demo")
    first, second = re.findall(r"you> (.*?)\n(.*?)bot> ", printed, re.DOTALL)[:2]
    assert first[0] == "whats the weather in durgapur?"
    assert second[0] == "do it for kolkata too"
    assert "get_weather" in first[1]
    assert "calls get_weather({'city': 'kolkata'})" in second[1]
    assert (
        len(re.findall(r"\d+ tools bound, [\d,]+ of [\d,]+ tokens \(\d+% saved\), \d+ ms", printed))
        == 7
    )
    assert "not a language model" in printed
    assert re.search(r"kept +.*get_weather_forecast", printed)  # What it shows is what is bound.


def test_the_mcp_chatbot_calls_tools_of_servers_that_run_as_processes():
    printed = run("mcp_chatbot.py", "--demo")
    assert "21 tools on 3 servers" in printed
    assert "kolkata: 33 C" in printed
    assert "Design review" in printed


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("state_graph.py", "kolkata: 31 C"),
        ("retriever.py", "1. weather/get_hourly_forecast"),
    ],
)
def test_the_example_prints_its_answer(name, answer):
    assert answer in run(name)


def test_the_middleware_example_gives_the_balance_only_to_who_may_see_it():
    permitted, forbidden = run("middleware.py").split("weather> ")[-2:]
    assert "EUR" in permitted
    assert "No bound tool fits" in forbidden
