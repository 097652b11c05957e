"""A name or a file in -> a way to find tools out."""

from __future__ import annotations

import dataclasses
import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from pydantic import TypeAdapter, ValidationError

from langchain_toolrag.catalogue.sources.json_files import first_fault, read_json
from langchain_toolrag.errors import SourceError
from langchain_toolrag.index.embedding import PACKAGED_ADAPTER
from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.selection.options import SelectionOptions

Way: TypeAlias = Literal["product", "classic", "semantic", "text"]
"""By what: ToolRAG.search and ToolRAG.select, ToolRAG's algorithm, meaning or words alone."""

_Options = TypeVar("_Options", SelectionOptions, IndexOptions)


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to find tools.

    Attributes:
        name: What it is called in reports.
        way: By what tools are found.
        options: How tools are selected; the product and ToolRAG's algorithm only.
        index_options: What is indexed; None for what `options` needs.
        adapter: The embedding model's adapter, as for MiniLMEmbeddings.
        heads: A file of learned heads, as for ToolRAG; None for none.
    """

    name: str
    way: Way = "product"
    options: SelectionOptions = field(default_factory=SelectionOptions)
    index_options: IndexOptions | None = None
    adapter: str | None = PACKAGED_ADAPTER
    heads: str | None = None

    @property
    def indexed_by(self) -> IndexOptions:
        """What is indexed."""
        own = IndexOptions.classic() if self.way == "classic" else IndexOptions()
        return self.index_options or own

    @property
    def needs_vectors(self) -> bool:
        """Whether it is nothing without an embedding model."""
        return self.way in ("classic", "semantic") or self.heads is not None


BUILT_IN: Mapping[str, Contender] = {
    contender.name: contender
    for contender in (
        Contender("default"),
        Contender("classic", "classic", SelectionOptions.classic(), adapter=None),
        Contender("semantic", "semantic", SelectionOptions(similarity_threshold=0)),
        Contender("text", "text"),
    )
}
"""Contenders by name: our defaults, ToolRAG's algorithm, and meaning and words (BM25) alone."""


def read_contender(name: str) -> Contender:
    """Return the contender of a name, or the one that a file describes.

    Args:
        name: A built-in one's, or a `.json` file: an object whose `selection` holds fields of
            SelectionOptions and whose `index` holds fields of IndexOptions; `adapter` is null for
            none or the file of one, and so is `heads`. All may be left out.

    Returns:
        The contender; one from a file is named as the file was.

    Raises:
        SourceError: If there is no such contender, or the file cannot be read or holds fields or
            values that these options do not have.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    if Path(name).suffix != ".json":
        raise SourceError(name, f"no such options; wanted {', '.join(BUILT_IN)} or a .json file")
    described = read_json(Path(name))
    if not isinstance(described, dict):
        raise SourceError(name, f"wanted an object, found {described!r:.80}")
    _refuse_unknown(name, described, ("selection", "index", "adapter", "heads"), "key")
    options = _options(name, SelectionOptions, described.get("selection", {}), "selection")
    index = (
        _options(name, IndexOptions, described["index"], "index") if "index" in described else None
    )
    is_classic = options.algorithm == "classic"
    if is_classic and index not in (None, IndexOptions.classic()):
        raise SourceError(name, "the classic algorithm needs ToolRAG's index; leave 'index' out")
    adapter = _file(name, described, "adapter", None if is_classic else PACKAGED_ADAPTER)
    heads = _file(name, described, "heads", None)
    if heads is not None and Path(heads).suffix != ".safetensors":
        raise SourceError(name, f"'heads' is {heads!r:.80}; wanted a .safetensors file or null")
    return Contender(name, "classic" if is_classic else "product", options, index, adapter, heads)


def _file(source: str, described: Mapping[str, Any], key: str, default: str | None) -> str | None:
    value = described.get(key, default)
    if value is not None and not isinstance(value, str):
        raise SourceError(source, f"{key!r} is {value!r:.80}; wanted a file's name or null")
    return value


def _options(source: str, kind: type[_Options], value: object, key: str) -> _Options:
    if isinstance(value, dict):
        known = [option.name for option in dataclasses.fields(kind)]
        _refuse_unknown(source, value, known, f"field of {key!r}")
    try:
        # Strict JSON: a list is a tuple, but "5" is not 5.
        return TypeAdapter(kind).validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        raise SourceError(source, f"in {key!r}, {first_fault(error)}") from error


def _refuse_unknown(
    source: str, given: Mapping[str, Any], known: list[str] | tuple[str, ...], what: str
) -> None:
    for name in given:
        if name not in known:
            closest = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {closest[0]!r}?" if closest else ""
            raise SourceError(source, f"{name!r} is no {what}; known: {', '.join(known)}.{hint}")
