"""Properties of every scheme: who holds what, exactly, for any seed, skew and size."""

import dataclasses
import logging
import time
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedcore import config
from fedcore.data import partition
from fedcore.data.partition import Classes, Dirichlet, Groups, Iid, Quantity, Scheme, Shards
from fedcore.data.schemes import SCHEMES
from fedcore.data.shards import Dataset, Source

CP_CFL = {"groups": ((0, 1, 2, 3), (3, 4, 5, 6), (6, 7, 8, 9)), "counts": (20, 20, 5, 5)}

quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def labels(images: int, classes: int = 10, seed: int = 5) -> np.ndarray:
    """Labels (images,) of classes as even as can be, shuffled."""
    return np.random.default_rng((seed, 77)).permutation(np.arange(images) % classes)


def rows(table: pd.DataFrame, split: str, client: int | None = None) -> np.ndarray:
    chosen = table["split"] == split
    return table.loc[chosen if client is None else chosen & (table["client"] == client), "index"].to_numpy()


def train_rows(table: pd.DataFrame) -> np.ndarray:
    return np.concatenate([rows(table, "train"), rows(table, "validation")])


def held(table: pd.DataFrame, y: np.ndarray, clients: int, *splits: str) -> np.ndarray:
    return partition.holdings(table[table["split"].isin(splits)], y, clients, int(y.max()) + 1)


