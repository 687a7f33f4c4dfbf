"""Position bias on Spark: worked values, simulated clicks, the same bits however rows lie, and what is refused."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from support.clicks import N_ITEMS, N_QUERIES, simulation
from support.spark_rankings import session_settings

from ndcg_spark import evaluate, readable_errors
from ndcg_spark.clicks import ImpressionColumns, PropensitySettings, WeightSettings, fit_propensities, merge_estimates
from ndcg_spark.clicks.frames import (
    checked_impressions,
    fitted_propensities,
    judged_impressions,
    propensity_estimates,
    propensity_table,
    weighted_impressions,
)
from ndcg_spark.core.columns import mark_text_table
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError

NEAR = {"abs": 1e-12, "rel": 0}
LOG = "query_id int, item_id int, position int, click int, explored boolean"
Z = 1.959963984540
T_3 = 3.182446305284
"""Quantiles at .975 of the normal distribution, and of Student's t with 3 degrees of freedom."""


@pytest.fixture(scope="module")
def log(spark):
    """The 60,000 simulated impressions, in many partitions."""
    rows = pd.DataFrame(simulation().rows, columns=["query_id", "item_id", "position", "click", "explored"])
    rows = rows.assign(position=rows["position"] + 1, explored=rows["explored"] == 1)
    return spark.createDataFrame(rows, LOG).repartition(5).cache()


@pytest.fixture(scope="module")
def small(log):
    """Those of 12 queries, where more would show nothing more."""
    return log.where("query_id < 12").cache()


def fit(log, **options):
    (row,) = fitted_propensities(log, PropensitySettings(**options)).collect()
    return row.asDict(recursive=True)


def propensities_of(row):
    return {one["position"]: one["propensity"] for one in row["positions"]}


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


@pytest.mark.parametrize(
    ("clip", "ips", "snips", "n_eff"),
    [
        (None, (4, 2.273030282831), (0.888888888889, 0.120647038801), 2.492307692308),
        (4.0, (2.25, 1.030776406404), (0.818181818182, 0.176480632265), 3.270270270270),
    ],
)
def test_the_worked_estimates(spark, clip, ips, snips, n_eff):
    """SNIPS as obp 0.4.1 computes it, the rest by definition."""
    settings = WeightSettings(columns=BY_PROPENSITY, clip=clip, propensity_of="action")
    (found,) = propensity_estimates(spark.createDataFrame(FOUR, WEIGHTED), settings).collect()
    assert (found["n_queries"], found["n_impressions"]) == (4, 4)
    assert (found["ips"], found["ips_std_error"]) == pytest.approx(ips, **NEAR)
    assert (found["snips"], found["snips_std_error"]) == pytest.approx(snips, **NEAR)
    assert found["n_eff"] == pytest.approx(n_eff, **NEAR)
    assert (found["propensity_of"], found["snips_reason"]) == ("action", None)
    for name, (value, error) in {"ips": ips, "snips": snips}.items():
        assert found[f"{name}_ci_high"] == pytest.approx(value + T_3 * error, abs=1e-11)


def test_propensities_of_positions_have_no_snips(spark):
    """Half of the impressions would be clicked if they were examined: A = 4 over 8 impressions, and B = 12."""
    seen = [(1, 1.0, click) for click in (1.0, 1.0, 0.0, 0.0)] + [(2, 0.5, click) for click in (1.0, 0.0, 0.0, 0.0)]
    rows = [(f"q{at}", "a", *its) for at, its in enumerate(seen)]
    frame = spark.createDataFrame(rows, "query_id string, item_id string, position int, p double, click double")
    by_column = ImpressionColumns(propensity="p")
    table = spark.createDataFrame([(1.0, 1.0), (2.0, 0.5)], TABLE)
    for settings, given in (
        (WeightSettings(columns=by_column), None),
        (WeightSettings(power=1), None),
        (WeightSettings(), table),
    ):
        (found,) = propensity_estimates(frame, settings, given).collect()
        assert found["ips"] == 0.5
        assert [found[name] for name in found.asDict() if name.startswith("snips")] == [
            *[None] * 4,
            "propensities_of_positions",
        ]
        assert found["propensity_of"] == "position"
    for settings, given in ((WeightSettings(power=1, propensity_of="action"), None), (OF_ACTIONS_ALONE, table)):
        with pytest.raises(InvalidParameterError, match=r"propensity_of='action' needs a propensity column"):
            propensity_estimates(frame, settings, given)


