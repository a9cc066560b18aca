"""Pre-training on handwritten digits: resume, batches, splits, what it learns, and what it must not look at."""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor, nn

from fedcore import checkpoint, nets
from fedcore.contrastive import Contrastive
from fedcore.contrastive.byol import BYOL
from fedcore.contrastive.simclr import SimCLR
from fedcore.contrastive.simsiam import SimSiam
from fedcore.contrastive.spec import Learner
from fedcore.contrastive.train import features, probe, source, train
from fedcore.data.augment import Views
from fedcore.data.shards import Dataset, Source
from fedcore.executors import seed_everything

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "net_options": {"width": 8, "features": 16},
    "epochs": 4,
    "batch_size": 32,
    "views": Views(flip=0.0, min_scale=0.5),
}
EVERY = pytest.mark.parametrize("algorithm", [SimCLR, BYOL, SimSiam])


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """The nets are too small to share out; threads that wait for each other make a busy machine many times slower."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def digits(trained: int = 100, tested: int = 100, unlabeled: int = 0) -> Dataset:
    """Images in a fixed random order, split without overlap."""
    images = tiny.images()
    order = torch.randperm(len(images.labels), generator=torch.Generator().manual_seed(0))
    splits, start = {}, 0
    for name, count in (("train", trained), ("test", tested), ("unlabeled", unlabeled)):
        rows = order[start : start + count]
        labels = torch.full((count,), -1) if name == "unlabeled" else images.labels[rows]
        splits[name] = Source(images.images[rows], labels)
        start += count
    if not unlabeled:
        del splits["unlabeled"]
    names = tuple(str(digit) for digit in range(10))
    return Dataset("digits", names, (1, 8, 8), torch.tensor([0.3]), torch.tensor([0.37]), splits, "")


def with_labels(dataset: Dataset, split: str, labels: Tensor) -> Dataset:
    changed = Source(dataset.splits[split].images, labels)
    return dataclasses.replace(dataset, splits={**dataset.splits, split: changed})


def finished(spec: Contrastive, dataset: Dataset) -> tuple[list[float], dict[str, Tensor]]:
    """Losses of all epochs, and all weights and buffers at the end."""
    losses: list[float] = []
    for epoch in train(spec, dataset):
        losses.append(epoch.loss)
    return losses, epoch.learner.state_dict()


class Counting(Learner):
    """Learns nothing and notes the sizes of its batches."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.sizes = encoder, list[int]()

    def loss(self, a: Tensor, b: Tensor) -> Tensor:
        assert a.shape == b.shape
        assert not torch.equal(a, b)
        self.sizes.append(len(a))
        return 0 * self.encoder(a).sum()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Count(Contrastive):
    algorithm = "count"

    def learner(self, encoder: nn.Module) -> Learner:
        return Counting(encoder)


