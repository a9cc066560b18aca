"""Fed-SVR: Fed-SHVR without normalised averaging, so VRL-SGD on its semi-supervised objective.

Wang et al., "Federated Semi-Supervised Learning with Class Distribution Mismatch", https://arxiv.org/abs/2111.00010,
its ablation; Liang et al., "Variance Reduced Local SGD with Lower Communication Complexity",
https://arxiv.org/abs/1912.12844, whose Δ_k is -d_k. Notation as in fed_shvr.py.

Departures: VRL-SGD has the same number of steps at every client; here τ_k differ as in Fed-SHVR.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedcore import semi, tree
from fedcore.cohort import Cohort
from fedcore.data.shards import Shard
from fedcore.fit import LocalFit
from fedcore.method import Global, Method, Metrics
from fedcore.tree import Params


class Client(NamedTuple):
    d: Params  # d_k of the round before
    w: Params  # θ_k of the round before
    tau: int  # τ_k of the round before, 0 before the first


class Message(NamedTuple):
    x: Params
    alpha0: float


class Reply(NamedTuple):
    w: Params  # θ_k
    size: int  # N_k + M_k
    loss: Tensor  # 0-d


@dataclass(frozen=True, kw_only=True)
class FedSVR(Method[Global, Client]):
    needs_unlabelled: ClassVar[bool] = True
    every_client: ClassVar[bool] = True

    fit: LocalFit = LocalFit(epochs=2, batch_size=32, lr=0.01)
    objective: semi.Objective = semi.Objective()

    def __post_init__(self) -> None:
        self.fit.check_plain()

    def init_server(self, x: Params) -> Global:
        return Global(x)

    def init_client(self, server: Global) -> Client:
        x = server.x.trainable()
        return Client(x.zeros(), x, 0)

    def round(self, server: Global, cohort: Cohort[Client]) -> tuple[Global, Metrics]:
        alpha0 = self.objective.weight(cohort.round * self.fit.epochs)
        reply = cohort.map(self.local, Message(server.x, alpha0))
        omega = semi.shares(reply.size)
        x = tree.mean(reply.w, omega)
        return Global(x), {"train_loss": tree.mean(reply.loss, omega).item(), "alpha0": alpha0}

    def local(self, message: Message, client: Client, shard: Shard) -> tuple[Reply, Client]:
        x, alpha0 = message
        v = self.objective.labels(self.task.predict(x, shard.unlabelled.images()), alpha0)
        d = client.d
        if client.tau:
            d = d + (client.w - x) / (self.fit.lr * client.tau)
        batches = semi.pairs(self.fit, self.objective, shard)
        w, steps, loss = self.fit(self.objective.loss(self.task, v, alpha0), x, batches, shift=d)
        return Reply(w, len(shard.train) + len(shard.unlabelled), loss), Client(d, w.trainable(), steps)

    def local_loss(self, server: Global, shard: Shard, round: int) -> Callable[[Params], Tensor]:
        alpha0 = self.objective.weight(round * self.fit.epochs)
        return self.objective.whole(self.task, shard, server.x, alpha0)
