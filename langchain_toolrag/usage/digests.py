"""Texts -> keyed digests, by which equal texts are known again and no text can be read."""

from __future__ import annotations

import hashlib
import hmac
import os
import tempfile
import unicodedata
from pathlib import Path
from typing import Literal, TypeAlias

from langchain_toolrag.errors import SourceError
from langchain_toolrag.usage.files import usage_files, writing

Purpose: TypeAlias = Literal["request", "arguments", "session", "tenant"]
"""What a text is; equal texts of two purposes have unequal digests."""

_KEY_NAME = ".key"
_KEY_BYTES = 32


class Digests:
    """Keyed digests of texts: HMAC-SHA256 [1].

    Args:
        key: 32 random bytes.

    References:
        [1] Krawczyk, Bellare and Canetti. HMAC: Keyed-Hashing for Message Authentication.
        RFC 2104, 1997. https://doi.org/10.17487/RFC2104
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, purpose: Purpose, text: str) -> str:
        """Return the digest of a text: 64 hexadecimal digits; empty for an empty text.

        Args:
            purpose: What the text is.
            text: The text. Its Unicode form (NFC) and blanks around it make no difference.

        Returns:
            The digest.
        """
        comparable = unicodedata.normalize("NFC", text).strip()
        if not comparable:
            return ""
        message = f"{purpose}\0{comparable}".encode("utf-8", "surrogatepass")
        return hmac.digest(self._key, message, hashlib.sha256).hex()


def open_digests(directory: Path) -> Digests:
    """Return the digests of a usage log, whose key is made once, by whoever comes first.

    Args:
        directory: The log's directory; made where there is none.

    Returns:
        Digests by the key in the directory.

    Raises:
        SourceError: If the key is not there although records are, or cannot be read.
        OSError: If the directory or a new key cannot be written.
    """
    path = directory / _KEY_NAME
    recorded = any(usage_files(directory))  # Looked for first: no record is older than the key.
    key = _read_key(path)
    if key is None and recorded:
        raise SourceError(
            str(path),
            "the key that the records beside it were digested with is missing. Put it back, or "
            "move the records away to begin a new log",
        )
    return Digests(_agreed_key(path) if key is None else key)


def _agreed_key(path: Path) -> bytes:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with writing(path.parent):
        return _read_key(path) or _new_key(path)


def _read_key(path: Path) -> bytes | None:
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError(
            str(path), f"the key of the usage log cannot be read: {error.strerror}"
        ) from error
    if len(key) != _KEY_BYTES:
        raise SourceError(
            str(path), f"the key of the usage log has {len(key)} bytes; wanted {_KEY_BYTES}"
        )
    return key


def _new_key(path: Path) -> bytes:
    """Write a key that is there whole or not at all, and never for others to read."""
    key = os.urandom(_KEY_BYTES)
    descriptor, part = tempfile.mkstemp(prefix=_KEY_NAME, dir=path.parent)  # Its mode is 0600.
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        Path(part).replace(path)
    except OSError:
        Path(part).unlink(missing_ok=True)
        raise
    return key
