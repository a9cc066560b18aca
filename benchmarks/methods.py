"""What a round of each method of FedProc's tables costs beside FedAvg's: the same clients and batches, in one process.

    python -m benchmarks.methods [--threads 1] [--repeats 5] [--epochs 10]

Ten clients of 192 images of 3x32x32, FedProc's CNN with its projection head, ten epochs in batches of 64. Prints the
median seconds of a round and the median of the ratios to FedAvg's round of the same repeat. Rounds are such that every
term of a loss is there: MOON's clients have a previous model, FedProc's server prototypes.
"""

import argparse
import statistics
import time
from dataclasses import replace
from functools import partial

import torch

from benchmarks.local_fit import shard_of
from fedcore import registry
from fedcore.engine import Plan, Report, federate
from fedcore.executors import Sequential
from fedcore.fit import LocalFit
from fedcore.method import Method
from fedcore.model import Task, classifier

METHODS = ("fedavg", "fedprox", "scaffold", "fednova", "moon", "fedproc")
SHAPE = (3, 32, 32)
FIT = LocalFit(epochs=10, batch_size=64, lr=0.01, momentum=0.9, weight_decay=1e-5)


def rounds(threads: int, repeats: int, epochs: int) -> dict[str, list[float]]:
    """Seconds of a round by method, one for each repeat; in a repeat the methods take turns."""
    task = Task(partial(classifier, "simple_cnn", {}, SHAPE, "projection", 10), torch.full((3,), 0.5), torch.ones(3))
    held = [replace(shard_of(SHAPE, 192), client=client) for client in range(10)]
    x, plan = task.init(), Plan(rounds=repeats + 2, evaluate_every=repeats + 2)
    methods: dict[str, Method] = {
        name: registry.method(name)(task=task, fit=replace(FIT, epochs=epochs)) for name in METHODS
    }
    played = {
        name: federate(method, x, held, plan, seed=0, pool=Sequential(threads)) for name, method in methods.items()
    }
    seconds: dict[str, list[float]] = {name: [] for name in METHODS}
    for turn in range(repeats + 1):  # the first warms up
        for name in METHODS if turn % 2 else reversed(METHODS):
            began = time.perf_counter()
            report: Report = next(played[name])
            seconds[name].append(time.perf_counter() - began)
            assert report.round == turn
    return {name: times[1:] for name, times in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=FIT.epochs)
    args = parser.parse_args()
    seconds = rounds(args.threads, args.repeats, args.epochs)
    for name, times in seconds.items():
        ratio = statistics.median(mine / plain for mine, plain in zip(times, seconds["fedavg"], strict=True))
        print(f"{name:9} {statistics.median(times):.3f} s a round, {ratio:.3f} times FedAvg's")


if __name__ == "__main__":
    main()
