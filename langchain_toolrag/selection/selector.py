"""Conversation in -> explained selection out."""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

from langchain_toolrag.catalogue.catalogue import approximate_tokens
from langchain_toolrag.errors import EmbeddingError, StillLoadingError
from langchain_toolrag.search.rankings import Question
from langchain_toolrag.selection import fresh
from langchain_toolrag.selection.bindable import Bindable, tool_name
from langchain_toolrag.selection.claims import Claims, admitted, ordered
from langchain_toolrag.selection.conversation import Conversation, read_conversation
from langchain_toolrag.selection.fresh import Found
from langchain_toolrag.selection.options import SelectionOptions
from langchain_toolrag.selection.state import SelectionState, read_state
from langchain_toolrag.types import (
    Evidence,
    Hit,
    Messages,
    SelectedTool,
    Selection,
    Source,
    ToolId,
)

logger = logging.getLogger(__name__)

Selecting: TypeAlias = Generator[Question, Evidence, Selection]
"""A plan that ends with a selection."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a turn's search, or the reuse of one, came to.

    Attributes:
        found: What was found.
        state: The state to go on from; it says what was searched for, and how well.
        fresh: Whether there was a search.
    """

    found: Found
    state: SelectionState
    fresh: bool


def select(
    messages: Messages,
    bindable: Bindable,
    options: SelectionOptions,
    *,
    index_version: int,
    previous: Mapping[str, Any] | None = None,
    required: Sequence[str] = (),
    deferred: bool = False,
) -> Selecting:
    """Select the tools of one model step; a plan (see `plans`).

    Args:
        messages: The conversation, the current user turn included.
        bindable: What can be bound.
        options: How to select.
        index_version: The state of the index before any search.
        previous: `Selection.state` of the step before.
        required: Names of tools that must be bound, such as `tool_choice`'s.
        deferred: Whether to search for nothing, and leave that to the model's own search.

    Returns:
        The selection.
    """
    conversation = read_conversation(messages)
    state = read_state(previous)
    conversation = _remembering(conversation, state, options)
    outcome = yield from _outcome(
        conversation, bindable, options, state, index_version, deferred=deferred
    )
    claims = _claims(conversation, bindable, options, outcome, required)
    return _selection(conversation, bindable, options, outcome, claims)


def by_score(selection: Selection) -> list[SelectedTool]:
    """Return selected tools by score, best first, those without a score last."""

    def order(tool: SelectedTool) -> tuple[bool, float]:
        unscored = math.isnan(tool.score)
        return unscored, 0.0 if unscored else -tool.score

    return sorted(selection.selected, key=order)


def _remembering(
    conversation: Conversation, state: SelectionState, options: SelectionOptions
) -> Conversation:
    """Fill in what a summary took out of the messages: this turn's words, or the last turn's."""
    if not conversation.turn_id:
        return replace(conversation, query=state.query, turn_id=state.turn_id)
    is_new = state.turn_id != conversation.turn_id
    if conversation.summarised and is_new and options.algorithm != "classic" and state.query:
        return replace(conversation, earlier=(*conversation.earlier, state.query))
    return conversation


def _outcome(
    conversation: Conversation,
    bindable: Bindable,
    options: SelectionOptions,
    state: SelectionState,
    index_version: int,
    *,
    deferred: bool,
) -> Generator[Question, Evidence, _Outcome]:
    if _reusable(conversation, bindable, options, state):
        return _Outcome(replace(_remembered(state), version=index_version), state, fresh=False)
    found, degraded, whole = Found(), "", _bound_whole(bindable, options, deferred=deferred)
    if conversation.query and bindable.tools and not (whole or deferred):
        found, degraded = yield from _search(conversation, bindable, options, state)
        whole = bool(degraded) and options.on_error == "all"
    if found.version < 0:
        found = replace(found, version=index_version)
    following = replace(
        state,
        query=conversation.query,
        searched=found.query,
        turn_id=conversation.turn_id,
        search_id=uuid.uuid4().hex,
        offer=bindable.digest,
        turn=state.turn + 1,
        degraded=degraded,
        confidence=found.confidence,
        whole=whole,
        found=found.sources,
    )
    return _Outcome(found, following, fresh=True)


def _reusable(
    conversation: Conversation,
    bindable: Bindable,
    options: SelectionOptions,
    state: SelectionState,
) -> bool:
    """Whether the turn was searched for already, among the tools there still are."""
    return (
        options.refresh == "turn"
        and bool(state.search_id)
        and state.turn_id == conversation.turn_id
        and state.offer == bindable.digest
    )


def _remembered(state: SelectionState) -> Found:
    return Found(state.searched, (), dict(state.found))


def _bound_whole(bindable: Bindable, options: SelectionOptions, *, deferred: bool) -> bool:
    """A catalogue that would be bound whole anyway needs no search."""
    fits = len(bindable.tools) + len(bindable.passed_through) <= options.max_tools
    found = 0 if deferred else options.k or 0
    return fits and len(bindable.tools) <= max(options.min_catalogue, found)


def _search(
    conversation: Conversation,
    bindable: Bindable,
    options: SelectionOptions,
    state: SelectionState,
) -> Generator[Question, Evidence, tuple[Found, str]]:
    """Search, and answer a failed embedding as the options say; also return what went wrong."""
    algorithm = fresh.classic if options.algorithm == "classic" else fresh.hybrid
    try:
        return (yield from algorithm(conversation, options, bindable.filter)), ""
    except EmbeddingError as error:
        if options.on_error == "raise":
            raise
        failure = _failure(error)
    if options.on_error == "previous" and state.bound:
        return _remembered(state), _degraded("previous", failure)
    if options.on_error == "all":
        return Found(), _degraded("all", failure)
    by_words = yield from fresh.hybrid(conversation, options, bindable.filter, dense=False)
    return by_words, _degraded("lexical", failure)


