"""SimSiam: as BYOL without a target network; the stopped gradient alone keeps it from collapsing.

Chen and He, "Exploring Simple Siamese Representation Learning", CVPR 2021, Algorithm 1,
https://arxiv.org/abs/2011.10566; heads of CP-CFL, methods.md 1.1 (11)* and 1.3.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from fedcore import losses
from fedcore.contrastive import heads
from fedcore.contrastive.spec import Contrastive, Learner


class SimSiamLearner(Learner):
    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector, self.predictor = heads.projector(encoder.features), heads.predictor()

    def loss(self, a: Tensor, b: Tensor) -> Tensor:
        z_a, z_b = (self.projector(self.encoder(view)) for view in (a, b))
        q_a, q_b = self.predictor(z_a), self.predictor(z_b)
        return losses.negative_cosine(q_a, z_b) / 2 + losses.negative_cosine(q_b, z_a) / 2


@dataclass(frozen=True, kw_only=True)
class SimSiam(Contrastive):
    algorithm: ClassVar[str] = "simsiam"

    def learner(self, encoder: nn.Module) -> Learner:
        return SimSiamLearner(encoder)
