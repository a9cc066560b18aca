"""The tables of a report as CSV, with all digits, and as Markdown, as people read them."""

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from tasks.report_numbers import HEADLINE, Chapter, Page, Row, Stat

DASH = "–"
COLUMNS = {
    HEADLINE: "Client mean",
    "accuracy_weighted": "Weighted",
    "accuracy_pooled": "Pooled",
    "accuracy_global": "Global",
    "macro_f1_client_mean": "Macro F1",
    "auroc_client_mean": "AUROC",
}
QUARTILES = ("Worst", "Lower quartile", "Median", "Upper quartile", "Best")


def tables(page: Page) -> dict[str, str]:
    """Every table of a report: file name -> text."""
    clients = [row for chapter in page.chapters for row in _client_rows(chapter)]
    encoders = [_flat(encoder) for encoder in page.encoders]
    made: dict[str, tuple[list[dict[str, Any]], list[dict[str, str]]]] = {
        "methods": ([_numbers(*pair) for pair in page.rows()], [_words(*pair) for pair in page.rows()]),
        "clients": (clients, _client_summary(clients)),
        "encoders": (encoders, [_shown(row) for row in encoders]),
        "relevance": (page.relevance, [_shown(row) for row in page.relevance]),
        "milestones": _milestones(page),
        "sweeps": _sweeps(page),
        "surfaces": ([row for chapter in page.chapters for row in _surface_rows(chapter)], []),
    }
    texts = {}
    for name, (numbers, words) in made.items():
        if numbers:
            texts[f"{name}.csv"] = pd.DataFrame(numbers).to_csv(index=False, lineterminator="\n")
        if words:
            texts[f"{name}.md"] = markdown(words)
    return texts


def headline(page: Page) -> dict[str, dict[str, float]]:
    """The final numbers of every run, for `dvc metrics`; what was not measured is left out."""
    told = {}
    for _, row in page.rows():
        numbers: dict[str, float] = {"seeds": len(row.seeds), "rounds": row.rounds}
        for key in (*COLUMNS, "cluster_recovery"):
            numbers |= {key: row.stat(key).mean, f"{key}_std": row.stat(key).std}
        numbers |= {key: row.stat(key).mean for key in ("bytes_total", "seconds")}
        told[row.name] = {key: value for key, value in numbers.items() if math.isfinite(value)}
    return told


def _numbers(chapter: Chapter, row: Row) -> dict[str, Any]:
    named = {"run": row.name, "method": row.method, "encoder": row.encoder, "partition": chapter.name}
    told = {"pooled": row.pooled, "seeds": len(row.seeds), "rounds": row.rounds}
    numbers: dict[str, float] = {}
    for key in [*COLUMNS, *(key for key in row.stats if key not in COLUMNS)]:
        numbers |= {key: row.stat(key).mean, f"{key}_std": row.stat(key).std}
    return {**named, **told, **numbers, **_relative(row), **row.cost}


def _relative(row: Row) -> dict[str, float]:
    return {"bytes_relative_to_fedavg": row.relative_bytes, "seconds_relative_to_fedavg": row.relative_seconds}


def _words(chapter: Chapter, row: Row) -> dict[str, str]:
    return {
        "run": row.name,
        "method": row.method,
        "encoder": row.encoder,
        "partition": chapter.name,
        **{label: percent(row.stat(key)) for key, label in COLUMNS.items()},
        "Traffic": size(row.stat("bytes_total").mean),
        "× FedAvg": number(row.relative_bytes, 2),
        "Seconds": seconds(row.stat("seconds").mean),
        "× FedAvg's round": number(row.relative_seconds, 2),
        "Rounds": str(row.rounds),
        "Seeds": str(len(row.seeds)),
    }


def _client_rows(chapter: Chapter) -> list[dict[str, Any]]:
    return [
        {"partition": chapter.name, "run": row["name"], **client} for row in chapter.spread for client in row["clients"]
    ]


