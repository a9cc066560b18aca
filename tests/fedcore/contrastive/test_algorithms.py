"""SimCLR, BYOL and SimSiam: their heads, their losses, and where the gradient flows."""

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from fedcore import losses
from fedcore.contrastive import ALGORITHMS, Contrastive
from fedcore.contrastive.byol import BYOL
from fedcore.contrastive.simclr import SimCLR
from fedcore.contrastive.simsiam import SimSiam
from fedcore.nets.conv import ConvSmall

FEATURES = 12


def learner(spec: Contrastive) -> Any:
    torch.manual_seed(0)
    return spec.learner(ConvSmall((1, 8, 8), width=4, features=FEATURES))


def views() -> Tensor:
    """Two views of six images."""
    return torch.rand(2, 6, 1, 8, 8, generator=torch.Generator().manual_seed(1))


def layers(head: nn.Sequential) -> list[Any]:
    """Dense layers by their sizes, other layers by their names."""
    return [(at.in_features, at.out_features) if isinstance(at, nn.Linear) else type(at).__name__ for at in head]


def step(learning: Any, lr: float = 0.1) -> None:
    """One step of gradient descent on the two views."""
    optimizer = torch.optim.SGD([p for p in learning.parameters() if p.requires_grad], lr=lr)
    learning.loss(*views()).backward()
    optimizer.step()
    learning.after_step()


def test_simclr_head() -> None:
    assert layers(learner(SimCLR(dataset="d")).projector) == [(FEATURES, 256), "ReLU", (256, 256)]


@pytest.mark.parametrize("spec", [BYOL(dataset="d"), SimSiam(dataset="d")], ids=lambda spec: spec.algorithm)
def test_byol_and_simsiam_heads(spec: Contrastive) -> None:
    learning = learner(spec)
    norm = "BatchNorm1d"
    assert layers(learning.projector) == [(FEATURES, 512), norm, "ReLU", (512, 512), norm]
    assert layers(learning.predictor) == [(512, 64), norm, "ReLU", (64, 512)]


def test_settings_of_the_paper() -> None:
    assert SimCLR(dataset="d").temperature == 0.1
    assert BYOL(dataset="d").target_rate == 0.9


def test_algorithms_by_name() -> None:
    assert {name: ALGORITHMS[name] for name in ("simclr", "byol", "simsiam")} == {
        "simclr": SimCLR,
        "byol": BYOL,
        "simsiam": SimSiam,
    }
    assert set(ALGORITHMS) == {"random", "simclr", "byol", "simsiam"}


