"""Losses that more than one place needs, in float32."""

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812


def nt_xent(a: Tensor, b: Tensor, temperature: float) -> Tensor:
    """Normalised temperature-scaled cross-entropy of two views' projections (B, d), 0-d; methods.md 1.1 (8)*.

    Every one of the 2B projections is told from the others by cosine / temperature; its positive is the other view of
    its image, all the rest are negatives, itself left out.
    """
    z = F.normalize(torch.cat([a, b]).float(), dim=1)
    count = len(a)
    similarity = (z @ z.T / temperature).fill_diagonal_(-torch.inf)
    positive = torch.arange(2 * count, device=z.device).roll(count)
    return F.cross_entropy(similarity, positive)


def negative_cosine(q: Tensor, z: Tensor) -> Tensor:
    """-Sim(q, sg(z)) of rows (B, d), batch mean, 0-d; no gradient flows into z."""
    return -F.cosine_similarity(q.float(), z.detach().float(), dim=1).mean()
