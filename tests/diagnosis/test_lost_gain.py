"""Losses of queries in workers: a worked list; losses add up under every tie rule."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from support.expectations import near

from ndcg_spark.conventions import Convention
from ndcg_spark.conventions.forms import discount_table
from ndcg_spark.diagnosis.tasks import rank_column, score_losses
from ndcg_spark.evaluation.tasks.scoring import ScoringTask
from ndcg_spark.metrics import MetricAt
from ndcg_spark.metrics.normalized_gain import GAINS

LISTS = pa.list_(pa.float64())


def build_rankings(ranked, ideal, **more):
    n = len(ranked)
    columns = {
        "run": pa.array([""] * n),
        "query_id": pa.array([f"q{at}" for at in range(n)]),
        "n_items": pa.array([len(relevances) for relevances in ranked]),
        "n_judged": pa.array([len(relevances) for relevances in ideal]),
        "n_rows": pa.array([1] * n),
        "n_left_out": pa.array([0] * n),
        "ranked": pa.array(ranked, LISTS),
        "ideal": pa.array(ideal, LISTS),
        **more,
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def compute_losses(batch, *cutoffs, ties="item_asc", **choices):
    convention = Convention(name="t", gain="linear", ties=ties, **choices)
    task = ScoringTask(
        convention=convention,
        cutoffs=cutoffs,
        keys=("run", "query_id"),
        carried=("n_items", "n_judged", "n_rows", "n_left_out"),
        discount=discount_table("log2", max(cutoffs)),
        metrics=tuple(MetricAt(metric, k) for k in cutoffs for metric in GAINS),
        columns=("dcg", "idcg", "ndcg"),
    )
    return [batch.to_pylist() for batch in score_losses(iter([batch]), task, max(cutoffs))]


def test_the_worked_list():
    ((row,),) = compute_losses(build_rankings([[3, 2, 3, 0, 1, 2]], [[3, 3, 3, 2, 2, 2, 1, 0]]), 6)
    assert (row["not_retrieved"], row["ranked_low"]) == (near(1.599267181451), near(0.279868495502))
    assert (row["lost_not_retrieved"], row["lost_ranked_low"]) == (near(0.182977022264), near(0.032020605766))
    assert (row["swap_gain"], row["swap_rank"], row["swap_with"]) == (near(0.148938741931), 4, 6)
    profile = [row[rank_column(rank)] for rank in range(1, 7)]
    assert profile == [
        near(0.343239124243), near(0.144373184050), near(0.171619562121), 0, near(0.044261006255),
        near(0.081509495301),
    ]  # fmt: skip


@pytest.mark.parametrize("ties", ["item_asc", "expected", "best", "worst"])
def test_losses_add_up_under_every_tie_rule(ties):
    rng = np.random.default_rng(4)
    ranked = [sorted(rng.integers(0, 4, n).tolist(), key=lambda _: rng.random()) for n in rng.integers(0, 9, 40)]
    ideal = [sorted([*item, *rng.integers(0, 4, 3).tolist()], reverse=True) for item in ranked]
    more = {}
    if ties != "item_asc":
        scores = [sorted(rng.integers(0, 4, len(item)).astype(float).tolist(), reverse=True) for item in ranked]
        more = {
            "scores": pa.array(scores, LISTS),
            "tied": pa.array([[1] * len(item) for item in ranked], pa.list_(pa.int64())),
        }
    for rows in compute_losses(build_rankings(ranked, ideal, **more), 2, 5, ties=ties):
        for row in rows:
            k = row["k"]
            assert row["lost_not_retrieved"] + row["lost_ranked_low"] == pytest.approx(1 - row["ndcg"], abs=1e-12)
            assert sum(row[rank_column(rank)] for rank in range(1, k + 1)) == pytest.approx(row["ndcg"], abs=1e-12)
            assert [row[rank_column(rank)] for rank in range(k + 1, 6)] == [None] * (5 - k)
            assert row["not_retrieved"] >= -1e-12
            assert row["ranked_low"] >= row["swap_gain"] - 1e-12 or row["swap_rank"] <= k < row["swap_with"]


def test_queries_without_relevant_items_lose_nothing():
    ((row, missing),) = compute_losses(build_rankings([[0, 0], []], [[0, 0], [1.0]]), 3)
    assert (row["ndcg"], row["not_retrieved"], row["swap_rank"], row[rank_column(1)]) == (None, None, None, None)
    assert (missing["ndcg"], missing["lost_not_retrieved"], missing["swap_gain"]) == (0.0, 1.0, 0.0)
    assert (missing["status"], missing["swap_rank"]) == ("missing", None)
