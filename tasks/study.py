"""params.yaml as a typed study, built strictly: whatever is wrong in it is said before any work is done."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
import yaml

from fedcore import config, nets, registry
from fedcore.config import ConfigError
from fedcore.contrastive import ALGORITHMS, EncoderSpec
from fedcore.data.datasets import DatasetSpec
from fedcore.data.partition import Scheme
from fedcore.data.schemes import SCHEMES
from fedcore.data.semi import Semi
from fedcore.engine import Plan, check
from fedcore.executors import Pool, Processes, Sequential
from fedcore.method import Method
from tasks import layout

T = TypeVar("T")

GPU = "gpu"
"""The tag of tasks that compute for long: as many run at once as Prefect's concurrency limit for it has slots."""

NAMES = "a name is made of at most 64 letters, digits, - and _ and does not begin with -"
NAME = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}"
MOST_THREADS = 1024
SECTIONS = ("study", "seed", "datasets", "partitions", "encoders", "runs", "hardware")


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """Where work is done. It cannot change results, so no stage depends on it."""

    device: str = "auto"  # auto, cpu, cuda, cuda:1, mps
    executor: Literal["auto", "sequential", "processes"] = "auto"
    workers: int | Literal["auto"] = "auto"  # processes that train clients
    threads: int = 1  # CPU threads of each; results agree bit for bit only between runs with the same number
    checkpoint_seconds: float = 30.0  # so much work is lost at most when a process is killed; 0: every round

    def __post_init__(self) -> None:
        for name, value in (("workers", self.workers), ("threads", self.threads)):
            if value != "auto" and not 1 <= value <= MOST_THREADS:
                raise ValueError(f"{name}: {value} {name}; take 1 to {MOST_THREADS}")
        if self.checkpoint_seconds < 0:
            raise ValueError(f"checkpoint_seconds: {self.checkpoint_seconds} is negative; 0 is after every round")
        self.torch_device()

    def torch_device(self) -> torch.device:
        """The device to train on. Raises ValueError if this machine does not have it."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", self.device):
            raise ValueError(f"device: {self.device!r} is none; use auto, cpu, cuda, cuda:1 or mps")
        try:
            torch.empty(0, device=self.device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"device: {self.device!r} is not here ({reason}); use auto or cpu") from error
        return torch.device(self.device)

    @property
    def cores(self) -> int:
        """CPU threads that a stage may use in all."""
        workers = os.cpu_count() or 1 if self.workers == "auto" else self.workers
        return workers * self.threads

    def pool(self) -> Pool:
        """The executor of federated rounds."""
        device, workers = self.torch_device(), self.cores // self.threads
        parallel = self.executor == "processes" or (self.executor == "auto" and device.type == "cpu" and workers > 1)
        return Processes(workers, self.threads, device) if parallel else Sequential(self.threads, device)


@dataclass(frozen=True, kw_only=True)
class Run(Plan):
    """One row of a study's table: a method on a partition from an encoder."""

    method: str
    partition: str
    encoder: str
    seeds: tuple[int, ...] = (0,)
    head: str = "linear"
    pooling: Literal["none", "all", "groups"] = "none"  # one client of all clients' data, or one for each true group
    features: int = 0  # test images of each of two clients that the report maps by their features (t-SNE); 0: no map
    surface: int = 0  # points a side of the map of the loss around the final model, first seed; 0: no map
    settings: Mapping[str, Any] = field(default_factory=dict)  # the method's own

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds: {list(self.seeds)}; give at least one, each once")
        if self.head not in nets.HEADS:
            raise ValueError(f"head: {self.head!r} is unknown; known: {', '.join(nets.HEADS)}")
        if self.features < 0:
            raise ValueError(f"features: {self.features} is negative; 0 is no map")
        if self.surface and (self.surface < 3 or self.surface % 2 == 0):
            raise ValueError(f"surface: {self.surface}; take an odd number from 3, with the model in the middle, or 0")

    def build(self, path: str) -> Method[Any, Any]:
        """The method with its hyper-parameters, not yet bound to a task."""
        cls = registry.method(self.method, f"{path}.method")
        return config.build(cls, self.settings, path, exclude=("task",), also=RUN_FIELDS)


