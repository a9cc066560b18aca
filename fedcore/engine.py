"""The rounds loop: the only one."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedcore.cohort import Cohort, Executor, Traffic, seed_of
from fedcore.data.shards import Shard, Split
from fedcore.evaluate import Scores, evaluate
from fedcore.executors import Pool, Sequential, seed_everything
from fedcore.method import Method
from fedcore.tree import Params

GLOBAL_TEST = -1
"""The id of the pseudo-client that holds the global test set; client k with that for a test is -2 - k."""


class Report(NamedTuple):
    """Everything after a round: enough to go on from, and what to tell about it."""

    round: int
    server: Any
    clients: dict[int, Any]
    metrics: dict[str, float]
    per_client: dict[str, dict[int, float]]  # metric -> client -> value


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How many rounds, and who takes part in them."""

    rounds: int
    participation: float = 1.0  # share of the clients drawn in each round
    dropout: float = 0.0  # chance that a drawn client drops out of the round before it trains
    evaluate_every: int = 1  # rounds; the last one is always evaluated
    personal_on_global: bool = False  # score personal models on the global test set too: one pass a client, so costly
    on_error: str = "fail"  # or drop: a client that raises leaves the round

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds: {self.rounds}; play at least one")
        if not 0 < self.participation <= 1:
            raise ValueError(f"participation: {self.participation} is not in (0, 1]")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout: {self.dropout} is not in [0, 1)")
        if self.evaluate_every < 1:
            raise ValueError(f"evaluate_every: {self.evaluate_every}; evaluate at least every rounds-th round")
        if self.on_error not in ("fail", "drop"):
            raise ValueError(f"on_error: {self.on_error!r} is neither fail nor drop")


def check(method: Method[Any, Any], plan: Plan) -> None:
    """Raises ValueError for a plan that the method is not defined for."""
    if method.every_client:
        for name, needed in (("participation", 1), ("dropout", 0), ("on_error", "fail")):
            if getattr(plan, name) != needed:
                said = f"{getattr(plan, name)}; the method is defined for all clients in every round"
                raise ValueError(f"{name}: {said}; set {needed}")


def federate(
    method: Method[Any, Any],
    x: Params,
    shards: Sequence[Shard],
    plan: Plan,
    *,
    seed: int,
    pool: Pool | None = None,
    global_test: Split | None = None,
    resume: Report | None = None,
) -> Iterator[Report]:
    """Play the rounds of `method` from the model `x` over `shards`, yielding a report after each.

    The result depends on the arguments but for `pool`, and goes on from `resume` (a report of an earlier call with the
    same arguments) bit for bit as if it had never stopped. The calling thread's random state is used and not restored.
    Raises ValueError as `check` does.
    """
    check(method, plan)
    pool = pool or Sequential()
    torch.set_num_threads(pool.threads)
    shards = sorted(shards, key=lambda shard: shard.client)
    everyone = {shard.client: shard for shard in shards}
    if global_test is not None:
        empty = Split(global_test.source, global_test.index[:0])
        everyone[GLOBAL_TEST] = Shard(GLOBAL_TEST, empty, empty, global_test)
        if method.personal and plan.personal_on_global:
            everyone |= {_examined(shard.client): replace(shard, test=global_test) for shard in shards}
    with pool.open(method, everyone) as executor:
        field = _Field(method, shards, plan, seed, executor)
        yield from _rounds(field, x, global_test is not None, resume)


def _examined(client: int) -> int:
    return GLOBAL_TEST - 1 - client


@dataclass(frozen=True)
class _Field:
    """All that stays the same over the rounds."""

    method: Method[Any, Any]
    shards: Sequence[Shard]
    plan: Plan
    seed: int
    executor: Executor

    def cohort(self, purpose: str, ids: Sequence[int], round: int, server: Any, states: dict[int, Any]) -> Cohort[Any]:
        size = {shard.client: len(shard.train) for shard in self.shards}
        return Cohort(
            ids,
            round=round,
            rounds=self.plan.rounds,
            sizes=torch.tensor([float(size.get(client, 0)) for client in ids]),
            population=len(self.shards),
            states=states,
            fresh=lambda: self.method.init_client(server),
            executor=self.executor,
            seed=seed_of(self.seed, purpose),
            on_error=self.plan.on_error,
        )

    def evaluate(self, round: int, server: Any, states: dict[int, Any], global_test: bool) -> Scores:
        # On copies of the states: to be asked is not to take part.
        ids = [shard.client for shard in self.shards]
        everyone = self.cohort("assess", ids, round, server, dict(states))
        whole = None
        if global_test and not self.method.personal:
            whole = self.cohort("assess", [GLOBAL_TEST], round, server, {})
        elif global_test and self.plan.personal_on_global:
            known = {_examined(client): state for client, state in states.items()}
            whole = self.cohort("assess", [_examined(client) for client in ids], round, server, known)
        return evaluate(self.method, server, everyone, whole)


def _rounds(field: _Field, x: Params, global_test: bool, resume: Report | None) -> Iterator[Report]:
    method, plan, seed = field.method, field.plan, field.seed
    ids = [shard.client for shard in field.shards]
    states: dict[int, Any] = dict(resume.clients) if resume else {}
    traffic = Traffic()
    if resume:
        server = resume.server
    else:
        seed_everything(seed_of(seed, "server", -1))
        server = method.init_server(x)
        everyone = field.cohort("prepare", ids, -1, server, states)
        server, traffic = method.prepare(server, everyone), everyone.traffic
    for round in range(resume.round + 1 if resume else 0, plan.rounds):
        started = time.perf_counter()
        seed_everything(seed_of(seed, "server", round))
        drawn = sample(ids, plan, seed, round)
        cohort = field.cohort("round", drawn, round, server, states)
        server, told = method.round(server, cohort)
        metrics, per_client = _split(told, cohort.ids)
        traffic += cohort.traffic
        metrics |= {"bytes_down": traffic.down, "bytes_up": traffic.up, "clients": len(drawn)}
        metrics["seconds"] = time.perf_counter() - started
        traffic = Traffic()
        if (round + 1) % plan.evaluate_every == 0 or round + 1 == plan.rounds:
            scores, each = field.evaluate(round, server, states, global_test)
            metrics, per_client = metrics | scores, per_client | each
        yield Report(round, server, dict(states), metrics, per_client)


def sample(ids: Sequence[int], plan: Plan, seed: int, round: int) -> list[int]:
    """The clients of a round in id order: a share of all, less those that drop out; never none."""
    generator = np.random.default_rng(seed_of(seed, "sample", round))
    count = max(1, round_half_up(plan.participation * len(ids)))
    drawn = sorted(generator.choice(len(ids), size=count, replace=False).tolist())
    stays = generator.random(count) >= plan.dropout
    if not stays.any():
        stays[generator.integers(count)] = True
    return [ids[position] for position, stay in zip(drawn, stays, strict=True) if stay]


def round_half_up(value: float) -> int:
    return int(value + 0.5)


def _split(told: dict[str, float | Tensor], ids: Sequence[int]) -> tuple[dict[str, float], dict[str, dict[int, float]]]:
    metrics = {name: value for name, value in told.items() if not isinstance(value, Tensor)}
    vectors = {name: value.tolist() for name, value in told.items() if isinstance(value, Tensor)}
    return metrics, {name: dict(zip(ids, values, strict=True)) for name, values in vectors.items()}
