"""Numbers that say how good predictions are."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812


class Score(NamedTuple):
    """One client's predictions against its test labels."""

    tested: Tensor  # 0-d, images
    correct: Tensor  # 0-d, images
    loss: Tensor  # 0-d, mean cross-entropy
    macro_f1: Tensor  # 0-d, over the classes among the labels
    auroc: Tensor  # 0-d, one against the rest, mean over the classes among the labels; NaN with fewer than two


def score(logits: Tensor, labels: Tensor) -> Score:
    """Compare logits (n, K) with labels (n,); without images every mean is NaN.

    A row with a logit that is not finite is no prediction: it is wrong, and loss and AUROC are NaN.
    """
    if not len(labels):
        nan = torch.tensor(torch.nan)
        return Score(torch.tensor(0), torch.tensor(0), nan, nan, nan)
    finite = logits.isfinite().all(1)
    classes = logits.shape[1]
    guess = logits.argmax(1).where(finite, classes)
    diverged = torch.tensor(0.0).where(finite.all(), torch.nan)
    return Score(
        tested=torch.tensor(len(labels)),
        correct=(guess == labels).sum(),
        loss=F.cross_entropy(logits, labels) + diverged,
        macro_f1=macro_f1(guess, labels, classes),
        auroc=auroc(logits.softmax(1), labels) + diverged,
    )


def macro_f1(guess: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Unweighted mean of the F1 scores of the classes that occur in `labels` (n,), 0-d; a guess of K is none."""
    table = confusion(guess, labels, classes + 1, classes)
    hits, present = table.diagonal().float(), table.sum(0)
    f1 = 2 * hits / (table.sum(0) + table.sum(1)[:-1]).clamp(min=1)
    return f1[present > 0].mean()


def auroc(scores: Tensor, labels: Tensor) -> Tensor:
    """Area under the ROC curve, one class against the rest by its column of `scores` (n, K), 0-d.

    Mean over the classes that occur in `labels` (n,); ties count half (the Mann-Whitney statistic).
    """
    present = labels.unique()
    if len(present) < 2:
        return torch.tensor(torch.nan)
    columns = scores[:, present].double().T.contiguous()  # (P, n)
    ordered = columns.sort(dim=1).values
    below = torch.searchsorted(ordered, columns, right=False)
    upto = torch.searchsorted(ordered, columns, right=True)
    ranks = (below + upto + 1) / 2  # mean rank of ties, from 1
    positive = labels == present[:, None]
    n_pos = positive.sum(1)
    n_neg = len(labels) - n_pos
    u = (ranks * positive).sum(1) - n_pos * (n_pos + 1) / 2
    areas: Tensor = u / (n_pos * n_neg)
    return areas.mean().float()


def relevance(a: Tensor, b: Tensor) -> float:
    """Mean cosine similarity of all pairs of rows, a (n, d) and b (m, d); CP-CFL (7) over 300 x 300 images."""
    a, b = (F.normalize(rows.flatten(1).double(), dim=1).mean(0) for rows in (a, b))
    return float(a @ b)


def confusion(row: Tensor, column: Tensor, rows: int, columns: int) -> Tensor:
    """Counts (rows, columns) of pairs from two label vectors (n,)."""
    return torch.bincount(row * columns + column, minlength=rows * columns).view(rows, columns)


def matching(clusters: Tensor, groups: Tensor) -> dict[int, int]:
    """The one-to-one cluster -> group assignment that most pairs of (n,) labels agree with (Hungarian method)."""
    from scipy.optimize import linear_sum_assignment  # slow to import, and every stage reads the methods

    side = int(max(clusters.max(), groups.max())) + 1
    table = confusion(clusters, groups, side, side).numpy()
    rows, columns = linear_sum_assignment(-table)
    return dict(zip(np.asarray(rows).tolist(), np.asarray(columns).tolist(), strict=True))


def recovery(clusters: Tensor, groups: Tensor) -> float:
    """Share of clients whose cluster, under the best matching, is their true group; both (m,)."""
    table = matching(clusters, groups)
    matched = torch.tensor([table[int(c)] for c in clusters])
    return float((matched == groups).double().mean())
