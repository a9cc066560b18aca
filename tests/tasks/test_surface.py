"""The loss around a model: its middle, its directions, and whose loss it is."""

import pytest
import tiny
import torch

from fedcore import semi
from fedcore.engine import Report
from fedcore.executors import seed_everything
from fedcore.methods.fed_pseudo import FedPseudo
from fedcore.methods.fedavg import FedAvg
from fedcore.model import Task
from fedcore.tree import Params
from tasks import surface


def model() -> tuple[Task, Params]:
    seed_everything(0)
    task = tiny.task()
    return task, task.init()


def test_the_middle_is_the_clients_mean_loss_weighted_by_their_images() -> None:
    task, x = model()
    method = FedAvg(task=task, fit=tiny.FIT)
    shards = tiny.shards()
    table = surface.around(method, Report(0, method.init_server(x), {}, {}, {}), shards, 3)
    assert table[["a", "b"]].to_numpy().tolist() == [[a, b] for a in (-1, 0, 1) for b in (-1, 0, 1)]
    sizes = [len(shard.train) for shard in shards]
    means = [task.mean_loss(x, shard.train).item() for shard in shards]
    assert table["loss"][4] == pytest.approx(sum(s * m for s, m in zip(sizes, means, strict=True)) / sum(sizes))
    assert table["loss"].nunique() == 9
    assert table.equals(surface.around(method, Report(0, method.init_server(x), {}, {}, {}), shards, 3))


def test_a_direction_is_as_long_as_the_model_filter_by_filter_and_leaves_biases() -> None:
    _, x = model()
    d = surface.direction(x, torch.Generator().manual_seed(0))
    for name, value in x.trainable().items():
        rows = d[name].reshape(len(value), -1)
        wanted = value.reshape(len(value), -1).norm(dim=1) if value.dim() > 1 else torch.zeros(len(value))
        assert torch.allclose(rows.norm(dim=1), wanted, rtol=1e-5), name


def test_a_semi_supervised_method_shows_its_own_objective() -> None:
    task, x = model()
    method = FedPseudo(task=task, fit=tiny.FIT, objective=semi.Objective(alpha1=0.75, alpha2=0.1, ramp="none"))
    shards = tiny.shards()
    table = surface.around(method, Report(5, method.init_server(x), {}, {}, {}), shards, 3)
    values, sizes = [], []
    for shard in shards:
        logits = task.predict(x, shard.unlabelled.images())
        f = logits.softmax(dim=1)
        v = f ** (1 / 0.75) / (f ** (1 / 0.75)).sum(dim=1, keepdim=True)
        extra = -(v * f.log()).sum(dim=1).mean() + 0.1 * ((f * f.log()).sum(dim=1).mean() + torch.tensor(10.0).log())
        values.append((task.mean_loss(x, shard.train) + extra).item())
        sizes.append(len(shard.train) + len(shard.unlabelled))
    assert table["loss"][4] == pytest.approx(
        sum(s * v for s, v in zip(sizes, values, strict=True)) / sum(sizes), rel=1e-5
    )
