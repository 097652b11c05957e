"""A selection and the other tools in -> a request's tools, the others deferred, out.

Anthropic and OpenAI can search tools themselves: those marked `defer_loading` are sent with the
request, and the model sees one only after the provider's search tool found it. What a selection
leaves out is so not out of reach. Tools that were found stand in the history, not in the prompt's
prefix, and leave the prompt cache as it is.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import langchain.agents.middleware as middleware_module
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.runnables import RunnableBinding
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

from langchain_toolrag.catalogue.document import server_of
from langchain_toolrag.catalogue.names import bound_name
from langchain_toolrag.selection.bindable import tool_name
from langchain_toolrag.types import Tool

Provider: TypeAlias = Literal["anthropic", "openai"]
"""A provider that searches deferred tools."""

_MARK = "defer_loading"
_PROVIDERS_OWN = "provider_tool_definition"  # Where langchain-anthropic's tools keep theirs.
_SEARCH_TYPE = "tool_search"
_MOST_DEFERRED = 10_000  # Anthropic refuses more.
_NAMESPACE_SIZE = 9  # OpenAI advises fewer than ten: one is loaded whole.
_WITHOUT_SERVER = "tools"

# Anthropic: Sonnet 4, Opus 4 and later; Haiku 4.5 refuses what the search returns.
_CLAUDE = re.compile(r"claude-(?!haiku)[a-z]+-(\d{1,2})(?!\d)")
_FIRST_CLAUDE = 4
# OpenAI: GPT-5.4 and later, but for the variants made for other things and the smallest one.
_GPT = re.compile(r"gpt-(\d+)(?:\.(\d+))?(?=-|$)")
_FIRST_GPT = (5, 4)
_OTHER_GPTS = frozenset({"nano", "chat", "audio", "realtime", "image", "search"})

# The second of each is the form of LangChain's `output_version="v1"`.
_SEARCH_RESULTS: dict[Provider, tuple[str, str]] = {
    "anthropic": ("tool_search_tool_result", "server_tool_result"),
    "openai": ("tool_search_output", "server_tool_result"),
}
_CALLS = ("function_call", "tool_call")
_UNFIT_ROOTS = frozenset({"oneOf", "anyOf", "allOf", "not", "enum"})


@dataclass(frozen=True, slots=True)
class NativeSearch:
    """How a provider searches deferred tools itself.

    Attributes:
        provider: The provider.
        tool: Its search tool, as a request holds it.
    """

    provider: Provider
    tool: Mapping[str, Any]


_ANTHROPIC = NativeSearch(
    "anthropic", {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
)
_OPENAI = NativeSearch("openai", {"type": "tool_search"})
# What hands the marks, the search and what it found on to the provider and back into the history.
_INTEGRATIONS: dict[Provider, tuple[str, tuple[int, ...]]] = {
    "anthropic": ("langchain-anthropic", (1, 3)),
    "openai": ("langchain-openai", (1, 1, 12)),
}


def native_search(model: object) -> NativeSearch | None:
    """Return how a chat model's provider searches deferred tools.

    Where that is not certain the answer is None: a provider refuses a request that holds a search
    tool it does not know. Certain are Claude Sonnet 4, Opus 4 and later ones at Anthropic itself,
    and GPT-5.4 and later ones at OpenAI itself, but for its smallest, where the model uses the
    Responses API already; and only through langchain-anthropic 1.3 and langchain-openai 1.1.12 or
    later, which pass deferred tools on.

    Args:
        model: A chat model, or one wrapped by `bind`, `bind_tools` or `with_config`.

    Returns:
        The provider's search; None for all other models, those that are chosen as the agent runs
        among them. Never raises.
    """
    inner, named = _unwrapped(model)
    if not isinstance(inner, BaseChatModel):
        return None
    try:
        found = _of_provider(inner, named)
        return found if found is not None and _is_passed_on(found.provider) else None
    # Models of all kinds come here, and what one cannot tell of itself is no reason to fail.
    except Exception:
        return None


def is_deferred(tool: Tool) -> bool:
    """Return whether the user or another middleware marked a tool as deferred.

    Args:
        tool: A tool, a function or a definition as a dict.

    Returns:
        Whether it bears `defer_loading`: a tool in its `extras`, a dict beside its name.
    """
    if isinstance(tool, BaseTool):
        return (tool.extras or {}).get(_MARK) is True
    if not isinstance(tool, dict):
        return False
    function = tool.get("function")
    return tool.get(_MARK) is True or (isinstance(function, dict) and function.get(_MARK) is True)


def claimed_by_provider_search(middlewares: Iterable[object]) -> frozenset[str] | None:
    """Return the tools that LangChain's ProviderToolSearchMiddleware defers in an agent.

    They have to be in the request whatever was selected: behind us that middleware raises where
    one is missing. It adds its search tool to every request that holds a deferred tool, one that
    is there or not, so that in an agent with it only it may defer.

    Args:
        middlewares: The agent's middlewares.

    Returns:
        Names of the tools; None where the agent has no such middleware. One without names defers
        the tools that are marked already.
    """
    kind = getattr(middleware_module, "ProviderToolSearchMiddleware", None)
    claims = [each for each in middlewares if kind is not None and isinstance(each, kind)]
    if not claims:
        return None
    return frozenset().union(*(claim.searchable_tool_names for claim in claims))


class DeferredTools:
    """Builds the tools of requests; keeps the deferred form of each tool for the next one."""

    def __init__(self) -> None:
        self._forms: dict[tuple[Provider, int], tuple[Tool, Tool | None]] = {}

    def with_deferred(
        self,
        bound: Sequence[Tool],
        rest: Sequence[Tool],
        native: NativeSearch | None,
        *,
        messages: Iterable[BaseMessage] = (),
        required: Collection[str] = (),
    ) -> list[Tool]:
        """Return the tools of a request: deferred ones, the search tool, then what is bound.

        In this order a request ends as it does without deferred tools: with the latest selected
        tool, onto which a caching middleware puts its mark (on a deferred tool Anthropic refuses
        it). Neither provider has deferred tools in the prompt's prefix (OpenAI has the names and
        descriptions of their namespaces, which do not change with the selection), so that the
        prefix is the search tool and `bound`, and grows at its end as `bound` does.

        A tool that is selected goes from deferred to bound, and costs what a selected tool costs
        without deferral: the provider reads all behind it anew, once. It stays bound, as going
        back would cost that again. The exception are tools that the provider's search found: the
        model has them already, in the history, so they stay deferred while the history shows it.

        OpenAI holds a call in the history against where the tool is now. A tool that was called
        while it was bound is therefore left out, not deferred, once it is not bound.

        Args:
            bound: What passes through and what is selected, in order.
            rest: The catalogue's tools that may be called now, in its order, as they would be
                bound. Those in `bound` may be among them and are not deferred; with all of them
                in it at each step OpenAI's namespaces stay the same.
            native: The provider's search; None for `bound` as it is.
            messages: The history that the request has.
            required: Names of tools that must be bound, such as that of `tool_choice`.

        Returns:
            The tools. Those of `bound` are the same objects. Of the rest a BaseTool is deferred
            as a copy with `extras["defer_loading"]`, anything else as a dict, for OpenAI all in
            namespaces of up to nine by server. Equal objects give the same copies. Left out are
            tools whose schema providers refuse (its root is not a plain object), as it would take
            every request down.
        """
        if native is None:
            return list(bound)
        history = _read_history(messages, native.provider)
        forms = self._forms_of(rest, native.provider)
        found = history.found.intersection(tool_name(tool) for tool, _ in forms) - set(required)
        marked = [tool for tool in bound if is_deferred(tool)]
        kept = [tool for tool in bound if not is_deferred(tool) and tool_name(tool) not in found]
        here = {tool_name(tool) for tool in [*marked, *kept]}
        if native.provider == "openai":
            deferred = [*marked, *_namespaces(forms, here | history.plain)]
        else:
            deferred = [*marked, *(form for tool, form in forms if tool_name(tool) not in here)]
        if not deferred:
            return kept
        has_search = any(_is_search_tool(tool) for tool in bound)
        return [*deferred, *([] if has_search else [dict(native.tool)]), *kept]

    def _forms_of(self, rest: Sequence[Tool], provider: Provider) -> list[tuple[Tool, Tool]]:
        """Return the tools that can be deferred, each with its deferred form."""
        pairs = []
        for tool in rest[:_MOST_DEFERRED]:
            key = (provider, id(tool))
            known = self._forms.get(key)
            if known is None:
                known = self._forms.setdefault(key, (tool, _deferred_form(tool, provider)))
            if known[1] is not None:
                pairs.append((tool, known[1]))
        self._forget_all_but(rest)
        return pairs

    def _forget_all_but(self, rest: Sequence[Tool]) -> None:
        """Let go of tools that are no longer there once they are most of what is kept."""
        if len(self._forms) > 4 * len(rest) + 100:
            present = {id(tool) for tool in rest}
            self._forms = {key: known for key, known in self._forms.items() if key[1] in present}


@dataclass(frozen=True, slots=True)
class _History:
    """By name: tools that the provider's search found, and tools called out of no namespace."""

    found: frozenset[str]
    plain: frozenset[str]


