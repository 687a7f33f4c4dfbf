"""Reports of Spark tables; their sentences are tested in `test_sentences.py`."""

from __future__ import annotations

import re
from datetime import date, timedelta

import pytest
from pyspark.sql import functions as F
from support.reports import (
    CHANGED,
    COMPARED,
    HOSTILE,
    NIGHTS,
    SUMMARY,
    build_full_contents,
    build_metric_row,
    build_metric_rows,
    create_comparison_table,
    create_metrics_table,
    create_query_table,
)

from ndcg_spark import compare, evaluate, report
from ndcg_spark.diagnosis import changed_queries
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError, OutputRefusedError
from ndcg_spark.history import FlagSettings
from ndcg_spark.history.frames import judge_nights
from ndcg_spark.reports import ReportLimits, reading
from ndcg_spark.reports.contents import SegmentFlag
from ndcg_spark.reports.reading import Scope
from ndcg_spark.reports.sections import Flags
from ndcg_spark.reports.sentences import describe_difference, describe_quartiles, list_notices, write_headline
from ndcg_spark.reports.spark_reading import SparkFlags, SparkQueries
from ndcg_spark.reports.wording import clean_text

pytestmark = pytest.mark.usefixtures("also_without_spark")
GATES = ["ndcg@10>=0.43", "dcg@10>1"]


@pytest.fixture(scope="module")
def metrics(spark):
    return create_metrics_table(spark)


def test_an_ongoing_change_names_its_night(spark, metrics, also_without_spark):
    """Tables of flags may lack the night; flags of later nights are not read."""
    changed, later = NIGHTS[2] - timedelta(days=9), NIGHTS[2] + timedelta(days=1)
    known = [
        ("US", changed, "low", None), ("US", NIGHTS[1], "ongoing", changed), ("US", NIGHTS[2], "ongoing", changed),
        ("FR", NIGHTS[2], "ongoing", None), ("JP", NIGHTS[1], "ongoing", changed), ("DE", later, "ongoing", changed),
    ]  # fmt: skip
    flags = spark.createDataFrame(
        [
            (night, "old", "country", name, "ndcg", 10, status, -5.0, 0.1, 0.8, change_night)
            for name, night, status, change_night in known
        ],
        "night date, run string, segment_by string, segment string, metric string, k int, status string, z double, "
        "value double, median double, change_night date",
    )
    flags = report(metrics, flags=flags, limits=ReportLimits(segments=5)).contents.flags
    assert len(also_without_spark) == 1
    shown = {flag.segment: (flag.change_night, flag.before) for flag in flags.ongoing}
    assert shown == {"US": (changed, 0.8), "FR": (None, 0.8)}
    assert {key: n for key, (_, n) in flags.earlier_segments.items()} == {(changed, "old"): 1}


def test_spark_sends_the_newest_flags(spark, monkeypatch):
    """What is related to flags of earlier nights does not count."""
    monkeypatch.setattr(reading, "MAX_FLAGS", 3)  # stands in for: a table with more flags than are sent
    first, second = NIGHTS[2] - timedelta(days=9), NIGHTS[2] - timedelta(days=7)
    known = [
        (first, "", "", "low", -5.0),
        *[
            (night, "country", name, "low", z)
            for night in (first, second)
            for name, z in (("DE", -4.0), ("US", -6.0))
        ],
        *[(NIGHTS[1], "country", name, "ongoing", -5.0) for name in ("DE", "US")],
    ]
    flags = spark.createDataFrame(
        [(night, "old", by, name, "ndcg", 10, status, z) for night, by, name, status, z in known],
        "night date, run string, segment_by string, segment string, metric string, k int, status string, z double",
    )
    rows = SparkFlags(flags).read(Scope("shop", NIGHTS[2], ("old",), "ndcg", 10))
    assert [row["night"] for row in rows.nights] == [first]
    assert [(row["night"], row["n"], row["farthest"]["segment"]) for row in rows.earlier] == [(second, 2, "US")]
    assert rows.n_earlier == 4