def test_estimates_of_both_kinds_merge(spark):
    rows = spark.createDataFrame(FOUR, WEIGHTED)
    actions, positions = (
        propensity_estimates(rows, WeightSettings(columns=BY_PROPENSITY, propensity_of=kind))
        for kind in ("action", "position")
    )
    merged = {
        "actions": merge_estimates(actions.union(actions)),
        "both": merge_estimates(actions.union(positions)),
        "again": merge_estimates(merge_estimates(actions.union(positions)).union(actions)),
        "positions": merge_estimates(positions.union(positions)),
    }
    together = reduce(DataFrame.union, (its.select(F.lit(name).alias("name"), "*") for name, its in merged.items()))
    found = {row["name"]: (row["propensity_of"], row["snips_reason"], row["snips"]) for row in together.collect()}
    assert found == {
        "actions": ("action", None, pytest.approx(8 / 9, **NEAR)),
        "both": ("mixed", "propensities_of_both_kinds", None),
        "again": ("mixed", "propensities_of_both_kinds", None),
        "positions": ("position", "propensities_of_positions", None),
    }


def test_estimates_by_run_and_segment(spark):
    rows = [(*row, run) for run in ("a", "b") for row in FOUR]
    frame = spark.createDataFrame(rows, f"{WEIGHTED}, run string")
    settings = WeightSettings(columns=BY_PROPENSITY, run="run", segment_sets=(("country",), ("country", "item_id")))
    found = {
        (row["run"], row["segment_by"], row["segment"]): (row["n_queries"], row["ips"])
        for row in propensity_estimates(frame, settings).collect()
    }
    expected = {
        ("", ""): (4, 4.0),
        ("country", "DE"): (2, 0.5),
        ("country", "FR"): (1, 5.0),
        ("country", None): (1, 10),
    }
    expected |= {
        ("country+item_id", '["DE","a"]'): (2, 0.5),
        ("country+item_id", '["FR","a"]'): (1, 5.0),
        ("country+item_id", '[null,"a"]'): (1, 10.0),
    }
    assert found == {(run, *group): value for run in ("a", "b") for group, value in expected.items()}


def test_a_query_is_one_observation_whatever_its_segments(spark):
    """Both impressions of q: A = 2 + 1, in one segment each."""
    rows = [("q", "a", 1.0, 0.5, "DE"), ("q", "b", 1.0, 1.0, "FR")]
    settings = WeightSettings(columns=BY_PROPENSITY, segment_sets=(("country",),))
    found = propensity_estimates(spark.createDataFrame(rows, WEIGHTED), settings).collect()
    values = {row["segment"]: (row["n_queries"], row["n_impressions"], row["ips"]) for row in found}
    assert values == {"": (1, 2, 3.0), "DE": (1, 1, 2.0), "FR": (1, 1, 1.0)}


def test_nights_merge_to_the_bits_of_all(small):
    settings = WeightSettings(power=0.7)
    whole = propensity_estimates(small, settings).collect()
    nights = [propensity_estimates(small.where(f"query_id % 3 = {night}"), settings) for night in range(3)]
    merged = merge_estimates(nights[0].union(nights[1]).union(nights[2])).collect()
    assert merged == whole
    assert whole[0]["n_queries"] == 12


