"""Augmentations of whole batches on their device: (B, C, H, W) float in [0, 1] -> the same shape, still in [0, 1].

Everything geometric here is separable, so one pair of batched matrix products does it: crop, resize, flip and blur fold
into a matrix of rows (B, H, H) and one of columns (B, W, W). Colour is one affine map of the channels of each image.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

Augment = Callable[[Tensor], Tensor]

GREY = (0.299, 0.587, 0.114)  # luma of ITU-R BT.601
TO_YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.5959, -0.2746, -0.3213], [0.2115, -0.5227, 0.3112]])


def none(x: Tensor) -> Tensor:
    """Images as they are."""
    return x


def crop_flip(x: Tensor) -> Tensor:
    """CIFAR-10's usual augmentation: a crop of the image with 4 reflected pixels around it, mirrored by half chance."""
    return _flip(_crop(F.pad(x, (PAD,) * 4, mode="reflect"), x.shape[2:]))


def crop_flip_rotate(x: Tensor) -> Tensor:
    """FedProc's for CIFAR-100: a crop with 4 black pixels around, mirrored by half chance, turned by up to 15 degrees.

    Turned with bilinear weights; what comes in from outside is black.
    """
    turned = _flip(_crop(F.pad(x, (PAD,) * 4), x.shape[2:]))
    angle = torch.deg2rad(uniform(x, len(x), -15, 15))
    cos, sin, zero = angle.cos(), angle.sin(), torch.zeros_like(angle)
    height, width = x.shape[2:]
    matrix = torch.stack([cos, -sin * height / width, zero, sin * width / height, cos, zero], 1).view(-1, 2, 3)
    grid = F.affine_grid(matrix, list(x.shape), align_corners=False)
    return F.grid_sample(turned, grid, align_corners=False)


