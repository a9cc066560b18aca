"""IFCA: N models, every client trains the one with the lowest loss on its data.

Ghosh et al., "An Efficient Framework for Clustered Federated Learning", NeurIPS 2020, Algorithm 1 (model averaging),
https://arxiv.org/abs/2006.04088. Notation: θ the N models, n_u cluster of client u, φ_u its trained model, D_u data.

Departures: clusters are averaged by |D_u| as in CP-CFL's (6) (the authors' code takes the plain mean; equal for equal
sizes). From a pre-trained encoder all N models share it and only heads differ, "IFCA (FedAvg)" of the CP-CFL paper.
Restarts, which the CP-CFL paper mentions without numbers: before the first round all models are drawn again until each
is chosen by `min_share` of the clients, and once more whenever `restart_round` rounds after a start some cluster of the
cohort is empty; the rounds before such a restart stay spent.
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
    age: int  # rounds since the models were drawn
    restarts: int


class Choice(NamedTuple):
    n: int


class Reply(NamedTuple):
    phi: Params
    n: int
    loss: Tensor  # 0-d


@dataclass(frozen=True, kw_only=True)
class IFCA(Method[Server, None]):
    fit: LocalFit = LocalFit(epochs=3, batch_size=32, optimizer="adam", lr=1e-3)  # as CP-CFL trains (SEED)
    num_clusters: int = 3  # N (SEED)
    min_share: float = 0.15  # of the clients, for every cluster at the start (DERIVED from 0.35 for 2 and 0.10 for 4)
    restart_round: int = 10  # r_0 (DERIVED)
    max_restarts: int = 20  # (DERIVED); 0 never restarts

    personal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.num_clusters < 1:
            raise ValueError(f"num_clusters: {self.num_clusters}; there must be at least one")
        if self.restart_round < 1:
            raise ValueError(f"restart_round: {self.restart_round}; the first round that can fail is 1")
        if self.max_restarts < 0:
            raise ValueError(f"max_restarts: {self.max_restarts} is negative; 0 never restarts")
        if self.min_share < 0:
            raise ValueError(f"min_share: {self.min_share} is negative; 0 takes any start")
        if self.min_share * self.num_clusters > 1:
            raise ValueError(
                f"min_share: {self.num_clusters} clusters cannot each hold {self.min_share} of the clients"
            )

    def init_server(self, x: Params) -> Server:
        return Server(self._draw(x), 0, 0)

    def _draw(self, x: Params) -> Params:
        return tree.stack([x] + [self.task.init() for _ in range(self.num_clusters - 1)])

    def prepare(self, server: Server, everyone: Cohort[None]) -> Server:
        theta, age, restarts = server
        while restarts < self.max_restarts:
            n = everyone.map(self.select, theta).n
            if clusters.members(torch.as_tensor(n), self.num_clusters).min() >= self.min_share * len(everyone.ids):
                break
            theta, restarts = self._draw(self.task.init()), restarts + 1
        return Server(theta, age, restarts)

    def select(self, theta: Params, client: None, shard: Shard) -> tuple[Choice, None]:
        return Choice(clusters.choose(self.task, theta, shard.train)), None

    def round(self, server: Server, cohort: Cohort[None]) -> tuple[Server, Metrics]:
        theta, age, restarts = server
        reply = cohort.map(self.local, theta)
        n = torch.as_tensor(reply.n)
        theta = tree.mean_by(reply.phi, cohort.weights, n, theta)
        metrics: Metrics = {
            "train_loss": tree.mean(reply.loss, cohort.weights).item(),
            "restarts": float(restarts),
            "cluster": n,
        }
        failed = age + 1 == self.restart_round and clusters.members(n, self.num_clusters).min() == 0
        if failed and restarts < self.max_restarts:
            return Server(self._draw(self.task.init()), 0, restarts + 1), metrics
        return Server(theta, age + 1, restarts), metrics

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
