"""The report: its numbers by hand, its words, and the stage in an invented workspace."""

import hashlib
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import report_scene
import yaml
from report_scene import Played

from fedcore.config import ConfigError
from tasks import report_numbers, report_tables, reports
from tasks.report_inputs import Division, Inputs, Result
from tasks.report_numbers import HEADLINE, Chapter, Stat, Verdict

NAN = math.nan


def played(
    name: str,
    finals: dict[int, float],
    *,
    method: str = "ifca",
    rounds: int = 2,
    bytes: float = 10.0,
    seconds: float = 2.0,
    pooled: bool = False,
    on_global: float | None = None,
) -> Result:
    """A run that is worse by 0.1 until its last round, but `on_global` all the time on the global test set."""
    rows = [
        (seed, r, final - 0.1 * (r + 1 < rounds), bytes * (r + 1), seconds)
        for seed, final in finals.items()
        for r in range(rounds)
    ]
    curves = pd.DataFrame(rows, columns=["seed", "round", HEADLINE, "bytes_total", "seconds"])
    if on_global is not None:
        curves["accuracy_global"] = on_global
    spec = {"pooling": "all"} if pooled else {}
    record = {"method": method, "partition": "p", "encoder": "random", "spec": spec}
    return Result(name, record, curves, pd.DataFrame(columns=["seed", "round", "client"]))


def chapter(*results: Result) -> Chapter:
    return report_numbers.page(Inputs("s", list(results), [], {}, [])).chapters[0]


def verdict(*results: Result) -> Verdict:
    return chapter(*results).verdict


# Methods


def test_a_mean_carries_the_sample_standard_deviation_of_what_was_measured() -> None:
    assert report_numbers.stat([0.8, NAN, 0.9]) == pytest.approx((0.85, 0.1 / math.sqrt(2), 2))
    assert report_numbers.stat([0.8]) == pytest.approx((0.8, NAN, 1), nan_ok=True)
    assert report_numbers.stat([NAN]) == pytest.approx((NAN, NAN, 0), nan_ok=True)


def test_a_row_holds_the_last_round_and_the_seconds_of_all_rounds() -> None:
    curves = pd.DataFrame(
        {"round": [1, 0], "seed": 3, HEADLINE: [0.5, 0.9], "seconds": [1.0, 2.5], "bytes_total": [8, 4]}
    )
    row = chapter(Result("a", {"method": "m", "partition": "p"}, curves, pd.DataFrame(columns=["seed", "round"]))).rows[
        0
    ]
    assert (row.seeds, row.rounds, row.finals) == ([3], 2, {3: 0.5})
    assert row.stat(HEADLINE).mean == 0.5  # not 0.9, which was the best
    assert (row.stat("seconds").mean, row.stat("bytes_total").mean) == (3.5, 8)


def test_traffic_is_told_as_a_multiple_of_fedavg() -> None:
    rows = chapter(
        played("a", {0: 0.9}, bytes=25), played("pool", {0: 0.9}, method="fedavg", pooled=True),
        played("base", {0: 0.5}, method="fedavg", bytes=10),
    ).rows  # fmt: skip
    assert [row.relative_bytes for row in rows] == pytest.approx([2.5, NAN, 1], nan_ok=True)
    assert math.isnan(chapter(played("a", {0: 0.9})).rows[0].relative_bytes)
    assert math.isnan(chapter(played("b", {0: 0.9}, method="fedavg", bytes=0)).rows[0].relative_bytes)