RUN_FIELDS = tuple(f.name for f in fields(Run) if f.name != "settings")


@dataclass(frozen=True, kw_only=True)
class Study:
    study: str
    seed: int
    datasets: Mapping[str, DatasetSpec]
    partitions: Mapping[str, Scheme]
    encoders: Mapping[str, EncoderSpec]
    runs: Mapping[str, Run]
    hardware: Hardware
    raw: Mapping[str, Any] = field(repr=False)  # as written, for fingerprints and records


def load(path: Path | None = None) -> Study:
    """Read and check a whole study, by default the workspace's params.yaml.

    Raises ConfigError (a ValueError) that names the path in the study and the remedy.
    """
    path = path or layout.params()
    if set("%?#") & set(str(Path.cwd())):
        raise ConfigError(f"{Path.cwd()}: MLflow and Prefect open no database below a folder with %, ? or #; rename it")
    if not path.is_file():
        raise ConfigError(f"{path}: not found; run from the folder that holds it")
    try:
        raw = yaml.load(path.read_text(), _Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    return parse(raw)


class _Loader(yaml.SafeLoader):
    """Refuses what YAML lets pass and nobody means: a key that is there twice, of which the last would win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} is there twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def parse(raw: object) -> Study:
    """Build and check a study from plain mappings."""
    if not isinstance(raw, Mapping):
        raise ConfigError("study: expected a mapping of sections: " + ", ".join(SECTIONS))
    for key in raw:
        if key not in SECTIONS:
            raise ConfigError(f"{key}: unknown section; known: {', '.join(SECTIONS)}")
    for section in SECTIONS[:-1]:
        if raw.get(section) is None:
            raise ConfigError(f"{section}: missing; a study has {', '.join(SECTIONS[:-1])} (write {{}} for no nodes)")
    title, seed = config.convert(str, raw["study"], "study"), config.convert(int, raw["seed"], "seed")
    if not re.fullmatch(NAME, title):
        raise ConfigError(f"study: {title!r} is no name; {NAMES}")
    if seed < 0:
        raise ConfigError(f"seed: {seed} is negative; take at least 0")
    study = Study(
        study=title,
        seed=seed,
        datasets=_nodes(raw, "datasets", lambda path, node: config.build(DatasetSpec, _seeded(node, seed), path)),
        partitions=_nodes(raw, "partitions", lambda path, node: _scheme(path, _seeded(node, seed))),
        encoders=_nodes(raw, "encoders", lambda path, node: _encoder(path, _seeded(node, seed))),
        runs=_nodes(raw, "runs", lambda path, node: _run(path, node, seed)),
        hardware=config.build(Hardware, raw.get("hardware") or {}, "hardware"),
        raw=raw,
    )
    _check_names(study)
    _check_cycles(study)
    return study


def _nodes(raw: Mapping[str, Any], section: str, build: Callable[[str, Mapping[str, Any]], T]) -> dict[str, T]:
    nodes = raw[section]
    if not isinstance(nodes, Mapping):
        raise ConfigError(f"{section}: expected a mapping from names to nodes")
    built = {}
    for name, node in nodes.items():
        if not isinstance(name, str):
            raise ConfigError(f"{section}.{name}: YAML reads this name as {type(name).__name__}; put it in quotes")
        if not re.fullmatch(NAME, name):
            raise ConfigError(f"{section}.{name}: {NAMES}")
        if not isinstance(node, Mapping):
            raise ConfigError(f"{section}.{name}: expected a mapping of settings, got {node!r}")
        built[name] = build(f"{section}.{name}", node)
    return built


def _seeded(node: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The study's seed is the default seed of every node."""
    return {"seed": seed, **node}


def _chosen(table: Mapping[str, type[T]], node: dict[str, Any], key: str, path: str) -> tuple[type[T], dict[str, Any]]:
    name = node.pop(key, None)
    if not isinstance(name, str) or name not in table:
        raise ConfigError(f"{path}.{key}: {name!r} is unknown; known: {', '.join(table)}")
    return table[name], node


def _scheme(path: str, node: dict[str, Any]) -> Scheme:
    cls, rest = _chosen(SCHEMES, node, "scheme", path)
    return config.build(cls, rest, path, also=("scheme",))


def _encoder(path: str, node: dict[str, Any]) -> EncoderSpec:
    cls, rest = _chosen(ALGORITHMS, node, "algorithm", path)
    return config.build(cls, rest, path, also=("algorithm",))


def _run(path: str, node: Mapping[str, Any], seed: int) -> Run:
    own = {"seeds": [seed]} | {key: value for key, value in node.items() if key in RUN_FIELDS}
    settings = {key: value for key, value in node.items() if key not in RUN_FIELDS}
    run = replace(config.build(Run, own, path, exclude=("settings",)), settings=settings)
    method = run.build(path)
    if run.surface and method.personal:
        raise ConfigError(f"{path}.surface: {run.method} has several models; leave it out")
    try:
        check(method, run)
    except ValueError as error:
        raise ConfigError(f"{path}.{error}") from error
    return run


def _check_names(study: Study) -> None:
    """Every node that is named must be defined, once."""

    def defined(name: str, path: str, *sections: str) -> None:
        known = [key for section in sections for key in getattr(study, section)]
        if name not in known:
            raise ConfigError(
                f"{path}: {name!r} is not defined under {' or '.join(sections)}; known: {', '.join(known)}"
            )

    for name in study.encoders.keys() & study.runs.keys():
        raise ConfigError(f"runs.{name}: there is an encoder of this name too, and a run publishes its own; rename one")
    for name, partition in study.partitions.items():
        defined(partition.dataset, f"partitions.{name}.dataset", "datasets")
    for name, encoder in study.encoders.items():
        defined(encoder.dataset, f"encoders.{name}.dataset", "datasets")
    for name, run in study.runs.items():
        defined(run.partition, f"runs.{name}.partition", "partitions")
        defined(run.encoder, f"runs.{name}.encoder", "encoders", "runs")
        source = study.runs.get(run.encoder)
        if source and registry.method(source.method).personal:
            raise ConfigError(
                f"runs.{name}.encoder: run {run.encoder!r} has several models; name an encoder, or a run with one model"
            )
        if source and not set(run.seeds) <= set(source.seeds):
            raise ConfigError(
                f"runs.{name}.seeds: {list(run.seeds)} need an encoder each, and run {run.encoder!r} has the seeds "
                f"{list(source.seeds)}; give both the same"
            )
        if registry.method(run.method).needs_unlabelled and not isinstance(study.partitions[run.partition], Semi):
            raise ConfigError(
                f"runs.{name}.partition: {run.method} learns from unlabelled images, and {run.partition!r} has none; "
                "take a scheme whose name begins with semi_"
            )
        if run.pooling == "groups" and not hasattr(study.partitions[run.partition], "groups"):
            raise ConfigError(
                f"runs.{name}.pooling: partition {run.partition!r} has no true groups; use the scheme groups"
            )


def _check_cycles(study: Study) -> None:
    for name in study.runs:
        trail = [name]
        while (origin := study.runs[trail[-1]].encoder) in study.runs:
            if origin in trail:
                raise ConfigError(
                    f"runs.{name}.encoder: a cycle: {' <- '.join([*trail, origin])}; start one from an encoder"
                )
            trail.append(origin)


def origin(study: Study, encoder: str) -> EncoderSpec:
    """The encoder node at the start of the chain of runs that `encoder` names: it says what net it is."""
    while encoder in study.runs:
        encoder = study.runs[encoder].encoder
    return study.encoders[encoder]
