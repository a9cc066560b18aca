"""Partitions with few labelled images a client and many unlabelled ones, whose classes need not be the same.

Wang et al., Fed-SHVR's settings (docs/methods.md): labelled images first, of `labelled_classes` classes a client, then
the unlabelled ones as each scheme says. What stays with nobody is left over.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from fedcore.data.partition import (
    Dealt,
    Generator,
    IntArray,
    Scheme,
    apportion,
    check_skew,
    check_supply,
    dealt,
    drawn,
    holders,
    large_enough,
)

FitTable = npt.NDArray[np.float64]
TINY = 1e-12  # a class or a client that gets nothing
SWEEPS = 2000  # of proportional fitting; Dir(0.1) needs some hundred


@dataclass(frozen=True, kw_only=True)
class Semi(Scheme):
    labelled: int = 60  # labelled images of a client, validation included; Fed-SHVR's MNIST
    labelled_classes: int | None = None  # classes that they are of, evenly; None: all
    unlabelled: int | None = None  # unlabelled images of a client, in the mean; None: all that are left

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.labelled < 1:
            raise ValueError(f"labelled: {self.labelled} labelled images a client; take at least 1")
        if self.labelled_classes is not None and self.labelled_classes < 1:
            raise ValueError(f"labelled_classes: {self.labelled_classes}; take at least 1, or leave it out for all")
        if self.unlabelled is not None and self.unlabelled < 1:
            raise ValueError(f"unlabelled: {self.unlabelled} a client; take at least 1, or leave it out for all")

    def deal(self, labels: IntArray, rng: Generator) -> Dealt:
        classes, totals = np.unique(labels, return_counts=True)
        wanted = len(classes) if self.labelled_classes is None else self.labelled_classes
        if wanted > len(classes):
            raise ValueError(f"labelled_classes: {wanted} classes a client, but only {len(classes)} there; lower it")
        holds = holders(len(classes), self.clients, wanted, rng)
        counts = np.stack([apportion(column, self.labelled, rng) for column in holds.T], axis=1)
        self._check("labelled", counts, classes, totals)
        owner = dealt(labels, classes, counts, rng)
        known = owner >= 0
        rest = totals - counts.sum(axis=1)
        if self.unlabelled is not None:
            total = self.unlabelled * self.clients
            if total > rest.sum():
                raise ValueError(f"unlabelled: {total} for {self.clients} clients, {rest.sum()} are left; lower it")
        more = self.unlabelled_counts(rest, holds, rng)
        self._check("unlabelled", more, classes, rest)
        owner = np.where(known, owner, dealt(np.where(known, -1, labels), classes, more, rng))
        return Dealt(owner, known)

    def owners(self, labels: IntArray, rng: Generator) -> IntArray:
        return self.deal(labels, rng).owner

    @abstractmethod
    def unlabelled_counts(self, totals: IntArray, holds: IntArray, rng: Generator) -> IntArray:
        """Unlabelled images (classes, clients) of each class for each client.

        `totals` (classes,) are there, and client j has labels of class k where `holds` (classes, clients) is 1.
        """

    def _wanted(self, totals: IntArray, rng: Generator) -> IntArray:
        """How many of each class (classes,) are dealt: all, or `unlabelled` a client, each class in proportion."""
        if self.unlabelled is None:
            return totals
        return apportion(totals, self.unlabelled * self.clients, rng)

    def _check(self, setting: str, counts: IntArray, classes: IntArray, totals: IntArray) -> None:
        short = np.flatnonzero(counts.sum(axis=1) > totals)
        if len(short):
            k = short[0]
            raise ValueError(
                f"{setting}: the clients need {counts[k].sum()} images of class {classes[k]}, {totals[k]} are there; "
                "lower it, or take fewer clients"
            )


@dataclass(frozen=True, kw_only=True)
class SemiIid(Semi):
    """Unlabelled images at random, every client as many, give or take one."""

    scheme: ClassVar[str] = "semi_iid"

    def unlabelled_counts(self, totals: IntArray, holds: IntArray, rng: Generator) -> IntArray:
        wanted = self._wanted(totals, rng)
        pile = rng.permutation(np.repeat(np.arange(len(totals)), wanted))
        counts = np.zeros(holds.shape, dtype=np.int64)
        np.add.at(counts, (pile, np.arange(len(pile)) % self.clients), 1)
        return counts


@dataclass(frozen=True, kw_only=True)
class SemiDirichlet(Semi):
    """Each class of unlabelled images is divided in shares drawn from Dir(beta): sizes differ widely."""

    beta: float = 0.1  # Fed-SHVR's MNIST; 0.025 on its CIFAR-10
    min_size: int = 32  # fewest unlabelled images of a client; Fed-SHVR's batch

    scheme: ClassVar[str] = "semi_dirichlet"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_skew(self.beta, self.min_size)

    def unlabelled_counts(self, totals: IntArray, holds: IntArray, rng: Generator) -> IntArray:
        wanted = self._wanted(totals, rng)
        check_supply(int(wanted.sum()), self.clients, self.beta, self.min_size)
        return large_enough(lambda: drawn(wanted, self.clients, self.beta, False, rng), self.min_size, rng)


@dataclass(frozen=True, kw_only=True)
class SemiMixture(Semi):
    """Every client its own mixture of classes from Dir(beta), and sizes that differ little.

    With Dir(0.1) class by class no draw in thousands gives the local steps that Fed-SHVR's paper reports (270 to 500);
    mixtures and sizes fitted to what there is (iterative proportional fitting) do.
    """

    beta: float = 0.1
    smallest: float = 0.7273  # smallest client, as a multiple of the mean size; 270 of 371 steps
    largest: float = 1.347  # 500 of 371

    scheme: ClassVar[str] = "semi_mixture"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_skew(self.beta, 1)
        if not 0 < self.smallest <= 1 <= self.largest:
            raise ValueError(f"smallest: {self.smallest} and largest {self.largest} must lie around 1, the mean size")

    def unlabelled_counts(self, totals: IntArray, holds: IntArray, rng: Generator) -> IntArray:
        wanted = self._wanted(totals, rng)
        if wanted.sum() < self.clients:
            raise ValueError(f"clients: {self.clients} clients, {wanted.sum()} unlabelled images; lower clients")
        sizes = self._sizes(int(wanted.sum()), rng)
        mixtures = rng.dirichlet(np.full(len(totals), self.beta), self.clients).T
        return rounded(fitted(mixtures + 1e-6, wanted, sizes), wanted, sizes)

    def _sizes(self, total: int, rng: Generator) -> IntArray:
        """Client sizes (clients,) between the bounds that sum to `total`."""
        mean = total / self.clients
        sizes = rng.uniform(self.smallest, self.largest, self.clients) * mean
        for _ in range(100):
            sizes = np.clip(sizes + (total - sizes.sum()) / self.clients, self.smallest * mean, self.largest * mean)
        whole = np.floor(sizes).astype(np.int64)
        whole[np.argsort(whole - sizes, kind="stable")[: total - whole.sum()]] += 1
        return whole


@dataclass(frozen=True, kw_only=True)
class SemiMismatch(Semi):
    """A fixed share of a client's unlabelled images is of classes that it has no label of, evenly over each side."""

    labelled: int = 100
    labelled_classes: int | None = 6
    unlabelled: int | None = 500
    mismatch: float = 0.5  # ρ

    scheme: ClassVar[str] = "semi_mismatch"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.mismatch <= 1:
            raise ValueError(f"mismatch: {self.mismatch} is not in [0, 1]")
        if self.unlabelled is None:
            raise ValueError("unlabelled: say how many unlabelled images a client has")
        if self.labelled_classes is None:
            raise ValueError("labelled_classes: say how many classes a client has labels of")

    def unlabelled_counts(self, totals: IntArray, holds: IntArray, rng: Generator) -> IntArray:
        assert self.unlabelled is not None
        foreign = int(self.mismatch * self.unlabelled + 0.5)
        if foreign and (holds.sum(axis=0) == len(holds)).any():
            raise ValueError("mismatch: every class has labels, none is left to differ; lower labelled_classes")
        columns = []
        for own in holds.T:
            column = apportion(own, self.unlabelled - foreign, rng)
            columns.append(column + apportion(1 - own, foreign, rng) if foreign else column)
        return np.stack(columns, axis=1)


