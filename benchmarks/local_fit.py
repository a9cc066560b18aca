"""What LocalFit costs beside the bare PyTorch loop: the same model, batches and steps, paired in one process.

    python -m benchmarks.local_fit [--threads 1] [--rounds 15]

Prints the median seconds of both and the median of the paired ratios.
"""

import argparse
import statistics
import time
from functools import partial

import torch
from torch.nn import functional as F  # noqa: N812

from fedcore.data.shards import Shard, Source, Split
from fedcore.fit import LocalFit
from fedcore.model import Task, classifier
from fedcore.tree import Params

CELLS = {
    "conv_small 3x32x32, batch 32, adam, 50 images x 3 epochs": ((3, 32, 32), LocalFit(epochs=3, optimizer="adam"), 50),
    "conv_small 3x32x32, batch 64, sgd 0.9, 1000 images": (
        (3, 32, 32), LocalFit(batch_size=64, momentum=0.9, weight_decay=1e-5), 1000),
    "conv_small 1x28x28, batch 10, sgd, 50 images": ((1, 28, 28), LocalFit(batch_size=10), 50),
}  # fmt: skip


def shard_of(shape: tuple[int, int, int], images: int) -> Shard:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (images, *shape), dtype=torch.uint8, generator=generator)
    every = Split(Source(pixels, torch.randint(10, (images,), generator=generator)), torch.arange(images))
    return Shard(0, every, Split(every.source, every.index[:0]), every)


def bare(task: Task, start: Params, shard: Shard, fit: LocalFit) -> None:
    """What a researcher would write for one client."""
    net = task.net
    net.load_state_dict(start)
    net.train()
    if fit.optimizer == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(net.parameters(), lr=fit.lr, fused=True)
    else:
        optimizer = torch.optim.SGD(
            net.parameters(), lr=fit.lr, momentum=fit.momentum, weight_decay=fit.weight_decay, fused=True
        )
    images, labels = shard.train.images(), shard.train.labels()
    mean, std = task.mean.view(1, -1, 1, 1), task.std.view(1, -1, 1, 1)
    for _ in range(fit.epochs):
        for rows in torch.randperm(len(labels)).split(fit.batch_size):
            x = (images[rows] / 255 - mean) / std
            loss = F.cross_entropy(net(x), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def paired(shape: tuple[int, int, int], fit: LocalFit, images: int, rounds: int) -> dict[str, float]:
    """Median seconds of each way, and the median of the ratios of neighbouring turns."""
    task = Task(partial(classifier, "conv_small", {}, shape, "linear", 10), torch.full((1,), 0.5), torch.ones(1))
    start, shard = task.init(), shard_of(shape, images)
    ways = {"bare": lambda: bare(task, start, shard, fit), "fit": lambda: fit(task.loss, start, shard)}
    repeat = max(1, 2000 // (images * fit.epochs))
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(rounds + 1):  # the first warms up
        for way in sorted(ways, reverse=bool(turn % 2)):
            began = time.perf_counter()
            for _ in range(repeat):
                ways[way]()
            seconds[way].append((time.perf_counter() - began) / repeat)
    ratios = [ours / theirs for ours, theirs in zip(seconds["fit"][1:], seconds["bare"][1:], strict=True)]
    return {way: statistics.median(times[1:]) for way, times in seconds.items()} | {"ratio": statistics.median(ratios)}


def main() -> None:
    parser = argparse.ArgumentParser(description="LocalFit beside the bare PyTorch loop")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for name, cell in CELLS.items():
        told = paired(*cell, args.rounds)
        print(f"{name}: bare {told['bare']:.4f} s, LocalFit {told['fit']:.4f} s, ratio {told['ratio']:.3f}")


if __name__ == "__main__":
    main()
