"""Pre-training on a server's images: Algorithm 1 of CP-CFL (methods.md 1.2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fedcore import nets
from fedcore.cohort import seed_of
from fedcore.contrastive.spec import Contrastive, Learner
from fedcore.data.shards import Dataset, Source
from fedcore.executors import seed_everything

NEIGHBOURS, PROBE_TRAIN, PROBE_TEST = 20, 2000, 1000


class State(NamedTuple):
    """All that pre-training needs to go on after an epoch."""

    epoch: int
    learner: dict[str, Tensor]
    optimizer: dict[str, Any]


@dataclass(frozen=True)
class Epoch:
    """What an epoch ended with."""

    epoch: int
    loss: float
    learner: Learner
    optimizer: torch.optim.Optimizer

    def state(self) -> State:
        """The state to keep; it shares its tensors with the training that goes on, so write it down at once."""
        return State(self.epoch, self.learner.state_dict(), self.optimizer.state_dict())


def train(
    spec: Contrastive, dataset: Dataset, *, device: torch.device | None = None, resume: State | None = None
) -> Iterator[Epoch]:
    """Train an encoder, yielding after every epoch; from `resume` it goes on bit for bit as if never stopped.

    An epoch leaves out the last incomplete batch, which would have fewer negatives; a dataset smaller than a batch is
    one batch. Raises ValueError if the split is not there.
    """
    images = source(spec, dataset).images
    if len(images) < 2:
        raise ValueError(f"split: {spec.split!r} of {dataset.name} holds {len(images)} images; contrast needs two")
    seed_everything(seed_of(spec.seed, "encoder"))
    learner = spec.learner(nets.encoder(spec.net, dataset.shape, **spec.net_options)).to(device)
    trained = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=spec.lr, fused=True)
    if resume:
        learner.load_state_dict(resume.learner)
        optimizer.load_state_dict(resume.optimizer)
    for epoch in range(resume.epoch + 1 if resume else 0, spec.epochs):
        seed_everything(seed_of(spec.seed, "epoch", epoch))
        loss = _epoch(spec, learner, optimizer, images, dataset, device)
        yield Epoch(epoch, loss, learner, optimizer)


def source(spec: Contrastive, dataset: Dataset) -> Source:
    """The images an encoder learns from. Raises ValueError if the split is not there."""
    split = spec.split
    if split == "auto":
        split = "unlabeled" if "unlabeled" in dataset.splits else "train"
    if split not in dataset.splits:
        raise ValueError(f"split: {split!r} is not in {dataset.name}; known: {', '.join(dataset.splits)}, auto")
    return dataset.splits[split]


def _epoch(
    spec: Contrastive,
    learner: Learner,
    optimizer: torch.optim.Optimizer,
    images: Tensor,
    dataset: Dataset,
    device: torch.device | None,
) -> float:
    learner.train()
    size = min(spec.batch_size, len(images))
    losses = []
    for positions in torch.randperm(len(images))[: len(images) // size * size].split(size):
        x = images[positions].to(device) / 255
        a, b = (normalised(spec.views(x), dataset) for _ in range(2))
        loss = learner.loss(a, b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        learner.after_step()
        losses.append(loss.detach())
    return float(torch.stack(losses).mean())


def normalised(x: Tensor, dataset: Dataset) -> Tensor:
    """Images (B, C, H, W) in [0, 1] by the mean and deviation of the channels, laid out as convolutions like it."""
    shape = (1, -1, 1, 1)
    x = (x - dataset.mean.view(shape).to(x.device)) / dataset.std.view(shape).to(x.device)
    return x.contiguous(memory_format=torch.channels_last)


def probe(encoder: nn.Module, dataset: Dataset, seed: int = 0) -> dict[str, float]:
    """Accuracy on test images of simple classifiers of the frozen features, learned from labelled training images.

    `knn_accuracy`: 20 nearest neighbours by cosine; `linear_accuracy`: logistic regression on standardised features.
    From at most 2 000 training and 1 000 test images; NaN where there are no labels.
    """
    # Slow to import, and every stage reads the specs.
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    train, test = (_labelled(dataset.splits[split], most, seed) for split, most in
                   (("train", PROBE_TRAIN), ("test", PROBE_TEST)))  # fmt: skip
    if len(train.labels.unique()) < 2 or not len(test.labels):
        return {"knn_accuracy": float("nan"), "linear_accuracy": float("nan")}
    fitted, asked = (features(encoder, s.images, dataset).numpy() for s in (train, test))
    knn = KNeighborsClassifier(min(NEIGHBOURS, len(fitted)), metric="cosine")
    linear = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=300))
    return {
        "knn_accuracy": float(knn.fit(fitted, train.labels.numpy()).score(asked, test.labels.numpy())),
        "linear_accuracy": float(linear.fit(fitted, train.labels.numpy()).score(asked, test.labels.numpy())),
    }


def _labelled(source: Source, most: int, seed: int) -> Source:
    rows = (source.labels >= 0).nonzero().flatten()
    rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))[:most]]
    return Source(source.images[rows], source.labels[rows])


@torch.no_grad()
def features(encoder: nn.Module, images: Tensor, dataset: Dataset, batch_size: int = 512) -> Tensor:
    """Features (N, d) on the CPU of images (N, C, H, W) uint8, the encoder in eval mode."""
    encoder.eval()
    device = next(encoder.parameters()).device
    return torch.cat([encoder(normalised(part.to(device) / 255, dataset)).cpu() for part in images.split(batch_size)])