@pytest.mark.parametrize(
    ("first", "second", "kind", "lead", "shared", "wins"),
    [
        ({0: 0.90, 1: 0.92}, {0: 0.80, 1: 0.84}, "clear", 0.09, 2, 2),
        ({0: 0.95, 1: 0.81}, {0: 0.84, 1: 0.84}, "within", 0.04, 2, 1),  # 0.04 < 0.099
        ({0: 0.90, 1: 0.90}, {0: 0.95, 1: 0.75}, "within", 0.05, 2, 1),  # the other's deviation counts too
        ({0: 0.50, 1: 0.75}, {0: 0.75, 1: 0.50}, "tie", 0, 2, 1),
        ({0: 0.90}, {0: 0.80, 1: 0.80}, "one_seed", 0.1, 1, 1),
        ({0: 0.90, 1: 0.91}, {2: 0.80, 3: 0.81}, "clear", 0.1, 0, 0),
        ({0: 0.90, 1: NAN}, {0: 0.80, 1: 0.70}, "one_seed", 0.15, 1, 1),
    ],
)
def test_a_lead_is_clear_beyond_one_standard_deviation(
    first: dict[int, float], second: dict[int, float], kind: str, lead: float, shared: int, wins: int
) -> None:
    told = verdict(played("b", second), played("a", first))
    assert told.best is not None
    assert told.second is not None
    assert {told.best.name, told.second.name} == {"a", "b"}
    assert (told.best.name, told.kind, told.shared, told.wins) == ("b" if kind == "tie" else "a", kind, shared, wins)
    assert told.lead == pytest.approx(lead)


def test_pooled_images_never_win_and_fedavg_is_named_where_it_is_neither() -> None:
    pool, best, second = played("pool", {0: 0.99}, pooled=True), played("a", {0: 0.9}), played("b", {0: 0.8}, rounds=3)
    base = played("base", {0: 0.5}, method="fedavg")
    told = verdict(base, pool, second, best, played("other", {0: 0.6}, method="fedavg"))
    assert [row and row.name for row in (told.best, told.second, told.fedavg, told.bound)] == ["a", "b", "base", "pool"]
    assert told.uneven
    assert verdict(base, best).fedavg is None
    assert not verdict(base, best).uneven


def test_where_all_are_scored_on_the_global_test_set_that_is_what_is_compared() -> None:
    own, both = played("own", {0: 0.9}), played("both", {0: 0.5}, on_global=0.6)
    rest = played("rest", {0: 0.4}, on_global=0.7)
    pool = played("pool", {0: 0.9}, pooled=True)
    for results, score, best in (
        ((own, both), HEADLINE, "own"),
        ((both, rest, pool), "accuracy_global", "rest"),
        ((pool,), HEADLINE, None),
    ):
        found = chapter(*results)
        assert found.score == score
        assert (found.verdict.best and found.verdict.best.name) == best
    assert chapter(both, rest).rows[1].finals == {0: 0.7}
    assert chapter(both, rest).curves["metrics"][0]["key"] == "accuracy_global"
    assert report_numbers.compared([both, rest], groups=[0, 0, 1]) == HEADLINE


def test_the_seconds_of_a_round_are_told_as_a_multiple_of_fedavgs() -> None:
    rows = chapter(
        played("slow", {0: 0.9}, rounds=4, seconds=3.0), played("base", {0: 0.5}, method="fedavg", rounds=2),
        played("pool", {0: 0.9}, pooled=True),
    ).rows  # fmt: skip
    assert [row.relative_seconds for row in rows] == pytest.approx([1.5, 1, NAN], nan_ok=True)


def test_a_verdict_says_when_there_is_nothing_to_compare() -> None:
    assert verdict(played("pool", {0: 0.9}, pooled=True)).kind == "none"
    assert verdict(played("a", {0: NAN})).kind == "none"
    assert verdict(played("a", {0: 0.9}), played("b", {0: NAN})).kind == "alone"


def test_a_curve_counts_rounds_from_one_and_knows_no_spread_of_one_seed() -> None:
    curves = pd.DataFrame({
        "seed": [0, 0, 1], "round": [0, 1, 0], HEADLINE: [0.2, 0.6, 0.4], "bytes_total": [10, 20, 30], "word": "x",
    })  # fmt: skip
    told = chapter(
        Result("a", {"method": "m", "partition": "p"}, curves, pd.DataFrame(columns=["seed", "round"]))
    ).curves
    assert [metric["key"] for metric in told["metrics"]] == [HEADLINE]
    run = told["runs"][0]
    assert (run["round"], run["bytes"]) == ([1, 2], [20, 20])
    assert run["values"][HEADLINE]["mean"] == pytest.approx([0.3, 0.6])
    assert run["values"][HEADLINE]["std"] == pytest.approx([0.2 / math.sqrt(2), NAN], nan_ok=True)


