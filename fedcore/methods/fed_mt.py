"""Fed-MT: mean teachers at the clients, and federated averaging of the students.

Tarvainen and Valpola, "Mean teachers are better role models", NeurIPS 2017, https://arxiv.org/abs/1703.01780, with
FedAvg, as Wang et al. compare it, https://arxiv.org/abs/2111.00010. Notation: w student, a decay of the teacher, w(t)
weight of the consistency loss.

Departures: a client's teacher begins every round as the server's student, for how the paper keeps teachers is not in
our text of it; the teacher's BatchNorm statistics follow the student's as its weights do. The consistency weight rises
with the rounds as Fed-SHVR's α0 does.
"""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from fedcore import semi, tree
from fedcore.cohort import Cohort
from fedcore.data.shards import Shard
from fedcore.fit import LocalFit
from fedcore.method import Global, Method, Metrics
from fedcore.tree import Params


class Message(NamedTuple):
    x: Params
    weight: float


class Reply(NamedTuple):
    w: Params
    size: int  # N_k + M_k
    loss: Tensor  # 0-d


@dataclass(frozen=True, kw_only=True)
class FedMT(Method[Global, None]):
    needs_unlabelled: ClassVar[bool] = True

    fit: LocalFit = LocalFit(epochs=2, batch_size=32, lr=0.01)
    objective: semi.Objective = semi.Objective(alpha1=0.0, alpha2=0.0)  # alpha0 is w_max; the others have no part
    decay: float = 0.999  # mean teacher's code
    noise: float = 0.15  # standard deviation added to pixels in [0, 1], apart for student and teacher; mean teacher's

    def __post_init__(self) -> None:
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay: {self.decay} is not in [0, 1)")
        if self.noise < 0:
            raise ValueError(f"noise: {self.noise} is negative; 0 is none")

    def init_server(self, x: Params) -> Global:
        return Global(x)

    def round(self, server: Global, cohort: Cohort[None]) -> tuple[Global, Metrics]:
        weight = self.objective.weight(cohort.round * self.fit.epochs)
        reply = cohort.map(self.local, Message(server.x, weight))
        omega = semi.shares(reply.size)
        loss = tree.mean(reply.loss, omega).item()
        return Global(tree.mean(reply.w, omega)), {"train_loss": loss, "consistency_weight": weight}

    def local(self, message: Message, client: None, shard: Shard) -> tuple[Reply, None]:
        x, weight = message
        teacher, step = x.clone(), 0

        def loss(w: Params, pair: semi.Pair) -> Tensor:
            nonlocal teacher, step
            known, bare = pair
            a = min(1 - 1 / (step + 1), self.decay)  # 0 before the first step: the student as it is
            teacher, step = follow(teacher, w, a), step + 1
            with torch.no_grad():
                target = F.softmax(self.task.logits(teacher, self.noisy(bare.x), train=True), dim=1)
            logits = self.task.logits(w, self.noisy(torch.cat([known.x, bare.x])), train=True)
            s, s_u = logits.split([len(known.y), len(bare.y)])
            return F.cross_entropy(s, known.y) + weight * F.mse_loss(F.softmax(s_u, dim=1), target)

        w, _, value = self.fit(loss, x, semi.pairs(self.fit, self.objective, shard))
        return Reply(w, len(shard.train) + len(shard.unlabelled), value), None

    def noisy(self, x: Tensor) -> Tensor:
        return x + self.noise * torch.randn_like(x)


@torch.no_grad()
def follow(teacher: Params, student: Params, a: float) -> Params:
    """a · teacher + (1 - a) · student."""
    return Params({name: value.lerp(student[name], 1 - a) for name, value in teacher.items()})