def test_report_reads_all_tables(spark, metrics, also_without_spark):
    """Flags of segments: two of tonight, the farthest first, and two of an earlier night."""
    flags = spark.createDataFrame(
        [
            (NIGHTS[2], "new", "", "", "ndcg", 10, "low", -7.1, 4.5),
            (NIGHTS[1], "new", "", "", "ndcg", 10, "usual", -0.1, 4.5),
            (NIGHTS[2], "old", "country", "DE", "ndcg", 10, "high", 5.0, 4.5),
            (NIGHTS[2], "old", "country", "US", "ndcg", 10, "low", -9.0, 4.5),
            (NIGHTS[1], "old", "country", "DE", "ndcg", 10, "high", 9.1, 4.5),
            (NIGHTS[1], "old", "country", "US", "ndcg", 10, "low", -4.6, 4.5),
            (NIGHTS[2], "old", "country", "DE", "ap", 10, "high", 9.1, 4.5),
        ],
        "night date, run string, segment_by string, segment string, metric string, k int, status string, z double, "
        "limit double",
    )
    tables = {"per_query": create_query_table(spark), "comparison": create_comparison_table(spark), "flags": flags}
    contents = report(metrics, **tables, summary=SUMMARY, gates=GATES).contents
    assert len(also_without_spark) == 1
    expected = Flags(
        nights={(NIGHTS[2], "new"): "low, 7.1 spreads below the usual value"},
        segments=tuple(
            SegmentFlag(run="old", by="country", segment=segment, flag=f"{text} the usual value")
            for segment, text in (("US", "low, 9.0 spreads below"), ("DE", "high, 5.0 spreads above"))
        ),
        n_segments=2,
        earlier_segments={
            (NIGHTS[1], "old"): (
                SegmentFlag(
                    run="old",
                    by="country",
                    segment="DE",
                    flag="high, 9.1 spreads above the usual value",
                ),
                2,
            )
        },
        is_known=True,
        left_out=("Flags of segments on earlier nights: 2; see the pages of 29 January 2026.",),
    )
    assert ("neutral", "Nights without a result in the last 14 days: 30 January 2026.") in list_notices(contents)
    assert contents == build_full_contents(gates=GATES, flags=expected)


def test_report_reads_flags_of_flag_changes(spark):
    """39 nights alternate between .400 and .402, then .300, with an error of .001: far below."""
    nights = [NIGHTS[2] - timedelta(days=back) for back in range(40)]
    rows = [
        build_metric_row("", night, 0.3 if back == 0 else 0.4 + 0.002 * (back % 2), 0.001)
        for back, night in enumerate(nights)
    ]
    metrics = create_metrics_table(spark, rows)
    contents = report(metrics, flags=judge_nights(metrics, FlagSettings())).contents
    assert contents.results[0].flag == "low, 102.0 standard errors below the usual value"
    assert [point.flag for point in contents.trend.nights[""]][:-1] == [None] * 39


def test_a_run_that_lacked_a_night_is_compared_with_its_latest(spark):
    """Run a rises by .1 since the night before, run b since two nights before, which it has."""
    rows = [
        build_metric_row(run, night, value, 0.001, segment_by=by, segment="US" if by else "")
        for run, night, value in (
            ("a", NIGHTS[0], 0.2), ("a", NIGHTS[1], 0.3), ("a", NIGHTS[2], 0.4),
            ("b", NIGHTS[0], 0.3), ("b", NIGHTS[2], 0.4),
        )
        for by in ("", "country")
    ]  # fmt: skip
    queries = [(run, "q", 10, 0.4, 1.0, night, "shop") for run in "ab" for night in NIGHTS]
    schema = "run string, q string, k int, ndcg double, dcg double, run_date date, dataset string"
    drawn = report(create_metrics_table(spark, rows), per_query=spark.createDataFrame(queries, schema))
    lack = f"Queries that lost the most: not of b, without a result on {NIGHTS[1].day} January 2026."
    assert drawn.contents.left_out == [lack]
    since = {"a": NIGHTS[1], "b": NIGHTS[0]}
    for each in (*drawn.contents.results, *drawn.contents.segments.rows):
        change = each.change
        assert (change.kind, round(change.difference, 9), change.since) == ("up", 0.1, since[each.mean.run])
    days = {night: f"{night.day} January" for night in NIGHTS}
    gap = f"Nights without a result of b in the last 14 days: {days[NIGHTS[1]]} 2026."
    assert ("neutral", gap) in list_notices(drawn.contents)
    # Once for all queries and once for the segment; that of run a is of the night before, as usual.
    assert drawn.html.count(f"since {days[NIGHTS[0]]}</span>") == 2
    assert f"since {days[NIGHTS[1]]}</span>" not in drawn.html


