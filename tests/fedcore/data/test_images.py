import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedcore.config import ConfigError
from fedcore.data.images import Form, conform, decoded, gathered, joined


def picture(mode: str, size: tuple[int, int] = (12, 10), seed: int = 0) -> Image.Image:
    shape = (size[1], size[0], 4 if mode == "RGBA" else 3)
    noise = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    return Image.fromarray(noise, "RGBA") if mode == "RGBA" else Image.fromarray(noise).convert(mode)


def tensor(image: Image.Image) -> torch.Tensor:
    return torch.from_numpy(np.array(image)[None]) if image.mode == "L" else decoded(image)


def test_colour_becomes_the_luma_that_pillow_computes() -> None:
    image = picture("RGB", (40, 30))
    assert torch.equal(conform(decoded(image)[None], Form(channels=1))[0], tensor(image.convert("L")))


def test_grey_is_repeated() -> None:
    image = picture("L")
    repeated = conform(tensor(image)[None], Form(channels=3))[0]
    assert repeated.shape == (3, 10, 12)
    assert all(torch.equal(channel, tensor(image)[0]) for channel in repeated)


@pytest.mark.parametrize("mode", ["L", "RGB"])
@pytest.mark.parametrize("size", [5, 32])
def test_resizing_is_that_of_pillow_to_one_level(mode: str, size: int) -> None:
    image = picture(mode, (24, 18))
    ours = conform(decoded(image)[None], Form(size=size))[0]
    theirs = decoded(image.resize((size, size), Image.Resampling.BILINEAR))
    assert ours.shape == theirs.shape == (1 if mode == "L" else 3, size, size)
    assert (ours.int() - theirs.int()).abs().max() <= 1


def test_no_form_changes_nothing() -> None:
    image = decoded(picture("RGB"))[None]
    assert torch.equal(conform(image, Form()), image)


@pytest.mark.parametrize(("mode", "channels"), [("1", 1), ("L", 1), ("LA", 1), ("P", 3), ("RGBA", 3), ("CMYK", 3)])
def test_modes(mode: str, channels: int) -> None:
    assert decoded(picture(mode)).shape == (channels, 10, 12)


def test_sixteen_bits_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.png"
    Image.fromarray(np.full((4, 4), 40000, np.uint16)).save(path)
    with pytest.raises(ConfigError, match=r"path: .*deep\.png: .*8 bits"):
        decoded(path)


@pytest.mark.parametrize("content", [b"", b"no picture"])
def test_an_unreadable_picture_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.jpg"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"broken\.jpg is no readable picture"):
        decoded(path)


def test_a_truncated_picture_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cut.png"
    buffer = io.BytesIO()
    picture("RGB", (200, 200)).save(buffer, "PNG")
    path.write_bytes(buffer.getvalue()[:5000])
    with pytest.raises(ConfigError, match=r"cut\.png is no readable picture"):
        decoded(path)


def test_one_colour_picture_makes_all_colour_in_the_same_order() -> None:
    pictures = [picture("L", seed=0), picture("RGB", seed=1), picture("L", seed=2)]
    images = gathered(pictures, Form())
    assert images.shape == (3, 3, 10, 12)
    assert torch.equal(images[2], tensor(pictures[2]).expand(3, -1, -1))
    assert torch.equal(images[1], decoded(pictures[1]))


def test_sizes_must_agree_unless_a_size_is_given() -> None:
    pictures = [picture("L", (12, 10)), picture("L", (8, 8))]
    with pytest.raises(ConfigError, match=r"size: the pictures differ in size.*8x8, 10x12"):
        gathered(pictures, Form())
    assert gathered(pictures, Form(size=6)).shape == (2, 1, 6, 6)


def test_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="no images"):
        gathered([], Form())
    with pytest.raises(ConfigError, match="no images"):
        conform(torch.zeros(0, 1, 4, 4, dtype=torch.uint8), Form())
    with pytest.raises(ConfigError, match="no images"):
        joined([])
