"""What a report says of literal tables: numbers of the tables, stated rules, no text that becomes markup."""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import replace
from datetime import date, timedelta

import pytest
import scipy.stats
from support.reports import (
    CHANGED,
    COMPARED,
    HOSTILE,
    METRIC_COLUMNS,
    NIGHTS,
    SEGMENTS,
    SUMMARY,
    VALUES,
    comparison_table,
    metric_row,
    metric_rows,
    metrics_table,
    query_table,
)

from ndcg_spark import report
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError, OutputRefusedError
from ndcg_spark.reports import ReportLimits, reading
from ndcg_spark.reports.contents import Change, Mean, read
from ndcg_spark.reports.queries import Queries, QueryTable
from ndcg_spark.reports.sections import Differences, Flags, Segments, Trend, gate_results
from ndcg_spark.reports.sentences import (
    attention,
    change_text,
    fallen,
    headline,
    notices,
    quartiles_note,
    t_limit,
    unjudged_text,
    way_on,
)


@pytest.fixture(scope="module")
def whole(spark):
    """A report with everything in it."""
    flags = spark.createDataFrame(
        [
            (NIGHTS[2], "new", "", "ndcg", 10, "low", -7.1, 4.5),
            (NIGHTS[1], "new", "", "ndcg", 10, "usual", -0.1, 4.5),
            (NIGHTS[1], "old", "country", "ndcg", 10, "high", 9.1, 4.5),
        ],
        "night date, run string, segment_by string, metric string, k int, status string, z double, limit double",
    )
    return report(
        metrics_table(spark),
        per_query=query_table(spark),
        comparison=comparison_table(spark),
        flags=flags,
        summary=SUMMARY,
        gates=["ndcg@10>=0.43", "dcg@10>1"],
    )


# ------------------------------------------------------------------------------------------------- contents


def test_the_newest_night_is_shown_the_highest_run_first(whole):
    contents = whole.contents
    assert (contents.dataset, contents.run_date, contents.label) == ("shop", NIGHTS[2], "NDCG@10")
    assert [(one.mean.run, one.mean.value) for one in contents.standings] == [("old", 0.4305), ("new", 0.4210)]


def test_a_change_is_called_one_only_beyond_its_error(whole):
    changes = {one.mean.run: one.change for one in whole.contents.standings}
    # the error of a difference of two nights with .002 each: 1.96 * sqrt(2) * .002 = .005544
    assert [one.half for one in changes.values()] == pytest.approx([0.0055436153] * 2)
    assert (changes["old"].kind, changes["new"].kind) == ("unclear", "down")
    assert changes["new"].difference == pytest.approx(-0.02)
    assert changes["new"].since == NIGHTS[1]


def test_the_headline_says_so_in_words(whole):
    """A missed gate comes first. Of the drop of .02 over 1,000 queries, 700 queries of DE with .02 are 70 %."""
    assert headline(whole.contents) == (
        "new: gate ndcg@10>=0.43 is not met; NDCG@10 0.4210 [0.4171, 0.4249], down 0.0200 from 29 January 2026 "
        "[\u22120.0255, \u22120.0145], most of it in country=DE, from 0.4510 to 0.4310"
    )
    assert way_on(whole.contents).startswith("See segments and queries below")
    assert "See segments and queries below" in whole.html
    assert attention(whole.contents) == [
        "Gate ndcg@10>=0.43 is not met for new: 0.4210.",
        "new is flagged tonight: low, \u22127.1 spreads from the usual value, limit 4.5.",
        "new is worse than old: \u22120.0095 [\u22120.0120, \u22120.0070].",
    ]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (
            {"value": 0.4400, "night": date(2026, 1, 30)},
            "down 0.0095 from the night before [\u22120.0150, \u22120.0040]",
        ),
        ({"value": 0.4200, "night": date(2026, 1, 24)}, "up 0.0105 from 24 January 2026 [0.0050, 0.0160]"),
        (
            {"value": 0.4300, "night": date(2026, 1, 30), "error": None},
            "no clear change from the night before (+0.0005)",
        ),
        (
            {"value": 0.4400, "night": date(2026, 1, 30), "config_hash": "other"},
            "not compared with the night before, which was computed differently",
        ),
        ({"value": None, "night": date(2026, 1, 30), "error": None}, "no earlier night to compare with"),
    ],
)
def test_changes_in_words(spark, before, expected):
    its = {"error": 0.002, **before}
    earlier = metric_row("", its.pop("night"), its.pop("value"), its.pop("error"), **its)
    rows = [metric_row("", NIGHTS[2], 0.4305, 0.002), earlier]
    found = headline(report(metrics_table(spark, rows)).contents)
    assert found.endswith(expected), found


