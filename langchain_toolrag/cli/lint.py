"""`toolrag lint`: tools in -> what a search will not find, and what to do about it, out."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby

from langchain_toolrag.catalogue.sources.files import read_tools
from langchain_toolrag.cli.arguments import (
    Commands,
    add_cache_argument,
    add_model_arguments,
    add_tools_argument,
    model_of,
)
from langchain_toolrag.cli.progress import progress_bar
from langchain_toolrag.linting.finding import CODES, Finding
from langchain_toolrag.linting.lint import lint
from langchain_toolrag.toolrag import ToolRAG

_FOUND = 1
_EPILOG = f"""\
exit status:
  0  no findings
  1  findings, or an error, which is printed
  2  a malformed command line

codes:
  {textwrap.fill(", ".join(CODES), 76, subsequent_indent="  ", break_on_hyphens=False)}
"""


def register(commands: Commands) -> None:
    """Add the command to the parser."""
    command = commands.add_parser(
        "lint",
        help="say which tools will not be found, and what to do about it",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_EPILOG,
    )
    command.set_defaults(run=_lint)
    add_tools_argument(command)
    command.add_argument(
        "--ignore", type=_codes, default=(), metavar="CODE,...", help="leave these findings out"
    )
    add_model_arguments(command)
    add_cache_argument(command)
    command.add_argument("--json", action="store_true", help="print JSON")


def _lint(arguments: argparse.Namespace) -> int:
    tools = read_tools(arguments.tools)
    with ToolRAG(tools, on_duplicate="prefix", **model_of(arguments)) as rag:
        if not arguments.lexical:
            with progress_bar("embedding") as advance:
                rag.index(progress=advance)
        with progress_bar("searching") as advance:
            every = lint(rag, lexical=arguments.lexical, progress=advance)
        size = len(rag.catalogue) + len(rag.catalogue.rejected)
    findings = [finding for finding in every if finding.code not in arguments.ignore]
    print(_as_json(findings) if arguments.json else _as_text(findings, size))
    return _FOUND if findings else 0


def _codes(text: str) -> tuple[str, ...]:
    codes = tuple(code.strip() for code in text.split(",") if code.strip())
    unknown = [code for code in codes if code not in CODES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"{unknown[0]!r} is no code; the codes are {', '.join(CODES)}"
        )
    return codes


def _as_json(findings: Sequence[Finding]) -> str:
    return json.dumps([asdict(finding) for finding in findings], ensure_ascii=False, indent=2)


def _as_text(findings: Sequence[Finding], size: int) -> str:
    """Return the findings under their tools, messages aligned, and how many there are."""
    width = max((len(finding.code) for finding in findings), default=0)
    lines: list[str] = []
    for tool, of_tool in groupby(findings, key=lambda finding: finding.tool):
        lines.append(tool)
        for finding in of_tool:
            lines.append(f"    {finding.code:{width}}  {finding.message}")
            lines.append(f"    {'':{width}}  -> {finding.suggestion}")
        lines.append("")
    return "\n".join([*lines, _summary(findings, size)])


def _summary(findings: Sequence[Finding], size: int) -> str:
    found = _counted(len(findings), "finding")
    if not findings:
        return f"{found} in {_counted(size, 'tool')}"
    tools = len({finding.tool for finding in findings})
    return f"{found} in {tools} of {_counted(size, 'tool')}"


def _counted(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"