def _failure(error: EmbeddingError) -> str:
    return f"{error}" if isinstance(error, StillLoadingError) else f"embedding failed: {error}"


def _degraded(instead: str, failure: str) -> str:
    logger.debug("%s instead: %s", instead, failure)
    return f"{instead} instead: {failure}"


def _claims(
    conversation: Conversation,
    bindable: Bindable,
    options: SelectionOptions,
    outcome: _Outcome,
    required: Sequence[str],
) -> Claims:
    found = list(outcome.found.sources)
    classic = options.algorithm == "classic"
    window = options.sticky_window
    sticky = conversation.classic_sticky(window) if classic else conversation.sticky(window)
    claims = Claims(
        required=[*bindable.ids(required), *bindable.called(conversation.unanswered)],
        always=[*bindable.tools] if outcome.state.whole else bindable.ids(options.always_include),
        loaded=bindable.ids(conversation.loaded(outcome.state.answered)),
        sticky=bindable.called(sticky),
        fresh=[identity for identity in found if identity in bindable.tools],
        called=[] if classic else bindable.called(call.name for call in conversation.calls),
        kept=[] if classic else _kept(outcome.state, bindable),
    )
    return _never_empty(claims, conversation, bindable, required)


def _kept(state: SelectionState, bindable: Bindable) -> list[ToolId]:
    """Tools bound before, the latest used first: those the model searched for, then the others."""
    latest = sorted(state.bound, key=lambda identity: -state.used.get(identity, 0))
    loaded = [identity for identity in latest if identity in state.loaded]
    return [i for i in dict.fromkeys((*loaded, *latest)) if i in bindable.tools]


def _never_empty(
    claims: Claims, conversation: Conversation, bindable: Bindable, required: Sequence[str]
) -> Claims:
    """Claim one tool where a request without tools would be refused.

    Providers refuse a history with calls, and a `tool_choice`, where no tool is bound.
    """
    wanted = bool(conversation.calls or required)
    claimed = any(getattr(claims, each.name) for each in fields(claims))
    if not wanted or claimed or bindable.passed_through:
        return claims
    return replace(claims, kept=list(bindable.tools)[:1])


def _selection(
    conversation: Conversation,
    bindable: Bindable,
    options: SelectionOptions,
    outcome: _Outcome,
    claims: Claims,
) -> Selection:
    state = outcome.state
    places = options.max_tools - len(bindable.passed_through)
    bound = admitted(claims, max(places, len(bindable.tools)) if state.whole else places)
    order = ordered(bound, claims, state.bound)
    now = (*claims.fresh, *claims.loaded, *_called_now(conversation, bindable))
    used = {**state.used, **dict.fromkeys(now, state.turn)}
    loaded = {*state.loaded, *claims.loaded}
    front = tuple(tool_name(tool) for tool in bindable.passed_through)
    following = replace(
        state,
        front=front,
        bound=order,
        loaded=tuple(identity for identity in order if identity in loaded),
        answered=conversation.loads[0].call if conversation.loads else state.answered,
        used={key: used.get(key, state.turn) for key in order},
    )
    tools = (*bindable.passed_through, *(bindable.tools[identity] for identity in order))
    passing = sum(approximate_tokens(tool) for tool in bindable.passed_through)
    entries = bindable.catalogue.entries
    return Selection(
        tools=tools,
        selected=_explained(order, bindable, outcome, claims),
        query=state.searched,
        state=following.as_json(),
        search_id=state.search_id,
        turn_id=state.turn_id,
        index_version=outcome.found.version,
        degraded=state.degraded,
        confidence=state.confidence,
        prefix_changed=_prefix_changed(state, following),
        tokens=passing + sum(entries[identity].tokens for identity in order),
        catalogue_tokens=passing + bindable.catalogue.tokens,
        fresh=outcome.fresh,
    )


def _prefix_changed(before: SelectionState, after: SelectionState) -> bool:
    if not before.bound:
        return False
    return before.front != after.front or after.bound[: len(before.bound)] != before.bound


def _called_now(conversation: Conversation, bindable: Bindable) -> list[ToolId]:
    return bindable.ids(call.name for call in conversation.calls if call.turn == 1)


def _explained(
    order: Sequence[ToolId], bindable: Bindable, outcome: _Outcome, claims: Claims
) -> tuple[SelectedTool, ...]:
    hits = {hit.id: hit for hit in outcome.found.hits}
    reasons = _reasons(claims, outcome)
    selected: list[SelectedTool] = []
    for identity in order:
        document = bindable.catalogue.entries[identity].document
        reason, hit = reasons.get(identity, "kept"), hits.get(identity)
        scores = () if hit is None else _scores(hit)
        selected.append(
            SelectedTool(identity, document.bound_name, document.description, reason, *scores)
        )
    return tuple(selected)


def _scores(hit: Hit) -> tuple[float, float, float, float]:
    """Return the scores of a SelectedTool, in its fields' order."""
    found = hit.evidence
    dense = math.nan if found.dense is None else found.dense
    return hit.score, dense, found.lexical, found.keyword


def _reasons(claims: Claims, outcome: _Outcome) -> dict[ToolId, Source]:
    """Give every tool its strongest reason: found, else called, loaded, always, kept."""
    reasons: dict[ToolId, Source] = dict.fromkeys((*claims.always, *claims.required), "always")
    reasons |= dict.fromkeys((*outcome.state.loaded, *claims.loaded), "loaded")
    reasons |= dict.fromkeys((*claims.called, *claims.sticky), "sticky")
    return reasons | dict(outcome.found.sources)
