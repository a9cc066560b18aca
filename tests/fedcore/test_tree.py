"""Arithmetic on Params and trees."""

from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedcore import tree
from fedcore.tree import Params


class Pair(NamedTuple):
    a: Params
    n: int


def params(*values: float) -> Params:
    return Params({f"w{i}": torch.tensor([value, 2 * value]) for i, value in enumerate(values)})


def test_arithmetic_is_entry_by_entry() -> None:
    x, y = params(1.0, 2.0), params(3.0, 5.0)
    assert torch.equal((y - x)["w1"], torch.tensor([3.0, 6.0]))
    assert torch.equal((0.5 * (x + y) / 2)["w0"], torch.tensor([1.0, 2.0]))
    assert torch.equal((-x)["w0"], torch.tensor([-1.0, -2.0]))
    assert x.dot(y).item() == 3 + 12 + 10 + 40
    assert params(3.0).norm().item() == pytest.approx(45**0.5)


def test_result_has_the_entries_of_the_left_operand() -> None:
    control = Params(w=torch.ones(2))
    model = Params({"w": torch.full((2,), 3.0), "norm.running_mean": torch.zeros(2)})
    assert list(control - model) == ["w"]
    with pytest.raises(KeyError):
        model - control


def test_trainable_leaves_buffers_out() -> None:
    model = Params(
        {"norm.weight": torch.ones(2), "norm.running_mean": torch.ones(2), "norm.running_var": torch.ones(2)}
    )
    assert list(model.trainable()) == ["norm.weight"]


def test_stack_take_and_map_keep_the_structure() -> None:
    stacked = tree.stack([Pair(params(1.0), 3), Pair(params(2.0), 4)])
    assert isinstance(stacked, Pair)
    assert stacked.a["w0"].shape == (2, 2)
    assert stacked.n.tolist() == [3, 4]
    assert torch.equal(tree.take(stacked, 1).a["w0"], torch.tensor([2.0, 4.0]))
    assert tree.map(lambda leaf: leaf * 2, Pair(params(1.0), 3)).n == 6
    assert tree.stack([None, None]) is None


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=8), st.integers(0, 2**31))
def test_mean_is_the_weighted_mean(weights: list[float], seed: int) -> None:
    rows = torch.randn(len(weights), 4, generator=torch.Generator().manual_seed(seed))
    shares = torch.tensor(weights)
    expected = (rows * (shares / shares.sum())[:, None]).sum(0)
    assert torch.allclose(tree.mean(rows, shares), expected, atol=1e-5)


def test_mean_refuses_weights_without_mass() -> None:
    with pytest.raises(ValueError, match="positive"):
        tree.mean(torch.ones(2, 3), torch.zeros(2))


def test_mean_by_keeps_the_previous_row_of_an_empty_group() -> None:
    rows = torch.tensor([[1.0], [3.0], [9.0]])
    previous = torch.tensor([[7.0], [8.0], [6.0]])
    got = tree.mean_by(rows, torch.tensor([1.0, 3.0, 0.0]), torch.tensor([1, 1, 2]), previous)
    assert got.tolist() == [[7.0], [2.5], [6.0]]


def test_bytes_are_those_of_the_tensors_and_eight_for_a_number() -> None:
    assert tree.nbytes(Pair(params(1.0, 2.0), 3)) == 2 * 2 * 4 + 8
    assert tree.nbytes(None) == 0