def test_the_headline_is_the_worst_news(spark):
    """Tonight b, the best until then, falls by .416 in US, which has half of the queries and loses .832; a stays."""
    rows = []
    for night, values in ((NIGHTS[0], (0.4, 0.8)), (NIGHTS[1], (0.4, 0.384))):
        for run, value in zip("ab", values, strict=True):
            fell = 0.416 if (run, night) == ("b", NIGHTS[1]) else 0.0
            rows.append(metric_row(run, night, value, 0.002))
            for segment, by in (("US", -fell), ("DE", fell)):
                rows.append(metric_row(run, night, value + by, 0.003, segment_by="country", segment=segment,
                                       n_queries=500, weight_sum=500.0))  # fmt: skip
    table = metrics_table(spark, rows)
    drop = (
        "NDCG@10 0.3840 [0.3801, 0.3879], down 0.4160 from the night before [\u22120.4215, \u22120.4105], most of it "
        "in country=US, from 0.8000 to \u22120.0320"
    )
    found = report(table)
    assert headline(found.contents) == f"b: {drop}"
    assert f"<bdi>b: {drop}</bdi>" in found.html
    flags = [(NIGHTS[1], "a", "country", "US", "ndcg", 10, "low", -9.0, 4.5),
             (NIGHTS[1], "a", "country", "DE", "ndcg", 10, "high", 5.0, 4.5),
             (NIGHTS[0], "a", "country", "DE", "ndcg", 10, "high", 5.0, 4.5)]  # fmt: skip
    schema = "night date, run string, segment_by string, segment string, metric string, k int, status string, "
    flagged = report(table, flags=spark.createDataFrame(flags, schema + "z double, limit double")).contents
    a = "NDCG@10 0.4000 [0.3961, 0.4039], no clear change from the night before (0.0000 ± 0.0055)"
    usual = "\u22129.0 spreads from the usual value, limit 4.5"
    assert headline(flagged) == f"a: flagged in country=US, low, {usual}; {a}"
    assert attention(flagged)[0] == f"a is flagged tonight in country=US: low, {usual}."
    assert attention(flagged)[1:] == ["b: NDCG@10 in country=US fell from 0.8000 to \u22120.0320 (500 queries)."]
    high = "a is flagged tonight in country=DE: high, +5.0 spreads from the usual value, limit 4.5."
    assert notices(flagged) == [("better", high)]
    assert "Flags of segments on earlier nights: 1; 29 January 2026 is shown." in flagged.left_out
    gated = replace(found.contents, gates=report(table, gates=["b: ndcg@10>=0.39"]).contents.gates)
    assert headline(gated) == f"b: gate ndcg@10>=0.39 is not met; {drop}"
    assert headline(replace(gated, production="a")) == f"a: {a}"
    with pytest.raises(InvalidParameterError, match=r"production 'c' is not among the runs: 'a', 'b'"):
        report(table, production="c")


@pytest.fixture
def led(whole):
    """Headline of one ranker, of rows of the metric table without Spark: tonight first, then the nights before."""

    def told(*nights, apart=1, gates=(), **changed):
        rows = []
        for back, its in enumerate(nights):
            known = {"value": 0.4, "error": 0.01, **its}
            value, error = known.pop("value"), known.pop("error")
            row = metric_row("", NIGHTS[2] - timedelta(days=back * apart), value, error, **known)
            rows.append(dict(zip(METRIC_COLUMNS, row, strict=True)) | {"flagged": None, "note": None})
        trend = Trend.of_rows(rows, Flags())
        contents = replace(
            whole.contents,
            segments=Segments(),
            differences=Differences(),
            queries=Queries(),
            flags=Flags(),
            standings=(trend.standing(read(Mean, rows[0]), 0.95),),
            trend=trend,
            accounting=replace(whole.contents.accounting, rejected=()),
            gates=gate_results(gates, [("ndcg", 10)], rows[:1]),
            **changed,
        )
        return headline(contents)

    return told


STILL = "NDCG@10 0.400 [0.380, 0.420], no clear change from the night before (0.000 ± 0.028)"


