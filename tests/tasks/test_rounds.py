"""The federate stage: what it refuses before a round is played, and going on where it stopped."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from mlflow.tracking import MlflowClient

from fedcore import checkpoint
from fedcore.config import ConfigError
from tasks import datasets, encoders, partitions, rounds, tracking

STUDY = """
study: trial
seed: 0
datasets:
  small: {source: digits}
  large: {source: digits, size: 12}
partitions:
  even: {dataset: small, scheme: iid, clients: 3}
encoders:
  random: {algorithm: random, dataset: small, net_options: {width: 4, features: 16}}
  other: {algorithm: simclr, dataset: large, epochs: 1, batch_size: 512}
hardware: {checkpoint_seconds: 0, executor: sequential}
runs:
  plain: {method: fedavg, partition: even, encoder: random, rounds: 1}
  twice: {method: fedavg, partition: even, encoder: random, rounds: 3, seeds: [0, 1]}
  dropping: {method: fedavg, partition: even, encoder: random, rounds: 4, participation: 0.67, dropout: 0.4}
  larger: {method: fedavg, partition: even, encoder: other, rounds: 1}
"""


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    Path("params.yaml").write_text(STUDY)
    datasets.download.fn("small")
    encoders.pretrain.fn("random")


def damaged(kind: str, folder: Path) -> None:
    """What a failing disk may leave of a checkpoint."""
    history, report = folder / "history.jsonl", folder / "report.safetensors"
    if kind == "history lost":
        history.unlink()
    elif kind == "history cut":
        history.write_text(history.read_text()[:-20])
    elif kind == "report cut":
        report.write_bytes(report.read_bytes()[:-20])
    else:
        report.write_bytes(b"\0" * 100)


@pytest.mark.parametrize("kind", ["history lost", "history cut", "report cut", "report zeros", "nothing"])
def test_a_stopped_run_goes_on_and_one_whose_checkpoint_is_damaged_starts_afresh(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Seed 0 was finished and seed 1 not; in the end all numbers are there, and seed 0 has one registered model."""
    partitions.partition.fn("even")
    whole = Path(shutil.copytree(".", "../whole"))
    with monkeypatch.context() as elsewhere:
        elsewhere.chdir(whole)
        rounds.federate.fn("twice")
    monkeypatch.delenv("MLFLOW_TRACKING_URI")  # MLflow has set it to where it is
    save = checkpoint.save

    def stop_in_the_end(tree: object, path: Path) -> None:
        save(tree, path)
        if path.parent.name == "seed1" and tree.round == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(checkpoint, "save", stop_in_the_end)
        with pytest.raises(KeyboardInterrupt):
            rounds.federate.fn("twice")
    (unfinished,) = Path(".fedcore/checkpoints/federated").iterdir()
    if kind != "nothing":
        damaged(kind, unfinished / "seed1")
    rounds.federate.fn("twice")
    assert ("the seed starts afresh" in caplog.text) == (kind != "nothing")
    for made in ("results/twice/clients.parquet", "models/federated/twice/seed1/global.safetensors"):
        assert Path(made).read_bytes() == Path(whole, made).read_bytes()
    client = MlflowClient(tracking.uri())
    assert len(client.search_model_versions("name = 'trial-twice-global'")) == 2
    for run in client.search_runs([client.get_experiment_by_name("trial").experiment_id]):
        told = [m.step for m in client.get_metric_history(run.info.run_id, "accuracy_client_mean")]
        assert told == ([0, 1, 2] if "seed" in run.info.run_name else [2])


def test_bytes_of_a_client_round_are_of_those_who_played() -> None:
    """FedAvg sends the model down and up, whoever drops out."""
    partitions.partition.fn("even")
    rounds.federate.fn("dropping")
    cost = json.loads(Path("results/dropping/run.json").read_text())["cost"]
    told = 4 + 8  # the loss and the number of steps
    assert cost["measured_bytes_per_client_round"] == cost["paper_bytes_per_client_round"] + told


def refused(run: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        rounds.federate.fn(run)
    assert not Path("results").exists()
    assert not Path("models/federated").exists()


def test_a_run_that_is_not_there() -> None:
    refused("none", r"^runs\.none: not defined; known: plain, twice, dropping, larger")


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
