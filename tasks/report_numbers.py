"""The numbers of a report, from what the stages left behind; everything shown on the page or in a table is made here.

Rounds are counted from 1 here, as "rounds played"; the files count them from 0. A final number is that of the last
round. A spread over seeds is the sample standard deviation, so one seed has none (NaN).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch

from fedcore import metrics
from tasks.report_inputs import Division, Encoder, Inputs, Result
from tasks.report_sweeps import sweeps

NAN = float("nan")
HEADLINE, GLOBAL = "accuracy_client_mean", "accuracy_global"
LABELS = {
    "accuracy_client_mean": "Accuracy, mean over clients",
    "accuracy_weighted": "Accuracy, weighted by training size",
    "accuracy_pooled": "Accuracy, all local test images",
    "accuracy_global": "Accuracy, global test set",
    "macro_f1_client_mean": "Macro F1, mean over clients",
    "auroc_client_mean": "AUROC, mean over clients",
    "accuracy_client_std": "Standard deviation of accuracy among clients",
    "cluster_recovery": "Clients in their true group",
    "loss_client_mean": "Test loss, mean over clients",
    "train_loss": "Training loss",
}
SHARES = tuple(LABELS)[:8]  # shown in per cent
NOT_CURVES = ("seed", "round", "bytes_down", "bytes_up", "bytes_total", "seconds", "clients")
COST = ("measured_bytes_per_client_round", "paper_bytes_per_client_round")
STEPS, TARGETS = 20, 4  # of a whole; how many
MARKS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Stat(NamedTuple):
    """A number over seeds; what was not measured is NaN."""

    mean: float = NAN
    std: float = NAN
    n: int = 0


@dataclass(frozen=True)
class Row:
    """One line of the table of methods."""

    name: str
    method: str
    encoder: str
    pooled: bool
    colour: int  # place among the runs of its partition
    seeds: list[int]
    rounds: int
    stats: dict[str, Stat]
    finals: dict[int, float]  # seed -> final score
    relative_bytes: float  # total, as a multiple of FedAvg's on the same partition
    relative_seconds: float  # of a round, likewise
    cost: dict[str, Any]  # bytes a client exchanges in a round: measured, and by the paper's formula

    def stat(self, key: str) -> Stat:
        return self.stats.get(key, Stat())


@dataclass(frozen=True)
class Verdict:
    """Which method of a partition is best, and how sure that is."""

    kind: str  # none, alone, tie, one_seed, within or clear
    best: Row | None = None
    second: Row | None = None
    lead: float = NAN  # of best over second, between their means
    shared: int = 0  # seeds that both have
    wins: int = 0  # of those, how many the best method wins
    fedavg: Row | None = None  # the run that traffic is compared with, where it is neither of the two
    bound: Row | None = None  # the best run on pooled images, which is no federated method
    uneven: bool = False  # the runs have different numbers of rounds


@dataclass(frozen=True)
class Chapter:
    """Everything about the runs on one partition: only they can be compared."""

    name: str
    score: str  # the metric they are compared by
    about: str
    rows: list[Row]
    verdict: Verdict
    curves: dict[str, Any]
    silent: list[str]  # runs without a curve against bytes
    spread: list[dict[str, Any]]
    clusters: list[dict[str, Any]]
    holdings: dict[str, Any] | None
    maps: list[dict[str, Any]]
    milestones: dict[str, Any] | None
    surfaces: list[dict[str, Any]]

    @property
    def length(self) -> tuple[int, int] | None:
        """Rounds and seeds, where all runs have the same numbers of them."""
        found = {(row.rounds, len(row.seeds)) for row in self.rows}
        return found.pop() if len(found) == 1 else None


@dataclass(frozen=True)
class Page:
    study: str
    missing: list[str]
    chapters: list[Chapter]
    encoders: list[dict[str, Any]]
    relevance: list[dict[str, Any]]
    sweeps: list[dict[str, Any]]
    records: dict[str, dict[str, Any]] = field(repr=False)

    def rows(self) -> Iterator[tuple[Chapter, Row]]:
        for chapter in self.chapters:
            for row in chapter.rows:
                yield chapter, row


def page(inputs: Inputs) -> Page:
    """All numbers of a report."""
    partitions = dict.fromkeys(str(result.record["partition"]) for result in inputs.results)
    chapters = [_chapter(name, inputs) for name in partitions]
    return Page(
        study=inputs.study,
        missing=inputs.missing,
        chapters=chapters,
        encoders=[encoder_quality(encoder) for encoder in inputs.encoders],
        relevance=relevance(inputs),
        sweeps=_sweeps(inputs.results, chapters),
        records={result.name: result.record for result in inputs.results},
    )


def _chapter(name: str, inputs: Inputs) -> Chapter:
    results = [result for result in inputs.results if result.record["partition"] == name]
    division = inputs.divisions.get(name)
    groups = division.facts.get("groups") if division else None
    score = compared(results, groups)
    rows = _rows(results, score)
    keys = sorted(_curve_keys(results), key=lambda key: key != score)
    curves = [{"name": result.name, "pooled": result.pooled, **curve(result, keys)} for result in results]
    return Chapter(
        name=name,
        score=score,
        about=describe(division) if division else "",
        rows=rows,
        verdict=verdict(rows, score),
        curves={
            "metrics": [{"key": key, "label": LABELS.get(key, key), "share": key in SHARES} for key in keys],
            "runs": curves,
        },
        silent=_hush(curves),
        spread=[
            {"name": result.name, "pooled": result.pooled, "clients": client_accuracy(result, groups)}
            for result in results
        ],
        clusters=[found for result in results if (found := cluster_identity(result, groups))],
        holdings=holdings(division) if division else None,
        maps=[found for result in results if (found := feature_map(result, division))],
        milestones=milestones(results, score),
        surfaces=[surface(result) for result in results if result.surface is not None],
    )


def _sweeps(results: Sequence[Result], chapters: Sequence[Chapter]) -> list[dict[str, Any]]:
    """Sweeps with the final score of every run, the one that its partition's runs are compared by."""
    score = {row.name: chapter.score for chapter in chapters for row in chapter.rows}
    found = sweeps(results, lambda result: stat(ends(result).get(score[result.name], [])))
    return [{**sweep, "score": score[sweep["series"][0]["points"][0]["run"]]} for sweep in found]