def test_a_night_of_few_queries_is_told_before_its_value(led):
    """Half of those of the night before, unless the night a week before had as few."""
    few = {"n_queries": 480, "n_unjudged": 500}
    assert led(few, {}) == "Only 480 queries in the mean, 1,000 on the night before; 500 without any judgment"
    assert led({"n_queries": 501}, {}) == STILL
    week = [{}] * 6
    assert led(few, *week, {"n_queries": 470}) == STILL
    assert led(few, *week, {}).startswith("Only 480 queries")


def test_many_rejected_rows_are_told_before_the_value(led):
    """90,000 rows are read: 9,000 are a tenth. What is rejected every night is no news."""
    bad, usual = ({"n_rows": 90_000 - n, "n_left_out": 0, "n_rejected": n} for n in (9000, 4500))
    rows = "9,000 of 90,000 rows (10.0\u00a0%{}) were rejected as bad; 1,000 queries in the mean"
    assert led(bad, {}) == f"{rows.format(', usually 0.1' + chr(160) + '%')}, 1,000 on the night before"
    assert led(bad, bad, {}, {}).startswith("9,000 of 90,000 rows")
    assert led(bad, usual) == STILL
    assert led(bad, gates=["ndcg@10>0.5"]) == rows.format("")
    assert led({}, gates=["ndcg@10>0.5"]).startswith("Gate ndcg@10>0.5 is not met; NDCG@10 0.400 ")


def test_a_ranker_without_a_query_has_no_value_and_is_not_new(led):
    none = {"value": None, "error": None, "n_queries": 0}
    was = "NDCG@10 was 0.4000 over 1,000 queries on the night before"
    assert led(none, {}) == f"No query counts in the mean; {was}"
    lost = change_text(Change(kind="lost", since=NIGHTS[1]), NIGHTS[2], 4)
    assert lost == "no value to compare with 29 January 2026"
    assert led({}, none, {}).endswith("no clear change from 29 January 2026 (0.000 ± 0.028)")


def test_the_newest_night_may_be_too_old(led):
    """A night may be a day late; weekly nights a week and a day."""
    old = "The last night in the table is 31 January 2026, {} nights before {} February 2026"
    assert led({}, {}, today=date(2026, 2, 1)) == STILL
    assert led({}, {}, today=date(2026, 2, 2)) == old.format(2, 2)
    assert not led({}, {}, {}, apart=7, today=date(2026, 2, 7)).startswith("The last night")
    assert led({}, {}, {}, apart=7, today=date(2026, 2, 8)) == old.format(8, 8)


def test_a_fall_of_one_segment_of_many_is_told_if_it_is_no_chance(spark):
    """Errors of .02 make .0283 of a difference. Of 100 segments of 400 queries one is told from 3.51 of these on."""
    rows = [metric_row("", night, 0.4, 0.01) for night in NIGHTS[1:]]
    for night in NIGHTS[1:]:
        for at in range(100):
            fell = {0: 0.0985, 1: 0.105, 2: 0.2}.get(at, 0.0) if night == NIGHTS[2] else 0.0
            n = 4 if at == 2 else 400
            rows.append(metric_row("", night, 0.4 - fell, 0.02, segment_by="city", segment=f"s{at}", n_queries=n))
    found = report(metrics_table(spark, rows)).contents
    assert [row.mean.segment for row in fallen(found)] == ["s1"]
    assert headline(found).startswith(
        "NDCG@10 in city=s1 fell from 0.400 to 0.295 (400 queries); overall: NDCG@10 0.400 "
    )
    assert sum(row.change.kind == "down" for row in found.segments.rows) == 3  # each beyond its own interval


@pytest.mark.parametrize("df", [4, 9, 29, 399])
@pytest.mark.parametrize("tail", [0.025, 0.00025])
def test_limits_of_falls_are_quantiles_of_students_t(df, tail):
    exact = scipy.stats.t.isf(tail, df)
    assert t_limit(tail, df) == pytest.approx(exact, rel=0.08 if df == 4 else 0.002)


def test_only_what_was_flagged_over_all_queries_is_marked(whole):
    trend = whole.contents.trend.nights
    marked = [(run, one.run_date) for run, nights in trend.items() for one in nights if one.flag is not None]
    assert marked == [("new", NIGHTS[2])]