# -------------------------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize(("clip", "dcg", "idcg"), [(None, 4.0, 4.261859507143), (2.0, 3.0, 3.261859507143)])
def test_the_worked_labels(spark, clip, dcg, idcg):
    """Clicks 1, 0, 1 logged at 3, 1, 2; the ranking evaluated has them in this order."""
    rows = [("q", "a", 3, 1, False), ("q", "b", 1, 0, False), ("q", "c", 2, 1, False)]
    frame = spark.createDataFrame(rows, LOG.replace("int,", "string,", 2))
    judgments = judged_impressions(frame, WeightSettings(power=1, clip=clip))
    run = spark.createDataFrame(
        [("q", "a", 3.0), ("q", "b", 2.0), ("q", "c", 1.0)], "query_id string, item_id string, score double"
    )
    (found,) = evaluate(run, judgments=judgments, k=3, convention="linear").per_query.collect()
    assert (found["dcg"], found["idcg"]) == pytest.approx((dcg, idcg), **NEAR)


def test_what_a_judgment_says(spark):
    """Weights 1, 4 (of 10) and 2: relevance (1 * 1 + 4 * 1 + 2 * 0) / 3."""
    rows = [("q", "a", 1.0, 1.0, ""), ("q", "a", 1.0, 0.1, ""), ("q", "a", 0.0, 0.5, "")]
    settings = WeightSettings(columns=BY_PROPENSITY, clip=4)
    (found,) = judged_impressions(spark.createDataFrame(rows, WEIGHTED), settings).collect()
    assert found.asDict() == {
        **{"query_id": "q", "item_id": "a", "relevance": 5 / 3, "rule": "ips", "uncorrected": 2 / 3},
        **{"n_impressions": 3, "n_clipped": 1, "weight_sum": 7.0, "largest_weight": 4.0},
    }


def test_gains_may_be_negative_and_sums_are_exact(spark):
    """0.1 ten times and -1: left to right the sum of doubles is -1.1e-16."""
    rows = [("q", "a", 0.1, 1.0, "")] * 10 + [("q", "a", -1.0, 1.0, "")]
    settings = WeightSettings(columns=BY_PROPENSITY)
    (found,) = judged_impressions(spark.createDataFrame(rows, WEIGHTED), settings).collect()
    assert found["relevance"] == pytest.approx(math.fsum([0.1] * 10 + [-1.0]) / 11, rel=1e-3, abs=0)
    assert found["relevance"] > 0


# ---------------------------------------------------------------------------------------------------- simulation


@pytest.fixture(scope="module")
def by_em(log):
    return fit(log, tolerance=1e-9, max_iter=5000)


def test_propensities_by_em(by_em):
    """SciPy's L-BFGS agrees to 1e-6."""
    found = propensities_of(by_em)
    assert [found[k] for k in (1, 2, 5)] == pytest.approx([1, 0.494810392287, 0.179822679039], **NEAR)
    assert (by_em["converged"], by_em["n_iterations"]) == (True, 2696)
    likelihood = by_em["log_likelihood"]
    assert len(likelihood) == 2697
    assert (np.diff(likelihood) >= -1e-9).all()
    assert likelihood[-1] > likelihood[0]
    assert sum(one["n_impressions"] for one in by_em["positions"]) == 60000
    assert sum(one["n_clicks"] for one in by_em["positions"]) == 13174


def test_propensities_of_shuffled_traffic(log):
    found = propensities_of(fit(log.where("explored"), method="randomized"))
    assert [found[k] for k in (1, 2, 5)] == pytest.approx([1, 0.481260647359, 0.189097103918], **NEAR)


def test_propensities_of_items_at_two_positions(log):
    """ultr-bias-toolkit 0.0.5."""
    found = propensities_of(fit(log, method="pairs"))
    assert [found[k] for k in (1, 2, 5)] == pytest.approx([1, 0.477104599911, 0.194416208472], **NEAR)


