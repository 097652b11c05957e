import logging
import subprocess
import sys

import pytest

import langchain_toolrag

NAMES = [
    "Hit",
    "Selection",
    "SelectionOptions",
    "ToolDocument",
    "ToolRAG",
    "ToolRAGError",
    "ToolRAGMiddleware",
    "ToolRAGNode",
    "ToolRAGState",
    "ToolRetriever",
    "create_react_agent",
    "create_search_tool",
]
HEAVY = ["torch", "transformers", "sentence_transformers", "langgraph", "langchain"]


def imported_by(statement, modules):
    """Which of the modules a fresh process has imported after a statement."""
    code = f"{statement}\nimport sys\nprint(*[name for name in {modules!r} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.split()


def test_the_public_names_are_these_in_this_order():
    assert langchain_toolrag.__all__ == NAMES
    assert dir(langchain_toolrag) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_resolves_to_what_bears_it(name):
    assert getattr(langchain_toolrag, name).__name__ == name


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_comes_from_this_package(name):
    assert getattr(langchain_toolrag, name).__module__.startswith("langchain_toolrag.")


def test_a_name_is_resolved_once():
    assert langchain_toolrag.ToolRAG is langchain_toolrag.ToolRAG
    assert "ToolRAG" in vars(langchain_toolrag)


@pytest.mark.parametrize("name", ["ToolRag", "utils", "_nothing"])
def test_an_unknown_name_is_an_attribute_error(name):
    with pytest.raises(AttributeError, match=f"'langchain_toolrag' has no attribute '{name}'"):
        getattr(langchain_toolrag, name)


def test_importing_the_package_imports_nothing_heavy():
    heavy = [*HEAVY, "faiss", "numpy", "langchain_core"]
    assert imported_by("import langchain_toolrag", heavy) == []


@pytest.mark.parametrize("name", ["ToolRAG", "SelectionOptions", "ToolDocument", "ToolRAGError"])
def test_the_names_without_an_agent_import_neither_torch_nor_langgraph(name):
    assert imported_by(f"from langchain_toolrag import {name}", HEAVY) == []


def test_the_librarys_logger_is_silent_by_itself():
    handlers = logging.getLogger("langchain_toolrag").handlers
    assert [type(handler) for handler in handlers] == [logging.NullHandler]