def _client_summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, str]]:
    """Quartiles of the clients' final accuracies, a row a run."""
    told = []
    for run in dict.fromkeys(row["run"] for row in rows):
        values = [row["accuracy"] for row in rows if row["run"] == run]
        marks = [percent(Stat(mark)) for mark in np.quantile(values, [0, 0.25, 0.5, 0.75, 1])]
        told.append({"run": run, "Clients": str(len(values)), **dict(zip(QUARTILES, marks, strict=True))})
    return told


def _milestones(page: Page) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """How soon each run gets somewhere; runs of partitions with other targets have other columns empty."""
    told = [chapter for chapter in page.chapters if chapter.milestones]
    targets = sorted({target for chapter in told for target in (chapter.milestones or {})["targets"]})
    numbers, words = [], []
    for chapter in told:
        assert chapter.milestones is not None
        for row in chapter.milestones["rows"]:
            reached = dict(zip(chapter.milestones["targets"], row["reached"], strict=True))
            named, first = {"partition": chapter.name, "run": row["name"]}, row["first"]
            rounds = {f"rounds_to_{target:g}": reached.get(target) for target in targets}
            numbers.append({**named, "after_round_1": first.mean, "after_round_1_std": first.std, **rounds})
            shown = {f"Rounds to {100 * t:.0f} %": DASH if reached.get(t) is None else str(reached[t]) for t in targets}
            words.append({**named, "After round 1": percent(first), **shown})
    return numbers, words


def _sweeps(page: Page) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    numbers, words = [], []
    for sweep in page.sweeps:
        for series in sweep["series"]:
            for point in series["points"]:
                named = {"setting": sweep["setting"], "series": series["name"], "value": sweep["values"][point["at"]]}
                stat = point["stat"]
                numbers.append({**named, "run": point["run"], sweep["score"]: stat.mean, "std": stat.std, "n": stat.n})
                words.append({**named, "run": point["run"], COLUMNS[sweep["score"]]: percent(stat)})
    return numbers, words


def _surface_rows(chapter: Chapter) -> list[dict[str, Any]]:
    return [
        {"partition": chapter.name, "run": found["name"], "a": a, "b": b, "loss": loss}
        for found in chapter.surfaces
        for b, line in zip(found["b"], found["values"], strict=True)
        for a, loss in zip(found["a"], line, strict=True)
    ]


def _flat(encoder: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in encoder.items() if key != "curve"}


def _shown(row: dict[str, Any]) -> dict[str, str]:
    return {key: number(v, 3) if isinstance(v, float) or v is None else str(v) for key, v in row.items()}


def markdown(rows: Sequence[dict[str, str]]) -> str:
    """A table of rows that have the same keys; what Markdown would read as its own signs is escaped."""
    heads = list(rows[0])
    lines = [heads, ["---"] * len(heads), *([row[head] for head in heads] for row in rows)]
    return "".join("| " + " | ".join(_escaped(cell) for cell in line) + " |\n" for line in lines)


def _escaped(cell: str) -> str:
    return cell if cell == "---" else re.sub(r"([\\`*_|<>\[\]&])", r"\\\1", " ".join(cell.split()))


# Numbers as people read them; what is not known is a dash


def percent(stat: Stat, digits: int = 2) -> str:
    """93.12 ± 0.41, in per cent."""
    if not math.isfinite(stat.mean):
        return DASH
    spread = f" ± {100 * stat.std:.{digits}f}" if math.isfinite(stat.std) else ""
    return f"{100 * stat.mean:.{digits}f}{spread}"


def number(value: float | None, digits: int) -> str:
    return f"{value:.{digits}f}" if value is not None and math.isfinite(value) else DASH


def size(value: float | None) -> str:
    """Bytes with a decimal unit and three digits."""
    if value is None or not math.isfinite(value):
        return DASH
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 999.5 or unit == "TB":
            return f"{value:.{0 if unit == 'B' or value >= 99.95 else 1 if value >= 9.995 else 2}f} {unit}"
        value /= 1000
    raise AssertionError


def seconds(value: float) -> str:
    return DASH if not math.isfinite(value) else f"{value:.1f}" if value < 100 else f"{value:.0f}"
