"""A media type in -> what kind of body it is out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

FORM = "application/x-www-form-urlencoded"
"""A body of `name=value`, as a form of a web page sends it."""

MULTIPART = "multipart/form-data"
"""A body of parts, as a form of a web page with files sends it."""


def bare_type(media_type: str) -> str:
    """Return a media type without its parameters, in lower case."""
    return media_type.partition(";")[0].strip().lower()


def is_json(media_type: str) -> bool:
    """Return whether a media type is JSON (`application/json`, `application/problem+json`)."""
    bare = bare_type(media_type)
    return bare in ("application/json", "text/json", "*/*") or bare.endswith("+json")


def is_text(media_type: str) -> bool:
    """Return whether a media type is text that is not JSON (`text/csv`, `application/xml`)."""
    bare = bare_type(media_type)
    written = bare.startswith("text/") or bare.endswith(("xml", "yaml", "javascript"))
    return (written and not is_json(bare)) or bare == FORM


def best_media_type(types: Sequence[str]) -> str:
    """Return the one that a model writes best: JSON, a form, text, then what comes first.

    Args:
        types: Media types, at least one.

    Returns:
        One of them.
    """
    ranks: tuple[Callable[[str], bool], ...] = (
        is_json,
        lambda media_type: bare_type(media_type) == FORM,
        lambda media_type: bare_type(media_type) == MULTIPART,
        is_text,
    )
    return next((found for fits in ranks for found in types if fits(found)), types[0])
