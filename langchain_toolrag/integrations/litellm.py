"""A request to the LiteLLM proxy in -> the same with the tools it needs out.

LiteLLM need not be installed to import this; where it is, the filter is a callback of its proxy.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.embeddings import Embeddings

from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.integrations.brought_tools import BroughtTools
from langchain_toolrag.integrations.proxied_request import read_request
from langchain_toolrag.selection.options import SelectionOptions

if TYPE_CHECKING:
    _CustomLogger = object
else:
    try:
        from litellm.integrations.custom_logger import CustomLogger as _CustomLogger
    except ImportError:
        _CustomLogger = object

# The proxy's own: it shows no other logger's warnings, and with `--detailed_debug` level DEBUG.
logger = logging.getLogger("LiteLLM Proxy")


class ToolRAGFilter(_CustomLogger):
    """Leaves out the tools that a request to the LiteLLM proxy does not need.

    Requests are chat completions, responses and Anthropic's messages, streamed or not. They bring
    their own tools: no catalogue has to be known before. What stays keeps its order and is not
    changed, so that a provider's prompt cache is of use:

    - what is found for the user's words, and what was found in the conversation's earlier turns;
    - tools that were called, wherever in the history, and those that `tool_choice` names;
    - the providers' own tools, such as a web search, and definitions with `defer_loading`, which
      the provider searches itself;
    - definitions with `cache_control`, which marks a place in the list.

    A request goes on as it came, with all its tools, where it has few, where its conversation is
    kept by the provider (`previous_response_id`), and where anything goes wrong: of each cause
    the first is a warning in the proxy's log, further ones are of level DEBUG.

    Example:
        In `litellm_filter.py`, beside the proxy's `config.yaml`:

        >>> tool_filter = ToolRAGFilter(cache_dir="toolrag-cache")

        In `config.yaml`: `litellm_settings: {callbacks: [litellm_filter.tool_filter]}`.

    Args:
        embeddings: Any LangChain model, a sentence-transformers name or folder, or None for
            all-MiniLM-L6-v2.
        options: How tools are selected; what stays in any case comes on top of its `max_tools`.
            Of `always_include` counts what a request brings. `on_error` does not count.
        index_options: What is indexed of a tool; None for what `options` needs.
        cache_dir: A folder that keeps vectors, and the model as it is run, from process to
            process. None for none.
        min_tools: A request with fewer definitions is not touched.
        max_catalogues: How many sets of tools are kept indexed, those used last.
        timeout: How long a request may be held up, in seconds. Tools that take longer to index
            the first time are indexed while their requests go on unfiltered.

    Raises:
        ValueError: If `min_tools` or `max_catalogues` is below 1, `timeout` is not above 0, or
            options contradict each other.
    """

    def __init__(
        self,
        embeddings: Embeddings | str | None = None,
        *,
        options: SelectionOptions | None = None,
        index_options: IndexOptions | None = None,
        cache_dir: str | Path | None = None,
        min_tools: int = 20,
        max_catalogues: int = 64,
        timeout: float = 1.0,
    ) -> None:
        if min(min_tools, max_catalogues) < 1 or not timeout > 0:
            raise ValueError(
                f"min_tools is {min_tools}, max_catalogues {max_catalogues}, timeout {timeout}; "
                "wanted at least 1, at least 1, and more than 0 seconds"
            )
        super().__init__()
        self._tools = BroughtTools(
            embeddings,
            index_options=index_options,
            options=options or SelectionOptions(),
            cache_dir=cache_dir,
            max_catalogues=max_catalogues,
            timeout=timeout,
        )
        self._min_tools = min_tools
        self._timeout = timeout
        self._warned: set[tuple[type, ...]] = set()

    async def async_pre_call_hook(
        self, user_api_key_dict: Any, cache: Any, data: dict[str, Any], call_type: str
    ) -> dict[str, Any]:
        """Leave out what a request does not need; LiteLLM calls this before it sends one on.

        Args:
            user_api_key_dict: Who asks; not looked at.
            cache: LiteLLM's cache; not used.
            data: The request's body. Neither it nor anything in it is changed.
            call_type: LiteLLM's name of the endpoint; not looked at, the body says its shape.

        Returns:
            A copy of the body with fewer tools, or the body itself.
        """
        try:
            tools = await asyncio.wait_for(self._remaining(data), self._timeout)
        except Exception as error:  # A request is worth more than its filter.
            self._warn(error)
            return data
        return data if tools is None else {**data, "tools": tools}

    def close(self) -> None:
        """End the threads that select, once they have done what they are at."""
        self._tools.close()

    async def _remaining(self, data: dict[str, Any]) -> list[Any] | None:
        """Return the tools that stay; None where there is nothing to choose from, or by."""
        tools = data.get("tools") or []
        if len(tools) < self._min_tools:  # Most requests bring none: they need no thread.
            return None
        request = await self._tools.in_thread(lambda: read_request(data))
        if request is None or len(request.definitions) < self._min_tools:
            return None
        needed = await self._tools.needed(request)
        remaining = request.remaining(tools, needed)
        logger.debug("toolrag: %d of %d tools stay", len(remaining), len(tools))
        return remaining

    def _warn(self, error: Exception) -> None:
        """Log why a request keeps all its tools, the first time as a warning."""
        cause = (type(error), type(error.__cause__))
        level = logging.DEBUG if cause in self._warned else logging.WARNING
        self._warned.add(cause)
        problem = str(error) or f"not done within {self._timeout} s"
        kind = type(error).__name__
        logger.log(level, "toolrag: a request keeps all its tools: %s: %s", kind, problem)
