"""DVC: the graph of stages, which of them is stale, and the versions of what was made. Nothing else calls dvc."""

import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import yaml
from prefect import task
from prefect.client.schemas.objects import State

from fedcore.config import ConfigError

log = logging.getLogger("fedcore")

LOGGED = re.compile(r"^[\d:.]+ \| (?:INFO +\| )?")  # what Prefect puts before a line of a stage's log
ONE_AT_A_TIME = threading.Lock()  # DVC's own lock is for processes
RUNNING: set[subprocess.Popen[str]] = set()
STOPPING = threading.Event()


def tags(folders: Mapping[str, Path]) -> dict[str, str]:
    """The commit of the code, and by DVC's lock the hash of each folder, as far as they are known."""
    found = {}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if commit.returncode == 0:
        found["git_commit"] = commit.stdout.strip()
    lock = Path("dvc.lock")
    stages = yaml.safe_load(lock.read_text())["stages"] if lock.is_file() else {}
    hashes = {Path(out["path"]): out.get("md5", "") for stage in stages.values() for out in stage.get("outs", [])}
    return found | {f"dvc_{name}": hashes[folder] for name, folder in folders.items() if folder in hashes}


def graph(stages: Sequence[str] = ()) -> dict[str, list[str]]:
    """The `stages` of dvc.yaml (default all) and all that they depend on, each with those it waits for.

    They come in the order of dvc.yaml and params.yaml, as far as none comes before one that it waits for.

    Raises ConfigError for a dvc.yaml or a params.yaml that DVC does not take, or a stage that is not there.
    """
    import networkx as nx
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo(_wait_for_lock=True) as repo:
            edges = [(str(a.addressing), str(b.addressing)) for a, b in repo.index.graph.edges]
            names = [str(stage.addressing) for stage in repo.index.stages]
    except DvcException as error:
        raise ConfigError(f"dvc.yaml: {error}") from error
    whole = nx.DiGraph(edges)  # from a stage to what it waits for
    whole.add_nodes_from(names)
    for stage in stages:
        if stage not in names:
            raise ConfigError(f"stages: {stage!r} is not in dvc.yaml; known: {', '.join(sorted(names))}")
    wanted = set(stages).union(*(nx.descendants(whole, stage) for stage in stages)) if stages else set(names)
    order = nx.lexicographical_topological_sort(whole.reverse(), key=names.index)
    return {stage: sorted(whole.successors(stage)) for stage in order if stage in wanted}


def stale(stage: str) -> bool:
    """Whether a stage, or something that it depends on, has changed since it was run."""
    from dvc.repo import Repo

    with ONE_AT_A_TIME, Repo(_wait_for_lock=True) as repo:
        return bool(repo.status([stage]))


def _worth_another_try(task: object, run: object, state: State[object]) -> bool:
    """A crash may be luck and a run goes on where it stopped; status 2 is the study's fault."""
    return not STOPPING.is_set() and "exited with 2" not in str(state.message)


@task(task_run_name="{stage}", retries=1, retry_delay_seconds=1, retry_condition_fn=_worth_another_try)
def reproduce(stage: str, force: bool = False) -> None:
    """Run one stage, if it is stale, as `dvc repro --single-item` in a process of its own.

    Raises RuntimeError if it fails.
    """
    if not force and not stale(stage):
        log.info("%s is up to date", stage)
        return
    flags = ["--force"] if force else []
    dvc(["--wait-for-lock", "repro", "--single-item", *flags, stage], stage)


@contextmanager
def stopping_with_us() -> Iterator[None]:
    """Whatever ends the block with an exception, a signal too, ends the dvc commands that still run."""
    STOPPING.clear()
    try:
        yield
    except BaseException:
        STOPPING.set()
        for process in list(RUNNING):
            with suppress(psutil.NoSuchProcess):
                for part in (*psutil.Process(process.pid).children(recursive=True), process):
                    with suppress(psutil.NoSuchProcess):
                        part.terminate()
        raise


def dvc(arguments: Sequence[str], name: str) -> None:
    """Run a dvc command, what it says in the log under `name`. Raises RuntimeError, with its last line, if it fails."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    said = "no output"
    with subprocess.Popen(
        [sys.executable, "-m", "dvc", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PATH": path},
    ) as process:  # fmt: skip
        assert process.stdout is not None
        RUNNING.add(process)
        for line in process.stdout:
            said = LOGGED.sub("", line.rstrip()) or said
            if line.strip():
                log.info("%s: %s", name, LOGGED.sub("", line.rstrip()))
        RUNNING.discard(process)
    if process.returncode:
        raise RuntimeError(f"{name}: dvc ended with status {process.returncode}: {said}")


def compose(study: str, overrides: Sequence[str], target: Path) -> None:
    """Write conf/ composed with the study of that name, as `dvc exp run -S study=...` would, to `target`.

    Raises ConfigError for a study or an override that does not exist.
    """
    from dvc.utils.hydra import compose_and_dump
    from hydra.errors import HydraException

    known = sorted(path.stem for path in Path("conf/study").glob("*.yaml"))
    if study not in known:
        raise ConfigError(f"study: {study!r} is not in conf/study; known: {', '.join(known)}")
    try:
        settings = [f"study={study}", *overrides]
        compose_and_dump(target, str(Path("conf").absolute()), None, "config", "", settings)
    except HydraException as error:
        raise ConfigError(f"study: {error}") from error
