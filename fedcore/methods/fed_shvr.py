"""Fed-SHVR: pseudo-labels once a round, steps corrected for heterogeneity, and normalised averaging.

Wang et al., "Federated Semi-Supervised Learning with Class Distribution Mismatch", https://arxiv.org/abs/2111.00010,
equations (6)-(17). Notation: θ server model, v̂_k pseudo-labels, τ_k local steps, ω_k weight by all images, labelled or
not, G_k a client's average step, G their mean, d_k correction, η local rate.

Departures: our text of the paper names (17) and its d_k but not their formulas; they are derived as FedNova's averaging
with VRL-SGD's correction, the only combination of the two that reaches the optimum of heterogeneous quadratics. A
client finds G in the step between two server models, so a round costs what FedAvg's does and one number more.
BatchNorm's statistics are averaged.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedcore import semi, tree
from fedcore.cohort import Cohort
from fedcore.data.shards import Shard
from fedcore.fit import LocalFit
from fedcore.method import Method, Metrics
from fedcore.tree import Params


class Server(NamedTuple):
    x: Params  # θ
    tau: float  # τ_eff of the round before, 0 before the first


class Client(NamedTuple):
    x: Params  # θ of the round before
    rest: Params  # d_k - G_k of the round before; G, which the server had not told yet, makes it the new d_k


class Message(NamedTuple):
    x: Params
    tau: float
    alpha0: float


class Reply(NamedTuple):
    G: Params  # G_k
    tau: int  # τ_k
    size: int  # N_k + M_k
    buffers: Params
    loss: Tensor  # 0-d


@dataclass(frozen=True, kw_only=True)
class FedSHVR(Method[Server, Client]):
    needs_unlabelled: ClassVar[bool] = True
    every_client: ClassVar[bool] = True

    fit: LocalFit = LocalFit(epochs=2, batch_size=32, lr=0.01)
    objective: semi.Objective = semi.Objective()

    def __post_init__(self) -> None:
        self.fit.check_plain()

    def init_server(self, x: Params) -> Server:
        return Server(x, 0.0)

    def init_client(self, server: Server) -> Client:
        x = server.x.trainable()
        return Client(x, x.zeros())

    def round(self, server: Server, cohort: Cohort[Client]) -> tuple[Server, Metrics]:
        alpha0 = self.objective.weight(cohort.round * self.fit.epochs)
        reply = cohort.map(self.local, Message(server.x, server.tau, alpha0))
        omega = semi.shares(reply.size)
        tau = (omega * reply.tau).sum().item()
        x = server.x.trainable() - tree.mean(reply.G, omega) * (self.fit.lr * tau)
        x = server.x.replace(x).replace(tree.mean(reply.buffers, omega))
        return Server(x, tau), {"train_loss": tree.mean(reply.loss, omega).item(), "alpha0": alpha0, "tau_eff": tau}

    def local(self, message: Message, client: Client, shard: Shard) -> tuple[Reply, Client]:
        x, tau, alpha0 = message
        v = self.objective.labels(self.task.predict(x, shard.unlabelled.images()), alpha0)
        d = self.correction(client, x, tau)
        batches = semi.pairs(self.fit, self.objective, shard)
        w, steps, loss = self.fit(self.objective.loss(self.task, v, alpha0), x, batches, shift=d)
        G_k = (x.trainable() - w) / (self.fit.lr * steps)
        size = len(shard.train) + len(shard.unlabelled)
        return Reply(G_k, steps, size, w.buffers(), loss), Client(x.trainable(), d - G_k)

    def correction(self, client: Client, x: Params, tau: float) -> Params:
        """d_k for the round of the server model `x`, which the step of length η `tau` led to."""
        return client.rest + (client.x - x) / (self.fit.lr * tau) if tau else client.rest

    def local_loss(self, server: Server, shard: Shard, round: int) -> Callable[[Params], Tensor]:
        alpha0 = self.objective.weight(round * self.fit.epochs)
        return self.objective.whole(self.task, shard, server.x, alpha0)
