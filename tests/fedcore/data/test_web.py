"""The readers of published sets, on archives of a few images made here in the published formats."""

import bz2
import gzip
import hashlib
import io
import pickle
import shutil
import tarfile
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import torch
import torchvision.datasets as tv
from PIL import Image

from fedcore.config import ConfigError
from fedcore.data import web
from fedcore.data.fetch import Archive, FetchError
from fedcore.data.images import Form

GREY = np.random.default_rng(0).integers(0, 256, (6, 28, 28), np.uint8)
COLOUR = np.random.default_rng(1).integers(0, 256, (6, 32, 32, 3), np.uint8)
LABELS = [3, 0, 1, 2, 0, 1]


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def put(site: Path, name: str, content: bytes) -> str:
    """A file of the site; returns its md5."""
    site.mkdir(exist_ok=True)
    (site / name).write_bytes(content)
    return md5(content)


def idx(array: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.astype(np.uint8).tobytes())


def mnist(cls: Any, site: Path, patch: pytest.MonkeyPatch) -> None:
    files = {"train": (GREY, LABELS), "t10k": (GREY[:2], LABELS[:2])}
    resources = []
    for prefix, (images, labels) in files.items():
        for kind, array in (("images-idx3", images), ("labels-idx1", np.array(labels))):
            name = f"{prefix}-{kind}-ubyte.gz"
            resources.append((name, put(site, name, idx(array))))
    patch.setattr(cls, "resources", resources)
    patch.setattr(cls, "mirrors", ["http://127.0.0.1:9/", f"{site.as_uri()}/"])


def emnist(split: str, site: Path, patch: pytest.MonkeyPatch) -> None:
    shift = 1 if split == "letters" else 0
    buffer = io.BytesIO()
    with ZipFile(buffer, "w") as archive:
        for part, count in (("train", 6), ("test", 2)):
            name = f"gzip/emnist-{split}-{part}"
            archive.writestr(f"{name}-images-idx3-ubyte.gz", idx(GREY[:count].transpose(0, 2, 1)))
            archive.writestr(f"{name}-labels-idx1-ubyte.gz", idx(np.array(LABELS[:count]) + shift))
    patch.setattr(tv.EMNIST, "md5", put(site, "gzip.zip", buffer.getvalue()))
    patch.setattr(tv.EMNIST, "url", (site / "gzip.zip").as_uri())


def usps(site: Path, patch: pytest.MonkeyPatch) -> None:
    table = {}
    for part, count in (("train", 6), ("test", 2)):
        lines = []
        for image, label in zip(GREY[:count, :16, :16], LABELS, strict=False):
            pixels = " ".join(f"{i + 1}:{value / 127.5 - 1:.9f}" for i, value in enumerate(image.reshape(-1)))
            lines.append(f"{label + 1} {pixels} \n")
        name = f"{part}.bz2"
        digest = put(site, name, bz2.compress("".join(lines).encode()))
        table[part] = [(site / name).as_uri(), name, digest]
    patch.setattr(tv.USPS, "split_list", table)


def svhn(site: Path, patch: pytest.MonkeyPatch) -> None:
    table = {}
    for part, count in (("train", 6), ("test", 2)):
        buffer, labels = io.BytesIO(), np.array([label or 10 for label in LABELS[:count]])
        scipy.io.savemat(buffer, {"X": COLOUR[:count].transpose(1, 2, 3, 0), "y": labels[:, None]})
        digest = put(site, f"{part}.mat", buffer.getvalue())
        table[part] = [(site / f"{part}.mat").as_uri(), f"{part}.mat", digest]
    patch.setattr(tv.SVHN, "split_list", table)