def compared(results: Sequence[Result], groups: Sequence[int] | None) -> str:
    """The metric that says which run on a partition is best.

    Accuracy on the global test set where every federated run is scored on it and clients have no groups of their own;
    else the mean over clients, each on its own test images.
    """
    federated = [result for result in results if not result.pooled]
    everywhere = federated and all(_measured(result.curves, GLOBAL) for result in federated)
    return GLOBAL if everywhere and not groups else HEADLINE


def _curve_keys(results: Sequence[Result]) -> list[str]:
    """Known metrics in the order of LABELS, then what else the methods report."""
    found = dict.fromkeys(str(key) for result in results for key in result.curves if key not in NOT_CURVES)
    numeric = [key for key in found if any(_measured(result.curves, key) for result in results)]
    return [key for key in LABELS if key in numeric] + [key for key in numeric if key not in LABELS]


def _measured(table: pd.DataFrame, key: str) -> bool:
    return key in table and pd.api.types.is_numeric_dtype(table[key]) and bool(table[key].notna().any())


def describe(division: Division) -> str:
    """One line on how a dataset was divided."""
    facts, spec = division.facts, division.facts.get("spec") or {}
    parts = [f"{facts['dataset']} divided over {facts['clients']} client{'s' * (facts['clients'] != 1)}"]
    if "scheme" in spec:
        parts.append(f"scheme {spec['scheme']}")
    if facts.get("groups"):
        parts.append(f"{len(set(facts['groups']))} true groups")
    sizes = division.table[division.table["split"] == "train"].groupby("client").size()
    if len(sizes):
        low, high = sizes.min(), sizes.max()
        parts.append(f"{low if low == high else f'{low} to {high}'} training images each")
    return ", ".join(parts)


# Methods


def stat(values: Sequence[float] | pd.Series) -> Stat:
    """Mean and sample standard deviation of the numbers among `values` (n,)."""
    told = np.asarray(values, float)
    told = told[~np.isnan(told)]
    if not len(told):
        return Stat()
    return Stat(float(told.mean()), float(told.std(ddof=1)) if len(told) > 1 else NAN, len(told))


