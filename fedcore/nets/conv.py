"""Small convolutional encoders."""

import torch
from torch import Tensor, nn


class SimpleCNN(nn.Module):
    """MOON's and FedProc's CNN for CIFAR-10: two 5x5 convolutions with pooling, dense layers of 120 and 84, ReLU.

    FedProc's released code; methods.md 2.3.
    """

    def __init__(self, shape: tuple[int, int, int], /) -> None:
        super().__init__()
        channels, *sides = shape
        height, width = (((side - 4) // 2 - 4) // 2 for side in sides)
        if min(height, width) < 1:
            raise ValueError(f"images of {sides[0]}x{sides[1]} pixels vanish in it; take 16 or more")
        self.body = nn.Sequential(
            nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(16 * height * width, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        )  # fmt: skip
        self.features = 84

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, 84)."""
        features: Tensor = self.body(x)
        return features


class CNN13(nn.Module):
    """The convolutional network of semi-supervised papers, Fed-SHVR's for CIFAR-10: 128 features, BatchNorm, dropout.

    Tarvainen and Valpola, "Mean teachers are better role models", https://arxiv.org/abs/1703.01780, table 5, without
    weight normalisation; methods.md 4.3. Noise of standard deviation `noise` is added to normalised pixels in training.
    """

    def __init__(self, shape: tuple[int, int, int], /, dropout: float = 0.5, noise: float = 0.15) -> None:
        super().__init__()
        channels, *sides = shape
        if min(sides) // 4 < 3:
            raise ValueError(f"images of {sides[0]}x{sides[1]} pixels vanish in it; take 12 or more")
        if noise < 0:
            raise ValueError(f"noise {noise} is negative; 0 is none")
        layers: list[nn.Module] = []
        for count, width in ((channels, 128), (128, 256)):
            layers += [*_normed(count, width, 3, 1), *_normed(width, width, 3, 1), *_normed(width, width, 3, 1)]
            layers += [nn.MaxPool2d(2), nn.Dropout(dropout)]
        layers += [*_normed(256, 512, 3, 0), *_normed(512, 256, 1, 0), *_normed(256, 128, 1, 0)]
        self.body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.noise = noise
        self.features = 128

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, 128)."""
        if self.training and self.noise:
            x = x + self.noise * torch.randn_like(x)
        features: Tensor = self.body(x)
        return features


def _normed(count: int, width: int, side: int, padding: int) -> list[nn.Module]:
    return [nn.Conv2d(count, width, side, padding=padding), nn.BatchNorm2d(width), nn.LeakyReLU(0.1)]


class ConvSmall(nn.Module):
    """Four 3x3 convolutions of stride 2 with ReLU, the map flattened, and a dense layer with ReLU.

    The shape of CP-CFL's encoder is not known; this is the one of the public STL-10 example closest to its settings
    (methods.md 1.3). Flattened rather than pooled: at 32 pixels the last map is 2x2, and where things are still counts.
    """

    def __init__(self, shape: tuple[int, int, int], /, width: int = 64, features: int = 128) -> None:
        super().__init__()
        if min(width, features) < 1:
            raise ValueError(f"width {width} and features {features} must be at least 1")
        channels, height, width_px = shape
        layers: list[nn.Module] = []
        for number in range(4):
            layers += [nn.Conv2d(width if number else channels, width, 3, stride=2, padding=1), nn.ReLU()]
            height, width_px = (height + 1) // 2, (width_px + 1) // 2
        self.body = nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * height * width_px, features), nn.ReLU())
        self.features = features

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, features)."""
        features: Tensor = self.body(x)
        return features
