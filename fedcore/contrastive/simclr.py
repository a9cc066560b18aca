"""SimCLR: two views of an image attract each other and repel all other images of the batch.

Chen et al., "A Simple Framework for Contrastive Learning of Visual Representations", ICML 2020, Algorithm 1,
https://arxiv.org/abs/2002.05709; heads and temperature of CP-CFL, methods.md 1.1 (8)* and 1.3.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from fedcore import losses
from fedcore.contrastive.spec import Contrastive, Learner


class SimCLRLearner(Learner):
    def __init__(self, encoder: Any, temperature: float) -> None:
        super().__init__()
        self.encoder, self.temperature = encoder, temperature
        self.projector = nn.Sequential(nn.Linear(encoder.features, 256), nn.ReLU(), nn.Linear(256, 256))  # θ_g (SEED)

    def loss(self, a: Tensor, b: Tensor) -> Tensor:
        return losses.nt_xent(self.projector(self.encoder(a)), self.projector(self.encoder(b)), self.temperature)


@dataclass(frozen=True, kw_only=True)
class SimCLR(Contrastive):
    algorithm: ClassVar[str] = "simclr"

    temperature: float = 0.1  # τ (SEED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"temperature: {self.temperature} is not in (0, inf)")

    def learner(self, encoder: nn.Module) -> Learner:
        return SimCLRLearner(encoder, self.temperature)