def ends(result: Result) -> pd.DataFrame:
    """The last round of every seed, a row a seed, but `seconds` as their sum over rounds."""
    curves = result.curves.sort_values("round", kind="stable")
    last = curves.groupby("seed").tail(1).set_index("seed").sort_index()
    if "seconds" in curves:
        last = last.assign(seconds=curves.groupby("seed")["seconds"].sum())
    return last.select_dtypes("number")


def _rows(results: Sequence[Result], score: str) -> list[Row]:
    finals = {result.name: ends(result) for result in results}
    base = next((r.name for r in results if r.record["method"] == "fedavg" and not r.pooled), None)
    bare = finals[base] if base is not None else pd.DataFrame()
    fedavg = stat(bare.get("bytes_total", [])).mean, _round_seconds(bare)
    return [_row(result, place, finals[result.name], score, *fedavg) for place, result in enumerate(results)]


def _round_seconds(last: pd.DataFrame) -> float:
    return stat(last["seconds"] / (last["round"] + 1)).mean if "seconds" in last else NAN


def _row(result: Result, place: int, last: pd.DataFrame, score: str, fedavg_bytes: float, fedavg_seconds: float) -> Row:
    # Images that were brought together are traffic too, which nobody metered.
    told = [key for key in last if not (result.pooled and str(key).startswith("bytes"))]
    stats = {str(key): stat(last[key]) for key in told if key != "round"}
    total = stats.get("bytes_total", Stat()).mean
    cost = result.record.get("cost") or {}
    seeds = last.index.astype(int).tolist()
    return Row(
        name=result.name,
        method=str(result.record["method"]),
        encoder=str(result.record.get("encoder") or ""),
        pooled=result.pooled,
        colour=place,
        seeds=seeds,
        rounds=int(last["round"].max()) + 1 if len(last) else 0,
        stats=stats,
        finals=dict(zip(seeds, last[score].tolist(), strict=True)) if score in last else {},
        relative_bytes=total / fedavg_bytes if fedavg_bytes else NAN,
        relative_seconds=_round_seconds(last) / fedavg_seconds if fedavg_seconds and not result.pooled else NAN,
        cost={} if result.pooled else {key: cost.get(key) for key in COST},
    )


def verdict(rows: Sequence[Row], score: str = HEADLINE) -> Verdict:
    """Compare final scores; a lead counts only beyond one standard deviation over seeds."""
    told = sorted((r for r in rows if r.stat(score).n), key=lambda r: -r.stat(score).mean)
    ranked, bounds = [r for r in told if not r.pooled], [r for r in told if r.pooled]
    bound = bounds[0] if bounds else None
    if not ranked:
        return Verdict("none", bound=bound)
    best = ranked[0]
    if len(ranked) == 1:
        return Verdict("alone", best, bound=bound)
    second = ranked[1]
    base = next((r for r in rows if r.method == "fedavg" and not r.pooled), None)
    lead = best.stat(score).mean - second.stat(score).mean
    leads = np.array([best.finals[seed] - second.finals[seed] for seed in best.finals if seed in second.finals])
    return Verdict(
        kind=_sureness(best, second, lead, score),
        best=best,
        second=second,
        lead=lead,
        shared=int((~np.isnan(leads)).sum()),
        wins=int((leads > 0).sum()),
        fedavg=base if base in ranked[2:] else None,
        bound=bound,
        uneven=len({r.rounds for r in ranked}) > 1,
    )


def _sureness(best: Row, second: Row, lead: float, score: str) -> str:
    stds = [row.stat(score).std for row in (best, second)]
    if lead == 0:
        return "tie"
    if np.isnan(stds).any():
        return "one_seed"
    return "clear" if lead > max(stds) else "within"


def curve(result: Result, keys: Sequence[str]) -> dict[str, Any]:
    """Mean and standard deviation over seeds by round: {"round": (R,), "bytes": (R,), "values": {key: {mean, std}}}."""
    present = [key for key in keys if _measured(result.curves, key)]
    by_round = result.curves.groupby("round")
    means, stds = by_round[present].mean(), by_round[present].std(ddof=1)
    metered = "bytes_total" in result.curves and not result.pooled
    return {
        "round": [int(r) + 1 for r in means.index],
        "bytes": by_round["bytes_total"].mean().tolist() if metered else None,
        "values": {k: {"mean": means[k].tolist(), "std": stds[k].tolist()} for k in present},
    }


