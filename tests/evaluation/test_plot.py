"""The picture of an evaluation: its points are the means, its steps count the queries."""

from __future__ import annotations

import math
import re
from collections import Counter

import pytest
from pyspark.sql import functions as F
from support.spark_rankings import is_close

from ndcg_spark import evaluate
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.evaluation.plots import MAX_SEGMENTS, N_BINS, Group, choose_bin_width, select_groups

RUNS = ("a", "b")


@pytest.fixture(scope="module")
def rankings(spark):
    """Queries whose NDCG is 1, or 1 / log2(3), or 0, in two countries; run b has the other order."""
    rows = []
    for n in range(12):
        for at, run in enumerate(RUNS):
            grades = ((1, 0), (0, 1), (0, 0))[(n + at * (n % 2)) % 3]
            for rank, grade in enumerate(grades):
                rows.append((run, f"q{n}", f"i{rank}", -float(rank), grade, ("DE", "US")[n % 2]))
    return spark.createDataFrame(
        rows, "run string, query_id string, item_id string, score double, relevance int, country string"
    )


def test_points_are_means_and_steps_count_queries(rankings):
    result = evaluate(rankings, run="run", k=[1, 3], segments=["country"])
    figure = result.plot()
    left, *of_runs = figure.axes
    assert [ax.get_title(loc="left") for ax in figure.axes] == [
        "mean ndcg@3", "number of queries", ""
    ]  # fmt: skip
    assert [run.get_ylabel() for run in of_runs] == list(RUNS)
    labels = [yticklabel.get_text() for yticklabel in left.get_yticklabels()]
    assert labels == ["overall", "country=DE", "country=US"]
    means = {
        (row["run"], f"{row['segment_by']}={row['segment']}".removeprefix("=") or "overall"): row["value"]
        for row in result.summary.where("metric = 'ndcg' AND k = 3").collect()
    }
    drawn = [line for line in left.lines if line.get_marker() == "o"]
    for run, line in zip(RUNS, drawn, strict=True):
        for label, value in zip(labels, line.get_xdata(), strict=True):
            assert value == means[run, label]
    values = {run: Counter() for run in RUNS}
    for row in result.per_query.where("k = 3").collect():
        values[row["run"]][min(math.floor(row["ndcg"] * N_BINS), N_BINS - 1)] += 1
    for run, axes in zip(RUNS, of_runs, strict=True):
        (step,) = axes.patches
        assert axes.get_ylim()[1] >= max(max(group.values()) for group in values.values())
        counts, edges, _ = step.get_data()
        actual = {round(edge * N_BINS): n for n, edge in zip(counts, edges[:-1], strict=True) if n}
        assert actual == values[run]
        assert edges[-1] <= 1 + 1e-12
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_a_metric_is_chosen_by_its_name(rankings):
    result = evaluate(rankings, run="run", metrics=["precision@1", "dcg@3", "ap"])
    assert result.plot("dcg@3").axes[0].get_title(loc="left") == "mean dcg@3"
    assert result.plot("ap@all").axes[0].get_title(loc="left") == "mean ap@all"
    assert result.plot("p@1").axes[0].get_title(loc="left") == "mean precision@1"
    assert result.plot().axes[0].get_title(loc="left") == "mean precision@1"
    message = "metric 'ndcg@5' was not computed for each query; computed are: precision@1, dcg@3, ap@all."
    with pytest.raises(InvalidParameterError, match=re.escape(message)):
        result.plot("ndcg@5")


def test_bad_rows_are_refused_in_a_line(rankings):
    with pytest.raises(InputRefusedError, match=r"48 bad rows of 48 in the data: null_query 48"):
        evaluate(rankings.withColumn("query_id", F.lit(None).cast("string"))).plot()


def test_a_bin_is_a_twentieth_of_what_values_span():
    assert choose_bin_width([], within_1=True) == 0.05
    group = Group(run="", label="all", value=6.0, low=5.0, high=7.0, n=64)  # a deviation of about 4: 18 / 20
    assert choose_bin_width([group], within_1=False) == 1.0
    one = Group(run="", label="all", value=0.0, low=None, high=None, n=1)
    assert is_close(choose_bin_width([one], within_1=False), 1.0)


def test_the_largest_groups_are_drawn():
    rows = [
        {
            "run": "",
            "label": f"g={n}",
            "value": None if n == 99 else 0.5,
            "ci_low": None,
            "ci_high": None,
            "n_queries": n,
        }
        for n in range(100)
    ]
    assert [group.label for group in select_groups(rows)] == [f"g={n}" for n in range(99 - MAX_SEGMENTS, 99)]
