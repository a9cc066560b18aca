"""The loss around a run's final model, on a plane through it."""

from dataclasses import replace
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from fedcore.data.shards import Shard, Split
from fedcore.engine import Report
from fedcore.method import Method
from fedcore.tree import Params

REACH = 1.0  # how far the plane goes each way, in lengths of a filter
IMAGES = 500  # of each kind at a client, at most


def around(method: Method[Any, Any], end: Report, shards: list[Shard], points: int) -> pd.DataFrame:
    """The clients' mean loss, weighted by their images, at points × points models x + a δ1 + b δ2; columns a, b, loss.

    δ1 and δ2 are Gaussian with every filter as long as the model's and nothing for biases and normalisation: Li et al.,
    "Visualizing the Loss Landscape of Neural Nets", https://arxiv.org/abs/1712.09913. The same for every run of a net,
    but for the lengths.
    """
    x: Params = method.models(end.server)["global"]
    generator = torch.Generator().manual_seed(0)
    first, second = direction(x, generator), direction(x, generator)
    held = [_sampled(shard) for shard in shards]
    losses = [method.local_loss(end.server, shard, end.round) for shard in held]
    sizes = [len(s.train) + (len(s.unlabelled) if method.needs_unlabelled else 0) for s in shards]
    rows = []
    steps = torch.linspace(-REACH, REACH, points).tolist()
    for a in steps:
        for b in steps:
            moved = x.replace(x.trainable() + first * a + second * b)
            value = sum(size * loss(moved).item() for size, loss in zip(sizes, losses, strict=True) if size)
            rows.append((a, b, value / sum(sizes)))
    return pd.DataFrame(rows, columns=["a", "b", "loss"])


def direction(x: Params, generator: torch.Generator) -> Params:
    """A random direction whose filters (rows of a weight) are as long as those of `x`."""

    def drawn(value: Tensor) -> Tensor:
        noise = torch.randn(value.shape, generator=generator)
        if value.dim() < 2:
            return torch.zeros_like(value)
        noise, rows = noise.flatten(1), value.flatten(1)
        scale: Tensor = rows.norm(dim=1) / noise.norm(dim=1)
        return torch.mul(noise, scale[:, None]).view_as(value)

    return Params({name: drawn(value) for name, value in x.trainable().items()})


def _sampled(shard: Shard) -> Shard:
    return replace(shard, train=_some(shard.train), unlabelled=_some(shard.unlabelled))


def _some(split: Split) -> Split:
    generator = torch.Generator().manual_seed(0)
    return replace(split, index=split.index[torch.randperm(len(split), generator=generator)[:IMAGES].sort().values])
