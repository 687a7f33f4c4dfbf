"""Position bias on Spark: worked values, simulated clicks, equal bits for any partitioning, refusals."""

from __future__ import annotations

import math
from functools import reduce

import pandas as pd
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from support.clicks import N_ITEMS, simulate_clicks
from support.spark_rankings import session_settings

from ndcg_spark import evaluate, readable_errors
from ndcg_spark.clicks import ImpressionColumns, PropensitySettings, WeightSettings, fit_propensities, merge_estimates
from ndcg_spark.clicks.frames import (
    check_impressions,
    estimate_impressions,
    fit_impressions,
    judge_impressions,
    read_weighted_impressions,
)
from ndcg_spark.core.columns import mark_text_table
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError

NEAR = {"abs": 1e-12, "rel": 0}
LOG = "query_id int, item_id int, position int, click int, explored boolean"
T_3 = 3.182446305284
"""The quantile at .975 of Student's t with 3 degrees of freedom."""


@pytest.fixture(scope="module")
def log(spark):
    """The 60,000 simulated impressions, in many partitions."""
    rows = pd.DataFrame(simulate_clicks().rows, columns=["query_id", "item_id", "position", "click", "explored"])
    rows = rows.assign(position=rows["position"] + 1, explored=rows["explored"] == 1)
    return spark.createDataFrame(rows, LOG).repartition(5).cache()


@pytest.fixture(scope="module")
def small(log):
    """The impressions of 12 queries, for tests that need no more."""
    return log.where("query_id < 12").cache()


def fit(log, **options):
    (row,) = fit_impressions(log, PropensitySettings(**options)).collect()
    return row.asDict(recursive=True)


def index_propensities(row):
    return {cell["position"]: cell["propensity"] for cell in row["positions"]}


# ----------------------------------------------------------------------------------------------------- estimates

WEIGHTED = "query_id string, item_id string, click double, propensity double, country string"
FOUR = [
    ("q1", "a", 1.0, 1.0, "DE"),
    ("q2", "a", 0.0, 0.5, "DE"),
    ("q3", "a", 1.0, 0.2, "FR"),
    ("q4", "a", 1.0, 0.1, None),
]
BY_PROPENSITY = ImpressionColumns(propensity="propensity")
OF_ACTIONS_ALONE = WeightSettings(propensity_of="action")


def test_propensities_of_positions_have_no_snips(spark):
    """Half of the impressions would be clicked if they were examined: A = 4 over 8 impressions, and B = 12."""
    seen = [(1, 1.0, click) for click in (1.0, 1.0, 0.0, 0.0)] + [(2, 0.5, click) for click in (1.0, 0.0, 0.0, 0.0)]
    rows = [(f"q{at}", "a", *impression) for at, impression in enumerate(seen)]
    frame = spark.createDataFrame(rows, "query_id string, item_id string, position int, p double, click double")
    by_column = ImpressionColumns(propensity="p")
    table = spark.createDataFrame([(1.0, 1.0), (2.0, 0.5)], TABLE)
    for settings, propensities in (
        (WeightSettings(columns=by_column), None),
        (WeightSettings(power=1), None),
        (WeightSettings(), table),
    ):
        (actual,) = estimate_impressions(frame, settings, propensities).collect()
        assert actual["ips"] == 0.5
        assert [actual[name] for name in actual.asDict() if name.startswith("snips")] == [
            *[None] * 4,
            "propensities_of_positions",
        ]
        assert actual["propensity_of"] == "position"
    for settings, propensities in (
        (WeightSettings(power=1, propensity_of="action"), None),
        (OF_ACTIONS_ALONE, table),
    ):
        with pytest.raises(InvalidParameterError, match=r"propensity_of='action' needs a propensity column"):
            estimate_impressions(frame, settings, propensities)


