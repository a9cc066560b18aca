import hashlib
import io
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedcore.config import ConfigError
from fedcore.data import mirror as mirrors
from fedcore.data.images import Form

GREY = np.random.default_rng(0).integers(0, 256, (5, 8, 8), np.uint8)
LABELS = np.array([0, 1, 1, 0, 1])


def store(folder: Path, file: str, **arrays: np.ndarray) -> None:
    """Add a file to the mirror in `folder`, its sum to the manifest."""
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)
    manifest = folder / "manifest.json"
    facts = json.loads(manifest.read_text()) if manifest.exists() else {}
    facts[file] = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    manifest.write_text(json.dumps(facts))
    (folder / "classes.json").write_text(json.dumps({path.parent.name: ["no", "yes"]}))


def packed(modes: str) -> dict[str, np.ndarray]:
    """Pictures of a shade each, grey (L) or colour (C), as JPEG files end to end."""
    files = []
    for number, mode in enumerate(modes):
        buffer = io.BytesIO()
        Image.new("L" if mode == "L" else "RGB", (8, 8), 40 * number if mode == "L" else (40 * number,) * 3).save(
            buffer, "JPEG"
        )
        files.append(buffer.getvalue())
    offsets = np.cumsum([0, *map(len, files)])
    return {"data": np.frombuffer(b"".join(files), np.uint8), "offsets": offsets, "labels": LABELS[: len(files)]}


def test_plain_arrays(tmp_path: Path) -> None:
    store(tmp_path, "mnist/train.npz", images=GREY, labels=LABELS)
    store(tmp_path, "mnist/test.npz", images=GREY[:2], labels=LABELS[:2])
    found = mirrors.read(tmp_path, "mnist", Form())
    assert found.classes == ("no", "yes")
    assert np.array_equal(found.parts["train"].images.numpy(), GREY[:, None])
    assert found.parts["test"].labels.tolist() == [0, 1]


def test_packed_pictures_of_both_kinds(tmp_path: Path) -> None:
    store(tmp_path, "tiny_imagenet/train.npz", **packed("CLC"))
    store(tmp_path, "tiny_imagenet/val.npz", **packed("L"))
    found = mirrors.read(tmp_path, "tiny_imagenet", Form(channels=3))
    shades = found.parts["train"].images.float().mean((2, 3))
    assert torch.allclose(shades, torch.tensor([[0.0], [40.0], [80.0]]).expand(3, 3), atol=1.5)
    assert found.parts["test"].images.shape == (1, 3, 8, 8)


def test_holdout_is_the_test_split_of_stl10(tmp_path: Path) -> None:
    store(tmp_path, "stl10/train.npz", images=GREY, labels=LABELS, holdout=np.array([0, 1, 0, 0, 1], bool))
    store(tmp_path, "stl10/unlabeled.npz", images=GREY, labels=np.full(5, -1))
    found = mirrors.read(tmp_path, "stl10", Form())
    assert np.array_equal(found.parts["train"].images[:, 0].numpy(), GREY[[0, 2, 3]])
    assert np.array_equal(found.parts["test"].images[:, 0].numpy(), GREY[[1, 4]])
    assert found.parts["train"].labels.tolist() == [0, 1, 0]
    assert len(found.parts["unlabeled"].labels) == 5


def test_pacs_numbers_its_domains(tmp_path: Path) -> None:
    for domain, modes in [("photo", "C"), ("art_painting", "CC"), ("cartoon", "CCC"), ("sketch", "LL")]:
        store(tmp_path, f"pacs/{domain}.npz", **packed(modes))
    found = mirrors.read(tmp_path, "pacs", Form())
    whole = found.parts["train"]
    assert whole.domains is not None
    assert whole.domains.tolist() == [0, 1, 1, 2, 2, 2, 3, 3]
    assert whole.images.shape == (8, 3, 8, 8)
    assert found.domains == ("photo", "art_painting", "cartoon", "sketch")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    store(tmp_path, "mnist/train.npz", images=GREY, labels=LABELS)
    with pytest.raises(ConfigError, match=r"^mirror: .*mnist/test\.npz is missing.*FEDCORE_MIRROR"):
        mirrors.read(tmp_path, "mnist", Form())


def test_a_cut_file_is_named(tmp_path: Path) -> None:
    store(tmp_path, "mnist/train.npz", images=GREY, labels=LABELS)
    path = tmp_path / "mnist/train.npz"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ConfigError, match=r"^mirror: .*mnist/train\.npz differs from its sha256"):
        mirrors.read(tmp_path, "mnist", Form())


@pytest.mark.parametrize(("content", "message"), [(None, "is missing"), ("{", "is no JSON")])
def test_a_folder_that_is_no_mirror(tmp_path: Path, content: str | None, message: str) -> None:
    if content:
        (tmp_path / "manifest.json").write_text(content)
    for call in (lambda: mirrors.read(tmp_path, "mnist", Form()), lambda: mirrors.has(tmp_path, "mnist")):
        with pytest.raises(ConfigError, match=rf"^mirror: .*manifest\.json {message}"):
            call()


@pytest.mark.mirror
@pytest.mark.parametrize("source", ["mnist", "fashion_mnist", "usps", "emnist_letters", "cifar10"])
def test_real_sets_have_the_images_of_the_manifest(mirror: Path, source: str) -> None:
    manifest = json.loads((mirror / "manifest.json").read_text())
    found = mirrors.read(mirror, source, Form())
    for split, part in found.parts.items():
        facts = manifest[f"{source}/{split}.npz"]
        count, height, width, *colours = facts["shape"]
        counts = part.labels.bincount(minlength=len(found.classes))
        assert part.images.shape == (count, *(colours or [1]), height, width)
        assert (int(counts.min()), int(counts.max())) == (facts["per_class_min"], facts["per_class_max"])
        assert len(counts) == facts["classes"] == len(found.classes)


@pytest.mark.mirror
def test_real_mnist_has_the_published_moments(mirror: Path) -> None:
    pixels = mirrors.read(mirror, "mnist", Form()).parts["train"].images.double() / 255
    assert float(pixels.mean()) == pytest.approx(0.1307, abs=5e-5)
    assert float(pixels.std()) == pytest.approx(0.3081, abs=5e-5)


@pytest.mark.mirror
def test_real_stl10(mirror: Path) -> None:
    found = mirrors.read(mirror, "stl10", Form(size=32))
    assert {split: len(part.labels) for split, part in found.parts.items()} == {
        "train": 4000,
        "test": 1000,
        "unlabeled": 8000,
    }
    assert found.parts["train"].labels.bincount().tolist() == [400] * 10
    assert found.parts["test"].labels.bincount().tolist() == [100] * 10
    assert (found.parts["unlabeled"].labels == -1).all()


@pytest.mark.mirror
def test_real_pacs(mirror: Path) -> None:
    whole = mirrors.read(mirror, "pacs", Form()).parts["train"]
    assert whole.domains is not None
    assert whole.domains.bincount().tolist() == [1670, 2048, 2344, 3929]
    sketch = whole.images[whole.domains == 3]
    assert torch.equal(sketch[:, 0], sketch[:, 2])
    assert not torch.equal(whole.images[0, 0], whole.images[0, 2])