def test_flag_changes_writes_what_a_report_reads(spark):
    from ndcg_spark.history import FlagSettings
    from ndcg_spark.history.frames import flagged_nights

    nights = [NIGHTS[2] - timedelta(days=back) for back in range(40)]
    # 39 nights at .400 and .402 by turns, then .300, with an error of .001: far below
    rows = [
        metric_row("", night, 0.3 if back == 0 else 0.4 + 0.002 * (back % 2), 0.001)
        for back, night in enumerate(nights)
    ]
    metrics = metrics_table(spark, rows)
    found = report(metrics, flags=flagged_nights(metrics, FlagSettings())).contents
    assert found.standings[0].flag.startswith("low, \u2212")
    assert [one.flag for one in found.trend.nights[""]][:-1] == [None] * 39


def test_segments_carry_the_numbers_of_the_table(whole):
    found = {(one.mean.run, one.mean.by, one.mean.segment): one for one in whole.contents.segments.rows}
    assert len(found) == 2 * len(SEGMENTS)
    for (by, segment), (n, more) in SEGMENTS.items():
        one = found["new", by, segment]
        assert one.mean.value == VALUES["new", NIGHTS[2]][0] + more
        assert (one.mean.n_queries, one.mean.is_small) == (n, n < 30)
        assert one.change.difference == pytest.approx(-0.02)
    # the error of a difference of 700 queries: 1.96 * sqrt(2) * .3 / sqrt(700) = .0314, wider than the change
    assert found["new", "country", "DE"].change.kind == "unclear"


def test_a_night_that_is_missing_is_named_and_breaks_the_line(whole):
    from ndcg_spark.reports.figures import unbroken

    assert any("30 January 2026" in text for text in whole.contents.left_out)
    assert [len(part) for part in unbroken(whole.contents.trend.nights["old"])] == [2, 1]


def test_queries_are_counted_in_bins(whole):
    of_run = {one.run: one for one in whole.contents.queries.distributions}
    old = of_run["old"]  # 0/19, 1/19, ..., 19/19: one in each of 20 bins
    assert old.counts == (1,) * 20
    assert (old.n_lowest, old.n_highest, old.n_below, old.n_above, old.n_undefined) == (1, 1, 0, 0, 0)
    new = of_run["new"]  # query 7 fell from 7/19, in bin 7, to 0
    assert (new.counts[0], new.counts[7], new.n_queries) == (2, 0, 20)


def test_the_lowest_queries_and_those_that_lost(whole):
    lowest = [one for one in whole.contents.queries.lowest if one.run == "new"]
    assert [(one.query, one.value) for one in lowest[:3]] == [
        ("query 7 · DE", 0.0),  # nothing is relevant to query 0, which has 0, too
        ("query 1 · DE", 1 / 19),
        ("query 2 · DE", 2 / 19),
    ]
    assert len(lowest) == 10
    (lost,) = whole.contents.queries.losses
    assert (lost.run, lost.query, lost.loss) == ("new", "query 7 · DE", 7 / 19)
    assert whole.contents.queries.losses_against == "29 January 2026"


def test_losses_against_a_baseline(spark):
    found = report(metrics_table(spark), per_query=query_table(spark), baseline="old").contents
    (lost,) = found.queries.losses
    assert (lost.run, lost.query, lost.before, lost.value) == ("new", "query 7 · DE", 7 / 19, 0.0)
    assert found.queries.losses_against == "old"


def test_values_outside_of_the_range_are_counted_apart(spark):
    rows = [("", f"q{at}", 10, value, NIGHTS[2], "shop") for at, value in enumerate([-0.5, 0.2, 1.5, None, 1.0])]
    frame = spark.createDataFrame(rows, "run string, q string, k int, ndcg double, run_date date, dataset string")
    (found,) = report(metrics_table(spark, metric_rows(runs=[""])), per_query=frame).contents.queries.distributions
    assert (found.n_below, found.n_above, found.n_undefined, sum(found.counts)) == (1, 1, 1, 2)
    assert found.n_queries == 4
    # -.5, .2, 1 and 1.5 have the places 0 to 3; quartiles lie at .75, 1.5 and 2.25
    assert found.quartiles == pytest.approx((0.025, 0.6, 1.125), abs=1e-15)