@pytest.mark.parametrize("metric", ["ndcg", "ils", "novelty"])
@pytest.mark.parametrize("weekday", ["before_paired", "Monday"])
def test_changes_flagged_against_a_night_have_the_error_of_their_flags(spark, metric, weekday):
    """Of all queries and of a segment: .01 is clear within 1.96 * .002, not by two means with errors of .01."""
    series = [("", ""), ("country", "US")]
    rows = [
        build_metric_row("", night, value, 0.01, metric=metric, segment_by=by, segment=segment)
        for night, value in ((NIGHTS[1], 0.30), (NIGHTS[2], 0.31))
        for by, segment in series
    ]
    flags = [
        (NIGHTS[2], "", by, segment, metric, 10, "high", 5.0, 0.002, 0.31, 0.30, weekday) for by, segment in series
    ]
    schema = (
        "night date, run string, segment_by string, segment string, metric string, k int, status string, z double, "
        "spread double, value double, median double, weekday string"
    )
    contents = report(create_metrics_table(spark, rows), flags=spark.createDataFrame(flags, schema)).contents
    kind, error = ("up", 0.002) if weekday == "before_paired" else ("unclear", 0.01 * 2**0.5)
    for each in (*contents.results, *contents.segments.rows):
        assert (each.change.kind, each.change.half) == (kind, pytest.approx(1.959963984540054 * error))


def test_the_trend_has_runs_that_the_night_lacks(spark, also_without_spark):
    """With their flags; a run that ended long ago is not in the trend."""
    rows = [
        build_metric_row(run, night, value, 0.01) for run, value in (("new", 0.5), ("old", 0.4)) for night in NIGHTS
    ]
    rows = [row for row in rows if row != build_metric_row("old", NIGHTS[2], 0.4, 0.01)]
    rows.append(build_metric_row("retired", NIGHTS[2] - timedelta(days=60), 0.3, 0.01))
    flags = spark.createDataFrame(
        [(NIGHTS[1], "old", "", "", "ndcg", 10, "low", -7.1, 4.5)],
        "night date, run string, segment_by string, segment string, metric string, k int, status string, z double, "
        "limit double",
    )
    drawn = report(create_metrics_table(spark, rows), flags=flags)
    assert len(also_without_spark) == 1
    assert drawn.contents.runs == ("new",)
    assert drawn.contents.trend_runs == ("new", "old")
    assert [point.flag for point in drawn.contents.trend.nights["old"]] == [
        None,
        "low, 7.1 spreads below the usual value",
    ]
    assert drawn.contents.styles == {"new": 0, "old": 1}
    legend = drawn.html.split('id="trend"')[1].split("</ul>")[0]
    assert [name in legend for name in ("<bdi>new</bdi>", "<bdi>old</bdi>")] == [True, True]


def test_a_comparison_table_of_other_runs_lacks_the_night(spark, metrics):
    """The only run of the night is the baseline of the table."""
    compared = create_comparison_table(spark).where("run_date < '2026-01-31'").withColumn("run", F.lit("gone"))
    earlier = create_comparison_table(spark).withColumn("run_date", F.lit(NIGHTS[1])).withColumn("run", F.lit("gone"))
    lacks = "The comparison table has no rows of 31 January 2026; its last night is {}."
    assert report(metrics, comparison=earlier, runs=["old"]).contents.not_covered == [
        lacks.format(f"{NIGHTS[1].day} January 2026")
    ]
    tonight = earlier.withColumn("run_date", F.lit(NIGHTS[2]))
    others = "The comparison table compares other rankers than old on 31 January 2026."
    assert report(metrics, comparison=tonight, runs=["old"]).contents.not_covered == [others]
    with pytest.raises(InputRefusedError, match="the comparison table has no rows of"):
        report(metrics, comparison=compared, runs=["old"])


