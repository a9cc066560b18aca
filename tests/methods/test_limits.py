"""Methods that must agree with a simpler one in a limit."""

from dataclasses import replace

import pytest
import tiny
import torch

from fedcore import tree
from fedcore.cohort import seed_of
from fedcore.data.shards import Split, pooled
from fedcore.executors import seed_everything
from fedcore.methods.cp_cfl import CPCFL
from fedcore.methods.fedavg import FedAvg
from fedcore.methods.ifca import IFCA
from fedcore.methods.solo import Solo


def test_fedavg_with_one_client_is_plain_training() -> None:
    held = tiny.shards()[:1]
    method = FedAvg(task=tiny.task(), fit=tiny.FIT)
    end = tiny.play(method, held, rounds=1)[-1]
    seed_everything(0)
    x = method.task.init()
    net = tiny.network()
    net.load_state_dict(x)
    optimizer = torch.optim.SGD(net.parameters(), lr=tiny.FIT.lr)
    seed_everything(seed_of(seed_of(0, "round"), 0, 0, 0))
    for _ in range(tiny.FIT.epochs):
        for positions in torch.randperm(len(held[0].train)).split(tiny.FIT.batch_size):
            pixels = held[0].train.images(positions) / 255
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net((pixels - 0.3) / 0.37), held[0].train.labels(positions))
            loss.backward()
            optimizer.step()
    for name, value in net.named_parameters():
        assert torch.allclose(value, end.server.x[name], rtol=1e-6, atol=1e-7), name


def test_cp_cfl_with_one_cluster_and_no_warm_up_is_fedavg() -> None:
    task = tiny.task(pretrained=tiny.encoder())
    one = tiny.play(CPCFL(task=task, fit=tiny.FIT, num_clusters=1, warmup_rounds=0), rounds=3)
    plain = tiny.play(FedAvg(task=task, fit=tiny.FIT), rounds=3)
    assert tiny.same(tree.take(one[-1].server.theta, 0), plain[-1].server.x)
    assert one[-1].metrics["accuracy_client_mean"] == plain[-1].metrics["accuracy_client_mean"]


def test_ifca_is_cp_cfl_without_warm_up() -> None:
    task = tiny.task(pretrained=tiny.encoder())
    ifca = tiny.play(IFCA(task=task, fit=tiny.FIT, max_restarts=0), rounds=3)
    cp_cfl = tiny.play(CPCFL(task=task, fit=tiny.FIT, warmup_rounds=0), rounds=3)
    assert tiny.same(ifca[-1].server.theta, cp_cfl[-1].server.theta)
    assert ifca[-1].per_client["cluster"] == cp_cfl[-1].per_client["cluster"]


def test_solo_on_pooled_clients_is_fedavg_with_one_client() -> None:
    whole = [pooled(tiny.shards())]
    solo = tiny.play(Solo(task=tiny.task(), fit=tiny.FIT), whole, rounds=2)[-1]
    fedavg = tiny.play(FedAvg(task=tiny.task(), fit=tiny.FIT), whole, rounds=2)[-1]
    assert tiny.same(solo.clients[0].w, fedavg.server.x)


@pytest.mark.parametrize("method", [FedAvg, CPCFL, IFCA])
def test_client_without_images_weighs_nothing(method: type) -> None:
    held = tiny.shards()
    empty = replace(held[3], train=Split(held[3].train.source, held[3].train.index[:0]))
    build = method(task=tiny.task(pretrained=tiny.encoder()), fit=tiny.FIT)
    if method is FedAvg:
        assert tiny.same(tiny.play(build, [*held[:3], empty])[-1].server, tiny.play(build, held[:3])[-1].server)
    else:
        end = tiny.play(build, [*held[:3], empty])[-1]
        assert all(value.isfinite().all() for value in end.server.theta.values())
