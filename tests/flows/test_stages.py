"""One stage from the command line: what it says when it cannot, and going on after a kill."""

import os
import re
import signal
import time
from pathlib import Path

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
