"""Training sets in -> batches of requests and tool texts out.

A batch stays inside one set. Its tools are those the requests need and, for each request, two that
the untrained model takes for them. Two kinds of text are made up besides the labelled requests:
two requests joined into one that needs the tools of both, and a tool's first sentence, which has
to find its name.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from langchain_toolrag.index.options import IndexOptions
from langchain_toolrag.index.texts import view_texts
from langchain_toolrag.learning.pairs import Request, TrainingSet
from langchain_toolrag.types import ToolDocument

_JOINED = 0.4  # Share of requests that are two.
_JOINTS = (" ", " Also, ", " Then ", " and ")
_LONGEST_JOINED = 200  # Characters of either: what is cut off at its end cannot be learned.
_SELF_LABELLED = 0.35  # Share of batches of first sentences,
_SELF_LABELLED_WEIGHT = 0.5  # and what they count.
_MISTAKEN = 2  # Tools a request is taught it does not need.
_EVENNESS = 0.3  # The power of a set's size: 1 would leave small sets unseen, 0 repeats them.
_LOWERED = 0.15
_UNPUNCTUATED = 0.08
_SENTENCE_END = re.compile(r"(?<=[.!?])\s")


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests and tool texts.

    Attributes:
        requests: The requests.
        texts: Texts of tools.
        wanted: Which request needs which text's tool, shape `(len(requests), len(texts))`.
        weight: What the batch counts.
    """

    requests: tuple[str, ...]
    texts: tuple[str, ...]
    wanted: NDArray[np.bool_]
    weight: float = 1.0


class Batches:
    """Draws batches; the same seed draws the same ones.

    Args:
        sets: What to draw from; a large set is drawn more often, but less so than it is larger.
        mistaken: For each set and request, tools the untrained model takes for the right ones.
        size: Requests a batch.
        seed: Where the dice start.
    """

    def __init__(
        self,
        sets: Sequence[TrainingSet],
        mistaken: Sequence[Sequence[Sequence[int]]],
        *,
        size: int,
        seed: int,
    ) -> None:
        self._sets = sets
        self._mistaken = mistaken
        self._size = size
        self._dice = random.Random(seed)
        self._described = [
            [place for place, document in enumerate(each.documents) if document.description]
            for each in sets
        ]
        self._views = [[_views(document) for document in each.documents] for each in sets]

    def draw(self) -> Batch:
        """Return the next batch."""
        if self._dice.random() < _SELF_LABELLED and any(self._described):
            chosen = self._chosen([len(described) for described in self._described])
            return self._self_labelled(chosen)
        return self._labelled(self._chosen([len(each.requests) for each in self._sets]))

    def _chosen(self, sizes: Sequence[int]) -> int:
        return self._dice.choices(range(len(self._sets)), [size**_EVENNESS for size in sizes])[0]

    def _self_labelled(self, chosen: int) -> Batch:
        described = self._described[chosen]
        places = self._dice.sample(described, min(self._size, len(described)))
        documents = [self._sets[chosen].documents[place] for place in places]
        return Batch(
            tuple(_SENTENCE_END.split(document.description.strip())[0] for document in documents),
            tuple(document.text("name") or document.name for document in documents),
            np.eye(len(places), dtype=np.bool_),
            _SELF_LABELLED_WEIGHT,
        )

    def _labelled(self, chosen: int) -> Batch:
        requests = range(len(self._sets[chosen].requests))
        drawn = self._dice.sample(requests, min(self._size, len(requests)))
        asked, places = [], dict[int, None]()
        for number in drawn:
            request, mistaken = self._maybe_joined(chosen, number)
            asked.append(request)
            wanted = self._dice.sample(sorted(request.wanted), min(2, len(request.wanted)))
            places |= dict.fromkeys(wanted)
            wrong = [place for place in mistaken if place not in request.wanted]
            places |= dict.fromkeys(self._dice.sample(wrong, min(_MISTAKEN, len(wrong))))
        # Twins have one text: who wants the one wants the other.
        bearers: dict[str, list[int]] = {}
        for place in places:
            bearers.setdefault(self._dice.choice(self._views[chosen][place]), []).append(place)
        wanted_texts = [
            [not request.wanted.isdisjoint(bearing) for bearing in bearers.values()]
            for request in asked
        ]
        return Batch(
            tuple(self._retyped(request.text) for request in asked),
            tuple(bearers),
            np.array(wanted_texts, np.bool_),
        )

    def _maybe_joined(self, chosen: int, number: int) -> tuple[Request, list[int]]:
        """Return a request, or two in one, and the tools mistaken for its own."""
        requests, mistaken = self._sets[chosen].requests, self._mistaken[chosen]
        first, wrong = requests[number], list(mistaken[number])
        if self._dice.random() >= _JOINED:
            return first, wrong
        other = self._dice.randrange(len(requests))
        second = requests[other]
        if max(len(first.text), len(second.text)) >= _LONGEST_JOINED:
            return first, wrong
        text = first.text.rstrip() + self._dice.choice(_JOINTS) + second.text
        return Request(text, first.wanted | second.wanted), [*wrong, *mistaken[other]]

    def _retyped(self, text: str) -> str:
        """People type without capitals and full stops."""
        if self._dice.random() < _LOWERED:
            text = text.lower()
        return text.rstrip(".?!") if self._dice.random() < _UNPUNCTUATED else text


def _views(document: ToolDocument) -> list[str]:
    """Return the texts a tool is embedded by, as often as they weigh."""
    weighted = view_texts(document, IndexOptions())
    lightest = min(weight for _, weight in weighted)
    return [text for text, weight in weighted for _ in range(round(weight / lightest))]
