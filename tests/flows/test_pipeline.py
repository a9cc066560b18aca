"""A miniature study from download to report, with the real DVC, Prefect and MLflow."""

import json
import shutil
import sqlite3
import time
from pathlib import Path

import mlflow
import pandas as pd
import pytest
import torch
from mlflow import MlflowClient
from workspace import Workspace

from fedcore.data.shards import Dataset
from tasks import study

pytestmark = pytest.mark.slow

RUNS = ("fedavg", "ifca_fedavg", "cp_cfl")


@pytest.fixture
def client(played: Workspace) -> MlflowClient:
    uri = f"sqlite:///{played.root}/mlruns/mlflow.db"
    mlflow.set_tracking_uri(uri)
    return MlflowClient(uri)


def test_the_pipeline_ends_with_a_report_of_every_run(played: Workspace) -> None:
    told = (played.root / "pipeline.log").read_text()
    assert f"Report: {played.root}/report/index.html" in told
    page = (played.root / "report/index.html").read_text()
    numbers = json.loads((played.root / "report/metrics.json").read_text())
    assert set(numbers) == set(RUNS)
    for run in RUNS:
        assert run in page
        curves = pd.read_csv(played.root / "results" / run / "curves.csv")
        assert numbers[run]["accuracy_client_mean"] == pytest.approx(
            curves.groupby("seed").last()["accuracy_client_mean"].mean()
        )


def test_prefect_has_recorded_the_pipeline_and_every_stage(played: Workspace) -> None:
    database = sqlite3.connect(played.root / ".fedcore/prefect/prefect.db")
    runs = dict(database.execute("select name, state_type from flow_run"))
    stages = {"download-tiny", "partition-groups", "pretrain-random", "pretrain-simclr", "report"}
    assert set(runs) == {"pipeline", *stages, *(f"federate-{run}" for run in RUNS)}
    assert set(runs.values()) == {"COMPLETED"}


def test_mlflow_has_a_parent_for_each_run_and_a_child_for_each_seed(played: Workspace, client: MlflowClient) -> None:
    experiment = client.get_experiment_by_name("mini")
    found = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    seeds = {"fedavg seed 0", "fedavg seed 1", "ifca_fedavg seed 0", "cp_cfl seed 0"}
    assert set(found) == {*RUNS, *seeds, "encoder simclr"}
    assert {run.info.status for run in found.values()} == {"FINISHED"}
    child = found["fedavg seed 1"]
    assert child.data.tags["mlflow.parentRunId"] == found["fedavg"].info.run_id
    assert child.data.params["fit.lr"] == "0.1"
    assert child.data.params["seed"] == "1"
    facts = json.loads((played.root / "data/partitions/groups/partition.json").read_text())
    assert child.data.tags["partition"] == facts["fingerprint"]
    assert child.data.tags["dvc_partition"].endswith(".dir")
    curves = pd.read_csv(played.root / "results/fedavg/curves.csv").query("seed == 1")
    for name in curves.columns.difference(["seed", "round"]):
        history = client.get_metric_history(child.info.run_id, name)
        assert [metric.step for metric in history] == [0, 1, 2], name
        assert [metric.value for metric in history] == pytest.approx(curves[name].tolist(), nan_ok=True), name


def test_a_registered_model_predicts_as_the_run_did(played: Workspace, client: MlflowClient) -> None:
    test = Dataset.open(played.root / "data/raw/tiny").splits["test"]
    table = pd.read_parquet(played.root / "data/partitions/groups/table.parquet")
    last = pd.read_parquet(played.root / "results/fedavg/clients.parquet").query("seed == 1 and round == 2")
    model = mlflow.pytorch.load_model("models:/mini-fedavg-global/2")  # a version for each seed
    for client_id, rows in table[table["split"] == "test"].groupby("client"):
        index = torch.tensor(rows["index"].to_numpy())
        right = (model(test.images[index]).argmax(1) == test.labels[index]).float().mean()
        assert right.item() == pytest.approx(last.set_index("client")["accuracy"][client_id])
    names = {model.name for model in client.search_registered_models()}
    assert {"mini-cp_cfl-cluster0", "mini-cp_cfl-cluster1", "mini-ifca_fedavg-cluster0"} <= names


def test_a_run_from_a_run_takes_its_encoder(played: Workspace) -> None:
    facts = json.loads((played.root / "models/encoders/fedavg/encoder.json").read_text())
    assert facts["algorithm"] == "run"
    record = json.loads((played.root / "results/ifca_fedavg/run.json").read_text())
    assert record["encoder"] == "fedavg"


def test_again_everything_is_up_to_date_within_seconds(played: Workspace) -> None:
    began = time.monotonic()
    told = played.run("dvc", "repro")
    assert "Data and pipelines are up to date." in told
    assert "Running stage" not in told
    assert time.monotonic() - began < 15  # 3 s on an idle machine


def test_a_changed_setting_plays_that_run_again_and_the_report(copied: Workspace) -> None:
    before = copied.result("fedavg")
    copied.edit("num_clusters: 2, warmup_rounds: 1", "num_clusters: 2, warmup_rounds: 2")
    told = copied.run("dvc", "repro")
    ran = [line.split("'")[1] for line in told.splitlines() if line.startswith("Running stage")]
    assert ran == ["federate@cp_cfl", "report"]
    assert copied.result("fedavg") == before


def test_hardware_is_no_reason_to_play_again(copied: Workspace) -> None:
    copied.edit("hardware: {workers: 1}", "hardware: {workers: 2}")
    assert "Running stage" not in copied.run("dvc", "repro")


def test_dvc_shows_metrics_and_plots(played: Workspace) -> None:
    told = played.run("dvc", "metrics", "show", "--json")
    assert "accuracy_client_mean" in told
    played.run("dvc", "plots", "show", "--out", "plots")
    assert "<img" in (played.root / "plots/index.html").read_text()


def test_what_was_pushed_can_be_pulled(copied: Workspace, tmp_path: Path) -> None:
    kept = {run: copied.result(run) for run in (*RUNS, "simclr")}
    table = (copied.root / "data/partitions/groups/table.parquet").read_bytes()
    copied.run("dvc", "remote", "add", "--default", "store", str(tmp_path / "store"))
    copied.run("dvc", "push")
    for folder in ("data", "models", "results", "report", ".dvc/cache"):
        shutil.rmtree(copied.root / folder)
    copied.run("dvc", "pull")
    assert {run: copied.result(run) for run in (*RUNS, "simclr")} == kept
    assert (copied.root / "data/partitions/groups/table.parquet").read_bytes() == table
    assert "up to date" in copied.run("dvc", "status")


def test_an_experiment_plays_this_study_or_another(copied: Workspace) -> None:
    for setting in (("user.name", "x"), ("user.email", "x@y")):
        copied.run("git", "config", *setting)
    copied.run("git", "add", "--all")
    copied.run("git", "commit", "--quiet", "--message", "mini")
    experiment = ("dvc", "exp", "run", "partition@groups", "--set-param")
    copied.run(*experiment, "partitions.groups.counts=[12,7]", "--no-hydra")
    assert study.load(copied.root / "params.yaml").study == "mini"
    table = pd.read_parquet(copied.root / "data/partitions/groups/table.parquet")
    assert (table["split"] == "train").sum() == 4 * 19
    copied.run(*experiment, "study=tour")
    assert study.load(copied.root / "params.yaml").study == "tour"
