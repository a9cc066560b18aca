"""Methods that must agree with a simpler one in a limit."""

from dataclasses import replace

import pytest
import tiny
import torch
from torch import Tensor

from fedcore import tree
from fedcore.cohort import seed_of
from fedcore.data.shards import Split, pooled
from fedcore.executors import seed_everything
from fedcore.fit import LocalFit
from fedcore.methods.cp_cfl import CPCFL
from fedcore.methods.fedavg import FedAvg
from fedcore.methods.fednova import FedNova
from fedcore.methods.fedproc import FedProc
from fedcore.methods.fedprox import FedProx
from fedcore.methods.ifca import IFCA
from fedcore.methods.moon import Moon
from fedcore.methods.scaffold import Scaffold
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


@pytest.mark.parametrize("method", [FedProx, Moon])
@pytest.mark.parametrize("norm", [False, True])
def test_without_their_terms_fedprox_and_moon_are_fedavg(method: type, norm: bool) -> None:
    """Bit for bit, with momentum and over absences."""
    fit = LocalFit(epochs=2, batch_size=16, lr=0.1, momentum=0.9, weight_decay=1e-3)
    plan = {"rounds": 4, "participation": 0.75}
    ours = tiny.play(method(task=tiny.task(norm=norm), fit=fit, mu=0.0), **plan)
    plain = tiny.play(FedAvg(task=tiny.task(norm=norm), fit=fit), **plan)
    assert [tiny.same(a.server, b.server) for a, b in zip(ours, plain, strict=True)] == [True] * 4


def test_fedprox_holds_the_clients_near_the_server() -> None:
    """With μ / lr large a client's step is all pulled back: w - x shrinks by 1 - lr μ a step."""
    far, near = (tiny.play(FedProx(task=tiny.task(), fit=tiny.FIT, mu=mu), rounds=1)[-1].server.x for mu in (0.0, 5.0))
    tiny.seed_everything(0)
    x = tiny.task().init()
    assert 0 < (near - x).norm() < 0.5 * (far - x).norm()


def test_solo_on_pooled_clients_is_fedavg_with_one_client() -> None:
    whole = [pooled(tiny.shards())]
    solo = tiny.play(Solo(task=tiny.task(), fit=tiny.FIT), whole, rounds=2)[-1]
    fedavg = tiny.play(FedAvg(task=tiny.task(), fit=tiny.FIT), whole, rounds=2)[-1]
    assert tiny.same(solo.clients[0].w, fedavg.server.x)


@pytest.mark.parametrize("method", [FedAvg, FedProx, Scaffold, FedNova, Moon, FedProc, CPCFL, IFCA])
def test_client_without_images_weighs_nothing(method: type) -> None:
    held = tiny.shards()
    empty = replace(held[3], train=Split(held[3].train.source, held[3].train.index[:0]))
    build = method(task=tiny.task(pretrained=tiny.encoder()), fit=tiny.FIT)
    end, rest = tiny.play(build, [*held[:3], empty])[-1], tiny.play(build, held[:3])[-1]
    assert all(leaf.isfinite().all() for leaf in tree.leaves(end.server) if isinstance(leaf, Tensor))
    if method is Scaffold:
        assert not any(leaf.any() for leaf in tree.leaves(end.clients[3]))
    elif method not in (CPCFL, IFCA):
        assert tiny.same(end.server, rest.server)
