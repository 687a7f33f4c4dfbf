"""Metrics beside clicks: worked values, which nights count, alarms, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from support.closeness import approx
from support.nights import CLICK_COLUMNS, CLICKS, METRIC_COLUMNS, NDCG, click_rows, metric_rows, night
from support.refusals import refusal

from ndcg_spark.business import LinkSettings, business_link
from ndcg_spark.business.frames import linked_rates
from ndcg_spark.errors import InvalidParameterError, MissingColumnError

pytestmark = pytest.mark.usefixtures("spark")


def link(spark, metrics, clicks, settings=None):
    return linked_rates(
        spark.createDataFrame(metrics, METRIC_COLUMNS),
        spark.createDataFrame(clicks, CLICK_COLUMNS),
        settings or LinkSettings(),
    )


def linked(spark, metrics, clicks, settings=None):
    """Rows by (run, segment, metric, rate)."""
    rows = [row.asDict(recursive=True) for row in link(spark, metrics, clicks, settings).collect()]
    found = {(row["run"], row["segment"], row["metric"], row["rate"]): row for row in rows}
    assert len(found) == len(rows)
    return found


def test_two_weeks_of_a_shop(spark):
    """Values: scipy 1.17 (pearsonr, spearmanr, Welch), numpy 2.4 (changes), the definition (lag)."""
    found = linked(spark, metric_rows(NDCG), click_rows(CLICKS))
    row = found["", "", "ndcg", "ctr"]
    assert (row["n_nights"], row["first_night"], row["last_night"]) == (14, night(0), night(13))
    assert [row[f"pearson{end}"] for end in ("", "_low", "_high")] == [
        approx(-0.927374429422),
        approx(-0.977150882351),
        approx(-0.781162900986),
    ]
    assert row["spearman"] == approx(-0.752228958158)
    assert (row["n_changes"], row["change_pearson"]) == (13, approx(-0.386965537777))
    # scipy 1.17: spearmanr(diff(metric in thousandths), diff(clicks of 10,000 impressions)), in whole numbers
    assert row["change_spearman"] == approx(-0.070947755940)
    lags = {one["lag"]: one for one in row["lags"]}
    assert sorted(lags) == list(range(-7, 8))
    assert (lags[1]["n"], lags[1]["pearson"]) == (13, approx(-0.808195117423))
    assert lags[0]["pearson"] == row["pearson"]
    assert (row["metric_change"], row["rate_change"]) == (approx(0.0275), approx(-0.039428571429))
    assert row["metric_change"] / row["metric_change_error"] == pytest.approx(15.198684153571, abs=1e-10)
    assert row["rate_change"] / row["rate_change_error"] == pytest.approx(-11.144505372604, abs=1e-10)
    windows = [row[name] for name in ("before_from", "before_to", "window_from", "window_to")]
    assert windows == [night(0), night(6), night(7), night(13)]
    assert (row["alarm"], row["note"]) == ("metric_up_ctr_down", None)
    assert found["", "", "ndcg", "cvr"]["alarm"] is None


def test_the_second_alarm(spark):
    """NDCG stands still, conversions rise by a tenth."""
    bought = [20, 21, 20, 19, 20, 20, 20, 22, 22, 23, 22, 22, 21, 22]
    flat = [0.400, 0.401, 0.399, 0.400, 0.400, 0.401, 0.399] * 2
    found = linked(spark, metric_rows(flat), click_rows([500] * 14, bought))
    assert found["", "", "ndcg", "cvr"]["alarm"] == "metric_flat_cvr_up"
    constant = found["", "", "ndcg", "ctr"]
    assert (constant["alarm"], constant["pearson"], constant["rate_change"]) == (None, None, 0.0)
    strict = linked(spark, metric_rows(flat), click_rows([500] * 14, bought), LinkSettings(max_flat=0.001))
    assert strict["", "", "ndcg", "cvr"]["alarm"] is None
    noisy = linked(spark, metric_rows(flat), click_rows([500] * 14, bought), LinkSettings(noise_limit=50.0))
    assert noisy["", "", "ndcg", "cvr"]["alarm"] is None


def test_segments_runs_and_metrics_are_apart(spark):
    german = {"segment_by": "country", "segment": "DE"}
    unknown = {"segment_by": "country", "segment": None}
    metrics = [
        *metric_rows(NDCG),
        *metric_rows(NDCG[::-1], run="b"),
        *metric_rows(NDCG, metric="p"),
        *metric_rows(NDCG, **german),
        *metric_rows(NDCG, **unknown),
        *metric_rows(NDCG, segment_by="country", segment="FR"),
    ]
    clicks = [*click_rows(CLICKS), *click_rows(CLICKS, **german), *click_rows(CLICKS[::-1], **unknown)]
    found = linked(spark, metrics, clicks)
    up, down = approx(-0.927374429422), approx(np.corrcoef(NDCG, CLICKS[::-1])[0, 1])
    assert found["", "", "ndcg", "ctr"]["pearson"] == found["", "", "p", "ctr"]["pearson"] == up
    assert found["b", "", "ndcg", "ctr"]["pearson"] == down
    assert found["", "DE", "ndcg", "ctr"]["pearson"] == up
    assert found["", None, "ndcg", "ctr"]["pearson"] == down
    alone = found["", "FR", "ndcg", "ctr"]
    assert (alone["n_nights"], alone["n_no_clicks"], alone["note"]) == (0, 14, "not_enough_nights")


def test_clicks_of_a_run_are_not_those_of_another(spark):
    metrics = spark.createDataFrame([*metric_rows(NDCG, run="a"), *metric_rows(NDCG, run="b")], METRIC_COLUMNS)
    clicks = [*click_rows(CLICKS, run="a"), *click_rows(CLICKS[::-1], run="b")]
    both = spark.createDataFrame(clicks, CLICK_COLUMNS + ", run string")
    found = {(row["run"], row["rate"]): row for row in business_link(metrics, both).collect()}
    assert found["a", "ctr"]["pearson"] == approx(-0.927374429422)
    assert found["b", "ctr"]["pearson"] != found["a", "ctr"]["pearson"]


def test_counts_are_added_before_they_are_divided(spark):
    halves = [*click_rows([n - 100 for n in CLICKS], 4, 9_000), *click_rows([100] * 14, 6, 1_000)]
    whole = linked(spark, metric_rows(NDCG), click_rows(CLICKS))
    assert linked(spark, metric_rows(NDCG), halves) == whole


def test_sums_of_counts_that_an_int_does_not_hold(spark):
    """Two rows a night of 2,000,000,000 impressions each, in columns of ints: the rates are those of two weeks."""
    times = 200_000
    rows = click_rows([n * times for n in CLICKS], 4 * times, 10_000 * times)
    frame = spark.createDataFrame(rows + rows, CLICK_COLUMNS.replace("bigint", "int"))
    found = business_link(spark.createDataFrame(metric_rows(NDCG), METRIC_COLUMNS), frame)
    pearson = {row["rate"]: row["pearson"] for row in found.collect()}
    assert pearson["ctr"] == approx(-0.927374429422)


def test_nights_left_out_are_counted(spark):
    metrics = metric_rows([*NDCG[:4], None, *NDCG[5:]])
    bad = linked(spark, metric_rows([*NDCG[:4], float("nan"), *NDCG[5:]]), click_rows(CLICKS))
    assert bad == linked(spark, metrics, click_rows(CLICKS))
    clicks = click_rows(CLICKS)
    clicks[1]["impressions"] = 999
    clicks[2]["clicks"] = 0
    del clicks[3]
    clicks += click_rows([500], run_date=night(20))
    found = linked(spark, metrics, clicks)
    counted = ("n_nights", "n_few_impressions", "n_zero", "n_no_clicks", "n_no_value", "n_no_metric")
    assert [found["", "", "ndcg", "ctr"][name] for name in counted] == [11, 1, 0, 1, 1, 1]
    assert [found["", "", "ndcg", "cvr"][name] for name in counted] == [10, 1, 1, 1, 1, 1]
    assert found["", "", "ndcg", "ctr"]["note"] == "not_enough_nights"
    # Nights 0, 2, 5, ..., 13: the changes between consecutive nights are those from 5 to 13.
    assert found["", "", "ndcg", "ctr"]["n_changes"] == 8
    kept = [0, 2, *range(5, 14)]
    expected = np.corrcoef(np.array(NDCG)[kept], np.array([500, 0, 0, *CLICKS[3:]])[kept])[0, 1]
    assert found["", "", "ndcg", "ctr"]["pearson"] == approx(expected)
    generous = linked(spark, metrics, clicks, LinkSettings(min_impressions=0))
    assert generous["", "", "ndcg", "ctr"]["n_nights"] == 12


def test_nights_outside_the_period_do_not_count(spark):
    metrics, clicks = metric_rows([9.0, *NDCG, 9.0]), click_rows([9, *CLICKS, -9])
    found = linked(spark, metrics, clicks, LinkSettings(start=night(1), as_of=night(14)))["", "", "ndcg", "ctr"]
    assert (found["n_nights"], found["pearson"]) == (14, approx(-0.927374429422))
    assert found["alarm"] == "metric_up_ctr_down"


def test_windows_of_old_nights_raise_no_alarm(spark):
    late = LinkSettings(as_of=night(13 + 28 - 14 + 1))
    assert (
        linked(spark, metric_rows(NDCG), click_rows(CLICKS), late)["", "", "ndcg", "ctr"]["note"]
        == "not_enough_nights"
    )
    in_time = LinkSettings(as_of=night(13 + 28 - 14))
    assert linked(spark, metric_rows(NDCG), click_rows(CLICKS), in_time)["", "", "ndcg", "ctr"]["note"] is None


def test_rows_in_any_order_and_partitioning_give_the_same_bits(spark):
    metrics, clicks = metric_rows(NDCG), click_rows(CLICKS)
    expected = linked(spark, metrics, clicks)
    random = np.random.default_rng(7)
    for parts in (1, 5):
        mixed = [[rows[at] for at in random.permutation(len(rows))] for rows in (metrics, clicks)]
        frames = [
            spark.createDataFrame(rows, kind).repartition(parts)
            for rows, kind in zip(mixed, (METRIC_COLUMNS, CLICK_COLUMNS), strict=True)
        ]
        found = [row.asDict(recursive=True) for row in business_link(*frames).collect()]
        assert {(row["run"], row["segment"], row["metric"], row["rate"]): row for row in found} == expected


# ------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"clicks": -1}, ["clicks must be a whole number of at least 0", "got -1", "run_date=2026-01-01"]),
        ({"conversions": None}, ["conversions", "got null"]),
        ({"run_date": None}, ["the clicks has a row whose run_date is no date: null"]),
    ],
)
def test_bad_clicks_are_refused(spark, changed, named):
    said = refusal(link(spark, metric_rows(NDCG), [*click_rows(CLICKS), click_rows([5])[0] | changed]))
    assert [one for one in named if one not in said] == [], said


def test_a_night_twice_is_refused(spark):
    said = refusal(link(spark, [*metric_rows(NDCG), *metric_rows([0.5], dataset="other")], click_rows(CLICKS)))
    assert said == "ndcg@10 of overall has two rows for the night 2026-01-01; keep the rows of one data set."


def test_two_rules_are_refused_and_two_configurations_are_not(spark):
    """Nights that were configured in two ways may be by the same rules; of old tables this is not known."""
    metrics = [*metric_rows(NDCG[:3]), *metric_rows([0.5], run_date=night(3), config_hash="c2")]
    assert {row["config_hash"] for row in link(spark, metrics, click_rows(CLICKS)).collect()} == {None}
    metrics = [row | {"rules": f"ties={'worst' if row['config_hash'] == 'c2' else 'expected'}"} for row in metrics]
    columns = f"{METRIC_COLUMNS}, rules string"
    frame = spark.createDataFrame(metrics, columns)
    clicks = spark.createDataFrame(click_rows(CLICKS), CLICK_COLUMNS)
    said = refusal(business_link(frame, clicks))
    assert "ndcg@10 of overall would combine results of different rules (ties: expected and worst)" in said


def test_a_missing_column_is_named(spark):
    clicks = spark.createDataFrame(click_rows(CLICKS), CLICK_COLUMNS).withColumnRenamed("clicks", "click")
    with pytest.raises(MissingColumnError, match=r"'clicks'.*Did you mean 'click'"):
        business_link(spark.createDataFrame(metric_rows(NDCG), METRIC_COLUMNS), clicks)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"start": night(1), "as_of": night(0)}, "the first night, 2026-01-02, is after the last, 2026-01-01"),
        ({"min_impressions": -1}, "min_impressions"),
        ({"max_lag": 61}, "max_lag=61 must lie between 0 and 60"),
        ({"confidence": 1.0}, "confidence"),
        ({"window": 1}, "window must be at least 2"),
        ({"window": 20}, "window_days=28 must be at least 40"),
        ({"min_change": float("nan")}, "min_change"),
        ({"noise_limit": -1.0}, "noise_limit"),
    ],
)
def test_limits_out_of_range(options, named):
    with pytest.raises(InvalidParameterError, match=named):
        LinkSettings(**options)
