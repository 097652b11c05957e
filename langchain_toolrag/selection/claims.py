"""Reasons to bind a tool in -> which tools are bound, in which order, out."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from langchain_toolrag.types import ToolId

logger = logging.getLogger(__name__)

_SPARE = 4  # The share of the places that stays free when kept tools have to go.


@dataclass(frozen=True, slots=True)
class Claims:
    """Who wants to be bound; a tool may stand in several lists. All hold bindable ids only.

    Attributes:
        required: Tools the model is made to call, and calls that wait for their result.
        always: Tools the user always wants.
        loaded: Tools the model has just searched for itself, latest first.
        sticky: Tools called in the last turns, latest first.
        fresh: What the search found, best first.
        called: Tools called earlier in the history shown to the model, latest first.
        kept: Tools bound or loaded before, the least expendable first.
    """

    required: Sequence[ToolId] = ()
    always: Sequence[ToolId] = ()
    loaded: Sequence[ToolId] = ()
    sticky: Sequence[ToolId] = ()
    fresh: Sequence[ToolId] = ()
    called: Sequence[ToolId] = ()
    kept: Sequence[ToolId] = ()


def admitted(claims: Claims, places: int) -> set[ToolId]:
    """Give out the places to bind tools in.

    Served in order: required, always, the best fresh hit, loaded, sticky, fresh, called, kept. A
    single place that is left goes to what is loaded: the model was told that it would be there.
    Where not all kept tools find a place, a quarter of the places stays free: every loss empties a
    provider's cache of the prompt, so that one loss of several is better than one every turn.

    Args:
        claims: Who wants a place.
        places: How many there are; below what is required, all of that is admitted still.

    Returns:
        The ids that are bound; more than `places` only if that many are required.
    """
    firm = dict.fromkeys([*claims.required, *claims.always])
    if firm and len(firm) > places:
        logger.warning(
            "%d tools may not be left out and max_tools leaves %d places: all of them are bound",
            len(firm),
            max(places, 0),
        )
    seated = firm
    best_and_loaded = (claims.fresh[:1], claims.loaded)
    first, second = best_and_loaded if places - len(firm) > 1 else reversed(best_and_loaded)
    others = (first, second, claims.sticky, claims.fresh, claims.called)
    if places < 1 and not firm and any((*others, claims.kept)):
        logger.warning("no tool is selected: what passes through takes all places of max_tools")
    for claim in others:
        seated = _take(seated, claim, places)
    all_fit = len({*seated, *claims.kept}) <= places
    seated = _take(seated, claims.kept, places if all_fit else places - places // _SPARE)
    return set(seated)


def ordered(
    bound: Iterable[ToolId], claims: Claims, previous: Sequence[ToolId]
) -> tuple[ToolId, ...]:
    """Put bound tools into binding order: new tools come after those that were bound before.

    A model provider caches a request's prefix, tools first: what was sent before stays where it
    was. At a conversation's start the tools that are always bound come first, then what the
    search found, best first.

    Args:
        bound: The ids to order.
        claims: Why they are bound.
        previous: Binding order of the step before.

    Returns:
        The ids, each once.
    """
    chosen = set(bound)
    order = (
        *previous,
        *claims.always,
        *claims.fresh,
        *claims.loaded,
        *claims.required,
        *claims.sticky,
        *claims.called,
        *claims.kept,
    )
    return tuple(dict.fromkeys(identity for identity in order if identity in chosen))


def _take(seated: dict[ToolId, None], claim: Iterable[ToolId], places: int) -> dict[ToolId, None]:
    following = dict(seated)
    for identity in claim:
        if len(following) >= places:
            break
        following[identity] = None
    return following
