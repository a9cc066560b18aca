"""The rounds loop: who takes part, what is resumed, what is counted."""

import pytest
import tiny
import torch

from fedcore.data.shards import Split
from fedcore.engine import Plan, sample
from fedcore.executors import Processes, Sequential
from fedcore.methods.fedavg import FedAvg
from fedcore.methods.solo import Solo


def test_sample_is_sorted_seeded_and_of_the_right_size() -> None:
    ids = list(range(40))
    plan = Plan(rounds=1, participation=0.2)
    rounds = [sample(ids, plan, 0, t) for t in range(50)]
    assert all(len(r) == 8 and r == sorted(r) for r in rounds)
    assert rounds == [sample(ids, plan, 0, t) for t in range(50)]
    assert len({tuple(r) for r in rounds}) > 45
    assert set().union(*rounds) == set(ids)


def test_dropouts_leave_some_out_and_never_all() -> None:
    plan = Plan(rounds=1, dropout=0.5)
    sizes = [len(sample(list(range(20)), plan, 0, t)) for t in range(200)]
    assert 8 < sum(sizes) / len(sizes) < 12
    assert min(len(sample([0, 1], Plan(rounds=1, dropout=0.99), 0, t)) for t in range(50)) == 1


def test_weights_are_normalised_over_those_who_take_part() -> None:
    """With one client a round the average is that client's model: nothing shrinks."""
    held = tiny.shards()
    method = FedAvg(task=tiny.task(), fit=tiny.FIT)
    end = tiny.play(method, held, rounds=1, participation=0.25)[-1]
    (chosen,) = sample([s.client for s in held], Plan(rounds=1, participation=0.25), 0, 0)
    alone = tiny.play(method, [held[chosen]], rounds=1)[-1]
    assert tiny.same(end.server, alone.server)


def test_means_have_their_own_names_and_values() -> None:
    held = tiny.shards()
    end = tiny.play(FedAvg(task=tiny.task(), fit=tiny.FIT), held)[-1]
    accuracy = torch.tensor(list(end.per_client["accuracy"].values()))
    sizes = torch.tensor([float(len(s.train)) for s in held])
    assert end.metrics["accuracy_client_mean"] == pytest.approx(accuracy.mean().item())
    assert end.metrics["accuracy_client_std"] == pytest.approx(accuracy.std(correction=0).item())
    assert end.metrics["accuracy_weighted"] == pytest.approx((accuracy * sizes / sizes.sum()).sum().item())
    assert end.metrics["accuracy_pooled"] == pytest.approx(accuracy.mean().item())  # equal test sizes


@pytest.mark.parametrize("field", ["rounds", "participation", "dropout", "evaluate_every", "on_error"])
def test_plans_that_cannot_work_are_refused(field: str) -> None:
    bad = {"rounds": 0, "participation": 0.0, "dropout": 1.0, "evaluate_every": 0, "on_error": "hide"}[field]
    with pytest.raises(ValueError, match=f"^{field}: "):
        Plan(**{"rounds": 1, field: bad})


@pytest.mark.parametrize("pool", [Sequential(), Processes(2)], ids=["sequential", "processes"])
def test_personal_models_are_scored_on_the_global_test_set_where_that_is_asked_for(pool: object) -> None:
    """The mean over clients of each one's own model, on the same images, and nothing else changes."""
    method, test = Solo(task=tiny.task(), fit=tiny.FIT), Split(tiny.images(), torch.arange(100))
    options = {"rounds": 2, "participation": 0.75, "global_test": test}
    plain = tiny.play(method, **options)[-1]
    asked = tiny.play(method, **options, personal_on_global=True, pool=pool)[-1]
    assert "accuracy_global" not in plain.metrics
    start = method.init_client(plain.server)
    for client, told in asked.per_client["accuracy_global"].items():
        guess = method.task.predict(asked.clients.get(client, start).w, test.images()).argmax(1)
        assert told == pytest.approx((guess == test.labels()).float().mean().item())
    told = asked.per_client["accuracy_global"].values()
    assert len(told) == 4
    assert asked.metrics["accuracy_global"] == pytest.approx(sum(told) / 4)
    assert asked.metrics["accuracy_client_mean"] == plain.metrics["accuracy_client_mean"]
    assert tiny.same(asked.clients, plain.clients)