def test_estimates_of_both_kinds_merge(spark):
    rows = spark.createDataFrame(FOUR, WEIGHTED)
    actions, positions = (
        estimate_impressions(rows, WeightSettings(columns=BY_PROPENSITY, propensity_of=kind))
        for kind in ("action", "position")
    )
    merged = {
        "actions": merge_estimates(actions.union(actions)),
        "both": merge_estimates(actions.union(positions)),
        "again": merge_estimates(merge_estimates(actions.union(positions)).union(actions)),
        "positions": merge_estimates(positions.union(positions)),
    }
    together = reduce(
        DataFrame.union, (group.select(F.lit(name).alias("name"), "*") for name, group in merged.items())
    )
    actual = {row["name"]: (row["propensity_of"], row["snips_reason"], row["snips"]) for row in together.collect()}
    assert actual == {
        "actions": ("action", None, pytest.approx(8 / 9, **NEAR)),
        "both": ("mixed", "propensities_of_both_kinds", None),
        "again": ("mixed", "propensities_of_both_kinds", None),
        "positions": ("position", "propensities_of_positions", None),
    }


def test_the_worked_estimates_by_run_and_segment(spark):
    """SNIPS as computed by obp 0.4.1, the rest by definition; the weight of 10 is clipped to 4."""
    frame = spark.createDataFrame([(*row, run) for run in ("a", "b") for row in FOUR], f"{WEIGHTED}, run string")
    settings = WeightSettings(columns=BY_PROPENSITY, clip=4.0, propensity_of="action", run="run",
                              segment_sets=(("country",), ("country", "item_id")))  # fmt: skip
    rows = estimate_impressions(frame, settings).collect()
    of_groups = {
        ("", ""): (4, 2.25), ("country", "DE"): (2, 0.5), ("country", "FR"): (1, 4.0), ("country", None): (1, 4.0),
        ("country+item_id", '["DE","a"]'): (2, 0.5), ("country+item_id", '["FR","a"]'): (1, 4.0),
        ("country+item_id", '[null,"a"]'): (1, 4.0),
    }  # fmt: skip
    assert {(row["run"], row["segment_by"], row["segment"]): (row["n_queries"], row["ips"]) for row in rows} == {
        (run, *group): value for run in ("a", "b") for group, value in of_groups.items()
    }
    actual = next(row for row in rows if (row["run"], row["segment_by"]) == ("b", ""))
    assert (actual["n_queries"], actual["n_impressions"]) == (4, 4)
    assert actual["n_eff"] == pytest.approx(3.270270270270, **NEAR)
    assert (actual["propensity_of"], actual["snips_reason"]) == ("action", None)
    for name, (value, error) in {"ips": (2.25, 1.030776406404), "snips": (0.818181818182, 0.176480632265)}.items():
        assert (actual[name], actual[f"{name}_std_error"]) == pytest.approx((value, error), **NEAR)
        assert actual[f"{name}_ci_high"] == pytest.approx(value + T_3 * error, abs=1e-11)


def test_a_query_is_one_observation_whatever_its_segments(spark):
    """Both impressions of q: A = 2 + 1, in one segment each."""
    rows = [("q", "a", 1.0, 0.5, "DE"), ("q", "b", 1.0, 1.0, "FR")]
    settings = WeightSettings(columns=BY_PROPENSITY, segment_sets=(("country",),))
    actual = estimate_impressions(spark.createDataFrame(rows, WEIGHTED), settings).collect()
    values = {row["segment"]: (row["n_queries"], row["n_impressions"], row["ips"]) for row in actual}
    assert values == {"": (1, 2, 3.0), "DE": (1, 1, 2.0), "FR": (1, 1, 1.0)}


def test_nights_merge_to_the_bits_of_all(small):
    settings = WeightSettings(power=0.7)
    whole = estimate_impressions(small, settings).collect()
    nights = [estimate_impressions(small.where(f"query_id % 3 = {night}"), settings) for night in range(3)]
    merged = merge_estimates(nights[0].union(nights[1]).union(nights[2])).collect()
    assert merged == whole
    assert whole[0]["n_queries"] == 12


# -------------------------------------------------------------------------------------------------------- labels


