from pathlib import Path

import numpy as np
import pytest

from fedcore.config import ConfigError
from fedcore.data.shards import Dataset
from tasks import datasets

STUDY = """
study: trial
seed: 0
datasets:
  small: {source: digits, size: 6, channels: 3}
  own: {source: npz, path: ~/own.npz, holdout: 0.5}
  far: {source: kmnist}
partitions: {}
encoders: {}
runs: {}
"""


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty workspace with a study of three datasets, a home of its own, and no mirror."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("FEDCORE_CACHE", raising=False)
    monkeypatch.delenv("FEDCORE_MIRROR", raising=False)
    Path("params.yaml").write_text(STUDY)
    return tmp_path


def test_download_writes_the_node(workspace: Path) -> None:
    folder = datasets.download.fn("small")
    assert folder == Path("data/raw/small")
    dataset = Dataset.open(folder)
    assert dataset.shape == (3, 6, 6)
    assert {split: len(part.labels) for split, part in dataset.splits.items()} == {"train": 1438, "test": 359}
    assert not (workspace / ".cache").exists()


def test_a_path_may_start_at_home(workspace: Path) -> None:
    np.savez(workspace / "own.npz", images=np.zeros((8, 4, 4), np.uint8), labels=np.arange(8) % 2)
    assert len(Dataset.open(datasets.download.fn("own")).splits["test"].labels) == 4


def test_an_unknown_node_is_named() -> None:
    with pytest.raises(ConfigError, match=r"^datasets\.other: not defined in params\.yaml; known: small, own, far"):
        datasets.download.fn("other")


def test_a_failure_writes_nothing(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDCORE_MIRROR", "~/nowhere")
    with pytest.raises(ConfigError, match=r"^datasets\.far\.mirror: .*nowhere/manifest\.json is missing"):
        datasets.download.fn("far")
    with pytest.raises(ConfigError, match=r"^datasets\.own\.path: .*own\.npz is no file"):
        datasets.download.fn("own")
    assert not Path("data").exists()


def test_places_come_from_the_environment(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert datasets.cache() == workspace / ".cache/fedcore/downloads"
    assert datasets.mirror() is None
    monkeypatch.setenv("FEDCORE_CACHE", "~/kept")
    monkeypatch.setenv("FEDCORE_MIRROR", "/images")
    assert datasets.cache() == workspace / "kept"
    assert datasets.mirror() == Path("/images")


@pytest.mark.mirror
def test_the_mirror_of_the_environment_is_read(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDCORE_MIRROR", str(mirror))
    Path("params.yaml").write_text(STUDY.replace("kmnist", "usps"))
    assert len(Dataset.open(datasets.download.fn("far")).splits["test"].labels) == 2007
