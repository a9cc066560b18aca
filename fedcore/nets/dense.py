"""Encoders of dense layers."""

from torch import Tensor, nn


class MLP(nn.Module):
    """One dense ReLU layer on the pixels; with a linear head Fed-SHVR's network for MNIST, 784-5000-10.

    methods.md 4.3.
    """

    def __init__(self, shape: tuple[int, int, int], /, width: int = 5000) -> None:
        super().__init__()
        if width < 1:
            raise ValueError(f"width {width} must be at least 1")
        channels, height, width_px = shape
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(channels * height * width_px, width), nn.ReLU())
        self.features = width

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, width)."""
        features: Tensor = self.body(x)
        return features
