"""Encoders and heads: shapes, sizes, and what is refused."""

import itertools
from typing import Any

import pytest
import torch
from torch import nn

from fedcore import nets
from fedcore.nets.heads import WIDTH

SMALL = {"conv_small": {"width": 8, "features": 16}, "mlp": {"width": 16}}
LEAST = {"simple_cnn": 16, "cnn13": 12}


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 96, 96), (1, 96, 96)], ids=str)
@pytest.mark.parametrize("name", nets.ENCODERS)
def test_every_encoder_with_every_head(name: str, shape: nets.Shape) -> None:
    if shape[1] < LEAST.get(name, 1):
        pytest.skip("too small for it")
    encoder = nets.encoder(name, shape, **SMALL.get(name, {}))
    with torch.no_grad():
        features = encoder(torch.rand(2, *shape))
        assert features.shape == (2, encoder.features)
        for head in nets.HEADS:
            assert nets.head(head, encoder.features, 7)(features).shape == (2, 7), head


def test_features() -> None:
    assert nets.encoder("conv_small", (3, 32, 32)).features == 128
    assert nets.encoder("conv_small", (3, 32, 32), features=20).features == 20
    assert nets.encoder("resnet18", (3, 32, 32)).features == 512
    assert nets.encoder("resnet50", (3, 32, 32)).features == 2048


def test_fed_shvrs_networks() -> None:
    encoder = nets.encoder("mlp", (1, 28, 28))
    whole = nn.Sequential(encoder, nets.head("linear", encoder.features, 10))
    assert sum(weight.numel() for weight in whole.parameters()) == 3_975_010
    encoder = nets.encoder("cnn13", (3, 32, 32))
    convolutions = [layer for layer in encoder.body if isinstance(layer, nn.Conv2d)]
    widths = [3, 128, 128, 128, 256, 256, 256, 512, 256, 128]
    assert [(c.in_channels, c.out_channels) for c in convolutions] == list(itertools.pairwise(widths))
    assert encoder.body[:-2](torch.rand(2, 3, 32, 32)).shape == (2, 128, 6, 6)  # then the mean over 6x6


def test_cnn13_adds_its_noise_in_training_only() -> None:
    encoder, x = nets.encoder("cnn13", (1, 12, 12), dropout=0.0, noise=0.5), torch.rand(4, 1, 12, 12)
    assert not torch.equal(encoder(x), encoder(x))
    encoder.eval()
    assert torch.equal(encoder(x), encoder(x))
    still = nets.encoder("cnn13", (1, 12, 12), dropout=0.0, noise=0.0)
    assert torch.equal(still(x), still(x))


@pytest.mark.parametrize("head", ["projection", "projection_unit"])
def test_fedprocs_network_for_cifar10_has_the_parameters_of_its_code(head: str) -> None:
    encoder = nets.encoder("simple_cnn", (3, 32, 32))
    whole = nn.Sequential(encoder, nets.head(head, encoder.features, 10))
    assert sum(weight.numel() for weight in whole.parameters()) == 92_626


def test_the_unit_head_normalises_what_its_output_layer_sees() -> None:
    seen = []
    for name in ("projection", "projection_unit"):
        head = nets.head(name, 16, 10)
        head[-1].register_forward_hook(lambda _, given, __: seen.append(given[0].norm(dim=1)))
        head(torch.cat([torch.randn(3, 16), torch.full((1, 16), 50.0)]))
    assert seen[0].std() > 0.1
    assert torch.allclose(seen[1], torch.ones(4))
    assert nets.heads.Unit()(torch.zeros(1, 4)).tolist() == [[0, 0, 0, 0]]


def test_conv_small_takes_images_that_are_not_square() -> None:
    assert nets.encoder("conv_small", (3, 20, 40), **SMALL["conv_small"])(torch.rand(2, 3, 20, 40)).shape == (2, 16)


def test_conv_small_halves_the_map_four_times() -> None:
    encoder = nets.encoder("conv_small", (3, 32, 32), width=8)
    convolutions = [layer for layer in encoder.body if isinstance(layer, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels, c.kernel_size, c.stride) for c in convolutions] == [
        (3, 8, (3, 3), (2, 2)),
        *[(8, 8, (3, 3), (2, 2))] * 3,
    ]
    assert next(layer for layer in encoder.body if isinstance(layer, nn.Linear)).in_features == 8 * 2 * 2


@pytest.mark.parametrize(("shape", "kept"), [((1, 8, 8), 8), ((3, 64, 64), 64), ((3, 65, 65), 17), ((1, 96, 96), 24)])
def test_resnet18_keeps_the_map_of_small_images(shape: nets.Shape, kept: int) -> None:
    """Up to 64 pixels the stem keeps every pixel; above, stride 2 and pooling leave a quarter of the side."""
    encoder = nets.encoder("resnet18", shape)
    with torch.no_grad():
        stem = encoder.maxpool(encoder.conv1(torch.rand(1, *shape)))
    assert stem.shape == (1, 64, kept, kept)


def sizes(head: nn.Module) -> list[Any]:
    return [(at.in_features, at.out_features) if isinstance(at, nn.Linear) else type(at).__name__ for at in head]


def test_heads_have_hidden_layers_by_their_number() -> None:
    hidden = ["ReLU", (WIDTH, WIDTH)]
    assert WIDTH == 256
    assert sizes([nets.head("linear", 16, 10)]) == [(16, 10)]
    assert sizes(nets.head("mlp1", 16, 10)) == [(16, 256), "ReLU", (256, 10)]
    assert sizes(nets.head("mlp2", 16, 10)) == [(16, 256), *hidden, "ReLU", (256, 10)]
    assert sizes(nets.head("mlp3", 16, 10)) == [(16, 256), *hidden, *hidden, "ReLU", (256, 10)]


def test_every_draw_is_new() -> None:
    first, second = (nets.head("linear", 16, 10) for _ in range(2))
    assert not torch.equal(first.weight, second.weight)


def test_names_and_options_that_are_not_there() -> None:
    with pytest.raises(ValueError, match=r"^net: 'vgg' is unknown; known: conv_small, simple_cnn, cnn13"):
        nets.encoder("vgg", (3, 32, 32))
    with pytest.raises(ValueError, match=r"^net_options: simple_cnn .*images of 15x15 pixels vanish in it; take 16"):
        nets.encoder("simple_cnn", (3, 15, 15))
    with pytest.raises(ValueError, match=r"^net_options: conv_small .*depth"):
        nets.encoder("conv_small", (3, 32, 32), depth=3)
    with pytest.raises(ValueError, match=r"^net_options: resnet18 .*width"):
        nets.encoder("resnet18", (3, 32, 32), width=3)
    with pytest.raises(ValueError, match=r"^head: 'mlp9' is unknown; known: linear, mlp1"):
        nets.head("mlp9", 16, 10)
