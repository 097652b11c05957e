"""Marks for what LangChain and LangGraph themselves do only in their newer versions."""

from importlib.metadata import version

import pytest

NEW = (1, 3)


def _is_old(package):
    return tuple(map(int, version(package).split(".")[:2])) < NEW


edits_keep_the_call = pytest.mark.skipif(
    _is_old("langchain"), reason="this LangChain rewrites the call that a human edits"
)
runtime_tells_tools = pytest.mark.skipif(
    _is_old("langchain"), reason="this LangGraph does not tell which tools an agent has"
)
