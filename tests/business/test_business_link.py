"""Business link: worked values, which nights count, alarms, refusals."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from support.expectations import approx, collect_refusal
from support.nights import CLICK_COLUMNS, CLICKS, METRIC_COLUMNS, NDCG, build_click_rows, build_metric_rows, nth_night

from ndcg_spark.business import LinkSettings, business_link
from ndcg_spark.business.frames import COUNTS, link_metric
from ndcg_spark.business.tasks import link_rates
from ndcg_spark.errors import InvalidParameterError, MissingColumnError
from ndcg_spark.history.tasks.judging import EPOCH, SERIES


def link(metrics, clicks, settings=None):
    """Return rows of the worker by (run, segment, metric, rate), with series built as Spark does."""
    series, counts, has_run = {}, {}, "run" in clicks[0]
    for row in clicks:
        key = (row["segment_by"], row["segment"], *([row["run"]] if has_run else []))
        night = counts.setdefault(key, {}).setdefault(row["run_date"], dict.fromkeys(COUNTS, 0))
        for name in COUNTS:
            night[name] += row[name]
    for row in metrics:
        points = series.setdefault(tuple(row[name] for name in SERIES), [])
        points.append({"day": (row["run_date"] - EPOCH).days, "rules": None,
                    **{name: row[name] for name in ("value", "config_hash")}})  # fmt: skip
    batch = []
    for key, nights in series.items():
        known = dict(zip(SERIES, key, strict=True))
        night_counts = counts.get((known["segment_by"], known["segment"], *([known["run"]] if has_run else [])), {})
        shown = [{"day": (night - EPOCH).days, **night_count} for night, night_count in night_counts.items()]
        batch.append({**known, "nights": nights, "clicks": shown or None})
    (links,) = link_rates(iter([pa.RecordBatch.from_pylist(batch)]), settings or LinkSettings())
    rows = {(row["run"], row["segment"], row["metric"], row["rate"]): row for row in links.to_pylist()}
    assert len(rows) == links.num_rows
    return rows


def test_two_weeks_of_a_shop():
    """Values: scipy 1.17 (pearsonr, spearmanr, Welch), numpy 2.4 (changes), the definition (lag)."""
    actual = link(build_metric_rows(NDCG), build_click_rows(CLICKS))
    row = actual["", "", "ndcg", "ctr"]
    assert (row["n_nights"], row["first_night"], row["last_night"]) == (14, nth_night(0), nth_night(13))
    assert [row[f"pearson{end}"] for end in ("", "_low", "_high")] == [
        approx(-0.927374429422),
        approx(-0.977150882351),
        approx(-0.781162900986),
    ]
    assert row["spearman"] == approx(-0.752228958158)
    assert (row["n_changes"], row["change_pearson"]) == (13, approx(-0.386965537777))
    # scipy 1.17: spearmanr(diff(metric in thousandths), diff(clicks of 10,000 impressions)), in whole numbers
    assert row["change_spearman"] == approx(-0.070947755940)
    lags = {cell["lag"]: cell for cell in row["lags"]}
    assert sorted(lags) == list(range(-7, 8))
    assert (lags[1]["n"], lags[1]["pearson"]) == (13, approx(-0.808195117423))
    assert lags[0]["pearson"] == row["pearson"]
    assert (row["metric_change"], row["rate_change"]) == (approx(0.0275), approx(-0.039428571429))
    assert row["metric_change"] / row["metric_change_error"] == pytest.approx(15.198684153571, abs=1e-10)
    assert row["rate_change"] / row["rate_change_error"] == pytest.approx(-11.144505372604, abs=1e-10)
    windows = [row[name] for name in ("before_from", "before_to", "window_from", "window_to")]
    assert windows == [nth_night(0), nth_night(6), nth_night(7), nth_night(13)]
    assert (row["alarm"], row["note"]) == ("metric_up_ctr_down", None)
    assert actual["", "", "ndcg", "cvr"]["alarm"] is None


def test_rising_conversions_raise_an_alarm():
    """NDCG is constant, conversions rise by a tenth."""
    bought = [20, 21, 20, 19, 20, 20, 20, 22, 22, 23, 22, 22, 21, 22]
    flat = [0.400, 0.401, 0.399, 0.400, 0.400, 0.401, 0.399] * 2
    actual = link(build_metric_rows(flat), build_click_rows([500] * 14, bought))
    assert actual["", "", "ndcg", "cvr"]["alarm"] == "metric_flat_cvr_up"
    constant = actual["", "", "ndcg", "ctr"]
    assert (constant["alarm"], constant["pearson"], constant["rate_change"]) == (None, None, 0.0)
    strict = link(build_metric_rows(flat), build_click_rows([500] * 14, bought), LinkSettings(max_flat=0.001))
    assert strict["", "", "ndcg", "cvr"]["alarm"] is None
    noisy = link(build_metric_rows(flat), build_click_rows([500] * 14, bought), LinkSettings(noise_limit=50.0))
    assert noisy["", "", "ndcg", "cvr"]["alarm"] is None


def test_segments_runs_and_metrics_are_apart():
    german = {"segment_by": "country", "segment": "DE"}
    unknown = {"segment_by": "country", "segment": None}
    metrics = [
        *build_metric_rows(NDCG),
        *build_metric_rows(NDCG[::-1], run="b"),
        *build_metric_rows(NDCG, metric="p"),
        *build_metric_rows(NDCG, **german),
        *build_metric_rows(NDCG, **unknown),
        *build_metric_rows(NDCG, segment_by="country", segment="FR"),
    ]
    clicks = [
        *build_click_rows(CLICKS),
        *build_click_rows(CLICKS, **german),
        *build_click_rows(CLICKS[::-1], **unknown),
    ]
    actual = link(metrics, clicks)
    up, down = approx(-0.927374429422), approx(np.corrcoef(NDCG, CLICKS[::-1])[0, 1])
    assert actual["", "", "ndcg", "ctr"]["pearson"] == actual["", "", "p", "ctr"]["pearson"] == up
    assert actual["b", "", "ndcg", "ctr"]["pearson"] == down
    assert actual["", "DE", "ndcg", "ctr"]["pearson"] == up
    assert actual["", None, "ndcg", "ctr"]["pearson"] == down
    alone = actual["", "FR", "ndcg", "ctr"]
    assert (alone["n_nights"], alone["n_no_clicks"], alone["note"]) == (0, 14, "not_enough_nights")


def test_clicks_of_a_run_are_not_those_of_another():
    metrics = [*build_metric_rows(NDCG, run="a"), *build_metric_rows(NDCG, run="b")]
    actual = link(metrics, [*build_click_rows(CLICKS, run="a"), *build_click_rows(CLICKS[::-1], run="b")])
    assert actual["a", "", "ndcg", "ctr"]["pearson"] == approx(-0.927374429422)
    assert actual["b", "", "ndcg", "ctr"]["pearson"] != actual["a", "", "ndcg", "ctr"]["pearson"]


def test_nights_left_out_are_counted():
    metrics = build_metric_rows([*NDCG[:4], None, *NDCG[5:]])
    bad = link(build_metric_rows([*NDCG[:4], float("nan"), *NDCG[5:]]), build_click_rows(CLICKS))
    assert bad == link(metrics, build_click_rows(CLICKS))
    clicks = build_click_rows(CLICKS)
    clicks[1]["impressions"] = 999
    clicks[2]["clicks"] = 0
    del clicks[3]
    clicks += build_click_rows([500], run_date=nth_night(20))
    actual = link(metrics, clicks)
    counted = ("n_nights", "n_few_impressions", "n_zero", "n_no_clicks", "n_no_value", "n_no_metric")
    assert [actual["", "", "ndcg", "ctr"][name] for name in counted] == [11, 1, 0, 1, 1, 1]
    assert [actual["", "", "ndcg", "cvr"][name] for name in counted] == [10, 1, 1, 1, 1, 1]
    assert actual["", "", "ndcg", "ctr"]["note"] == "not_enough_nights"
    # Nights 0, 2, 5, ..., 13: the changes between consecutive nights are those from 5 to 13.
    assert actual["", "", "ndcg", "ctr"]["n_changes"] == 8
    nights = [0, 2, *range(5, 14)]
    expected = np.corrcoef(np.array(NDCG)[nights], np.array([500, 0, 0, *CLICKS[3:]])[nights])[0, 1]
    assert actual["", "", "ndcg", "ctr"]["pearson"] == approx(expected)
    generous = link(metrics, clicks, LinkSettings(min_impressions=0))
    assert generous["", "", "ndcg", "ctr"]["n_nights"] == 12


def test_windows_of_old_nights_raise_no_alarm():
    late = LinkSettings(as_of=nth_night(13 + 28 - 14 + 1))
    assert (
        link(build_metric_rows(NDCG), build_click_rows(CLICKS), late)["", "", "ndcg", "ctr"]["note"]
        == "not_enough_nights"
    )
    in_time = LinkSettings(as_of=nth_night(13 + 28 - 14))
    assert link(build_metric_rows(NDCG), build_click_rows(CLICKS), in_time)["", "", "ndcg", "ctr"]["note"] is None


def test_two_configurations_are_not_refused():
    """Nights of two configurations may follow the same rules; for old tables the rules are unknown."""
    metrics = [*build_metric_rows(NDCG[:3]), *build_metric_rows([0.5], run_date=nth_night(3), config_hash="c2")]
    assert {row["config_hash"] for row in link(metrics, build_click_rows(CLICKS)).values()} == {None}


# -------------------------------------------------------------------------------------------------- on Spark


def assert_spark_links_the_same(spark, metrics, clicks, columns=CLICK_COLUMNS):
    """Compare links of Spark with `link`, rows in any order; counts are added before they are divided."""
    expected = list(link(metrics, clicks).values())
    random = np.random.default_rng(7)
    halves = [
        row | {name: n // 2 + side * (n % 2) for name, n in row.items() if name in COUNTS}
        for row in clicks for side in (0, 1)
    ]  # fmt: skip
    mixed = [[rows[at] for at in random.permutation(len(rows))] for rows in (metrics, halves)]
    frames = [
        spark.createDataFrame(rows, kind).repartition(5)
        for rows, kind in zip(mixed, (METRIC_COLUMNS, columns), strict=True)
    ]
    actual = [row.asDict(recursive=True) for row in business_link(*frames).collect()]
    assert sorted(map(repr, actual)) == sorted(map(repr, expected))


def test_spark_links_the_same(spark):
    german, unknown = ({"segment_by": "country", "segment": segment} for segment in ("DE", None))
    metrics = [*build_metric_rows(NDCG), *build_metric_rows([*NDCG[:4], None, *NDCG[5:]], run="b"),
               *build_metric_rows(NDCG, metric="p", k=None), *build_metric_rows(NDCG[::-1], **german),
               *build_metric_rows(NDCG, **unknown),
               *build_metric_rows(NDCG, segment_by="country", segment="FR")]  # fmt: skip
    clicks = [
        *build_click_rows(CLICKS),
        *build_click_rows(CLICKS[1:], **german),
        *build_click_rows(CLICKS[::-1], **unknown),
    ]
    assert_spark_links_the_same(spark, metrics, clicks)
    of_runs = [*build_click_rows(CLICKS, run="b"), *build_click_rows(CLICKS[::-1], run="")]
    assert_spark_links_the_same(spark, metrics, of_runs, CLICK_COLUMNS + ", run string")


def test_nights_of_the_period_count_and_sums_exceed_an_int(spark):
    """Two rows a night of 2,000,000,000 impressions each, in int columns: rates are those of two weeks."""
    times = 200_000
    metrics = spark.createDataFrame(build_metric_rows([9.0, *NDCG, 9.0]), METRIC_COLUMNS)
    rows = build_click_rows([n * times for n in (9, *CLICKS, -9)], 4 * times, 10_000 * times)
    clicks = spark.createDataFrame(rows + rows, CLICK_COLUMNS.replace("bigint", "int"))
    settings = LinkSettings(start=nth_night(1), as_of=nth_night(14))
    actual = link_metric(metrics, clicks, settings).where("rate = 'ctr'").first()
    assert (actual["n_nights"], actual["pearson"]) == (14, approx(-0.927374429422))
    assert actual["alarm"] == "metric_up_ctr_down"


def test_bad_tables_are_refused(spark):
    metrics, clicks = build_metric_rows(NDCG), build_click_rows(CLICKS)
    twice = "ndcg@10 of overall has two rows for the night 2026-01-01; keep the rows of one data set."
    for rows, counts, named in [
        (metrics, [*clicks, build_click_rows([5])[0] | {"clicks": -1}],
         ["clicks must be a whole number of at least 0", "got -1", "run_date=2026-01-01"]),
        (metrics, [*clicks, build_click_rows([5])[0] | {"conversions": None}], ["conversions", "got null"]),
        (metrics, [*clicks, build_click_rows([5])[0] | {"run_date": None}],
         ["the clicks has a row whose run_date is not a date: null"]),
        ([*metrics, *build_metric_rows([0.5], dataset="other")], clicks, [twice]),
    ]:  # fmt: skip
        frames = spark.createDataFrame(rows, METRIC_COLUMNS), spark.createDataFrame(counts, CLICK_COLUMNS)
        said = collect_refusal(business_link(*frames))
        assert [name for name in named if name not in said] == [], said
    misspelt = spark.createDataFrame(clicks, CLICK_COLUMNS).withColumnRenamed("clicks", "click")
    with pytest.raises(MissingColumnError, match=r"'clicks'.*Did you mean 'click'"):
        business_link(spark.createDataFrame(metrics, METRIC_COLUMNS), misspelt)


# ------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (
            {"start": nth_night(1), "as_of": nth_night(0)},
            "the first night, 2026-01-02, is after the last, 2026-01-01",
        ),
        ({"min_impressions": -1}, "min_impressions"),
        ({"max_lag": 61}, "max_lag=61 must be between 0 and 60"),
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
