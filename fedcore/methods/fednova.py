"""FedNova: updates are divided by how far their clients went before they are averaged.

Wang et al., "Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization", NeurIPS 2020,
equation (4) with momentum as local solver, https://arxiv.org/abs/2007.07481. Notation: x server model, w_i a
client's, a_i how its gradients add up, d_i normalised update, p_i = |D_i| / Σ|D_j| over the cohort, τ_eff = Σ p_i
‖a_i‖₁.

Departures: BatchNorm's statistics are averaged with p_i; a last batch of one image joins the batch before it
(LocalFit).
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from fedcore import tree
from fedcore.cohort import Cohort
from fedcore.data.shards import Shard
from fedcore.fit import LocalFit
from fedcore.method import Global, Method, Metrics
from fedcore.tree import Params


class Reply(NamedTuple):
    d: Params
    a: float  # ‖a_i‖₁
    buffers: Params
    loss: Tensor  # 0-d


@dataclass(frozen=True, kw_only=True)
class FedNova(Method[Global, None]):
    # as FedProc's tables train (its code; the rate is MOON's)
    fit: LocalFit = LocalFit(epochs=10, batch_size=64, lr=0.01, momentum=0.9, weight_decay=1e-5)

    def __post_init__(self) -> None:
        self.fit.check_sum_of_gradients()

    def init_server(self, x: Params) -> Global:
        return Global(x)

    def round(self, server: Global, cohort: Cohort[None]) -> tuple[Global, Metrics]:
        x, p = server.x, cohort.weights
        reply = cohort.map(self.local, server)
        tau = (p * reply.a).sum().item()
        moved = x.trainable() - tree.mean(reply.d, p) * tau
        x = x.replace(moved).replace(tree.mean(reply.buffers, p))
        return Global(x), {"train_loss": tree.mean(reply.loss, p).item(), "tau_eff": tau}

    def local(self, server: Global, client: None, shard: Shard) -> tuple[Reply, None]:
        x = server.x
        w, steps, loss = self.fit(self.task.loss, x, shard)
        a = self.fit.reach(steps)
        d = (x.trainable() - w) / max(a, 1)  # without images neither moves
        return Reply(d, a, w.buffers(), loss), None