def test_quartiles_are_exact_up_to_a_million_values_and_above_that_a_sketch_with_its_error(spark):
    """The median of .05, .11, .156 and .4 is .133; the lower of the middle two would be .110."""
    values = {"four": [0.4, 0.05, 0.156, 0.11, None], "five": [0.3, 0.1, 0.2, 0.0, 0.4], "none": [None]}
    rows = [(run, f"q{at}", 10, value) for run, its in values.items() for at, value in enumerate(its)]
    frame = spark.createDataFrame(rows, "run string, q string, k int, ndcg double")
    scope = reading.Scope(dataset="shop", run_date=None, runs=tuple(values), metric="ndcg", k=10)
    found = {one.run: one for one in QueryTable.of(frame, scope).distributions(most_exact=4)}
    assert found["four"].quartiles == pytest.approx((0.095, 0.133, 0.217), abs=1e-15)
    assert found["five"].quartiles == pytest.approx((0.1, 0.2, 0.3), abs=1e-15)
    assert found["none"].quartiles == (None, None, None)
    assert [found[run].quartile_error for run in values] == [0.0, 1e-4, 0.0]
    assert quartiles_note([found["four"], found["none"]]) == ""
    assert quartiles_note(list(found.values())) == (
        " Quartiles of five are estimates: the share of queries below each is off by at most 0.01\u00a0%."
    )


def test_metrics_without_an_end_are_counted_between_their_own_ends(spark):
    rows = [("", f"q{at}", 10, float(at), NIGHTS[2], "shop") for at in range(41)]
    frame = spark.createDataFrame(rows, "run string, q string, k int, dcg double, run_date date, dataset string")
    metrics = metrics_table(spark, metric_rows(runs=[""]))
    (found,) = report(metrics, per_query=frame, metric="dcg@10").contents.queries.distributions
    assert (found.low, found.high, found.counts) == (0.0, 40.0, (2,) * 19 + (3,))


def test_comparisons_tolerate_nulls(whole):
    found = whole.contents.differences.rows
    assert [(one.by, one.segment, one.difference, one.low) for one in found] == [
        (by, segment, difference, low) for by, segment, difference, low, *_ in COMPARED
    ]
    assert [one.verdict for one in found] == ["worse", "better", "unclear", ""]


def test_segments_that_are_worse_are_told_where_all_queries_are_not(spark, whole):
    """The one that lost most, with how many others; a pair that is worse over all queries has its own line."""
    compared = comparison_table(spark).where("segment_by != 'device'").drop("verdict", "difference")
    cells = [("", 0.02, "better"), ("DE", -0.01, "worse"), ("US", -0.03, "worse")]
    verdicts = spark.createDataFrame(cells, "segment string, difference double, verdict string")
    found = report(metrics_table(spark), comparison=compared.join(verdicts, "segment")).contents
    said = [one for one in attention(found) if "worse" in one]
    lost_most = "new is worse than old where country is US: \u22120.0300 [\u22120.0050, 0.0070]."
    assert said == [f"{lost_most} Other segments that are worse: 1."]
    assert [one for one in attention(whole.contents) if "worse" in one] == [
        "new is worse than old: \u22120.0095 [\u22120.0120, \u22120.0070]."
    ]


def test_comparisons_of_a_period_that_holds_the_night(spark):
    compared = comparison_table(spark).drop("run_date")
    periods = {
        "week": ("2026-01-26", "2026-02-01"),
        "rolling_7": ("2026-01-25", "2026-01-31"),
        "month": ("2026-01-01", "2026-01-31"),
    }
    others = [("rolling_7", "2026-01-24", "2026-01-30"), ("week", "2026-01-19", "2026-01-25")]

    def rolled(*chosen):
        ends = spark.createDataFrame(list(chosen), "period string, period_start string, period_end string")
        dates = [f"date({one}) {name}" for name, one in (("run_date", "period_end"), ("period_start",) * 2,
                                                         ("period_end",) * 2)]  # fmt: skip
        return compared.crossJoin(ends).selectExpr(*compared.columns, "period", *dates)

    names = {
        "week": "the week from 26 January to 1 February 2026",
        "rolling_7": "the seven days from 25 January to 31 January 2026",
        "month": "January 2026",
    }
    for period, ends in periods.items():
        found = report(metrics_table(spark), comparison=rolled((period, *ends), *others))
        assert len(found.contents.differences.rows) == len(COMPARED)
        assert found.contents.differences.period == names[period]
        assert f"over {names[period]}." in attention(found.contents)[-1]
        assert f"Over {names[period]}: all its nights" in found.html
    several = rolled(*((period, *ends) for period, ends in periods.items()))
    with pytest.raises(InputRefusedError, match=r"several periods \(month, rolling_7, week\); choose one"):
        report(metrics_table(spark), comparison=several)
    with pytest.raises(InputRefusedError, match="has no rows of"):
        report(metrics_table(spark), comparison=rolled(*others))


