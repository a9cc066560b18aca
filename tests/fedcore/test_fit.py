"""The training loop, against plain PyTorch and at its edges."""

import pytest
import tiny
import torch

from fedcore.data.shards import Split
from fedcore.executors import seed_everything
from fedcore.fit import LocalFit
from fedcore.tree import Params, is_buffer


def shard(images: int, client: int = 0):
    held = tiny.shards()[client]
    return type(held)(client, Split(held.train.source, held.train.index[:images]), held.validation, held.test)


@pytest.mark.parametrize("fit", [
    LocalFit(epochs=2, batch_size=16, lr=0.05, momentum=0.9, weight_decay=1e-3),
    LocalFit(epochs=2, batch_size=16, lr=1e-2, optimizer="adam"),
    LocalFit(epochs=2, batch_size=16, lr=0.5, clip=0.1),
])  # fmt: skip
def test_is_plain_training_buffers_included(fit: LocalFit) -> None:
    norm = fit.optimizer == "sgd"  # before BatchNorm a bias has no gradient but rounding, which Adam blows up
    task, held = tiny.task(norm=norm), shard(40)
    seed_everything(0)
    start = task.init()
    seed_everything(1)
    fitted = fit(task.loss, start, held)

    net = tiny.network(norm=norm)
    net.load_state_dict({**net.state_dict(), **start})
    if fit.optimizer == "adam":
        optimizer = torch.optim.Adam(net.parameters(), lr=fit.lr)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=fit.lr, momentum=fit.momentum, weight_decay=fit.weight_decay)
    seed_everything(1)
    losses = []
    for _ in range(fit.epochs):
        for positions in torch.randperm(40).split(16):
            x = (held.train.images(positions) / 255 - 0.3) / 0.37
            loss = torch.nn.functional.cross_entropy(net(x), held.train.labels(positions))
            optimizer.zero_grad()
            loss.backward()
            if fit.clip:
                torch.nn.utils.clip_grad_norm_(net.parameters(), fit.clip)
            optimizer.step()
            losses.append(loss.item())
    state = net.state_dict()
    assert fitted.steps == len(losses) == 6
    assert fitted.loss.item() == pytest.approx(sum(losses) / 6, rel=1e-5)
    for name, value in fitted.params.items():
        assert torch.allclose(value, state[name], rtol=1e-4, atol=1e-6), name


def test_shift_is_added_to_every_gradient() -> None:
    """Zero gradient of the loss and a shift of 1: each of the steps moves by -lr."""
    fit = LocalFit(epochs=3, batch_size=10, lr=0.1)
    start = Params(w=torch.zeros(2))
    fitted = fit(lambda w, batch: (w["w"] * 0).sum(), start, shard(20), shift=Params(w=torch.ones(2)))
    assert fitted.steps == 6
    assert torch.allclose(fitted.params["w"], torch.full((2,), -0.6))


def test_frozen_entries_and_their_statistics_stay() -> None:
    task = tiny.task(norm=True)
    start = task.init()
    end = tiny.FIT(task.loss, start, shard(40), frozen="encoder.").params
    for name, value in start.items():
        assert torch.equal(value, end[name]) == name.startswith("encoder."), name
    free = tiny.FIT(task.loss, start, shard(40)).params
    assert all(not torch.equal(value, free[name]) for name, value in start.items() if is_buffer(name))


@pytest.mark.parametrize(
    ("images", "sizes"), [(3, [3]), (10, [10]), (21, [10, 11]), (22, [10, 10, 2]), (1, [1]), (0, [])]
)
def test_batches_use_every_image_and_no_batch_is_a_leftover_of_one(images: int, sizes: list[int]) -> None:
    batches = list(LocalFit(batch_size=10).batches(shard(images).train))
    assert [len(batch.x) for batch in batches] == sizes
    seen = torch.cat([batch.positions for batch in batches]) if batches else torch.zeros(0)
    assert sorted(seen.tolist()) == list(range(images))


def test_neither_the_start_nor_the_network_is_changed() -> None:
    task = tiny.task(norm=True)
    start = task.init()
    before, inside = start.clone(), [p.clone() for p in task.net.parameters()]
    tiny.FIT(task.loss, start, shard(30))
    assert tiny.same(before, start)
    assert tiny.same(inside, list(task.net.parameters()))


@pytest.mark.parametrize("bad", [{"epochs": 0}, {"batch_size": 0}, {"lr": 0.0}, {"augment": "rainbow"},
                                 {"optimizer": "adam", "momentum": 0.9}])  # fmt: skip
def test_settings_that_cannot_work_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=list(bad)[-1]):
        LocalFit(**bad)
