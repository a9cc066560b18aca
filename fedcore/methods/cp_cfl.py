"""CP-CFL: clustered federated learning whose clusters share a contrastively pre-trained encoder at the start.

Tun et al., "Contrastive encoder pre-training-based clustered federated learning for heterogeneous data", Neural
Networks 165:689-704 (2023), Algorithm 2, equations (5) and (6), https://arxiv.org/abs/2311.16535. Notation: θ the N
models, θ_f encoder, θ_c head, T_c rounds with the encoder frozen, n_u cluster of client u, φ_u its trained model.

Departures: a last batch of one image joins the batch before it (LocalFit). What the text leaves open: the identity with
which a client is evaluated is chosen on its training images with the averaged models, during the T_c rounds too.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from fedcore import clusters, tree
from fedcore.cohort import Cohort
from fedcore.data.shards import Shard
from fedcore.fit import LocalFit
from fedcore.method import Method, Metrics
from fedcore.tree import Params


class Server(NamedTuple):
    theta: Params  # (N, ...)


class Reply(NamedTuple):
    phi: Params
    n: int
    loss: Tensor  # 0-d


@dataclass(frozen=True, kw_only=True)
class CPCFL(Method[Server, None]):
    fit: LocalFit = LocalFit(epochs=3, batch_size=32, optimizer="adam", lr=1e-3)  # E, batch, Adam (SEED)
    num_clusters: int = 3  # N (SEED)
    warmup_rounds: int = 10  # T_c (SEED), inside the T rounds

    personal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.num_clusters < 1:
            raise ValueError(f"num_clusters: {self.num_clusters}; there must be at least one")
        if self.warmup_rounds < 0:
            raise ValueError(f"warmup_rounds: {self.warmup_rounds} is negative")

    def init_server(self, x: Params) -> Server:
        heads = [self.task.init().under("head.") for _ in range(self.num_clusters - 1)]
        return Server(tree.stack([x] + [x.replace(head) for head in heads]))

    def round(self, server: Server, cohort: Cohort[None]) -> tuple[Server, Metrics]:
        theta = server.theta
        warm = cohort.round < self.warmup_rounds
        reply = cohort.map(self.warm_up if warm else self.local, theta)
        n = torch.as_tensor(reply.n)
        shared = "head." if warm else ""  # the frozen encoder is not averaged, so it stays bit for bit
        theta = theta.replace(tree.mean_by(reply.phi.under(shared), cohort.weights, n, theta.under(shared)))
        loss = tree.mean(reply.loss, cohort.weights).item()
        return Server(theta), {"train_loss": loss, "cluster": n}

    def warm_up(self, theta: Params, client: None, shard: Shard) -> tuple[Reply, None]:
        n = int(torch.randint(self.num_clusters, ()))
        phi, _, loss = self.fit(self.task.loss, tree.take(theta, n), shard, frozen="encoder.")
        return Reply(phi, n, loss), None

    def local(self, theta: Params, client: None, shard: Shard) -> tuple[Reply, None]:
        n = clusters.choose(self.task, theta, shard.train)
        phi, _, loss = self.fit(self.task.loss, tree.take(theta, n), shard)
        return Reply(phi, n, loss), None

    def paper_cost(self, size: int) -> int:
        return (self.num_clusters + 1) * size  # all N models down, one up; CP-CFL (14)*

    def model(self, server: Server, client: None, shard: Shard) -> Params:
        return tree.take(server.theta, clusters.choose(self.task, server.theta, shard.train))

    def models(self, server: Server) -> dict[str, Params]:
        return {f"cluster{n}": tree.take(server.theta, n) for n in range(self.num_clusters)}
