"""The map of features: which images, through which model, and the same every time."""

import pandas as pd
import tiny
import torch

from fedcore.data.shards import Shard
from fedcore.engine import Report
from fedcore.executors import seed_everything
from fedcore.methods.solo import Client, Solo
from tasks import features


def scene(*seeds: int) -> tuple[Solo, Report, list[Shard]]:
    """A client for each seed of a model, all with the same test images."""
    method = Solo(task=tiny.task(), fit=tiny.FIT)
    states = {}
    for client, seed in enumerate(seeds):
        seed_everything(seed)
        states[client] = Client(method.task.init())
    first, *_ = tiny.shards(train=60, test=50)
    shards = [Shard(client, first.train, first.validation, first.test) for client in states]
    return method, Report(0, method.init_server(states[0].w), states, {}, {}), shards


def distance(table: pd.DataFrame) -> float:
    """Median distance of the places that the two clients' models give the same image."""
    a, b = (torch.from_numpy(rows[["x", "y"]].to_numpy()) for _, rows in table.groupby("client"))
    return (a - b).norm(dim=1).median().item()


def test_two_clients_images_are_mapped_the_same_every_time() -> None:
    method, end, shards = scene(0, 1, 2)
    table = features.embedded(method, end, shards, 30)
    assert table["client"].tolist() == [0] * 30 + [1] * 30
    spaced = torch.linspace(0, 49, 30).long()
    assert table["label"].tolist() == 2 * shards[0].test.labels(spaced).tolist()
    assert table.equals(features.embedded(method, end, shards, 30))
    assert len(features.embedded(method, end, shards, 1000)) == 2 * 50


def test_each_client_sees_with_its_own_model() -> None:
    assert distance(features.embedded(*scene(0, 0), 50)) < 0.3 * distance(features.embedded(*scene(0, 1), 50))


def test_a_client_without_a_state_yet_has_a_new_one() -> None:
    method, end, shards = scene(0, 1)
    table = features.embedded(method, end._replace(clients={}), shards, 50)
    assert table.equals(features.embedded(*scene(0, 0), 50))


def test_next_to_no_images_make_no_map() -> None:
    method, end, shards = scene(0, 1)
    assert not len(features.embedded(method, end, shards, 1))
    assert features.embedded(method, end, shards, 1).columns.tolist() == ["client", "label", "x", "y"]