def gap(spark, judgments):
    """Mean DCG@5 of both rankings with the label as gain; their difference with its interval."""
    orders = {"a": simulation().order_a, "b": simulation().order_b}
    rows = [
        (run, q, x, -float(at))
        for run, its in orders.items()
        for q, items in enumerate(its)
        for at, x in enumerate(items)
    ]
    runs = spark.createDataFrame(rows, "run string, query_id int, item_id int, score double")
    found = evaluate(runs, judgments=judgments, run="run", k=N_ITEMS, convention="linear").per_query.collect()
    of_queries = {(row["run"], row["query_id"]): row["dcg"] for row in found}
    a, b = (np.array([of_queries[run, q] for q in range(N_QUERIES)]) for run in orders)
    error = (b - a).std(ddof=1) / math.sqrt(N_QUERIES)
    middle = (b - a).mean()
    return a.mean(), b.mean(), middle, middle - Z * error, middle + Z * error


TRUE_GAP = 0.171011900543


def test_naive_labels_are_off_and_corrected_ones_are_not(spark, log, by_em):
    by_position = judged_impressions(log, WeightSettings(power=1)).cache()
    naive = gap(spark, by_position.select("query_id", "item_id", by_position["uncorrected"].alias("relevance")))
    corrected = gap(spark, by_position)
    assert naive == pytest.approx(
        [0.784240957374, 0.738001195846, -0.046239761527, -0.069475500283, -0.023004022772], **NEAR
    )
    assert corrected == pytest.approx(
        [1.404291745490, 1.562393497756, 0.158101752265, 0.119690244103, 0.196513260427], **NEAR
    )
    table = spark.createDataFrame(list(propensities_of(by_em).items()), "position int, propensity double")
    fitted = gap(spark, judged_impressions(log, WeightSettings(), table))
    assert fitted == pytest.approx(
        [1.437604274189, 1.607836677112, 0.170232402923, 0.130115879829, 0.210348926018], abs=1e-9
    )
    assert naive[4] < TRUE_GAP  # outside of the interval
    assert all(found[3] < TRUE_GAP < found[4] for found in (corrected, fitted))


# ------------------------------------------------------------------------------------------------- the same bits


def everything(rows):
    """Labels, estimates and fits."""
    weights = WeightSettings(power=0.7, clip=2.5)
    return {
        "labels": sorted(judged_impressions(rows, weights).collect()),
        "estimates": propensity_estimates(rows, weights).collect(),
        "em": fit(rows, tolerance=1e-9, max_iter=200),
        "pairs": fit(rows, method="pairs"),
    }


@pytest.fixture(scope="module")
def of_one_partition(small):
    return everything(small.coalesce(1))


@pytest.mark.parametrize("partitions", [1, 7, 64])
def test_partitions_and_order_do_not_change_a_bit(spark, small, of_one_partition, partitions):
    rows = small.orderBy("click", "item_id") if partitions == 7 else small
    with session_settings(spark, spark__sql__shuffle__partitions=min(partitions, 7)):
        assert everything(rows.repartition(partitions)) == of_one_partition
    assert len(of_one_partition["labels"]) == 12 * N_ITEMS
    assert of_one_partition["em"]["n_iterations"] == 200


# ----------------------------------------------------------------------------------------------- what can be told


def impressions(spark, rows):
    return spark.createDataFrame(rows, "query_id string, item_id string, position int, click int")


def shown(item, position, clicks, n=10):
    return [("q", item, position, int(at < clicks)) for at in range(n)]


def test_positions_without_propensity_and_above_one(spark):
    rows = [*shown("a", 1, 2), *shown("a", 2, 4), *shown("b", 3, 5), *shown("a", 4, 0)]
    found = {
        method: {
            one["position"]: (one["propensity"], one["reason"]) for one in fit(frame, method=method)["positions"]
        }
        for frame in [impressions(spark, rows)]
        for method in ("pbm", "pairs", "randomized")
    }
    assert found["pairs"] == {1: (1, None), 2: (1, "above_1"), 3: (None, "no_pairs"), 4: (None, "no_clicks")}
    assert found["randomized"] == {1: (1, None), 2: (1, "above_1"), 3: (1, "above_1"), 4: (None, "no_clicks")}
    assert found["pbm"] == {1: (1, None), 2: (1, "above_1"), 3: (None, "no_chain"), 4: (None, "no_clicks")}
    ratio = propensity_table(fitted_propensities(impressions(spark, rows), PropensitySettings(method="pairs")))
    assert [row["ratio"] for row in ratio.where("position = 2").collect()] == [2.0]


