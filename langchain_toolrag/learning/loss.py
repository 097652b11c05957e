"""Similarities and what is wanted in -> how far the two are apart out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SHARPNESS = 20.0
"""What cosines are multiplied by in the softmax."""


def contrastive_loss(
    similarities: Tensor,
    wanted: Tensor,
    unknown: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Return the mean of `-log(e^s / (e^s + sum of e^s' of unwanted tools))` [1].

    Every wanted tool stands against the unwanted ones alone: two that a request needs do not push
    each other away.

    Args:
        similarities: Cosines times the sharpness, shape `(requests, tools)`.
        wanted: How much each request wants the tool, 0 for not at all, same shape; some of it in
            each row.
        unknown: Which tools do not count as unwanted, same shape; None for none.
        weights: What each request counts, shape `(requests,)`; None for 1.

    Returns:
        A number from 0; no gradient reaches a tool that is unknown.

    References:
        [1] Karpukhin et al. Dense Passage Retrieval for Open-Domain Question Answering. EMNLP 2020.
        https://doi.org/10.18653/v1/2020.emnlp-main.550
    """
    silent = wanted > 0 if unknown is None else (wanted > 0) | unknown
    unwanted = similarities.masked_fill(silent, -torch.inf).logsumexp(dim=1, keepdim=True)
    surprise = nn.functional.softplus(unwanted - similarities)
    of_each = (surprise * wanted).sum(dim=1) / wanted.sum(dim=1)
    return of_each.mean() if weights is None else (of_each * weights).mean()
