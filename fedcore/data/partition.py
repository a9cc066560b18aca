"""Who holds what: each scheme divides a dataset's images over clients. A scheme's fields are its settings.

A partition is a tidy table, one row an image in a client's hands:

    client   int32     0 .. clients-1
    split    category  train, validation or test
    index    int64     row of the raw split: of `train` for train and validation, of `test` for test
    labelled bool      whether the client may see the label
    domain   int16     transform of the client's images; 0 is none

A new scheme is a dataclass with the method `owners` and an entry in SCHEMES (schemes.py). One that marks images
unlabelled has `deal` too; one that gives clients a domain extends `split`: `super().split(...).assign(domain=...)`.
"""

import hashlib
import json
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from fedcore.data.shards import Dataset, Shard, Split

IntArray = npt.NDArray[np.int64]
Generator = np.random.Generator

SPLITS = ("train", "validation", "test")
TRIES = 100  # draws of a Dirichlet partition before the best of them is repaired

log = logging.getLogger(__name__)


class Dealt(NamedTuple):
    owner: IntArray  # (N,) the client that holds each training image, -1 for none
    labelled: npt.NDArray[np.bool_]  # (N,) whether it may see the label


@dataclass(frozen=True, kw_only=True)
class Scheme(ABC):
    """A way to divide a dataset. Errors are ValueErrors whose message begins with the setting to change."""

    dataset: str
    clients: int
    seed: int = 0
    validation: float = 0.0  # fraction of each client's training images held out, stratified by class

    scheme: ClassVar[str]
    needs_labels: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.clients < 1:
            raise ValueError(f"clients: {self.clients}; take at least 1")
        if self.seed < 0:
            raise ValueError(f"seed: {self.seed}; take at least 0")
        if not 0 <= self.validation < 1:
            raise ValueError(f"validation: {self.validation} of the training images; take at least 0 and less than 1")

    @abstractmethod
    def owners(self, labels: IntArray, rng: Generator) -> IntArray:
        """The client (N,) that holds each training image, -1 for none; labels (N,)."""

    def deal(self, labels: IntArray, rng: Generator) -> Dealt:
        """Who holds which training image, and with its label or without; labels (N,). Default: all with."""
        return Dealt(self.owners(labels, rng), np.ones(len(labels), dtype=np.bool_))

    def examinees(self, owner: IntArray, train: IntArray, test: IntArray, rng: Generator) -> tuple[IntArray, IntArray]:
        """Local tests as pairs (client (t,), row of test (t,)); owner (N,), labels train (N,) and test (M,).

        By default every test image goes to one client, and a client's share of a class is its share of that class in
        training, so that its test has its own mix. Shares are rounded by largest remainder, a client's losses in one
        class carried to the next, so that clients with few images of many classes are tested too. Test images of
        a class that nobody holds (as when training is unlabelled) are shared in proportion to the clients' sizes.
        """
        given = np.zeros(len(test), dtype=np.int64)
        owed = np.zeros(self.clients)
        for label in np.unique(test):
            rows = rng.permutation(np.flatnonzero(test == label))
            held = owner >= 0
            of_class = held & (train == label)
            weights = np.bincount(owner[of_class if of_class.any() else held], minlength=self.clients)
            share = apportion(weights, len(rows), rng, owed)
            owed += weights * len(rows) / weights.sum() - share
            given[rows] = np.repeat(np.arange(self.clients), share)
        return given, np.arange(len(test))

    def true_groups(self) -> list[int] | None:
        """The group that each client belongs to, where the scheme knows groups."""
        return None

    def split(self, train: IntArray, test: IntArray) -> pd.DataFrame:
        """The partition's table, sorted by client, split and index; labels train (N,) and test (M,), -1 unlabelled.

        Raises ValueError, before any work, if the images cannot be divided so.
        """
        if len(train) < self.clients:
            raise ValueError(f"clients: {self.clients} clients, but only {len(train)} training images; lower clients")
        if self.needs_labels and (train < 0).any():
            raise ValueError(
                f"dataset: {np.count_nonzero(train < 0)} of the {len(train)} training images of {self.dataset} have no "
                f"label, which scheme {self.scheme} needs; use iid or quantity"
            )
        # Streams of their own: holding out validation images moves no image from one client to another.
        owner, labelled = self.deal(train, self._stream(0))
        held_out = _held_out(np.where(labelled, owner, -1), train, self.validation, self._stream(1))
        tested, rows = self.examinees(owner, train, test, self._stream(2))
        held = np.flatnonzero(owner >= 0)
        codes = np.concatenate([held_out[held].astype(np.int64), np.full(len(rows), SPLITS.index("test"))])
        table = pd.DataFrame({
            "client": np.concatenate([owner[held], tested]).astype(np.int32),
            "split": pd.Categorical.from_codes(codes, categories=pd.Index(SPLITS)),
            "index": np.concatenate([held, rows]).astype(np.int64),
            "labelled": np.concatenate([labelled[held], np.ones(len(rows), dtype=np.bool_)]),
            "domain": np.int16(0),
        })  # fmt: skip
        return table.sort_values(["client", "split", "index"], ignore_index=True)

    def _stream(self, purpose: int) -> Generator:
        # The constant keeps these draws apart from any other use of the seed: numpy takes (0, 0) for 0, and a dataset
        # shuffled with that same permutation would come back sorted.
        return np.random.default_rng((self.seed, purpose, 0xFEDC))