def test_a_log_without_its_first_position(spark):
    for position, clicks, reason in ((2, 5, "first_not_shown"), (1, 0, "first_not_clicked")):
        rows = [*shown("a", position, clicks), *shown("a", 3, 5)]
        for method in ("pbm", "pairs", "randomized"):
            found = fit(impressions(spark, rows), method=method)["positions"]
            assert [(one["propensity"], one["reason"]) for one in found] == [(None, reason)] * 2, method


def test_keys_may_have_the_names_of_counts(spark):
    schema = "shown string, clicked string, n string, position int, click int"
    rows = spark.createDataFrame([("q", "n", item, k, c) for _, item, k, c in shown("a", 1, 2)], schema)
    columns = ImpressionColumns(query=("shown", "clicked"), item="n")
    (one,) = fit(rows, columns=columns)["positions"]
    assert (one["n_impressions"], one["n_clicks"]) == (10, 2)
    settings = WeightSettings(columns=columns, power=1, segment_sets=(("n",),))
    assert {row["ips"] for row in propensity_estimates(rows, settings).collect()} == {2.0}
    assert [row["relevance"] for row in judged_impressions(rows, settings).collect()] == [0.2]


def test_nothing_is_a_fit_without_positions(spark):
    nothing = impressions(spark, [])
    assert [row["positions"] for row in fit_propensities(nothing).collect()] in ([], [[]])
    assert judged_impressions(nothing, WeightSettings(power=1)).collect() == []
    assert propensity_estimates(nothing, WeightSettings(power=1)).collect() == []


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


def bad_row(at, change):
    """A row that is good but for the change, of a query of its own."""
    return tuple(({"query_id": f"q{at}", "item_id": "a", "position": 1.0, "click": 1.0} | change).values())


def reasons_of(rows, settings, given=None):
    """Reason and key of each bad row, sorted."""
    found = weighted_impressions(rows, settings, given)
    checked = checked_impressions(found, settings.columns, originals=False).where("reason is not null").collect()
    return sorted((row["reason"], row["key"]) for row in checked)


def test_bad_rows(spark):
    rows = [bad_row(at, change) for at, (change, _) in enumerate(BAD)]
    frame = spark.createDataFrame([*rows, bad_row(99, {})], ROW)
    given = spark.createDataFrame(GIVEN, TABLE)
    assert reasons_of(frame, WeightSettings(), given) == sorted(
        (reason, f"query_id={row[0] or 'null'}, item_id={row[1] or 'null'}")
        for row, (_, reason) in zip(rows, BAD, strict=True)
    )
    kept = judged_impressions(frame, WeightSettings(on_invalid="reject"), given).collect()
    assert [row["query_id"] for row in kept] == ["q99"]


@pytest.mark.parametrize(("change", "reason"), [BAD[0], BAD[-2]], ids=str)
def test_a_bad_row(spark, change, reason):
    rows, given = spark.createDataFrame([bad_row(0, change)], ROW), spark.createDataFrame(GIVEN, TABLE)
    with pytest.raises(InputRefusedError, match=f"^bad row: {reason} at query_id="), readable_errors():
        judged_impressions(rows, WeightSettings(), given).collect()


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
    frame = spark.createDataFrame([(f"q{at}", "a", 1.0, one, "") for at, (one, _) in enumerate(bad)], WEIGHTED)
    settings = WeightSettings(columns=BY_PROPENSITY)
    assert reasons_of(frame, settings) == sorted(
        (reason, f"query_id=q{at}, item_id=a") for at, (_, reason) in enumerate(bad)
    )
    for made in (judged_impressions, propensity_estimates):
        with pytest.raises(InputRefusedError, match=r"^bad row: null_propensity at query_id=q0,"), readable_errors():
            made(frame.where("query_id = 'q0'"), settings).collect()
    clipped = WeightSettings(columns=BY_PROPENSITY, clip=10, on_invalid="reject")
    kept = judged_impressions(frame, clipped).collect()
    assert [(row["query_id"], row["relevance"]) for row in kept] == [("q6", 10.0)]


