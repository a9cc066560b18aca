"""BYOL: the online branch predicts what a slowly moving target branch makes of the other view.

Grill et al., "Bootstrap Your Own Latent", NeurIPS 2020, Algorithm 1, https://arxiv.org/abs/2006.07733; heads and target
rate of CP-CFL, methods.md 1.1 (9)*, (10)* and 1.3. Departure from BYOL, CP-CFL's own: the target rate is constant.
"""

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fedcore import losses
from fedcore.contrastive import heads
from fedcore.contrastive.spec import Contrastive, Learner


class BYOLLearner(Learner):
    def __init__(self, encoder: Any, target_rate: float) -> None:
        super().__init__()
        self.encoder, self.target_rate = encoder, target_rate
        self.projector, self.predictor = heads.projector(encoder.features), heads.predictor()
        self.target = copy.deepcopy(nn.Sequential(self.encoder, self.projector)).requires_grad_(False)  # ξ

    def loss(self, a: Tensor, b: Tensor) -> Tensor:
        """‖q̄_a - z̄'_b‖² + ‖q̄_b - z̄'_a‖² = 4 - 2 Sim(q_a, z'_b) - 2 Sim(q_b, z'_a)."""
        q_a, q_b = (self.predictor(self.projector(self.encoder(view))) for view in (a, b))
        with torch.no_grad():
            z_a, z_b = self.target(a), self.target(b)
        return 4 + 2 * losses.negative_cosine(q_a, z_b) + 2 * losses.negative_cosine(q_b, z_a)

    @torch.no_grad()
    def after_step(self) -> None:
        """ξ ← β ξ + (1 - β) θ."""
        online = nn.Sequential(self.encoder, self.projector)
        for xi, theta in zip(self.target.parameters(), online.parameters(), strict=True):
            xi.lerp_(theta, 1 - self.target_rate)


@dataclass(frozen=True, kw_only=True)
class BYOL(Contrastive):
    algorithm: ClassVar[str] = "byol"

    target_rate: float = 0.9  # β, the share of the old target that stays (SEED)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.target_rate <= 1:
            raise ValueError(f"target_rate: {self.target_rate} is not in [0, 1]")

    def learner(self, encoder: nn.Module) -> Learner:
        return BYOLLearner(encoder, self.target_rate)
