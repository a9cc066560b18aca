"""Classifier heads."""

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

PROJECTION = 256  # of z in MOON and FedProc
WIDTH = 256  # of each extra layer; the CP-CFL paper's Figure 6 gives it, our text of the paper does not (UNKNOWN)


def mlp(features: int, classes: int, hidden: int) -> nn.Sequential:
    """`hidden` dense ReLU layers, then a linear one: CP-CFL's heads θ_c-1, θ_c-2, θ_c-3 for 1, 2, 3."""
    layers: list[nn.Module] = []
    for number in range(hidden):
        layers += [nn.Linear(WIDTH if number else features, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH if hidden else features, classes))


class Unit(nn.Module):
    """Rows (b, d) at length 1; a row of zeros stays one."""

    def forward(self, z: Tensor) -> Tensor:
        return F.normalize(z, dim=1)


def projection(features: int, classes: int, unit: bool) -> nn.Sequential:
    """MOON's projection head of two layers and its output layer; with `unit`, FedProc's, which normalises between.

    The projection z is what the output layer sees.
    """
    layers: list[nn.Module] = [nn.Linear(features, features), nn.ReLU(), nn.Linear(features, PROJECTION)]
    return nn.Sequential(*layers, *[Unit()] * unit, nn.Linear(PROJECTION, classes))