def _read_history(messages: Iterable[BaseMessage], provider: Provider) -> _History:
    found: set[str] = set()
    plain: set[str] = set()
    for message in messages:
        if isinstance(message, AIMessage):
            content = message.content if isinstance(message.content, list) else []
            blocks = [block for block in content if isinstance(block, dict)]
            results = [block for block in blocks if block.get("type") in _SEARCH_RESULTS[provider]]
            calls = [block for block in blocks if provider == "openai" and _is_namespaced(block)]
            namespaced = {str(block.get("name")) for block in calls}
            plain |= {call["name"] for call in message.tool_calls} - namespaced
            found.update(namespaced, _named_in(results))
    return _History(frozenset(found - plain if provider == "openai" else found), frozenset(plain))


def _is_namespaced(block: Mapping[str, Any]) -> bool:
    """Whether a block is a call of OpenAI's form that names the namespace its tool is in."""
    if block.get("type") not in _CALLS:
        return False
    return bool(block.get("namespace") or (block.get("extras") or {}).get("namespace"))


def _named_in(part: object) -> Iterator[str]:
    """Yield the tools in a search's result: Anthropic refers to them, OpenAI gives them whole."""
    if isinstance(part, Mapping):
        if part.get("type") == "tool_reference":
            yield str(part.get("tool_name"))
        elif part.get("type") == "function":
            yield str(part.get("name"))
        else:
            for inner in part.values():
                yield from _named_in(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from _named_in(inner)


def _namespaces(
    forms: Sequence[tuple[Tool, Tool]], without: Collection[str]
) -> Iterator[dict[str, Any]]:
    """Yield namespaces whose division and descriptions do not depend on what is left out."""
    servers: dict[str, list[tuple[str, Tool]]] = {}
    for tool, form in forms:
        servers.setdefault(_server(tool), []).append((tool_name(tool), form))
    for server, members in servers.items():
        for start in range(0, len(members), _NAMESPACE_SIZE):
            part = members[start : start + _NAMESPACE_SIZE]
            tools = [form for name, form in part if name not in without]
            if tools:
                yield {
                    "type": "namespace",
                    "name": bound_name(f"{server}_{start // _NAMESPACE_SIZE + 1}"),
                    "description": f"{server}: {', '.join(name for name, _ in part)}.",
                    "tools": tools,
                }


def _server(tool: Tool) -> str:
    named = server_of(tool.metadata) if isinstance(tool, BaseTool) else None
    return bound_name(named) if named else _WITHOUT_SERVER


def _deferred_form(tool: Tool, provider: Provider) -> Tool | None:
    """Return a tool as it is deferred; None where the provider would refuse it or load it whole."""
    if isinstance(tool, BaseTool) and _PROVIDERS_OWN in (tool.extras or {}):
        return None
    function: dict[str, Any] = convert_to_openai_tool(tool)["function"]
    schema = function.get("parameters") or {}
    if schema.get("type") != "object" or not _UNFIT_ROOTS.isdisjoint(schema):
        return None
    if provider == "openai":
        return {"type": "function", **function, _MARK: True}
    if isinstance(tool, BaseTool):
        extras = {
            key: value for key, value in (tool.extras or {}).items() if key != "cache_control"
        }
        return tool.model_copy(update={"extras": {**extras, _MARK: True}})
    return {  # Of OpenAI's form langchain-anthropic drops the mark.
        "name": function["name"],
        "description": function.get("description") or "",
        "input_schema": schema,
        _MARK: True,
    }


def _is_search_tool(tool: Tool) -> bool:
    definition = (tool.extras or {}).get(_PROVIDERS_OWN) if isinstance(tool, BaseTool) else tool
    kind = definition.get("type") if isinstance(definition, dict) else None
    return isinstance(kind, str) and kind.startswith(_SEARCH_TYPE)


def _unwrapped(model: object) -> tuple[Any, dict[str, Any]]:
    """Return the model inside of bindings, and the name of the model they ask for if they do."""
    named: dict[str, Any] = {}
    while isinstance(model, RunnableBinding) and not isinstance(model, BaseChatModel):
        if "model" in model.kwargs:
            named = {"model": model.kwargs["model"], **named}
        model = model.bound
    return model, named


def _of_provider(model: Any, named: Mapping[str, Any]) -> NativeSearch | None:
    told = model._get_ls_params(**named)
    provider, name = told.get("ls_provider"), str(told.get("ls_model_name"))
    if provider == "anthropic" and _is_searching_claude(name):
        return _ANTHROPIC if _is_host(model.anthropic_api_url, "anthropic.com") else None
    if provider == "openai" and _is_searching_gpt(name):
        is_theirs = _is_host(str(model.root_client.base_url), "openai.com")
        # With the search tool in it a request goes to the Responses API: not for us to decide.
        responds = model._use_responses_api({"tools": [{"type": "function"}]})
        return _OPENAI if is_theirs and responds else None
    return None


def _is_searching_claude(name: str) -> bool:
    version = _CLAUDE.match(name)
    return version is not None and int(version[1]) >= _FIRST_CLAUDE


def _is_searching_gpt(name: str) -> bool:
    version = _GPT.match(name)
    if version is None or not _OTHER_GPTS.isdisjoint(name.split("-")):
        return False
    return (int(version[1]), int(version[2] or 0)) >= _FIRST_GPT


def _is_host(url: str, domain: str) -> bool:
    host = urlsplit(url).hostname or ""
    return host == domain or host.endswith(f".{domain}")


@functools.cache
def _is_passed_on(provider: Provider) -> bool:
    """Whether the installed integration hands deferred tools on; raises where there is none."""
    package, oldest = _INTEGRATIONS[provider]
    numbers = re.findall(r"\d+", importlib.metadata.version(package))
    return tuple(map(int, numbers[: len(oldest)])) >= oldest
