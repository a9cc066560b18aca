"""Partitions with labelled and unlabelled images: counts, mixtures, mismatch, and what methods may see."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedcore.data import semi
from fedcore.data.partition import IntArray, Scheme, label_entropy, shards, summary
from fedcore.data.schemes import SCHEMES
from fedcore.data.semi import SemiDirichlet, SemiIid, SemiMismatch, SemiMixture
from fedcore.data.shards import Dataset, Source

TRAIN = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))
TEST = np.random.default_rng(1).permutation(np.repeat(np.arange(10), 100))
ALL: tuple[Scheme, ...] = (
    SemiIid(dataset="toy", clients=10, labelled=20),
    SemiMixture(dataset="toy", clients=10, labelled=20, labelled_classes=2),
    SemiDirichlet(dataset="toy", clients=10, labelled=20, labelled_classes=2),
    SemiMismatch(dataset="toy", clients=10, labelled=30, labelled_classes=6, unlabelled=100, mismatch=0.25),
)


def counted(table: pd.DataFrame, labelled: bool) -> IntArray:
    """Training images (10 classes, clients) that are labelled, or not."""
    rows = table[(table["split"] == "train") & (table["labelled"] == labelled)]
    counts = np.zeros((10, table["client"].max() + 1), dtype=np.int64)
    np.add.at(counts, (TRAIN[rows["index"]], rows["client"]), 1)
    return counts


@pytest.mark.parametrize("scheme", ALL, ids=lambda s: s.scheme)
def test_no_image_is_dealt_twice_and_every_client_has_its_labels(scheme: Scheme) -> None:
    table = scheme.split(TRAIN, TEST)
    rows = table[table["split"] != "test"]
    assert rows["index"].is_unique
    assert (counted(table, True).sum(axis=0) == scheme.labelled).all()  # type: ignore[attr-defined]
    assert (counted(table, False).sum(axis=0) > 0).all()
    assert table.equals(scheme.split(TRAIN, TEST))
    assert summary(scheme, table, TRAIN, TEST)["unlabelled"] == counted(table, False).sum()


def test_iid_labels_and_images_are_even() -> None:
    table = ALL[0].split(TRAIN, TEST)
    assert (counted(table, True) == 2).all()
    assert (counted(table, False).sum(axis=0) == 580).all()


@pytest.mark.parametrize("scheme", ALL[1:3], ids=lambda s: s.scheme)
def test_two_labelled_classes_a_client_balanced_over_clients(scheme: Scheme) -> None:
    counts = counted(scheme.split(TRAIN, TEST), True)
    assert ((counts > 0).sum(axis=0) == 2).all()
    assert ((counts > 0).sum(axis=1) == 2).all()
    assert set(counts[counts > 0]) == {10}


def test_mixtures_use_all_images_within_the_sizes_asked_for() -> None:
    counts = counted(ALL[1].split(TRAIN, TEST), False)
    assert counts.sum() == 6000 - 200
    mean = 5800 / 10
    assert (counts.sum(axis=0) >= 0.727 * mean - 1).all()
    assert (counts.sum(axis=0) <= 1.347 * mean + 1).all()
    assert label_entropy(counts.T).max() < 2.5  # bits; 3.3 are even


def test_on_mnist_mixtures_give_the_papers_local_steps() -> None:
    """270 to 500 steps of 32 in two epochs; methods.md 4.3."""
    train = np.repeat(np.arange(10), 6000)
    for seed in range(3):
        scheme = SemiMixture(dataset="mnist", clients=10, labelled_classes=2, seed=seed)
        table = scheme.split(train, np.arange(10))
        steps = 2 * table[~table["labelled"]].groupby("client").size() // 32
        assert steps.min() >= 270
        assert steps.max() <= 500


@pytest.mark.parametrize("ratio", [0.0, 0.25, 0.5, 1.0])
def test_a_mismatch_ratio_is_exact(ratio: float) -> None:
    scheme = SemiMismatch(dataset="toy", clients=8, labelled=30, labelled_classes=6, unlabelled=100, mismatch=ratio)
    table = scheme.split(TRAIN, TEST)
    known, bare = counted(table, True) > 0, counted(table, False)
    assert (known.sum(axis=0) == 6).all()
    assert (np.where(known, 0, bare).sum(axis=0) == 100 * ratio).all()
    assert (np.where(known, bare, 0).sum(axis=0) == 100 * (1 - ratio)).all()


@pytest.mark.parametrize("name", ["semi_iid", "semi_mixture", "semi_dirichlet"])
def test_an_amount_of_unlabelled_images_is_dealt_in_all(name: str) -> None:
    scheme = SCHEMES[name](dataset="toy", clients=10, labelled=20, unlabelled=100)  # type: ignore[call-arg]
    counts = counted(scheme.split(TRAIN, TEST), False)
    assert counts.sum() == 1000
    assert (counts.sum(axis=1) == 100).all()


def test_held_out_images_are_labelled_ones() -> None:
    table = SemiIid(dataset="toy", clients=10, labelled=20, validation=0.25).split(TRAIN, TEST)
    held = table[table["split"] == "validation"]
    assert held["labelled"].all()
    assert (held.groupby("client").size() == 5).all()


def test_methods_see_no_label_of_an_unlabelled_image() -> None:
    images = torch.zeros(len(TRAIN), 1, 2, 2, dtype=torch.uint8)
    sources = {"train": Source(images, torch.from_numpy(TRAIN)), "test": Source(images, torch.from_numpy(TEST))}
    dataset = Dataset("toy", tuple("0123456789"), (1, 2, 2), torch.zeros(1), torch.ones(1), sources, "")
    first = shards(dataset, ALL[0].split(TRAIN, TEST))[0]
    assert (len(first.train), len(first.unlabelled)) == (20, 580)
    assert (first.train.labels() >= 0).all()
    for split in (first.unlabelled, first.to(torch.device("meta")).unlabelled):
        assert split.hidden
    assert first.unlabelled.labels().tolist() == [-1] * 580
    assert first.unlabelled.labels(torch.tensor([3, 4])).tolist() == [-1, -1]


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("semi_iid", {"labelled": 0}, "labelled: 0"),
        ("semi_iid", {"labelled_classes": 0}, "labelled_classes: 0"),
        ("semi_iid", {"unlabelled": 0}, "unlabelled: 0"),
        ("semi_dirichlet", {"beta": 0.0}, "beta: 0.0"),
        ("semi_mixture", {"smallest": 1.1}, "smallest: 1.1"),
        ("semi_mismatch", {"mismatch": 1.5}, r"mismatch: 1.5 is not in \[0, 1\]"),
        ("semi_mismatch", {"unlabelled": None}, "unlabelled: say how many"),
        ("semi_mismatch", {"labelled_classes": None}, "labelled_classes: say how many"),
    ],
)
def test_bad_settings_are_refused(name: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        SCHEMES[name](dataset="toy", clients=10, **fields)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("semi_iid", {"labelled": 700}, "labelled: the clients need 700 images of class 0, 600 are there"),
        ("semi_iid", {"labelled_classes": 11}, "labelled_classes: 11 classes a client, but only 10 there"),
        ("semi_iid", {"unlabelled": 600}, "unlabelled: 6000 for 10 clients, 5400 are left"),
        ("semi_dirichlet", {"min_size": 600}, "min_size: 10 clients"),
        ("semi_mismatch", {"labelled_classes": 10}, "mismatch: every class has labels"),
    ],
)
def test_the_impossible_is_refused_with_its_numbers(name: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        SCHEMES[name](dataset="toy", clients=10, **fields).split(TRAIN, TEST)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 10_000), st.floats(0.02, 5))
def test_rounded_tables_keep_both_margins(rows: int, columns: int, seed: int, beta: float) -> None:
    rng = np.random.default_rng(seed)
    total = int(rng.integers(rows * columns, 5000))
    wide, high = (rng.multinomial(total, rng.dirichlet(np.full(n, 2.0))) for n in (columns, rows))
    table = semi.rounded(semi.fitted(rng.dirichlet(np.full(rows, beta), columns).T + 1e-6, high, wide), high, wide)
    assert (table >= 0).all()
    assert (table.sum(axis=1) == high).all()
    assert (table.sum(axis=0) == wide).all()