def test_report_treats_missing_columns_as_unknown(spark, metrics):
    lacking = ("n_rejected", "n_lost_queries", "n_unjudged_items")
    rows = create_metrics_table(spark, [build_metric_row("", NIGHTS[0], 0.5, 0.1)]).drop(*lacking)
    accounting = report(rows).contents.accounting
    assert dict(accounting.rows) == {"evaluated": 50_000, "left out by a stated rule": 10}
    assert accounting.n_unjudged_items is None
    assert "whose rows were all rejected" not in dict(accounting.queries)


def test_report_lists_losses_against_a_baseline(spark, metrics):
    contents = report(metrics, per_query=create_query_table(spark), baseline="old").contents
    (lost,) = contents.queries.losses
    assert (lost.run, lost.query, lost.before, lost.value) == ("new", "query 7 · DE", 7 / 19, 0.0)
    assert contents.queries.losses_against == "old"


def test_distributions_of_values_outside_0_to_1(spark):
    """-.5, .2, 1 and 1.5 have places 0 to 3; quartiles are at .75, 1.5 and 2.25. DCG is 0, 10, 20, 30, 40."""
    values = [-0.5, 0.2, 1.5, None, 1.0]
    rows = [("", f"q{at}", 10, value, 10.0 * at, NIGHTS[2], "shop") for at, value in enumerate(values)]
    schema = "run string, q string, k int, ndcg double, dcg double, run_date date, dataset string"
    queries, metrics = spark.createDataFrame(rows, schema), create_metrics_table(spark, build_metric_rows(runs=[""]))
    (distribution,) = report(metrics, per_query=queries).contents.queries.distributions
    assert (distribution.n_below, distribution.n_above, distribution.n_undefined, sum(distribution.counts)) == (
        1,
        1,
        1,
        2,
    )
    assert distribution.n_queries == 4
    assert distribution.quartiles == pytest.approx((0.025, 0.6, 1.125), abs=1e-15)
    (distribution,) = report(metrics, per_query=queries, metric="dcg@10").contents.queries.distributions
    assert (distribution.low, distribution.high) == (0.0, 40.0)
    assert [at for at, n in enumerate(distribution.counts) if n] == [0, 5, 10, 15, 19]


def test_quartiles_are_exact_up_to_a_limit_and_then_estimated(spark):
    """The median of .05, .11, .156 and .4 is .133; the lower middle value would be .110."""
    values = {"four": [0.4, 0.05, 0.156, 0.11, None], "five": [0.3, 0.1, 0.2, 0.0, 0.4], "none": [None]}
    rows = [(run, f"q{at}", 10, value) for run, run_values in values.items() for at, value in enumerate(run_values)]
    frame = spark.createDataFrame(rows, "run string, q string, k int, ndcg double")
    scope = reading.Scope(dataset="shop", run_date=None, runs=tuple(values), metric="ndcg", k=10)
    by_run = {
        distribution.run: distribution for distribution in SparkQueries(frame, scope).count_distributions(max_exact=4)
    }
    assert by_run["four"].quartiles == pytest.approx((0.095, 0.133, 0.217), abs=1e-15)
    assert by_run["five"].quartiles == pytest.approx((0.1, 0.2, 0.3), abs=1e-15)
    assert by_run["none"].quartiles == (None, None, None)
    assert [by_run[run].quartile_error for run in values] == [0.0, 1e-4, 0.0]
    assert describe_quartiles([by_run["four"], by_run["none"]]) == ""
    assert describe_quartiles(list(by_run.values())) == (
        " Quartiles of five are estimates: the share of queries below each is off by at most 0.01\u00a0%."
    )


PERIODS = {
    "week": ("2026-01-26", "2026-02-01", "the week from 26 January to 1 February 2026"),
    "rolling_7": ("2026-01-25", "2026-01-31", "the seven days from 25 January to 31 January 2026"),
    "month": ("2026-01-01", "2026-01-31", "January 2026"),
}


