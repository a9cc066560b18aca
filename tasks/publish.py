"""Finished work in its place, whole or not at all; unfinished work in a place that outlives its process."""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

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
    told = json.dumps([causes, _source(), torch.__version__], sort_keys=True, default=str)
    folder = layout.checkpoint(kind, f"{name}-{hashlib.sha256(told.encode()).hexdigest()[:16]}")
    for other in folder.parent.glob(f"{name}-" + "?" * 16):
        if other != folder:
            shutil.rmtree(other)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


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
