"""Impressions of a real shop, from the Open Bandit sample in `obp`.

A random policy and Thompson sampling each showed one of 80 items at one of three positions; the latter logged
the probability of its choice. Weighted by its inverse, its clicks estimate those of the random policy.
"""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ndcg_spark.clicks import ImpressionColumns, PropensitySettings, WeightSettings
from ndcg_spark.clicks.frames import estimate_impressions, fit_impressions, judge_impressions

NEAR = {"abs": 0, "rel": 1e-12}
N_ITEMS = 80
SETTINGS = WeightSettings(
    columns=ImpressionColumns(query=("row",), propensity="propensity_score"), propensity_of="action"
)


def find_sample(policy: str) -> Path:
    spec = importlib.util.find_spec("obp")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("no Open Bandit sample: pip install --no-deps obp==0.4.1 (with its dependencies it needs torch)")
    path = Path(spec.submodule_search_locations[0]) / "dataset" / "obd" / policy / "all" / "all.csv"
    if not path.is_file():
        pytest.skip(f"this obp has no sample at {path}")
    return path


@pytest.fixture(scope="module")
def logs(spark, tmp_path_factory):
    """10,000 rows of each policy; the first column of the files, a row number, has no name."""
    frames = {}
    for policy in ("bts", "random"):
        with find_sample(policy).open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        path = tmp_path_factory.mktemp("obd") / f"{policy}.parquet"
        kinds = {"item_id": int, "position": int, "click": int, "propensity_score": float}
        columns = {name: [kind(row[name]) for row in rows] for name, kind in kinds.items()}
        pq.write_table(pa.table({"row": list(range(len(rows))), **columns}), path)
        frames[policy] = spark.read.parquet(str(path))
    return frames


def test_estimates_equal_obp_and_cover_the_random_policy(logs):
    """The random policy's click rate lies in the interval estimated from the other's clicks.

    Expected: InverseProbabilityWeighting (times 80) and SelfNormalizedInverseProbabilityWeighting of obp 0.4.1
    for the policy that shows all items equally often; n_eff by definition, in NumPy.
    """
    expected = {
        "bts": (0.18877116134768054, 0.002333713893161734, 340.3783411325946),
        "random": (0.304, 0.0038, 10000.0),
    }
    actual = {policy: estimate_impressions(log, SETTINGS).collect()[0] for policy, log in logs.items()}
    for policy, values in expected.items():
        row = actual[policy]
        assert (row["n_queries"], row["n_impressions"]) == (10000, 10000)
        assert (row["ips"], row["snips"], row["n_eff"]) == pytest.approx(values, **NEAR)
    assert actual["bts"]["snips_ci_low"] < actual["random"]["snips"] < actual["bts"]["snips_ci_high"]
    assert actual["random"]["ips"] / N_ITEMS == pytest.approx(38 / 10000, **NEAR)


def test_positions_of_random_traffic(logs):
    """Counted in the file: 13 clicks of 3,322, 14 of 3,412, 11 of 3,266."""
    columns = ImpressionColumns(query=("row",))
    (row,) = fit_impressions(logs["random"], PropensitySettings(method="randomized", columns=columns)).collect()
    actual = [
        (cell["position"], cell["n_clicks"], cell["n_impressions"], cell["reason"]) for cell in row["positions"]
    ]
    assert actual == [(1, 13, 3322, None), (2, 14, 3412, "above_1"), (3, 11, 3266, None)]
    assert row["positions"][2]["propensity"] == pytest.approx((11 / 3266) / (13 / 3322), **NEAR)


def test_labels_of_the_items(logs, spark):
    """One query: each item's label is the mean of click / propensity, computed by loops over the file."""
    settings = WeightSettings(columns=ImpressionColumns(query=("shop",), propensity="propensity_score"), clip=200)
    labels = judge_impressions(logs["bts"].selectExpr("*", "'zozo' shop"), settings).collect()
    sums: dict[int, list[float]] = {}
    for row in logs["bts"].collect():
        sums.setdefault(row["item_id"], []).append(row["click"] * min(1 / row["propensity_score"], 200))
    assert {row["item_id"]: row["relevance"] for row in labels} == {
        item: pytest.approx(sum(weighted_clicks) / len(weighted_clicks), abs=1e-12)
        for item, weighted_clicks in sums.items()
    }
    assert len(labels) == N_ITEMS
