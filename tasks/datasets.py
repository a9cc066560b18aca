"""The download stage: the images of a dataset node, from wherever they come, into the workspace."""

import logging
import os
from dataclasses import replace
from pathlib import Path

from prefect import task

from fedcore.config import ConfigError
from fedcore.data import datasets
from tasks import layout, study

log = logging.getLogger("fedcore")


def cache() -> Path:
    """Where downloads are kept for every workspace: FEDCORE_CACHE, or a folder of the user's cache."""
    return Path(os.environ.get("FEDCORE_CACHE") or "~/.cache/fedcore/downloads").expanduser()


def mirror() -> Path | None:
    """The offline mirror for every node that names none: FEDCORE_MIRROR."""
    folder = os.environ.get("FEDCORE_MIRROR")
    return Path(folder).expanduser() if folder else None


@task(task_run_name="download-{name}")
def download(name: str) -> Path:
    """Write data/raw/<name>; returns that folder. Raises ConfigError, and then has written nothing."""
    nodes = study.load().datasets
    if name not in nodes:
        raise ConfigError(f"datasets.{name}: not defined in {layout.params()}; known: {', '.join(nodes)}")
    spec = replace(nodes[name], path=_home(nodes[name].path), mirror=_home(nodes[name].mirror))
    found = datasets.load(name, spec, cache=cache(), mirror=mirror())
    facts = datasets.write(layout.dataset(name), found, spec.source)
    counts = ", ".join(f"{split} {part['count']}" for split, part in facts["splits"].items())
    shape = "x".join(map(str, facts["shape"]))
    log.info("%s: %s images of %s, %d classes", name, counts, shape, len(facts["classes"]))
    return layout.dataset(name)


def _home(path: str | None) -> str | None:
    return None if path is None else str(Path(path).expanduser())
