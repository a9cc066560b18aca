"""What every registered method keeps; a new method is tested here by being registered."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import tiny
import torch
from torch import Tensor

from fedcore import checkpoint, registry, tree
from fedcore.cohort import Failure
from fedcore.data.shards import Split
from fedcore.executors import Processes, Sequential
from fedcore.method import Method

METHODS = registry.method_names()


def build(name: str, **fields: object) -> Method:
    method = registry.method(name)(task=tiny.task(), fit=tiny.FIT, **fields)
    if hasattr(method, "objective"):  # whose loss would rise with its ramp, and is hardly more than its labels' entropy
        method = replace(method, objective=replace(method.objective, ramp="none", alpha0=0.2))
    return method


def share(method: Method, wanted: float) -> float:
    """The participation to test with."""
    return 1.0 if method.every_client else wanted


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> Method:
    return build(request.param)


def test_loss_falls(method: Method) -> None:
    """From the second round on, in which every term of a loss is there."""
    reports = tiny.play(method, rounds=12)
    assert reports[-1].metrics["train_loss"] < 0.95 * reports[1].metrics["train_loss"]


def test_processes_agree_with_sequential_bit_for_bit(method: Method) -> None:
    plan = {"rounds": 3, "participation": share(method, 0.75)}
    alone = tiny.play(method, **plan)
    together = tiny.play(method, **plan, pool=Processes(2))
    assert tiny.same(alone[-1].server, together[-1].server)
    assert tiny.same(alone[-1].clients, together[-1].clients)
    assert [tiny.numbers(r) for r in alone] == [tiny.numbers(r) for r in together]


def test_resume_is_exact_through_a_checkpoint(method: Method, tmp_path) -> None:
    plan = {"rounds": 4, "participation": share(method, 0.75)}
    whole = tiny.play(method, **plan)
    checkpoint.save(tiny.play(method, **plan)[1], tmp_path / "report")
    rest = tiny.play(method, **plan, resume=checkpoint.load(tmp_path / "report"))
    assert [r.round for r in rest] == [2, 3]
    assert tiny.same(whole[-1].server, rest[-1].server)
    assert tiny.same(whole[-1].clients, rest[-1].clients)
    assert [tiny.numbers(r) for r in whole[2:]] == [tiny.numbers(r) for r in rest]


class Watching(Sequential):
    """The sequential executor, looking at what goes in and out of every phase."""

    def open(self, method, shards):
        @contextmanager
        def opened() -> Iterator:
            with Sequential.open(self, method, shards) as run:

                def watched(phase, message, works):
                    before = tree.map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, message)
                    states = [
                        tree.map(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, w.state)
                        for w in works
                    ]
                    fields = {name: value for name, value in vars(method).items() if name != "task"}
                    results = run(phase, message, works)
                    assert tiny.same(before, message), f"{phase} changed its message"
                    assert all(tiny.same(b, w.state) for b, w in zip(states, works, strict=True)), (
                        f"{phase} changed a state"
                    )
                    assert fields == {name: value for name, value in vars(method).items() if name != "task"}
                    for result in results:
                        assert not isinstance(result, Failure), result
                        check_reply(result[0])
                    return results

                yield watched

        return opened()


def check_reply(reply: object) -> None:
    pixels = tiny.images().images
    for leaf in tree.leaves(reply):
        assert leaf is None or isinstance(leaf, Tensor | int | float)
        if isinstance(leaf, Tensor) and leaf.dim() == 4:
            assert leaf.shape[1:] != pixels.shape[1:], "a reply carries images"


def test_phases_are_pure_and_replies_hold_numbers(method: Method) -> None:
    tiny.play(method, rounds=2, pool=Watching())


def test_order_of_clients_does_not_matter(method: Method) -> None:
    held = tiny.shards()
    assert tiny.same(tiny.play(method, held)[-1].server, tiny.play(method, held[::-1])[-1].server)


def test_cohort_of_one(method: Method) -> None:
    held = tiny.shards(clients=1 if method.every_client else 4)
    for report in tiny.play(method, held, participation=share(method, 0.25)):
        assert report.metrics["train_loss"] > 0


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_client_with_one_example(name: str, norm: bool) -> None:
    held = tiny.shards()
    held[1] = replace(held[1], train=Split(held[1].train.source, held[1].train.index[:1]))
    method = replace(build(name), task=tiny.task(norm=norm))
    end = tiny.play(method, held)[-1]
    assert all(leaf.isfinite().all() for leaf in tree.leaves(end.server) if isinstance(leaf, Tensor))
    assert end.metrics["train_loss"] > 0


def test_absent_class_leaves_no_nan(method: Method) -> None:
    held = tiny.shards()
    few = [replace(s, train=Split(s.train.source, s.train.index[s.train.labels() < 3])) for s in held]
    end = tiny.play(method, few)[-1]
    assert all(leaf.isfinite().all() for leaf in tree.leaves(end.server) if isinstance(leaf, Tensor))
    assert end.metrics["accuracy_client_mean"] > 0


def test_prediction_has_a_column_for_every_class(method: Method) -> None:
    held = tiny.shards()
    end = tiny.play(method, held)[-1]
    logits = method.predict(end.server, end.clients[0], held[0], held[0].test.images())
    assert logits.shape == (len(held[0].test), 10)
    assert logits.dtype == torch.float32


def test_every_advertised_metric_is_there_for_every_evaluated_round(method: Method) -> None:
    names = {"accuracy_client_mean", "accuracy_client_std", "accuracy_weighted", "accuracy_pooled"}
    names |= {"loss_client_mean", "macro_f1_client_mean", "auroc_client_mean"}
    test = Split(tiny.images(), torch.arange(100))
    for report in tiny.play(method, rounds=3, evaluate_every=2, global_test=test):
        evaluated = report.round in (1, 2)
        assert names <= set(report.metrics) if evaluated else not names & set(report.metrics)
        assert ("accuracy_global" in report.metrics) == (evaluated and not method.personal)
        assert {"train_loss", "bytes_down", "bytes_up", "seconds"} <= set(report.metrics)
        assert len(report.per_client.get("accuracy", {})) == (4 if evaluated else 0)


def test_being_evaluated_changes_nothing(method: Method) -> None:
    plan = {"rounds": 3, "participation": share(method, 0.5)}
    often = tiny.play(method, **plan, evaluate_every=1)[-1]
    seldom = tiny.play(method, **plan, evaluate_every=3)[-1]
    assert tiny.same(often.server, seldom.server)
    assert tiny.same(often.clients, seldom.clients)
