"""What the federate stage refuses before a round is played."""

from pathlib import Path

import numpy as np
import pytest

from fedcore.config import ConfigError
from tasks import datasets, encoders, partitions, rounds

STUDY = """
study: trial
seed: 0
datasets:
  small: {source: digits}
  large: {source: digits, size: 12}
partitions:
  even: {dataset: small, scheme: iid, clients: 3}
encoders:
  random: {algorithm: random, dataset: small}
  other: {algorithm: simclr, dataset: large, epochs: 1, batch_size: 512}
runs:
  plain: {method: fedavg, partition: even, encoder: random, rounds: 1}
  larger: {method: fedavg, partition: even, encoder: other, rounds: 1}
"""


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    Path("params.yaml").write_text(STUDY)
    datasets.download.fn("small")
    encoders.pretrain.fn("random")


def refused(run: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        rounds.federate.fn(run)
    assert not Path("results").exists()
    assert not Path("models/federated").exists()


def test_a_run_that_is_not_there() -> None:
    refused("none", r"^runs\.none: not defined; known: plain, larger")


def test_images_without_labels_for_a_method_that_needs_them() -> None:
    labels = np.load("data/raw/small/train_labels.npy")
    labels[:7] = -1
    np.save("data/raw/small/train_labels.npy", labels)
    partitions.partition.fn("even")
    refused("plain", r"^runs\.plain\.method: fedavg needs labels, and 7 training images of partition 'even' have none;")


def test_an_encoder_for_images_of_another_shape() -> None:
    partitions.partition.fn("even")
    datasets.download.fn("large")
    encoders.pretrain.fn("other")
    refused(
        "larger", r"^runs\.larger\.encoder: 'other' takes images of \[1, 12, 12\], partition 'even' has \[1, 8, 8\]"
    )
