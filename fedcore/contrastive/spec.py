"""What an encoder node of a study says, and what a contrastive algorithm is."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from fedcore import nets
from fedcore.data.augment import Views


@dataclass(frozen=True, kw_only=True)
class EncoderSpec:
    """An encoder by its network; trained on `dataset` where its algorithm trains."""

    algorithm: ClassVar[str]

    dataset: str
    net: str = "conv_small"
    net_options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.net not in nets.ENCODERS:
            raise ValueError(f"net: {self.net!r} is unknown; known: {', '.join(nets.ENCODERS)}")
        with torch.random.fork_rng(devices=[]):  # only to see that it can be made: the global random state stays
            nets.encoder(self.net, (3, 32, 32), **self.net_options)


@dataclass(frozen=True, kw_only=True)
class Random(EncoderSpec):
    """No pre-training: every run draws its own weights."""

    algorithm: ClassVar[str] = "random"


class Learner(nn.Module, ABC):
    """An encoder with what its algorithm trains around it and throws away afterwards."""

    encoder: nn.Module

    @abstractmethod
    def loss(self, a: Tensor, b: Tensor) -> Tensor:
        """Loss (0-d) of two views (B, C, H, W) of the same images."""

    def after_step(self) -> None:
        """What follows every optimiser step; default nothing."""


@dataclass(frozen=True, kw_only=True)
class Contrastive(EncoderSpec, ABC):
    """Pre-training on images without labels. Epochs, batch and optimiser are not known (UNKNOWN in methods.md 1.3)."""

    split: Literal["auto", "train", "unlabeled"] = "auto"  # auto: the unlabelled images, else train
    epochs: int = 100  # (UNKNOWN)
    batch_size: int = 256  # (UNKNOWN)
    lr: float = 1e-3  # Adam (UNKNOWN)
    views: Views = Views()
    probe_every: int = 10  # epochs between measurements of the features; the last epoch is always measured

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.epochs < 1 or self.probe_every < 1:
            raise ValueError(f"epochs: {self.epochs} epochs, probed every {self.probe_every}; both must be at least 1")
        if self.batch_size < 2:
            raise ValueError(f"batch_size: {self.batch_size}; contrast needs at least two images")
        if not 0 < self.lr < math.inf:
            raise ValueError(f"lr: {self.lr} is not in (0, inf)")

    @abstractmethod
    def learner(self, encoder: nn.Module) -> Learner:
        """`encoder` with newly drawn heads around it."""
