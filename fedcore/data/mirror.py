"""The offline mirror: a folder of .npz files, one a split, with the facts about them in two JSON files.

`manifest.json` gives the sha256 of each file, `classes.json` the class names in label order. A file holds `labels`
and either `images` uint8 (N, H, W) or JPEG files end to end, `data` uint8 with `offsets` int64 (N + 1,).
"""

import json
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedcore.config import ConfigError
from fedcore.data.fetch import checksum
from fedcore.data.images import Collection, Form, Part, conform, gathered, joined

DOMAINS = {"pacs": ("photo", "art_painting", "cartoon", "sketch")}
_FILES = {
    "stl10": {"train": "train", "unlabeled": "unlabeled"},
    "tiny_imagenet": {"train": "train", "test": "val"},
    "pacs": {domain: domain for domain in DOMAINS["pacs"]},
}


def read(folder: Path, source: str, form: Form) -> Collection:
    """The dataset `source` of the mirror in `folder`. Raises ConfigError naming the file that is absent or altered."""
    files = _FILES.get(source, {"train": "train", "test": "test"})
    sums, classes = _json(folder / "manifest.json"), _json(folder / "classes.json")
    stored = {split: _arrays(folder, f"{source}/{file}.npz", sums) for split, file in files.items()}
    parts = {split: _part(arrays, form) for split, arrays in stored.items()}
    if "holdout" in stored.get("train", {}):
        chosen, whole = torch.from_numpy(stored["train"]["holdout"]), parts["train"]
        parts |= {"train": whole.rows((~chosen).nonzero()[:, 0]), "test": whole.rows(chosen.nonzero()[:, 0])}
    domains = DOMAINS.get(source, ())
    if domains:
        parts = {"train": merged([parts[domain] for domain in domains])}
    return Collection(tuple(classes[source]), parts, domains)


def has(folder: Path, source: str) -> bool:
    """Whether the mirror in `folder` has a dataset `source`. Raises ConfigError when `folder` is no mirror."""
    _json(folder / "manifest.json")
    return (folder / source).is_dir()


def merged(parts: list[Part]) -> Part:
    """One part of several, each a domain of its own, numbered in order."""
    domains = [torch.full_like(part.labels, domain) for domain, part in enumerate(parts)]
    return Part(joined([part.images for part in parts]), torch.cat([part.labels for part in parts]), torch.cat(domains))


def _json(path: Path) -> Any:
    if not path.is_file():
        raise ConfigError(f"mirror: {path} is missing; name the folder of a mirror here or in FEDCORE_MIRROR")
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise ConfigError(f"mirror: {path} is no JSON ({error}); copy it again") from error


def _arrays(folder: Path, file: str, sums: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    path = folder / file
    if not path.is_file():
        raise ConfigError(f"mirror: {path} is missing; add it, or name another mirror here or in FEDCORE_MIRROR")
    if checksum(path, "sha256") != sums.get(file, {}).get("sha256"):
        raise ConfigError(f"mirror: {path} differs from its sha256 in manifest.json; copy it again")
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def _part(arrays: Mapping[str, Any], form: Form) -> Part:
    if "images" in arrays:
        images = conform(torch.from_numpy(arrays["images"])[:, None], form)
    else:
        data = memoryview(arrays["data"])
        images = gathered((bytes(data[start:end]) for start, end in pairwise(arrays["offsets"])), form)
    return Part(images, torch.from_numpy(arrays["labels"]).to(torch.int64))
