"""A federated problem small enough for tests: handwritten digits over a few clients, and small networks."""

from functools import partial

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from fedcore import tree
from fedcore.data.shards import Shard, Source, Split
from fedcore.engine import Plan, Report, federate
from fedcore.executors import seed_everything
from fedcore.fit import LocalFit
from fedcore.method import Method
from fedcore.model import Classifier, Task
from fedcore.tree import Params


def images() -> Source:
    """1797 digits, (N, 1, 8, 8) uint8."""
    digits = load_digits()
    pixels = torch.from_numpy(digits.images * 15.9).to(torch.uint8)[:, None]
    return Source(pixels, torch.from_numpy(digits.target).long())


def shards(clients: int = 4, train: int = 60, test: int = 30) -> list[Shard]:
    """Clients of unequal sizes, the largest with `train` images, every one without the class of its own number.

    Each has some unlabelled images too, of which most methods know nothing.
    """
    source = images()
    order = torch.randperm(len(source.labels), generator=torch.Generator().manual_seed(0))
    held: list[Shard] = []
    for client in range(clients):
        own = order[source.labels[order] != client % 10]
        own = own[client * (train + test) : (client + 1) * (train + test)]
        bare = order[1000 + 50 * client : 1000 + 50 * client + 40 - 5 * client]
        held.append(
            Shard(
                client,
                Split(source, own[: train - 7 * client]),
                Split(source, own[:0]),
                Split(source, own[train:]),
                unlabelled=Split(source, bare, hidden=True),
            )
        )
    return held


def network(norm: bool = False, dropout: bool = False) -> nn.Module:
    """A convolution and two linear layers, with BatchNorm and dropout on demand."""
    encoder = [nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8) if norm else nn.Identity(), nn.ReLU()]
    encoder += [nn.Flatten(), nn.Linear(128, 16), nn.ReLU(), nn.Dropout(0.2 if dropout else 0.0)]
    return Classifier(nn.Sequential(*encoder), nn.Linear(16, 10))


def task(norm: bool = False, dropout: bool = False, pretrained: Params | None = None) -> Task:
    return Task(partial(network, norm, dropout), torch.tensor([0.3]), torch.tensor([0.37]), pretrained)


def encoder(seed: int = 5) -> Params:
    """Weights to stand for a pre-trained encoder."""
    seed_everything(seed)
    return task().init().under("encoder.")


FIT = LocalFit(epochs=2, batch_size=16, optimizer="sgd", lr=0.1)


def play(
    method: Method, held: list[Shard] | None = None, *, rounds: int = 2, seed: int = 0, **options: object
) -> list[Report]:
    """All reports of a short run; options `participation`, `pool`, `resume`, ... go where they belong."""
    plan = {key: options.pop(key) for key in list(options) if key in Plan.__dataclass_fields__}
    seed_everything(seed)
    x = method.task.init()
    return list(
        federate(method, x, shards() if held is None else held, Plan(rounds=rounds, **plan), seed=seed, **options)
    )


def same(a: object, b: object) -> bool:
    """Two trees have the same leaves, bit for bit."""
    left, right = list(tree.leaves(a)), list(tree.leaves(b))
    return len(left) == len(right) and all(
        torch.equal(x, y) if isinstance(x, Tensor) else x == y for x, y in zip(left, right, strict=True)
    )


def numbers(report: Report) -> dict[str, float]:
    """A report's metrics without the clock."""
    return {name: value for name, value in report.metrics.items() if name != "seconds"}
