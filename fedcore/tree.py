"""Arithmetic on what travels: `Params`, and trees of tensors built of NamedTuples, tuples, lists and dicts."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

T = TypeVar("T")


class Params(dict[str, Tensor]):
    """A model's parameters and floating-point buffers by name.

    `a + b`, `a - b`, `a * b`, `a / b` work entry by entry, `b` being Params, a number or a 0-d tensor. The result has
    the entries of the left operand, so `c + (x - y)` keeps to the entries of a control variate `c` that covers the
    trainable ones alone. Raises KeyError if the right operand lacks one of them.
    """

    def _each(self, other: "Params | Tensor | float", op: Callable[[Any, Any], Tensor]) -> "Params":
        if isinstance(other, Params):
            return Params({name: op(value, other[name]) for name, value in self.items()})
        return Params({name: op(value, other) for name, value in self.items()})

    def __add__(self, other: "Params | Tensor | float") -> "Params":
        return self._each(other, torch.add)

    def __sub__(self, other: "Params | Tensor | float") -> "Params":
        return self._each(other, torch.sub)

    def __mul__(self, other: "Params | Tensor | float") -> "Params":
        return self._each(other, torch.mul)

    def __truediv__(self, other: "Params | Tensor | float") -> "Params":
        return self._each(other, torch.div)

    def __rmul__(self, other: "Tensor | float") -> "Params":
        return self * other

    def __neg__(self) -> "Params":
        return self * -1.0

    def dot(self, other: "Params") -> Tensor:
        """Inner product over all entries, 0-d."""
        return torch.stack([(value * other[name]).sum() for name, value in self.items()]).sum()

    def norm(self) -> Tensor:
        """Euclidean norm over all entries, 0-d."""
        return self.dot(self).sqrt()

    def distance2(self, other: "Params") -> Tensor:
        """Squared Euclidean distance over these entries, 0-d."""
        return torch.cat([(value - other[name]).flatten() for name, value in self.items()]).square().sum()

    def zeros(self) -> "Params":
        """The same entries, all zero."""
        return Params({name: torch.zeros_like(value) for name, value in self.items()})

    def clone(self) -> "Params":
        """Detached copies of all entries."""
        return Params({name: value.detach().clone() for name, value in self.items()})

    def under(self, prefix: str) -> "Params":
        """The entries whose name starts with `prefix`, under their whole names."""
        return Params({name: value for name, value in self.items() if name.startswith(prefix)})

    def trainable(self) -> "Params":
        """The parameters, without the buffers, which PyTorch's normalisation layers call `running_...`."""
        return Params({name: value for name, value in self.items() if not is_buffer(name)})

    def buffers(self) -> "Params":
        """The buffers, without the parameters."""
        return Params({name: value for name, value in self.items() if is_buffer(name)})

    def replace(self, other: "Params") -> "Params":
        """These entries, those of `other` in place of the ones of the same name."""
        return Params({name: other.get(name, value) for name, value in self.items()})


def is_buffer(name: str) -> bool:
    return name.rpartition(".")[2].startswith("running_")


def map(function: Callable[[Any], Any], tree: T) -> T:
    """Apply `function` to every leaf (whatever is no container), keeping the containers."""
    if isinstance(tree, Params):
        return cast(T, Params({key: function(value) for key, value in tree.items()}))
    if isinstance(tree, dict):
        return cast(T, {key: map(function, value) for key, value in tree.items()})
    if isinstance(tree, tuple | list):
        return cast(T, _like(tree, [map(function, value) for value in tree]))
    return cast(T, function(tree))


def leaves(tree: object) -> Iterator[Any]:
    """Every leaf, in the order of the containers."""
    if isinstance(tree, dict):
        for value in tree.values():
            yield from leaves(value)
    elif isinstance(tree, tuple | list):
        for value in tree:
            yield from leaves(value)
    else:
        yield tree


def _like(container: tuple[Any, ...] | list[Any], values: list[Any]) -> Any:
    if hasattr(container, "_fields"):
        return type(container)(*values)
    return type(container)(values)


def stack(trees: Sequence[T]) -> T:
    """Trees of one structure as one tree whose leaves have a leading axis (m, ...); numbers become tensors (m,)."""
    first = trees[0]
    if isinstance(first, dict):
        return cast(T, type(first)({key: stack([cast(Any, t)[key] for t in trees]) for key in first}))
    if isinstance(first, tuple | list):
        return cast(T, _like(first, [stack(list(column)) for column in zip(*cast(Any, trees), strict=True)]))
    if isinstance(first, Tensor):
        return cast(T, torch.stack(cast(list[Tensor], list(trees))))
    return cast(T, first if first is None else torch.tensor(trees))


def take(tree: T, position: int | Tensor) -> T:
    """Row `position` of every leaf of a stacked tree (several rows if it is a tensor of them)."""
    return map(lambda leaf: leaf[position], tree)


def mean(stacked: T, weights: Tensor | None = None) -> T:
    """Average over the leading axis (m, ...) with `weights` (m,), normalised here; default equal.

    Computed as first + Σ w_i (x_i - first) in the order of the rows, so equal rows are returned bit for bit, and the
    number of threads does not matter. Raises ValueError if the weights do not sum to a positive number.
    """
    first = next(leaves(stacked), None)
    if first is None:
        return stacked
    count = len(first)
    shares = torch.ones(count) if weights is None else weights
    if not shares.sum() > 0:
        raise ValueError(f"weights {shares.tolist()} of an average do not sum to a positive number")
    numbers = (shares.double() / shares.double().sum()).tolist()

    def average(rows: Tensor) -> Tensor:
        total = rows[0].clone()
        for row, weight in zip(rows[1:], numbers[1:], strict=True):
            total.add_(row - rows[0], alpha=weight)
        return total

    return map(average, stacked)


def mean_by(stacked: T, weights: Tensor, group: Tensor, previous: T) -> T:
    """Average the rows of each group: rows (m, ...), weights (m,), group (m,) in 0..N-1, previous (N, ...) -> (N, ...).

    A group without members, or whose members weigh nothing, keeps its row of `previous`.
    """
    rows = []
    for n in range(len(next(leaves(previous)))):
        members = (group == n).nonzero().flatten()
        heard = weights[members].sum() > 0
        rows.append(mean(take(stacked, members), weights[members]) if heard else take(previous, n))
    return stack(rows)


def nbytes(tree: object) -> int:
    """Bytes of all tensors, and 8 for each number: what sending `tree` would cost."""
    return sum(leaf.nbytes if isinstance(leaf, Tensor) else 8 for leaf in leaves(tree) if leaf is not None)
