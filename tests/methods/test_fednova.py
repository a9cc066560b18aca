"""FedNova: equal and unequal numbers of steps."""

import pytest
import tiny
import torch
from one_weight import OneWeight, client

from fedcore.data.shards import Shard, Split
from fedcore.engine import Plan, federate
from fedcore.fit import LocalFit
from fedcore.methods.fedavg import FedAvg
from fedcore.methods.fednova import FedNova
from fedcore.model import Batch, Task
from fedcore.tree import Params


class Quadratic(Task):
    """Loss (w - target)² / 2 whose target is the pixel of the client's images."""

    def loss(self, params: Params, batch: Batch) -> torch.Tensor:
        return (params["w"] - batch.x.mean()).square() / 2


def held() -> list[Shard]:
    """One image of target 1, six of target 0.4: in batches of one, whose last two join, one step and five."""
    return [client(0, [255]), client(1, [102] * 6)]


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_unequal_steps_on_quadratics(momentum: float) -> None:
    """From w = 0 with rate η, K steps lead to target (1 - (1 - η)^K); d_i is that over ‖a_i‖₁, and w moves by
    τ_eff Σ p_i d_i. With momentum the way is followed step by step."""
    rate, targets, steps, p = 0.1, (1.0, 0.4), (1, 5), (1 / 7, 6 / 7)
    ways, reaches = [], []
    for target, K in zip(targets, steps, strict=True):
        w = velocity = 0.0
        for _ in range(K):
            velocity = momentum * velocity + (w - target)
            w -= rate * velocity
        ways.append(w)
        reaches.append(sum((1 - momentum ** (K - j)) / (1 - momentum) for j in range(K)))
    if not momentum:
        assert ways == pytest.approx([t * (1 - 0.9**K) for t, K in zip(targets, steps, strict=True)])
        assert reaches == [1, 5]
    tau = sum(share * a for share, a in zip(p, reaches, strict=True))
    expected = tau * sum(share * way / a for share, way, a in zip(p, ways, reaches, strict=True))
    fit = LocalFit(batch_size=1, lr=rate, momentum=momentum)
    assert fit.reach(5) == pytest.approx(reaches[1])
    method, x = FedNova(task=Quadratic(build=OneWeight), fit=fit), Params(w=torch.tensor(0.0))
    report = next(federate(method, x, held(), Plan(rounds=1), seed=0))
    assert report.server.x["w"].item() == pytest.approx(expected, rel=1e-5)
    assert report.metrics["tau_eff"] == pytest.approx(tau, rel=1e-6)


def test_equal_steps_are_fedavg() -> None:
    even = [Shard(s.client, Split(s.train.source, s.train.index[:32]), s.validation, s.test) for s in tiny.shards()]
    fit = LocalFit(epochs=2, batch_size=16, lr=0.1, momentum=0.9)
    nova, plain = (tiny.play(m(task=tiny.task(norm=True), fit=fit), even, rounds=3)[-1] for m in (FedNova, FedAvg))
    for name, value in plain.server.x.items():
        assert torch.allclose(nova.server.x[name], value, rtol=1e-5, atol=1e-6), name


def test_adam_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^fit\.optimizer: adam"):
        FedNova(fit=LocalFit(optimizer="adam"))