@st.composite
def whole(draw: st.DrawFn) -> tuple[Scheme, np.ndarray, np.ndarray]:
    """A scheme that deals every image, on labels it can deal."""
    images, classes = draw(st.integers(300, 900)), draw(st.integers(2, 12))
    common = {
        "dataset": "toy",
        "clients": draw(st.integers(1, 20)),
        "seed": draw(st.integers(0, 2**40)),
        "validation": draw(st.sampled_from([0.0, 0.1, 0.9])),
    }
    beta, min_size = draw(st.floats(0.01, 100)), draw(st.integers(1, 15))
    enough = -(-classes // common["clients"])
    scheme = draw(
        st.sampled_from(
            [
                Iid(**common),
                Dirichlet(**common, beta=beta, min_size=min_size, cap=draw(st.booleans())),
                Quantity(**common, beta=beta, min_size=min_size),
                Classes(**common, per_client=draw(st.integers(enough, classes))),
                Shards(**common, per_client=draw(st.integers(1, 5))),
            ]
        )
    )
    return scheme, labels(images, classes), labels(draw(st.integers(0, 300)), classes, seed=6)


@quick
@given(whole())
def test_every_image_lies_with_one_client(case: tuple[Scheme, np.ndarray, np.ndarray]) -> None:
    """P1: the clients' sets are disjoint and together everything; so are their tests."""
    scheme, train, test = case
    table = scheme.split(train, test)
    assert np.array_equal(np.sort(train_rows(table)), np.arange(len(train)))
    assert np.array_equal(np.sort(rows(table, "test")), np.arange(len(test)))
    assert set(table.loc[table["split"] == "train", "client"]) == set(range(scheme.clients))


@quick
@given(whole())
def test_the_same_seed_gives_the_same_table(case: tuple[Scheme, np.ndarray, np.ndarray]) -> None:
    scheme, train, test = case
    table = scheme.split(train, test)
    pd.testing.assert_frame_equal(table, scheme.split(train, test))


@pytest.mark.parametrize("cls", [Iid, Dirichlet, Quantity, Classes, Shards, Groups])
def test_another_seed_gives_another_table(cls: type[Scheme]) -> None:
    train, more = labels(600), CP_CFL if cls is Groups else {}
    tables = [cls(dataset="toy", clients=6, seed=seed, **more).split(train, train) for seed in range(5)]
    assert len({partition.fingerprint(cls(dataset="toy", clients=6, **more), "ab", table) for table in tables}) == 5


@quick
@given(whole())
def test_holding_out_moves_no_image_to_another_client(case: tuple[Scheme, np.ndarray, np.ndarray]) -> None:
    scheme, train, test = case
    table, plain = scheme.split(train, test), dataclasses.replace(scheme, validation=0.0).split(train, test)
    assert len(rows(plain, "validation")) == 0
    assert np.array_equal(
        held(table, train, scheme.clients, "train", "validation"), held(plain, train, scheme.clients, "train")
    )
    mine = held(table, train, scheme.clients, "train", "validation")
    out = held(table, train, scheme.clients, "validation")
    sizes = mine.sum(axis=1)
    assert np.array_equal(out.sum(axis=1), np.minimum(np.round(scheme.validation * sizes), sizes - 1))
    assert (np.abs(out - mine * (out.sum(axis=1) / sizes)[:, None]) < 1).all()


@pytest.mark.parametrize("images", [1, 2, 3])
def test_a_client_keeps_one_image_to_train_on(images: int) -> None:
    train = labels(8 * images)
    table = Iid(dataset="toy", clients=8, validation=0.9).split(train, train)
    assert np.bincount(table.loc[table["split"] == "train", "client"]).tolist() == [1] * 8


@quick
@given(whole())
def test_local_tests_have_their_clients_mix(case: tuple[Scheme, np.ndarray, np.ndarray]) -> None:
    """A client's share of a class is the same in test as in training, to less than one image; its size nearly so."""
    scheme, train, test = case
    classes = int(train.max()) + 1
    table = scheme.split(train, test)
    mine = held(table, train, scheme.clients, "train", "validation")
    tested = partition.holdings(table[table["split"] == "test"], test, scheme.clients, classes)
    share = mine / mine.sum(axis=0)
    fair = share * np.bincount(test, minlength=classes)
    assert (np.abs(tested - fair) < 1).all()
    assert (tested[mine == 0] == 0).all()
    assert (np.abs(tested.sum(axis=1) - fair.sum(axis=1)) < 2).all()


def test_small_tests_reach_every_client() -> None:
    """100 clients, 100 test images of 10 classes: losses in one class are made good in the next."""
    table = Iid(dataset="toy", clients=100).split(labels(5000), labels(120, seed=8))
    sizes = np.bincount(table.loc[table["split"] == "test", "client"], minlength=100)
    assert sizes.min() >= 1
    assert sizes.max() <= 2


def test_the_table_is_tidy() -> None:
    table = Iid(dataset="toy", clients=4, validation=0.1).split(labels(100), labels(50))
    assert list(table.columns) == ["client", "split", "index", "labelled", "domain"]
    assert [str(kind) for kind in table.dtypes] == ["int32", "category", "int64", "bool", "int16"]
    assert list(table["split"].cat.categories) == ["train", "validation", "test"]
    assert table.equals(table.sort_values(["client", "split", "index"], ignore_index=True))
    assert table["labelled"].all()


@given(clients=st.integers(1, 40), images=st.integers(40, 500), seed=st.integers(0, 99))
@quick
def test_iid_sizes_differ_by_one_image(clients: int, images: int, seed: int) -> None:
    table = Iid(dataset="toy", clients=clients, seed=seed).split(labels(images), labels(10))
    sizes = np.bincount(table.loc[table["split"] == "train", "client"])
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("key", [lambda s: s, lambda s: (s, 0), lambda s: (s, 1)], ids=["seed", "first", "second"])
def test_a_dataset_shuffled_with_the_same_seed_stays_shuffled(seed: int, key: Callable[[int], object]) -> None:
    """If the draws were those of default_rng(seed), undoing the very shuffle would hand each client one class."""
    shuffled = np.random.default_rng(key(seed)).permutation(np.arange(1000) % 10)
    table = Iid(dataset="toy", clients=10, seed=seed).split(shuffled, labels(100))
    assert partition.label_entropy(held(table, shuffled, 10, "train")).min() > 3


@given(per_client=st.integers(1, 10), clients=st.integers(10, 40), seed=st.integers(0, 99))
@quick
def test_classes_gives_each_client_its_number_of_classes(per_client: int, clients: int, seed: int) -> None:
    train = labels(2000)
    scheme = Classes(dataset="toy", clients=clients, per_client=per_client, seed=seed)
    counts = held(scheme.split(train, labels(50)), train, clients, "train")
    assert (np.count_nonzero(counts, axis=1) == per_client).all()
    holders = np.count_nonzero(counts, axis=0)
    assert holders.max() - holders.min() <= 1
    for of_class in counts.T:
        assert np.ptp(of_class[of_class > 0]) <= 1


@given(per_client=st.integers(1, 4), seed=st.integers(0, 99))
@quick
def test_shards_are_runs_of_the_sorted_labels(per_client: int, seed: int) -> None:
    """Where shards divide the classes evenly, each is of one class: a client holds whole shards only."""
    train, shard = labels(1200), 1200 // 20 // per_client
    scheme = Shards(dataset="toy", clients=20, per_client=per_client, seed=seed)
    counts = held(scheme.split(train, labels(50)), train, 20, "train")
    assert (counts.sum(axis=1) == 60).all()
    assert (counts % shard == 0).all()


@given(
    clients=st.integers(2, 30), beta=st.floats(0.001, 50), min_size=st.integers(1, 20), cap=st.booleans(),
    seed=st.integers(0, 99),
)  # fmt: skip
@quick
def test_nobody_falls_short_of_min_size(clients: int, beta: float, min_size: int, cap: bool, seed: int) -> None:
    settings_ = {"dataset": "toy", "clients": clients, "seed": seed, "beta": beta, "min_size": min_size}
    train = labels(clients * min_size + 7)
    for scheme in (Dirichlet(**settings_, cap=cap), Quantity(**settings_)):
        table = scheme.split(train, labels(20))
        assert np.bincount(table.loc[table["split"] == "train", "client"], minlength=clients).min() >= min_size


def test_dirichlet_splits_the_example_of_pitfall_1() -> None:
    train = labels(2000)
    table = Dirichlet(dataset="toy", clients=10, beta=0.1, seed=0).split(train, labels(500))
    assert len(np.unique(rows(table, "train"))) == len(rows(table, "train")) == 2000


@pytest.mark.parametrize("min_size", [10, 95, 100])
def test_dirichlet_ends_for_500_clients_of_100_classes(min_size: int, caplog: pytest.LogCaptureFixture) -> None:
    """P2: CIFAR-100's sizes; a minimum that no draw meets is met by repair, and that is said."""
    train, began = labels(50_000, 100), time.perf_counter()
    with caplog.at_level(logging.WARNING):
        table = Dirichlet(dataset="cifar100", clients=500, beta=0.3, min_size=min_size).split(
            train, labels(10_000, 100)
        )
    assert time.perf_counter() - began < 5
    sizes = np.bincount(table.loc[table["split"] == "train", "client"], minlength=500)
    assert sizes.min() >= min_size
    assert len(np.unique(rows(table, "train"))) == 50_000
    assert ("moved from the largest" in caplog.text) == (min_size > 10)


@pytest.mark.parametrize("cap", [False, True])
def test_entropy_rises_with_beta(cap: bool) -> None:
    """P3: the skew asked for is the skew obtained."""
    train = labels(5000)

    def entropy(beta: float) -> float:
        draws = (Dirichlet(dataset="toy", clients=10, beta=beta, cap=cap, seed=s, min_size=1) for s in range(5))
        return np.mean([partition.label_entropy(held(d.split(train, train[:10]), train, 10, "train")) for d in draws])

    found = [entropy(beta) for beta in (0.05, 0.2, 0.5, 2, 10, 100)]
    assert found == sorted(found)
    assert found[0] < 1.5
    assert found[-1] > 3.25


def test_the_cap_bounds_the_largest_client() -> None:
    """A client at its N/m images or more gets no further class, so it ends with less than N/m plus one class."""
    train = labels(2000)
    for seed in range(20):
        table = Dirichlet(dataset="toy", clients=10, beta=0.1, cap=True, seed=seed).split(train, train[:10])
        assert np.bincount(table.loc[table["split"] == "train", "client"]).max() < 2000 / 10 + 2000 / 10


def test_quantity_skews_sizes_and_not_classes() -> None:
    train = labels(5000)
    even, uneven = (
        held(Quantity(dataset="toy", clients=10, beta=beta).split(train, train[:10]), train, 10, "train")
        for beta in (1000, 0.3)
    )
    assert np.ptp(uneven.sum(axis=1)) > 5 * np.ptp(even.sum(axis=1))
    large = uneven[uneven.sum(axis=1) > 300]
    assert partition.label_entropy(large).min() > 3.2


@given(seed=st.integers(0, 2**32), validation=st.sampled_from([0.0, 0.2]))
@settings(quick, max_examples=15)
def test_groups_deal_the_papers_counts_with_balanced_roles(seed: int, validation: float) -> None:
    """CP-CFL on STL-10's sizes: 500 images of a class, all of which the shared classes need."""
    train, test = labels(5000), labels(8000, seed=9)
    scheme = Groups(dataset="stl10", clients=60, seed=seed, validation=validation, **CP_CFL)
    table = scheme.split(train, test)
    counts = held(table, train, 60, "train", "validation")
    of_group = np.array(scheme.true_groups())
    assert np.array_equal(of_group, np.repeat([0, 1, 2], 20))
    for g, classes in enumerate(CP_CFL["groups"]):
        mine = counts[of_group == g]
        assert (np.sort(mine[:, classes], axis=1) == [5, 5, 20, 20]).all()
        assert (mine.sum(axis=1) == 50).all()
        assert ((mine[:, classes] == 20).sum(axis=0) == 10).all()
    assert np.array_equal(counts.sum(axis=0), [250, 250, 250, 500, 250, 250, 500, 250, 250, 250])
    assert len(np.unique(train_rows(table))) == 3000
    assert np.array_equal(partition.holdings(table[table["split"] == "test"], test, 60, 10), counts)
    for client in range(60):
        assert len(np.unique(rows(table, "test", client))) == 50


def test_groups_pair_the_large_classes_in_every_way() -> None:
    """Roles are drawn, not turned: over 20 clients more pairs of classes are large than a rotation knows."""
    train = labels(5000)
    table = Groups(dataset="stl10", clients=60, **CP_CFL).split(train, train)
    counts = held(table, train, 60, "train")[:20, :4]
    assert len(np.unique(counts, axis=0)) == 6


@given(
    width=st.integers(1, 5), numbers=st.lists(st.integers(0, 4), min_size=5, max_size=5), seed=st.integers(0, 99)
)  # fmt: skip
@quick
def test_any_counts_meet_every_class_equally_often(width: int, numbers: list[int], seed: int) -> None:
    counts = (*numbers[: width - 1], 6)
    groups = (tuple(range(width)), tuple(range(1, width + 1)))
    scheme = Groups(dataset="toy", clients=2 * 2 * width, groups=groups, counts=counts, seed=seed)
    train = labels(2000)
    found = held(scheme.split(train, train), train, scheme.clients, "train")
    for g, classes in enumerate(groups):
        mine = found[np.array(scheme.true_groups()) == g][:, classes]
        assert (np.sort(mine, axis=1) == sorted(counts)).all()
        for number in set(counts):
            assert np.ptp((mine == number).sum(axis=0)) == 0


def test_groups_are_balanced_in_the_fewest_clients() -> None:
    """Two clients a group suffice for 20/20/5/5: what is large for one is small for the other."""
    train = labels(5000)
    counts = held(Groups(dataset="stl10", clients=6, **CP_CFL).split(train, train), train, 6, "train")
    for g, classes in enumerate(CP_CFL["groups"]):
        assert (counts[2 * g : 2 * g + 2, classes].sum(axis=0) == 25).all()


def test_groups_with_a_test_of_their_own_size() -> None:
    train = labels(5000)
    scheme = Groups(dataset="stl10", clients=60, **CP_CFL, test_counts=(40, 40, 10, 10))
    table = scheme.split(train, train)
    assert np.array_equal(held(table, train, 60, "test"), 2 * held(table, train, 60, "train"))


def test_the_summary_says_what_is_left_over_and_shared() -> None:
    train, test = labels(5000), labels(1000, seed=9)
    scheme = Groups(dataset="stl10", clients=60, **CP_CFL)
    table = scheme.split(train, test)
    facts = partition.summary(scheme, table, train, test)
    tested = rows(table, "test")
    assert facts["train"] == {"images": 3000, "smallest": 50, "median": 50.0, "largest": 50}
    assert facts["left_over"] == {"train": 2000, "test": 1000 - len(np.unique(tested))}
    assert facts["test_images_shared"] == np.count_nonzero(np.bincount(tested) > 1) > 0
    assert facts["classes_per_client"] == 4
    assert facts["label_entropy_bits"] == pytest.approx(-2 * (0.4 * np.log2(0.4) + 0.1 * np.log2(0.1)), abs=1e-6)


def test_unlabelled_images_can_be_dealt_without_labels() -> None:
    train = np.full(100, -1)
    for scheme in (Iid(dataset="toy", clients=5, validation=0.2), Quantity(dataset="toy", clients=5)):
        table = scheme.split(train, labels(50))
        assert len(train_rows(table)) == 100
        assert np.array_equal(np.sort(rows(table, "test")), np.arange(50))
        assert partition.summary(scheme, table, train, labels(50))["left_over"] == {"train": 0, "test": 0}


MANY = {"dataset": "toy", "clients": 20}


@pytest.mark.parametrize(
    ("scheme", "train", "message"),
    [
        (Iid(dataset="toy", clients=50), labels(49), r"clients: 50 clients, but only 49 training images"),
        (Dirichlet(**MANY, beta=0.3), labels(199), r"min_size: 20 clients \(beta 0.3\) of at least 10 .* 200, .* 199"),
        (Quantity(**MANY, min_size=11), labels(219), r"min_size: 20 clients .* at least 11 images need 220, .* 219"),
        (Classes(**MANY, per_client=11), labels(500), r"per_client: 11 classes a client, but only 10 there"),
        (Classes(dataset="toy", clients=3), labels(500), r"per_client: 3 clients of 2 .* all 10; take at least 4"),
        (Classes(**MANY, per_client=5), labels(90), r"clients: class 0 has 9 images for 10 clients"),
        (Shards(**MANY, per_client=5), labels(99), r"per_client: 100 shards of 99 images"),
        (Groups(**MANY, groups=((4, 5),), counts=(20, 20)), labels(3990), r"counts: class 4: 400 asked, 399 there"),
        (Groups(**MANY, groups=((4, 5), (5, 10)), counts=(2, 2)), labels(500), r"groups\[1\]: class 10 is not .*0 to"),
        (Groups(**MANY, groups=((0, -2),), counts=(2, 2)), labels(500), r"groups\[0\]: class -2 is not among the 10"),
        (Dirichlet(**MANY), np.full(500, -1), r"dataset: 500 of the 500 .* toy have no label, which scheme dirichlet"),
        (Shards(**MANY), np.append(labels(499), -1), r"dataset: 1 of the 500 .* use iid or quantity"),
    ],
)  # fmt: skip
def test_the_impossible_is_refused_with_its_numbers(scheme: Scheme, train: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        scheme.split(train, labels(1000))


@pytest.mark.parametrize(("chosen", "field"), [(None, "counts"), ((6, 2), "test_counts")])
def test_a_test_split_too_small_is_refused(chosen: tuple[int, int] | None, field: str) -> None:
    scheme = Groups(**MANY, groups=((4, 5),), counts=(6, 6), test_counts=chosen)
    with pytest.raises(ValueError, match=f"^{field}: class 4: 6 test images asked for a client, 5 there"):
        scheme.split(labels(5000), labels(50))


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"scheme": "iid", "clients": 0}, "clients: 0; take at least 1"),
        ({"scheme": "iid", "seed": -1}, "seed: -1; take at least 0"),
        ({"scheme": "iid", "validation": 1}, "validation: 1.0 of the training images"),
        ({"scheme": "iid", "validation": float("nan")}, "validation: nan is not a finite number"),
        ({"scheme": "iid", "beta": 1.0}, "beta: unknown; known: dataset, clients, seed, validation"),
        ({"scheme": "dirichlet", "beta": 0}, "beta: 0.0; take a number above 0"),
        ({"scheme": "dirichlet", "beta": float("inf")}, "beta: inf is not a finite number"),
        ({"scheme": "dirichlet", "min_size": 0}, "min_size: 0; take at least 1"),
        ({"scheme": "quantity", "beta": -1}, "beta: -1.0; take"),
        ({"scheme": "classes", "per_client": 0}, "per_client: 0 classes a client"),
        ({"scheme": "shards", "per_client": 0}, "per_client: 0 shards a client"),
        ({"scheme": "groups", "counts": [1]}, "groups: missing"),
        ({"scheme": "groups", "groups": [], "counts": [1]}, "groups: none given"),
        ({"scheme": "groups", "groups": [[0, 1], [2]], "counts": [1, 1]}, "groups[1]: 1 classes, but counts gives 2"),
        ({"scheme": "groups", "groups": [[0, 0]], "counts": [1, 1]}, "groups[0]: [0, 0] names a class twice"),
        ({"scheme": "groups", "groups": [[]], "counts": []}, "counts: []; none may be"),
        ({"scheme": "groups", "groups": [[0, 1]], "counts": [-1, 2]}, "counts: [-1, 2]; none may be below 0"),
        ({"scheme": "groups", "groups": [[0]], "counts": [1], "test_counts": [1, 2]}, "test_counts: 2 numbers, but"),
        ({"scheme": "groups", "groups": [[0]], "counts": [1], "test_counts": [0]}, "test_counts: [0]; none may be"),
        ({"scheme": "groups", **CP_CFL, "clients": 50}, "clients: 50 clients cannot give .* take a multiple of 6"),
    ],
)  # fmt: skip
def test_bad_settings_are_refused_at_load(node: dict[str, object], message: str) -> None:
    node = {"dataset": "toy", "clients": 10, **node}
    with pytest.raises(config.ConfigError) as raised:
        config.build(SCHEMES[str(node.pop("scheme"))], node, "partitions.p")
    start, _, end = message.partition(" .* ")
    assert str(raised.value).startswith(f"partitions.p.{start}")
    assert str(raised.value).endswith(end) or not end