def test_the_worked_labels(spark):
    """Clicks 1, 0, 1 logged at 3, 1, 2; the evaluated ranking has them in this order."""
    rows = [("q", "a", 3, 1, False), ("q", "b", 1, 0, False), ("q", "c", 2, 1, False)]
    frame = spark.createDataFrame(rows, LOG.replace("int,", "string,", 2))
    judgments = judge_impressions(frame, WeightSettings(power=1, clip=2.0))
    run = spark.createDataFrame(
        [("q", "a", 3.0), ("q", "b", 2.0), ("q", "c", 1.0)], "query_id string, item_id string, score double"
    )
    (actual,) = evaluate(run, judgments=judgments, k=3, convention="linear").per_query.collect()
    assert (actual["dcg"], actual["idcg"]) == pytest.approx((3.0, 3.261859507143), **NEAR)


def test_fields_of_a_judgment(spark):
    """Weights 1, 4 (of 10) and 2: relevance (1 * 1 + 4 * 1 + 2 * 0) / 3."""
    rows = [("q", "a", 1.0, 1.0, ""), ("q", "a", 1.0, 0.1, ""), ("q", "a", 0.0, 0.5, "")]
    settings = WeightSettings(columns=BY_PROPENSITY, clip=4)
    (actual,) = judge_impressions(spark.createDataFrame(rows, WEIGHTED), settings).collect()
    assert actual.asDict() == {
        **{"query_id": "q", "item_id": "a", "relevance": 5 / 3, "rule": "ips", "uncorrected": 2 / 3},
        **{"n_impressions": 3, "n_clipped": 1, "weight_sum": 7.0, "largest_weight": 4.0},
    }


def test_gains_may_be_negative_and_sums_are_exact(spark):
    """Ten times 0.1, and -1: added from left to right as doubles the sum is -1.1e-16."""
    rows = [("q", "a", 0.1, 1.0, "")] * 10 + [("q", "a", -1.0, 1.0, "")]
    settings = WeightSettings(columns=BY_PROPENSITY)
    (actual,) = judge_impressions(spark.createDataFrame(rows, WEIGHTED), settings).collect()
    assert actual["relevance"] == pytest.approx(math.fsum([0.1] * 10 + [-1.0]) / 11, rel=1e-3, abs=0)
    assert actual["relevance"] > 0


# ---------------------------------------------------------------------------------------------------- simulation


def test_propensities_of_the_simulation(log):
    """EM as in SciPy's L-BFGS to 1e-6; shuffled traffic; pairs as in ultr-bias-toolkit 0.0.5."""
    actual = fit(log)
    assert (actual["converged"], actual["n_iterations"], len(actual["log_likelihood"])) == (True, 569, 570)
    assert sum(row["n_impressions"] for row in actual["positions"]) == 60000
    assert sum(row["n_clicks"] for row in actual["positions"]) == 13174
    by_em = index_propensities(actual)
    assert [by_em[k] for k in (1, 2, 5)] == pytest.approx([1, 0.494810392287, 0.179822679039], abs=1e-3)
    of_pairs = index_propensities(fit(log, method="pairs"))
    assert [of_pairs[k] for k in (1, 2, 5)] == pytest.approx([1, 0.477104599911, 0.194416208472], **NEAR)
    shuffled = index_propensities(fit(log.where("explored"), method="randomized"))
    assert [shuffled[k] for k in (1, 2, 5)] == pytest.approx([1, 0.481260647359, 0.189097103918], **NEAR)


# ------------------------------------------------------------------------------------------------- the same bits


def compute_all(rows):
    """Compute labels, estimates and fits."""
    weights = WeightSettings(power=0.7, clip=2.5)
    return {
        "labels": sorted(judge_impressions(rows, weights).collect()),
        "estimates": estimate_impressions(rows, weights).collect(),
        "em": fit(rows, tolerance=1e-9, max_iter=200),
        "pairs": fit(rows, method="pairs"),
    }


def test_partitions_and_order_do_not_change_a_bit(spark, small):
    expected = compute_all(small.coalesce(1))
    with session_settings(spark, spark__sql__shuffle__partitions=7):
        assert compute_all(small.orderBy("click", "item_id").repartition(64)) == expected
    assert len(expected["labels"]) == 12 * N_ITEMS
    assert expected["em"]["n_iterations"] == 200


# ----------------------------------------------------------------------------------------------- what can be told


def create_impressions(spark, rows):
    return spark.createDataFrame(rows, "query_id string, item_id string, position int, click int")