@pytest.mark.parametrize(
    ("algorithm", "settings", "name"),
    [
        (SimCLR, {"temperature": 0.0}, "temperature"),
        (SimCLR, {"temperature": -1.0}, "temperature"),
        (SimCLR, {"temperature": math.nan}, "temperature"),
        (BYOL, {"target_rate": 1.1}, "target_rate"),
        (BYOL, {"target_rate": -0.1}, "target_rate"),
        (SimSiam, {"epochs": 0}, "epochs"),
        (SimSiam, {"probe_every": 0}, "epochs"),
        (SimSiam, {"batch_size": 1}, "batch_size"),
        (SimSiam, {"lr": 0.0}, "lr"),
        (SimSiam, {"lr": math.nan}, "lr"),
        (SimSiam, {"net": "nothing"}, "net"),
        (SimSiam, {"net_options": {"depth": 3}}, "net_options"),
    ],
)
def test_bad_settings_are_refused_by_name(algorithm: Any, settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        algorithm(dataset="d", **settings)


@pytest.mark.parametrize("net", ["conv_small", "resnet18"])
def test_a_spec_draws_nothing(net: str) -> None:
    """It tries its network, but whoever reads a study between two draws must not change the second."""
    state = torch.get_rng_state()
    SimCLR(dataset="d", net=net)
    assert torch.equal(torch.get_rng_state(), state)


def test_simclr_contrasts_the_projections() -> None:
    learning = learner(SimCLR(dataset="d", temperature=0.5))
    a, b = (learning.projector(learning.encoder(view)) for view in views())
    assert torch.equal(learning.loss(*views()), losses.nt_xent(a, b, 0.5))


@pytest.mark.parametrize(
    ("algorithm", "parts"),
    [
        (SimCLR, ["encoder", "projector"]),
        (BYOL, ["encoder", "projector", "predictor"]),
        (SimSiam, ["encoder", "projector", "predictor"]),
    ],
)
def test_gradient_reaches_all_that_is_trained(algorithm: Any, parts: list[str]) -> None:
    learning = learner(algorithm(dataset="d"))
    learning.loss(*views()).backward()
    for part in parts:
        assert all(p.grad is not None for p in getattr(learning, part).parameters()), part
        assert any(p.grad.any() for p in getattr(learning, part).parameters()), part


def test_byol_loss_is_the_squared_distance_of_unit_vectors() -> None:
    learning = learner(BYOL(dataset="d"))
    step(learning)  # so that target and online branch differ
    with torch.no_grad():
        a, b = views()
        q_a, q_b = (F.normalize(learning.predictor(learning.projector(learning.encoder(x))), dim=1) for x in (a, b))
        z_a, z_b = (F.normalize(learning.target(x), dim=1) for x in (a, b))
        distances = (q_a - z_b).square().sum(1) + (q_b - z_a).square().sum(1)
        cosines = 4 - 2 * (q_a * z_b).sum(1) - 2 * (q_b * z_a).sum(1)
    assert learning.loss(a, b).item() == pytest.approx(distances.mean().item(), abs=1e-5)
    assert learning.loss(a, b).item() == pytest.approx(cosines.mean().item(), abs=1e-5)


def test_byol_target_starts_as_a_copy() -> None:
    learning = learner(BYOL(dataset="d"))
    online = nn.Sequential(learning.encoder, learning.projector).state_dict()
    target = learning.target.state_dict()
    assert online.keys() == target.keys()
    assert all(torch.equal(online[key], target[key]) for key in online)
    assert all(online[key].data_ptr() != target[key].data_ptr() for key in online)


def test_byol_target_learns_only_from_the_online_branch() -> None:
    """One step: no gradient in the target, and xi = beta xi_0 + (1 - beta) theta_1 in encoder and projector."""
    beta = 0.75
    learning = learner(BYOL(dataset="d", target_rate=beta))
    before = copy.deepcopy(list(learning.target.parameters()))
    step(learning)
    online = [*learning.encoder.parameters(), *learning.projector.parameters()]
    assert any(not torch.equal(theta, xi) for theta, xi in zip(online, before, strict=True))
    for old, theta, xi in zip(before, online, learning.target.parameters(), strict=True):
        assert xi.grad is None
        assert torch.allclose(xi, beta * old + (1 - beta) * theta, atol=1e-7)


@pytest.mark.parametrize(("rate", "expected"), [(0.75, 1.5), (1.0, 1.0), (0.0, 3.0)])
def test_byol_target_by_hand(rate: float, expected: float) -> None:
    """xi = 1 everywhere, theta = 3 everywhere: 3/4 * 1 + 1/4 * 3 = 1.5; rate 1 keeps xi, rate 0 takes theta."""
    learning = learner(BYOL(dataset="d", target_rate=rate))
    with torch.no_grad():
        for part, value in ((learning.encoder, 3.0), (learning.projector, 3.0), (learning.target, 1.0)):
            for parameter in part.parameters():
                parameter.fill_(value)
    learning.after_step()
    assert all(torch.all(xi == expected) for xi in learning.target.parameters())
    assert all(torch.all(theta == 3) for theta in learning.encoder.parameters())


def twin(a: Any, b: Any) -> None:
    """Give `b` the encoder and heads of `a`."""
    for part in ("encoder", "projector", "predictor"):
        getattr(b, part).load_state_dict(getattr(a, part).state_dict())


def test_byol_that_follows_at_once_is_simsiam() -> None:
    """With beta = 0 the target is the online branch: 4 - 2 (S_1 + S_2) = 4 + 4 (-(S_1 + S_2) / 2), and their
    gradients differ by the same factor of 4."""
    byol, simsiam = learner(BYOL(dataset="d", target_rate=0.0)), learner(SimSiam(dataset="d"))
    step(byol)
    byol.zero_grad()
    twin(byol, simsiam)
    of_byol, of_simsiam = byol.loss(*views()), simsiam.loss(*views())
    assert of_byol.item() == pytest.approx(4 + 4 * of_simsiam.item(), abs=1e-5)
    of_byol.backward()
    of_simsiam.backward()
    for part in ("encoder", "projector", "predictor"):
        for x, y in zip(getattr(byol, part).parameters(), getattr(simsiam, part).parameters(), strict=True):
            assert torch.allclose(x.grad, 4 * y.grad, atol=1e-5)


def test_simsiam_loss_is_half_of_both_directions() -> None:
    learning = learner(SimSiam(dataset="d"))
    z_a, z_b = (learning.projector(learning.encoder(view)) for view in views())
    q_a, q_b = learning.predictor(z_a), learning.predictor(z_b)
    expected = -(F.cosine_similarity(q_a, z_b) + F.cosine_similarity(q_b, z_a)).mean() / 2
    assert learning.loss(*views()).item() == pytest.approx(expected.item(), abs=1e-6)


def test_simsiam_gradient_flows_only_through_the_predictor() -> None:
    """A predictor that gives a constant lets no gradient through, so none is left for encoder and projector."""
    learning = learner(SimSiam(dataset="d"))
    with torch.no_grad():
        learning.predictor[3].weight.zero_()
        learning.predictor[3].bias.fill_(1)
    learning.loss(*views()).backward()
    assert learning.predictor[3].weight.grad.any()
    assert not any(p.grad.any() for part in (learning.encoder, learning.projector) for p in part.parameters())
