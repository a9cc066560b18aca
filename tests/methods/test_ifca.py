"""IFCA's restarts."""

import pytest
import tiny
import torch

from fedcore import clusters
from fedcore.methods.ifca import IFCA


def test_models_are_drawn_again_until_each_is_chosen() -> None:
    method = IFCA(task=tiny.task(), fit=tiny.FIT, num_clusters=2, min_share=0.5, restart_round=99)
    reports = [tiny.play(method, seed=seed, rounds=1)[-1] for seed in range(6)]
    assert max(r.metrics["restarts"] for r in reports) > 0
    for report in reports:
        if report.metrics["restarts"] < 20:
            assert sorted(report.per_client["cluster"].values()) == [0, 0, 1, 1]


def test_restart_when_a_cluster_is_empty_after_r0_rounds() -> None:
    method = IFCA(task=tiny.task(), fit=tiny.FIT, num_clusters=3, min_share=0.0, restart_round=2, max_restarts=1)
    for seed in range(8):
        reports = tiny.play(method, seed=seed, rounds=3)
        second = list(reports[1].per_client["cluster"].values())
        empty = len(set(second)) < 3
        assert reports[2].metrics["restarts"] == float(empty)
        assert reports[2].server.age == (1 if empty else 3)


def test_no_restart_beyond_the_limit() -> None:
    method = IFCA(task=tiny.task(), fit=tiny.FIT, num_clusters=3, min_share=0.3, max_restarts=0)
    assert tiny.play(method, rounds=1)[-1].metrics["restarts"] == 0


def test_independent_models_without_and_one_encoder_with_pre_training() -> None:
    free = IFCA(task=tiny.task())
    theta = free.init_server(free.task.init()).theta
    assert not (theta["encoder.4.weight"][0] == theta["encoder.4.weight"][1]).all()
    bound = IFCA(task=tiny.task(pretrained=tiny.encoder()))
    theta = bound.init_server(bound.task.init()).theta
    assert (theta["encoder.4.weight"][0] == theta["encoder.4.weight"][1]).all()
    assert not (theta["head.weight"][0] == theta["head.weight"][1]).all()


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="min_share"):
        IFCA(num_clusters=3, min_share=0.4)
    assert clusters.members(torch.tensor([0, 2, 2]), 3).tolist() == [1, 0, 2]
