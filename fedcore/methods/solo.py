"""SOLO: every client trains its own model alone.

The floor of FedProc's tables (Mu et al., FGCS 143, 2023, https://arxiv.org/abs/2109.12273); over pooled clients it is
CP-CFL's Centralized 1 (all in one) and Centralized 2 (one pool for each true group). Notation: x common start, w a
client's model. Departure: the optimiser starts anew every round, as it does in the methods compared with. FedProc
scores it on the global test set, mean over clients: `personal_on_global` of a run.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from fedcore import tree
from fedcore.cohort import Cohort
from fedcore.data.shards import Shard
from fedcore.method import Global, Method, Metrics
from fedcore.tree import Params


class Client(NamedTuple):
    w: Params


class Reply(NamedTuple):
    loss: Tensor  # 0-d; the model stays with the client


@dataclass(frozen=True, kw_only=True)
class Solo(Method[Global, Client]):
    personal: ClassVar[bool] = True

    def init_server(self, x: Params) -> Global:
        return Global(x)

    def init_client(self, server: Global) -> Client:
        return Client(server.x)

    def round(self, server: Global, cohort: Cohort[Client]) -> tuple[Global, Metrics]:
        reply = cohort.map(self.local, None)
        return server, {"train_loss": tree.mean(reply.loss, cohort.weights).item()}

    def local(self, message: None, client: Client, shard: Shard) -> tuple[Reply, Client]:
        w, _, loss = self.fit(self.task.loss, client.w, shard)
        return Reply(loss), Client(w)

    def model(self, server: Global, client: Client, shard: Shard) -> Params:
        return client.w

    def models(self, server: Global) -> dict[str, Params]:
        return {}
