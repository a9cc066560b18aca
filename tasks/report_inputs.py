"""What a report is made from: the files that the earlier stages left in the workspace, read and no more."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tasks import layout


@dataclass(frozen=True)
class Result:
    """A run that was played."""

    name: str
    record: dict[str, Any]  # run.json
    curves: pd.DataFrame  # a row a seed and round
    clients: pd.DataFrame  # a row a seed, round and client
    features: pd.DataFrame | None = None  # a row an image: client, label, x, y
    surface: pd.DataFrame | None = None  # a row a point: a, b, loss

    @property
    def spec(self) -> dict[str, Any]:
        return self.record.get("spec") or {}

    @property
    def pooled(self) -> bool:
        """True where clients' images were brought together, so that nothing was federated."""
        return bool(self.spec.get("pooling", "none") != "none")


@dataclass(frozen=True)
class Division:
    """A partition and the labels it points to."""

    name: str
    facts: dict[str, Any]  # partition.json
    table: pd.DataFrame
    classes: list[str]
    labels: dict[str, npt.NDArray[np.int64]]  # raw split -> (N,)


@dataclass(frozen=True)
class Encoder:
    name: str
    facts: dict[str, Any]  # encoder.json
    curve: pd.DataFrame | None  # a row an epoch


@dataclass(frozen=True)
class Inputs:
    study: str
    results: list[Result]
    missing: list[str]  # runs of the study that have no result yet
    divisions: dict[str, Division]
    encoders: list[Encoder]


def read(study: str, runs: Iterable[str], encoders: Iterable[str] = ()) -> Inputs:
    """Read the results of `runs`, the partitions they were played on and the `encoders`, in the order given.

    Nodes that have not been made yet are left out. Raises FileNotFoundError if no run has a result.
    """
    names = list(runs)
    played = [name for name in names if (layout.result(name) / "run.json").is_file()]
    if not played:
        raise FileNotFoundError(
            f"{layout.result('')}: no run of study {study!r} has a result yet; run python -m flows.federate RUN first"
        )
    results = [_result(name) for name in played]
    used = dict.fromkeys(str(result.record["partition"]) for result in results)
    return Inputs(
        study=study,
        results=results,
        missing=[name for name in names if name not in played],
        divisions={name: _division(name) for name in used if (layout.partition(name) / "partition.json").is_file()},
        encoders=[_encoder(name) for name in encoders if (layout.encoder(name) / "encoder.json").is_file()],
    )


def _json(path: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(path.read_text())
    return facts


def _result(name: str) -> Result:
    folder = layout.result(name)
    clients = folder / "clients.parquet"
    return Result(
        name=name,
        record=_json(folder / "run.json"),
        curves=pd.read_csv(folder / "curves.csv"),
        clients=pd.read_parquet(clients) if clients.is_file() else pd.DataFrame(columns=["seed", "round", "client"]),
        features=_table(folder / "features.parquet"),
        surface=_table(folder / "surface.parquet"),
    )


def _table(path: Path) -> pd.DataFrame | None:
    return pd.read_parquet(path) if path.is_file() else None


def _division(name: str) -> Division:
    folder = layout.partition(name)
    facts = _json(folder / "partition.json")
    raw = layout.dataset(facts["dataset"])
    return Division(
        name=name,
        facts=facts,
        table=pd.read_parquet(folder / "table.parquet"),
        classes=[str(label) for label in _json(raw / "dataset.json")["classes"]],
        labels={split: np.load(raw / f"{split}_labels.npy") for split in ("train", "test")},
    )


def _encoder(name: str) -> Encoder:
    folder = layout.encoder(name)
    curve = folder / "curve.csv"
    return Encoder(name, _json(folder / "encoder.json"), pd.read_csv(curve) if curve.is_file() else None)