class NormedEncoder(nn.Module):
    """An encoder that behaves and changes differently in train and eval mode."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.features = encoder.features
        self.body = nn.Sequential(nn.BatchNorm2d(1), nn.Dropout(0.1), encoder)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.body(x)
        return features


@dataclasses.dataclass(frozen=True, kw_only=True)
class Normed(SimCLR):
    def learner(self, encoder: nn.Module) -> Learner:
        return super().learner(NormedEncoder(encoder))


@EVERY
def test_resume_from_disk_is_bit_exact(algorithm: Any, tmp_path: Path) -> None:
    spec, dataset = algorithm(**SMALL), digits()
    losses, weights = finished(spec, dataset)
    stopped = []
    for epoch in train(spec, dataset):
        stopped.append(epoch.loss)
        checkpoint.save(epoch.state(), tmp_path / "state")
        if epoch.epoch == 1:
            break
    seed_everything(99)
    for epoch in train(spec, dataset, resume=checkpoint.load(tmp_path / "state")):
        stopped.append(epoch.loss)
    assert epoch.epoch == 3
    assert stopped == losses
    assert len(set(losses)) == 4
    assert tiny.same(epoch.learner.state_dict(), weights)


def test_resume_after_the_last_epoch_has_nothing_to_do() -> None:
    spec, dataset = SimCLR(**SMALL), digits()
    *_, last = train(spec, dataset)
    assert list(train(spec, dataset, resume=last.state())) == []


def test_the_seed_decides() -> None:
    dataset = digits()
    first, again, other = (finished(SimCLR(**SMALL, seed=seed), dataset) for seed in (0, 0, 1))
    assert first[0] == again[0]
    assert tiny.same(first[1], again[1])
    assert not tiny.same(first[1], other[1])


@pytest.mark.parametrize(
    ("images", "sizes"), [(100, [32, 32, 32]), (96, [32, 32, 32]), (33, [32]), (32, [32]), (31, [31]), (2, [2])]
)
def test_the_last_incomplete_batch_is_dropped_unless_it_is_all(images: int, sizes: list[int]) -> None:
    (epoch,) = train(Count(**{**SMALL, "epochs": 1}), digits(images))
    assert epoch.learner.sizes == sizes


@EVERY
def test_a_batch_of_one_is_never_trained(algorithm: Any) -> None:
    """33 images leave one over, on which BatchNorm would raise."""
    losses, _ = finished(algorithm(**{**SMALL, "epochs": 1}), digits(33))
    assert math.isfinite(losses[0])


def test_one_image_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^split: .*digits holds 1 images"):
        next(train(SimCLR(**SMALL), digits(1)))


def test_auto_takes_unlabelled_images_where_there_are_some() -> None:
    with_some, without = digits(unlabeled=50), digits()
    assert source(SimCLR(**SMALL), with_some) is with_some.splits["unlabeled"]
    assert source(SimCLR(**SMALL), without) is without.splits["train"]
    assert source(SimCLR(**SMALL, split="train"), with_some) is with_some.splits["train"]


def test_a_split_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"^split: 'unlabeled' is not in digits; known: train, test, auto"):
        next(train(SimCLR(**SMALL, split="unlabeled"), digits()))


@EVERY
def test_labels_are_never_used(algorithm: Any) -> None:
    spec, dataset = algorithm(**{**SMALL, "epochs": 2}), digits()
    labels = dataset.splits["train"].labels
    losses, weights = finished(spec, dataset)
    for other in (labels.flip(0), torch.full_like(labels, -1)):
        assert not torch.equal(other, labels)
        same_losses, same_weights = finished(spec, with_labels(dataset, "train", other))
        assert same_losses == losses
        assert tiny.same(same_weights, weights)


@EVERY
def test_the_loss_falls_and_all_that_is_trained_moves(algorithm: Any) -> None:
    spec, dataset = algorithm(**{**SMALL, "epochs": 8}), digits(128)
    before = None
    losses = []
    for epoch in train(spec, dataset):
        before = before or {name: value.clone() for name, value in epoch.learner.state_dict().items()}
        losses.append(epoch.loss)
    assert losses[-1] < losses[0] - 0.1
    assert all(not torch.equal(value, before[name]) for name, value in epoch.learner.named_parameters())


@pytest.mark.parametrize(("algorithm", "epochs"), [(SimCLR, 20), (BYOL, 10), (SimSiam, 10)])
def test_features_get_better_than_random_ones(algorithm: Any, epochs: int) -> None:
    """Both probes must beat the best of three random encoders by five points."""
    options = {"width": 32, "features": 64}
    dataset = digits(600, 500)
    spec = algorithm(**{**SMALL, "net_options": options, "epochs": epochs, "batch_size": 100, "lr": 2e-3})
    seed_everything(0)
    random = [probe(nets.encoder("conv_small", dataset.shape, **options), dataset) for _ in range(3)]
    *_, last = train(spec, dataset)
    trained = probe(last.learner.encoder, dataset)
    for name, accuracy in trained.items():
        assert accuracy > max(result[name] for result in random) + 0.05, (name, trained, random)


def test_the_probe_does_not_disturb_training() -> None:
    """It puts the encoder in eval mode and draws numbers of its own; training must not notice either."""
    spec, dataset = Normed(**{**SMALL, "epochs": 3}), digits()
    losses, weights = finished(spec, dataset)
    probed = []
    for epoch in train(spec, dataset):
        state = torch.get_rng_state()
        probe(epoch.learner.encoder, dataset)
        assert torch.equal(torch.get_rng_state(), state)
        assert not epoch.learner.encoder.training
        probed.append(epoch.loss)
    assert probed == losses
    assert tiny.same(epoch.learner.state_dict(), weights)


def test_the_probe_repeats_itself() -> None:
    encoder, dataset = nets.encoder("conv_small", (1, 8, 8)), digits()
    assert probe(encoder, dataset) == probe(encoder, dataset)


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_probe_without_labels_is_nan(split: str) -> None:
    dataset = digits()
    dataset = with_labels(dataset, split, torch.full_like(dataset.splits[split].labels, -1))
    result = probe(nets.encoder("conv_small", (1, 8, 8)), dataset)
    assert result.keys() == {"knn_accuracy", "linear_accuracy"}
    assert all(math.isnan(value) for value in result.values())


def test_the_probe_passes_over_unlabelled_images() -> None:
    """Images without a label are neither learned from nor asked about: as if they were not there."""
    encoder, dataset = nets.encoder("conv_small", (1, 8, 8)), digits(tested=100)
    few = digits(tested=60)
    labels = dataset.splits["test"].labels.clone()
    labels[60:] = -1
    assert probe(encoder, with_labels(dataset, "test", labels)) == probe(encoder, few)


def test_features_are_of_normalised_images_in_eval_mode() -> None:
    dataset = digits()
    images = dataset.splits["train"].images[:10]
    encoder = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, 3))
    found = features(encoder, images, dataset, batch_size=4)
    expected = encoder[2](((images / 255 - 0.3) / 0.37).flatten(1))
    assert torch.allclose(found, expected, atol=1e-5)
    assert not found.requires_grad
