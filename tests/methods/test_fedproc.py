"""FedProc: its loss, its schedule, its prototypes."""

import math

import pytest
import tiny
import torch
from torch.nn import functional as F  # noqa: N812

from fedcore.data.shards import Shard, Split
from fedcore.engine import Plan, sample
from fedcore.methods.fedavg import FedAvg
from fedcore.methods.fedproc import FedProc, gpc


@pytest.mark.parametrize(("classes", "least"), [(10, 1.3769), (100, 3.6124), (200, 4.3019)])
def test_the_least_loss_is_on_aligned_simplex_prototypes(classes: int, least: float) -> None:
    """K unit vectors of pairwise cosine -1/(K - 1): log(1 + (K - 1) exp(-K / (K - 1)))."""
    simplex = torch.eye(classes) - 1 / classes
    y = torch.arange(classes)
    assert gpc(7 * simplex, 0.1 * simplex, y).item() == pytest.approx(least, abs=1e-4)
    assert gpc(torch.randn(classes, classes), torch.zeros(classes, classes), y).item() == pytest.approx(
        math.log(classes)
    )
    assert gpc(-simplex, simplex, y) > gpc(simplex, simplex, y)


def test_loss_of_a_batch_is_its_mean_and_prototypes_take_no_gradient() -> None:
    z = torch.randn(5, 3, requires_grad=True)
    c, y = torch.randn(4, 3), torch.tensor([0, 3, 3, 1, 2])
    slow = []
    for row, label in zip(z, y, strict=True):
        cosines = torch.stack([F.cosine_similarity(row, proto, dim=0) for proto in c])
        slow.append(-(cosines[label].exp() / cosines.exp().sum()).log())
    value = gpc(z, c, y)
    assert value.item() == pytest.approx(torch.stack(slow).mean().item(), rel=1e-5)
    value.backward()
    assert z.grad is not None
    assert c.grad is None


@pytest.mark.parametrize(("divisor", "T", "expected"), [
    (None, 4, [0, 0.75, 0.5, 0.25]), (None, 200, [0, 0.995]), (100, 4, [0, 0.99, 0.98, 0.97]),
    (100, 200, {0: 0, 50: 0.5, 99: 0.01, 100: 0, 150: 0}), (1, 3, [0, 0, 0]),
])  # fmt: skip
def test_alpha_falls_with_the_round_and_is_zero_in_the_first(divisor: int | None, T: int, expected: object) -> None:
    method = FedProc(divisor=divisor)
    for t, alpha in expected.items() if isinstance(expected, dict) else enumerate(expected):
        assert method.alpha(t, T) == pytest.approx(alpha)


def test_every_round_tells_the_alpha_it_had() -> None:
    reports = tiny.play(FedProc(task=tiny.task(), fit=tiny.FIT), rounds=4)
    assert [report.metrics["alpha"] for report in reports] == [0, 0.75, 0.5, 0.25]


def test_the_first_round_is_fedavgs_and_the_second_is_not() -> None:
    proc, plain = (tiny.play(m(task=tiny.task(norm=True), fit=tiny.FIT), rounds=3) for m in (FedProc, FedAvg))
    assert tiny.same(proc[0].server.x, plain[0].server.x)
    assert not tiny.same(proc[1].server.x, plain[1].server.x)


def test_prototypes_are_means_over_the_images_of_all_holders() -> None:
    """c_k is the mean of z over all clients' images of class k, each by its client's model."""
    method = FedProc(task=tiny.task(), fit=tiny.FIT)
    held = tiny.shards()
    seen = {}

    class Spy(FedProc):
        def prototypes(self, w, split, classes, batch_size=1024):
            seen[id(split)] = (w, split)
            return super().prototypes(w, split, classes, batch_size)

    end = tiny.play(Spy(task=method.task, fit=tiny.FIT), held, rounds=1)[-1]
    z = torch.cat([F.normalize(method.task.represent(w, s.images()).z, dim=1) for w, s in seen.values()])
    y = torch.cat([s.labels() for _, s in seen.values()])
    assert len(y) == sum(len(s.train) for s in held)
    for k in range(10):
        assert torch.allclose(end.server.c[k], z[y == k].mean(0), atol=1e-5)
    assert (end.server.c.norm(dim=1) < 1).all()  # means of unit vectors


def without(shard: Shard, *labels: int) -> Shard:
    kept = ~torch.isin(shard.train.labels(), torch.tensor(labels))
    return Shard(shard.client, Split(shard.train.source, shard.train.index[kept]), shard.validation, shard.test)


def test_a_class_that_nobody_holds_has_a_zero_prototype_and_one_unseen_keeps_its_own() -> None:
    held = [without(s, 7) if s.client else without(s, 7, 8) for s in tiny.shards()]
    only = [s.client for s in held if (s.train.labels() == 8).any()]
    assert only == [1, 2, 3]
    held = [held[0], *(without(s, 8) for s in held[1:3]), held[3]]  # class 8 with client 3 alone
    plan = Plan(rounds=8, participation=0.25)
    reports = tiny.play(FedProc(task=tiny.task(), fit=tiny.FIT), held, rounds=8, participation=0.25)
    drawn = [sample(range(4), plan, 0, t) == [3] for t in range(8)]
    assert any(drawn)
    assert not all(drawn)
    for t, report in enumerate(reports):
        assert report.server.c.isfinite().all()
        assert not report.server.c[7].any()
        if t and not drawn[t]:
            assert torch.equal(report.server.c[8], reports[t - 1].server.c[8])
        if drawn[t]:
            assert report.server.c[8].any()


def test_with_alpha_over_after_one_round_it_is_fedavg() -> None:
    proc = tiny.play(FedProc(task=tiny.task(), fit=tiny.FIT, divisor=1), rounds=3)[-1]
    assert tiny.same(proc.server.x, tiny.play(FedAvg(task=tiny.task(), fit=tiny.FIT), rounds=3)[-1].server.x)


def test_prototypes_of_batches_are_those_of_the_whole() -> None:
    method, shard = FedProc(task=tiny.task()), tiny.shards()[0]
    tiny.seed_everything(0)
    w = method.task.init()
    whole, parts = (method.prototypes(w, shard.train, 10, size) for size in (1024, 7))
    assert torch.allclose(whole[0], parts[0], atol=1e-5)
    assert torch.equal(whole[1], parts[1])
    assert whole[1].tolist() == torch.bincount(shard.train.labels(), minlength=10).tolist()


def test_a_divisor_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^divisor: 0; take at least 1"):
        FedProc(divisor=0)