def test_rows_add_up(whole):
    accounting = whole.contents.accounting
    assert sum(n for _, n in accounting.rows) == accounting.n_read == 100_120
    assert accounting.rejected == (("nan_score", 60), (HOSTILE, 40))
    assert dict(accounting.queries)["in the mean"] == 2000
    assert dict(accounting.queries)["whose rows were all rejected"] == 6


def test_a_metric_table_alone_knows_how_many_rows_were_rejected(spark):
    """Those of older versions do not, and the page does not say 0."""
    rows = [metric_row("", NIGHTS[0], 0.5, 0.1)]
    accounting = report(metrics_table(spark, rows)).contents.accounting
    parts = {"evaluated": 50_000, "rejected as bad": 40, "left out by a stated rule": 10}
    assert (dict(accounting.rows), accounting.n_read) == (parts, None)
    assert dict(accounting.queries)["whose rows were all rejected"] == 3
    old = report(metrics_table(spark, rows).drop("n_rejected", "n_lost_queries")).contents.accounting
    assert dict(old.rows) == {"evaluated": 50_000, "left out by a stated rule": 10}
    assert "whose rows were all rejected" not in dict(old.queries)


def test_unjudged_items_are_counted_where_the_night_has_counted_them(spark):
    def told(rows, *, without=()):
        contents = report(metrics_table(spark, rows).drop(*without)).contents
        return unjudged_text(contents.accounting)

    rows = [metric_row(run, NIGHTS[0], 0.5, 0.1) for run in ("a", "b")]
    assert told(rows) == "2,468 items among the first 10 have no judgment."
    assert told(rows[:1], without=["n_unjudged_items"]) == ""
    one = metric_row("", NIGHTS[0], 0.5, 0.1, n_unjudged_items=1, k=None)
    assert told([one]) == "1 item in the lists has no judgment."
    assert told([metric_row("", NIGHTS[0], 0.5, 0.1, n_unjudged_items=0)]) == ""
    page = report(metrics_table(spark, rows)).html
    assert "2,468 items among the first 10 have no judgment. Rows, queries and items of all" in page


def test_the_convention_is_spelled_out(whole):
    (one,) = whole.contents.provenance
    assert ("Gain of an item", "the relevance itself") in one.words
    assert one.computed_at == "2026-02-01 03:04 UTC"


def test_a_convention_of_somebody_else_is_named_without_words(spark):
    rows = [metric_row("", NIGHTS[0], 0.5, 0.1, convention="default;gain=my.module.gain")]
    (one,) = report(metrics_table(spark, rows)).contents.provenance
    assert (one.convention, one.words) == ("default;gain=my.module.gain", ())


def test_a_summary_is_a_night_without_a_date(spark):
    from ndcg_spark import evaluate

    rows = [("a", f"i{at}", float(-at), at % 3) for at in range(9)] + [("b", "x", 1.0, 1)]
    frame = spark.createDataFrame(rows, "query_id string, item_id string, score double, relevance int")
    summary = evaluate(frame, k=[1, 3]).summary
    found = report(summary)
    (value,) = summary.where("metric = 'ndcg' and k = 3").select("value").first()
    assert found.contents.standings[0].mean.value == value
    assert (found.contents.run_date, found.contents.label) == (None, "NDCG@3")
    assert set(found.figures) == {"curve"}


def test_the_result_of_an_evaluation(spark, tmp_path):
    from ndcg_spark import compare, evaluate

    rows = [("a", f"i{at}", float(-at), at % 3) for at in range(9)] + [("b", "x", 1.0, 1)]
    frame = spark.createDataFrame(rows, "query_id string, item_id string, score double, relevance int")
    result = evaluate(frame, k=[1, 3])
    found, of_tables = report(result), report(result.summary, per_query=result.per_query_table)
    assert found.contents == of_tables.contents
    assert [row.query for row in found.contents.queries.lowest] == ["a", "b"]
    two = evaluate(frame.selectExpr("*", "-score other"), score=["score", "other"], k=3)
    compared = compare(two, replicates=0)
    both = [report(two, comparison=one).contents.differences.rows for one in (compared, compared.summary)]
    assert both[0] == both[1] != ()
    assert repr(found).splitlines() == [
        f"Report: {found.contents.title}",
        headline(found.contents),
        "html (the page), figures; save(path) writes the page",
    ]
    page = tmp_path / "page.html"
    page.write_text("an older page")
    assert found.save(page) == page
    assert page.read_text() == found.html + "\n"
    with pytest.raises(OutputRefusedError, match="No such file or directory"):
        found.save(tmp_path / "nowhere" / "page.html")


