"""Evidence in -> how sure it is that some tool fits out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from langchain_toolrag.types import Evidence, Hit

# Logistic regression on requests of five public sets against their own catalogue and against those
# of the others; `python -m tests.benchmark.fitting --of confidence` fits it again.
_WEIGHTS = (-2.36, 10.25, 2.51)


def confidence(evidence: Evidence, hits: Sequence[Hit]) -> float | None:
    """Return how likely it is that the best hit serves the request.

    Counted are how far the best score by meaning stands above what requests from outside this very
    catalogue reach in it, and how much of what is particular about the request's words the best
    tool has.

    Args:
        evidence: What the index knows of the request.
        hits: Its ranking, best first.

    Returns:
        0 to 1; 1 for a tool that is named; None where the request was not embedded.
    """
    if not hits:
        return 0.0 if evidence.dense_ready else None
    if hits[0].evidence.exact:
        return 1.0
    signs = confidence_signs(evidence, hits[0])
    if signs is None:
        return None
    weighted = sum(weight * sign for weight, sign in zip(_WEIGHTS, signs, strict=True))
    return 1 / (1 + math.exp(-weighted))


def confidence_signs(evidence: Evidence, best: Hit) -> tuple[float, ...] | None:
    """Return what speaks for some tool serving a request.

    Args:
        evidence: As in `confidence`.
        best: The best hit.

    Returns:
        The constant 1, how far the best dense score stands above an outside request's, and the best
        hit's coverage; None where the request was not embedded.
    """
    dense = max((tool.dense for tool in evidence.tools if tool.dense is not None), default=None)
    if dense is None:
        return None
    return (1.0, dense - evidence.statistics.outside, best.evidence.coverage)