def test_a_scheme_is_known_by_its_name() -> None:
    assert list(SCHEMES)[:6] == ["iid", "dirichlet", "classes", "shards", "quantity", "groups"]
    for name, cls in SCHEMES.items():
        assert cls.scheme == name


def test_the_fingerprint_follows_dataset_settings_and_table() -> None:
    train, test = labels(300), labels(100)
    scheme = Dirichlet(dataset="toy", clients=5)
    table = scheme.split(train, test)
    first = partition.fingerprint(scheme, "ab", table)
    assert len(first) == 64
    assert first == partition.fingerprint(scheme, "ab", scheme.split(train, test))
    swapped = table.assign(index=np.roll(table["index"].to_numpy(), 1))
    moved = table.assign(split=table["split"].cat.rename_categories({"train": "validation", "validation": "train"}))
    moved["split"] = moved["split"].cat.set_categories(list(partition.SPLITS))
    others = [
        partition.fingerprint(scheme, "cd", table),
        partition.fingerprint(dataclasses.replace(scheme, min_size=9), "ab", table),
        partition.fingerprint(scheme, "ab", swapped),
        partition.fingerprint(scheme, "ab", moved),
        partition.fingerprint(scheme, "ab", table.assign(labelled=False)),
        partition.fingerprint(scheme, "ab", table.assign(domain=np.int16(1))),
    ]
    assert len({first, *others}) == 7


def test_shards_are_the_tables_rows() -> None:
    """The shards of a table show each client its own images and labels, in the table's order."""
    train, test = labels(300), labels(100)
    sources = {
        "train": Source(torch.arange(300, dtype=torch.int16).view(300, 1, 1, 1), torch.from_numpy(train)),
        "test": Source(torch.arange(100, dtype=torch.int16).view(100, 1, 1, 1), torch.from_numpy(test)),
    }
    unit = torch.ones(1)
    dataset = Dataset("toy", tuple("abcdefghij"), (1, 1, 1), unit, unit, sources, "ab")
    table = Dirichlet(dataset="toy", clients=5, validation=0.2).split(train, test).assign(domain=np.int16(2))
    views = partition.shards(dataset, table)
    assert [view.client for view in views] == [0, 1, 2, 3, 4]
    for view in views:
        assert view.domain == 2
        for split, raw in (("train", train), ("validation", train), ("test", test)):
            mine = rows(table, split, view.client)
            assert np.array_equal(getattr(view, split).images().flatten().numpy(), mine)
            assert np.array_equal(getattr(view, split).labels().numpy(), raw[mine])