def tar(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def cifar(cls: Any, site: Path, patch: pytest.MonkeyPatch) -> None:
    key = "labels" if cls is tv.CIFAR10 else "fine_labels"
    batches = {"one": slice(0, 4), "two": slice(4, 6), "test": slice(0, 2)}
    files = {
        name: pickle.dumps({"data": COLOUR[rows].transpose(0, 3, 1, 2).reshape(-1, 3072), key: LABELS[rows]})
        for name, rows in batches.items()
    }
    files["meta"] = pickle.dumps({cls.meta["key"]: ["p", "q", "r", "s"]})
    packed = tar({f"{cls.base_folder}/{name}": content for name, content in files.items()})
    patch.setattr(cls, "tgz_md5", put(site, cls.filename, packed))
    patch.setattr(cls, "url", (site / cls.filename).as_uri())
    patch.setattr(cls, "train_list", [[name, md5(files[name])] for name in ("one", "two")])
    patch.setattr(cls, "test_list", [["test", md5(files["test"])]])
    patch.setattr(cls, "meta", {"filename": "meta", "key": cls.meta["key"], "md5": md5(files["meta"])})


STL10 = np.random.default_rng(2).integers(0, 256, (6, 96, 96, 3), np.uint8)


def stl10(site: Path, patch: pytest.MonkeyPatch) -> None:
    columns, labels = STL10.transpose(0, 3, 2, 1), np.array(LABELS, np.uint8) + 1
    files = {
        "train_X.bin": columns.tobytes(), "train_y.bin": labels.tobytes(), "unlabeled_X.bin": columns[3:].tobytes(),
        "test_X.bin": columns[:2].tobytes(), "test_y.bin": labels[:2].tobytes(),
    }  # fmt: skip
    packed = tar({f"stl10_binary/{name}": content for name, content in files.items()})
    patch.setattr(tv.STL10, "tgz_md5", put(site, "stl10_binary.tar.gz", packed))
    patch.setattr(tv.STL10, "url", (site / "stl10_binary.tar.gz").as_uri())
    listed = [[name, md5(content)] for name, content in files.items()]
    patch.setattr(tv.STL10, "train_list", listed[:3])
    patch.setattr(tv.STL10, "test_list", listed[3:])


def encoded(image: np.ndarray, form: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, form)
    return buffer.getvalue()


def check(found: Any, images: np.ndarray, test: int = 2) -> None:
    """Train holds all of `images` (N, C, H, W) with LABELS, test the first few."""
    train, held = found.parts["train"], found.parts["test"]
    assert train.images.dtype == torch.uint8
    assert train.labels.dtype == torch.int64
    assert np.array_equal(train.images.numpy(), images)
    assert np.array_equal(held.images.numpy(), images[:test])
    assert train.labels.tolist() == LABELS
    assert held.labels.tolist() == LABELS[:test]


@pytest.mark.parametrize(
    ("source", "classes"), [("mnist", "0123456789"), ("fashion_mnist", None), ("kmnist", None)]
)  # fmt: skip
def test_mnist_and_its_kin(source: str, classes: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mnist(web.SETS[source], tmp_path / "site", monkeypatch)
    found = web.download(source, None, Form(), tmp_path / "cache")
    check(found, GREY[:, None])
    assert found.classes == tuple(classes or web.SETS[source].classes)
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert len(kept) == 4  # the archives, and nothing unpacked


@pytest.mark.parametrize(
    ("split", "count"),
    [("balanced", 47), ("byclass", 62), ("bymerge", 47), ("letters", 26), ("digits", 10), ("mnist", 10)],
)
def test_emnist_is_upright_and_counts_from_0(
    split: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emnist(split, tmp_path / "site", monkeypatch)
    found = web.download("emnist", split, Form(), tmp_path / "cache")
    check(found, GREY[:, None])
    assert len(found.classes) == count


def test_usps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usps(tmp_path / "site", monkeypatch)
    found = web.download("usps", None, Form(), tmp_path / "cache")
    assert found.parts["train"].labels.tolist() == LABELS
    error = found.parts["train"].images.numpy().astype(int) - GREY[:, None, :16, :16]
    assert abs(error).max() <= 1  # the published values are rounded


def test_svhn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    svhn(tmp_path / "site", monkeypatch)
    check(web.download("svhn", None, Form(), tmp_path / "cache"), COLOUR.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("source", ["cifar10", "cifar100"])
def test_cifar(source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cifar(web.SETS[source], tmp_path / "site", monkeypatch)
    found = web.download(source, None, Form(), tmp_path / "cache")
    check(found, COLOUR.transpose(0, 3, 1, 2))
    assert found.classes == ("p", "q", "r", "s")


def test_stl10_with_its_unlabelled_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stl10(tmp_path / "site", monkeypatch)
    found = web.download("stl10", None, Form(), tmp_path / "cache")
    check(found, STL10.transpose(0, 3, 1, 2))
    assert np.array_equal(found.parts["unlabeled"].images.numpy(), STL10[3:].transpose(0, 3, 1, 2))
    assert found.parts["unlabeled"].labels.tolist() == [-1, -1, -1]


def gtsrb(folder: Path) -> None:
    """The set as torchvision unpacks it, its training signs of many sizes."""
    root = folder / "gtsrb" / "GTSRB"
    rows = ["Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"]
    for number, label in enumerate(sorted(LABELS)):
        path = root / f"Training/{label:05d}/{number:05d}.ppm"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(COLOUR[number]).resize((20 + number, 30)).save(path)
    (root / "Final_Test/Images").mkdir(parents=True)
    for number in range(2):
        Image.fromarray(COLOUR[number]).save(root / f"Final_Test/Images/{number:05d}.ppm")
        rows.append(f"{number:05d}.ppm;32;32;0;0;31;31;{7 + number}")
    (folder / "gtsrb/GT-final_test.csv").write_text("\n".join(rows) + "\n")


def test_gtsrb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gtsrb(tmp_path / "made")
    files = sorted(path for path in (tmp_path / "made/gtsrb").rglob("*") if path.is_file())
    published = []
    for archive in web.archives("gtsrb"):
        buffer, name = io.BytesIO(), Path(archive.file).name
        with ZipFile(buffer, "w") as packed:
            for path in files:
                part = "Training" if "Training" in str(path) else "Images" if path.suffix == ".ppm" else "GT.zip"
                if part in name:
                    packed.write(path, path.relative_to(tmp_path / "made/gtsrb"))
        digest = put(tmp_path / "site", name, buffer.getvalue())
        published.append(Archive(archive.file, ((tmp_path / "site" / name).as_uri(),), f"md5:{digest}"))
    monkeypatch.setitem(web.ARCHIVES, "gtsrb", published)
    # torchvision writes the published sums into its code; ours are checked by then.
    monkeypatch.setattr(tv.utils, "check_integrity", lambda path, md5=None: Path(path).is_file())
    found = web.download("gtsrb", None, Form(size=32), tmp_path / "cache")
    assert found.parts["train"].images.shape == (6, 3, 32, 32)
    assert found.parts["train"].labels.tolist() == sorted(LABELS)
    assert np.array_equal(found.parts["test"].images.numpy(), COLOUR[:2].transpose(0, 3, 1, 2))
    assert found.parts["test"].labels.tolist() == [7, 8]
    assert len(found.classes) == 43


def test_tiny_imagenet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer, site, top = io.BytesIO(), tmp_path / "site", "tiny-imagenet-200"
    with ZipFile(buffer, "w") as archive:
        archive.writestr(f"{top}/wnids.txt", "n02\nn01\n")
        archive.writestr(f"{top}/words.txt", "n00\tentity\nn01\tgoldfish, carp\nn02\tnewt\n")
        for wnid, rows in (("n01", (0, 1)), ("n02", (2,))):
            for row in rows:
                archive.writestr(f"{top}/train/{wnid}/images/{wnid}_{row}.JPEG", encoded(COLOUR[row]))
        archive.writestr(f"{top}/train/n01/n01_boxes.txt", "")
        archive.writestr(f"{top}/val/images/val_0.JPEG", encoded(COLOUR[5, :, :, 0]))
        archive.writestr(f"{top}/val/val_annotations.txt", "val_0.JPEG\tn02\t0\t0\t9\t9\n")
    digest = put(site, "tiny-imagenet-200.zip", buffer.getvalue())
    published = Archive("tiny-imagenet-200.zip", ((site / "tiny-imagenet-200.zip").as_uri(),), f"md5:{digest}")
    monkeypatch.setitem(web.ARCHIVES, "tiny_imagenet", [published])
    found = web.download("tiny_imagenet", None, Form(channels=3), tmp_path / "cache")
    assert found.classes == ("n01 goldfish, carp", "n02 newt")
    assert np.array_equal(found.parts["train"].images.numpy(), COLOUR[:3].transpose(0, 3, 1, 2))
    assert found.parts["train"].labels.tolist() == [0, 0, 1]
    assert found.parts["test"].images.shape == (1, 3, 32, 32)
    assert found.parts["test"].labels.tolist() == [1]


DOMAINS = ("photo", "art_painting", "cartoon", "sketch")


def test_pacs_from_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{"image": {"bytes": encoded(COLOUR[row]), "path": "x.png"}, "domain": domain, "label": label}
            for row, (domain, label) in enumerate([("sketch", 6), ("photo", 1), ("cartoon", 0), ("art_painting", 2),
                                                   ("photo", 5)])]  # fmt: skip
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    put(tmp_path / "site", "pacs.parquet", buffer.getvalue())
    published = Archive("pacs.parquet", ((tmp_path / "site/pacs.parquet").as_uri(),), f"sha256:{digest}")
    monkeypatch.setitem(web.ARCHIVES, "pacs", [published])
    found = web.download("pacs", None, Form(), tmp_path / "cache")
    whole = found.parts["train"]
    assert found.domains == DOMAINS
    assert whole.domains is not None
    assert whole.domains.tolist() == [0, 0, 1, 2, 3]
    assert whole.labels.tolist() == [1, 5, 2, 0, 6]
    assert np.array_equal(whole.images.numpy(), COLOUR[[1, 4, 3, 2, 0]].transpose(0, 3, 1, 2))


def test_pacs_from_folders(tmp_path: Path) -> None:
    for number, domain in enumerate(DOMAINS):
        for name in web.PACS_CLASSES:
            path = tmp_path / domain / name / "pic_001.png"
            path.parent.mkdir(parents=True)
            path.write_bytes(encoded(COLOUR[number, :, :, 0] if domain == "sketch" else COLOUR[number]))
    found = web.unpacked("pacs", None, Form(size=16), tmp_path)
    assert found.parts["train"].images.shape == (28, 3, 16, 16)
    assert found.parts["train"].labels.tolist() == list(range(7)) * 4


def test_every_source_has_addresses_and_checksums() -> None:
    for source in [*web.SETS, *web.ARCHIVES]:
        published = web.archives(source)
        assert published
        for archive in published:
            algorithm, digest = archive.checksum.split(":")
            assert len(digest) == {"md5": 32, "sha256": 64}[algorithm]
            assert all(url.startswith(("http://", "https://")) for url in archive.urls)


def test_a_cut_archive_is_fetched_again_and_a_left_folder_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cifar(tv.CIFAR10, tmp_path / "site", monkeypatch)
    folder = tmp_path / "cache/cifar10"
    left = folder / ".unpacked/cifar-10-batches-py"
    left.mkdir(parents=True)
    (left / "one").write_bytes(b"half")
    (folder / "cifar-10-python.tar.gz").write_bytes((tmp_path / "site/cifar-10-python.tar.gz").read_bytes()[:1000])
    check(web.download("cifar10", None, Form(), tmp_path / "cache"), COLOUR.transpose(0, 3, 1, 2))
    assert not (folder / ".unpacked").exists()


@pytest.mark.parametrize("source", ["mnist", "usps", "svhn", "cifar10", "stl10", "gtsrb", "tiny_imagenet", "pacs"])
def test_a_folder_without_the_set_is_named(source: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^path: .* does not hold {source}"):
        web.unpacked(source, None, Form(), tmp_path)
    with pytest.raises(ConfigError, match=r"^path: .*absent is no folder"):
        web.unpacked(source, None, Form(), tmp_path / "absent")


def test_a_folder_of_torchvision_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mnist(tv.MNIST, tmp_path / "site", monkeypatch)
    shutil.copytree(tmp_path / "site", tmp_path / "root/MNIST/raw")
    tv.MNIST(str(tmp_path / "root"), download=True)  # unpacks what it finds
    check(web.unpacked("mnist", None, Form(), tmp_path / "root"), GREY[:, None])


def test_without_web_the_address_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tv.CIFAR10, "url", "http://127.0.0.1:9/cifar.tar.gz")
    with pytest.raises(FetchError, match=r"cifar-10-python.tar.gz .*http://127.0.0.1:9/cifar.tar.gz"):
        web.download("cifar10", None, Form(), tmp_path)