def build_impressions(item, position, clicks, n=10):
    return [("q", item, position, int(at < clicks)) for at in range(n)]


def test_keys_may_have_the_names_of_counts(spark):
    schema = "shown string, clicked string, n string, position int, click int"
    rows = spark.createDataFrame([("q", "n", item, k, c) for _, item, k, c in build_impressions("a", 1, 2)], schema)
    columns = ImpressionColumns(query=("shown", "clicked"), item="n")
    (position,) = fit(rows, columns=columns)["positions"]
    assert (position["n_impressions"], position["n_clicks"]) == (10, 2)
    settings = WeightSettings(columns=columns, power=1, segment_sets=(("n",),))
    assert {row["ips"] for row in estimate_impressions(rows, settings).collect()} == {2.0}
    assert [row["relevance"] for row in judge_impressions(rows, settings).collect()] == [0.2]


def test_fit_of_no_impressions_has_no_positions(spark):
    nothing = create_impressions(spark, [])
    assert [row["positions"] for row in fit_propensities(nothing).collect()] in ([], [[]])
    assert judge_impressions(nothing, WeightSettings(power=1)).collect() == []
    assert estimate_impressions(nothing, WeightSettings(power=1)).collect() == []


# ------------------------------------------------------------------------------------------------------ refusals

TABLE = "position double, propensity double"


GIVEN = [(1.0, 1.0), (2.0, 0.5), (3.0, None), (4.0, 0.3), (4.0, 0.3), (5.0, 1.5)]
ROW = "query_id string, item_id string, position double, click double"
BAD = [
    ({"query_id": None}, "null_query"),
    ({"item_id": None}, "null_item"),
    ({"position": None}, "null_position"),
    ({"position": 0.0}, "position_below_1"),
    ({"position": 1.5}, "position_not_whole"),
    ({"position": 2e6}, "position_too_large"),
    ({"click": None}, "null_click"),
    ({"click": math.nan}, "nan_click"),
    ({"click": math.inf}, "infinite_click"),
    ({"click": 2e6}, "click_too_large"),
    ({"position": 9.0}, "position_without_propensity"),
    ({"position": 3.0}, "position_without_propensity"),
    ({"position": 4.0}, "position_with_two_propensities"),
    ({"position": 5.0}, "propensity_above_1"),
]


def build_bad_row(at, change):
    """Build a valid row of its own query with one change."""
    return tuple(({"query_id": f"q{at}", "item_id": "a", "position": 1.0, "click": 1.0} | change).values())


def find_reasons(rows, settings, propensities=None):
    """Return reason and key of each bad row, sorted."""
    impressions = read_weighted_impressions(rows, settings, propensities)
    checked = check_impressions(impressions, settings.columns, originals=False).where("reason is not null").collect()
    return sorted((row["reason"], row["key"]) for row in checked)


def test_bad_rows(spark):
    rows = [build_bad_row(at, change) for at, (change, _) in enumerate(BAD)]
    frame = spark.createDataFrame([*rows, build_bad_row(99, {})], ROW)
    propensities = spark.createDataFrame(GIVEN, TABLE)
    assert find_reasons(frame, WeightSettings(), propensities) == sorted(
        (reason, f"query_id={row[0] or 'null'}, item_id={row[1] or 'null'}")
        for row, (_, reason) in zip(rows, BAD, strict=True)
    )
    judgments = judge_impressions(frame, WeightSettings(on_invalid="reject"), propensities).collect()
    assert [row["query_id"] for row in judgments] == ["q99"]
    first = frame.where("query_id is null")
    with pytest.raises(InputRefusedError, match=r"^bad row: null_query at query_id="), readable_errors():
        judge_impressions(first, WeightSettings(), propensities).collect()