def test_text_of_a_propensity_is_a_number(spark):
    texts = spark.createDataFrame([("q", "a", 1.0, "0.5"), ("r", "a", 1.0, "half")],
                                  "query_id string, item_id string, click double, propensity string")  # fmt: skip
    settings = WeightSettings(columns=BY_PROPENSITY, on_invalid="reject")
    with pytest.raises(InputRefusedError, match="is string, not a number"):
        judged_impressions(texts, settings)
    texts = mark_text_table(texts)
    with pytest.raises(InputRefusedError, match="bad row: propensity_not_a_number at query_id=r"), readable_errors():
        propensity_estimates(texts, WeightSettings(columns=BY_PROPENSITY)).collect()
    kept = judged_impressions(texts, settings).collect()
    assert [row["query_id"] for row in kept] == ["q"]


def test_a_run_that_is_null_is_a_bad_row_and_one_that_is_not_there_is_named(spark):
    frame = spark.createDataFrame(FOUR[:2], WEIGHTED).withColumn("ranker", F.expr("nullif(query_id, 'q1')"))
    settings = WeightSettings(columns=BY_PROPENSITY, run="ranker")
    assert reasons_of(frame, settings) == [("null_run", "query_id=q1, item_id=a")]
    with pytest.raises(MissingColumnError, match=r"'ranker' \(run=\) is not in the impressions"):
        propensity_estimates(frame.drop("ranker"), settings)


def test_a_click_model_needs_clicks(spark):
    rows = spark.createDataFrame([("q", "a", 1, 3)], "query_id string, item_id string, position int, click int")
    for method in ("pbm", "pairs", "randomized"):
        with pytest.raises(InputRefusedError, match="bad row: click_not_0_or_1"), readable_errors():
            fit(rows, method=method)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"method": "em"}, "method"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"max_iter": 0}, "max_iter"),
        ({"on_invalid": "skip"}, "on_invalid"),
    ],
)
def test_an_option_of_a_fit(options, named):
    with pytest.raises(InvalidParameterError, match=named):
        PropensitySettings(**options)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"clip": 0.5}, "clip"),
        ({"clip": math.nan}, "clip"),
        ({"power": -1}, "power"),
        ({"power": math.inf}, "power"),
        ({"confidence": 1.0}, "confidence"),
        ({"propensity_of": "item"}, "propensity_of"),
    ],
)
def test_an_option_of_weights(options, named):
    with pytest.raises(InvalidParameterError, match=named):
        WeightSettings(**options)


def test_a_key_with_the_name_of_a_result():
    with pytest.raises(InvalidParameterError, match="segment"):
        ImpressionColumns(query=("segment",))


def test_propensities_come_from_one_place(spark):
    rows = impressions(spark, [("q", "a", 1, 1)])
    table = spark.createDataFrame([(1.0, 1.0)], TABLE)
    for settings, given in (
        (WeightSettings(), None),
        (WeightSettings(power=1), table),
        (WeightSettings(power=1, columns=BY_PROPENSITY), None),
    ):
        with pytest.raises(InvalidParameterError, match="one of a column, a table, or a power"):
            judged_impressions(rows, settings, given)
    with pytest.raises(MissingColumnError, match="'propensity'"):
        judged_impressions(rows, WeightSettings(columns=BY_PROPENSITY))
    with pytest.raises(MissingColumnError, match=r"'propensity'.*table of propensities"):
        judged_impressions(rows, WeightSettings(), table.drop("propensity"))
