"""One user turn in -> what a search finds for it out.

Two algorithms, both plans (see `plans`): `hybrid`, the product's own, and `classic`, ToolRAG's.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TypeAlias

from langchain_toolrag.index.contract import CANDIDATES
from langchain_toolrag.index.keyword import parse_query
from langchain_toolrag.search.confidence import confidence
from langchain_toolrag.search.fusion import average_score, blend, fuse
from langchain_toolrag.search.rankings import Question, by_everything, by_meaning, by_words
from langchain_toolrag.selection.conversation import Conversation
from langchain_toolrag.selection.follow_up import (
    asks,
    context_share,
    is_small_talk,
    with_context,
)
from langchain_toolrag.selection.options import SelectionOptions
from langchain_toolrag.types import Evidence, Hit, Source, ToolEvidence, ToolFilter, ToolId

# In an exploratory run over eight public sets, no request of at most 8 words whose tool is among
# the five best had a confidence below 0.2.
_SHORT_WORDS = 8
_UNSURE = 0.2


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Attributes:
        query: The text that was searched for.
        hits: What it found, best first; ranks are those of the search that found a hit.
        sources: By what each was found.
        version: The state of the index that answered; -1 where none was asked.
        confidence: How sure the search is that a tool fits, 0 to 1; None where it cannot say.
        average: What an average tool of the catalogue scores among the hits.
    """

    query: str = ""
    hits: tuple[Hit, ...] = ()
    sources: dict[ToolId, Source] = field(default_factory=dict)
    version: int = -1
    confidence: float | None = None
    average: float = 0.0


Search: TypeAlias = Generator[Question, Evidence, Found]
"""A plan that searches for one user turn."""


def hybrid(
    conversation: Conversation,
    options: SelectionOptions,
    filter: ToolFilter | None,
    *,
    dense: bool = True,
) -> Search:
    """Search for the request, and with what was said before it, and weigh the two.

    Small talk is not searched for, unless the assistant has asked something. A request that gives
    a tool's name is not mixed with anything.
    """
    query = conversation.query
    heard = conversation.assistant
    if is_small_talk(query, answering=bool(heard)) and not asks(heard):
        return Found()
    candidates = max(CANDIDATES, options.cutoff.limit)
    fused = yield from by_everything(query, candidates, filter, dense=dense)
    # "Select: a song", "+Alice": no operators, words.
    if not fused.hits and (words := parse_query(query).text) != query:
        fused = yield from by_everything(words, candidates, filter, dense=dense)
    hits, evidence = fused.hits, fused.evidence
    sure = at_best = confidence(evidence, hits)
    average = average_score(evidence)
    searched, longer = query, with_context(conversation)
    if longer and not any(tool.exact for tool in evidence.tools):
        contextual = yield Question(longer, filter, candidates, dense=dense)
        told = fuse(contextual, named_first=False)
        share = context_share(conversation, hits, told, evidence.statistics)
        in_context = confidence(contextual, told)
        if sure is not None and in_context is not None:
            at_best = max(sure, in_context)
            sure = (1 - share) * sure + share * in_context
        hits, searched = blend(hits, told, share), longer
        average = (1 - share) * average + share * average_score(contextual)
    found = [] if _nothing_fits(conversation, options, sure, at_best) else hits
    found = options.cutoff.apply(found, average)
    sources = {hit.id: _source(hit.evidence, options.similarity_threshold) for hit in found}
    return Found(searched, tuple(found), sources, evidence.version, sure, average)


def _nothing_fits(
    conversation: Conversation,
    options: SelectionOptions,
    sure: float | None,
    at_best: float | None,
) -> bool:
    """Whether to bind nothing: as the user wants it, or for small talk we have no words for.

    A short turn to which neither search finds anything that fits is taken for small talk, unless
    the assistant has asked something.
    """
    if sure is None or at_best is None:
        return False
    is_short = len(conversation.query.split()) <= _SHORT_WORDS
    chatting = is_short and at_best < _UNSURE and not asks(conversation.assistant)
    return sure < options.min_confidence or chatting


def classic(
    conversation: Conversation, options: SelectionOptions, filter: ToolFilter | None
) -> Search:
    """Unite the best by meaning and the best by words, as ToolRAG does.

    Where a rank is asked for, semantic hits come first (a vague request's enriched ones before
    its plain ones), then text hits.
    """
    query, threshold = conversation.query, options.similarity_threshold
    candidates = max(CANDIDATES, options.semantic_limit, options.text_search_limit)
    evidence = yield Question(query, filter, candidates)
    semantic = by_meaning(evidence, threshold)[: options.semantic_limit]
    searched = query
    if conversation.previous_query and _is_vague(query, evidence, options):
        searched = enriched(conversation)
        with_context = yield Question(searched, filter, candidates)
        semantic = _merged(by_meaning(with_context, threshold)[: options.semantic_limit], semantic)
    by_text = by_words(evidence)[: options.text_search_limit]
    hits = _merged(semantic, by_text)
    meant, worded = {hit.id for hit in semantic}, {hit.id for hit in by_text}
    sources: dict[ToolId, Source] = {
        hit.id: "both" if hit.id in meant & worded else "semantic" if hit.id in meant else "text"
        for hit in hits
    }
    return Found(searched, tuple(hits), sources, evidence.version)


def enriched(conversation: Conversation) -> str:
    """Return a follow-up together with the user turn before it."""
    return f"{conversation.query}. Context: {conversation.previous_query}"


def _is_vague(query: str, evidence: Evidence, options: SelectionOptions) -> bool:
    if len(query.split()) <= options.vague_words:
        return True
    scores = [tool.dense for tool in evidence.tools if tool.dense is not None]
    return bool(scores) and max(scores) < options.vague_score


def _merged(first: list[Hit], second: list[Hit]) -> list[Hit]:
    known = {hit.id for hit in first}
    return [*first, *(hit for hit in second if hit.id not in known)]


def _source(evidence: ToolEvidence, threshold: float) -> Source:
    if evidence.exact:
        return "keyword"
    meant = evidence.dense is not None and evidence.dense >= threshold
    if evidence.lexical > 0:
        return "both" if meant else "text"
    return "semantic"
