"""SCAFFOLD by hand, and what its control variates are."""

import pytest
import tiny
import torch
from one_weight import STEP, TASK, client, start

from fedcore import tree
from fedcore.engine import Plan, federate, sample
from fedcore.fit import LocalFit
from fedcore.methods.fedavg import FedAvg
from fedcore.methods.scaffold import Scaffold
from fedcore.tree import Params


def slope(w: float, x: float) -> float:
    """Of the loss of the one-weight model for label 0."""
    return -x / (1 + torch.tensor(w * x).exp().item())


def test_two_clients_two_rounds_of_two_steps() -> None:
    """Whole batches, η = 1, two epochs, so K = 2. Client 0 has x = 1, client 1 has x = 2/5, one image each."""
    held, pixels = [client(0, [255]), client(1, [102])], (1.0, 0.4)
    fit = LocalFit(epochs=2, batch_size=8, lr=1.0)
    reports = list(federate(Scaffold(task=TASK, fit=fit), start(0.0), held, Plan(rounds=2), seed=0))
    x, c, own = 0.0, 0.0, [0.0, 0.0]
    for report in reports:
        y = []
        for i, pixel in enumerate(pixels):
            w = x
            for _ in range(2):
                w -= slope(w, pixel) - own[i] + c
            y.append(w)
        fresh = [own[i] - c + (x - y[i]) / 2 for i in range(2)]
        c += sum(fresh[i] - own[i] for i in range(2)) / 2
        x, own = sum(y) / 2, fresh
        assert report.server.x["w"].item() == pytest.approx(x, rel=1e-5)
        assert report.server.c["w"].item() == pytest.approx(c, rel=1e-5)
        assert [report.clients[i].c["w"].item() for i in range(2)] == pytest.approx(own, rel=1e-5)
    assert own[0] != pytest.approx(own[1], rel=0.1)  # the case is no trivial one


def test_steps_are_counted_over_epochs_and_batches() -> None:
    """2 epochs x 5 batches: K = 10, and c_i is the mean of the ten gradients, so -c_i η K is the way gone."""
    held = [client(0, [255, 204, 153, 102, 51] * 2)]
    fit = LocalFit(epochs=2, batch_size=2, lr=0.1)
    report = next(federate(Scaffold(task=TASK, fit=fit), start(0.0), held, Plan(rounds=1), seed=0))
    assert report.clients[0].c["w"].item() * 0.1 * 10 == pytest.approx(-report.server.x["w"].item(), rel=1e-5)


def test_the_first_round_is_fedavgs() -> None:
    fit = LocalFit(epochs=2, batch_size=16, lr=0.1, momentum=0.9, weight_decay=1e-3)
    first = tiny.play(Scaffold(task=tiny.task(norm=True), fit=fit), rounds=1)[-1]
    assert tiny.same(first.server.x, tiny.play(FedAvg(task=tiny.task(norm=True), fit=fit), rounds=1)[-1].server.x)


def test_c_is_the_mean_of_all_c_i_when_all_take_part() -> None:
    for report in tiny.play(Scaffold(task=tiny.task(), fit=tiny.FIT), rounds=4):
        mean = tree.mean(tree.stack([report.clients[k].c for k in range(4)]))
        assert all(torch.allclose(report.server.c[name], value, atol=1e-6) for name, value in mean.items())
        assert report.metrics["control_norm"] > 0


def test_with_two_of_four_c_moves_by_their_share_of_the_change() -> None:
    method, plan = Scaffold(task=tiny.task(), fit=tiny.FIT), Plan(rounds=5, participation=0.5)
    reports = tiny.play(method, rounds=5, participation=0.5)
    before = reports[2]
    drawn = sample(range(4), plan, 0, 3)
    zero = before.server.c.zeros()
    change = [reports[3].clients[k].c - (before.clients[k].c if k in before.clients else zero) for k in drawn]
    expected = before.server.c + (change[0] + change[1]) / 4
    assert all(torch.allclose(reports[3].server.c[name], value, atol=1e-6) for name, value in expected.items())


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_of_a_constant_gradient_c_i_is_that_gradient_with_momentum_too(momentum: float) -> None:
    method = Scaffold(fit=LocalFit(epochs=3, batch_size=2, lr=0.01, momentum=momentum))
    x = Params(w=torch.zeros(3))
    gradient = torch.tensor([1.0, -2.0, 0.5])
    shard = client(0, [255] * 10)
    fitted = method.fit(lambda w, batch: (w["w"] * gradient).sum(), x, shard)
    c = (x - fitted.params) / (method.fit.reach(fitted.steps) * 0.01)
    assert fitted.steps == 15
    assert torch.allclose(c["w"], gradient, rtol=1e-5)


def test_control_variates_are_of_parameters_alone() -> None:
    end = tiny.play(Scaffold(task=tiny.task(norm=True), fit=tiny.FIT), rounds=2)[-1]
    assert not any("running" in name for name in end.server.c)
    assert any("running" in name for name in end.server.x)
    assert set(end.clients[0].c) == set(end.server.x.trainable())


def test_adam_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^fit\.optimizer: adam steps are no sum of gradients; take sgd"):
        Scaffold(fit=LocalFit(optimizer="adam"))
    assert STEP.reach(7) == 7
