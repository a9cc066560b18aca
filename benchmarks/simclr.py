"""What augmentation costs a SimCLR epoch: the same steps with it and on views made beforehand, paired in one process.

    python -m benchmarks.simclr [--size 32] [--threads 2] [--steps 8] [--rounds 7]

Prints the median seconds a step of both and the median of the paired ratios.
"""

import argparse
import statistics
import time

import torch
from torch import Tensor

from fedcore import nets
from fedcore.contrastive.simclr import SimCLR
from fedcore.contrastive.spec import Learner


def steps(learner: Learner, optimizer: torch.optim.Optimizer, views: list[tuple[Tensor, Tensor]]) -> None:
    for a, b in views:
        optimizer.zero_grad()
        learner.loss(a, b).backward()
        optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser(description="SimCLR steps with augmentation beside steps without")
    parser.add_argument("--size", type=int, default=32)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    spec = SimCLR(dataset="random")
    learner = spec.learner(nets.encoder(spec.net, (3, args.size, args.size)))
    optimizer = torch.optim.Adam(learner.parameters(), lr=spec.lr, fused=True)
    images = torch.randint(256, (args.steps * spec.batch_size, 3, args.size, args.size), dtype=torch.uint8)
    batches = images.split(spec.batch_size)
    ready = [(spec.views(batch / 255), spec.views(batch / 255)) for batch in batches]

    def augmented() -> None:
        for batch in batches:
            x = batch / 255
            steps(learner, optimizer, [(spec.views(x), spec.views(x))])

    ways = {"augmented": augmented, "ready": lambda: steps(learner, optimizer, ready)}
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(args.rounds + 1):  # the first warms up
        for way in sorted(ways, reverse=bool(turn % 2)):
            began = time.perf_counter()
            ways[way]()
            seconds[way].append((time.perf_counter() - began) / args.steps)
    ratios = [a / r for a, r in zip(seconds["augmented"][1:], seconds["ready"][1:], strict=True)]
    medians = {way: statistics.median(times[1:]) for way, times in seconds.items()}
    print(
        f"SimCLR, conv_small, {args.size} pixels, batch {spec.batch_size}: "
        f"{medians['augmented']:.4f} s a step with augmentation, {medians['ready']:.4f} s without, "
        f"ratio {statistics.median(ratios):.3f}"
    )


if __name__ == "__main__":
    main()
