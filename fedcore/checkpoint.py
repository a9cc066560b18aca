"""Trees on disk: tensors as safetensors, the rest as json in the same file's header. No pickles."""

import importlib
import json
from pathlib import Path
from typing import Any
from uuid import uuid4

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fedcore.tree import Params


def save(tree: Any, path: Path) -> None:
    """Write `tree` to `path`, replacing what is there in one step: a crash leaves the old or the new, whole.

    A tree is made of NamedTuples, tuples, lists, dicts and Params; its leaves are tensors, numbers, strings and None.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    structure = json.dumps(_describe(tree, "", tensors))
    draft = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        save_file(tensors, draft, metadata={"structure": structure})
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def load(path: Path) -> Any:
    """The tree saved at `path`. Raises FileNotFoundError if there is none, ValueError for a file that is not whole."""
    try:
        return _restore(json.loads(_metadata(path)["structure"]), load_file(path))
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, ImportError, OverflowError) as error:
        raise ValueError(f"{path}: no whole checkpoint ({error}); delete it") from error


def _metadata(path: Path) -> dict[str, str]:
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header: dict[str, dict[str, str]] = json.loads(file.read(size))
    return header["__metadata__"]


def _describe(tree: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """The shape of a tree as json, its tensors put into `tensors` under `name`."""
    if isinstance(tree, Tensor):
        tensors[name] = tree.detach().contiguous().clone()
        return {"tensor": name}
    if isinstance(tree, Params):
        return {"params": {key: _describe(value, f"{name}/{key}", tensors) for key, value in tree.items()}}
    if isinstance(tree, dict):
        return {"dict": [[key, _describe(value, f"{name}/{key}", tensors)] for key, value in tree.items()]}
    if isinstance(tree, tuple | list):
        items = [_describe(value, f"{name}/{position}", tensors) for position, value in enumerate(tree)]
        if hasattr(tree, "_fields"):
            return {"named": f"{type(tree).__module__}:{type(tree).__qualname__}", "items": items}
        return {"tuple" if isinstance(tree, tuple) else "list": items}
    return {"value": tree}


def _restore(shape: Any, tensors: dict[str, Tensor]) -> Any:
    if "tensor" in shape:
        return tensors[shape["tensor"]]
    if "params" in shape:
        return Params({key: _restore(value, tensors) for key, value in shape["params"].items()})
    if "dict" in shape:
        return {key: _restore(value, tensors) for key, value in shape["dict"]}
    if "named" in shape:
        module, _, name = shape["named"].partition(":")
        kind = getattr(importlib.import_module(module), name)
        if not (issubclass(kind, tuple) and hasattr(kind, "_fields")):
            raise ValueError(f"{shape['named']} is no NamedTuple")
        return kind(*(_restore(item, tensors) for item in shape["items"]))
    for key, container in (("tuple", tuple), ("list", list)):
        if key in shape:
            return container(_restore(item, tensors) for item in shape[key])
    return shape["value"]
