"""Pictures as arrays: whatever a source holds becomes uint8 (N, C, H, W) with one or three channels."""

import io
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor
from torch.nn import functional

from fedcore.config import ConfigError

_GREY = ("1", "L", "LA")
_DEEP = ("I", "F")  # Pillow's 32-bit modes, and with a suffix its 16-bit ones
_CHUNK = 500  # images handled at once, which bounds the memory of it


class Form(NamedTuple):
    """The size and the channels that images shall have; None keeps what the source has."""

    size: int | None = None  # pixels a side
    channels: int | None = None  # 1 or 3


class Part(NamedTuple):
    """The images of one split, in memory."""

    images: Tensor  # (N, C, H, W) uint8
    labels: Tensor  # (N,) int64, -1 where unlabelled
    domains: Tensor | None = None  # (N,) int64, where the source has domains

    def rows(self, index: Tensor) -> "Part":
        """The rows at `index` (n,) int64, in that order."""
        domains = None if self.domains is None else self.domains[index]
        return Part(self.images[index], self.labels[index], domains)


@dataclass(frozen=True)
class Collection:
    """All splits of a dataset, in memory; without a `test` until one is held out."""

    classes: tuple[str, ...]
    parts: Mapping[str, Part]
    domains: tuple[str, ...] = ()


def decoded(picture: Path | bytes | Image.Image) -> Tensor:
    """A picture as (C, H, W) uint8: C = 1 for grey modes, otherwise 3. Raises ConfigError, naming the file."""
    if isinstance(picture, Image.Image):
        return _pixels(picture)
    name = str(picture) if isinstance(picture, Path) else "a packed picture"
    try:
        with Image.open(io.BytesIO(picture) if isinstance(picture, bytes) else picture) as image:
            return _pixels(image)
    except (OSError, UnidentifiedImageError, SyntaxError) as error:
        raise ConfigError(f"path: {name} is no readable picture ({error}); repair or remove it") from error
    except ConfigError as error:
        raise ConfigError(f"path: {name}: {error}") from error


def _pixels(image: Image.Image) -> Tensor:
    if image.mode.startswith(_DEEP):
        raise ConfigError(f"pictures of mode {image.mode} have more than 8 bits a channel; convert them to 8 bits")
    array = np.array(image.convert("L" if image.mode in _GREY else "RGB"))
    return torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1))


def conform(images: Tensor, form: Form) -> Tensor:
    """(N, C, H, W) uint8 in the channels and the size of `form`.

    Grey is repeated; colour becomes luma (ITU-R 601-2, rounded as Pillow does); resizing is bilinear, antialiased.
    """
    if not len(images):
        raise ConfigError("path: the source holds no images")
    return torch.cat([_conformed(chunk, form) for chunk in images.split(_CHUNK)])


def _conformed(images: Tensor, form: Form) -> Tensor:
    if form.channels == 1 and images.shape[1] == 3:
        # 16-bit fixed point: the weights .299, .587, .114 sum to 65536.
        red, green, blue = images.to(torch.int32).unbind(1)
        images = ((red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16).to(torch.uint8)[:, None]
    if form.size is not None and images.shape[2:] != (form.size, form.size):
        images = functional.interpolate(images, (form.size, form.size), mode="bilinear", antialias=True)
    if form.channels == 3 and images.shape[1] == 1:
        images = images.expand(-1, 3, -1, -1)
    return images.contiguous()


def gathered(pictures: Iterable[Path | bytes | Image.Image], form: Form) -> Tensor:
    """Pictures of any kind as one (N, C, H, W) uint8; colour if any of them is, unless `form` says.

    Raises ConfigError when they differ in size and `form.size` is None.
    """
    rest = iter(pictures)
    chunks = list(iter(lambda: list(islice(rest, _CHUNK)), []))

    def read(chunk: list[Path | bytes | Image.Image]) -> Tensor:
        return joined([conform(batch, form) for batch in _alike(map(decoded, chunk))])

    if chunks and isinstance(chunks[0][0], Path):
        with ThreadPoolExecutor() as pool:  # while one waits for the disk
            return joined(list(pool.map(read, chunks)))
    return joined([read(chunk) for chunk in chunks])


def _alike(images: Iterable[Tensor]) -> Iterator[Tensor]:
    """Images (C, H, W) as batches (n, C, H, W): neighbours of one shape together, which is quicker than one by one."""
    for _, run in groupby(images, key=lambda image: image.shape):
        yield torch.stack(list(run))


def joined(batches: list[Tensor]) -> Tensor:
    """Batches (n, C, H, W) uint8 end to end; grey ones become colour when others are. They must agree in size."""
    sizes = sorted({tuple(batch.shape[2:]) for batch in batches})
    if len(sizes) > 1:
        some = ", ".join(f"{height}x{width}" for height, width in sizes[:3])
        raise ConfigError(f"size: the pictures differ in size ({some} ...); give the size in pixels to resize them to")
    if not batches:
        raise ConfigError("path: the source holds no images")
    channels = max(batch.shape[1] for batch in batches)
    return torch.cat([batch.expand(-1, channels, -1, -1) for batch in batches])
