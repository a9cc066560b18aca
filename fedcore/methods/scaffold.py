"""SCAFFOLD: control variates take the clients' drift out of their steps.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, Algorithm 1 with
option II, https://arxiv.org/abs/1910.06378. Notation: x server model, y_i a client's, c and c_i control variates, K
local steps, η local rate.

Departures: models are averaged by size and the global step is 1, as in FedProc's tables. With momentum, which the
paper does not have and those tables do, (x - y)/(Kη) would overstate the gradient by about 1/(1-ρ): K becomes ‖a‖₁,
which makes c_i⁺ the gradient where that is constant. Control variates are of parameters; BatchNorm's statistics are
averaged.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from fedcore import tree
from fedcore.cohort import Cohort
from fedcore.data.shards import Shard
from fedcore.fit import LocalFit
from fedcore.method import Method, Metrics
from fedcore.tree import Params


class Server(NamedTuple):
    x: Params
    c: Params


class Client(NamedTuple):
    c: Params  # c_i


class Reply(NamedTuple):
    y: Params
    dc: Params  # c_i⁺ - c_i
    loss: Tensor  # 0-d


@dataclass(frozen=True, kw_only=True)
class Scaffold(Method[Server, Client]):
    # as FedProc's tables train (its code; the rate is MOON's)
    fit: LocalFit = LocalFit(epochs=10, batch_size=64, lr=0.01, momentum=0.9, weight_decay=1e-5)

    def __post_init__(self) -> None:
        self.fit.check_sum_of_gradients()

    def init_server(self, x: Params) -> Server:
        return Server(x, x.trainable().zeros())

    def init_client(self, server: Server) -> Client:
        return Client(server.c.zeros())

    def round(self, server: Server, cohort: Cohort[Client]) -> tuple[Server, Metrics]:
        reply = cohort.map(self.local, server)
        x = tree.mean(reply.y, cohort.weights)
        c = server.c + tree.mean(reply.dc) * cohort.fraction  # |S|/m · mean of Δc_i over S
        loss = tree.mean(reply.loss, cohort.weights).item()
        return Server(x, c), {"train_loss": loss, "control_norm": c.norm().item()}

    def local(self, server: Server, client: Client, shard: Shard) -> tuple[Reply, Client]:
        x, c = server
        y, K, loss = self.fit(self.task.loss, x, shard, shift=c - client.c)
        if K == 0:
            return Reply(y, c.zeros(), loss), client
        c_plus = client.c - c + (x - y) / (self.fit.reach(K) * self.fit.lr)
        return Reply(y, c_plus - client.c, loss), Client(c_plus)
