"""The figures of a report as matplotlib draws them, for papers and slides; the page draws the same numbers itself."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from tasks.report_numbers import LABELS, MARKS, Chapter, Page

COLOURS = ("#1b66b0", "#d1495b", "#2a8f68", "#c97c08", "#7a4fa3", "#078799", "#8a5a44", "#667080")
DASHES = ("-", "--", ":", "-.")
# Other colours than the runs have, for true groups and the clusters that match them
HUES = ("#4f83bd", "#e3a356", "#64aa8a", "#ab7fb3", "#d3747c", "#6fb3c0", "#b3946b", "#98a1ab")
SHADES = (*COLOURS, *HUES)  # of classes
MOST_NAMED = 20
INK = "#22272e"
EMPTY = "#eef0f2"


def colour(place: int) -> str:
    return COLOURS[place % len(COLOURS)]


def dash(place: int) -> str:
    return DASHES[place // len(COLOURS) % len(DASHES)]


def draw(page: Page) -> dict[str, Figure]:
    """Every figure of a report by its file's stem."""
    figures: dict[str, Figure] = {}
    for chapter in page.chapters:
        figures |= _chapter(chapter)
    for found in page.sweeps:
        figures[f"sweep-{found['setting']}"] = sweep(found)
    trained = [encoder for encoder in page.encoders if encoder["curve"]]
    if trained:
        figures["encoders"] = encoders(trained)
    if page.relevance:
        figures["relevance"] = relevance(page.relevance)
    return figures


def _chapter(chapter: Chapter) -> dict[str, Figure]:
    figures = {}
    if any(chapter.score in run["values"] for run in chapter.curves["runs"]):
        figures[f"{chapter.name}-accuracy-rounds"] = accuracy(chapter, "round")
    if any(chapter.score in run["values"] and run["bytes"] for run in chapter.curves["runs"]):
        figures[f"{chapter.name}-accuracy-bytes"] = accuracy(chapter, "bytes")
    if chapter.holdings:
        figures[f"{chapter.name}-holdings"] = holdings(chapter)
    if any(row["clients"] for row in chapter.spread):
        figures[f"{chapter.name}-clients"] = spread(chapter)
    for found in chapter.clusters:
        figures[f"{chapter.name}-clusters-{found['name']}"] = clusters(found)
    for found in chapter.maps:
        figures[f"{chapter.name}-features-{found['name']}"] = features(found)
    if any("train_loss" in run["values"] for run in chapter.curves["runs"]):
        figures[f"{chapter.name}-training"] = training(chapter)
    if chapter.surfaces:
        figures[f"{chapter.name}-surfaces"] = surfaces(chapter.surfaces)
    return figures


def plain(text: str) -> str:
    """Text in which matplotlib sees no formula."""
    return text.replace("$", r"\$")


def _figure(width: float, height: float, title: str) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(plain(title), x=0.01, ha="left", fontsize=11, color=INK, weight="bold")
    return figure


