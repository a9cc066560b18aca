"""Strict building: what is wrong is named by its path."""

from dataclasses import dataclass, field
from typing import Literal

import pytest

from fedcore import config
from fedcore.config import ConfigError
from fedcore.fit import LocalFit


@dataclass(frozen=True, kw_only=True)
class Node:
    rounds: int
    rate: float = 0.5
    mode: Literal["a", "b"] = "a"
    level: Literal[1, 3] = 1
    groups: tuple[tuple[int, ...], ...] = ()
    limit: int | None = None
    workers: int | Literal["auto"] = "auto"
    options: dict[str, int] = field(default_factory=dict)
    fit: LocalFit = LocalFit(epochs=3, optimizer="adam", lr=1e-3)
    hidden: int = 0

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds: {self.rounds}; play at least one")


def test_builds_with_conversions() -> None:
    node = config.build(
        Node, {"rounds": 3, "rate": 1, "groups": [[0, 1], [2]], "limit": 4, "options": {"w": 2}}, "runs.x"
    )
    assert node == Node(rounds=3, rate=1.0, groups=((0, 1), (2,)), limit=4, options={"w": 2})
    assert isinstance(node.rate, float)


def test_nested_settings_override_the_default_field_by_field() -> None:
    node = config.build(Node, {"rounds": 1, "fit": {"epochs": 7}}, "runs.x")
    assert node.fit == LocalFit(epochs=7, optimizer="adam", lr=1e-3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rounds": 1, "round": 2}, r"runs\.x\.round: unknown; known: rounds, rate, .*, extra"),
        ({}, r"runs\.x\.rounds: missing"),
        ({"rounds": "3"}, r"runs\.x\.rounds: expected int, got '3'"),
        ({"rounds": True}, r"runs\.x\.rounds: expected int"),
        ({"rounds": 1.5}, r"runs\.x\.rounds: expected int"),
        ({"rounds": 0}, r"runs\.x\.rounds: 0; play at least one"),
        ({"rounds": 1, "mode": "c"}, r"runs\.x\.mode: 'c' is not one of a, b"),
        (
            {"rounds": 1, "workers": "many"},
            r"runs\.x\.workers: expected int, got 'many', and 'many' is not one of auto",
        ),
        ({"rounds": 10**30}, r"runs\.x\.rounds: a number of 31 digits"),
        ({"rounds": 1, "rate": 10**400}, r"runs\.x\.rate: a number of 401 digits"),
        ({"rounds": 1, "rate": float("inf")}, r"runs\.x\.rate: inf is not a finite number"),
        ({"rounds": 1, "rate": "1e-3"}, r"runs\.x\.rate: expected float, got '1e-3'; without quotes it is 0\.001"),
        ({"rounds": 1, "mode": ["a"]}, r"runs\.x\.mode: \['a'\] is not one of a, b"),
        ({"rounds": 1, "level": True}, r"runs\.x\.level: True is not one of 1, 3"),
        ({"rounds": 1, "groups": [[0], ["x"]]}, r"runs\.x\.groups\[1\]\[0\]: expected int"),
        ({"rounds": 1, "options": {"w": "x"}}, r"runs\.x\.options\.w: expected int"),
        ({"rounds": 1, "fit": {"epoch": 2}}, r"runs\.x\.fit\.epoch: unknown; known: epochs"),
        ({"rounds": 1, "fit": {"lr": -1.0}}, r"runs\.x\.fit\.lr: -1.0 is not positive"),
        ({"rounds": 1, "fit": 3}, r"runs\.x\.fit: expected a mapping"),
        ({"rounds": 1, "hidden": 2}, r"runs\.x\.hidden: unknown"),
        ([], r"runs\.x: expected a mapping"),
    ],
)
def test_errors_name_the_path(values: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config.build(Node, values, "runs.x", exclude=("hidden",), also=("extra",))