def _crop(padded: Tensor, size: torch.Size) -> Tensor:
    """A part (B, C, *size) of images (B, C, H, W), at a place of its own in each."""
    count = len(padded)
    top, left = (
        torch.randint(have - want + 1, (count, 1), device=padded.device)
        for have, want in zip(padded.shape[2:], size, strict=True)
    )
    rows = top + torch.arange(size[0], device=padded.device)
    columns = left + torch.arange(size[1], device=padded.device)
    image = torch.arange(count, device=padded.device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[image, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def _flip(x: Tensor) -> Tensor:
    mirrored = torch.rand(len(x), device=x.device) < 0.5
    return torch.where(mirrored[:, None, None, None], x.flip(3), x)


PAD = 4  # pixels
AUGMENTS: dict[str, Augment] = {"none": none, "crop_flip": crop_flip, "crop_flip_rotate": crop_flip_rotate}
"""What local training may do to its batches, by name."""


@dataclass(frozen=True, kw_only=True)
class Views:
    """A random view of every image, as contrastive methods want two of.

    Crop of a random area and aspect ratio back to full size, horizontal flip, colour jitter, greyscale, Gaussian blur;
    the strengths are those of methods.md 1.3. Departures from the usual image-library forms: bilinear resizing; hue
    turns in YIQ space, not HSV; the colour operations come in one order (brightness, contrast, saturation, hue) and
    values are clamped once, at the end. On images of one channel saturation, hue and greyscale do nothing.
    """

    min_scale: float = 0.2  # smallest area of a crop as a share of the image
    max_ratio: float = 4 / 3  # largest width : height of a crop, and the smallest inverted
    flip: float = 0.5  # chance
    jitter: float = 0.5  # brightness, contrast and saturation factors from 1 - jitter to 1 + jitter
    hue: float = 0.2  # share of a full turn, both ways
    greyscale: float = 0.2  # chance
    blur: float = 0.0  # chance; sigma from 0.1 to 2 pixels

    def __post_init__(self) -> None:
        if not 0 < self.min_scale <= 1:
            raise ValueError(f"min_scale: {self.min_scale} is not in (0, 1]")
        if not 1 <= self.max_ratio < math.inf:
            raise ValueError(f"max_ratio: {self.max_ratio} is not in [1, inf)")
        for name in ("flip", "greyscale", "blur", "jitter", "hue"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: {getattr(self, name)} is not in [0, 1]")

    def __call__(self, x: Tensor) -> Tensor:
        rows, columns = self._geometry(x)
        cropped = torch.matmul(torch.matmul(rows[:, None], x), columns[:, None].mT)
        return self._colour(cropped)

    def _geometry(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Matrices of rows (B, H, H) and columns (B, W, W)."""
        count, _, height, width = x.shape
        area = uniform(x, count, self.min_scale, 1)
        log_ratio = math.log(self.max_ratio)
        ratio = uniform(x, count, -log_ratio, log_ratio).exp()
        tall = (area / ratio).sqrt().clamp(max=1) * height  # a crop that would stick out is cut to the image
        wide = (area * ratio).sqrt().clamp(max=1) * width
        rows = interpolation(height, tall, uniform(x, count) * (height - tall))
        columns = interpolation(width, wide, uniform(x, count) * (width - wide))
        flipped = uniform(x, count) < self.flip
        columns = torch.where(flipped[:, None, None], columns.flip(1), columns)
        if self.blur:
            sigma = torch.where(uniform(x, count) < self.blur, uniform(x, count, 0.1, 2), torch.zeros_like(area))
            rows, columns = gaussian(height, sigma) @ rows, gaussian(width, sigma) @ columns
        return rows, columns

    def _colour(self, x: Tensor) -> Tensor:
        count, channels, height, width = x.shape
        brightness = uniform(x, count, 1 - self.jitter, 1 + self.jitter)
        contrast = uniform(x, count, 1 - self.jitter, 1 + self.jitter)
        grey = torch.tensor(GREY if channels == 3 else [1 / channels] * channels, device=x.device)
        mix = torch.eye(channels, device=x.device).expand(count, -1, -1)
        if channels == 3:
            mix = self._hue_and_saturation(x, grey)
        # All of `mix` keeps grey as it is, so the constant that contrast adds passes through it.
        middle = brightness * (x.mean((2, 3)) @ grey)
        matrix = (brightness * contrast)[:, None, None] * mix
        constant = ((1 - contrast) * middle)[:, None, None].expand(-1, channels, 1)
        flat = torch.baddbmm(constant, matrix, x.reshape(count, channels, height * width))
        return flat.clamp_(0, 1).view_as(x)

    def _hue_and_saturation(self, x: Tensor, grey: Tensor) -> Tensor:
        """Matrices (B, 3, 3) that turn the hue and scale the saturation of RGB."""
        count = len(x)
        saturation = uniform(x, count, 1 - self.jitter, 1 + self.jitter)
        saturation = torch.where(uniform(x, count) < self.greyscale, torch.zeros_like(saturation), saturation)
        angle = 2 * torch.pi * uniform(x, count, -self.hue, self.hue)
        turn = torch.zeros(count, 3, 3, device=x.device)
        turn[:, 0, 0] = 1
        turn[:, 1, 1] = turn[:, 2, 2] = saturation * angle.cos()
        turn[:, 2, 1] = saturation * angle.sin()
        turn[:, 1, 2] = -turn[:, 2, 1]
        there = TO_YIQ.to(x.device)
        matrices: Tensor = torch.linalg.inv(there) @ turn @ there
        return matrices


def uniform(x: Tensor, count: int, low: float = 0, high: float = 1) -> Tensor:
    """(count,) numbers between `low` and `high`, drawn on the device of `x` from its global random state."""
    return torch.rand(count, device=x.device) * (high - low) + low


def interpolation(size: int, length: Tensor, start: Tensor) -> Tensor:
    """Bilinear resizing of an interval to `size` pixels as matrices (B, size, size).

    Pixels [start, start + length), both (B,), are sampled at `size` equal steps, pixel centres at halves.
    """
    steps = (torch.arange(size, device=length.device) + 0.5) / size
    source = (start[:, None] + steps * length[:, None] - 0.5).clamp(0, size - 1)
    pixels = torch.arange(size, device=length.device)
    return (1 - (source[..., None] - pixels).abs()).clamp_(min=0)


def gaussian(size: int, sigma: Tensor) -> Tensor:
    """Blur along one axis as matrices (B, size, size) whose rows sum to 1; sigma (B,) in pixels, 0 being no blur."""
    pixels = torch.arange(size, device=sigma.device)
    distance = (pixels[:, None] - pixels).square()
    kernel = torch.exp(-distance / (2 * sigma.clamp(min=1e-3).square())[:, None, None])
    return kernel / kernel.sum(2, keepdim=True)
