"""Everything this package raises on purpose.

    ToolRAGError
    ├── DuplicateToolError    (ValueError)   two tools would answer to one name
    ├── InvalidToolError      (ValueError)   something that cannot be indexed as a tool
    ├── UnknownToolError      (LookupError)  a name that no tool of the catalogue has
    ├── MissingStateKeyError  (LookupError)  a graph state without the keys the node writes
    ├── SourceError           (ValueError)   a file or module that tools cannot be read from
    ├── EmbeddingError        (RuntimeError) a model that will not load, or vectors that are wrong
    │   ├── AdapterError                     an adapter that cannot be read, or is another model's
    │   ├── EndpointError                    a server that gives no vectors
    │   ├── StillLoadingError                the model is being loaded in the background
    │   ├── BrokenExportError                a folder that holds no whole export of a model
    │   └── NotExportableError               a model that onnxruntime cannot run
    ├── StaleIndexError       (ValueError)   a saved index that does not fit what it is loaded with
    └── DatabaseError         (RuntimeError) a database that cannot be reached, or does not answer

Each says what was found, what was wanted and what to do, and keeps the offending value
as an attribute. Bad arguments raise plain `ValueError` or `TypeError`.
"""

from __future__ import annotations

from collections.abc import Sequence


class ToolRAGError(Exception):
    """Base of every error of this package: `except ToolRAGError` catches them all."""


class DuplicateToolError(ToolRAGError, ValueError):
    """Two tools would answer to one name.

    Args:
        name: The name both tools claim.
        origins: Where each of them comes from; at least two, the first two are shown.

    Attributes:
        name: The name both tools claim.
        origins: Where each of them comes from.
    """

    def __init__(self, name: str, origins: Sequence[str]) -> None:
        self.name = name
        self.origins = tuple(origins)
        super().__init__(
            f"two tools are named {name!r}: one from {self.origins[0]}, one from "
            f"{self.origins[1]}. Rename one, give each a server "
            "(metadata={'server': ...}) and pass on_duplicate='prefix', or use refresh() to "
            "replace a tool by its newer version."
        )


class InvalidToolError(ToolRAGError, ValueError):
    """Something that cannot be indexed as a tool.

    Args:
        message: What was found, what was wanted and what to do.
        tool: What was given.

    Attributes:
        tool: What was given.
    """

    def __init__(self, message: str, tool: object) -> None:
        self.tool = tool
        super().__init__(message)


class UnknownToolError(ToolRAGError, LookupError):
    """A name that no tool of the catalogue has.

    Args:
        names: The names that were not found, at least one.
        closest: Names of the catalogue that look like them, best first; may be empty.
        where: What gave the names; the message begins with it.

    Attributes:
        names: The names that were not found.
        closest: Names of the catalogue that look like them, best first.
    """

    def __init__(self, names: Sequence[str], closest: Sequence[str] = (), *, where: str) -> None:
        self.names = tuple(names)
        self.closest = tuple(closest)
        wanted = ", ".join(repr(name) for name in self.names)
        hint = f" Closest: {', '.join(self.closest)}." if self.closest else ""
        super().__init__(f"{where} names {wanted}, which the catalogue does not have.{hint}")


class MissingStateKeyError(ToolRAGError, LookupError):
    """A graph state without the keys that the selector node writes.

    Args:
        key: The key that was looked for.

    Attributes:
        key: The key that was looked for.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(
            f"the state has no {key!r}. LangGraph drops updates of keys that the state schema "
            "does not declare: let your state inherit from langchain_toolrag.ToolRAGState, and "
            "put the ToolRAGNode before the node that binds the tools."
        )


class SourceError(ToolRAGError, ValueError):
    """A file or module that tools cannot be read from.

    Args:
        source: The file or `module:attribute`.
        problem: What is wrong with it, and what was wanted.
        line: The line of the fault, from 1; None where no line is to blame.

    Attributes:
        source: The file or `module:attribute`.
        line: The line of the fault, from 1; None where no line is to blame.
    """

    def __init__(self, source: str, problem: str, *, line: int | None = None) -> None:
        self.source = source
        self.line = line
        place = source if line is None else f"{source}, line {line}"
        super().__init__(f"{place}: {problem}")


class EmbeddingError(ToolRAGError, RuntimeError):
    """An embedding model that cannot be loaded, or vectors that cannot be used."""


class AdapterError(EmbeddingError):
    """An adapter that cannot be read, or that was trained on another model.

    Args:
        adapter: The adapter's file, or its digest.
        problem: What is wrong with it, and what was wanted.

    Attributes:
        adapter: The adapter's file, or its digest.
    """

    def __init__(self, adapter: object, problem: str) -> None:
        self.adapter = adapter
        super().__init__(f"the adapter {adapter}: {problem}")


class StillLoadingError(EmbeddingError):
    """The model is being loaded, or tools embedded, in the background.

    Args:
        pending: How many tools have no vector yet.

    Attributes:
        pending: How many tools have no vector yet.
    """

    def __init__(self, pending: int) -> None:
        self.pending = pending
        waiting = f" and {pending} tools have no vector yet" if pending else ""
        super().__init__(f"the embedding model is being loaded{waiting}")


class StaleIndexError(ToolRAGError, ValueError):
    """A saved index that does not fit what it is loaded with.

    Args:
        what: What does not fit, such as the format or the model.
        found: What the saved index was made with.
        wanted: What it is to be used with.

    Attributes:
        found: What the saved index was made with.
        wanted: What it is to be used with.
    """

    def __init__(self, what: str, found: object, wanted: object) -> None:
        self.found = found
        self.wanted = wanted
        super().__init__(
            f"the saved index has {what} {found!r}, wanted {wanted!r}: "
            "index the tools again, or load it with what it was saved with."
        )


class DatabaseError(ToolRAGError, RuntimeError):
    """A database that cannot be reached, is not set up, or does not do what it is asked.

    Args:
        database: Which one, without its password.
        problem: What is wrong, and what to do.

    Attributes:
        database: Which one, without its password.
    """

    def __init__(self, database: str, problem: str) -> None:
        self.database = database
        super().__init__(f"the database ({database}) {problem}")
