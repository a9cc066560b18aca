"""Fed-Pseudo: hard pseudo-labels once a round, and federated averaging.

Lee, "Pseudo-Label", ICML workshop 2013, with FedAvg, as Wang et al. compare it, https://arxiv.org/abs/2111.00010,
(1)-(5). Notation as in fed_shvr.py.

Departures: the weight of unlabelled images rises as Fed-SHVR's α0 does, not as Lee's.
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


class Message(NamedTuple):
    x: Params
    alpha0: float


class Reply(NamedTuple):
    w: Params
    size: int  # N_k + M_k
    loss: Tensor  # 0-d


@dataclass(frozen=True, kw_only=True)
class FedPseudo(Method[Global, None]):
    needs_unlabelled: ClassVar[bool] = True

    fit: LocalFit = LocalFit(epochs=2, batch_size=32, lr=0.01)
    objective: semi.Objective = semi.Objective(alpha1=0.0, alpha2=0.0)

    def init_server(self, x: Params) -> Global:
        return Global(x)

    def round(self, server: Global, cohort: Cohort[None]) -> tuple[Global, Metrics]:
        alpha0 = self.objective.weight(cohort.round * self.fit.epochs)
        reply = cohort.map(self.local, Message(server.x, alpha0))
        omega = semi.shares(reply.size)
        loss = tree.mean(reply.loss, omega).item()
        return Global(tree.mean(reply.w, omega)), {"train_loss": loss, "alpha0": alpha0}

    def local(self, message: Message, client: None, shard: Shard) -> tuple[Reply, None]:
        x, alpha0 = message
        v = self.objective.labels(self.task.predict(x, shard.unlabelled.images()), alpha0)
        batches = semi.pairs(self.fit, self.objective, shard)
        w, _, loss = self.fit(self.objective.loss(self.task, v, alpha0), x, batches)
        return Reply(w, len(shard.train) + len(shard.unlabelled), loss), None

    def local_loss(self, server: Global, shard: Shard, round: int) -> Callable[[Params], Tensor]:
        alpha0 = self.objective.weight(round * self.fit.epochs)
        return self.objective.whole(self.task, shard, server.x, alpha0)
