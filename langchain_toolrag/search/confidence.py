"""Evidence in -> how sure it is that some tool fits out."""

from __future__ import annotations

import math
from collections.abc import Sequence

from langchain_toolrag.types import Evidence, Hit

# Fitted by logistic regression on requests of five public sets against their own catalogue and
# against those of the others; the README has the figures with every catalogue left out in turn.
_BIAS = -1.93
_PER_DENSE = 8.47
_PER_COVERAGE = 3.87


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
    best = hits[0].evidence
    if best.exact:
        return 1.0
    dense = max((tool.dense for tool in evidence.tools if tool.dense is not None), default=None)
    if dense is None:
        return None
    above = dense - evidence.statistics.outside
    return 1 / (1 + math.exp(-(_BIAS + _PER_DENSE * above + _PER_COVERAGE * best.coverage)))
