"""params.yaml: what is wrong is said by its path, before any work."""

import copy
from pathlib import Path
from typing import Any

import pytest

from fedcore.config import ConfigError
from fedcore.methods.cp_cfl import CPCFL
from tasks import study

GOOD: dict[str, Any] = {
    "study": "small",
    "seed": 7,
    "datasets": {"digits": {"source": "digits"}},
    "partitions": {
        "skewed": {"dataset": "digits", "scheme": "dirichlet", "clients": 5, "beta": 0.5},
        "groups": {"dataset": "digits", "scheme": "groups", "clients": 8, "groups": [[0, 1, 2, 3], [3, 4, 5, 6]],
                   "counts": [4, 4, 2, 2]},
    },
    "encoders": {
        "random": {"algorithm": "random", "dataset": "digits", "net": "conv_small"},
        "simclr": {"algorithm": "simclr", "dataset": "digits", "net": "conv_small", "epochs": 2},
    },
    "runs": {
        "fedavg": {"method": "fedavg", "partition": "groups", "encoder": "random", "rounds": 3},
        "cp_cfl": {"method": "cp_cfl", "partition": "groups", "encoder": "simclr", "rounds": 3, "seeds": [0, 1],
                   "num_clusters": 2, "warmup_rounds": 1, "fit": {"epochs": 1}},
        "ifca": {"method": "ifca", "partition": "groups", "encoder": "fedavg", "rounds": 3},
    },
    "hardware": {"device": "cpu"},
}  # fmt: skip