def test_runs_that_send_next_to_nothing_have_no_curve_against_bytes_and_are_named() -> None:
    told = chapter(
        played("a", {0: 0.9}, bytes=1e6), played("least", {0: 0.9}, bytes=1e3), played("hush", {0: 0.9}, bytes=999),
        played("pool", {0: 0.9}, bytes=1e6, pooled=True),
    )  # fmt: skip
    assert told.silent == ["hush", "pool"]
    assert [run["bytes"] is None for run in told.curves["runs"]] == [False, False, True, True]


# Clients


def clustered(rows: Sequence[tuple[int, int, int, float]]) -> Result:
    """A run from (seed, round, client, cluster)."""
    table = pd.DataFrame(rows, columns=["seed", "round", "client", "cluster"])
    curves = table[["seed", "round"]].drop_duplicates()
    return Result("a", {"spec": {"warmup_rounds": 1}}, curves, table)


def test_clusters_are_numbered_as_the_true_groups_they_match_best() -> None:
    groups = [1, 0, 1, 0]  # client 3 ends among the others; seed 5 has the same clusters under other numbers
    rows = [(4, 0, 0, 0), (4, 0, 1, 0), (4, 0, 3, NAN), (4, 1, 0, 0), (4, 1, 1, 2), (4, 1, 2, 0), (4, 1, 3, 0)]
    renamed = {0: 1.0, 2: 0.0}
    told = report_numbers.cluster_identity(
        clustered(rows + [(5, r, c, renamed.get(n, NAN)) for _, r, c, n in rows]), groups
    )
    assert told is not None
    assert (told["order"], told["groups"], told["rounds"], told["warmup"]) == ([1, 3, 0, 2], [0, 0, 1, 1], 2, 1)
    for seed, cells in zip((4, 5), told["seeds"], strict=True):
        assert cells == {"seed": seed, "cells": ["10", ".1", "11", ".1"], "recovered": 0.75}


def test_clusters_without_true_groups_keep_their_numbers() -> None:
    told = report_numbers.cluster_identity(clustered([(0, 0, 0, 2), (0, 0, 1, 0), (0, 1, 0, 2), (0, 1, 1, 11)]), None)
    assert told is not None
    assert (told["order"], told["groups"]) == ([0, 1], None)
    assert told["seeds"][0]["cells"] == ["22", "0b"]
    assert math.isnan(told["seeds"][0]["recovered"])


def test_a_cluster_too_many_gets_a_number_that_no_group_has() -> None:
    told = report_numbers.cluster_identity(clustered([(0, 0, 0, 0), (0, 0, 1, 1), (0, 0, 2, 2)]), [0, 0, 0])
    assert told is not None
    assert sorted(told["seeds"][0]["cells"]) == ["0", "1", "2"]
    assert told["seeds"][0]["recovered"] == pytest.approx(1 / 3)


def test_a_run_without_clusters_has_no_identity() -> None:
    assert report_numbers.cluster_identity(played("a", {0: 0.9}), [0, 1]) is None
    assert report_numbers.cluster_identity(clustered([(0, 0, 0, NAN)]), [0]) is None


def test_the_accuracy_of_a_client_is_that_of_the_last_round_over_seeds() -> None:
    table = pd.DataFrame(
        [(0, 0, 0, 0.1), (0, 1, 0, 0.6), (1, 0, 0, 0.8), (0, 1, 1, NAN), (0, 1, 2, 0.4)],
        columns=["seed", "round", "client", "accuracy"],
    )
    result = Result("a", {}, pd.DataFrame(), table)
    assert report_numbers.client_accuracy(result, [7, 8, 9]) == [
        {"client": 0, "accuracy": pytest.approx(0.7), "group": 7}, {"client": 2, "accuracy": 0.4, "group": 9},
    ]  # fmt: skip
    pooled = Result("a", {"spec": {"pooling": "all"}}, pd.DataFrame(), table)
    assert report_numbers.client_accuracy(pooled, [7])[1] == {"client": 2, "accuracy": 0.4, "group": None}
    assert report_numbers.client_accuracy(played("a", {0: 0.9}), None) == []


