"""What was said before a request -> how much of the request is about that out."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from langchain_toolrag.catalogue.names import split_words
from langchain_toolrag.search.request import request_in
from langchain_toolrag.selection.conversation import Conversation
from langchain_toolrag.types import Hit, ScoreStatistics

# Logistic regression on conversations and made-up changes of topic: see "Measured" in the README;
# `python -m tests.benchmark.fitting --of follow-ups` fits it again.
_WEIGHTS = (
    1.33,
    -0.77,  # A request that one tool stands out for speaks for itself.
    0.94,  # With and without what came before, the same tools are found.
    1.43,  # It begins like a continuation.
    3.66,  # It answers a question.
)

_LEAST_SHARE = 0.2
_LARGEST_EXPONENT = 700.0  # Beyond it `exp` overflows.
_COMPARED = 5  # Tools of either ranking that are compared.
_TAIL = 200  # Characters of the assistant's last message: a question stands at its end.
_LAST_SENTENCES = 2

_LINKS = re.compile(
    r"(?:actually|again|also|and|but|how about|instead|no|ok|or|same|sure|then|what about|yeah"
    r"|yep|yes)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.?!।。？！])\s+")
_ASKS = re.compile(
    r"[?？؟]\W*$|\bconfirm(?:ing)?\b|\b(?:how|what) about\b|\b(?:shall|should) (?:i|we)\b"
    r"|\bwould you like\b|\bdo you want\b|\blet me know\b|\bi(?: will|'ll)? need\b"
    r"|\bplease (?:provide|tell|confirm|give|let me know|enter|specify|share|upload|choose)\b",
    re.IGNORECASE,
)
# "Is there anything else I can help you with?" asks for the next request, not about this one.
_CLOSES = re.compile(r"\b(?:anything|something|what) else\b|\belse i can\b", re.IGNORECASE)

_SOCIAL = frozenset(
    """ah aha alright amazing awesome bravo bye cheers cool excellent fantastic fine goodbye
    goodnight great haha hah hahaha hehe hello hey hi hm hmm hmmm huh k kk lol lovely nice nvm ok
    okay oh okey perfect please sorry super superb sweet tada ta thank thanks thanx thnx thx ty
    tysm welcome wonderful wow yay yikes yo merci gracias danke dhanyavaad dhanyawad shukriya
    namaste hola ciao bonjour arigato arigatou obrigado obrigada spasibo brilliant impressive
    interesting noted understood cheerio oops haan accha achha
    theek thik""".split()  # noqa: SIM905
)
_SMALL = frozenset(
    """a again all am and anyway are at awake be been beautiful bot buddy by can care day did do
    doing done enough everyone everybody everything feel feeling for friend friends from fun
    glad going good got guess guys happy hai have having he help helped helpful helping here
    hope how i ill im in is it its job just kind know like little lot love loved luck made man
    mate me mean mind mistake more much my never new no not now of one only problem proud quick
    quite really right saved see seems she smart so soon sounds sounds still sure take that
    thats the them then there they thing things think this to too true trouble very was way we
    well were what whats when who will with worries would yes yeah yep you your youre""".split()  # noqa: SIM905
)
_CONSENT = frozenset({"yes", "yeah", "yep", "sure", "fine", "please", "haan"})
_TIME_OF_DAY = re.compile(r"\bgood (?:morning|afternoon|evening|night|day)\b", re.IGNORECASE)
_LONGEST_SMALL_TALK = 12


def is_small_talk(text: str, *, answering: bool = False) -> bool:
    """Return whether a text asks for nothing: a greeting, thanks, a reaction, an emoji.

    Every word has to be one that small talk is made of, and one of them a greeting or the like;
    a text without any word is small talk too. English, and greetings of some other languages.

    Args:
        text: What the user said.
        answering: Whether the assistant has said something that a "yes" may agree to.

    Returns:
        Whether it needs no tool.
    """
    words = split_words(_TIME_OF_DAY.sub("hello", text.replace("'", "").replace("’", "")))
    if not words:
        return True
    if answering and not _CONSENT.isdisjoint(words):
        return False
    if len(words) > _LONGEST_SMALL_TALK:
        return False
    return any(word in _SOCIAL for word in words) and all(
        word in _SOCIAL or word in _SMALL for word in words
    )


def asks(text: str) -> bool:
    """Return whether a message ends with a question or an offer that wants an answer."""
    sentences = [part for part in _SENTENCE_END.split(text.strip()[-_TAIL:]) if part]
    return any(
        _ASKS.search(sentence) and not _CLOSES.search(sentence)
        for sentence in sentences[-_LAST_SENTENCES:]
    )


def with_context(conversation: Conversation) -> str:
    """Return the request together with what was said before it; empty where nothing was.

    That is the user's last turn that was more than small talk, and the end of the assistant's last
    message, which often holds the question that the request answers.
    """
    substantial = (text for text in conversation.earlier if not is_small_talk(text))
    before = request_in(next(substantial, ""))
    parts = (before, conversation.assistant[-_TAIL:])
    said = " ".join(part for part in parts if part)
    return f"{request_in(conversation.query)}. Context: {said}" if said else ""


def context_share(
    conversation: Conversation,
    plain: Sequence[Hit],
    contextual: Sequence[Hit],
    statistics: ScoreStatistics,
) -> float:
    """Return how much the search with context counts against the search without.

    Args:
        conversation: The request and what came before it.
        plain: What the request alone finds, best first.
        contextual: What it finds with its context, best first.
        statistics: Of the plain search.

    Returns:
        A weight from 0.2 to 1.
    """
    signs = follow_up_signs(conversation, plain, contextual, statistics)
    evidence = sum(weight * sign for weight, sign in zip(_WEIGHTS, signs, strict=True))
    return _LEAST_SHARE + (1 - _LEAST_SHARE) / (1 + math.exp(min(-evidence, _LARGEST_EXPONENT)))


def follow_up_signs(
    conversation: Conversation,
    plain: Sequence[Hit],
    contextual: Sequence[Hit],
    statistics: ScoreStatistics,
) -> tuple[float, ...]:
    """Return what speaks for and against a request being a follow-up.

    Args:
        conversation: As in `context_share`.
        plain: As in `context_share`.
        contextual: As in `context_share`.
        statistics: As in `context_share`.

    Returns:
        The constant 1; by how many standard deviations the best tool for the request alone stands
        above the catalogue's mean; the share of the five best that both searches have; whether the
        request begins like a continuation; whether the assistant has asked something.
    """
    overlap = {hit.id for hit in plain[:_COMPARED]} & {hit.id for hit in contextual[:_COMPARED]}
    return (
        1.0,
        _prominence(plain, statistics),
        len(overlap) / _COMPARED,
        float(bool(_LINKS.match(conversation.query))),
        float(asks(conversation.assistant)),
    )


def _prominence(hits: Sequence[Hit], statistics: ScoreStatistics) -> float:
    """How many standard deviations the best tool stands above the catalogue's mean."""
    if not hits or not statistics.dense_deviation:
        return 0.0
    return (hits[0].score - statistics.dense_mean) / statistics.dense_deviation
