"""Losses against slow loops written from their equations, and by hand."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fedcore import losses


def similarity(u: Tensor, v: Tensor) -> float:
    return float(u @ v / (u.norm() * v.norm()))


def slow_nt_xent(a: Tensor, b: Tensor, temperature: float) -> float:
    """Equation (8): over all 2B views i with their positives j, the mean of

    l(i, j) = -log( exp(Sim(z_i, z_j) / tau) / sum over k != i of exp(Sim(z_i, z_k) / tau) ).

    The views of image number n are rows n of `a` and of `b`.
    """
    z, count = [*a, *b], len(a)
    total = 0.0
    for i, anchor in enumerate(z):
        j = i + count if i < count else i - count
        others = sum(math.exp(similarity(anchor, z[k]) / temperature) for k in range(len(z)) if k != i)
        total -= math.log(math.exp(similarity(anchor, z[j]) / temperature) / others)
    return total / len(z)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 6), st.integers(1, 5), st.sampled_from([0.1, 0.5, 1.0]), st.integers(0, 2**31))
def test_nt_xent_is_the_double_loop(count: int, width: int, temperature: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    a, b = torch.randn(2, count, width, generator=generator, dtype=torch.float64)
    expected = slow_nt_xent(a, b, temperature)
    assert losses.nt_xent(a, b, temperature).item() == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_nt_xent_of_two_images_by_hand() -> None:
    """Image 1 has views e1, e1; image 2 has views e2, e2; tau = 1. Each view sees its positive at cosine 1 and two
    negatives at cosine 0, so all four terms are -log(e / (e + 1 + 1)) = log(1 + 2/e) = 0.551445."""
    e = torch.eye(2)
    assert losses.nt_xent(e, e, 1.0).item() == pytest.approx(math.log(1 + 2 / math.e))


def test_nt_xent_of_swapped_views_by_hand() -> None:
    """The same four vectors paired wrongly: every positive is at cosine 0, of the negatives one is at 1 and one at 0,
    so with tau = 1/2 all four terms are -log(1 / (1 + e^2 + 1)) = log(2 + e^2)."""
    e = torch.eye(2)
    assert losses.nt_xent(e, e.flip(0), 0.5).item() == pytest.approx(math.log(2 + math.e**2))


def test_nt_xent_of_one_image_is_zero() -> None:
    """Without negatives the positive is the only candidate: -log(1) = 0. Itself must not be one."""
    assert losses.nt_xent(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.6, 0.8]]), 0.1).item() == 0


def test_nt_xent_does_not_depend_on_lengths() -> None:
    a, b = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    lengths = torch.linspace(0.1, 50, 5)[:, None]
    assert torch.allclose(losses.nt_xent(a * lengths, b * 7, 0.1), losses.nt_xent(a, b, 0.1), atol=1e-5)


def test_nt_xent_pulls_on_both_views() -> None:
    a, b = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    a.requires_grad_()
    b.requires_grad_()
    losses.nt_xent(a, b, 0.1).backward()
    assert a.grad is not None
    assert b.grad is not None
    assert torch.all(a.grad.norm(dim=1) > 0)
    assert torch.all(b.grad.norm(dim=1) > 0)


def test_losses_count_in_float32() -> None:
    a, b = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert losses.nt_xent(a, b, 0.1).dtype == losses.negative_cosine(a, b).dtype == torch.float32


def test_negative_cosine_by_hand() -> None:
    """Rows (3, 4) and (1, 0): cosine 3/5. Rows (0, 2) and (0, -5): cosine -1. Minus the mean: -(3/5 - 1) / 2 = 0.2."""
    q = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    z = torch.tensor([[1.0, 0.0], [0.0, -5.0]])
    assert losses.negative_cosine(q, z).item() == pytest.approx(0.2)


def test_negative_cosine_stops_the_gradient_into_z() -> None:
    """d/dq of -Sim(q, z) at q = (1, 0), z = (0, 1): -(z - Sim q) / |q| = (0, -1)."""
    q = torch.tensor([[1.0, 0.0]], requires_grad=True)
    z = torch.tensor([[0.0, 1.0]], requires_grad=True)
    losses.negative_cosine(q, z).backward()
    assert z.grad is None
    assert q.grad is not None
    assert torch.allclose(q.grad, torch.tensor([[0.0, -1.0]]))
