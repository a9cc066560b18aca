"""Partitions on disk: a table of who holds what, a json of what made it, a picture of it."""

import json
import logging
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from prefect import task

from fedcore.config import ConfigError
from fedcore.data.partition import SPLITS, IntArray, Scheme, fingerprint, holdings, spec, summary
from fedcore.data.shards import Dataset
from tasks import layout, publish, study

log = logging.getLogger("fedcore")

SHADES = {"train": "#1f4e79", "validation": "#e09f3e", "test": "#a9c4dc"}
INK = "#333333"
BLUES = LinearSegmentedColormap.from_list("holdings", ["#dceaf5", "#7fb2d6", "#17456f"])


@task(task_run_name="partition-{name}")
def partition(name: str) -> str:
    """Divide the dataset of the partition node `name` over its clients: write data/partitions/<name>, returned.

    Raises ConfigError that names the setting if the node is not there or asks for what the dataset does not have,
    FileNotFoundError if the dataset has not been downloaded. Nothing is written then.
    """
    schemes = study.load().partitions
    if name not in schemes:
        raise ConfigError(f"partitions.{name}: not defined in {layout.params()}; known: {', '.join(schemes)}")
    scheme = schemes[name]
    raw = layout.dataset(scheme.dataset)
    if not (raw / "dataset.json").is_file():
        raise FileNotFoundError(f"{raw}: not there; run python -m flows.download {scheme.dataset} first")
    dataset = Dataset.open(raw)
    train, test = (dataset.splits[split].labels.numpy() for split in ("train", "test"))
    try:
        table = scheme.split(train, test)
    except ValueError as error:
        raise ConfigError(f"partitions.{name}.{error}") from error
    facts = _facts(scheme, dataset, table, summary(scheme, table, train, test))
    with publish.replacing(layout.partition(name)) as folder:
        pq.write_table(pa.Table.from_pandas(table, preserve_index=False), folder / "table.parquet", compression="zstd")
        (folder / "partition.json").write_text(json.dumps(facts, indent=2) + "\n")
        drawing = picture(name, table, facts, train, dataset.classes)
        drawing.savefig(folder / "holdings.png", dpi=150, metadata={"Software": None})
    left = facts["summary"]["left_over"]["train"]
    log.info("%s: %d clients, %d training images left over", name, scheme.clients, left)
    return str(layout.partition(name))


def read(name: str) -> tuple[pd.DataFrame, dict[str, Any]]:
    """The table and the json of a partition. Raises FileNotFoundError if it has not been made."""
    folder = layout.partition(name)
    if not (folder / "partition.json").is_file():
        raise FileNotFoundError(f"{folder}: not there; run python -m flows.partition {name} first")
    table = pd.read_parquet(folder / "table.parquet")
    # Parquet forgets the categories that no row has.
    table["split"] = table["split"].cat.set_categories(list(SPLITS))
    return table, json.loads((folder / "partition.json").read_text())


def _facts(scheme: Scheme, dataset: Dataset, table: pd.DataFrame, numbers: dict[str, Any]) -> dict[str, Any]:
    return {
        "dataset": scheme.dataset,
        "dataset_fingerprint": dataset.fingerprint,
        "spec": spec(scheme),
        "fingerprint": fingerprint(scheme, dataset.fingerprint, table),
        "clients": scheme.clients,
        "groups": scheme.true_groups(),
        "summary": numbers,
    }


def picture(name: str, table: pd.DataFrame, facts: dict[str, Any], train: IntArray, classes: tuple[str, ...]) -> Figure:
    """Who holds what: images of each class at each client, and above them the clients' sizes; labels train (N,)."""
    clients, names = facts["clients"], [*classes]
    own = table[table["split"] != "test"]
    if (train[own["index"]] < 0).any():
        train, names = np.where(train < 0, len(classes), train), [*names, "unlabelled"]
    counts = holdings(own, train, clients, len(names)).T
    width, height = float(np.clip(2.6 + 0.16 * clients, 6.5, 15)), float(np.clip(0.27 * len(names), 1.2, 9))
    figure = Figure(figsize=(width, height + 2.6), layout="constrained")
    sizes, held = figure.subplots(2, 1, sharex=True, height_ratios=[1.3, height])
    _draw_sizes(sizes, table, clients)
    _draw_counts(held, counts, names)
    for border in np.flatnonzero(np.diff(facts["groups"] or [])):
        for axes in (sizes, held):
            axes.axvline(border + 0.5, color=INK, linewidth=0.9)
    numbers, node = facts["summary"], facts["spec"]
    figure.suptitle(f"Who holds what: {name}", x=0.01, ha="left", fontsize=13, color=INK, weight="bold")
    figure.legend(loc="upper right", frameon=False, fontsize=8, ncols=len(SPLITS), labelcolor=INK)
    sizes.set_title(
        f"{node['dataset']}, {node['scheme']}, {clients} clients, seed {node['seed']}\n"
        f"{len(own)} training images dealt, {numbers['left_over']['train']} left over; "
        f"label entropy {numbers['label_entropy_bits']:.2f} bits a client",
        loc="left", fontsize=9, color=INK,
    )  # fmt: skip
    return figure


def _draw_sizes(axes: Axes, table: pd.DataFrame, clients: int) -> None:
    base = np.zeros(clients)
    for split in SPLITS:
        sizes = np.bincount(table.loc[table["split"] == split, "client"], minlength=clients)
        if sizes.any():
            axes.bar(
                np.arange(clients), sizes, 0.82 if clients <= 120 else 1, bottom=base, color=SHADES[split], label=split
            )
        base = base + sizes
    axes.set_ylabel("images", fontsize=9, color=INK)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.tick_params(axis="x", length=0, labelbottom=False)
    axes.tick_params(axis="y", labelsize=8)


def _draw_counts(axes: Axes, counts: IntArray, names: list[str]) -> None:
    """A cell for each class and client; the numbers too where there is room. counts (classes, clients)."""
    rows, columns = counts.shape
    axes.set_facecolor("#f5f5f2")
    # The square root keeps a few images visible beside many; a cell without any stays bare.
    scale = PowerNorm(0.5, vmin=0, vmax=max(counts.max(), 1))
    cells = axes.pcolormesh(
        np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5, np.ma.masked_equal(counts, 0), cmap=BLUES, norm=scale,
        edgecolor="white", linewidth=0.6 if columns <= 120 else 0,
    )  # fmt: skip
    if columns <= 12 and rows <= 30:
        for (row, column), count in np.ndenumerate(counts):
            if count:
                shade = "white" if count > 0.3 * counts.max() else INK
                axes.text(column, row, str(count), ha="center", va="center", fontsize=8, color=shade)
    every = -(-rows // 34)
    axes.set_yticks(np.arange(0, rows, every), names[::every])
    axes.set_xlabel("client", fontsize=9, color=INK)
    axes.set_ylabel("class", fontsize=9, color=INK)
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5))
    axes.xaxis.set_major_locator(MaxNLocator(20, integer=True, min_n_ticks=1))
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    bar = axes.figure.colorbar(cells, ax=axes, pad=0.01, fraction=0.03, aspect=30)
    bar.set_label("training images (root scale)", fontsize=8, color=INK)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