def _hush(curves: Sequence[dict[str, Any]]) -> list[str]:
    """Take the bytes from curves that have next to none, which would be a vertical line, and name the runs without."""
    most = max((c["bytes"][-1] for c in curves if c["bytes"]), default=0)
    for one in curves:
        if one["bytes"] and one["bytes"][-1] < 1e-3 * most:
            one["bytes"] = None
    return [one["name"] for one in curves if one["bytes"] is None]


def milestones(results: Sequence[Result], score: str) -> dict[str, Any] | None:
    """How soon each run gets somewhere: its score after the first round, and rounds until the mean over seeds reaches.

    Targets are multiples of five per cent below the best. {"targets": (n,), "rows": [{"name", "first": Stat,
    "reached": (n,) rounds played or None}]}; None where nothing is measured.
    """
    measured = [result for result in results if _measured(result.curves, score)]
    means = {result.name: result.curves.groupby("round")[score].mean() for result in measured}
    best = max((mean.max() for mean in means.values()), default=0.0)
    targets = [k / STEPS for k in range(int(best * STEPS + 1e-9), 0, -1)[:TARGETS]][::-1]
    rows = []
    for result in measured:
        mean, first = means[result.name], result.curves[result.curves["round"] == 0]
        reached = [next((int(r) + 1 for r in mean.index[mean >= target]), None) for target in targets]
        rows.append({"name": result.name, "first": stat(first[score]), "reached": reached})
    return {"targets": targets, "rows": rows} if targets else None


def surface(result: Result) -> dict[str, Any]:
    """The loss around a run's model: values[i][j] at (a[j], b[i])."""
    assert result.surface is not None
    grid = result.surface.pivot(index="b", columns="a", values="loss")
    return {
        "name": result.name,
        "a": grid.columns.tolist(),
        "b": grid.index.tolist(),
        "values": grid.to_numpy().tolist(),
    }


# Clients


def last_round(result: Result) -> pd.DataFrame:
    """The rows of `clients` that belong to the last round of their seed."""
    clients = result.clients
    return clients[clients["round"] == clients.groupby("seed")["round"].transform("max")]


def client_accuracy(result: Result, groups: Sequence[int] | None) -> list[dict[str, Any]]:
    """Final accuracy of each client, mean over seeds; clients without test images are left out."""
    last = last_round(result)
    if "accuracy" not in last:
        return []
    mean = last.groupby("client", as_index=False)["accuracy"].mean().dropna()
    # The clients of pooled runs are pools, not clients of the partition.
    known = groups if groups and not result.pooled else None
    return [
        {"client": int(c), "accuracy": float(a), "group": known[int(c)] if known else None}
        for c, a in zip(mean["client"], mean["accuracy"], strict=True)
    ]


def cluster_identity(result: Result, groups: Sequence[int] | None) -> dict[str, Any] | None:
    """Which cluster each client trained in, by seed and round, numbered as the true groups they match best.

    The matching (Hungarian) is made once a seed, from every client's last known cluster. Without true groups clusters
    keep their numbers. Rows of cells are clients in `order`; a cell is a character of MARKS, "." where a client took
    no part. None for a run without clusters.
    """
    table = result.clients
    if "cluster" not in table or table["cluster"].isna().all() or result.pooled:
        return None
    table = table.dropna(subset="cluster").sort_values(["seed", "round", "client"])
    last = table.groupby(["seed", "client"])["cluster"].last()
    clients = sorted(int(c) for c in table["client"].unique())
    first = last[table["seed"].iloc[0]]
    order = sorted(clients, key=lambda c: (groups[c] if groups else first.get(c, -1), c))
    rounds = int(result.curves["round"].max()) + 1
    seeds = [_seed_cells(s, table[table["seed"] == s], last[s], order, rounds, groups) for s in table["seed"].unique()]
    return {
        "name": result.name,
        "order": order,
        "groups": [groups[c] for c in order] if groups else None,
        "rounds": rounds,
        "warmup": result.spec.get("warmup_rounds"),
        "seeds": seeds,
    }


