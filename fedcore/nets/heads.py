"""Classifier heads."""

from torch import nn

WIDTH = 256  # of each extra layer; the CP-CFL paper's Figure 6 gives it, our text of the paper does not (UNKNOWN)


def mlp(features: int, classes: int, hidden: int) -> nn.Sequential:
    """`hidden` dense ReLU layers, then a linear one: CP-CFL's heads θ_c-1, θ_c-2, θ_c-3 for 1, 2, 3."""
    layers: list[nn.Module] = []
    for number in range(hidden):
        layers += [nn.Linear(WIDTH if number else features, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH if hidden else features, classes))
