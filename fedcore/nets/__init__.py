"""Networks by name: encoders turn images into features, heads turn features into logits."""

from collections.abc import Callable
from typing import Any

from torch import nn

from fedcore.nets.conv import CNN13, ConvSmall, SimpleCNN
from fedcore.nets.dense import MLP
from fedcore.nets.heads import mlp, projection
from fedcore.nets.resnet import resnet18, resnet50

Shape = tuple[int, int, int]

ENCODERS: dict[str, Callable[..., Any]] = {
    "conv_small": ConvSmall,
    "simple_cnn": SimpleCNN,
    "cnn13": CNN13,
    "mlp": MLP,
    "resnet18": resnet18,
    "resnet50": resnet50,
}
"""(shape (C, H, W), **options) -> a module (B, C, H, W) -> (B, d) whose attribute `features` is d."""

HEADS: dict[str, Callable[[int, int], nn.Module]] = {
    "linear": nn.Linear,  # θ_c
    "mlp1": lambda features, classes: mlp(features, classes, hidden=1),  # θ_c-1
    "mlp2": lambda features, classes: mlp(features, classes, hidden=2),  # θ_c-2
    "mlp3": lambda features, classes: mlp(features, classes, hidden=3),  # θ_c-3
    "projection": lambda features, classes: projection(features, classes, unit=False),  # MOON's
    "projection_unit": lambda features, classes: projection(features, classes, unit=True),  # FedProc's
}
"""(features d, classes K) -> a module (B, d) -> (B, K), linear or nn.Sequential with a linear layer last."""


def encoder(name: str, shape: Shape, /, **options: Any) -> Any:
    """A newly drawn encoder. Raises ValueError for a name or an option that there is not."""
    if name not in ENCODERS:
        raise ValueError(f"net: {name!r} is unknown; known: {', '.join(ENCODERS)}")
    try:
        return ENCODERS[name](shape, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"net_options: {name} does not take {options} ({str(error).splitlines()[0]})") from error


def head(name: str, features: int, classes: int) -> nn.Module:
    """A newly drawn head. Raises ValueError for a name that there is not."""
    if name not in HEADS:
        raise ValueError(f"head: {name!r} is unknown; known: {', '.join(HEADS)}")
    return HEADS[name](features, classes)
