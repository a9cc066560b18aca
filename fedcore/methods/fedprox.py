"""FedProx: FedAvg whose clients are held near the server's model by a proximal term.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, Algorithm 2,
https://arxiv.org/abs/1812.06127. Notation: x server model (w^t), w a client's model, μ strength. Departures: a fixed
number of epochs instead of γ-inexact solutions, weights by size instead of sampling by size, as in the tables it is
compared in; a last batch of one image joins the batch before it (LocalFit).
"""

from dataclasses import dataclass

from torch import Tensor

from fedcore import tree
from fedcore.cohort import Cohort
from fedcore.data.shards import Shard
from fedcore.fit import LocalFit
from fedcore.method import Global, Method, Metrics, Trained
from fedcore.model import Batch
from fedcore.tree import Params


@dataclass(frozen=True, kw_only=True)
class FedProx(Method[Global, None]):
    # as FedProc's tables train (its code; the rate is MOON's)
    fit: LocalFit = LocalFit(epochs=10, batch_size=64, lr=0.01, momentum=0.9, weight_decay=1e-5)
    mu: float = 0.001  # Flower's setting for CIFAR-10 and -100; MOON's paper found 0.01 best on CIFAR-10

    def __post_init__(self) -> None:
        if self.mu < 0:
            raise ValueError(f"mu: {self.mu} is negative; 0 is FedAvg")

    def init_server(self, x: Params) -> Global:
        return Global(x)

    def round(self, server: Global, cohort: Cohort[None]) -> tuple[Global, Metrics]:
        reply = cohort.map(self.local, server)
        x = tree.mean(reply.w, cohort.weights)
        return Global(x), {"train_loss": tree.mean(reply.loss, cohort.weights).item()}

    def local(self, server: Global, client: None, shard: Shard) -> tuple[Trained, None]:
        x = server.x.trainable()

        def loss(w: Params, batch: Batch) -> Tensor:
            return self.task.loss(w, batch) + self.mu / 2 * x.distance2(w)

        w, steps, value = self.fit(loss, server.x, shard)
        return Trained(w, value, steps), None
