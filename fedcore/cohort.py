"""The only door between the server's half of a method and the clients' half."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Generic, Protocol, TypeVar, cast

import torch
from torch import Tensor

from fedcore import tree
from fedcore.data.shards import Shard

M = TypeVar("M")
C = TypeVar("C")
R = TypeVar("R")

Phase = Callable[[M, C, Shard], tuple[R, C]]
"""A client's half of one exchange: (message, its state, its shard) -> (reply, its new state). Pure."""


@dataclass(frozen=True)
class Work:
    """One client's turn in a phase."""

    client: int
    state: Any
    seed: int


@dataclass(frozen=True)
class Failure:
    """What a client that raised left behind."""

    client: int
    traceback: str


class Executor(Protocol):
    """Runs the phase named `phase` for each work; results (reply, state) or Failure in the order of `works`."""

    def __call__(self, phase: str, message: Any, works: Sequence[Work]) -> list[tuple[Any, Any] | Failure]: ...


class PhaseError(RuntimeError):
    """A client raised and the run's policy is to stop."""


@dataclass
class Traffic:
    """Bytes that the server sent (down) and received (up), summed over clients."""

    down: int = 0
    up: int = 0

    def __add__(self, other: "Traffic") -> "Traffic":
        return Traffic(self.down + other.down, self.up + other.up)


def seed_of(*parts: object) -> int:
    """A 63-bit seed that depends on every part and on nothing else."""
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest()) >> 1


class Cohort(Generic[C]):
    """The clients of one round."""

    def __init__(
        self,
        ids: Sequence[int],
        *,
        round: int,
        rounds: int,
        sizes: Tensor,
        population: int,
        states: dict[int, C],
        fresh: Callable[[], C],
        executor: Executor,
        seed: int,
        on_error: str = "fail",
    ) -> None:
        """`round` counts from 0 to `rounds` - 1, `sizes` (m,) are the clients' numbers of training images; `states` is
        written as phases return.
        """
        self.ids, self.round, self.rounds, self.sizes, self.population = list(ids), round, rounds, sizes, population
        self.states, self.traffic = states, Traffic()
        self._fresh, self._executor, self._seed, self._on_error = fresh, executor, seed, on_error
        self._phase = 0

    @property
    def fraction(self) -> float:
        """Share of all clients that take part."""
        return len(self.ids) / self.population

    @property
    def weights(self) -> Tensor:
        """(m,) |D_k| / Σ_j |D_j| over the clients that take part."""
        return self.sizes / self.sizes.sum()

    def map(self, phase: Phase[M, C, R], message: M) -> R:
        """One "for each client in parallel do": the replies stacked on a leading axis (m, ...) in the order of `ids`.

        Every client's new state is kept and the bytes both ways are counted. Raises PhaseError for a client that
        raised; under the policy `drop` that client leaves the cohort for the rest of the round instead.
        """
        name: str = cast(Any, phase).__name__
        seeds = [seed_of(self._seed, self.round, self._phase, client) for client in self.ids]
        self._phase += 1
        for client in self.ids:
            if client not in self.states:
                self.states[client] = self._fresh()
        works = [Work(client, self.states[client], seed) for client, seed in zip(self.ids, seeds, strict=True)]
        results = self._executor(name, message, works)
        self._drop([result for result in results if isinstance(result, Failure)], name)
        done = [result for result in results if not isinstance(result, Failure)]
        for client, (_, state) in zip(self.ids, done, strict=True):
            self.states[client] = state
        replies = [reply for reply, _ in done]
        self.traffic.down += len(works) * tree.nbytes(message)
        self.traffic.up += sum(tree.nbytes(reply) for reply in replies)
        return cast(R, tree.stack(replies))

    def _drop(self, failures: list[Failure], phase: str) -> None:
        lost = {failure.client for failure in failures}
        if lost and (self._on_error == "fail" or len(lost) == len(self.ids)):
            first = failures[0]
            raise PhaseError(f"client {first.client} failed in {phase} of round {self.round}:\n{first.traceback}")
        kept = [position for position, client in enumerate(self.ids) if client not in lost]
        self.ids = [self.ids[position] for position in kept]
        self.sizes = self.sizes[torch.tensor(kept, dtype=torch.long)]