@dataclass(frozen=True, kw_only=True)
class Iid(Scheme):
    """Every client a random sample of the same size, give or take one image."""

    scheme: ClassVar[str] = "iid"
    needs_labels: ClassVar[bool] = False

    def owners(self, labels: IntArray, rng: Generator) -> IntArray:
        return rng.permutation(np.arange(len(labels)) % self.clients)


@dataclass(frozen=True, kw_only=True)
class Dirichlet(Scheme):
    """Label skew: each class is divided over the clients in shares drawn from Dir(beta)."""

    beta: float = 0.5  # FedProc's CIFAR-10 setting; smaller is more skewed
    min_size: int = 10  # fewest training images of a client, validation included; FedProc's and FedDCN's code
    cap: bool = False  # give no more classes to a client that holds its N/m images or more; FedProc's code does

    scheme: ClassVar[str] = "dirichlet"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_skew(self.beta, self.min_size)

    def owners(self, labels: IntArray, rng: Generator) -> IntArray:
        classes, totals = np.unique(labels, return_counts=True)
        check_supply(len(labels), self.clients, self.beta, self.min_size)
        counts = large_enough(lambda: drawn(totals, self.clients, self.beta, self.cap, rng), self.min_size, rng)
        return dealt(labels, classes, counts, rng)


@dataclass(frozen=True, kw_only=True)
class Quantity(Scheme):
    """Quantity skew: client sizes in shares drawn from Dir(beta), every client a random sample."""

    beta: float = 0.5
    min_size: int = 10  # fewest training images of a client, validation included

    scheme: ClassVar[str] = "quantity"
    needs_labels: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_skew(self.beta, self.min_size)

    def owners(self, labels: IntArray, rng: Generator) -> IntArray:
        check_supply(len(labels), self.clients, self.beta, self.min_size)
        whole = np.array([len(labels)])
        counts = large_enough(lambda: drawn(whole, self.clients, self.beta, False, rng), self.min_size, rng)
        return rng.permutation(np.repeat(np.arange(self.clients), counts[0]))