def _seed_cells(
    seed: int, rows: pd.DataFrame, last: pd.Series, order: list[int], rounds: int, groups: Sequence[int] | None
) -> dict[str, Any]:
    names = _matched(last, groups) if groups else {}
    for cluster in sorted(rows["cluster"].unique()):
        names.setdefault(int(cluster), max([-1, *names.values()]) + 1 if groups else int(cluster))
    cells = np.full((len(order), rounds), ".")
    place = {client: row for row, client in enumerate(order)}
    for client, round, cluster in zip(rows["client"], rows["round"], rows["cluster"], strict=True):
        cells[place[int(client)], int(round)] = MARKS[names[int(cluster)] % len(MARKS)]
    found = [names[int(last[c])] == groups[c] for c in order if c in last.index] if groups else []
    recovered = float(np.mean(found)) if found else NAN
    return {"seed": int(seed), "cells": ["".join(line) for line in cells], "recovered": recovered}


def _matched(last: pd.Series, groups: Sequence[int]) -> dict[int, int]:
    true = torch.tensor([groups[int(client)] for client in last.index])
    return metrics.matching(torch.tensor(last.to_numpy(int)), true)


def holdings(division: Division) -> dict[str, Any]:
    """Images of each class at each client: counts (classes, clients) of the training and of the test images."""
    clients, known = int(division.facts["clients"]), len(division.classes)
    counts = {}
    for key, splits in (("train", ["train", "validation"]), ("test", ["test"])):
        rows = division.table[division.table["split"].isin(splits)]
        labels = division.labels[key][rows["index"]]
        counts[key] = np.zeros((known + 1, clients), int)
        np.add.at(counts[key], (np.where(labels < 0, known, labels), rows["client"]), 1)
    unlabelled = any(table[known].any() for table in counts.values())
    return {
        "classes": division.classes + ["unlabelled"] * unlabelled,
        "groups": division.facts.get("groups"),
        **{key: table[: known + unlabelled].tolist() for key, table in counts.items()},
    }


def feature_map(result: Result, division: Division | None) -> dict[str, Any] | None:
    """Images of two clients in the plane, a panel a client and one of both; each class's points as (x, y) in [0, 1].

    Panels share one scale, each axis its own. None for a run whose features were not kept.
    """
    table = result.features
    if table is None or not len(table):
        return None
    plane = table[["x", "y"]] - table[["x", "y"]].min()
    table = table.assign(**(plane / plane.max().clip(lower=1e-9)).round(3))
    names = division.classes if division else []
    labels = sorted(int(label) for label in table["label"].unique())

    def panel(title: str, rows: pd.DataFrame) -> dict[str, Any]:
        return {
            "title": title,
            "points": [rows.loc[rows["label"] == k, ["x", "y"]].to_numpy().tolist() for k in labels],
        }

    clients = [panel(f"client {client}", rows) for client, rows in table.groupby("client")]
    return {
        "name": result.name,
        "labels": labels,
        "classes": [names[k] if 0 <= k < len(names) else str(k) for k in labels],
        "panels": [*clients, panel("both", table)],
    }


# Encoders


def encoder_quality(encoder: Encoder) -> dict[str, Any]:
    """An encoder's facts, its final quality and its curve by epoch; the curve is None for one that was not trained."""
    facts, table = encoder.facts, encoder.curve
    quality = facts.get("quality") or {}
    keys = ("loss", "knn_accuracy", "linear_accuracy")
    return {
        "name": encoder.name,
        **{key: facts.get(key) for key in ("algorithm", "dataset", "net", "features")},
        "knn_accuracy": quality.get("knn_accuracy"),
        "linear_accuracy": quality.get("linear_accuracy"),
        "curve": None
        if table is None or not len(table)
        else {"epoch": table["epoch"].tolist(), **{key: table[key].tolist() for key in keys if key in table}},
    }


def relevance(inputs: Inputs) -> list[dict[str, Any]]:
    """How like the clients' images the pre-training images are, once for every encoder and partition."""
    trained_on = {encoder.name: encoder.facts.get("dataset") for encoder in inputs.encoders}
    found = {}
    for result in inputs.results:
        told = result.record.get("relevance") or {}
        encoder, partition = str(result.record.get("encoder") or ""), str(result.record["partition"])
        if told and (encoder, partition) not in found:
            division = inputs.divisions.get(partition)
            found[encoder, partition] = {
                "encoder": encoder,
                "from": trained_on.get(encoder),
                "partition": partition,
                "to": division.facts["dataset"] if division else None,
                "pixels": told.get("pixels"),
                "features": told.get("features"),
            }
    return list(found.values())
