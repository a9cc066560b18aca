"""Fed-SHVR: the closed form of pseudo-labels, the steps of a round, and the optimum that only it reaches."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import tiny
import torch
from one_weight import OneWeight, client
from torch import Tensor

from fedcore import semi
from fedcore.data.shards import Shard
from fedcore.engine import Plan, Report, federate
from fedcore.fit import Fitted, LocalFit
from fedcore.method import Method
from fedcore.methods.fed_sh import FedSH
from fedcore.methods.fed_shvr import FedSHVR
from fedcore.methods.fed_svr import FedSVR
from fedcore.model import Task
from fedcore.semi import Objective, Pair
from fedcore.tree import Params

STEPS, TARGETS, CURVATURES = (13, 20, 32), (0.2, 0.6, 1.0), (1.0, 0.4, 0.2)
OMEGA = torch.tensor([1.0 + tau for tau in STEPS], dtype=torch.float64)
OMEGA /= OMEGA.sum()
RATE = 0.05


@dataclass(frozen=True, kw_only=True)
class Quadratic(Objective):
    """a (w - t)² / 2, the target t being the client's unlabelled pixel and the curvature a its labelled one."""

    def loss(self, task: Task, v: Tensor, alpha0: float) -> Callable[[Params, Pair], Tensor]:
        return lambda w, pair: (
            pair.labelled.x.double().mean() * (w["w"] - pair.unlabelled.x.double().mean()).square() / 2
        )


def pixel(value: float) -> int:
    return round(255 * value)


def held() -> list[Shard]:
    return [
        replace(client(k, [pixel(a)]), unlabelled=replace(client(k, [pixel(t)] * tau).train, hidden=True))
        for k, (a, t, tau) in enumerate(zip(CURVATURES, TARGETS, STEPS, strict=True))
    ]


def played(method: type[Method], rounds: int = 300, fit: type[LocalFit] = LocalFit) -> Report:
    made = method(
        task=Task(build=OneWeight), fit=fit(epochs=1, batch_size=1, lr=RATE), objective=Quadratic(batch_size=1)
    )
    x = Params(w=torch.tensor(0.0, dtype=torch.float64))
    *_, end = federate(made, x, held(), Plan(rounds=rounds, evaluate_every=rounds), seed=0)
    return end


def distance(report: Report) -> float:
    a, t = ((torch.tensor([pixel(v) for v in values]) / 255).double() for values in (CURVATURES, TARGETS))
    best = (OMEGA * a * t).sum() / (OMEGA * a).sum()
    return abs(report.server.x["w"].item() - best.item())


def test_only_both_halves_together_reach_the_optimum_of_heterogeneous_quadratics() -> None:
    assert distance(played(FedSHVR)) < 1e-12
    assert distance(played(FedSH)) > 1e-3
    assert distance(played(FedSVR)) > 1e-3


def test_corrections_cancel_in_every_round() -> None:
    for rounds in (1, 2, 5):
        end = played(FedSHVR, rounds)
        method = FedSHVR(fit=LocalFit(lr=RATE))
        d = [method.correction(end.clients[k], end.server.x, end.server.tau)["w"] for k in range(3)]
        assert max(abs(v) for v in d) > 1e-3
        assert abs((OMEGA * torch.stack(d)).sum()) < 1e-12


class Flipped(LocalFit):
    """Steps with the gradient minus the correction."""

    def __call__(self, *args: object, shift: Params | None = None, **options: object) -> Fitted:
        assert shift is not None
        return super().__call__(*args, shift=-shift, **options)  # type: ignore[arg-type]


def test_a_flipped_sign_diverges() -> None:
    assert not distance(played(FedSHVR, 60, Flipped)) < 1


@pytest.mark.parametrize("alpha0", [0.1, 1.0])
def test_pseudo_labels_minimise_their_part_of_the_objective(alpha0: float) -> None:
    logits = 2 * torch.randn(50, 10, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    log_f = logits.log_softmax(1)
    v = Objective().labels(logits, alpha0)

    def value(v: Tensor) -> Tensor:
        return (-alpha0 * (v * log_f).sum(1) + 0.75 * torch.xlogy(v, 10 * v).sum(1)).mean()

    assert torch.allclose(v.sum(1), torch.ones(50, dtype=torch.float64))
    for seed in range(200):
        other = torch.rand(50, 10, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        mixed = 0.99 * v + 0.01 * other / other.sum(1, keepdim=True)
        assert value(mixed) > value(v)


def test_without_alpha1_labels_are_hard_and_without_alpha0_even() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0], [2.0, 1.0, 0.0]])
    assert Objective(alpha1=0).labels(logits, 0.0).tolist() == [[0, 1, 0], [1, 0, 0]]
    assert torch.allclose(Objective().labels(logits, 0.0), torch.full((2, 3), 1 / 3))
    sharp = Objective(exponent="inverse").labels(logits, 0.0)
    assert torch.allclose(sharp, (logits.softmax(1) ** (1 / 0.75)) / (logits.softmax(1) ** (1 / 0.75)).sum(1)[:, None])


def test_steps_are_those_of_the_paper_and_streams_use_every_image_once_an_epoch() -> None:
    assert semi.steps(LocalFit(epochs=2), Objective(), 5940) == 371
    shard = tiny.shards()[0]  # 60 labelled images, 40 unlabelled
    pairs = list(semi.pairs(LocalFit(epochs=4, batch_size=16), Objective(batch_size=10), shard))
    assert [len(pair.labelled.y) for pair in pairs] == [16] * 16
    seen = torch.cat([pair.unlabelled.positions for pair in pairs]).view(4, 40)
    assert (seen.sort(1).values == torch.arange(40)).all()
    assert all((pair.unlabelled.y == -1).all() for pair in pairs)


def test_confidence_is_none_for_even_predictions_and_all_for_sure_ones() -> None:
    assert semi.confidence(torch.zeros(4, 10)).item() == pytest.approx(0, abs=1e-6)
    assert semi.confidence(torch.tensor([[100.0] + [0.0] * 9])).item() == pytest.approx(2.302585, rel=1e-5)


def test_the_ramp_is_gaussian_or_linear_over_local_epochs() -> None:
    assert [round(Objective().weight(e), 4) for e in (0, 25, 50, 80)] == [0.0067, 0.2865, 1, 1]
    assert [Objective(ramp="linear").weight(e) for e in (0, 25, 80)] == [0, 0.5, 1]
    assert Objective(ramp="none", alpha0=0.3).weight(0) == 0.3


@pytest.mark.parametrize("method", [FedSHVR, FedSH, FedSVR])
@pytest.mark.parametrize("field", [{"momentum": 0.9}, {"weight_decay": 0.1}, {"clip": 1.0}, {"optimizer": "adam"}])
def test_only_plain_steps_are_taken(method: type[Method], field: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=rf"^fit\.{next(iter(field))}: "):
        method(fit=LocalFit(**field))  # type: ignore[arg-type]
