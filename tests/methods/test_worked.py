"""Cases small enough for arithmetic by hand: two clients, one weight, one step; the model is that of `one_weight`."""

import pytest
import torch
from one_weight import STEP, TASK, client, start

from fedcore import tree
from fedcore.cohort import Cohort
from fedcore.data.shards import Shard
from fedcore.engine import Plan, federate
from fedcore.executors import Sequential
from fedcore.methods.cp_cfl import CPCFL
from fedcore.methods.fedavg import FedAvg
from fedcore.methods.ifca import IFCA
from fedcore.methods.solo import Solo
from fedcore.tree import Params


def test_fedavg_two_clients_one_step() -> None:
    """Client 0: one image x = 1, so w_0 = 1/2. Client 1: three images x = 2/5, so w_1 = 1/5. Mean by size:
    (1 * 1/2 + 3 * 1/5) / 4 = 0.275."""
    held = [client(0, [255]), client(1, [102, 102, 102])]
    report = next(federate(FedAvg(task=TASK, fit=STEP), start(0.0), held, Plan(rounds=1), seed=0))
    assert report.server.x["w"].item() == pytest.approx(0.275)
    assert report.metrics["train_loss"] == pytest.approx(0.693147)
    assert (report.metrics["bytes_down"], report.metrics["bytes_up"]) == (2 * 4, 2 * (4 + 4 + 8))


def test_solo_two_clients_one_step() -> None:
    held = [client(0, [255]), client(1, [102, 102, 102])]
    report = next(federate(Solo(task=TASK, fit=STEP), start(0.0), held, Plan(rounds=1), seed=0))
    assert [report.clients[k].w["w"].item() for k in (0, 1)] == pytest.approx([0.5, 0.2])


def clustered(method: type, held: list[Shard], theta: list[float], **fields: object) -> object:
    build = method(task=TASK, fit=STEP, num_clusters=2, **fields)
    server = build.init_server(start(0.0))._replace(theta=Params(w=torch.tensor(theta)))
    with Sequential().open(build, {s.client: s for s in held}) as executor:
        sizes = torch.tensor([float(len(s.train)) for s in held])
        cohort = Cohort(
            range(len(held)), round=0, rounds=1, sizes=sizes, population=len(held), states={}, fresh=lambda: None,
            executor=executor, seed=0,
        )  # fmt: skip
        return build.round(server, cohort)


@pytest.mark.parametrize(("method", "fields"), [(IFCA, {"max_restarts": 0}), (CPCFL, {"warmup_rounds": 0})])
def test_each_client_moves_the_model_that_suits_it(method: type, fields: dict[str, object]) -> None:
    """Models w = 1 and w = -1; label 0 prefers 1, label 1 prefers -1. With x = 1 and label 0 the slope at w = 1 is
    -1 / (1 + e), so w = 1 + 1 / (1 + e) = 1.268941; label 1 mirrors it. Clients 0 and 2 (sizes 1 and 3) share the first
    model: client 2 with x = 2/5 gets 1 + 0.4 / (1 + e^0.4) = 1.160525, and (1.268941 + 3 * 1.160525) / 4 = 1.187629."""
    held = [client(0, [255]), client(1, [255], label=1), client(2, [102] * 3)]
    server, told = clustered(method, held, [1.0, -1.0], **fields)
    assert told["cluster"].tolist() == [0, 1, 0]
    assert server.theta["w"].tolist() == pytest.approx([1.187629, -1.268941], rel=1e-5)


def test_empty_cluster_keeps_its_model() -> None:
    held = [client(0, [255]), client(1, [255])]
    server, told = clustered(CPCFL, held, [1.0, -1.0], warmup_rounds=0)
    assert told["cluster"].tolist() == [0, 0]
    assert server.theta["w"][1].item() == -1.0


def test_ties_go_to_the_lowest_index() -> None:
    _, told = clustered(CPCFL, [client(0, [255])], [0.5, 0.5], warmup_rounds=0)
    assert told["cluster"].tolist() == [0]


def test_mean_of_identical_updates_is_the_update() -> None:
    rows = torch.full((7, 3), 0.1)
    assert torch.equal(tree.mean(rows, torch.rand(7)), rows[0])
