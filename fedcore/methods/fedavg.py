"""FedAvg: the size-weighted average of the clients' locally trained models.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017, Algorithm 1,
https://arxiv.org/abs/1602.05629. Notation: x server model, w a client's trained model. Departure: a
last batch of one image joins the batch before it (LocalFit).
"""

from dataclasses import dataclass

from fedcore import tree
from fedcore.cohort import Cohort
from fedcore.data.shards import Shard
from fedcore.method import Global, Method, Metrics, Trained
from fedcore.tree import Params


@dataclass(frozen=True, kw_only=True)
class FedAvg(Method[Global, None]):
    def init_server(self, x: Params) -> Global:
        return Global(x)

    def round(self, server: Global, cohort: Cohort[None]) -> tuple[Global, Metrics]:
        reply = cohort.map(self.local, server)
        x = tree.mean(reply.w, cohort.weights)
        return Global(x), {"train_loss": tree.mean(reply.loss, cohort.weights).item()}

    def local(self, server: Global, client: None, shard: Shard) -> tuple[Trained, None]:
        w, steps, loss = self.fit(self.task.loss, server.x, shard)
        return Trained(w, loss, steps), None

    def paper_cost(self, size: int) -> int:
        return 2 * size  # CP-CFL (13)*
