"""Tracked runs, in a real database: what a run is told, how it ends, how it is gone on with."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from fedcore.config import ConfigError
from tasks import tracking


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace whose database is made once, which takes seconds."""
    return tmp_path_factory.mktemp("tracked")


@pytest.fixture(autouse=True)
def workspace(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(home)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return home


@pytest.fixture
def begin(tmp_path: Path) -> Callable[..., object]:
    def begin(name: str = "run", **options: object) -> object:
        settings = {"params": {"fit": {"lr": 0.1}, "rounds": 3}, "tags": {"method": "m"}, "unfinished": tmp_path / name}
        return tracking.run("trial", name, **(settings | options))

    return begin


def told(run_id: str) -> Run:
    return MlflowClient(tracking.uri()).get_run(run_id)


def history(run_id: str, name: str) -> list[tuple[int, float]]:
    return [(m.step, m.value) for m in MlflowClient(tracking.uri()).get_metric_history(run_id, name)]


def test_a_run_has_flat_settings_tags_every_metric_and_its_parent(begin: Callable) -> None:
    with begin("parent") as parent, begin("child", parent=parent) as child:
        for step in range(1500):
            child.log_metrics({"loss": step / 2, "auroc": float("nan")}, step)
        child.log_table(pd.DataFrame({"client": [1, 2]}), "clients.parquet")
    run = told(child.run_id)
    assert (run.info.status, told(parent.run_id).info.status) == ("FINISHED", "FINISHED")
    assert run.data.params == {"fit.lr": "0.1", "rounds": "3"}
    assert run.data.tags["method"] == "m"
    assert run.data.tags["mlflow.parentRunId"] == parent.run_id
    assert history(child.run_id, "loss") == [(step, step / 2) for step in range(1500)]
    assert len(history(child.run_id, "auroc")) == 1500
    artifacts = Path.cwd() / "mlruns/artifacts" / child.run_id / "artifacts"
    assert pd.read_parquet(artifacts / "clients.parquet")["client"].tolist() == [1, 2]


@pytest.mark.parametrize(("error", "status"), [(ValueError, "FAILED"), (KeyboardInterrupt, "KILLED")])
def test_what_ends_a_run_is_its_status_and_its_numbers_are_kept(
    begin: Callable, error: type[BaseException], status: str
) -> None:
    with pytest.raises(error), begin() as log:  # noqa: PT012
        log.log_metrics({"loss": 1.0}, 0)
        raise error
    assert told(log.run_id).info.status == status
    assert history(log.run_id, "loss") == [(0, 1.0)]


def test_a_resumed_run_is_the_same_and_repeats_nothing(begin: Callable) -> None:
    with pytest.raises(ValueError), begin() as first:  # noqa: PT011, PT012
        for step in range(4):
            first.log_metrics({"loss": float(step)}, step)
        raise ValueError
    with begin() as second:
        for step in range(2, 6):  # from a checkpoint after step 1
            second.log_metrics({"loss": float(step), "late": 1.0}, step)
    assert second.run_id == first.run_id
    assert history(second.run_id, "loss") == [(step, float(step)) for step in range(6)]
    assert [step for step, _ in history(second.run_id, "late")] == [2, 3, 4, 5]
    assert told(second.run_id).info.status == "FINISHED"


def test_a_run_whose_process_was_killed_is_given_up_by_the_next(begin: Callable, home: Path) -> None:
    code = """
        import time
        from pathlib import Path
        from tasks import tracking
        with tracking.run("trial", "doomed", params={}, tags={}, unfinished=Path("doomed")) as log:
            print(log.run_id, flush=True)
            time.sleep(60)
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True)
    doomed = process.stdout.readline().strip()
    process.kill()
    process.wait()
    assert told(doomed).info.status == "RUNNING"
    with begin() as mine:
        assert told(doomed).info.status == "FAILED"
        assert told(mine.run_id).info.status == "RUNNING"


def test_what_was_deleted_in_mlflow_is_said_or_begun_anew(begin: Callable) -> None:
    with pytest.raises(ValueError), begin() as first:  # noqa: PT011
        raise ValueError
    client = MlflowClient(tracking.uri())
    client.delete_run(first.run_id)
    with begin() as second:
        second.log_metrics({"loss": 1.0}, 0)
    assert second.run_id != first.run_id
    experiment = client.get_experiment_by_name("trial").experiment_id
    client.delete_experiment(experiment)
    said = rf"^study: MLflow's experiment 'trial' is deleted; restore it with .* --experiment-id {experiment}"
    with pytest.raises(ConfigError, match=said), begin():
        pytest.fail("the block was entered")
    client.restore_experiment(experiment)


def test_a_tracker_that_does_not_answer_is_said_before_any_work(
    begin: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    began = time.monotonic()
    said = r"^MLFLOW_TRACKING_URI: http://127\.0\.0\.1:9 does not answer .*unset"
    with pytest.raises(ConfigError, match=said), begin():
        pytest.fail("the block was entered")
    assert time.monotonic() - began < 30


def test_a_server_that_goes_away_and_comes_back_loses_nothing(
    begin: Callable, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        port = door.getsockname()[1]
    flags = ["--port", str(port), "--backend-store-uri", tracking.uri(), "--workers", "1"]
    command = [sys.executable, "-m", "mlflow", "server", *flags]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setattr(tracking, "FLUSH_SECONDS", 0.0)
    server = _served(command, port)
    try:
        with begin() as log:
            log.log_metrics({"loss": 0.0}, 0)
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()
            log.log_metrics({"loss": 1.0}, 1)
            assert "does not answer, 1 numbers wait" in caplog.text
            server = _served(command, port)
            log.log_metrics({"loss": 2.0}, 2)
        assert history(log.run_id, "loss") == [(0, 0.0), (1, 1.0), (2, 2.0)]
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _served(command: list[str], port: int) -> subprocess.Popen[bytes]:
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    end = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return server
        except OSError:
            assert time.monotonic() < end
            assert server.poll() is None
            time.sleep(0.1)


def _first(name: str) -> None:
    with tracking.run("first", name, params={}, tags={}, unfinished=Path(name)) as log:
        log.log_metrics({"loss": 1.0}, 0)


def test_two_first_starts_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    starts = [multiprocessing.get_context("spawn").Process(target=_first, args=(name,)) for name in "ab"]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    assert [start.exitcode for start in starts] == [0, 0]
    client = MlflowClient(tracking.uri())
    experiment = client.get_experiment_by_name("first")
    assert {run.info.run_name for run in client.search_runs([experiment.experiment_id])} == {"a", "b"}