def test_a_good_study_becomes_typed() -> None:
    whole = study.parse(GOOD)
    assert whole.partitions["skewed"].seed == 7
    assert whole.runs["fedavg"].seeds == (7,)
    method = whole.runs["cp_cfl"].build("runs.cp_cfl")
    assert isinstance(method, CPCFL)
    assert (method.num_clusters, method.fit.epochs, method.fit.optimizer) == (2, 1, "adam")
    assert study.origin(whole, "fedavg").net == "conv_small"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("runs.cp_cfl.num_cluster", 3, r"runs\.cp_cfl\.num_cluster: unknown; known: .*num_clusters"),
        ("runs.cp_cfl.method", "cpcfl", r"runs\.cp_cfl\.method: 'cpcfl' is unknown; known: .*cp_cfl"),
        ("runs.cp_cfl.fit.lr", -0.1, r"runs\.cp_cfl\.fit\.lr: "),
        ("runs.cp_cfl.fit.augment", "rainbow", r"runs\.cp_cfl\.fit\.augment: 'rainbow' is unknown"),
        ("runs.cp_cfl.head", "mlp9", r"runs\.cp_cfl\.head: 'mlp9' is unknown; known: linear"),
        ("runs.cp_cfl.warmup_rounds", -1, r"runs\.cp_cfl\.warmup_rounds: -1 is negative"),
        ("runs.cp_cfl.task", 1, r"runs\.cp_cfl\.task: unknown"),
        ("runs.cp_cfl.settings", {}, r"runs\.cp_cfl\.settings: unknown"),
        ("runs.cp_cfl.seeds", [], r"runs\.cp_cfl\.seeds: \[\]; give at least one"),
        (
            "runs.ifca.seeds",
            [7, 8],
            r"runs\.ifca\.seeds: \[7, 8\] need an encoder each, and run 'fedavg' has the seeds \[7\]",
        ),
        ("runs.cp_cfl.partition", "group", r"runs\.cp_cfl\.partition: 'group' is not defined under partitions"),
        ("runs.cp_cfl.encoder", "byol", r"runs\.cp_cfl\.encoder: 'byol' is not defined under encoders or runs"),
        ("runs.fedavg.encoder", "fedavg", r"runs\.fedavg\.encoder: a cycle: fedavg <- fedavg"),
        ("runs.fedavg.encoder", "fedavg", r"runs\.\w+\.encoder: a cycle: fedavg <- fedavg"),
        ("runs.ifca.encoder", "cp_cfl", r"runs\.ifca\.encoder: run 'cp_cfl' has several models"),
        ("runs.simclr", GOOD["runs"]["fedavg"], r"runs\.simclr: there is an encoder of this name"),
        ("runs.a b", {}, r"runs\.a b: a name is made of"),
        ("runs.fedavg.rounds", None, r"runs\.fedavg\.rounds: expected int"),
        ("partitions.skewed.beta", 0, r"partitions\.skewed\.beta: "),
        ("partitions.skewed.scheme", "dirichle", r"partitions\.skewed\.scheme: 'dirichle' is unknown; known: "),
        ("partitions.skewed.dataset", "mnist", r"partitions\.skewed\.dataset: 'mnist' is not defined under datasets"),
        ("encoders.simclr.algorithm", "simclear", r"encoders\.simclr\.algorithm: 'simclear' is unknown"),
        ("encoders.simclr.net", "resnet1", r"encoders\.simclr\.net: .*resnet1"),
        ("encoders.simclr.dataset", "x", r"encoders\.simclr\.dataset: 'x' is not defined"),
        ("datasets.digits.source", "digit", r"datasets\.digits\.source: .*digit"),
        ("hardware.device", "cuda:9", r"hardware\.device: 'cuda:9' is not here .*use auto or cpu"),
        ("hardware.workers", 0, r"hardware\.workers: 0 workers"),
        ("hardware.workers", "many", r"hardware\.workers: expected int, got 'many', and 'many' is not one of auto"),
        ("hardware.threads", 10**6, r"hardware\.threads: 1000000 threads; take 1 to"),
        ("hardware.device", "meta", r"hardware\.device: 'meta' is none; use auto"),
        ("hardware.checkpoint_seconds", -1, r"hardware\.checkpoint_seconds: -1\.0 is negative"),
        ("study", "a/b", r"study: 'a/b' is no name; a name is made of"),
        ("study", "", r"study: '' is no name"),
        ("study", "x" * 65, r"study: 'x+' is no name; .* at most 64"),
        ("study", None, r"study: missing; a study has study, seed, datasets"),
        ("seed", None, r"seed: missing"),
        ("seed", -1, r"seed: -1 is negative"),
        ("encoders", None, r"encoders: missing; .*\(write \{\} for no nodes\)"),
        ("partitions.skewed.scheme", ["iid"], r"partitions\.skewed\.scheme: \['iid'\] is unknown"),
        ("partitions.skewed.clients", 10**30, r"partitions\.skewed\.clients: a number of 31 digits"),
        ("encoders.simclr.algorithm", {}, r"encoders\.simclr\.algorithm: \{\} is unknown"),
        ("encoders.simclr.split", "test", r"encoders\.simclr\.split: 'test' is not one of auto, train, unlabeled"),
        ("encoders.simclr.net_options", {"width": 0}, r"encoders\.simclr\.net_options: .*must be at least 1"),
        ("encoders.simclr.net_options", {"width": 2.5}, r"encoders\.simclr\.net_options: conv_small does not take"),
        ("encoders.simclr.net_options", {"shape": 3}, r"encoders\.simclr\.net_options: conv_small does not take"),
        ("datasets.digits.channels", True, r"datasets\.digits\.channels: True is not one of 1, 3"),
        ("runs.cp_cfl.fit.lr", float("nan"), r"runs\.cp_cfl\.fit\.lr: nan is not a finite number"),
        ("runs.cp_cfl.fit.lr", "1e-3", r"runs\.cp_cfl\.fit\.lr: expected float, got '1e-3'; .* 0\.001"),
        ("runs.cp_cfl.fit.weight_decay", -1, r"runs\.cp_cfl\.fit\.weight_decay: -1\.0 is negative"),
        ("runs.cp_cfl.fit.momentum", 1, r"runs\.cp_cfl\.fit\.momentum: 1\.0 is not in \[0, 1\)"),
        ("runs.cp_cfl.fit.clip", 0, r"runs\.cp_cfl\.fit\.clip: 0\.0 is not positive"),
        ("runs.ifca.restart_round", 0, r"runs\.ifca\.restart_round: 0; "),
        ("runs.ifca.max_restarts", -1, r"runs\.ifca\.max_restarts: -1 is negative"),
        ("runs.ifca.min_share", -0.1, r"runs\.ifca\.min_share: -0\.1 is negative"),
        ("runs.cp_cfl.features", -1, r"runs\.cp_cfl\.features: -1 is negative; 0 is no map"),
        ("hardwares", {}, r"hardwares: unknown section; known: "),
        ("runs", 3, r"runs: expected a mapping"),
    ],
)
def test_errors_name_the_path_and_the_remedy(path: str, value: object, message: str) -> None:
    raw = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    node = raw
    for parent in parents:
        node = node[parent]
    node[last] = value
    with pytest.raises(ConfigError, match=message):
        study.parse(raw)


