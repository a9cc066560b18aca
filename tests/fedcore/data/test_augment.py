"""Views of images: their range and their randomness, and every operation against PyTorch, torchvision or by hand."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torchvision.transforms.v2 import functional as T  # noqa: N812

from fedcore.data import augment
from fedcore.data.augment import Views

OFF = {"min_scale": 1.0, "max_ratio": 1.0, "flip": 0.0, "jitter": 0.0, "hue": 0.0, "greyscale": 0.0, "blur": 0.0}
ALL = {"min_scale": 0.1, "flip": 0.5, "jitter": 0.9, "hue": 0.5, "greyscale": 0.3, "blur": 0.5}


def images(*shape: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(3))


def view(x: Tensor, seed: int = 0, **settings: float) -> Tensor:
    """A view of `x` with everything off but `settings`."""
    torch.manual_seed(seed)
    return Views(**{**OFF, **settings})(x)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("settings", [{}, ALL], ids=["default", "strong"])
def test_range_shape_and_type(channels: int, settings: dict[str, float]) -> None:
    torch.manual_seed(0)
    x = images(40, channels, 12, 9).round()  # black and white, so that jitter leaves [0, 1] where it is not clamped
    y = Views(**settings)(x)
    assert y.shape == x.shape
    assert y.dtype == torch.float32
    assert y.min() == 0
    assert y.max() == 1


def test_views_leave_the_images_alone() -> None:
    x = images(4, 3, 8, 8)
    before = x.clone()
    view(x, **ALL)
    assert torch.equal(x, before)


def test_two_views_differ_and_a_seed_repeats_them() -> None:
    x = images(6, 3, 8, 8)
    views = Views()

    def two() -> list[Tensor]:
        torch.manual_seed(0)
        return [views(x), views(x)]

    a, b = two()
    assert torch.all((a - b).abs().amax((1, 2, 3)) > 0.01)
    assert all(torch.equal(first, second) for first, second in zip((a, b), two(), strict=True))


@pytest.mark.parametrize(
    "settings",
    [{"min_scale": 0.2}, {"max_ratio": 2.0}, {"jitter": 0.5}, {"hue": 0.2}, {"blur": 1.0}],
    ids=lambda settings: next(iter(settings)),
)
def test_every_image_has_its_own_view(settings: dict[str, float]) -> None:
    """Eight copies of one image come out as eight images, so nothing is drawn once for the batch."""
    y = view(images(1, 3, 8, 8).expand(8, -1, -1, -1), **settings)
    distances = torch.cdist(y.flatten(1), y.flatten(1)) + torch.eye(8)
    assert distances.min() > 1e-3


@pytest.mark.parametrize(("name", "share"), [("flip", 0.5), ("flip", 0.2), ("greyscale", 0.2), ("blur", 0.3)])
def test_chances(name: str, share: float) -> None:
    """2 000 draws: the share of images that change is within four standard deviations (0.045) of the chance."""
    x = images(1, 3, 4, 4).expand(2000, -1, -1, -1)
    changed = (view(x, **{name: share}) - x).abs().amax((1, 2, 3)) > 1e-5
    assert changed.float().mean().item() == pytest.approx(share, abs=0.045)


@pytest.mark.parametrize("channels", [1, 3])
def test_all_off_is_the_image(channels: int) -> None:
    x = images(5, channels, 8, 10)
    assert torch.allclose(view(x), x, atol=1e-6)


@pytest.mark.parametrize("channels", [1, 3])
def test_flip_mirrors_columns(channels: int) -> None:
    """Exactly as the view without a flip, mirrored; on one channel exactly the image mirrored."""
    x = images(5, channels, 8, 10)
    assert torch.equal(view(x, flip=1.0), view(x).flip(3))
    assert torch.allclose(view(x, flip=1.0), x.flip(3), atol=1e-6)
    assert torch.equal(view(x[:, :1], flip=1.0), x[:, :1].flip(3))


@pytest.mark.parametrize("settings", [{"hue": 1.0}, {"jitter": 0.0, "greyscale": 1.0}, {"hue": 0.5, "greyscale": 0.5}])
def test_hue_and_greyscale_keep_grey_pixels(settings: dict[str, float]) -> None:
    x = images(6, 1, 8, 8).expand(-1, 3, -1, -1)
    assert torch.allclose(view(x, **settings), x, atol=1e-5)


def test_grey_images_stay_grey() -> None:
    y = view(images(6, 1, 8, 8).expand(-1, 3, -1, -1), **ALL)
    assert torch.allclose(y, y[:, :1].expand_as(y), atol=1e-5)
    assert y.std() > 0.05


@pytest.mark.parametrize("name", ["hue", "greyscale"])
def test_one_channel_has_no_hue(name: str) -> None:
    x = images(6, 1, 8, 8)
    assert torch.equal(view(x, **{name: 1.0}), x)


def test_greyscale_is_the_luma() -> None:
    x = images(6, 3, 8, 8)
    luma = 0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]
    y = view(x, greyscale=1.0)
    assert all(torch.allclose(y[:, channel], luma, atol=1e-5) for channel in range(3))
    assert torch.allclose(y, T.rgb_to_grayscale(x, 3), atol=1e-3)


def test_hue_turns_the_chroma_and_keeps_its_length() -> None:
    """In YIQ: Y stays, (I, Q) turns by an angle of its own for each image, up to half a turn either way."""
    x = 0.4 + 0.2 * images(200, 3, 8, 8)  # no colour leaves [0, 1] when turned
    y = view(x, hue=0.5)
    before, after = (torch.einsum("rc,bchw->brhw", augment.TO_YIQ, image) for image in (x, y))
    assert torch.allclose(after[:, 0], before[:, 0], atol=1e-5)
    turned, start = (torch.complex(yiq[:, 1], yiq[:, 2]) for yiq in (after, before))
    assert torch.allclose(turned.abs(), start.abs(), atol=1e-5)
    angle = (turned * start.conj()).sum((1, 2)).angle()
    assert torch.allclose(turned, start * torch.polar(torch.ones(200), angle)[:, None, None], atol=1e-5)
    assert angle.min() < -3
    assert angle.max() > 3
    assert view(x, hue=0.1).sub(x).abs().max() < y.sub(x).abs().max()


@pytest.mark.parametrize("channels", [1, 3])
def test_jitter_is_torchvisions_brightness_contrast_and_saturation(channels: int) -> None:
    """In this order, with the factors that the view drew: read off its mean and deviation, within 1 +- jitter, and all
    over that range. Mid-grey images, so that nothing is clamped."""
    x = 0.35 + 0.1 * images(300, channels, 6, 6)
    y = view(x, jitter=0.4)
    weights = torch.tensor([0.299, 0.587, 0.114] if channels == 3 else [1.0])[:, None, None]
    before, after = ((image * weights).sum(1) for image in (x, y))  # saturation keeps both
    brightness = after.mean((1, 2)) / before.mean((1, 2))
    contrast = after.std((1, 2)) / before.std((1, 2)) / brightness
    factors = [brightness, contrast]
    z = [T.adjust_contrast(T.adjust_brightness(x[n], float(brightness[n])), float(contrast[n])) for n in range(300)]
    if channels == 3:
        saturation = (y - after[:, None]).flatten(1).norm(dim=1) / (torch.stack(z) - after[:, None]).flatten(1).norm(
            dim=1
        )
        factors.append(saturation)
        z = [T.adjust_saturation(image, float(factor)) for image, factor in zip(z, saturation, strict=True)]
    assert torch.allclose(y, torch.stack(z), atol=1e-3)
    for factor in factors:
        assert 0.595 < factor.min() < 0.65
        assert 1.35 < factor.max() < 1.405


@pytest.mark.parametrize(("top", "left", "tall", "wide"), [(2, 3, 6, 5), (0, 0, 12, 10), (7, 0, 5, 10), (4, 2, 4, 4)])
def test_crop_is_bilinear_resizing(top: int, left: int, tall: int, wide: int) -> None:
    """As torchvision's crop and resize, but for the outermost pixels: there it repeats the edge of the crop, where the
    view takes what the image holds beyond."""
    x = images(1, 3, 12, 10)
    rows = augment.interpolation(12, torch.tensor([float(tall)]), torch.tensor([float(top)]))
    columns = augment.interpolation(10, torch.tensor([float(wide)]), torch.tensor([float(left)]))
    y = rows[:, None] @ x @ columns[:, None].mT
    z = T.resized_crop(x, top, left, tall, wide, [12, 10], antialias=False)
    inner = (slice(None), slice(None), slice(2, -2), slice(2, -2))
    assert torch.allclose(y[inner], z[inner], atol=1e-5)


def test_crop_at_fractions_of_pixels_is_grid_sampling() -> None:
    x = images(2, 1, 12, 10)
    tall, top = torch.tensor([5.3, 9.1]), torch.tensor([2.2, 0.4])
    wide, left = torch.tensor([4.7, 8.0]), torch.tensor([5.3, 1.6])
    y = augment.interpolation(12, tall, top)[:, None] @ x @ augment.interpolation(10, wide, left)[:, None].mT
    box = torch.zeros(2, 2, 3)  # from [-1, 1] over the crop to [-1, 1] over the image
    box[:, 0, 0], box[:, 0, 2] = wide / 10, (2 * left + wide) / 10 - 1
    box[:, 1, 1], box[:, 1, 2] = tall / 12, (2 * top + tall) / 12 - 1
    grid = F.affine_grid(box, [2, 1, 12, 10], align_corners=False)
    assert torch.allclose(y, F.grid_sample(x, grid, padding_mode="border", align_corners=False), atol=1e-5)


def test_crops_keep_to_their_area_and_ratio() -> None:
    """On two ramps, one down and one across, the differences of neighbours are the sides of the crop."""
    size = 64
    ramp = torch.arange(size).float() / size
    x = torch.stack([ramp[:, None].expand(size, size), ramp.expand(size, size)]).expand(500, -1, -1, -1)
    y = view(x, min_scale=0.25, max_ratio=1.5)
    tall, wide = ((y[:, n, 40, 40] - y[:, n, 24, 24]) * size / 16 for n in range(2))
    area, ratio = tall * wide, wide / tall
    assert area.min() > 0.24
    assert area.min() < 0.3
    assert 0.9 < area.max() < 1.01
    assert 1.4 < ratio.max() < 1.51
    assert 1.4 < 1 / ratio.min() < 1.51
    assert y[:, 0, 0, 0].max() > 0.3  # and they lie anywhere
    assert y[:, 0, 0, 0].min() < 0.1


@pytest.mark.parametrize("sigma", [0.5, 1.0, 2.0])
def test_blur_is_torchvisions_away_from_the_border(sigma: float) -> None:
    x = images(1, 3, 40, 30)
    rows, columns = (augment.gaussian(size, torch.tensor([sigma])) for size in (40, 30))
    y = rows[:, None] @ x @ columns[:, None].mT
    z = T.gaussian_blur(x, [21, 21], [sigma, sigma])
    assert torch.allclose(y[..., 10:-10, 10:-10], z[..., 10:-10, 10:-10], atol=1e-4)


def test_blur_keeps_flat_images_and_smooths_others() -> None:
    flat = torch.full((4, 3, 8, 8), 0.3)
    assert torch.allclose(view(flat, blur=1.0), flat, atol=1e-6)
    x = images(20, 3, 16, 16)
    assert torch.all(view(x, blur=1.0).std((2, 3)) <= x.std((2, 3)) + 1e-6)
    assert torch.equal(augment.gaussian(6, torch.zeros(1))[0], torch.eye(6))


@pytest.mark.parametrize(
    "settings",
    [
        {"min_scale": 0.0},
        {"min_scale": 1.5},
        {"max_ratio": 0.9},
        {"max_ratio": math.nan},
        {"max_ratio": math.inf},
        *({name: value} for name in ("flip", "jitter", "hue", "greyscale", "blur") for value in (-0.1, 1.1)),
    ],
    ids=str,
)
def test_bad_settings_are_refused_by_name(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(settings))}: "):
        Views(**settings)


def test_none_is_the_image() -> None:
    x = images(2, 3, 4, 4)
    assert augment.AUGMENTS["none"](x) is x


def test_strengths_of_the_specification() -> None:
    """methods.md 1.3: flip, crop scale (0.2, 1) and ratio (3/4, 4/3), jitter 0.5, hue 0.2, greyscale 0.2, no blur."""
    assert Views() == Views(min_scale=0.2, max_ratio=4 / 3, flip=0.5, jitter=0.5, hue=0.2, greyscale=0.2, blur=0.0)


def test_crop_flip_gives_every_image_a_place_of_the_reflected_image() -> None:
    """Pixels that tell their place: whatever comes out is a 6x9 window of the padded image, or its mirror image."""
    height, width = 6, 9
    image = torch.arange(2 * height * width).view(1, 2, height, width) / 200
    padded = F.pad(image, (4, 4, 4, 4), mode="reflect")[0]
    windows = padded.unfold(1, height, 1).unfold(2, width, 1)  # (2, 9, 9, 6, 9)
    torch.manual_seed(0)
    seen: list[tuple[int, int, bool]] = []
    for out in augment.crop_flip(image.repeat(400, 1, 1, 1)):
        for mirrored in (False, True):
            alike = (windows == (out.flip(2) if mirrored else out)[:, None, None]).all(-1).all(-1).all(0)
            seen += [(int(a), int(b), mirrored) for a, b in alike.nonzero()]
    assert len(seen) >= 400
    places = set(seen)
    assert {(a, b) for a, b, _ in places} >= {(0, 0), (0, 8), (8, 0), (8, 8), (4, 4)}
    assert 150 < sum(mirrored for *_, mirrored in seen) * 400 / len(seen) < 250


def test_crop_flip_rotate_turns_by_at_most_fifteen_degrees_about_the_middle() -> None:
    """A bright bar through the middle of a large image still passes the middle, at an angle within the bounds."""
    image = torch.zeros(1, 1, 65, 65)
    image[..., 32, :] = 1
    torch.manual_seed(0)
    angles = []
    for out in augment.crop_flip_rotate(image.repeat(300, 1, 1, 1)):
        left, right = (out[0, :, column].argmax().item() for column in (12, 52))
        angles.append(math.degrees(math.atan2(right - left, 40)))
    assert max(map(abs, angles)) <= 16.5  # a pixel of 40 is 1.4 degrees
    assert max(angles) > 12
    assert min(angles) < -12
    assert abs(sum(angles) / len(angles)) < 2


def test_crop_flip_rotate_turns_squares_and_others_without_stretching() -> None:
    """A disc stays one of the same area, in an image that is not square too."""
    rows, columns = torch.arange(64)[:, None], torch.arange(96)[None]
    disc = (((rows - 31.5) ** 2 + (columns - 47.5) ** 2) < 20**2).float()[None, None]
    torch.manual_seed(0)
    for out in augment.crop_flip_rotate(disc.repeat(20, 1, 1, 1)):
        assert out.sum().item() == pytest.approx(disc.sum().item(), rel=0.01)
        across = (out[0].sum(0) > 0.5).sum(), (out[0].sum(1) > 0.5).sum()
        assert abs(int(across[0]) - int(across[1])) <= 2


@pytest.mark.parametrize("name", augment.AUGMENTS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (3, 20, 40)], ids=str)
def test_what_local_training_does_keeps_shape_and_range_and_depends_on_the_seed_alone(
    name: str, shape: tuple[int, ...]
) -> None:
    x = torch.rand(16, *shape)
    outs = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        outs.append(augment.AUGMENTS[name](x))
    assert outs[0].shape == x.shape
    assert outs[0].min() >= 0
    assert outs[0].max() <= 1 + 1e-6
    assert torch.equal(outs[0], outs[1])
    assert torch.equal(outs[0], outs[2]) == (name == "none")
