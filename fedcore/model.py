"""A network and its loss as pure functions of `Params`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F  # noqa: N812
from torch.nn.modules.batchnorm import _BatchNorm

from fedcore import nets
from fedcore.data.shards import Split
from fedcore.tree import Params


class Batch(NamedTuple):
    x: Tensor  # (b, C, H, W) float in [0, 1], augmented
    y: Tensor  # (b,) int64
    positions: Tensor  # (b,) int64, within the split


class Represented(NamedTuple):
    z: Tensor  # (b, d), what the last layer of the head sees
    logits: Tensor  # (b, K)


class Classifier(nn.Module):
    """An encoder with a head on its features: (b, C, H, W) -> logits (b, K), or z and logits."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder, self.head = encoder, head

    def forward(self, x: Tensor, represented: bool = False) -> Tensor | Represented:
        *layers, last = self.head if isinstance(self.head, nn.Sequential) else [self.head]
        z = self.encoder(x)
        for layer in layers:
            z = layer(z)
        logits: Tensor = last(z)
        return Represented(z, logits) if represented else logits


def classifier(
    net: str, options: Mapping[str, Any], shape: tuple[int, int, int], head: str, classes: int
) -> Classifier:
    """The encoder `net` for images of `shape` (C, H, W) with the head `head` on its features, by their names."""
    encoder = nets.encoder(net, shape, **options)
    return Classifier(encoder, nets.head(head, encoder.features, classes))


@dataclass(frozen=True)
class Task:
    """What is learned: how to build the network, how pixels enter it, and where its encoder starts.

    The network object itself carries no state between calls: every call says with which parameters.
    """

    build: Callable[[], nn.Module] = nn.Identity
    mean: Tensor = field(default_factory=lambda: torch.zeros(1))  # (C,)
    std: Tensor = field(default_factory=lambda: torch.ones(1))  # (C,)
    pretrained: Params | None = None  # entries named "encoder. ..."; None: every model draws its own encoder

    @cached_property
    def net(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):  # built when first needed, which must not move the random state
            return self.build()

    @cached_property
    def _norms(self) -> list[tuple[str, _BatchNorm]]:
        return [(name, module) for name, module in self.net.named_modules() if isinstance(module, _BatchNorm)]

    def init(self) -> Params:
        """Draw a model: a new network from the global random state, its encoder the pre-trained one if there is one.

        Floating-point buffers travel with the parameters; integer ones (`num_batches_tracked`) stay home.
        """
        entries = self.build().state_dict()
        params = Params({name: value.detach().clone() for name, value in entries.items() if value.is_floating_point()})
        return params if self.pretrained is None else params.replace(self.pretrained)

    def logits(self, params: Params, x: Tensor, *, train: bool = False) -> Tensor:
        """Logits (b, K) of images x (b, C, H, W), otherwise as `represent`."""
        logits: Tensor = functional_call(self.net, dict(params), (self._prepared(params, x, train),))
        return logits

    def represent(self, params: Params, x: Tensor, *, train: bool = False) -> Represented:
        """Representations z (b, d) and logits (b, K) of images x (b, C, H, W), uint8 or float in [0, 1].

        In train mode BatchNorm uses batch statistics and moves the buffers in `params` in place (give copies); where
        its own parameters take no gradient (frozen), and for a batch of one image, it stays in eval mode.
        """
        x = self._prepared(params, x, train)
        represented: Represented = functional_call(self.net, dict(params), (x,), {"represented": True})
        return represented

    def _prepared(self, params: Params, x: Tensor, train: bool) -> Tensor:
        """The images as the network takes them, and the network in its mode."""
        if x.dtype == torch.uint8:
            x = x / 255
        shape = (1, -1, 1, 1)
        x = (x - self.mean.view(shape).to(x.device)) / self.std.view(shape).to(x.device)
        self.net.train(train)
        if train:
            for name, module in self._norms:
                module.train(len(x) > 1 and params[f"{name}.weight"].requires_grad)
        return x.contiguous(memory_format=torch.channels_last)  # the layout that convolutions like

    def loss(self, params: Params, batch: Batch) -> Tensor:
        """Softmax cross-entropy over all K classes, batch mean, in train mode; methods.md (2)*."""
        return F.cross_entropy(self.logits(params, batch.x, train=True), batch.y)

    @torch.no_grad()
    def predict(self, params: Params, x: Tensor, batch_size: int = 1024) -> Tensor:
        """Logits (b, K) in eval mode, `batch_size` images at a time."""
        return torch.cat([self.logits(params, part) for part in x.split(batch_size)])

    def mean_loss(self, params: Params, split: Split) -> Tensor:
        """Cross-entropy in eval mode, mean over a whole split without augmentation, 0-d."""
        return F.cross_entropy(self.predict(params, split.images()), split.labels())


class Predictor(nn.Module):
    """A trained model that stands alone: images (b, C, H, W) uint8 -> logits (b, K), in eval mode."""

    def __init__(self, task: Task, params: Params) -> None:
        super().__init__()
        self.net = task.build()
        state = self.net.state_dict()
        state.update(params)
        self.net.load_state_dict(state)
        self.mean = nn.Buffer(task.mean.view(1, -1, 1, 1))
        self.std = nn.Buffer(task.std.view(1, -1, 1, 1))
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net((x / 255 - self.mean) / self.std)
        return logits
