"""Heads that BYOL and SimSiam share, with the sizes of CP-CFL (SEED, methods.md 1.3)."""

from torch import nn


def projector(features: int) -> nn.Sequential:
    """θ_g: dense 512, BatchNorm, ReLU, dense 512, BatchNorm."""
    return nn.Sequential(
        nn.Linear(features, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 512), nn.BatchNorm1d(512)
    )


def predictor() -> nn.Sequential:
    """θ_q: dense 64, BatchNorm, ReLU, dense 512."""
    return nn.Sequential(nn.Linear(512, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 512))
