"""Federated runs: read what a run needs, play the rounds of every seed, and go on where a killed process stopped."""

import json
import logging
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from prefect import task

from fedcore import checkpoint, engine, metrics
from fedcore.cohort import seed_of
from fedcore.config import ConfigError
from fedcore.data import partition as partitioning
from fedcore.data.shards import Dataset, Shard, pooled
from fedcore.engine import Report
from fedcore.executors import seed_everything
from fedcore.model import Predictor
from tasks import encoders, layout, partitions, progress, publish, results, study, tracking, versioning
from tasks.results import Play, Scene

log = logging.getLogger("fedcore")

HISTORY = "history.jsonl"
REPORT = "report.safetensors"
TOLD = "told"  # there once the tracker has all of a seed


@task(task_run_name="federate-{name}", tags={study.GPU})
def federate(name: str) -> Path:
    """Play all seeds of the run `name` and write models/federated, models/encoders and results under its name.

    Raises ConfigError for a run that is not there or does not fit its encoder, FileNotFoundError if a stage before it
    has not been run. The same command goes on from the last checkpoint of a run that was killed.
    """
    scene = prepare(name)
    causes = scene.study.raw["runs"][name], scene.run.seeds, scene.partition["fingerprint"], scene.encoder
    folder = publish.unfinished("federated", name, *causes)
    plays = []
    experiment, settings, tags = scene.study.study, scene.study.raw["runs"][name], _tags(scene)
    with tracking.run(experiment, name, params=settings, tags=tags, unfinished=folder) as parent:
        for seed in scene.run.seeds:
            own, place = {**settings, "seed": seed}, folder / f"seed{seed}"
            title = f"{name} seed {seed}"
            with tracking.run(experiment, title, params=own, tags=tags, unfinished=place, parent=parent) as tracked:
                plays.append(_play(scene, seed, place, tracked))
        results.write(scene, plays)
        parent.log_metrics(results.final(plays), step=scene.run.rounds - 1)
    shutil.rmtree(folder)
    return layout.result(name)


def prepare(name: str) -> Scene:
    """Read and check what the run `name` needs."""
    whole = study.load()
    if name not in whole.runs:
        raise ConfigError(f"runs.{name}: not defined; known: {', '.join(whole.runs)}")
    run = whole.runs[name]
    table, partition = partitions.read(run.partition)
    dataset = Dataset.open(layout.dataset(partition["dataset"]))
    encoder, _ = encoders.read(run.encoder, run.seeds[0])
    if encoder["algorithm"] != "random" and tuple(encoder["shape"]) != dataset.shape:
        raise ConfigError(
            f"runs.{name}.encoder: {run.encoder!r} takes images of {encoder['shape']}, partition {run.partition!r} has "
            f"{list(dataset.shape)} (channels, height, width); give both datasets the same size and channels"
        )
    shards = _arranged(partitioning.shards(dataset, table), run.pooling, partition["groups"])
    scene = Scene(name, whole, run, run.build(f"runs.{name}"), dataset, partition, encoder, shards)
    _check_labels(scene)
    return scene


def _check_labels(scene: Scene) -> None:
    bare = {shard.client: int((shard.train.labels() < 0).sum()) for shard in scene.shards}
    if scene.method.needs_labels and any(bare.values()):
        raise ConfigError(
            f"runs.{scene.name}.method: {scene.run.method} needs labels, and {sum(bare.values())} training images of "
            f"partition {scene.run.partition!r} have none; take another method, or a partition of labelled images"
        )


def _arranged(shards: list[Shard], pooling: str, groups: Sequence[int] | None) -> list[Shard]:
    """Clients as they are, or their images pooled: CP-CFL's Centralized 1 (all) and 2 (each true group)."""
    if pooling == "all":
        return [pooled(shards)]
    if pooling == "groups" and groups is not None:
        return [pooled([s for s in shards if groups[s.client] == group], group) for group in sorted(set(groups))]
    return shards