def test_unlabelled_images_are_needed_by_those_who_learn_from_them() -> None:
    raw = copy.deepcopy(GOOD)
    raw["runs"]["fedavg"] |= {"method": "fed_pseudo"}
    with pytest.raises(ConfigError, match=r"runs\.fedavg\.partition: fed_pseudo learns from unlabelled images, and"):
        study.parse(raw)
    raw["partitions"]["semi"] = {"dataset": "digits", "scheme": "semi_iid", "clients": 4}
    raw["runs"]["fedavg"] |= {"partition": "semi"}
    study.parse(raw)


@pytest.mark.parametrize(("setting", "value"), [("participation", 0.5), ("dropout", 0.1), ("on_error", "drop")])
def test_a_method_for_all_clients_has_all_of_them(setting: str, value: object) -> None:
    raw = copy.deepcopy(GOOD)
    raw["partitions"]["semi"] = {"dataset": "digits", "scheme": "semi_iid", "clients": 4}
    raw["runs"]["fedavg"] |= {"method": "fed_shvr", "partition": "semi", setting: value}
    with pytest.raises(ConfigError, match=rf"runs\.fedavg\.{setting}: {value}; the method is defined for all clients"):
        study.parse(raw)


def test_groups_are_needed_to_pool_by_them() -> None:
    raw = copy.deepcopy(GOOD)
    raw["runs"]["fedavg"] |= {"pooling": "groups", "partition": "skewed"}
    with pytest.raises(ConfigError, match=r"runs\.fedavg\.pooling: partition 'skewed' has no true groups"):
        study.parse(raw)


def test_a_missing_or_broken_file_is_named(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"params\.yaml: not found"):
        study.load(tmp_path / "params.yaml")
    (tmp_path / "params.yaml").write_text("runs: [")
    with pytest.raises(ConfigError, match="not valid YAML"):
        study.load(tmp_path / "params.yaml")


@pytest.mark.parametrize(("text", "said"), [
    ("runs:\n  a: {}\n  a: {}\n", "a is there twice"),
    ("study: s\nseed: 0\ndatasets: {1: {source: digits}}\npartitions: {}\nencoders: {}\nruns: {}\n",
     r"^datasets\.1: YAML reads this name as int; put it in quotes"),
    ("study: s\nseed: 0\ndatasets: {on: {source: digits}}\npartitions: {}\nencoders: {}\nruns: {}\n",
     r"^datasets\.True: YAML reads this name as bool"),
])  # fmt: skip
def test_what_yaml_reads_otherwise_than_it_looks(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "params.yaml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        study.load(tmp_path / "params.yaml")


@pytest.mark.parametrize("name", ["100%", "a?b", "a#b"])
def test_a_folder_in_which_no_database_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    with pytest.raises(ConfigError, match="open no database below a folder with"):
        study.load()


def test_the_studys_seed_is_every_nodes() -> None:
    whole = study.parse(GOOD)
    nodes = (whole.datasets["digits"], whole.partitions["groups"], whole.encoders["simclr"])
    assert [node.seed for node in nodes] == [7, 7, 7]