def test_a_map_of_features_has_a_panel_a_client_and_one_of_both_on_one_scale() -> None:
    rows = [(4, 1, -2.0, 0.0), (4, 0, 6.0, 1.0), (7, 1, 2.0, 2.0)]
    features = pd.DataFrame(rows, columns=["client", "label", "x", "y"])
    found = report_numbers.feature_map(replace(played("a", {0: 0.5}), features=features), None)
    assert found == {
        "name": "a",
        "labels": [0, 1],
        "classes": ["0", "1"],
        "panels": [
            {"title": "client 4", "points": [[[1.0, 0.5]], [[0.0, 0.0]]]},
            {"title": "client 7", "points": [[], [[0.5, 1.0]]]},
            {"title": "both", "points": [[[1.0, 0.5]], [[0.0, 0.0], [0.5, 1.0]]]},
        ],
    }
    assert report_numbers.feature_map(played("a", {0: 0.5}), None) is None


def test_holdings_count_images_of_each_class_at_each_client() -> None:
    rows = [(0, "train", 0), (0, "train", 1), (0, "validation", 2), (2, "train", 3), (2, "test", 0), (2, "test", 1)]
    table = pd.DataFrame(rows, columns=["client", "split", "index"])
    labels = {"train": np.array([1, 1, 0, -1]), "test": np.array([0, 0])}
    told = report_numbers.holdings(Division("d", {"clients": 3}, table, ["cat", "dog"], labels))
    assert told["classes"] == ["cat", "dog", "unlabelled"]
    assert told["train"] == [[1, 0, 0], [2, 0, 0], [0, 0, 1]]
    assert told["test"] == [[0, 0, 2], [0, 0, 0], [0, 0, 0]]
    labels["train"][3] = 1
    told = report_numbers.holdings(Division("d", {"clients": 3}, table, ["cat", "dog"], labels))
    assert (told["classes"], told["train"]) == (["cat", "dog"], [[1, 0, 0], [2, 0, 1]])


# Words


@pytest.mark.parametrize(
    ("bytes", "text"),
    [
        (0, "0 B"), (999, "999 B"), (999.5, "1.00 kB"), (1234, "1.23 kB"), (9994, "9.99 kB"), (9996, "10.0 kB"),
        (99960, "100 kB"), (999_499, "999 kB"), (999_500, "1.00 MB"), (2.88e9, "2.88 GB"), (4e16, "40000 TB"),
        (NAN, "–"), (None, "–"),
    ],
)  # fmt: skip
def test_a_size_has_three_digits_and_a_unit(bytes: float | None, text: str) -> None:
    assert report_tables.size(bytes) == text


def test_numbers_as_people_read_them() -> None:
    assert report_tables.percent(Stat(0.93124, 0.0041, 3)) == "93.12 ± 0.41"
    assert report_tables.percent(Stat(0.93124, 0.0041, 3), 1) == "93.1 ± 0.4"
    assert report_tables.percent(Stat(1, NAN, 1)) == "100.00"
    assert report_tables.percent(Stat()) == "–"
    assert [report_tables.number(v, 2) for v in (2.5, NAN, None)] == ["2.50", "–", "–"]
    assert [report_tables.seconds(v) for v in (1.26, 99.94, 123.4, NAN)] == ["1.3", "99.9", "123", "–"]


def test_markdown_shows_its_own_signs_as_they_are() -> None:
    assert report_tables.markdown([{"run": "a|b_c", "n": "<b>*1*\n2"}]) == (
        "| run | n |\n| --- | --- |\n| a\\|b\\_c | \\<b\\>\\*1\\* 2 |\n"
    )


