"""What federated semi-supervised methods share: the objective with its pseudo-labels, and two streams of batches.

Wang et al., Fed-SHVR (docs/methods.md), equations (1)-(10). Notation: f softmax output, v̂ pseudo-labels, u the uniform
distribution, α0 weight of unlabelled images, α1 of the labels' entropy, α2 of the predictions', C classes.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from fedcore.data import augment
from fedcore.data.shards import Shard, Split
from fedcore.fit import LocalFit
from fedcore.model import Batch, Task
from fedcore.tree import Params


class Pair(NamedTuple):
    labelled: Batch
    unlabelled: Batch  # its labels are -1


@dataclass(frozen=True, kw_only=True)
class Objective:
    """F_k of (6a): cross-entropy on labels, α0 times that on pseudo-labels, and α2 r2; α1 r1 is constant in θ."""

    alpha0: float = 1.0  # at the end of the ramp; our text of the paper does not say
    alpha1: float = 0.75
    alpha2: float = 0.1
    ramp: Literal["gaussian", "linear", "none"] = "gaussian"  # exp(-5(1-x)²), mean teacher's; the paper: "ramps"
    ramp_epochs: int = 50  # local epochs until α0 is whole
    exponent: Literal["ratio", "inverse"] = "ratio"  # of (9): α0/α1, the block minimiser of (6a), or 1/α1
    batch_size: int = 32  # B_u; fit.batch_size is B_l

    def __post_init__(self) -> None:
        for name, value in (("alpha0", self.alpha0), ("alpha1", self.alpha1), ("alpha2", self.alpha2)):
            if value < 0:
                raise ValueError(f"{name}: {value} is negative; 0 leaves the term out")
        if self.ramp_epochs < 1:
            raise ValueError(f"ramp_epochs: {self.ramp_epochs}; take at least 1, or ramp none")
        if self.batch_size < 1:
            raise ValueError(f"batch_size: {self.batch_size}; a batch has at least one image")

    def weight(self, epochs: float) -> float:
        """α0 after so many local epochs."""
        x = min(1.0, epochs / self.ramp_epochs)
        return self.alpha0 * {"gaussian": math.exp(-5 * (1 - x) ** 2), "linear": x, "none": 1.0}[self.ramp]

    def labels(self, logits: Tensor, alpha0: float) -> Tensor:
        """v̂ (n, C) that minimise α0 CE(v̂, f) + α1 KL(v̂, u) over the simplex, from logits (n, C).

        (9), and (3), one-hot, where α1 = 0.
        """
        if self.alpha1 == 0:
            return F.one_hot(logits.argmax(dim=1), logits.shape[1]).to(logits.dtype)
        exponent = (alpha0 if self.exponent == "ratio" else 1.0) / self.alpha1
        return F.softmax(logits * exponent, dim=1)

    def loss(self, task: Task, v: Tensor, alpha0: float) -> Callable[[Params, Pair], Tensor]:
        """The loss of a pair of batches; `v` (M, C) are the pseudo-labels of all a client's unlabelled images."""

        def loss(w: Params, pair: Pair) -> Tensor:
            known, bare = pair
            logits = task.logits(w, torch.cat([known.x, bare.x]), train=True)
            s, s_u = logits.split([len(known.y), len(bare.y)])
            value = F.cross_entropy(s, known.y) + alpha0 * F.cross_entropy(s_u, v[bare.positions])
            if self.alpha2:
                value = value + self.alpha2 * confidence(s_u)
            return value

        return loss

    def whole(self, task: Task, shard: Shard, x: Params, alpha0: float) -> Callable[[Params], Tensor]:
        """F_k over all a client's images in eval mode, less α1 r1, with the pseudo-labels that the model `x` gives."""
        images = shard.unlabelled.images()
        v = self.labels(task.predict(x, images), alpha0)

        def loss(w: Params) -> Tensor:
            s_u = task.predict(w, images)
            value = alpha0 * F.cross_entropy(s_u, v) + self.alpha2 * confidence(s_u)
            return task.mean_loss(w, shard.train) + value

        return loss


def confidence(logits: Tensor) -> Tensor:
    """r2: KL(f, u) = log C minus the entropy of f, batch mean, 0-d; logits (b, C); (10)."""
    log_f = F.log_softmax(logits, dim=1)
    return (log_f.exp() * log_f).sum(dim=1).mean() + math.log(logits.shape[1])


def shares(sizes: object) -> Tensor:
    """ω_k (m,) of clients with so many images (m,), labelled or not, in double precision."""
    weights = torch.as_tensor(sizes, dtype=torch.float64)
    return weights / weights.sum()


def steps(fit: LocalFit, objective: Objective, images: int) -> int:
    """τ_k: batches of B_u that E passes over `images` unlabelled images fill, but at least one; 371 for 5 940."""
    return max(1, fit.epochs * images // objective.batch_size)


def pairs(fit: LocalFit, objective: Objective, shard: Shard) -> Iterator[Pair]:
    """τ_k pairs of a labelled and an unlabelled batch, all whole: streams go on across the ends of their epochs."""
    count = steps(fit, objective, len(shard.unlabelled))
    known = _stream(shard.train, fit.batch_size, count)
    bare = _stream(shard.unlabelled, objective.batch_size, count)
    for labelled, unlabelled in zip(known, bare, strict=True):
        yield Pair(_batch(fit, shard.train, labelled), _batch(fit, shard.unlabelled, unlabelled))


def _stream(split: Split, batch_size: int, count: int) -> Iterator[Tensor]:
    """`count` times `batch_size` positions, every image once before any comes again."""
    epochs = -(-count * batch_size // len(split))
    order = torch.cat([torch.randperm(len(split)) for _ in range(epochs)])
    yield from order[: count * batch_size].to(split.index.device).split(batch_size)


def _batch(fit: LocalFit, split: Split, positions: Tensor) -> Batch:
    x = augment.AUGMENTS[fit.augment](split.images(positions) / 255)
    return Batch(x, split.labels(positions), positions)
