"""Finished work in its place, whole or not at all; unfinished work in a place that outlives its process."""

import hashlib
import json
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch

import fedcore
from tasks import layout


@contextmanager
def replacing(folder: Path) -> Iterator[Path]:
    """A new empty folder that takes the place of `folder` when the block ends well, and vanishes when it does not."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as aside:
        fresh = Path(aside, "fresh")
        fresh.mkdir()
        yield fresh
        if folder.exists():
            folder.rename(Path(aside, "old"))
        fresh.rename(folder)


def unfinished(kind: str, name: str, *causes: object) -> Path:
    """The checkpoint folder of a node for these `causes` (json-able): what decides its result, beside all of fedcore.

    Checkpoints of the node from other causes can never be used again and are deleted.
    """
    cause = fingerprint([causes, _source(), torch.__version__])
    folder = layout.checkpoint(kind, f"{name}-{cause[:16]}")
    for other in folder.parent.glob(f"{name}-" + "?" * 16):
        if other != folder:
            shutil.rmtree(other)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def record(facts: dict[str, Any], path: Path) -> None:
    """Write json that is readable and strict: what is not a finite number is null."""
    path.write_text(json.dumps(_finite(facts), indent=2, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def fingerprint(causes: object) -> str:
    """SHA-256 in hex of what can be written as json, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(causes, sort_keys=True, default=str).encode()).hexdigest()


@cache
def _source() -> str:
    return digest(Path(fedcore.__file__).parent, "*.py")


def digest(folder: Path, pattern: str = "*") -> str:
    """SHA-256 in hex of the names and contents of the files below `folder` that match `pattern`."""
    whole = hashlib.sha256()
    for path in sorted(path for path in folder.rglob(pattern) if path.is_file()):
        whole.update(f"{path.relative_to(folder)}:{path.stat().st_size}:".encode())
        whole.update(path.read_bytes())
    return whole.hexdigest()
