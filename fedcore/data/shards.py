"""What a method sees of a dataset: the images of one client, as rows of arrays that everybody shares."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Source:
    """All images of one split of a dataset. One that was opened from a folder pickles as that folder."""

    images: Tensor  # (N, C, H, W) uint8
    labels: Tensor  # (N,) int64, -1 where unlabelled
    origin: tuple[Path, str] | None = None  # folder and split

    @classmethod
    def open(cls, folder: Path, split: str) -> "Source":
        """Map the arrays of one split into memory; processes that open the same files share one copy."""
        images, labels = (_mapped(folder / f"{split}_{kind}.npy") for kind in ("images", "labels"))
        return cls(images, labels, (folder.absolute(), split))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Source, (self.images, self.labels)) if self.origin is None else (Source.open, self.origin)


def _mapped(path: Path) -> Tensor:
    # Copy-on-write: pages stay shared with other processes, and PyTorch does not warn of read-only memory.
    return torch.from_numpy(np.load(path, mmap_mode="c"))


@dataclass(frozen=True)
class Dataset:
    """A dataset on disk, its images memory-mapped."""

    name: str
    classes: tuple[str, ...]
    shape: tuple[int, int, int]  # (C, H, W)
    mean: Tensor  # (C,) of the training pixels divided by 255
    std: Tensor  # (C,)
    splits: Mapping[str, Source]
    fingerprint: str

    @classmethod
    def open(cls, folder: Path) -> "Dataset":
        """Map the arrays of `folder` (as the download stage wrote them). Raises FileNotFoundError if there are none."""
        facts = json.loads((folder / "dataset.json").read_text())
        channels, height, width = facts["shape"]
        return cls(
            name=folder.name,
            classes=tuple(facts["classes"]),
            shape=(channels, height, width),
            mean=torch.tensor(facts["mean"]),
            std=torch.tensor(facts["std"]),
            splits={split: Source.open(folder, split) for split in facts["splits"]},
            fingerprint=facts["fingerprint"],
        )


@dataclass(frozen=True)
class Split:
    """Some rows of a source, in a fixed order; a position counts within them."""

    source: Source
    index: Tensor  # (n,) int64, rows of the source
    hidden: bool = False  # labels are not for methods to see

    def __len__(self) -> int:
        return len(self.index)

    def images(self, positions: Tensor | None = None) -> Tensor:
        """Images (b, C, H, W) uint8 at `positions` (b,), default all."""
        return self.source.images[self.index if positions is None else self.index[positions]]

    def labels(self, positions: Tensor | None = None) -> Tensor:
        """Labels (b,) int64 at `positions` (b,), default all; -1 where there is none, or it is hidden."""
        if self.hidden:
            return torch.full_like(self.index if positions is None else positions, -1)
        return self.source.labels[self.index if positions is None else self.index[positions]]


NONE = Split(Source(torch.empty(0, 1, 1, 1, dtype=torch.uint8), torch.empty(0, dtype=torch.int64)), torch.arange(0))


@dataclass(frozen=True)
class Shard:
    """One client's view of a dataset."""

    client: int
    train: Split
    validation: Split
    test: Split
    domain: int = 0
    unlabelled: Split = NONE  # training images whose labels are hidden

    def to(self, device: torch.device) -> "Shard":
        """The same shard with its own images on `device`; the CPU keeps the shared, mapped arrays."""
        if device.type == "cpu":
            return self
        return replace(
            self,
            train=_moved(self.train, device),
            validation=_moved(self.validation, device),
            test=_moved(self.test, device),
            unlabelled=_moved(self.unlabelled, device),
        )


def _moved(split: Split, device: torch.device) -> Split:
    source = Source(split.images().to(device), split.labels().to(device))
    return replace(split, source=source, index=torch.arange(len(split), device=device))


def pooled(shards: Sequence[Shard], client: int = 0) -> Shard:
    """One shard that holds the images of all `shards`."""
    first = shards[0]

    def union(splits: Sequence[Split]) -> Split:
        return replace(splits[0], index=torch.cat([s.index for s in splits]))

    return Shard(
        client,
        union([s.train for s in shards]),
        union([s.validation for s in shards]),
        union([s.test for s in shards]),
        first.domain,
        union([s.unlabelled for s in shards]),
    )