@dataclass(frozen=True, kw_only=True)
class Classes(Scheme):
    """Every client holds `per_client` classes; a class is divided evenly over the clients that hold it."""

    per_client: int = 2

    scheme: ClassVar[str] = "classes"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per_client < 1:
            raise ValueError(f"per_client: {self.per_client} classes a client; take at least 1")

    def owners(self, labels: IntArray, rng: Generator) -> IntArray:
        classes, totals = np.unique(labels, return_counts=True)
        if self.per_client > len(classes):
            raise ValueError(f"per_client: {self.per_client} classes a client, but only {len(classes)} there; lower it")
        if self.clients * self.per_client < len(classes):
            raise ValueError(
                f"per_client: {self.clients} clients of {self.per_client} classes cannot hold all {len(classes)}; "
                f"take at least {math.ceil(len(classes) / self.clients)}, or more clients"
            )
        holds = holders(len(classes), self.clients, self.per_client, rng)
        for label, total, number in zip(classes, totals, holds.sum(axis=1), strict=True):
            if total < number:
                raise ValueError(f"clients: class {label} has {total} images for {number} clients; lower clients")
        counts = np.stack([apportion(row, total, rng) for row, total in zip(holds, totals, strict=True)])
        return dealt(labels, classes, counts, rng)


@dataclass(frozen=True, kw_only=True)
class Shards(Scheme):
    """Images sorted by label and cut into clients x per_client shards, dealt at random (McMahan et al., 2017)."""

    per_client: int = 2  # as in their MNIST experiment

    scheme: ClassVar[str] = "shards"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per_client < 1:
            raise ValueError(f"per_client: {self.per_client} shards a client; take at least 1")

    def owners(self, labels: IntArray, rng: Generator) -> IntArray:
        shards = self.clients * self.per_client
        if len(labels) < shards:
            raise ValueError(f"per_client: {shards} shards of {len(labels)} images; lower per_client or clients")
        by_label = np.lexsort((rng.random(len(labels)), labels))
        holder = rng.permutation(np.arange(shards) % self.clients)
        owner = np.empty(len(labels), dtype=np.int64)
        owner[by_label] = holder[np.arange(len(labels)) * shards // len(labels)]
        return owner


@dataclass(frozen=True, kw_only=True)
class Groups(Scheme):
    """Groups of clients, each with its own classes (CP-CFL, arXiv 2311.16535); the rest of the images stays unused.

    Clients belong to groups in equal, consecutive blocks. A client takes the numbers of `counts` for its group's
    classes in an order of its own, and within a group every class meets every number equally often (balanced roles):
    so 60 clients need no more than the 500 images that STL-10 has of a class. Local tests have the client's mix, drawn
    without replacement for a client; two clients may share test images.
    """

    groups: tuple[tuple[int, ...], ...]
    counts: tuple[int, ...]  # training images of a client by class, validation included; the paper's 20, 20, 5, 5
    test_counts: tuple[int, ...] | None = None  # likewise of its test; the paper does not say, None takes `counts`

    scheme: ClassVar[str] = "groups"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.groups:
            raise ValueError("groups: none given; list the classes of each group")
        for i, group in enumerate(self.groups):
            if len(group) != len(self.counts):
                raise ValueError(f"groups[{i}]: {len(group)} classes, but counts gives {len(self.counts)} numbers")
            if len(set(group)) != len(group):
                raise ValueError(f"groups[{i}]: {list(group)} names a class twice; name each once")
        for name, counts in (("counts", self.counts), ("test_counts", self._tests())):
            if len(counts) != len(self.counts):
                raise ValueError(f"{name}: {len(counts)} numbers, but counts gives {len(self.counts)}")
            if min(counts, default=0) < 0 or sum(counts) == 0:
                raise ValueError(f"{name}: {list(counts)}; none may be below 0, and one must be above")
        unit = len(self.groups) * len(self.counts) // self._turn()
        if self.clients % unit:
            raise ValueError(
                f"clients: {self.clients} clients cannot give every class of {len(self.groups)} groups the counts "
                f"{list(self.counts)} equally often; take a multiple of {unit}"
            )

    def owners(self, labels: IntArray, rng: Generator) -> IntArray:
        known, totals = np.unique(labels, return_counts=True)
        self._check_classes(known)
        counts = self._images(self.counts, known)
        for label, asked, there in zip(known, counts.sum(axis=1), totals, strict=True):
            if asked > there:
                raise ValueError(f"counts: class {label}: {asked} asked, {there} there; lower counts or clients")
        return dealt(labels, known, counts, rng)

    def examinees(self, owner: IntArray, train: IntArray, test: IntArray, rng: Generator) -> tuple[IntArray, IntArray]:
        field = "counts" if self.test_counts is None else "test_counts"
        known = np.unique(train)
        counts = self._images(self._tests(), known)
        clients, rows = [], []
        for label, asked in zip(known, counts, strict=True):
            there = np.flatnonzero(test == label)
            if asked.max() > len(there):
                raise ValueError(
                    f"{field}: class {label}: {asked.max()} test images asked for a client, {len(there)} there; "
                    "set lower test_counts"
                )
            for client in np.flatnonzero(asked):
                rows.append(rng.permutation(there)[: asked[client]])
                clients.append(np.full(asked[client], client))
        return np.concatenate(clients), np.concatenate(rows)

    def true_groups(self) -> list[int]:
        return [client * len(self.groups) // self.clients for client in range(self.clients)]

    def _tests(self) -> tuple[int, ...]:
        return self.counts if self.test_counts is None else self.test_counts

    def _turn(self) -> int:
        """How far roles may be turned at a time so that a full turn is balanced and as short as can be."""
        return math.gcd(*(self.counts.count(number) for number in set(self.counts)))

    def _check_classes(self, known: IntArray) -> None:
        for i, group in enumerate(self.groups):
            for label in set(group) - set(known.tolist()):
                raise ValueError(
                    f"groups[{i}]: class {label} is not among the {len(known)} classes of {self.dataset} "
                    f"({known.min()} to {known.max()}); name others"
                )

    def _images(self, numbers: Sequence[int], known: IntArray) -> IntArray:
        """How many images of each class each client takes (classes, clients), `numbers` being dealt by role."""
        counts = np.zeros((len(known), self.clients), dtype=np.int64)
        roles = self._roles()
        for client, group in enumerate(self.true_groups()):
            counts[np.searchsorted(known, self.groups[group]), client] = np.asarray(numbers)[roles[client]]
        return counts

    def _roles(self) -> IntArray:
        """Positions in `counts` for the classes of each client's group, (clients, classes of a group).

        With the numbers in sorted order, each fills a run whose length is a multiple of the turn; turned step by step
        all the way round, every place meets every number equally often. Each such round has its own random classes.
        """
        rng, width, turn = self._stream(3), len(self.counts), self._turn()
        ranked = np.argsort(self.counts, kind="stable")
        rounds = np.stack([np.roll(ranked, step) for step in range(0, width, turn)])
        size = self.clients // len(self.groups)
        blocks = []
        for _ in self.groups:
            turned = [rounds[:, rng.permutation(width)] for _ in range(size // len(rounds))]
            blocks.append(rng.permutation(np.concatenate(turned)))
        return np.concatenate(blocks)


def holders(classes: int, clients: int, per_client: int, rng: Generator) -> IntArray:
    """Which client holds which class, (classes, clients) of 0 and 1, every client as many."""
    holds = np.zeros((classes, clients), dtype=np.int64)
    for client in range(clients):
        # The classes with the fewest holders so far, ties by lot: in the end all have as many, give or take one.
        rarest = np.lexsort((rng.random(classes), holds.sum(axis=1)))
        holds[rarest[:per_client], client] = 1
    return holds


def apportion(weights: IntArray, total: int, rng: Generator, owed: npt.NDArray[np.float64] | None = None) -> IntArray:
    """`total` things divided in proportion to whole weights (n,) by largest remainder, ties by lot.

    A weight of 0 gets nothing. `owed` (n,) raises or lowers the remainders, by less or more than one.
    """
    share, rest = np.divmod(weights * total, weights.sum())
    rank = np.where(rest > 0, rest / weights.sum() + (0 if owed is None else owed), -np.inf)
    share[np.lexsort((rng.random(len(weights)), -rank))[: total - share.sum()]] += 1
    return share


def _held_out(owner: IntArray, labels: IntArray, fraction: float, rng: Generator) -> npt.NDArray[np.bool_]:
    """Which images (N,) their clients hold out: each class in proportion, never a client's last image."""
    held_out = np.zeros(len(owner), dtype=np.bool_)
    if fraction == 0:
        return held_out
    for client in range(owner.max() + 1):
        rows = rng.permutation(np.flatnonzero(owner == client))
        classes, totals = np.unique(labels[rows], return_counts=True)
        wanted = apportion(totals, min(round(fraction * len(rows)), len(rows) - 1), rng)
        for label, number in zip(classes, wanted, strict=True):
            held_out[rows[labels[rows] == label][:number]] = True
    return held_out


def dealt(labels: IntArray, classes: IntArray, counts: IntArray, rng: Generator) -> IntArray:
    """Owners (N,) that give client j counts[k, j] random images of classes[k]; what is left over has the owner -1."""
    owner = np.full(len(labels), -1, dtype=np.int64)
    for label, row in zip(classes, counts, strict=True):
        images = rng.permutation(np.flatnonzero(labels == label))
        owner[images[: row.sum()]] = np.repeat(np.arange(len(row)), row)
    return owner


def check_skew(beta: float, min_size: int) -> None:
    if not 0 < beta < math.inf:
        raise ValueError(f"beta: {beta}; take a number above 0")
    if min_size < 1:
        raise ValueError(f"min_size: {min_size}; take at least 1")


def check_supply(images: int, clients: int, beta: float, min_size: int) -> None:
    if images < clients * min_size:
        raise ValueError(
            f"min_size: {clients} clients (beta {beta}) of at least {min_size} images need {clients * min_size}, "
            f"but there are {images}; lower min_size or clients"
        )


def large_enough(draw: Callable[[], IntArray], min_size: int, rng: Generator) -> IntArray:
    """Counts (classes, clients) from `draw`, every client with min_size images or more.

    Drawn anew until the smallest client is large enough; after TRIES draws the best one is repaired.
    """
    best = draw()
    for _ in range(TRIES - 1):
        if best.sum(axis=0).min() >= min_size:
            return best
        best = max(best, draw(), key=lambda counts: int(counts.sum(axis=0).min()))
    return _repaired(best, min_size, rng)


def drawn(totals: IntArray, clients: int, beta: float, cap: bool, rng: Generator) -> IntArray:
    """One draw of counts (classes, clients), each class's total in shares from Dir(beta)."""
    counts = np.zeros((len(totals), clients), dtype=np.int64)
    for label, total in enumerate(totals):
        full = cap & (counts.sum(axis=0) * clients >= totals.sum())
        # A Dirichlet draw with some entries put to zero and renormalised is a Dirichlet draw over the others.
        takers = np.flatnonzero(~full)
        ends = np.rint(np.cumsum(rng.dirichlet(np.full(len(takers), beta))) * total).astype(np.int64)
        ends[-1] = total
        counts[label, takers] = np.diff(ends, prepend=0)
    return counts


def _repaired(counts: IntArray, min_size: int, rng: Generator) -> IntArray:
    """The largest client gives the smallest one random images until everybody has min_size."""
    counts, sizes, moved = counts.copy(), counts.sum(axis=0), 0
    while sizes.min() < min_size:
        giver, taker = sizes.argmax(), sizes.argmin()
        label = rng.choice(len(counts), p=counts[:, giver] / sizes[giver])
        counts[label, [giver, taker]] += (-1, 1)
        sizes[[giver, taker]] += (-1, 1)
        moved += 1
    if moved:
        log.warning(
            "min_size: no draw in %d gave every client %d images; %d moved from the largest", TRIES, min_size, moved
        )
    return counts


def holdings(table: pd.DataFrame, labels: IntArray, clients: int, classes: int) -> IntArray:
    """Images of each class in each client's hands (clients, classes), unlabelled ones not counted.

    `table` has rows of one raw split only, whose labels are (N,).
    """
    own, client = labels[table["index"].to_numpy()], table["client"].to_numpy()
    counts = np.zeros((clients, classes), dtype=np.int64)
    np.add.at(counts, (client[own >= 0], own[own >= 0]), 1)
    return counts


def label_entropy(counts: IntArray) -> npt.NDArray[np.float64]:
    """Entropy in bits (clients,) of each client's labels; counts (clients, classes)."""
    p = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return np.asarray(-(p * np.log2(np.where(p > 0, p, 1))).sum(axis=1))


def summary(scheme: Scheme, table: pd.DataFrame, train: IntArray, test: IntArray) -> dict[str, Any]:
    """Numbers that describe a partition; labels train (N,) and test (M,). What is left over or shared is said."""
    facts: dict[str, Any] = {}
    for name in SPLITS:
        rows = table.loc[table["split"] == name]
        sizes = np.bincount(rows["client"], minlength=scheme.clients)
        facts[name] = {
            "images": len(rows),
            "smallest": int(sizes.min()),
            "median": float(np.median(sizes)),
            "largest": int(sizes.max()),
        }
    facts["unlabelled"] = int((~table["labelled"]).sum())
    tested = table.loc[table["split"] == "test", "index"]
    facts["left_over"] = {
        "train": len(train) - facts["train"]["images"] - facts["validation"]["images"],
        "test": len(test) - tested.nunique(),
    }
    facts["test_images_shared"] = int((tested.value_counts() > 1).sum())
    counts = holdings(table[table["split"] != "test"], train, scheme.clients, int(train.max(initial=-1)) + 1)
    facts["label_entropy_bits"] = round(float(label_entropy(counts).mean()), 6)
    facts["classes_per_client"] = float(np.count_nonzero(counts, axis=1).mean())
    return facts


def spec(scheme: Scheme) -> dict[str, Any]:
    """The scheme and all its settings, defaults included."""
    return {"scheme": scheme.scheme, **asdict(scheme)}


def fingerprint(scheme: Scheme, dataset_fingerprint: str, table: pd.DataFrame) -> str:
    """SHA-256 in hex of the dataset, the settings and the table's content (its file's format may change)."""
    digest = hashlib.sha256(json.dumps([dataset_fingerprint, spec(scheme)], sort_keys=True).encode())
    for name, kind in (("client", "<i4"), ("index", "<i8"), ("labelled", "?"), ("domain", "<i2")):
        digest.update(table[name].to_numpy().astype(kind).tobytes())
    digest.update(table["split"].cat.codes.to_numpy().astype("i1").tobytes())
    return digest.hexdigest()


def shards(dataset: Dataset, table: pd.DataFrame) -> list[Shard]:
    """The clients' views of the dataset, in order of their ids."""
    raw = {"train": dataset.splits["train"], "validation": dataset.splits["train"], "test": dataset.splits["test"]}
    views = []
    for _, rows in table.groupby("client", sort=True):
        known = {
            name: rows.loc[(rows["split"] == name) & rows["labelled"], "index"].to_numpy(copy=True) for name in SPLITS
        }
        own = {name: Split(raw[name], torch.from_numpy(index)) for name, index in known.items()}
        bare = torch.from_numpy(rows.loc[~rows["labelled"], "index"].to_numpy(copy=True))
        client, domain = (int(rows[column].iloc[0]) for column in ("client", "domain"))
        unlabelled = Split(raw["train"], bare, hidden=True)
        views.append(Shard(client, own["train"], own["validation"], own["test"], domain, unlabelled))
    return views
