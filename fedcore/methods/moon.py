"""MOON: a client's representation is drawn to the global model's and pushed from its own of before.

Li, He, Song, "Model-Contrastive Federated Learning", CVPR 2021, Algorithm 1 and equation (3),
https://arxiv.org/abs/2103.16257. Notation: x global model w^t, w a client's model, z, z_glob, z_prev their
representations of a batch, μ weight and τ temperature of the contrast.

Departures: a last batch of one image joins the batch before it (LocalFit). What the paper leaves open: a client that
takes part for the first time has no model of before and trains without the contrast, as in the released code.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from fedcore import tree
from fedcore.cohort import Cohort
from fedcore.data.shards import Shard
from fedcore.fit import LocalFit
from fedcore.method import Global, Method, Metrics
from fedcore.model import Batch
from fedcore.tree import Params


class Client(NamedTuple):
    w: Params | None  # its model when it last took part


class Reply(NamedTuple):
    w: Params
    loss: Tensor  # 0-d


@dataclass(frozen=True, kw_only=True)
class Moon(Method[Global, Client]):
    # as FedProc's tables train (its code; the rate is MOON's)
    fit: LocalFit = LocalFit(epochs=10, batch_size=64, lr=0.01, momentum=0.9, weight_decay=1e-5)
    mu: float = 5.0  # CIFAR-10; 1 for CIFAR-100 and Tiny-ImageNet, 10 for CIFAR-100 on 50 or 100 clients
    temperature: float = 0.5  # τ

    def __post_init__(self) -> None:
        if self.mu < 0:
            raise ValueError(f"mu: {self.mu} is negative; 0 is FedAvg")
        if self.temperature <= 0:
            raise ValueError(f"temperature: {self.temperature} is not positive; MOON's is 0.5")

    def init_server(self, x: Params) -> Global:
        return Global(x)

    def init_client(self, server: Global) -> Client:
        return Client(None)

    def round(self, server: Global, cohort: Cohort[Client]) -> tuple[Global, Metrics]:
        reply = cohort.map(self.local, server)
        x = tree.mean(reply.w, cohort.weights)
        return Global(x), {"train_loss": tree.mean(reply.loss, cohort.weights).item()}

    def local(self, server: Global, client: Client, shard: Shard) -> tuple[Reply, Client]:
        previous = client.w

        def loss(w: Params, batch: Batch) -> Tensor:
            if previous is None:
                return self.task.loss(w, batch)
            with torch.no_grad():
                z_glob, z_prev = (self.task.represent(frozen, batch.x).z for frozen in (server.x, previous))
            z, logits = self.task.represent(w, batch.x, train=True)
            return F.cross_entropy(logits, batch.y) + self.mu * contrast(z, z_glob, z_prev, self.temperature)

        w, _, value = self.fit(loss, server.x, shard)
        return Reply(w, value), Client(w)


def contrast(z: Tensor, z_glob: Tensor, z_prev: Tensor, temperature: float) -> Tensor:
    """-log of z_glob's share of the two similarities (cosine / temperature) to z, all (b, d), batch mean; (3)."""
    similarity = torch.stack([F.cosine_similarity(z, other, dim=1) for other in (z_glob, z_prev)], 1)
    return F.cross_entropy(similarity / temperature, similarity.new_zeros(len(z), dtype=torch.long))
