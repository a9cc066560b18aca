"""CP-CFL's own promises: the frozen encoder, its traffic, its clusters."""

import pytest
import tiny
import torch

from fedcore import metrics, tree
from fedcore.data.shards import Shard, Split
from fedcore.methods.cp_cfl import CPCFL
from fedcore.methods.fedavg import FedAvg
from fedcore.tree import nbytes


@pytest.mark.parametrize("norm", [False, True])
def test_encoder_stays_bit_identical_while_frozen(norm: bool) -> None:
    task = tiny.task(norm=norm)
    method = CPCFL(task=task, fit=tiny.FIT, warmup_rounds=3)
    tiny.seed_everything(0)
    encoder = task.init().under("encoder.")
    heads = []
    for report in tiny.play(method, rounds=4, participation=0.75):
        kept = [tiny.same(tree.take(report.server.theta, n).under("encoder."), encoder) for n in range(3)]
        assert all(kept) if report.round < 3 else not all(kept)
        heads.append(report.server.theta["head.weight"])
    assert not torch.equal(heads[0], heads[1])


def test_models_start_from_one_encoder_and_different_heads() -> None:
    pretrained = tiny.encoder()
    method = CPCFL(task=tiny.task(pretrained=pretrained))
    theta = method.init_server(method.task.init()).theta
    assert all(tiny.same(tree.take(theta, n).under("encoder."), pretrained) for n in range(3))
    heads = [tree.take(theta, n)["head.weight"] for n in range(3)]
    assert not any(torch.equal(heads[a], heads[b]) for a, b in [(0, 1), (0, 2), (1, 2)])


def test_warm_up_identities_are_random_and_fresh_every_round() -> None:
    method = CPCFL(task=tiny.task(), fit=tiny.FIT, warmup_rounds=12)
    choices = [tuple(r.per_client["cluster"].values()) for r in tiny.play(method, rounds=12, evaluate_every=12)]
    assert len(set(choices)) > 6
    assert {n for choice in choices for n in choice} == {0, 1, 2}


def test_traffic_is_twice_fedavgs_at_three_clusters() -> None:
    """(N + 1) T S against 2 T S: a ratio of 2 at N = 3, beside a few bytes for identity, loss and step count."""
    task = tiny.task()
    size = nbytes(task.init())
    clustered = tiny.play(CPCFL(task=task, fit=tiny.FIT), rounds=1)[-1].metrics
    plain = tiny.play(FedAvg(task=task, fit=tiny.FIT), rounds=1)[-1].metrics
    total = [m["bytes_down"] + m["bytes_up"] for m in (clustered, plain)]
    assert total[0] / total[1] == pytest.approx(2.0, rel=2e-3)
    assert CPCFL(num_clusters=3).paper_cost(size) == 2 * FedAvg().paper_cost(size)
    assert total[0] == pytest.approx(4 * CPCFL(num_clusters=3).paper_cost(size), rel=2e-3)


def grouped() -> tuple[list[Shard], torch.Tensor]:
    """Nine clients: three that hold digits 0-2, three 3-5, three 6-8."""
    source = tiny.images()
    held, groups = [], []
    for client in range(9):
        group = client // 3
        own = ((source.labels >= 3 * group) & (source.labels < 3 * group + 3)).nonzero().flatten()
        own = own[torch.randperm(len(own), generator=torch.Generator().manual_seed(client))]
        held.append(Shard(client, Split(source, own[:60]), Split(source, own[:0]), Split(source, own[60:90])))
        groups.append(group)
    return held, torch.tensor(groups)


def test_true_groups_are_found_and_help() -> None:
    held, groups = grouped()
    clustered = tiny.play(CPCFL(task=tiny.task(), fit=tiny.FIT, warmup_rounds=5), held, rounds=12, seed=3)[-1]
    plain = tiny.play(FedAvg(task=tiny.task(), fit=tiny.FIT), held, rounds=12, seed=3)[-1]
    assert metrics.recovery(torch.tensor([int(n) for n in clustered.per_client["cluster"].values()]), groups) == 1.0
    assert clustered.metrics["accuracy_client_mean"] > plain.metrics["accuracy_client_mean"]


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="num_clusters"):
        CPCFL(num_clusters=0)
    with pytest.raises(ValueError, match="warmup_rounds"):
        CPCFL(warmup_rounds=-1)