def test_report_shows_comparisons_of_the_period_of_the_night(spark, metrics):
    compared = create_comparison_table(spark).drop("run_date")
    others = [("rolling_7", "2026-01-24", "2026-01-30"), ("week", "2026-01-19", "2026-01-25")]

    def rolled(*chosen):
        ends = spark.createDataFrame(list(chosen), "period string, period_start string, period_end string")
        dates = [f"date({column}) {name}" for name, column in (("run_date", "period_end"), ("period_start",) * 2,
                                                         ("period_end",) * 2)]  # fmt: skip
        return compared.crossJoin(ends).selectExpr(*compared.columns, "period", *dates)

    for period, (start, end, name) in PERIODS.items():
        of_period = report(metrics, comparison=rolled((period, start, end), *others))
        assert len(of_period.contents.differences.rows) == len(COMPARED)
        assert of_period.contents.differences.period == name
        first = of_period.contents.differences.rows[0]
        assert f"over {name}" in describe_difference(first, of_period.contents)
        assert f"Over {name}: all its nights" in of_period.html
    several = rolled(*((period, *ends[:2]) for period, ends in PERIODS.items()))
    with pytest.raises(InputRefusedError, match=r"several periods \(month, rolling_7, week\); choose one"):
        report(metrics, comparison=several)
    with pytest.raises(InputRefusedError, match="has no rows of"):
        report(metrics, comparison=rolled(*others))


def test_report_of_an_evaluation_has_no_date(spark, tmp_path):
    rows = [("a", f"i{at}", float(-at), at % 3) for at in range(9)] + [("b", "x", 1.0, 1)]
    frame = spark.createDataFrame(rows, "query_id string, item_id string, score double, relevance int")
    result = evaluate(frame, k=[1, 3])
    of_result, of_tables = report(result), report(result.summary, per_query=result.per_query_table)
    assert of_result.contents == of_tables.contents
    (value,) = result.summary.where("metric = 'ndcg' and k = 3").select("value").first()
    assert of_result.contents.results[0].mean.value == value
    assert (of_result.contents.run_date, of_result.contents.label) == (None, "NDCG@3")
    assert set(report(result.summary).figures) == {"curve"}
    assert [row.query for row in of_result.contents.queries.lowest] == ["a", "b"]
    assert repr(of_result).splitlines() == [
        f"Report: {of_result.contents.title}",
        write_headline(of_result.contents),
        "html (the page), figures; save(path) writes the page",
    ]
    page = tmp_path / "page.html"
    page.write_text("an older page")
    assert of_result.save(page) == page
    assert page.read_text() == of_result.html + "\n"
    with pytest.raises(OutputRefusedError, match="No such file or directory"):
        of_result.save(tmp_path / "nowhere" / "page.html")


def test_report_of_comparisons_and_changed_queries_of_an_evaluation(spark, metrics):
    rows = [
        (run, query, item, score if run == "old" or query == "same" else -score, relevance)
        for run in ("old", "new")
        for query in ("turned", "same")
        for item, score, relevance in (("i", 2.0, 1.0), ("j", 1.0, 0.0))
    ]
    ranked = spark.createDataFrame(rows, "r string, query_id string, item_id string, score double, relevance double")
    result = evaluate(ranked, run="r", k=2)
    compared = compare(result, replicates=0)
    both = [report(result, comparison=table).contents.differences.rows for table in (compared, compared.summary)]
    assert both[0] == both[1] != ()
    changed = changed_queries(result, baseline="old", run="new")
    (query,) = report(metrics, changed=changed).contents.changed
    assert (query.query, query.change, query.run, query.baseline, query.k) == ("turned", "lost", "new", "old", 2)
    assert [[item.name for item in items] for items in (query.baseline_list, query.run_list)] == [
        ["i", "j"],
        ["j", "i"],
    ]


TEXTS = [
    ("query 7", "DE", "red shoes"),
    ("query 7", "DE", "shoes, red"),
    ("query 7", "US", "not this country"),
    ("query 1", "DE", None),
    (HOSTILE, "DE", HOSTILE),
]


