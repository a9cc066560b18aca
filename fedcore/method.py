"""What a federated method is."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from fedcore import metrics
from fedcore.cohort import Cohort
from fedcore.data.shards import Shard
from fedcore.fit import LocalFit
from fedcore.model import Task
from fedcore.tree import Params

S = TypeVar("S")
C = TypeVar("C")

Metrics = dict[str, float | Tensor]
"""Numbers of a round by name; a tensor (m,) holds one number for each client of the cohort, in the order of its ids."""


class Global(NamedTuple):
    """The server state of a method that keeps one model."""

    x: Params


class Trained(NamedTuple):
    """The reply of a client that trained a model."""

    w: Params
    loss: Tensor  # 0-d, mean over its steps
    steps: int


@dataclass(frozen=True, kw_only=True)
class Method(ABC, Generic[S, C]):
    """A federated method: its fields are its hyper-parameters and the settings a run may name.

    `round` is the server's half of the paper's algorithm box; every `cohort.map(self.phase, message)` in it is one
    "for each client in parallel do", and the phase is the client's half. Phases are pure: see fedcore.cohort.Phase.
    """

    task: Task = field(default_factory=Task, repr=False)  # bound by the run once its data are known
    fit: LocalFit = field(default_factory=LocalFit)

    personal: ClassVar[bool] = False  # True where clients predict with different models
    needs_labels: ClassVar[bool] = True  # of all training images
    needs_unlabelled: ClassVar[bool] = False  # images at every client, beside labelled ones
    every_client: ClassVar[bool] = False  # True where the method is defined for all clients in every round only

    @abstractmethod
    def init_server(self, x: Params) -> S:
        """The server's state before round zero, `x` being the model drawn for the run."""

    def init_client(self, server: S) -> C:
        """A client's state when it first takes part; default None."""
        return None  # type: ignore[return-value]

    def prepare(self, server: S, everyone: Cohort[C]) -> S:
        """Round zero, with all clients; default nothing."""
        return server

    @abstractmethod
    def round(self, server: S, cohort: Cohort[C]) -> tuple[S, Metrics]:
        """One communication round."""

    def model(self, server: S, client: C, shard: Shard) -> Params:
        """The model that the client of `shard` predicts with; default the server's `x`."""
        x: Params = cast(Any, server).x
        return x

    def predict(self, server: S, client: C, shard: Shard, x: Tensor) -> Tensor:
        """Logits (b, K) of images x (b, C, H, W) uint8, as the client of `shard` predicts them."""
        return self.task.predict(self.model(server, client, shard), x)

    def local_loss(self, server: S, shard: Shard, round: int) -> Callable[[Params], Tensor]:
        """What the client of `shard` descends in `round`, over all its images and in eval mode: model -> 0-d.

        Default the cross-entropy of its training images.
        """
        return partial(self.task.mean_loss, split=shard.train)

    def paper_cost(self, size: int) -> int | None:
        """Bytes that a client exchanges in a round by the paper's own formula, for a model of `size` bytes."""
        return None

    def models(self, server: S) -> dict[str, Params]:
        """The final models worth keeping, by name; default the server's `x`, if it has one."""
        return {"global": server.x} if hasattr(server, "x") else {}

    @torch.no_grad()
    def assess(self, server: S, client: C, shard: Shard) -> tuple[metrics.Score, C]:
        """The phase that scores a client's model on the client's own test images."""
        return metrics.score(self.predict(server, client, shard, shard.test.images()), shard.test.labels()), client