def test_limits_are_stated(spark):
    few = ReportLimits(runs=1, nights=2, segments=3, queries=1, comparisons=2)
    found = report(
        metrics_table(spark),
        per_query=query_table(spark),
        comparison=comparison_table(spark),
        runs=["new"],
        limits=few,
    ).contents
    assert [
        len(one)
        for one in (found.segments.rows, found.trend.nights["new"], found.queries.lowest, found.differences.rows)
    ] == [3, 2, 1, 2]
    assert [text.split(":")[0] for text in found.left_out] == ["Trend", "Segments", "Differences"]
    assert "3 with the most queries of 5" in found.left_out[1]
    best = report(metrics_table(spark), limits=few).contents
    assert best.runs == ("old",)
    assert best.left_out[0] == "Runs: the 1 with the highest NDCG@10; 1 more are left out."


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        ({"dataset": "web"}, InvalidParameterError, "there is no data set 'web'; there are 'shop'"),
        ({"night": date(2026, 1, 30)}, InputRefusedError, "no rows of data set 'shop' on 2026-01-30"),
        ({"runs": ["best"]}, InvalidParameterError, "there is no run 'best'"),
        ({"metric": "ndcg@7"}, InvalidParameterError, "ndcg@7 is not computed; there are ndcg@1, ndcg@5, ndcg@10"),
        ({"gates": ["rr@10>0"]}, InvalidParameterError, "rr@10 is not computed"),
        ({"gates": ["ndcg"]}, InvalidParameterError, "not of the form"),
        ({"baseline": "best"}, InvalidParameterError, "baseline 'best' is not among the runs"),
        ({"summary": {"rows": 3}}, InvalidParameterError, "no JSON of mean-ndcg"),
        ({"summary": {**SUMMARY, "run_date": "2026-01-30"}}, InvalidParameterError, "of another date: '2026-01-30'"),
        ({"limits": ReportLimits(runs=1), "runs": ["new", "old"]}, InvalidParameterError, "at most 1 runs; got 2"),
    ],
)
def test_names_that_the_tables_do_not_have(spark, options, error, named):
    with pytest.raises(error, match=re.escape(named)):
        report(metrics_table(spark), **options)


def test_tables_that_lack_what_is_needed(spark):
    metrics = metrics_table(spark)
    with pytest.raises(MissingColumnError, match="metric"):
        report(metrics.drop("metric"))
    with pytest.raises(MissingColumnError, match="baseline"):
        report(metrics, comparison=metrics)
    with pytest.raises(MissingColumnError, match="ndcg"):
        report(metrics, per_query=query_table(spark).drop("ndcg"))
    with pytest.raises(MissingColumnError, match="SELECT run, query_id, k, ndcg, "):
        report(metrics, per_query=query_table(spark).select("k", "ndcg", "query", "run", "run_date"))
    with pytest.raises(InputRefusedError, match="per-query table has no rows of ndcg@10"):
        report(metrics, per_query=query_table(spark).where("k = 5"))
    with pytest.raises(InputRefusedError, match="comparison table has no rows of ndcg@10"):
        report(metrics, comparison=comparison_table(spark).where("k = 5"))
    with pytest.raises(InputRefusedError, match="the metric table has no rows"):
        report(metrics.where("k = 99"))
    two = metrics.unionByName(
        metrics.selectExpr(*[name for name in metrics.columns if name != "dataset"], "'web' dataset")
    )
    with pytest.raises(InvalidParameterError, match="several data sets; name one of 'shop', 'web'"):
        report(two)


def test_a_night_of_too_many_means_is_refused(spark, monkeypatch):
    monkeypatch.setattr(reading, "MOST_MEANS", 1)
    with pytest.raises(InputRefusedError, match="more than 1 means over all queries; name the runs of the report"):
        report(metrics_table(spark))


@pytest.mark.parametrize("options", [{"runs": 0}, {"runs": 9}, {"segments": 5000}])
def test_limits_have_limits(options):
    with pytest.raises(InvalidParameterError, match="must lie between"):
        ReportLimits(**options)


# ------------------------------------------------------------------------------------------------- figures