def _play(scene: Scene, seed: int, folder: Path, tracked: tracking.Log) -> Play:
    task = scene.task(seed)
    method = replace(scene.method, task=task)
    seed_everything(seed_of(seed, "model"))
    x = task.init()
    end, history = _resumed(folder)
    for row in history:
        tracked.log_metrics(row["metrics"], step=row["round"])  # those that a kill kept from the tracker
    reports = engine.federate(
        method, x, scene.shards, scene.run, seed=seed,
        pool=scene.study.hardware.pool(), global_test=scene.global_test(), resume=end,
    )  # fmt: skip
    saved = time.monotonic()
    with (folder / HISTORY).open("w") as file:
        file.writelines(json.dumps(row) + "\n" for row in history)
        for end in progress.watched(reports, f"{scene.name} seed {seed}", done=len(history), total=scene.run.rounds):
            history.append(_row(scene, end, history[-1]["metrics"]["bytes_total"] if history else 0))
            file.write(json.dumps(history[-1]) + "\n")
            file.flush()
            tracked.log_metrics(history[-1]["metrics"], step=end.round)
            last = end.round + 1 == scene.run.rounds
            if last or time.monotonic() - saved > scene.study.hardware.checkpoint_seconds:
                checkpoint.save(end, folder / REPORT)
                saved = time.monotonic()
                log.info("%s seed %d: %d of %d rounds%s", scene.name, seed, len(history), scene.run.rounds, _told(end))
    assert end is not None
    play = Play(seed, task, end, *results.frames(seed, history))
    if not (folder / TOLD).exists():
        tracked.log_table(play.clients, "clients.parquet")
        example = scene.shards[0].test.images()[:2]
        for model, params in method.models(end.server).items():
            tracked.log_model(Predictor(task, params), example, f"{scene.study.study}-{scene.name}-{model}")
        (folder / TOLD).touch()
    return play


def _told(end: Report) -> str:
    told = end.metrics.get("accuracy_client_mean")
    return "" if told is None else f", accuracy {told:.3f} in the mean over clients"


def _resumed(folder: Path) -> tuple[Report | None, list[dict[str, Any]]]:
    """The last checkpoint and the rows of the rounds up to it; neither where one of them is lost or not whole.

    What a killed process wrote after its checkpoint is cut off.
    """
    if not (folder / REPORT).exists():
        return None, []
    try:
        end: Report = checkpoint.load(folder / REPORT)
        rows = [json.loads(line) for line in (folder / HISTORY).read_text().splitlines()[: end.round + 1]]
        if [row["round"] for row in rows] != list(range(end.round + 1)):
            raise ValueError(f"{folder / HISTORY}: not all of {end.round + 1} rounds are there")
    except (OSError, ValueError) as error:
        log.warning("%s; the seed starts afresh", error)
        (folder / TOLD).unlink(missing_ok=True)
        return None, []
    return end, rows


def _row(scene: Scene, report: Report, bytes_before: float) -> dict[str, Any]:
    numbers = dict(report.metrics)
    numbers["bytes_total"] = bytes_before + numbers["bytes_down"] + numbers["bytes_up"]
    groups, choice = scene.partition["groups"], report.per_client.get("cluster")
    if groups is not None and choice and scene.run.pooling == "none":
        true = torch.tensor([groups[client] for client in choice])
        numbers["cluster_recovery"] = metrics.recovery(torch.tensor([int(n) for n in choice.values()]), true)
    return {"round": report.round, "metrics": numbers, "per_client": report.per_client}


def _tags(scene: Scene) -> dict[str, str]:
    return {
        "kind": "run",
        "method": scene.run.method,
        "partition": scene.partition["fingerprint"],
        "encoder": scene.encoder["fingerprint"],
        "executor": type(scene.study.hardware.pool()).__name__,
        **versioning.tags(
            {"partition": layout.partition(scene.run.partition), "encoder": layout.encoder(scene.run.encoder)}
        ),
    }
