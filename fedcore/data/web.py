"""Datasets that the web publishes: the archives of each, and how to read them, through torchvision where it can.

Only archives are kept. They are unpacked anew for each reading, so that a killed unpacking leaves nothing to mistrust.
"""

import csv
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyarrow.parquet as pq
import torch
import torchvision.datasets as tv
from filelock import FileLock
from torch import Tensor

from fedcore.config import ConfigError
from fedcore.data.fetch import Archive, fetch
from fedcore.data.images import Collection, Form, Part, conform, decoded, gathered
from fedcore.data.mirror import DOMAINS, merged

DIGITS = tuple("0123456789")
PACS_CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
CLASSES = {
    "mnist": DIGITS,
    "usps": DIGITS,
    "svhn": DIGITS,
    "letters": tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    "stl10": ("airplane", "bird", "car", "cat", "deer", "dog", "horse", "monkey", "ship", "truck"),
    "gtsrb": tuple(f"sign {number}" for number in range(43)),
}
SETS: dict[str, Any] = {
    "mnist": tv.MNIST,
    "fashion_mnist": tv.FashionMNIST,
    "kmnist": tv.KMNIST,
    "emnist": tv.EMNIST,
    "usps": tv.USPS,
    "cifar10": tv.CIFAR10,
    "cifar100": tv.CIFAR100,
    "stl10": tv.STL10,
    "gtsrb": tv.GTSRB,
    "svhn": tv.SVHN,
}
_GTSRB = "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/"
ARCHIVES = {  # of the sources for which torchvision has no table
    "gtsrb": [
        Archive("gtsrb/GTSRB-Training_fixed.zip", (_GTSRB + "GTSRB-Training_fixed.zip",),
                "md5:513f3c79a4c5141765e10e952eaa2478"),
        Archive("gtsrb/GTSRB_Final_Test_Images.zip", (_GTSRB + "GTSRB_Final_Test_Images.zip",),
                "md5:c7e4e6327067d32654124b0fe9e82185"),
        Archive("gtsrb/GTSRB_Final_Test_GT.zip", (_GTSRB + "GTSRB_Final_Test_GT.zip",),
                "md5:fe31e9c9270bbcd7b84b7f21a9d9d9e5"),
    ],
    "tiny_imagenet": [
        Archive("tiny-imagenet-200.zip", ("http://cs231n.stanford.edu/tiny-imagenet-200.zip",),
                "md5:90528d7ca1a48142e341f4ef8d21d0de"),
    ],
    # The authors' own copy lies on Google Drive, which limits how often it is read; this one has all 9991 images.
    "pacs": [
        Archive("pacs.parquet", ("https://huggingface.co/datasets/flwrlabs/pacs/resolve/"
                                 "394113073258ead631f617d2e13bb377c0715c4b/data/train-00000-of-00001.parquet",),
                "sha256:4fc041ee92eec6043fe6e2859e8bdd138e5f958bc621afd153879812cbe65ff5"),
    ],
}  # fmt: skip


def archives(source: str) -> list[Archive]:
    """The files that `source` consists of, each where torchvision looks for it."""
    if source in ARCHIVES:
        return ARCHIVES[source]
    cls = SETS[source]
    if source == "emnist":
        return [Archive(f"EMNIST/raw/{cls.url.rsplit('/', 1)[-1]}", (cls.url,), f"md5:{cls.md5}")]
    if issubclass(cls, tv.MNIST):
        folder = f"{cls.__name__}/raw"
        return [Archive(f"{folder}/{file}", tuple(m + file for m in cls.mirrors), f"md5:{md5}")
                for file, md5 in cls.resources]  # fmt: skip
    if hasattr(cls, "tgz_md5"):
        return [Archive(cls.filename, (cls.url,), f"md5:{cls.tgz_md5}")]
    listed = [cls.split_list[split] for split in ("train", "test")]
    return [Archive(file, (url,), f"md5:{md5}") for url, file, md5 in listed]


def download(source: str, split: str | None, form: Form, cache: Path) -> Collection:
    """`source` from its archives, fetched into `cache` as far as they are not there. Raises FetchError."""
    folder = cache / source
    with _unpacked({archive.file: fetch(archive, folder) for archive in archives(source)}, folder) as root:
        if source == "tiny_imagenet":
            with ZipFile(root / "tiny-imagenet-200.zip") as archive:
                archive.extractall(root)
            return tiny_imagenet(root / "tiny-imagenet-200", form)
        if source == "pacs":
            return _pacs_table(root / "pacs.parquet", form)
        return _torchvision(source, split, form, root, unpack=True)


