"""Local training: the only training loop of the federated methods."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from fedcore.data import augment
from fedcore.data.shards import Shard, Split
from fedcore.model import Batch
from fedcore.tree import Params

B = TypeVar("B")


class Fitted(NamedTuple):
    params: Params
    steps: int  # optimiser steps really taken
    loss: Tensor  # 0-d, mean over the steps


@dataclass(frozen=True, kw_only=True)
class LocalFit:
    """Epochs of mini-batch gradient descent over a client's training images, with a new optimiser each time."""

    epochs: int = 1
    batch_size: int = 32
    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float = 0.01
    momentum: float = 0.0  # sgd only
    weight_decay: float = 0.0
    clip: float | None = None  # largest Euclidean norm of a step's gradient
    augment: str = "none"  # a name of fedcore.data.augment.AUGMENTS

    def __post_init__(self) -> None:
        if self.epochs < 1:
            raise ValueError(f"epochs: {self.epochs}; train for at least one")
        if self.batch_size < 1:
            raise ValueError(f"batch_size: {self.batch_size}; a batch has at least one image")
        if self.lr <= 0:
            raise ValueError(f"lr: {self.lr} is not positive")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum: {self.momentum} is not in [0, 1)")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay: {self.weight_decay} is negative; 0 is none")
        if self.clip is not None and self.clip <= 0:
            raise ValueError(f"clip: {self.clip} is not positive; leave it out for no limit")
        if self.momentum and self.optimizer != "sgd":
            raise ValueError("momentum: only the optimizer sgd has it; leave it out")
        if self.augment not in augment.AUGMENTS:
            raise ValueError(f"augment: {self.augment!r} is unknown; known: {', '.join(augment.AUGMENTS)}")

    def __call__(
        self,
        loss: Callable[[Params, B], Tensor],
        params: Params,
        batches: Shard | Iterable[B],
        *,
        shift: Params | None = None,
        frozen: str | None = None,
    ) -> Fitted:
        """Train from `params` on a shard's training images, or on `batches` of one's own; `params` is left as it is.

        `shift` is added to the gradient of every step. Entries whose name starts with `frozen` stay as they are, the
        statistics of their BatchNorm too. A client without images takes no step.
        """
        own = params.clone()
        free = [name for name in own.trainable() if frozen is None or not name.startswith(frozen)]
        trained = {name: own[name].requires_grad_() for name in free}
        optimizer = self._optimizer(list(trained.values()))
        total, steps = torch.zeros(()), 0
        if isinstance(batches, Shard):
            batches = cast(Iterable[B], self.batches(batches.train))
        for batch in batches:
            optimizer.zero_grad()
            value = loss(own, batch)
            value.backward()
            if shift is not None:
                _add_to_gradients(trained, shift)
            if self.clip is not None:
                torch.nn.utils.clip_grad_norm_(list(trained.values()), self.clip)
            optimizer.step()
            total, steps = total + value.detach(), steps + 1
        return Fitted(Params({name: leaf.detach() for name, leaf in own.items()}), steps, total / max(steps, 1))

    def reach(self, steps: int) -> float:
        """‖a‖₁ of FedNova: how many steps of plain gradient descent go as far as `steps` of these on one gradient.

        Momentum ρ starts at zero every time, so step j of K counts (1 - ρ^(K-j)) / (1 - ρ); without it ‖a‖₁ = K.
        """
        rho = self.momentum
        return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)

    def check_plain(self) -> None:
        """Raises ValueError unless every step is lr times a gradient."""
        self.check_sum_of_gradients()
        for name in ("momentum", "weight_decay", "clip"):
            if getattr(self, name):
                raise ValueError(
                    f"fit.{name}: {getattr(self, name)}; the method is defined for plain steps, leave it out"
                )

    def check_sum_of_gradients(self) -> None:
        """Raises ValueError for an optimizer whose steps are no sum of gradients, which `reach` counts."""
        if self.optimizer != "sgd":
            raise ValueError(f"fit.optimizer: {self.optimizer} steps are no sum of gradients; take sgd")

    def batches(self, split: Split) -> Iterator[Batch]:
        """Every epoch's batches of a split, in an order drawn from the global random state, augmented.

        All images are used: the last batch is smaller, and a last batch of one joins the batch before it, for which
        BatchNorm has a variance.
        """
        for _ in range(self.epochs):
            order = torch.randperm(len(split)).to(split.index.device)
            for positions in order.split(self._sizes(len(split))):
                x = augment.AUGMENTS[self.augment](split.images(positions) / 255)
                yield Batch(x, split.labels(positions), positions)

    def _sizes(self, n: int) -> list[int]:
        sizes = [self.batch_size] * (n // self.batch_size) + [n % self.batch_size] * (n % self.batch_size > 0)
        if len(sizes) > 1 and sizes[-1] == 1:
            sizes[-2:] = [sizes[-2] + 1]
        return sizes

    def _optimizer(self, leaves: list[Tensor]) -> torch.optim.Optimizer:
        if self.optimizer == "adam":
            return torch.optim.Adam(leaves, lr=self.lr, weight_decay=self.weight_decay, fused=True)
        return torch.optim.SGD(leaves, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay, fused=True)


def _add_to_gradients(leaves: dict[str, Tensor], shift: Params) -> None:
    for name, leaf in leaves.items():
        leaf.grad = shift[name].clone() if leaf.grad is None else leaf.grad.add_(shift[name])
