"""FedProc: clients draw their representations to global class prototypes, less and less as the rounds go by.

Mu et al., "FedProc: Prototypical Contrastive Federated Learning on Non-IID Data", FGCS 143:93-104 (2023),
https://arxiv.org/abs/2109.12273. Notation: x server model w^t, w a client's w_i, z representation, c_k prototype of
class k, α_t = 1 - t/T share of the prototypical loss ℓ_gpc against ℓ_ce in round t of T, cross-entropy alone at t =
0.

Departures: prototypes are means over a client's whole training set without augmentation and in eval mode (the
released code: augmented, in train mode, whole batches only). The code's prototypes of the untrained model at t = 0
are left out: whatever classes they have, the first round's own replace. z is normalised here too, which changes
nothing with the head `projection_unit`, FedProc's, and defines the method for others. A last batch of one joins the
one before it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from fedcore import tree
from fedcore.cohort import Cohort
from fedcore.data.shards import Shard, Split
from fedcore.fit import LocalFit
from fedcore.method import Method, Metrics
from fedcore.model import Batch
from fedcore.tree import Params


class Server(NamedTuple):
    x: Params
    c: Tensor  # (K, d), zero for a class that nobody has shown yet


class Message(NamedTuple):
    x: Params
    c: Tensor  # (K, d)
    alpha: float


class Reply(NamedTuple):
    w: Params
    sums: Tensor  # (K, d), of z by class
    counts: Tensor  # (K,)
    loss: Tensor  # 0-d


@dataclass(frozen=True, kw_only=True)
class FedProc(Method[Server, None]):
    # the released code's; its rate of 0.1 is its parser's, MOON's experiments have 0.01
    fit: LocalFit = LocalFit(epochs=10, batch_size=64, lr=0.01, momentum=0.9, weight_decay=1e-5)
    divisor: int | None = None  # rounds after which α is 0; None: T. The code has 100 whatever T is

    def __post_init__(self) -> None:
        if self.divisor is not None and self.divisor < 1:
            raise ValueError(f"divisor: {self.divisor}; take at least 1, or leave it out for the number of rounds")

    def init_server(self, x: Params) -> Server:
        *_, output = (weight for weight in x.under("head.").values() if weight.dim() == 2)  # (K, d)
        return Server(x, torch.zeros_like(output))

    def round(self, server: Server, cohort: Cohort[None]) -> tuple[Server, Metrics]:
        x, c = server
        alpha = self.alpha(cohort.round, cohort.rounds)
        reply = cohort.map(self.local, Message(x, c, alpha))
        counts = reply.counts.sum(0)[:, None]
        c = torch.where(counts > 0, reply.sums.sum(0) / counts.clamp(min=1), c)
        x = tree.mean(reply.w, cohort.weights)
        return Server(x, c), {"train_loss": tree.mean(reply.loss, cohort.weights).item(), "alpha": alpha}

    def alpha(self, t: int, T: int) -> float:
        return max(0.0, 1 - t / (self.divisor or T)) if t else 0.0

    def local(self, message: Message, client: None, shard: Shard) -> tuple[Reply, None]:
        x, c, alpha = message

        def loss(w: Params, batch: Batch) -> Tensor:
            if not alpha:
                return self.task.loss(w, batch)
            z, s = self.task.represent(w, batch.x, train=True)
            return alpha * gpc(z, c, batch.y) + (1 - alpha) * F.cross_entropy(s, batch.y)

        w, _, value = self.fit(loss, x, shard)
        sums, counts = self.prototypes(w, shard.train, len(c))
        return Reply(w, sums, counts, value), None

    @torch.no_grad()
    def prototypes(self, w: Params, split: Split, classes: int, batch_size: int = 128) -> tuple[Tensor, Tensor]:
        """Sums (K, d) and counts (K,) of the normalised representations of a split by class."""
        z = torch.cat([F.normalize(self.task.represent(w, x).z, dim=1) for x in split.images().split(batch_size)])
        member = F.one_hot(split.labels(), classes).to(z.dtype)  # (n, K)
        return member.T @ z, member.sum(0)


def gpc(z: Tensor, c: Tensor, y: Tensor) -> Tensor:
    """ℓ_gpc of representations z (b, d) with labels y (b,) and prototypes c (K, d), constants; batch mean, 0-d.

    Cross-entropy whose logits are the cosines of z and every prototype, without temperature; a zero prototype's is 0.
    """
    return F.cross_entropy(F.normalize(z, dim=1) @ F.normalize(c, dim=1).T, y)
