"""A federated problem for arithmetic by hand: clients with a few equal images of one pixel, a model of one weight.

The model is logit = (w x, 0) for an image of one pixel x in [0, 1]; with label 0 the loss is log(1 + exp(-w x)), its
slope -x / (1 + exp(w x)). At w = 0 a step of rate lr from an image x gives w = lr x / 2.
"""

import torch
from torch import Tensor, nn

from fedcore.data.shards import Shard, Source, Split
from fedcore.fit import LocalFit
from fedcore.model import Task
from fedcore.tree import Params


class OneWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        logit = self.w * x.flatten(1).sum(1)
        return torch.stack([logit, torch.zeros_like(logit)], 1)


TASK = Task(OneWeight, torch.zeros(1), torch.ones(1))
STEP = LocalFit(epochs=1, batch_size=8, lr=1.0)


def client(number: int, pixels: list[int], label: int = 0) -> Shard:
    source = Source(torch.tensor(pixels, dtype=torch.uint8).view(-1, 1, 1, 1), torch.full((len(pixels),), label))
    every = Split(source, torch.arange(len(pixels)))
    return Shard(number, every, Split(source, torch.arange(0)), every)


def start(w: float) -> Params:
    return Params(w=torch.tensor(w))
