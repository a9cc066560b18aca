"""What clustered methods share: N models, each client with the one that suits its data best."""

import torch
from torch import Tensor

from fedcore import tree
from fedcore.data.shards import Split
from fedcore.model import Task
from fedcore.tree import Params


def losses(task: Task, models: Params, split: Split) -> Tensor:
    """L_u(θ^n; D_u) of stacked models (N, ...) on a whole split in eval mode without augmentation: (N,)."""
    count = len(next(tree.leaves(models)))
    return torch.stack([task.mean_loss(tree.take(models, n), split) for n in range(count)])


def choose(task: Task, models: Params, split: Split) -> int:
    """Cluster identity: argmin_n L_u(θ^n; D_u), ties to the lowest index; methods.md 1.1 (5)."""
    return int(losses(task, models, split).argmin())


def members(choice: Tensor, count: int) -> Tensor:
    """How many clients chose each cluster: (m,) in 0..N-1 -> (N,)."""
    return torch.bincount(choice, minlength=count)
