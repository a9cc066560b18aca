"""Every path of a workspace, relative to the working directory, which holds params.yaml; and nothing else."""

from pathlib import Path


def params() -> Path:
    return Path("params.yaml")


def dataset(name: str) -> Path:
    return Path("data/raw", name)


def partition(name: str) -> Path:
    return Path("data/partitions", name)


def encoder(name: str) -> Path:
    return Path("models/encoders", name)


def model(run: str) -> Path:
    return Path("models/federated", run)


def result(run: str) -> Path:
    return Path("results", run)


def report() -> Path:
    return Path("report")


def tracking() -> Path:
    return Path("mlruns")


def checkpoint(kind: str, name: str) -> Path:
    """Where unfinished work of a stage outlives its process; git and DVC ignore it."""
    return Path(".fedcore/checkpoints", kind, name)


def prefect_home() -> Path:
    return Path(".fedcore/prefect")