def fitted(table: FitTable, rows: IntArray, columns: IntArray) -> FitTable:
    """`table` (r, c) above zero with its rows and columns scaled in turn until they sum to `rows` and `columns`."""
    for _ in range(SWEEPS):
        table = table * (rows / np.maximum(table.sum(axis=1), TINY))[:, None]
        table = table * (columns / np.maximum(table.sum(axis=0), TINY))
        if np.abs(table.sum(axis=1) - rows).max() < 0.01:
            break
    return table


def rounded(table: FitTable, rows: IntArray, columns: IntArray) -> IntArray:
    """Whole numbers near `table` (r, c) whose rows and columns sum exactly to `rows` and `columns`."""
    whole = np.floor(table).astype(np.int64)
    for k in range(len(rows)):  # fitted rows may be a little too full
        whole[k, np.argmax(whole[k])] -= max(0, whole[k].sum() - rows[k])
    for j in range(len(columns)):
        whole[np.argmax(whole[:, j]), j] -= max(0, whole[:, j].sum() - columns[j])
    order = np.argsort(whole - table, axis=None, kind="stable")
    for once in (True, False):
        for k, j in zip(*np.unravel_index(order, table.shape), strict=True):
            missing = min(rows[k] - whole[k].sum(), columns[j] - whole[:, j].sum())
            whole[k, j] += min(missing, 1) if once else missing
    return whole
