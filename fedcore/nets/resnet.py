"""Residual encoders."""

from typing import Any

from torch import nn

SMALL = 64  # pixels; up to here a 3x3 stem without pooling keeps a map that the blocks can still halve three times


def resnet18(shape: tuple[int, int, int], /) -> Any:
    """torchvision's ResNet-18 without its classifier, 512 features."""
    return _residual("resnet18", shape)


def resnet50(shape: tuple[int, int, int], /) -> Any:
    """torchvision's ResNet-50 without its classifier, 2048 features."""
    return _residual("resnet50", shape)


def _residual(name: str, shape: tuple[int, int, int]) -> Any:
    """Images up to 64 pixels get the CIFAR stem (He et al., 2016)."""
    from torchvision.models import resnet  # slow to import, and every stage reads the specs

    channels, height, _ = shape
    net = getattr(resnet, name)(weights=None)
    if height <= SMALL:
        net.conv1 = nn.Conv2d(channels, 64, 3, stride=1, padding=1, bias=False)
        net.maxpool = nn.Identity()
    elif channels != 3:
        net.conv1 = nn.Conv2d(channels, 64, 7, stride=2, padding=3, bias=False)
    net.features = net.fc.in_features
    net.fc = nn.Identity()
    return net
