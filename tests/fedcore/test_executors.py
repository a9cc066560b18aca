"""Executors: speed may differ, results and the caller's random state may not."""

import random
from dataclasses import dataclass

import numpy as np
import pytest
import tiny
import torch

from fedcore.cohort import PhaseError, Work
from fedcore.data.shards import Shard
from fedcore.executors import Processes, Sequential, seed_everything
from fedcore.methods.cp_cfl import CPCFL
from fedcore.methods.fedavg import FedAvg


@pytest.mark.parametrize("workers", [1, 4])
def test_number_of_workers_does_not_matter(workers: int) -> None:
    method = CPCFL(task=tiny.task(norm=True, dropout=True), fit=tiny.FIT, warmup_rounds=1)
    alone = tiny.play(method, rounds=3)[-1]
    together = tiny.play(method, rounds=3, pool=Processes(workers))[-1]
    assert tiny.same((alone.server, alone.clients), (together.server, together.clients))
    assert tiny.numbers(alone) == tiny.numbers(together)


def test_phases_leave_the_servers_random_states_alone() -> None:
    method = FedAvg(task=tiny.task(), fit=tiny.FIT)
    server = method.init_server(method.task.init())
    draws = []
    for works in ([], [Work(0, None, 7)]):
        seed_everything(1)
        with Sequential().open(method, {0: tiny.shards()[0]}) as run:
            run("local", server, works)
        draws.append((torch.rand(()).item(), np.random.rand(), random.random()))
    assert draws[0] == draws[1]


@dataclass(frozen=True, kw_only=True)
class Stumbling(FedAvg):
    """Client 2 raises."""

    def local(self, server, client, shard: Shard):
        if shard.client == 2:
            raise RuntimeError("disk on fire")
        return super().local(server, client, shard)


@pytest.mark.parametrize("pool", [Sequential(), Processes(2)])
def test_a_client_that_raises_is_named(pool: object) -> None:
    with pytest.raises(PhaseError, match=r"client 2 failed in local of round 0(.|\n)*disk on fire"):
        tiny.play(Stumbling(task=tiny.task(), fit=tiny.FIT), pool=pool)


@pytest.mark.parametrize("pool", [Sequential(), Processes(2)])
def test_policy_drop_goes_on_without_it(pool: object) -> None:
    held = tiny.shards()
    method = Stumbling(task=tiny.task(), fit=tiny.FIT)
    dropped = tiny.play(method, held, on_error="drop", pool=pool)[-1]
    without = tiny.play(FedAvg(task=tiny.task(), fit=tiny.FIT), [held[0], held[1], held[3]])[-1]
    assert tiny.same(dropped.server, without.server)
