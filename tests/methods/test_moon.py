"""MOON: its contrast, and whose model is the previous one."""

import math

import pytest
import tiny
import torch

from fedcore.engine import Plan, sample
from fedcore.methods.moon import Moon, contrast


def test_contrast_by_hand() -> None:
    """z along the global representation and across the previous one: cosines 1 and 0, at τ = 0.5 logits 2 and 0."""
    z, z_glob, z_prev = torch.tensor([[3.0, 0.0]]), torch.tensor([[0.5, 0.0]]), torch.tensor([[0.0, 2.0]])
    assert contrast(z, z_glob, z_prev, 0.5).item() == pytest.approx(math.log(1 + math.exp(-2)))
    assert contrast(z, z_prev, z_glob, 0.5).item() == pytest.approx(math.log(1 + math.exp(2)))
    both = contrast(z.repeat(2, 1), torch.cat([z_glob, z_prev]), torch.cat([z_prev, z_glob]), 0.5)
    assert both.item() == pytest.approx((math.log(1 + math.exp(-2)) + math.log(1 + math.exp(2))) / 2)


def test_the_previous_model_is_the_clients_own_kept_over_absences() -> None:
    method, plan = Moon(task=tiny.task(), fit=tiny.FIT), Plan(rounds=6, participation=0.5)
    reports = tiny.play(method, rounds=6, participation=0.5)
    last: dict[int, object] = {}
    absent = 0
    for report in reports:
        drawn = sample(range(4), plan, 0, report.round)
        for client, state in report.clients.items():
            if client not in drawn:
                assert tiny.same(state, last[client])
                absent += 1
            else:
                assert client not in last or not tiny.same(state, last[client])
        last = dict(report.clients)
    assert absent > 2


def test_the_first_time_there_is_no_contrast() -> None:
    first, second = tiny.play(Moon(task=tiny.task(), fit=tiny.FIT), rounds=2)
    plain = tiny.play(Moon(task=tiny.task(), fit=tiny.FIT, mu=0.0), rounds=2)
    assert tiny.same(first.server, plain[0].server)
    assert not tiny.same(second.server, plain[1].server)
    assert second.metrics["train_loss"] > plain[1].metrics["train_loss"] + 1  # 5 times about log 2


def test_a_client_that_stays_near_the_global_model_is_drawn_by_the_contrast() -> None:
    """The gradient is of w alone: neither the global nor the previous model takes one."""
    task = tiny.task()
    tiny.seed_everything(0)
    x, previous = task.init(), task.init()
    w = task.init().clone()
    for leaf in w.values():
        leaf.requires_grad_()
    images = tiny.images().images[:16]
    with torch.no_grad():
        z_glob, z_prev = (task.represent(frozen, images).z for frozen in (x, previous))
    contrast(task.represent(w, images).z, z_glob, z_prev, 0.5).backward()
    assert w["encoder.0.weight"].grad.norm() > 0
    assert w["head.weight"].grad is None  # z is before the last layer
    assert not any(leaf.requires_grad for leaf in (*x.values(), *previous.values()))


@pytest.mark.parametrize("field", ["mu", "temperature"])
def test_settings_that_cannot_work_are_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}: -1"):
        Moon(**{field: -1.0})