def test_embedded_data_cannot_end_its_element_and_is_strict_json() -> None:
    data = {"</script><!--": [NAN, math.inf, 1 / 3, 7, "a & b\u2028"]}
    text = str(reports.embedded(data))
    assert not re.search("[<>&\u2028]", text)
    assert json.loads(text) == {"</script><!--": [None, None, 0.333333, 7, "a & b\u2028"]}


# Settings and milestones


def setting(name: str, final: float, method: str = "fedproc", pooled: bool = False, **settings: Any) -> Result:
    result = played(name, {0: final, 1: final + 0.02}, method=method, pooled=pooled)
    return replace(result, record={**result.record, "settings": {"method": method, "partition": name, **settings}})


def sweeps(*results: Result) -> list[dict[str, Any]]:
    return report_numbers.page(Inputs("s", list(results), [], {}, [])).sweeps


def test_runs_that_differ_in_one_setting_are_lined_up_by_its_values() -> None:
    found = sweeps(
        setting("b", 0.6, lr=0.1, epochs=2, seeds=[0]),
        setting("a", 0.5, lr=0.01, epochs=2, seeds=[1]),
        setting("far", 0.9, lr=0.1, epochs=5, beta=0.5),  # has a setting more: another scheme
        setting("other", 0.7, method="fedavg", lr=0.01, epochs=2),
        setting("pool", 0.7, pooled=True, lr=0.5, epochs=2),
        setting("c", 0.8, lr=0.02, epochs=2),
    )
    assert [(sweep["setting"], sweep["numeric"], sweep["values"]) for sweep in found] == [
        ("lr", True, ["0.01", "0.02", "0.1"])
    ]
    (series,) = found[0]["series"]
    assert series["name"] == "fedproc"
    assert [(point["at"], point["run"]) for point in series["points"]] == [(0, "a"), (1, "c"), (2, "b")]
    assert [point["stat"].mean for point in series["points"]] == pytest.approx([0.51, 0.81, 0.61])
    assert found[0]["score"] == HEADLINE


def test_families_of_one_method_are_told_apart_and_words_keep_their_order() -> None:
    found = sweeps(
        setting("none_1", 0.5, ramp="none", alpha=1),
        setting("gaussian_1", 0.6, ramp="gaussian", alpha=1),
        setting("none_2", 0.7, ramp="none", alpha=2),
        setting("gaussian_2", 0.8, ramp="gaussian", alpha=2),
    )
    alpha, ramp = found
    assert (alpha["setting"], alpha["values"], ramp["setting"], ramp["values"]) == (
        "alpha", ["1", "2"], "ramp", ["none", "gaussian"],
    )  # fmt: skip
    assert not ramp["numeric"]
    assert [series["name"] for series in ramp["series"]] == ["none_1", "none_2"]
    assert sweeps(setting("a", 0.5, method="fedavg"), setting("b", 0.6, method="fedprox")) == []
    assert sweeps(played("old", {0: 0.5})) == []  # a record without settings


def test_milestones_are_multiples_of_five_per_cent_below_the_best() -> None:
    told = chapter(played("a", {0: 0.70, 1: 0.72}), played("b", {0: 0.57}), played("silent", {0: NAN})).milestones
    assert told is not None
    assert told["targets"] == [0.55, 0.6, 0.65, 0.7]
    assert told["rows"] == [
        {"name": "a", "first": report_numbers.stat([0.60, 0.62]), "reached": [1, 1, 2, 2]},
        {"name": "b", "first": report_numbers.stat([0.47]), "reached": [2, None, None, None]},
    ]
    assert chapter(played("a", {0: 0.04})).milestones is None
    assert chapter(played("silent", {0: NAN})).milestones is None