def unpacked(source: str, split: str | None, form: Form, folder: Path) -> Collection:
    """`source` from a `folder` where a user has it already; for torchvision's sets, the `root` it was given."""
    if not folder.is_dir():
        raise ConfigError(f"path: {folder} is no folder")
    try:
        if source == "tiny_imagenet":
            return tiny_imagenet(folder, form)
        if source == "pacs":
            return pacs(folder, form)
        return _torchvision(source, split, form, folder, unpack=False)
    except (OSError, RuntimeError) as error:
        raise ConfigError(f"path: {folder} does not hold {source} ({error}); drop this setting to fetch it") from error


@contextmanager
def _unpacked(files: dict[str, Path], folder: Path) -> Iterator[Path]:
    """A passing folder in which each archive stands where its reader looks for it."""
    root = folder / ".unpacked"
    with FileLock(folder / ".unpacked.lock"):
        shutil.rmtree(root, ignore_errors=True)  # a killed process may have left it
        try:
            for name, path in files.items():
                link = root / name
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(path.resolve())
            yield root
        finally:
            shutil.rmtree(root, ignore_errors=True)


def _torchvision(source: str, split: str | None, form: Form, root: Path, unpack: bool) -> Collection:
    cls = SETS[source]
    given = {"split": split} if source == "emnist" else {}
    by_name = source in ("stl10", "gtsrb", "svhn")
    wanted = ["train", "test", "unlabeled"] if source == "stl10" else ["train", "test"]
    parts, classes = {}, CLASSES.get(split or source)
    for part in wanted:
        which = {"split": part} if by_name else {"train": part == "train"}
        found = cls(str(root), download=unpack, **which, **given)
        parts[part] = _part(source, split, found, form)
        classes = classes or tuple(found.classes)
    return Collection(classes or (), parts)


def _part(source: str, split: str | None, found: Any, form: Form) -> Part:
    if source == "gtsrb":  # as large as each sign was in its photograph
        pairs = [(conform(decoded(image)[None], form), label) for image, label in found]
        return Part(torch.cat([image for image, _ in pairs]), torch.tensor([label for _, label in pairs]))
    labels = torch.as_tensor(found.labels if hasattr(found, "labels") else found.targets).to(torch.int64)
    images = torch.as_tensor(found.data)
    if source == "emnist":
        images = images.transpose(1, 2)  # published with rows and columns exchanged
        labels = labels - 1 if split == "letters" else labels  # published as 1..26
    if images.ndim == 3:
        images = images[:, None]
    elif images.shape[-1] == 3:
        images = images.permute(0, 3, 1, 2)
    return Part(conform(images, form), labels)


def tiny_imagenet(folder: Path, form: Form) -> Collection:
    """Tiny ImageNet as published; its `val` is the test split, since the labels of its own test images are withheld."""
    wnids = sorted((folder / "wnids.txt").read_text().split())
    words = dict(line.split("\t", 1) for line in (folder / "words.txt").read_text().splitlines())
    label = {wnid: number for number, wnid in enumerate(wnids)}
    train = [(path, label[wnid]) for wnid in wnids for path in sorted((folder / "train" / wnid).rglob("*.JPEG"))]
    with (folder / "val/val_annotations.txt").open(newline="") as table:
        rows = [(folder / "val/images" / row[0], label[row[1]]) for row in csv.reader(table, delimiter="\t")]
    classes = tuple(f"{wnid} {words[wnid]}" for wnid in wnids)
    return Collection(classes, {"train": _pictures(train, form), "test": _pictures(rows, form)})


def pacs(folder: Path, form: Form) -> Collection:
    """PACS as folders domain/class/picture."""
    found = []
    for domain in DOMAINS["pacs"]:
        pairs = [(path, label) for label, name in enumerate(PACS_CLASSES)
                 for path in sorted((folder / domain / name).iterdir()) if not path.name.startswith(".")]  # fmt: skip
        found.append(_pictures(pairs, form))
    return Collection(PACS_CLASSES, {"train": merged(found)}, DOMAINS["pacs"])


def _pacs_table(path: Path, form: Form) -> Collection:
    table = pq.read_table(path, columns=["image", "domain", "label"]).to_pydict()
    found = []
    for domain in DOMAINS["pacs"]:
        rows = [row for row, name in enumerate(table["domain"]) if name == domain]
        found.append(_pictures([(table["image"][row]["bytes"], table["label"][row]) for row in rows], form))
    return Collection(PACS_CLASSES, {"train": merged(found)}, DOMAINS["pacs"])


def _pictures(pairs: list[tuple[Any, int]], form: Form) -> Part:
    labels: Tensor = torch.tensor([label for _, label in pairs], dtype=torch.int64)
    return Part(gathered([picture for picture, _ in pairs], form), labels)
