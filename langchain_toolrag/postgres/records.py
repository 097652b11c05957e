"""Tool documents, ids and names in -> what columns can hold of them out, and documents back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from langchain_toolrag.types import ToolDocument, ToolId

_LONGEST_KEY = 500  # In bytes; an index takes rows of 2,700.
_DIGESTED = "\x01"
_FIELDS = fields(ToolDocument)
_DEFAULTS: Mapping[str, Any] = {
    field.name: frozenset() if field.name == "tags" else field.default
    for field in _FIELDS
    if field.default is not MISSING or field.name == "tags"
}
_TUPLES = ("words", "parameters", "values", "parameter_descriptions")


def stored_id(identity: ToolId) -> str:
    """Return what stands in the column `id` for a tool's id: itself, if a key can hold it.

    Else the character 1 and its digest. That goes for ids with a NUL or half a surrogate pair, ids
    of more than 500 bytes, and those that begin with this character themselves.
    """
    encoded = identity.encode("utf-8", "surrogatepass")
    is_plain = storable(identity) == identity and not identity.startswith(_DIGESTED)
    return identity if is_plain and len(encoded) <= _LONGEST_KEY else _DIGESTED + _digest(encoded)


def storable(text: str) -> str:
    """Return a text as a column can hold it: without NUL and halves of surrogate pairs."""
    if "\0" not in text and text.isascii():
        return text
    return text.replace("\0", "").encode("utf-8", "replace").decode()


def space_key(space: str) -> str:
    """Return what stands in a column `space`: the digest of a model's name, 32 hex digits."""
    return _digest(space.encode("utf-8", "surrogatepass"))


def tenant_key(tenant: str) -> str:
    """Return how a tenant is named to everybody who listens: by its digest, 32 hex digits."""
    return _digest(tenant.encode("utf-8", "surrogatepass"))


def written(document: ToolDocument) -> str:
    """Return a document as JSON, in ASCII: what is at its default is left out."""
    return json.dumps(_values(document), separators=(",", ":"))


def document_digest(document: ToolDocument) -> bytes:
    """Return 16 bytes that are the same for equal documents; `origin` is not compared."""
    values = _values(document)
    values.pop("origin", None)
    return bytes.fromhex(_digest(json.dumps(values, sort_keys=True).encode()))


def read_document(text: str) -> ToolDocument:
    """Return the document that `written` wrote; what a newer version wrote besides is passed over.

    Args:
        text: The JSON.

    Returns:
        The document.

    Raises:
        ValueError: If it is no document.
    """
    try:
        values: Mapping[str, Any] = json.loads(text)
        known = {field.name: values[field.name] for field in _FIELDS if field.name in values}
        known.update((name, tuple(known[name])) for name in _TUPLES if name in known)
        if "tags" in known:
            known["tags"] = frozenset(known["tags"])
        return ToolDocument(**known)
    except (KeyError, TypeError) as error:
        raise ValueError(f"is no tool document ({error}): {text:.80}") from error


def _values(document: ToolDocument) -> dict[str, Any]:
    values = {field.name: getattr(document, field.name) for field in _FIELDS}
    changed = {
        name: value
        for name, value in values.items()
        if name not in _DEFAULTS or value != _DEFAULTS[name]
    }
    if "tags" in changed:
        changed["tags"] = sorted(changed["tags"])
    return changed


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