def test_report_shows_query_texts_beside_queries_and_lists(spark, metrics):
    """The first of two texts in order is shown; a query without a row, or with a null text, has none."""
    texts = spark.createDataFrame(TEXTS, "query string, country string, words string")
    tables = {"per_query": create_query_table(spark), "query_texts": texts, "query_text_col": "words"}
    contents = report(metrics, **tables, baseline="old").contents
    assert [(row.query, row.text) for row in contents.queries.losses] == [("query 7 · DE", "red shoes")]
    shown = {row.query: row.text for row in contents.queries.lowest}
    assert shown["query 7 · DE"] == "red shoes"
    assert shown["query 1 · DE"] == shown["query 2 · DE"] == ""
    changed = [row for row in CHANGED if row["change"] == "lost"]
    by_id = texts.where("country = 'DE'").drop("country")
    report_of_lists = report(metrics, changed=changed, query_texts=by_id, query_text_col="words")
    assert [row.text for row in report_of_lists.contents.changed] == ["red shoes", clean_text(HOSTILE)]
    assert "<bdi>red shoes</bdi>" in report_of_lists.html
    for column in ("country", "words"):
        with pytest.raises(MissingColumnError, match=column):
            report(metrics, **{**tables, "query_texts": texts.drop(column)})


def test_report_states_its_limits(spark, metrics):
    few = ReportLimits(runs=1, nights=2, segments=3, queries=1, comparisons=2)
    tables = {"per_query": create_query_table(spark), "comparison": create_comparison_table(spark)}
    contents = report(metrics, **tables, runs=["new"], limits=few).contents
    shown = (contents.segments.rows, contents.trend.nights["new"], contents.queries.lowest, contents.differences.rows)
    assert [len(rows) for rows in shown] == [3, 2, 1, 2]
    assert [text.split(":")[0] for text in contents.left_out] == ["Trend", "Segments", "Differences"]
    assert "3 with the most queries of 5" in contents.left_out[1]
    best = report(metrics, limits=few).contents
    assert best.runs == ("old",)
    assert best.left_out[0] == "Runs: the 1 with the highest NDCG@10; 1 more are left out."


# ------------------------------------------------------------------------------------------------ refusals


def test_report_refuses_names_that_the_tables_do_not_have(spark, metrics, monkeypatch):
    queries, compared = create_query_table(spark), create_comparison_table(spark)
    two = metrics.unionByName(metrics.withColumn("dataset", F.lit("web")))
    lacking = {
        name: [{key: row[key] for key in row if key != name} for row in CHANGED] for name in ("baseline", "list")
    }
    for table, options, error, named in [
        (metrics, {"dataset": "web"}, InvalidParameterError, "there is no data set 'web'; there are 'shop'"),
        (metrics, {"night": date(2026, 1, 30)}, InputRefusedError, "no rows of data set 'shop' on 2026-01-30"),
        (metrics, {"runs": ["best"]}, InvalidParameterError, "there is no run 'best'"),
        (metrics, {"metric": "ndcg@7"}, InvalidParameterError,
         "ndcg@7 is not computed; computed are ndcg@1, ndcg@5, ndcg@10"),
        (metrics, {"baseline": "best"}, InvalidParameterError, "baseline 'best' is not among the runs"),
        (two, {}, InvalidParameterError, "several data sets; name one of 'shop', 'web'"),
        (metrics.drop("metric"), {}, MissingColumnError, "metric"),
        (metrics.where("k = 99"), {}, InputRefusedError, "the metric table has no rows"),
        (metrics, {"comparison": metrics}, MissingColumnError, "baseline"),
        (metrics, {"comparison": compared.where("k = 5")}, InputRefusedError,
         "comparison table has no rows of ndcg@10"),
        (metrics, {"per_query": queries.drop("ndcg")}, MissingColumnError, "ndcg"),
        (metrics, {"per_query": queries.select("k", "ndcg", "query", "run", "run_date")}, MissingColumnError,
         "SELECT run, query_id, k, ndcg, "),
        (metrics, {"per_query": queries.where("k = 5")}, InputRefusedError,
         "per-query table has no rows of ndcg@10"),
    ]:  # fmt: skip
        with pytest.raises(error, match=re.escape(named)):
            report(table, **options)
    for name, rows in lacking.items():
        with pytest.raises(MissingColumnError, match=f"column '{name}' .* is not in the table of changed queries"):
            report(metrics, changed=rows)
    monkeypatch.setattr(reading, "MAX_MEANS", 1)
    with pytest.raises(InputRefusedError, match="more than 1 means over all queries; name the runs of the report"):
        report(metrics)
