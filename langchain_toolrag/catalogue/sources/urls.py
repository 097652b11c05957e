"""A URL in -> what may be told and stored of it out."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from langchain_toolrag.errors import SourceError

_URL = re.compile(r"https?://", re.IGNORECASE)
_USER = re.compile(r"//[^/?#]*@")


def is_url(location: str | Path) -> bool:
    """Return whether a location is a URL of the web rather than a file or a command."""
    return _URL.match(str(location)) is not None


def split_url(url: str) -> SplitResult:
    """Split a URL into its parts.

    Args:
        url: The URL.

    Returns:
        Its parts.

    Raises:
        SourceError: If it is none, such as one of `http://[`.
    """
    try:
        return urlsplit(url)
    except ValueError as error:
        shown = _USER.sub("//", url).partition("?")[0]
        raise SourceError(shown, f"is no URL: {error}") from error


def without_secrets(url: str) -> str:
    """Return a URL without what may hold a secret: user, password, query and fragment.

    Args:
        url: The URL.

    Returns:
        The rest of it.

    Raises:
        SourceError: If it is none.
    """
    parts = split_url(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
