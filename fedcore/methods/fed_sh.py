"""Fed-SH: Fed-SHVR without the correction d_k, so FedNova on its semi-supervised objective.

Wang et al., "Federated Semi-Supervised Learning with Class Distribution Mismatch", https://arxiv.org/abs/2111.00010,
its ablation. Notation as in fed_shvr.py.

Departures: as there.
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
    G: Params  # G_k
    tau: int  # τ_k
    size: int  # N_k + M_k
    buffers: Params
    loss: Tensor  # 0-d


@dataclass(frozen=True, kw_only=True)
class FedSH(Method[Global, None]):
    needs_unlabelled: ClassVar[bool] = True

    fit: LocalFit = LocalFit(epochs=2, batch_size=32, lr=0.01)
    objective: semi.Objective = semi.Objective()

    def __post_init__(self) -> None:
        self.fit.check_plain()

    def init_server(self, x: Params) -> Global:
        return Global(x)

    def round(self, server: Global, cohort: Cohort[None]) -> tuple[Global, Metrics]:
        alpha0 = self.objective.weight(cohort.round * self.fit.epochs)
        reply = cohort.map(self.local, Message(server.x, alpha0))
        omega = semi.shares(reply.size)
        tau = (omega * reply.tau).sum().item()
        x = server.x.trainable() - tree.mean(reply.G, omega) * (self.fit.lr * tau)
        x = server.x.replace(x).replace(tree.mean(reply.buffers, omega))
        return Global(x), {"train_loss": tree.mean(reply.loss, omega).item(), "alpha0": alpha0, "tau_eff": tau}

    def local(self, message: Message, client: None, shard: Shard) -> tuple[Reply, None]:
        x, alpha0 = message
        v = self.objective.labels(self.task.predict(x, shard.unlabelled.images()), alpha0)
        batches = semi.pairs(self.fit, self.objective, shard)
        w, steps, loss = self.fit(self.objective.loss(self.task, v, alpha0), x, batches)
        G_k = (x.trainable() - w) / (self.fit.lr * steps)
        return Reply(G_k, steps, len(shard.train) + len(shard.unlabelled), w.buffers(), loss), None

    def local_loss(self, server: Global, shard: Shard, round: int) -> Callable[[Params], Tensor]:
        alpha0 = self.objective.weight(round * self.fit.epochs)
        return self.objective.whole(self.task, shard, server.x, alpha0)