def test_bad_propensities(spark):
    bad = [
        (None, "null_propensity"),
        (math.nan, "nan_propensity"),
        (0.0, "propensity_not_above_0"),
        (-0.1, "propensity_not_above_0"),
        (1.1, "propensity_above_1"),
        (math.inf, "propensity_above_1"),
        (1e-10, "propensity_too_small"),
    ]
    frame = spark.createDataFrame(
        [(f"q{at}", "a", 1.0, propensity, "") for at, (propensity, _) in enumerate(bad)], WEIGHTED
    )
    settings = WeightSettings(columns=BY_PROPENSITY)
    assert find_reasons(frame, settings) == sorted(
        (reason, f"query_id=q{at}, item_id=a") for at, (_, reason) in enumerate(bad)
    )
    for made in (judge_impressions, estimate_impressions):
        with pytest.raises(InputRefusedError, match=r"^bad row: null_propensity at query_id=q0,"), readable_errors():
            made(frame.where("query_id = 'q0'"), settings).collect()
    clipped = WeightSettings(columns=BY_PROPENSITY, clip=10, on_invalid="reject")
    judgments = judge_impressions(frame, clipped).collect()
    assert [(row["query_id"], row["relevance"]) for row in judgments] == [("q6", 10.0)]


def test_text_of_a_propensity_is_a_number(spark):
    texts = spark.createDataFrame([("q", "a", 1.0, "0.5"), ("r", "a", 1.0, "half")],
                                  "query_id string, item_id string, click double, propensity string")  # fmt: skip
    settings = WeightSettings(columns=BY_PROPENSITY, on_invalid="reject")
    with pytest.raises(InputRefusedError, match="is string, not a number"):
        judge_impressions(texts, settings)
    texts = mark_text_table(texts)
    with pytest.raises(InputRefusedError, match="bad row: propensity_not_a_number at query_id=r"), readable_errors():
        estimate_impressions(texts, WeightSettings(columns=BY_PROPENSITY)).collect()
    judgments = judge_impressions(texts, settings).collect()
    assert [row["query_id"] for row in judgments] == ["q"]


def test_bad_runs_and_clicks(spark):
    frame = spark.createDataFrame(FOUR[:2], WEIGHTED).withColumn("ranker", F.expr("nullif(query_id, 'q1')"))
    settings = WeightSettings(columns=BY_PROPENSITY, run="ranker")
    assert find_reasons(frame, settings) == [("null_run", "query_id=q1, item_id=a")]
    with pytest.raises(MissingColumnError, match=r"'ranker' \(run=\) is not in the impressions"):
        estimate_impressions(frame.drop("ranker"), settings)
    three_clicks = create_impressions(spark, [("q", "a", 1, 3)])
    with pytest.raises(InputRefusedError, match="bad row: click_not_0_or_1"), readable_errors():
        fit(three_clicks)


@pytest.mark.parametrize(
    ("made", "options"),
    [
        (PropensitySettings, {"method": "em"}),
        (PropensitySettings, {"tolerance": 0.0}),
        (PropensitySettings, {"tolerance": math.nan}),
        (PropensitySettings, {"max_iter": 0}),
        (PropensitySettings, {"on_invalid": "skip"}),
        (WeightSettings, {"clip": 0.5}),
        (WeightSettings, {"clip": math.nan}),
        (WeightSettings, {"power": -1}),
        (WeightSettings, {"power": math.inf}),
        (WeightSettings, {"confidence": 1.0}),
        (WeightSettings, {"propensity_of": "item"}),
    ],
)
def test_settings_that_do_not_fit(made, options):
    with pytest.raises(InvalidParameterError, match=next(iter(options))):
        made(**options)


def test_a_key_with_the_name_of_a_result():
    with pytest.raises(InvalidParameterError, match="segment"):
        ImpressionColumns(query=("segment",))


def test_propensities_come_from_one_place(spark):
    rows = create_impressions(spark, [("q", "a", 1, 1)])
    table = spark.createDataFrame([(1.0, 1.0)], TABLE)
    for settings, propensities in (
        (WeightSettings(), None),
        (WeightSettings(power=1), table),
        (WeightSettings(power=1, columns=BY_PROPENSITY), None),
    ):
        with pytest.raises(InvalidParameterError, match="one of a column, a table, or a power"):
            judge_impressions(rows, settings, propensities)
    with pytest.raises(MissingColumnError, match="'propensity'"):
        judge_impressions(rows, WeightSettings(columns=BY_PROPENSITY))
    with pytest.raises(MissingColumnError, match=r"'propensity'.*table of propensities"):
        judge_impressions(rows, WeightSettings(), table.drop("propensity"))
