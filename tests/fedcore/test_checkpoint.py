"""Reports on disk."""

from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from fedcore import checkpoint
from fedcore.engine import Report
from fedcore.tree import Params


class State(NamedTuple):
    x: Params
    books: list[torch.Tensor]
    age: int
    note: dict[str, float]


def report(round: int = 3) -> Report:
    x = Params({"a.weight": torch.randn(2, 3), "b": torch.tensor(1.5)})
    server = State(x, [torch.arange(3), torch.zeros(0)], 4, {"tau": 0.25})
    clients = {0: None, 12: State(x, [], 0, {})}
    return Report(round, server, clients, {"loss": float("nan"), "accuracy": 0.1}, {"accuracy": {0: 0.5, 12: 0.25}})


def test_round_trip_keeps_everything(tmp_path) -> None:
    told = report()
    checkpoint.save(told, tmp_path / "report")
    back = checkpoint.load(tmp_path / "report")
    assert repr(back) == repr(told)
    assert type(back.server) is State
    assert all(torch.equal(back.server.x[name], value) for name, value in told.server.x.items())


def test_nothing_there(tmp_path) -> None:
    with pytest.raises(FileNotFoundError):
        checkpoint.load(tmp_path / "report")


def test_a_crash_while_saving_leaves_the_old_one(tmp_path, monkeypatch) -> None:
    checkpoint.save(report(1), tmp_path / "report")

    def full(tensors: object, path: Path, **kwargs: object) -> None:
        path.write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(checkpoint, "save_file", full)
    with pytest.raises(OSError, match="no space"):
        checkpoint.save(report(2), tmp_path / "report")
    assert checkpoint.load(tmp_path / "report").round == 1
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_only_named_tuples_are_built_by_name(tmp_path) -> None:
    with pytest.raises(ValueError, match="no NamedTuple"):
        checkpoint._restore({"named": "pathlib:Path", "items": [{"value": "x"}]}, {})
