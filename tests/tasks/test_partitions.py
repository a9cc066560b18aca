"""The partition stage in a workspace of its own: what it writes, what it refuses, what it leaves alone."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from fedcore.config import ConfigError
from fedcore.data.partition import Iid, spec, summary
from tasks import partitions

NODES = {
    "skewed": {"dataset": "toy", "scheme": "dirichlet", "clients": 5, "beta": 0.5, "validation": 0.1},
    "even": {"dataset": "toy", "scheme": "iid", "clients": 4},
    "groups": {
        "dataset": "toy", "scheme": "groups", "clients": 12, "groups": [[0, 1], [1, 2], [2, 3]], "counts": [6, 2],
    },
}  # fmt: skip


def write_study(nodes: dict[str, object]) -> None:
    node = {"datasets": {"toy": {"source": "digits"}, "absent": {"source": "digits"}}, "partitions": nodes}
    Path("params.yaml").write_text(yaml.safe_dump({"study": "t", "seed": 0, "encoders": {}, "runs": {}, **node}))


def write_dataset(folder: Path, fingerprint: str = "ab", labelled: bool = True) -> None:
    """400 training and 100 test images of 1 pixel, four classes."""
    folder.mkdir(parents=True, exist_ok=True)
    counts = {"train": 400, "test": 100}
    for seed, (split, count) in enumerate(counts.items()):
        labels = np.random.default_rng(seed).permutation(np.arange(count) % 4)
        np.save(folder / f"{split}_images.npy", np.zeros((count, 1, 1, 1), dtype=np.uint8))
        np.save(folder / f"{split}_labels.npy", labels if labelled else np.full(count, -1))
    facts = {
        "source": "toy", "classes": list("abcd"), "shape": [1, 1, 1], "mean": [0.0], "std": [1.0],
        "splits": {split: {"count": count} for split, count in counts.items()}, "fingerprint": fingerprint,
    }  # fmt: skip
    (folder / "dataset.json").write_text(json.dumps(facts))


@pytest.fixture(autouse=True)
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_study(NODES)
    write_dataset(Path("data/raw/toy"))
    return tmp_path


def digests(name: str) -> dict[str, str]:
    folder = Path("data/partitions", name)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def test_the_stage_writes_a_table_a_json_and_a_picture() -> None:
    assert partitions.partition.fn("skewed") == "data/partitions/skewed"
    assert list(digests("skewed")) == ["holdings.png", "partition.json", "table.parquet"]
    table, facts = partitions.read("skewed")
    assert list(table.columns) == ["client", "split", "index", "labelled", "domain"]
    assert np.array_equal(np.sort(table.loc[table["split"] != "test", "index"]), np.arange(400))
    assert {key: facts[key] for key in ("dataset", "dataset_fingerprint", "clients", "groups")} == {
        "dataset": "toy", "dataset_fingerprint": "ab", "clients": 5, "groups": None,
    }  # fmt: skip
    assert facts["spec"] == {**NODES["skewed"], "seed": 0, "min_size": 10, "cap": False}
    assert facts["summary"]["validation"]["images"] == np.count_nonzero(table["split"] == "validation") > 0
    assert Path("data/partitions/skewed/holdings.png").read_bytes().startswith(b"\x89PNG")


def test_a_table_comes_back_as_it_was_dealt() -> None:
    """Without validation images too, where the file has no such category."""
    partitions.partition.fn("even")
    table, _ = partitions.read("even")
    labels = [np.load(f"data/raw/toy/{split}_labels.npy") for split in ("train", "test")]
    pd.testing.assert_frame_equal(table, Iid(dataset="toy", clients=4).split(*labels))


def test_groups_are_recorded() -> None:
    partitions.partition.fn("groups")
    _, facts = partitions.read("groups")
    assert facts["groups"] == [0] * 4 + [1] * 4 + [2] * 4
    assert facts["summary"]["left_over"]["train"] == 400 - 12 * 8


def test_two_partitions_of_a_dataset_live_side_by_side() -> None:
    """P4: making the second, and then the first again, changes neither by a byte."""
    partitions.partition.fn("skewed")
    first = digests("skewed")
    partitions.partition.fn("even")
    second = digests("even")
    partitions.partition.fn("skewed")
    assert digests("skewed") == first
    assert digests("even") == second
    assert partitions.read("skewed")[1]["fingerprint"] != partitions.read("even")[1]["fingerprint"]


def test_another_dataset_or_seed_is_another_fingerprint() -> None:
    found = set()
    for seed, dataset in ((0, "ab"), (1, "ab"), (0, "cd")):
        write_study({"even": {**NODES["even"], "seed": seed}})
        write_dataset(Path("data/raw/toy"), dataset)
        partitions.partition.fn("even")
        found.add(partitions.read("even")[1]["fingerprint"])
    assert len(found) == 3


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"clients": 401}, r"partitions\.even\.clients: 401 clients, but only 400 training images"),
        ({"scheme": "quantity", "min_size": 101}, r"partitions\.even\.min_size: 4 clients .* need 404"),
        ({"scheme": "groups", "groups": [[3]], "counts": [26]}, r"partitions\.even\.counts: class 3: 104 asked, 100"),
    ],
)
def test_a_refusal_names_the_setting_and_leaves_what_is_there(changed: dict[str, object], message: str) -> None:
    partitions.partition.fn("even")
    before = digests("even")
    write_study({"even": {**NODES["even"], **changed}})
    with pytest.raises(ConfigError, match=f"^{message}"):
        partitions.partition.fn("even")
    assert digests("even") == before
    assert [path.name for path in Path("data/partitions").iterdir()] == ["even"]


def test_an_unlabelled_dataset_is_refused_before_anything_is_written() -> None:
    write_dataset(Path("data/raw/toy"), labelled=False)
    with pytest.raises(ConfigError, match=r"^partitions\.skewed\.dataset: 400 of the 400 .* toy have no label"):
        partitions.partition.fn("skewed")
    assert not Path("data/partitions").exists()
    partitions.partition.fn("even")


def test_what_is_missing_is_named() -> None:
    write_study({**NODES, "early": {**NODES["even"], "dataset": "absent"}})
    with pytest.raises(ConfigError, match=r"^partitions\.other: not defined in params.yaml; known: .*skewed"):
        partitions.partition.fn("other")
    with pytest.raises(FileNotFoundError, match=r"flows\.download absent"):
        partitions.partition.fn("early")
    with pytest.raises(FileNotFoundError, match=r"flows\.partition even"):
        partitions.read("even")
    assert not Path("data/partitions").exists()


@pytest.mark.parametrize("clients", [1, 5, 100, 300])
def test_the_picture_shows_the_holdings(clients: int) -> None:
    """Cells are the counts, bars the sizes; numbers are written where there is room."""
    train = np.append(np.arange(896) % 3, [-1] * 4)
    scheme = Iid(dataset="toy", clients=clients)
    table = scheme.split(train, train[:90])
    facts = {"dataset": "toy", "clients": clients, "groups": None, "spec": spec(scheme)}
    facts["summary"] = summary(scheme, table, train, train[:90])
    figure = partitions.picture("mine", table, facts, train, ("a", "b", "c"))
    sizes, held, _ = figure.axes
    dealt = np.ma.filled(held.collections[0].get_array(), 0)
    assert dealt.shape == (4, clients)
    assert dealt.sum(axis=1).tolist() == [299, 299, 298, 4]
    assert [label.get_text() for label in held.get_yticklabels()] == ["a", "b", "c", "unlabelled"]
    assert sum(bar.get_height() for bar in sizes.patches) == 900 + 90
    assert bool(held.texts) == (clients <= 12)