def test_figures_are_there_to_go_on_with(whole):
    assert set(whole.figures) == {"curve", "trend", "differences", "distribution"}
    axes = whole.figures["trend"].axes[0]
    values = {round(value, 6) for line in axes.get_lines() for value in line.get_ydata()}
    assert {value for value, _ in VALUES.values()} <= values
    whole.figures["curve"].savefig(io.BytesIO(), format="png")


def test_intervals_end_at_the_range_of_the_metric_with_an_arrow(spark):
    """NDCG .95 and .03 with an error of .05: 1.96 * .05 = .098 reaches beyond 1 and below 0. DCG has no end."""
    nights, rows = [NIGHTS[1], NIGHTS[2]], []
    for night in nights:
        for run, value in (("high", 0.95), ("low", 0.03)):
            rows += [metric_row(run, night, value, 0.05, k=k) for k in (5, 10)]
            rows.append(metric_row(run, night, 12.0, 9.0, metric="dcg"))
    table = metrics_table(spark, rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "distutils Version classes", DeprecationWarning)  # in Spark 3.5
        found = report(table)
        figures = found.figures
    assert [one.get_text() for one in figures["trend"].axes[0].get_xticklabels()] == ["29 Jan", "31 Jan"]
    for name in ("trend", "curve"):
        axes = figures[name].axes[0]
        drawn = [y for one in axes.collections for path in one.get_paths() for y in path.vertices[:, 1]]
        assert (min(drawn), max(drawn)) == (0.0, 1.0)
        arrows = {line.get_marker(): set(line.get_ydata()) for line in axes.get_lines()}
        assert (arrows["v"], arrows["^"]) == ({0.0}, {1.0})
    assert found.html.count('class="beyond"') == 2
    assert "0.852" in found.html
    assert "1.048" in found.html
    dcg = report(table, metric="dcg@10")
    assert 'class="beyond"' not in dcg.html


def test_names_of_any_length_leave_the_headline_readable(spark):
    rows = [metric_row(run, NIGHTS[2], 0.4, 0.002, dataset="d" * 3000) for run in ("r" * 3000, "s")]
    found = report(metrics_table(spark, rows)).contents
    assert len(headline(found)) < 200
    assert len(found.title) < 100


def test_queries_that_changed_most_with_both_lists(spark):
    found = report(metrics_table(spark), changed=CHANGED).contents.changed
    assert [(one.change, one.query, one.before, one.value) for one in found] == [
        ("lost", "query 7", 0.9, 0.4),
        ("lost", HOSTILE, 0.5, 0.25),
        ("gained", "query 2", 0.0, 1.0),
    ]
    first = found[0]
    assert [(one.rank, one.name, one.relevance, one.other, one.rise) for one in first.run_list] == [
        (1, "item c", 0.0, 3, 2),
        (2, "item d", None, None, 0),
        (3, "item a", 3.0, 1, -2),
        (4, "item b", 1.0, 2, -2),
    ]
    assert (first.label, first.difference, found[2].baseline_list) == ("NDCG@10", pytest.approx(-0.5), ())
    few = report(metrics_table(spark), changed=CHANGED, limits=ReportLimits(queries=1, items=2)).contents.changed
    assert [(one.query, len(one.run_list)) for one in few] == [("query 7", 2), ("query 2", 2)]


def test_changed_queries_of_an_evaluation_are_what_a_report_reads(spark):
    from ndcg_spark import evaluate
    from ndcg_spark.diagnosis import changed_queries

    rows = [
        (run, query, item, score if run == "old" or query == "same" else -score, relevance)
        for run in ("old", "new")
        for query in ("turned", "same")
        for item, score, relevance in (("i", 2.0, 1.0), ("j", 1.0, 0.0))
    ]
    ranked = spark.createDataFrame(rows, "r string, query_id string, item_id string, score double, relevance double")
    changed = changed_queries(evaluate(ranked, run="r", k=2), baseline="old", run="new")
    (one,) = report(metrics_table(spark), changed=changed).contents.changed
    assert (one.query, one.change, one.run, one.baseline, one.k) == ("turned", "lost", "new", "old", 2)
    assert [item.name for item in one.baseline_list] == ["i", "j"]
    assert [item.name for item in one.run_list] == ["j", "i"]


@pytest.mark.parametrize("missing", ["baseline", "list"])
def test_rows_that_are_no_changed_queries(spark, missing):
    rows = [{name: value for name, value in row.items() if name != missing} for row in CHANGED]
    with pytest.raises(MissingColumnError, match=f"column '{missing}' .* is not in the table of changed queries"):
        report(metrics_table(spark), changed=rows)