def test_a_surface_is_a_grid_with_b_upwards() -> None:
    points = pd.DataFrame({"a": [-1, -1, 1, 1], "b": [-2, 2, -2, 2], "loss": [1.0, 2.0, 3.0, 4.0]})
    told = report_numbers.surface(replace(played("a", {0: 0.5}), surface=points))
    assert told == {"name": "a", "a": [-1, 1], "b": [-2, 2], "values": [[1.0, 3.0], [2.0, 4.0]]}


# The stage


RUNS = (
    Played(name="fedavg", level=0.6, surface=True, settings={"lr": 0.01}),
    Played(name="cp_cfl", method="cp_cfl", encoder="simclr", level=0.9, models=3, clusters=3, warmup=1),
    Played(name="solo", method="solo", level=0.7, models=0, features=True),
    Played(name="fedavg_slow", level=0.5, surface=True, settings={"lr": 0.001}),
    Played(name="pool", method="solo", models=0, level=0.95, pooling="groups"),
    Played(name="elsewhere", partition="other", level=0.8),
)
SMALL: dict[str, Any] = {"clients": 6, "rounds": 3, "seeds": (0, 1), "trained": ("simclr",)}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A workspace with its report; tests only read it."""
    root = tmp_path_factory.mktemp("workspace")
    classes = ["</script><script>alert(1)</script>", "$x_1$", "ÿ", *"3456789"]
    report_scene.build(root, RUNS, waiting=[Played(name="late_one")], classes=classes, **SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        assert reports.report.fn() == Path("report")
        yield root


def html(root: Path) -> str:
    return (root / "report/index.html").read_text(encoding="utf-8")


def data(root: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', html(root), re.DOTALL)
    assert found
    told: dict[str, Any] = json.loads(found[1])
    return told


def digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_page_tables_figures_and_numbers_lie_side_by_side(workspace: Path) -> None:
    figures = (
        *("encoders", "groups-accuracy-bytes", "groups-accuracy-rounds", "groups-clients", "groups-clusters-cp_cfl"),
        *(
            "groups-features-solo",
            "groups-holdings",
            "groups-surfaces",
            "groups-training",
            "other-accuracy-bytes",
            "other-accuracy-rounds",
            "other-clients",
            "other-holdings",
            "other-training",
            "relevance",
            "sweep-lr",
        ),
    )
    stems = ("clients", "encoders", "methods", "milestones", "relevance", "surfaces", "sweeps")
    tables = sorted({f"{name}.{kind}" for name in stems for kind in ("csv", "md")} - {"surfaces.md"})
    assert list(digests(workspace / "report")) == [
        *(f"figures/{name}.png" for name in figures),
        *("index.html", "metrics.json"),
        *(f"tables/{name}" for name in tables),
    ]


def test_the_same_inputs_give_the_same_bytes(workspace: Path) -> None:
    before = digests(workspace / "report")
    reports.report.fn()
    assert digests(workspace / "report") == before


def test_the_numbers_are_those_of_the_files(workspace: Path) -> None:
    curves = pd.read_csv(workspace / "results/cp_cfl/curves.csv")
    last, first = (curves[curves["round"] == r] for r in (2, 0))
    table = pd.read_csv(workspace / "report/tables/methods.csv").set_index("run").loc["cp_cfl"]
    metrics = json.loads((workspace / "report/metrics.json").read_text())["cp_cfl"]
    drawn = data(workspace)["chapters"][0]["curves"]["runs"][1]
    for key in (HEADLINE, "accuracy_pooled", "macro_f1_client_mean"):
        assert table[key] == metrics[key] == pytest.approx(last[key].mean(), rel=1e-12)
        assert table[f"{key}_std"] == pytest.approx(last[key].std(ddof=1), rel=1e-12)
        assert drawn["values"][key]["mean"][0] == pytest.approx(first[key].mean(), rel=1e-5)
    assert table["bytes_total"] == metrics["bytes_total"] == 6 * 3 * 4 * 4e5
    assert table["bytes_relative_to_fedavg"] == 2
    assert metrics["seconds"] == pytest.approx(curves["seconds"].sum() / 2)
    words = (workspace / "report/tables/methods.md").read_text()
    assert f"{100 * last[HEADLINE].mean():.2f} ± {100 * last[HEADLINE].std(ddof=1):.2f} |" in words
    assert "| 28.8 MB | 2.00 |" in words


def test_what_has_not_been_played_is_named(workspace: Path) -> None:
    assert "<b>Not played yet:</b> late_one." in html(workspace)
    assert "late_one" not in (workspace / "report/metrics.json").read_text()


def test_a_run_of_another_partition_gets_its_own_chapter(workspace: Path) -> None:
    chapters = data(workspace)["chapters"]
    assert [[run["name"] for run in one["curves"]["runs"]] for one in chapters] == [
        ["fedavg", "cp_cfl", "solo", "fedavg_slow", "pool"], ["elsewhere"],
    ]  # fmt: skip
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", html(workspace)))
    assert re.search(r"On groups: .* cp_cfl is best: .*points above solo", text)
    assert re.search(r"On other: .* elsewhere reaches .*; it is the only method that was run", text)


def test_names_are_text_wherever_they_stand(workspace: Path) -> None:
    page = html(workspace)
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert page.count("</script>") == 2
    assert data(workspace)["chapters"][0]["holdings"]["classes"][0] == "</script><script>alert(1)</script>"


def test_the_page_loads_nothing(workspace: Path) -> None:
    page = html(workspace)
    targets = re.findall(r"""\b(?:src|href|action)\s*=\s*["']?([^"'\s>]*)""", page)
    assert targets
    assert all(target.startswith("#") or target == "data:," for target in targets)
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(", page)
    assert "default-src 'none'" in page


def test_rounds_without_evaluation_and_one_seed_leave_gaps_not_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report_scene.build(tmp_path, RUNS[:2], every=2, **SMALL | {"seeds": (0,)})
    monkeypatch.chdir(tmp_path)
    reports.report.fn()
    values = data(tmp_path)["chapters"][0]["curves"]["runs"][0]["values"][HEADLINE]
    assert [value is None for value in values["mean"]] == [True, False, False]
    assert values["std"] == [None, None, None]
    assert "NaN" not in html(tmp_path) + (tmp_path / "report/metrics.json").read_text()
    assert ">nan" not in html(tmp_path).lower()
    assert "</strong> leads: " in html(tmp_path)
    assert "how much of the lead is chance cannot be told" in html(tmp_path)
    assert f"{HEADLINE}_std" not in json.loads((tmp_path / "report/metrics.json").read_text())["fedavg"]


def test_a_bare_result_still_makes_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report_scene.build(tmp_path, [Played(name="fedavg")], grouped=False, **SMALL | {"trained": ()})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results/fedavg/clients.parquet").unlink()
    (tmp_path / "data/partitions/groups/partition.json").unlink()
    (tmp_path / "models/encoders/random/encoder.json").unlink()
    reports.report.fn()
    assert list(digests(tmp_path / "report")) == [
        "figures/groups-accuracy-bytes.png", "figures/groups-accuracy-rounds.png", "figures/groups-training.png",
        "index.html", "metrics.json", "tables/methods.csv", "tables/methods.md", "tables/milestones.csv",
        "tables/milestones.md",
    ]  # fmt: skip


def test_without_any_result_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report_scene.build(tmp_path, [], waiting=RUNS[:1], **SMALL)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        FileNotFoundError, match=r"no run of study 'tour' has a result yet; run python -m flows\.federate"
    ):
        reports.report.fn()
    assert not (tmp_path / "report").exists()


def test_a_study_that_is_not_sound_leaves_the_report_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "report").mkdir()
    (tmp_path / "report/index.html").write_text("old")
    run = {"method": "fedavg", "partition": "p", "encoder": "e", "rounds": 1}
    empty = {"study": "t", "seed": 0, "datasets": {}, "partitions": {}, "encoders": {}}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({**empty, "runs": {"a": run}}))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"runs\.a\.partition: 'p' is not defined"):
        reports.report.fn()
    assert html(tmp_path) == "old"
