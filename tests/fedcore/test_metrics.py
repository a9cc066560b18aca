"""Metrics against scikit-learn and by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score, roc_auc_score

from fedcore import metrics


@settings(deadline=None)
@given(st.integers(2, 6), st.integers(2, 60), st.integers(0, 2**31))
def test_f1_and_auroc_agree_with_scikit_learn(classes: int, n: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    logits = torch.randn(n, classes, generator=generator).round(decimals=1)  # rounded, so that there are ties
    score = metrics.score(logits, labels)
    present = labels.unique().tolist()
    expected = f1_score(labels, logits.argmax(1), labels=present, average="macro", zero_division=0)
    assert score.macro_f1.item() == pytest.approx(expected, abs=1e-6)
    if len(present) > 1:
        p = logits.softmax(1)
        areas = [roc_auc_score((labels == c).numpy(), p[:, c].numpy()) for c in present]
        assert score.auroc.item() == pytest.approx(sum(areas) / len(areas), abs=1e-6)
    else:
        assert score.auroc.isnan()


def test_no_images_no_numbers() -> None:
    score = metrics.score(torch.zeros(0, 3), torch.zeros(0, dtype=torch.long))
    assert score.tested == 0
    assert math.isnan(score.loss)
    assert math.isnan(score.macro_f1)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_no_prediction(bad: float) -> None:
    logits = torch.eye(3).repeat(2, 1)
    logits[0], logits[3, 1] = bad, bad  # both rows of class 0, which argmax would name
    score = metrics.score(logits, torch.tensor([0, 1, 2, 0, 1, 2]))
    assert (score.tested, score.correct) == (6, 4)
    assert score.macro_f1.item() == pytest.approx(2 / 3)
    assert math.isnan(score.loss)
    assert math.isnan(score.auroc)


def test_recovery_does_not_depend_on_the_names_of_clusters() -> None:
    groups = torch.tensor([0, 0, 1, 1, 2, 2])
    assert metrics.recovery(torch.tensor([2, 2, 0, 0, 1, 1]), groups) == 1.0
    assert metrics.recovery(torch.tensor([2, 2, 0, 0, 0, 1]), groups) == pytest.approx(5 / 6)
    assert metrics.recovery(torch.zeros(6, dtype=torch.long), groups) == pytest.approx(1 / 3)


def test_relevance_is_the_mean_cosine_of_all_pairs() -> None:
    a, b = torch.randn(5, 2, 3), torch.randn(4, 2, 3)
    slow = [torch.cosine_similarity(x.flatten(), y.flatten(), dim=0) for x in a for y in b]
    assert metrics.relevance(a, b) == pytest.approx(torch.stack(slow).mean().item(), abs=1e-6)
