"""Ways to run a phase over many clients. They differ in speed, never in result."""

import pickle
import random
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import numpy as np
import torch
from torch import multiprocessing

from fedcore import tree
from fedcore.cohort import Executor, Failure, Work
from fedcore.data.shards import Shard

Result = tuple[Any, Any] | Failure


class Pool(Protocol):
    """Settings of an executor; `open` makes it ready for one method and its shards."""

    @property
    def threads(self) -> int: ...

    def open(self, method: Any, shards: dict[int, Shard]) -> AbstractContextManager[Executor]: ...


def seed_everything(seed: int) -> None:
    """Seed the global random states of PyTorch, NumPy and Python."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def _turn(method: Any, phase: str, message: Any, work: Work, shard: Shard) -> Result:
    seed_everything(work.seed)
    try:
        result: tuple[Any, Any] = getattr(method, phase)(message, work.state, shard)
        return result
    except Exception:
        return Failure(work.client, traceback.format_exc())


@dataclass(frozen=True)
class Sequential:
    """One client after another, in this process."""

    threads: int = 1
    device: torch.device = torch.device("cpu")

    @contextmanager
    def open(self, method: Any, shards: dict[int, Shard]) -> Iterator[Executor]:
        """Clients' images move to `device` once."""
        placed = {client: shard.to(self.device) for client, shard in shards.items()}

        def run(phase: str, message: Any, works: Sequence[Work]) -> list[Result]:
            states = torch.get_rng_state(), np.random.get_state(), random.getstate()
            results = [_turn(method, phase, message, work, placed[work.client]) for work in works]
            torch.set_rng_state(states[0])
            np.random.set_state(states[1])
            random.setstate(states[2])
            return results

        yield run


@dataclass(frozen=True)
class Processes:
    """Long-lived worker processes, each with its own copy of the method and the shared images."""

    workers: int
    threads: int = 1
    device: torch.device = torch.device("cpu")

    @contextmanager
    def open(self, method: Any, shards: dict[int, Shard]) -> Iterator[Executor]:
        """Start the workers; they end with the context. Messages travel as bytes through pipes."""
        context = multiprocessing.get_context("forkserver")  # PyTorch is imported once for all workers
        context.set_forkserver_preload([__name__])
        cargo = pickle.dumps((method, shards))
        pipes, processes = [], []
        for _ in range(min(self.workers, len(shards))):
            ours, theirs = context.Pipe()
            life = (theirs, cargo, self.threads, self.device)
            process = context.Process(target=_serve, args=life, daemon=True)
            with _main_left_out(cargo):
                process.start()
            theirs.close()
            pipes.append(ours)
            processes.append(process)

        def run(phase: str, message: Any, works: Sequence[Work]) -> list[Result]:
            return _spread(pipes, _pack((phase, message)), works)

        try:
            yield run
        finally:
            for pipe in pipes:
                pipe.close()
            for process in processes:
                process.join(timeout=5)
                process.terminate()


@contextmanager
def _main_left_out(cargo: bytes) -> Iterator[None]:
    """Keep a new process from importing the main module again, which can be slow, unless its pickled cargo needs it."""
    main = vars(sys.modules["__main__"])
    hidden = {} if b"__main__" in cargo else {name: main.get(name) for name in ("__spec__", "__file__")}
    main |= dict.fromkeys(hidden)
    try:
        yield
    finally:
        main |= hidden


def _spread(pipes: Sequence[Connection], order: bytes, works: Sequence[Work]) -> list[Result]:
    """Hand the works out one by one as workers fall idle; results in the order of `works`."""
    results: dict[int, Result] = {}
    idle, informed = list(pipes), set[int]()
    busy: dict[Connection, int] = {}
    for position, work in enumerate(works):
        if not idle:
            idle = _collect(busy, results)
        pipe = idle.pop()
        if id(pipe) not in informed:
            pipe.send_bytes(order)
            informed.add(id(pipe))
        pipe.send_bytes(_pack(work))
        busy[pipe] = position
    while busy:
        _collect(busy, results)
    return [results[position] for position in range(len(works))]


def _collect(busy: dict[Connection, int], results: dict[int, Result]) -> list[Connection]:
    ready = [pipe for pipe in wait(list(busy)) if isinstance(pipe, Connection)]
    for pipe in ready:
        try:
            results[busy.pop(pipe)] = _unpack(pipe.recv_bytes())
        except EOFError as error:
            raise RuntimeError("a worker process died; the same command continues from the last checkpoint") from error
    return ready


def _serve(pipe: Connection, cargo: bytes, threads: int, device: torch.device) -> None:
    """The life of a worker: a phase with its message, then clients, until the pipe closes."""
    torch.set_num_threads(threads)
    method, shards = pickle.loads(cargo)
    placed = {client: shard.to(device) for client, shard in shards.items()}
    phase, message = "", None
    try:
        while True:
            order = _unpack(pipe.recv_bytes(), device)
            if isinstance(order, Work):
                pipe.send_bytes(_pack(_turn(method, phase, message, order, placed[order.client])))
            else:
                phase, message = order
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return


@dataclass(frozen=True)
class _Array:
    """A tensor on its way through a pipe."""

    values: np.ndarray[Any, Any]


def _pack(thing: Any) -> bytes:
    if isinstance(thing, Work):
        thing = Work(thing.client, tree.map(_to_array, thing.state), thing.seed)
    elif not isinstance(thing, Failure):
        thing = tree.map(_to_array, thing)
    return pickle.dumps(thing, protocol=5)


def _unpack(data: bytes, device: torch.device | None = None) -> Any:
    thing = pickle.loads(data)
    if isinstance(thing, Work):
        return Work(thing.client, tree.map(lambda leaf: _to_tensor(leaf, device), thing.state), thing.seed)
    return thing if isinstance(thing, Failure) else tree.map(lambda leaf: _to_tensor(leaf, device), thing)


def _to_array(leaf: Any) -> Any:
    return _Array(leaf.detach().cpu().numpy()) if isinstance(leaf, torch.Tensor) else leaf


def _to_tensor(leaf: Any, device: torch.device | None) -> Any:
    return torch.from_numpy(leaf.values).to(device or "cpu") if isinstance(leaf, _Array) else leaf