def _tidy(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(plain(x), fontsize=9, color=INK)
    axes.set_ylabel(plain(y), fontsize=9, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=8, color=INK)
    axes.grid(axis="y", color="#e3e6e9", linewidth=0.7)
    axes.set_axisbelow(True)


def accuracy(chapter: Chapter, against: str) -> Figure:
    """The score against rounds or against bytes, with a band of one standard deviation over seeds."""
    figure = _figure(6.4, 4, f"{LABELS[chapter.score]}: {chapter.name}")
    axes = figure.subplots()
    for place, run in enumerate(chapter.curves["runs"]):
        if chapter.score not in run["values"] or run[against] is None:
            continue
        x, mean, std = (np.asarray(v, float) for v in (run[against], *run["values"][chapter.score].values()))
        told = ~np.isnan(mean)
        x, mean, std = x[told] / (1 if against == "round" else 1e6), mean[told], np.nan_to_num(std[told])
        mark = "o" if len(x) == 1 else None
        style = "--" if run["pooled"] else dash(place)
        axes.plot(x, mean, style, color=colour(place), label=plain(run["name"]), linewidth=1.7, marker=mark)
        axes.fill_between(x, mean - std, mean + std, color=colour(place), alpha=0.15, linewidth=0)
    _tidy(axes, "rounds played" if against == "round" else "megabytes exchanged, both ways, all clients", "accuracy")
    axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    if against == "round":
        axes.xaxis.set_major_locator(_whole())
    axes.legend(frameon=False, fontsize=8, labelcolor=INK, ncols=1 + len(chapter.rows) // 11)
    return figure


def training(chapter: Chapter) -> Figure:
    """Training loss, and the standard deviation of the score over seeds, by round: Fed-SHVR's Figure 4."""
    figure = _figure(9.6, 3.6, f"Training: {chapter.name}")
    left, right = figure.subplots(1, 2)
    for place, run in enumerate(chapter.curves["runs"]):
        for axes, key, what in ((left, "train_loss", "mean"), (right, chapter.score, "std")):
            values = np.asarray(run["values"].get(key, {}).get(what, []), float)
            told = np.flatnonzero(~np.isnan(values))
            if len(told):
                style = "--" if run["pooled"] else dash(place)
                x = np.asarray(run["round"])[told]
                axes.plot(x, values[told], style, color=colour(place), label=plain(run["name"]), linewidth=1.4)
    _tidy(left, "rounds played", "training loss, as each method defines it")
    _tidy(right, "rounds played", "standard deviation of accuracy over seeds")
    right.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    for axes in (left, right):
        axes.xaxis.set_major_locator(_whole())
    left.legend(frameon=False, fontsize=8, labelcolor=INK, ncols=1 + len(chapter.rows) // 11)
    return figure


def sweep(found: dict[str, Any]) -> Figure:
    """Final score by the values of one setting, a line for each family of runs that are alike but for it."""
    figure = _figure(6.4, 4, f"{LABELS[found['score']]} by {found['setting']}")
    axes = figure.subplots()
    for place, series in enumerate(found["series"]):
        at = [point["at"] for point in series["points"]]
        mean = [point["stat"].mean for point in series["points"]]
        std = np.nan_to_num([point["stat"].std for point in series["points"]])
        style = ("o" + dash(place)) if found["numeric"] else "o"
        axes.errorbar(
            at, mean, std, fmt=style, color=colour(place), label=plain(series["name"]), capsize=3, markersize=4
        )
    _tidy(axes, found["setting"], "accuracy after the last round")
    axes.set_xticks(range(len(found["values"])), [plain(value) for value in found["values"]])
    axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    return figure


def surfaces(found: Sequence[dict[str, Any]]) -> Figure:
    """The loss on a plane through each run's final model, on one scale."""
    columns = min(3, len(found))
    lines = -(-len(found) // columns)
    figure = _figure(0.8 + 3.2 * columns, 0.7 + 3.1 * lines, "Loss around the final model, both axes in filter lengths")
    grids = [np.maximum(np.asarray(one["values"], float), 1e-6) for one in found]
    levels = np.geomspace(min(grid.min() for grid in grids), max(grid.max() for grid in grids) * (1 + 1e-6), 25)
    places = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True).flat
    for axes, one, grid in zip(places, found, grids, strict=False):
        drawn = axes.contourf(one["a"], one["b"], grid, levels=levels, norm=LogNorm(), cmap="viridis")
        axes.plot(0, 0, "+", color="white")
        axes.set_title(plain(one["name"]), fontsize=9, loc="left", color=INK)
        axes.set_aspect("equal")
        axes.tick_params(labelsize=8)
    for axes in [*places]:
        axes.set_visible(False)
    bar = figure.colorbar(drawn, ax=figure.axes, pad=0.01, format="%.3g")
    bar.set_label("loss, logarithmic", fontsize=8, color=INK)
    return figure


def holdings(chapter: Chapter) -> Figure:
    """Training images of each class at each client; the root of the count keeps few visible beside many."""
    assert chapter.holdings is not None
    counts, names = np.array(chapter.holdings["train"]), chapter.holdings["classes"]
    rows, columns = counts.shape
    width, height = float(np.clip(3 + 0.1 * columns, 5, 14)), float(np.clip(1.4 + 0.24 * rows, 2.2, 9))
    figure = _figure(width, height, f"Who holds what: {chapter.name}")
    axes = figure.subplots()
    cells = axes.pcolormesh(
        np.ma.masked_equal(counts, 0), cmap="Blues", norm=PowerNorm(0.5, vmin=0, vmax=max(1, counts.max())),
        edgecolor="white", linewidth=0.5 if columns <= 120 else 0,
    )  # fmt: skip
    for border in np.flatnonzero(np.diff(chapter.holdings["groups"] or [])):
        axes.axvline(float(border + 1), color=INK, linewidth=0.9)
    _tidy(axes, "client", "class")
    axes.grid(visible=False)
    every = -(-rows // 34)
    axes.set_yticks(np.arange(0, rows, every) + 0.5, [plain(name) for name in names[::every]])
    _number_columns(axes, 0, columns)
    axes.invert_yaxis()
    bar = figure.colorbar(cells, ax=axes, pad=0.01, ticks=_whole())
    bar.set_label("training images, root scale", fontsize=8, color=INK)
    bar.ax.tick_params(labelsize=8)
    return figure


def _whole() -> MaxNLocator:
    return MaxNLocator(8, integer=True, steps=[1, 2, 5, 10])


def _number_columns(axes: Axes, first: int, columns: int) -> None:
    """Round numbers under the middles of columns that are counted from `first`."""
    last = first + columns - 1
    told = [int(n) for n in _whole().tick_values(first, last)]
    kept = [n for n in told if first <= n <= last]
    axes.set_xticks([n - first + 0.5 for n in kept], [str(n) for n in kept])


def clusters(found: dict[str, Any]) -> Figure:
    """Cluster of every client by round, a panel a seed; clusters carry the colour of the true group they match."""
    seeds, groups = found["seeds"], found["groups"]
    height = float(np.clip(1.2 + 0.05 * len(found["order"]), 2.4, 7))
    figure = _figure(1 + 3.2 * len(seeds), height, f"Cluster identity: {found['name']}")
    for axes, seed in zip(figure.subplots(1, len(seeds), squeeze=False)[0], seeds, strict=True):
        cells = np.array([[MARKS.find(mark) for mark in line] for line in seed["cells"]])
        shades = ListedColormap([HUES[place % len(HUES)] for place in range(len(MARKS))]).with_extremes(bad=EMPTY)
        axes.pcolormesh(np.ma.masked_less(cells, 0), cmap=shades, vmin=0, vmax=len(MARKS) - 1)
        for border in np.flatnonzero(np.diff(groups or [])):
            axes.axhline(border + 1, color="white", linewidth=1.4)
        ordered = "client, by true group" if groups else "client, by last cluster"
        _tidy(axes, "round", ordered if seed is seeds[0] else "")
        axes.grid(visible=False)
        axes.set_yticks([])
        _number_columns(axes, 1, found["rounds"])
        axes.invert_yaxis()
        axes.set_title(f"seed {seed['seed']}", fontsize=9, loc="left", color=INK)
    return figure


def spread(chapter: Chapter) -> Figure:
    """Final accuracy of every client: a box over quartiles, and all clients as dots."""
    rows = [(place, row) for place, row in enumerate(chapter.spread) if row["clients"]]
    figure = _figure(6.4, 1.2 + 0.42 * len(rows), f"Final accuracy of each client: {chapter.name}")
    axes = figure.subplots()
    for height, (place, row) in enumerate(rows):
        values = np.array([client["accuracy"] for client in row["clients"]])
        # Dots of one height would hide each other; the same shift for the same client keeps the file the same.
        shift = np.random.default_rng(0).uniform(-0.22, 0.22, len(values))
        axes.boxplot(
            [values], positions=[height], orientation="horizontal", widths=0.6, showfliers=False,
            medianprops={"color": INK}, boxprops={"color": "#9aa3ad"}, whiskerprops={"color": "#9aa3ad"},
            capprops={"color": "#9aa3ad"}, manage_ticks=False,
        )  # fmt: skip
        axes.scatter(values, height + shift, s=9, color=colour(place), alpha=0.7, linewidths=0, zorder=3)
    _tidy(axes, "accuracy on the client's own test images, mean over seeds", "")
    axes.grid(visible=False)
    axes.xaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    axes.set_yticks(range(len(rows)), [plain(row["name"]) for _, row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    return figure


def features(found: dict[str, Any]) -> Figure:
    """Images as the run's models represent them, a panel a client and one of both, a colour a class."""
    figure = _figure(9.6, 3.6, f"Features of test images: {found['name']}")
    for axes, panel in zip(figure.subplots(1, len(found["panels"]))[:], found["panels"], strict=True):
        for label, name, points in zip(found["labels"], found["classes"], panel["points"], strict=True):
            x, y = np.asarray(points, float).reshape(-1, 2).T
            axes.scatter(x, y, s=5, color=SHADES[label % len(SHADES)], linewidths=0, label=plain(name))
        axes.set(xlim=(-0.03, 1.03), ylim=(1.03, -0.03), xticks=[], yticks=[], aspect="equal")
        axes.spines[:].set_color("#e3e6e9")
        axes.set_title(panel["title"], fontsize=9, loc="left", color=INK)
    handles, names = axes.get_legend_handles_labels()
    figure.legend(
        handles[:MOST_NAMED], names[:MOST_NAMED], loc="outside right center", frameon=False, fontsize=8, markerscale=2,
    )  # fmt: skip
    return figure


def encoders(trained: Sequence[dict[str, Any]]) -> Figure:
    """Loss and quality of the encoders by epoch; losses of different algorithms have no common scale."""
    figure = _figure(9.6, 3.6, "Encoders as they train")
    left, right = figure.subplots(1, 2)
    for place, encoder in enumerate(trained):
        curve, shade, label = encoder["curve"], colour(place), plain(encoder["name"])
        loss = np.asarray(curve.get("loss", []), float)
        if np.isfinite(loss).any():
            low, high = np.nanmin(loss), np.nanmax(loss)
            left.plot(curve["epoch"], (loss - low) / ((high - low) or 1), color=shade, label=label)
        for key, style in (("knn_accuracy", "-"), ("linear_accuracy", "--")):
            values = np.asarray(curve.get(key, []), float)
            told = np.flatnonzero(~np.isnan(values))
            named = f"{label}, {'nearest neighbours' if style == '-' else 'linear probe'}"
            if len(told):
                right.plot(np.asarray(curve["epoch"])[told], values[told], style, color=shade, label=named, marker=".")
    _tidy(left, "epoch", "loss, from its lowest (0) to its highest (1)")
    _tidy(right, "epoch", "accuracy")
    right.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    for axes in (left, right):
        axes.xaxis.set_major_locator(_whole())
        if axes.lines:
            axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    return figure


def relevance(rows: Sequence[dict[str, Any]]) -> Figure:
    """Mean cosine similarity of pre-training images and clients' images, as pixels and as features."""
    figure = _figure(6.4, 1.4 + 0.5 * len(rows), "Relevance of the pre-training images")
    axes = figure.subplots()
    heights = np.arange(len(rows))
    for shift, key in ((-0.2, "pixels"), (0.2, "features")):
        values = [np.nan if row[key] is None else row[key] for row in rows]
        axes.barh(heights + shift, values, 0.36, label=key, color=COLOURS[0 if key == "pixels" else 2])
    axes.set_yticks(heights, [plain(f"{row['encoder']} → {row['partition']}") for row in rows])
    _tidy(axes, "mean cosine similarity", "")
    axes.grid(visible=False)
    axes.invert_yaxis()
    axes.set_xlim(min(0, axes.get_xlim()[0]), 1)
    figure.legend(loc="outside lower right", frameon=False, fontsize=8, labelcolor=INK, ncols=2)
    return figure
