"""Texts in -> unit vectors out, made by a server: any OpenAI-compatible embeddings endpoint."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from langchain_core.embeddings import Embeddings
from pydantic import SecretStr

from langchain_toolrag.index.endpoint_answer import (
    Asked,
    is_passing,
    pause_before_another,
    vectors_of,
)
from langchain_toolrag.index.endpoint_client import EndpointClient, Outcome
from langchain_toolrag.types import Vectors

# Seconds between attempts. Somebody waits for a request, and words can answer it instead.
_TOOL_PAUSES = (0.5, 1.0, 2.0, 4.0)
_REQUEST_PAUSES = (0.25,)
_VERSION = re.compile(r"v\d\w*")


class EndpointEmbeddings(Embeddings):
    """A model behind an OpenAI-compatible `/v1/embeddings`: vLLM, Ollama, llama.cpp, OpenAI.

    Connections are kept open. Safe under threads, in any number of event loops and after a fork.
    An answer of 408, 429 or 5xx and a broken connection are tried again, for requests once and
    for tools four times, with growing pauses.

    Example:
        >>> model = EndpointEmbeddings("http://localhost:8000", model="Qwen/Qwen3-Embedding-8B")
        >>> rag = ToolRAG(tools, embeddings=model, index_options=IndexOptions(tool_text="json"))

    Args:
        url: The server's address, with or without `/v1` or `/v1/embeddings`.
        model: The name the model is served under.
        api_key: Sent as a bearer token, to this address alone; None for none.
        instruction: What requests are embedded with in front of them, as
            `Instruct: {instruction}` and `Query: {request}` on two lines; tools never are. Empty
            for none.
        batch_size: How many texts are sent at once, from 1.
        timeout: How many seconds the server may be silent.
        max_characters: Longer texts are cut at their end, since most servers refuse what is
            longer than the model reads; 6,000 are about 1,500 tokens of English.

    Attributes:
        url: Where texts are posted to.
        model: The name the model is served under.
        instruction: What stands in front of requests; empty for nothing.
        batch_size: How many texts are sent at once.
        timeout: How many seconds the server may be silent.
        max_characters: How much of a text is sent.

    Raises:
        ValueError: If the address, the key or a number cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str,
        api_key: str | None = None,
        instruction: str = "",
        batch_size: int = 32,
        timeout: float = 30.0,
        max_characters: int = 6_000,
    ) -> None:
        if not model.strip():
            raise ValueError("the model's name is empty; wanted the one it is served under")
        if min(batch_size, max_characters) < 1 or not timeout > 0:
            raise ValueError(
                f"batch_size is {batch_size}, max_characters {max_characters}, timeout {timeout}; "
                "wanted all above 0"
            )
        self.url = embeddings_url(url)
        self.model = model
        self.instruction = instruction
        self.batch_size = batch_size
        self.timeout = timeout
        self.max_characters = max_characters
        self._api_key = SecretStr(_usable_key(api_key or ""))
        self._client = EndpointClient(self.url, self._headers(), timeout)
        self._dim: int | None = None

    @property
    def model_name(self) -> str:
        """What tells its vectors from those of other models, endpoints and lengths of text."""
        return f"{self.model} at {self.url}, {self.max_characters} characters"

    def request_text(self, text: str) -> str:
        """Return what is embedded of a request: the instruction and the request."""
        return f"Instruct: {self.instruction}\nQuery: {text}" if self.instruction else text

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return one unit vector a text, without the instruction.

        Args:
            texts: Texts to embed.

        Returns:
            The vectors, in the order of the texts.

        Raises:
            EndpointError: If the server cannot be reached, refuses, or gives no usable vectors.
        """
        return [
            vector
            for batch in self._batches(texts)
            for vector in self._embed(batch, _TOOL_PAUSES).tolist()
        ]

    def embed_query(self, text: str) -> list[float]:
        """Return the unit vector of a request, with the instruction in front of it.

        Args:
            text: The request.

        Returns:
            Its vector, of length 1.

        Raises:
            EndpointError: As in `embed_documents`.
        """
        vector: list[float] = self._embed([self.request_text(text)], _REQUEST_PAUSES)[0].tolist()
        return vector

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """Return the same as `embed_documents`, without blocking the event loop."""
        return [
            vector
            for batch in self._batches(texts)
            for vector in (await self._aembed(batch, _TOOL_PAUSES)).tolist()
        ]

    async def aembed_query(self, text: str) -> list[float]:
        """Return the same as `embed_query`, without blocking the event loop."""
        vectors = await self._aembed([self.request_text(text)], _REQUEST_PAUSES)
        vector: list[float] = vectors[0].tolist()
        return vector

    def _embed(self, texts: Sequence[str], pauses: Sequence[float]) -> Vectors:
        body = self._body(texts)
        outcome = self._client.post(body)
        for pause in pauses:
            if not is_passing(outcome):
                break
            time.sleep(pause_before_another(outcome, pause))
            outcome = self._client.post(body)
        return self._vectors(outcome, len(texts))

    async def _aembed(self, texts: Sequence[str], pauses: Sequence[float]) -> Vectors:
        body = self._body(texts)
        outcome = await self._client.apost(body)
        for pause in pauses:
            if not is_passing(outcome):
                break
            await asyncio.sleep(pause_before_another(outcome, pause))
            outcome = await self._client.apost(body)
        return self._vectors(outcome, len(texts))

    def _vectors(self, outcome: Outcome, count: int) -> Vectors:
        key = self._api_key.get_secret_value()
        asked = Asked(self.url, self.model, count, self.timeout, key)
        vectors = vectors_of(outcome, asked, self._dim)
        self._dim = vectors.shape[1]
        return vectors

    def _batches(self, texts: Sequence[str]) -> Iterator[Sequence[str]]:
        for start in range(0, len(texts), self.batch_size):
            yield texts[start : start + self.batch_size]

    def _body(self, texts: Sequence[str]) -> dict[str, object]:
        return {"model": self.model, "input": [self._sent(text) for text in texts]}

    def _sent(self, text: str) -> str:
        """Return what can be sent of a text: OpenAI refuses empty ones, JSON broken characters."""
        cut = text[: self.max_characters].encode("utf-8", "replace").decode()
        return cut if cut.strip() else "-"

    def _headers(self) -> dict[str, str]:
        key = self._api_key.get_secret_value()
        return {"Authorization": f"Bearer {key}"} if key else {}


def embeddings_url(url: str) -> str:
    """Return the address that texts are posted to.

    Args:
        url: A server's address, with or without its version (`/v1`) and `/embeddings`.

    Returns:
        The address, which ends in `/embeddings`; one URL for all ways to write it.

    Raises:
        ValueError: If it is no HTTP address, or one with a password or a query in it, which would
            end up in messages and saved indexes.
    """
    wanted = "wanted an address such as http://localhost:8000/v1"
    try:
        parts = urlsplit(url.strip())
        host, port = (parts.hostname or "").rstrip("."), parts.port
    except ValueError as error:
        raise ValueError(f"the embeddings URL cannot be read ({error}); {wanted}") from error
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ValueError(
            f"the embeddings URL has more than host and path; {wanted}, and an api_key"
        )
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(f"the embeddings URL is {url!r}; {wanted}")
    shown = f"[{host}]" if ":" in host else host
    is_usual = port is None or port == {"http": 80, "https": 443}[parts.scheme]
    place = shown if is_usual else f"{shown}:{port}"
    return f"{parts.scheme}://{place}{_path(parts.path)}"


def _path(path: str) -> str:
    steps = [step for step in path.split("/") if step]
    if steps[-1:] == ["embeddings"]:
        return "/" + "/".join(steps)
    version = [] if any(_VERSION.fullmatch(step) for step in steps) else ["v1"]
    return "/" + "/".join([*steps, *version, "embeddings"])


def _usable_key(key: str) -> str:
    """Return a key without the line's end of the file it came from; no message shows it."""
    stripped = key.strip()
    if not (stripped.isascii() and stripped.isprintable()):
        raise ValueError("the API key has characters that no key has; wanted printable ASCII")
    return stripped
