"""Scores of a round over all clients: different means are different numbers, under different names."""

from typing import Any

import torch
from torch import Tensor

from fedcore.cohort import Cohort
from fedcore.method import Method
from fedcore.metrics import Score

Scores = tuple[dict[str, float], dict[str, dict[int, float]]]


def evaluate(method: Method[Any, Any], server: Any, everyone: Cohort[Any], global_test: Cohort[Any] | None) -> Scores:
    """Ask every client of `everyone`, and the pseudo-clients of `global_test`: one for all, or one for each client.

    Returns (metrics, metric -> client -> value).
    `accuracy_client_mean` is the plain mean over clients, `accuracy_weighted` the mean by training size,
    `accuracy_pooled` the share of all clients' test images that are right, `accuracy_global` that on the global test
    set, of personal models their mean. Clients without test images count in none of them.
    """
    score: Score = everyone.map(method.assess, server)
    accuracy = score.correct / score.tested
    per_client = {
        "accuracy": accuracy,
        "loss": score.loss,
        "macro_f1": score.macro_f1,
        "auroc": score.auroc,
        "tested": score.tested,
    }
    metrics = _means(accuracy, score, everyone.sizes)
    if global_test is not None:
        whole: Score = global_test.map(method.assess, server)
        on_global = whole.correct / whole.tested
        metrics["accuracy_global"] = on_global.mean().item()
        if method.personal:
            per_client["accuracy_global"] = on_global
    return metrics, {name: dict(zip(everyone.ids, v.tolist(), strict=True)) for name, v in per_client.items()}


def _means(accuracy: Tensor, score: Score, sizes: Tensor) -> dict[str, float]:
    told = accuracy.isfinite()
    weights = sizes[told]
    means = {
        "accuracy_client_mean": accuracy[told].mean(),
        "accuracy_client_std": accuracy[told].std(correction=0),
        "accuracy_weighted": (accuracy[told] * weights).sum() / weights.sum(),
        "accuracy_pooled": score.correct.sum() / score.tested.sum(),
        "loss_client_mean": score.loss.nanmean(),
        "macro_f1_client_mean": score.macro_f1.nanmean(),
        "auroc_client_mean": score.auroc.nanmean(),
    }
    return {name: torch.as_tensor(value).item() for name, value in means.items()}
