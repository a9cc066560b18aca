"""One stage from the command line: what it says when it cannot, and going on after a kill."""

import contextlib
import os
import re
import signal
import time
from pathlib import Path

import psutil
import pytest
from workspace import Workspace, make

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("command", "said"), [
    (("flows.partition", "other"), r"error: partitions\.other: not defined in params\.yaml; known: groups"),
    (("flows.federate", "fedavg"), r"error: data/partitions/groups: not there; run python -m flows\.partition groups"),
])  # fmt: skip
def test_what_cannot_be_done_is_said_in_a_line(workspace: Workspace, command: tuple[str, str], said: str) -> None:
    told = workspace.run("python", "-m", *command, status=2)
    assert re.search(said, told.splitlines()[-1])
    assert not any((workspace.root / folder).exists() for folder in ("data", "models", "results"))


def test_an_unsound_study_is_refused_before_anything_starts(workspace: Workspace) -> None:
    workspace.edit("warmup_rounds: 1", "warmup_round: 1")
    for command in (("flows.pipeline",), ("flows.federate", "cp_cfl"), ("flows.report",)):
        told = workspace.run("python", "-m", *command, status=2)
        assert re.fullmatch(r"error: runs\.cp_cfl\.warmup_round: unknown; known: .*\n", told), told
    assert not (workspace.root / ".fedcore/prefect/servers").exists()


def test_composing_an_unknown_study_changes_nothing(workspace: Workspace) -> None:
    before = (workspace.root / "params.yaml").read_bytes()
    told = workspace.run("python", "-m", "flows.compose", "other", status=2)
    assert "error: study: 'other' is not in conf/study; known: " in told
    told = workspace.run("python", "-m", "flows.compose", "tour", "runs.fedavg.rounds=0", status=2)
    assert "error: runs.fedavg.rounds: 0; play at least one" in told
    assert (workspace.root / "params.yaml").read_bytes() == before
    workspace.run("python", "-m", "flows.compose", "tour", "runs.fedavg.rounds=7")
    assert "rounds: 7" in (workspace.root / "params.yaml").read_text()


def test_settings_of_the_command_that_cannot_work_are_said_in_a_line(workspace: Workspace) -> None:
    told = workspace.run("python", "-m", "flows.pipeline", "--jobs", "0", status=2)
    assert "error: jobs: 0 stages at once; run at least one" in told.splitlines()
    told = workspace.run("python", "-m", "flows.pipeline", "federate@x", status=2)
    assert re.search(r"^error: stages: 'federate@x' is not in dvc\.yaml; known: ", told, re.MULTILINE)


def test_without_a_prefect_server_a_stage_goes_on_and_the_rest_says_so(workspace: Workspace) -> None:
    gone = {"PREFECT_API_URL": "http://127.0.0.1:9/api"}
    said = "PREFECT_API_URL: http://127.0.0.1:9/api does not answer; start it, or unset the variable"
    assert f"{said}; going on without" in workspace.run("python", "-m", "flows.download", "tiny", **gone)
    assert (workspace.root / "data/raw/tiny/dataset.json").is_file()
    for module in ("flows.pipeline", "flows.deploy"):
        told = workspace.run("python", "-m", module, status=2, **gone)
        assert told.splitlines()[-1] == f"error: {said}"


def test_a_folder_that_is_no_workspace_stays_as_it_was(workspace: Workspace, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    elsewhere = Workspace(empty)
    for module in ("flows.pipeline", "flows.report", "flows.deploy"):
        told = elsewhere.run(
            "python", "-m", module, status=2, PYTHONPATH=str(workspace.root), HOME=str(tmp_path / "home")
        )
        assert told == "error: params.yaml: not found; run from the folder that holds it\n"
    assert not list(empty.iterdir())


def test_a_stage_that_fails_is_named_in_a_line_and_the_others_are_played(workspace: Workspace) -> None:
    workspace.edit("clients: 4,", "clients: 4000,")
    told = workspace.run("python", "-m", "flows.pipeline", status=1)
    assert re.fullmatch(r"error: failed: partition@groups; not begun: federate@\w+, .*report", told.splitlines()[-1])
    assert "error: partitions.groups." in told
    assert (workspace.root / "models/encoders/simclr/encoder.json").is_file()


def test_a_terminated_pipeline_takes_its_stages_along(workspace: Workspace) -> None:
    workspace.edit("epochs: 3, probe_every: 2", "epochs: 5000, probe_every: 5000")
    process = workspace.start("python", "-m", "flows.pipeline", "pretrain@simclr")
    log = workspace.root / "started.log"
    end = time.monotonic() + 200
    while not (stages := [p for p in psutil.Process(process.pid).children(recursive=True) if plays(p, "pretrain")]):
        assert time.monotonic() < end, log.read_text()[-3000:]
        time.sleep(0.1)
    time.sleep(5)
    process.terminate()
    assert process.wait(60) in (-signal.SIGTERM, 128 + signal.SIGTERM), log.read_text()[-3000:]
    _, alive = psutil.wait_procs(stages, 10)
    assert not alive


def plays(process: psutil.Process, kind: str) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):  # ended, or about to
        return f"flows.{kind}" in process.cmdline()
    return False


@pytest.mark.parametrize(("kind", "node"), [("pretrain", "simclr"), ("federate", "cp_cfl")])
def test_killed_in_the_middle_it_goes_on_bit_for_bit(played: Workspace, tmp_path: Path, kind: str, node: str) -> None:
    """The same study with a checkpoint after every epoch or round, killed, and started again."""
    whole, broken = make(tmp_path / "whole"), make(tmp_path / "broken")
    for workspace in (whole, broken):
        if kind == "pretrain":
            workspace.edit("epochs: 3, probe_every: 2", "epochs: 20, probe_every: 7")
        else:
            workspace.edit("rounds: 3, num_clusters: 2", "rounds: 40, num_clusters: 2")
        workspace.edit("{workers: 1}", "{workers: 1, checkpoint_seconds: 0.0}")
    ahead = f"{kind}@{node}"
    whole.run("python", "-m", "flows.pipeline", ahead)
    if kind == "federate":
        broken.run("python", "-m", "flows.pipeline", "pretrain@simclr", "partition@groups")
    process = broken.start("python", "-m", "flows.pipeline", ahead)
    saved = {"pretrain": "encoders/*/state.safetensors", "federate": "federated/*/*/report.safetensors"}[kind]
    end = time.monotonic() + 200
    while not list((broken.root / ".fedcore/checkpoints").glob(saved)):
        assert process.poll() is None, (broken.root / "started.log").read_text()[-3000:]
        assert time.monotonic() < end
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (broken.root / f"models/encoders/{node}/encoder.json").exists()
    told = broken.run("python", "-m", "flows.pipeline", ahead)
    assert "Running stage" in told
    assert broken.result(node) == whole.result(node)
    curve = {"pretrain": f"models/encoders/{node}/curve.csv", "federate": f"results/{node}/clients.parquet"}[kind]
    assert (broken.root / curve).read_bytes() == (whole.root / curve).read_bytes()
