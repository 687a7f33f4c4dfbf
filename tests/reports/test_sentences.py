"""Sentences and figures of a report, from rows of the metric table, without Spark."""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import replace
from datetime import date, timedelta

import pyarrow as pa
import pytest
import scipy.stats
from support.reports import (
    CHANGED,
    HOSTILE,
    NIGHTS,
    SUMMARY,
    VALUES,
    build_contents,
    build_differences,
    build_full_contents,
    build_metric_row,
)

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.reports import ReportLimits
from ndcg_spark.reports.assembly import Report, choose_shown_runs
from ndcg_spark.reports.contents import Change, Mean, MissingSeries, QueryRow, SegmentFlag, read, split_at_gaps
from ndcg_spark.reports.index import add_night_without_result
from ndcg_spark.reports.local_reading import LocalFlags
from ndcg_spark.reports.message import _describe_share, build_message
from ndcg_spark.reports.queries import _put_losers_first, read_changed_queries
from ndcg_spark.reports.reading import Scope
from ndcg_spark.reports.sections import Differences, Flags, Missing, check_summary, choose_title
from ndcg_spark.reports.sentences import (
    describe_change,
    describe_difference,
    describe_unjudged,
    find_bad_news,
    find_named_segment,
    find_worse_segments,
    list_changes,
    list_notices,
    list_warnings,
    suggest_next_step,
    write_headline,
)
from ndcg_spark.sources.local import open_memory_table

LOW = "low, 7.1 spreads below the usual value"


@pytest.fixture(scope="module")
def whole():
    flags = Flags(nights={(NIGHTS[2], "new"): LOW})
    return build_full_contents(gates=["ndcg@10>=0.43", "dcg@10>1"], flags=flags)


# ------------------------------------------------------------------------------------------------- sentences


def test_results_are_sorted_and_changes_within_their_error_are_unclear(whole):
    """Two nights with errors of .002: 1.96 * sqrt(2) * .002 = .005544."""
    old, new = whole.results
    assert [(result.mean.run, result.mean.value, result.change.kind) for result in (old, new)] == [
        ("old", 0.4305, "unclear"),
        ("new", 0.4210, "down"),
    ]
    assert [result.change.half for result in (old, new)] == pytest.approx([0.0055436153] * 2)
    assert (new.change.difference, new.change.since) == (pytest.approx(-0.02), NIGHTS[1])
    # 700 queries: 1.96 * sqrt(2) * .3 / sqrt(700) = .0314, wider than the change
    (german,) = [row for row in whole.segments.rows if (row.mean.run, row.mean.segment) == ("new", "DE")]
    assert (german.change.kind, german.change.difference) == ("unclear", pytest.approx(-0.02))
    assert [row.mean.name for row in whole.segments.rows if row.mean.is_small] == [HOSTILE] * 2


def test_headline_and_warnings_of_a_missed_gate(whole):
    """A missed gate comes first. DE explains 70 % of the drop: .02 of 700 queries, of .02 of 1,000 queries."""
    assert write_headline(whole) == (
        "new: gate ndcg@10>=0.43 is not met; NDCG@10 fell by 0.0200 to 0.4210 since 29 January 2026: country=DE fell "
        "from 0.4510 to 0.4310"
    )
    assert suggest_next_step(whole).startswith("See segments and queries below")
    assert "See segments and queries below" in Report(whole).html
    assert list_warnings(whole) == [f"new is flagged tonight: {LOW}."]
    # A worse ranker is bad news if it is the one in production.
    assert list_warnings(replace(whole, production="new"))[1:] == [
        "new is worse than old: \u22120.0095 [\u22120.0120, \u22120.0070].",
    ]


@pytest.mark.parametrize(
    ("value", "error", "back", "other", "expected"),
    [
        (0.4400, 0.002, 1, {}, "NDCG@10 fell by 0.0095 to 0.4305 since the night before"),
        (0.4200, 0.002, 7, {}, "NDCG@10 rose by 0.0105 to 0.4305 since 24 January 2026"),
        (0.4300, None, 1, {}, "no clear change from the night before (+0.0005)"),
        (0.4400, 0.002, 1, {"config_hash": "other"},
         "not compared with the night before, which was computed differently"),
        (None, None, 1, {}, "no earlier night to compare with"),
    ],
)  # fmt: skip
def test_headline_describes_the_change(value, error, back, other, expected):
    earlier = build_metric_row("", NIGHTS[2] - timedelta(days=back), value, error, **other)
    headline = write_headline(build_contents([build_metric_row("", NIGHTS[2], 0.4305, 0.002), earlier]))
    assert headline.endswith(expected), headline


@pytest.mark.parametrize(("n", "since"), [(100, NIGHTS[0]), (101, NIGHTS[1])])
def test_a_night_with_at_most_half_of_the_queries_is_passed_over(n, since):
    """As by flag-changes: a broken delivery of 100 of 200 queries is not compared with."""
    rows = [
        build_metric_row("", night, value, 0.01, n_queries=n_queries)
        for night, value, n_queries in ((NIGHTS[0], 0.5, 200), (NIGHTS[1], 0.9, n), (NIGHTS[2], 0.5, 200))
    ]
    (result,) = build_contents(rows).results
    kind = "unclear" if since == NIGHTS[0] else "down"
    assert (result.change.since, result.change.kind, result.before.value) == (since, kind, 0.5 if n == 100 else 0.9)


@pytest.mark.parametrize(("n", "is_few"), [(600, True), (799, True), (800, False), (500, False), (1200, False)])
def test_fewer_queries_than_usual_are_told(n, is_few):
    """Below 80 % of those of the night before; at half of them it is bad news, which is told elsewhere."""
    nights = ((NIGHTS[1], 1000), (NIGHTS[2], n))
    rows = [build_metric_row("", night, 0.5, 0.001, n_queries=count) for night, count in nights]
    contents = build_contents(rows)
    text = f"{n} queries in the mean, 1,000 on 29 January 2026."
    assert (("neutral", text) in list_notices(contents)) == is_few
    assert (text in build_message(contents)["lines"]) == is_few
    assert bool(find_bad_news(contents)) == (n == 500)


@pytest.mark.parametrize(
    ("value", "n", "is_same"), [(0.5123, 1001, True), (0.5123, 999, False), (0.5124, 1001, False)]
)
def test_a_night_that_repeats_another_is_told(value, n, is_same):
    """As it is if one input is used twice: value, standard error and queries are the same for all rankers."""
    nights = ((NIGHTS[1], 0.5123, 1001), (NIGHTS[2], value, n))
    rows = [
        build_metric_row(run, night, mean, 0.01, n_queries=count)
        for run in ("a", "b")
        for night, mean, count in (nights if run == "a" else (nights[0], (NIGHTS[2], 0.5123, 1001)))
    ]
    text = "All means are exactly those of 29 January 2026: the input may be the same."
    contents = build_contents(rows)
    assert (("neutral", text) in list_notices(contents)) == is_same
    assert (text in build_message(contents)["lines"]) == is_same
    assert not find_bad_news(contents)


def test_a_cause_of_a_small_change_is_itself_clear():
    """The change of pairs is clear, and that of one segment larger by its means alone: other queries came."""
    flag = SegmentFlag(run="a", by="", segment="", flag="low", value=0.498, before=0.5, error=0.0005)
    for before, cause in ((0.51, ""), (0.7, ": country=BR fell from 0.700 to 0.500")):
        rows = [
            build_metric_row("a", night, mean, 0.01, n_queries=1000)
            for night, mean in ((NIGHTS[1], 0.5), (NIGHTS[2], 0.498))
        ]
        more = {"segment_by": "country", "segment": "BR", "n_queries": 200}
        rows += [
            build_metric_row("a", night, mean, 0.02, **more)
            for night, mean in ((NIGHTS[1], before), (NIGHTS[2], 0.5))
        ]
        contents = build_contents(rows, flags=Flags(changes={("a", "", ""): flag}))
        headline = write_headline(contents)
        assert headline == f"NDCG@10 fell by 0.002 to 0.498 since 29 January 2026{cause}"


def test_the_week_before_explains_few_queries():
    rows = [
        build_metric_row("", date(2026, 1, day), 0.5, 0.001, n_queries=n)
        for day, n in ((24, 600), (30, 1000), (31, 600))
    ]
    assert not any("in the mean" in line for _, line in list_notices(build_contents(rows)))


def test_a_flag_of_a_run_has_its_values_unless_the_headline_has_them():
    rows = [
        build_metric_row(run, night, value, 0.001)
        for run, values in (("a", (0.5, 0.4)), ("b", (0.6, 0.6)))
        for night, value in zip(NIGHTS[1:], values, strict=True)
    ]
    flag = SegmentFlag(run="a", by="", segment="", flag=LOW, value=0.4, before=0.5)
    flags = Flags(nights={(NIGHTS[2], "a"): LOW}, changes={("a", "", ""): flag})
    contents = build_contents(rows, flags=flags)
    assert "fell by 0.1000" in write_headline(contents)
    assert f"a is flagged tonight: {LOW}." in list_warnings(contents)
    elsewhere = replace(contents, production="b", problems=("no disk",))
    assert write_headline(elsewhere).startswith("NDCG@10 of a fell by 0.1000")  # the flag of another ranker is news
    elsewhere = replace(elsewhere, today=NIGHTS[2] + timedelta(days=9))
    assert write_headline(elsewhere).startswith("The last night in the table is")
    assert f"a is flagged tonight: 0.4000 instead of 0.5000 ({LOW})." in list_warnings(elsewhere)


def test_new_flags_of_other_rankers_come_before_old_news_of_production():
    rows = [
        build_metric_row(run, night, value, 0.001)
        for run, values in (("a", (0.5, 0.4)), ("b", (0.6, 0.6)))
        for night, value in zip(NIGHTS[1:], values, strict=True)
    ]
    old = SegmentFlag(run="b", by="country", segment="DE", flag="ongoing", value=0.1, before=0.5)
    new = SegmentFlag(run="a", by="", segment="", flag=LOW, value=0.4, before=0.5)
    for flags, headline in (
        (Flags(nights={(NIGHTS[2], "a"): LOW}, changes={("a", "", ""): new}, ongoing=(old,)), "NDCG@10 of a fell"),
        (Flags(ongoing=(old,)), "b: NDCG@10 in country=DE has not recovered: it is 0.1000, and was 0.5000"),
    ):
        contents = replace(build_contents(rows, flags=flags), production="b")
        assert write_headline(contents).startswith(headline), write_headline(contents)


@pytest.mark.parametrize(("night", "is_new"), [(NIGHTS[1], True), (NIGHTS[0], False)])
def test_a_ranker_that_is_missing_for_the_first_time_comes_before_old_news_of_production(night, is_new):
    rows = [build_metric_row("b", each, 0.6, 0.001) for each in NIGHTS[1:]]
    old = SegmentFlag(run="b", by="country", segment="DE", flag="ongoing", value=0.1, before=0.5)
    last = read(Mean, {"run": "a", "segment_by": "", "metric": ""})
    missing = Missing(runs=(MissingSeries(last=last, night=night),))
    contents = replace(build_contents(rows, flags=Flags(ongoing=(old,))), production="b", missing=missing)
    start = "a has no rows on 31 January 2026" if is_new else "b: NDCG@10 in country=DE has not recovered"
    assert write_headline(contents).startswith(start), write_headline(contents)


def test_rules_that_changed_are_named():
    rules = {NIGHTS[1]: "ties=worst;gain=linear", NIGHTS[2]: "ties=expected;gain=linear"}
    contents = build_contents([build_metric_row("", night, 0.43, 0.002, rules=text) for night, text in rules.items()])
    other = "computed by other rules (ties: worst and expected)"
    assert write_headline(contents).endswith(f"not compared with 29 January 2026, which was {other}")
    assert list_warnings(contents) == [
        f"The ranker was {other} before: to compare the nights, run the earlier ones again."
    ]


def test_headline_is_the_worst_news():
    """Run b falls by .416, because US, with half of the queries, falls by .832; run a does not change."""
    rows = []
    for night, values in ((NIGHTS[0], (0.4, 0.8)), (NIGHTS[1], (0.4, 0.384))):
        for run, value in zip("ab", values, strict=True):
            fell = 0.416 if (run, night) == ("b", NIGHTS[1]) else 0.0
            rows.append(build_metric_row(run, night, value, 0.002))
            for segment, by in (("US", -fell), ("DE", fell)):
                rows.append(build_metric_row(run, night, value + by, 0.003, segment_by="country", segment=segment,
                                       n_queries=500, weight_sum=500.0))  # fmt: skip
    fell = "fell by 0.4160 to 0.3840 since the night before: country=US fell from 0.8000 to \u22120.0320"
    contents = build_contents(rows)
    assert write_headline(contents) == f"NDCG@10 of b {fell}"
    assert list_warnings(contents) == list_changes(contents) == []  # nothing is said twice
    assert f"<bdi>NDCG@10 of b {fell}.</bdi>" in Report(contents).html.replace("</bdi>.", ".</bdi>")
    flags = [SegmentFlag(run="a", by="country", segment=segment, flag=flag)
             for segment, flag in (("US", LOW), ("DE", "high, +5.0 spreads"))]  # fmt: skip
    flagged = replace(contents, flags=Flags(segments=tuple(flags), n_segments=2))
    assert write_headline(flagged) == f"a: NDCG@10 in country=US is flagged ({LOW}); overall 0.4000, no clear change"
    assert list_warnings(flagged) == [
        "b: NDCG@10 in country=US fell from 0.8000 to \u22120.0320 (500 queries).",
    ]
    assert list_notices(flagged) == [("better", "a is flagged tonight in country=DE: high, +5.0 spreads.")]
    gated = build_contents(rows, gates=["b: ndcg@10>=0.39"])
    assert write_headline(gated) == f"b: gate ndcg@10>=0.39 is not met; NDCG@10 {fell}"
    # A missed gate and a flag make the night bad, whichever run has them; other changes are news of production alone.
    assert write_headline(replace(gated, production="a")) == write_headline(gated)
    named = find_named_segment(replace(gated, production="a"))
    assert (named.mean.run, named.mean.segment) == ("b", "US")
    assert write_headline(replace(flagged, production="b")) == f"NDCG@10 of b {fell}"
    unchanged = "NDCG@10 of a 0.4000 [0.3961, 0.4039], no clear change from the night before (0.0000)"
    assert write_headline(replace(contents, production="a")) == unchanged


def test_rankers_that_fall_alike_are_told_together():
    """Both fall, of three rankers one does not, and a segment that explains a fall is told of its ranker."""

    def build(**values: tuple[float, float]):
        return build_contents([
            build_metric_row(run, night, value, 0.001)
            for run, both in values.items() for night, value in zip(NIGHTS[1:], both, strict=True)
        ])  # fmt: skip

    both = build(a=(0.5, 0.4), b=(0.48, 0.39))
    moves = "a by 0.1000 to 0.4000, b by 0.0900 to 0.3900"
    assert write_headline(both) == f"NDCG@10 of both rankers fell since 29 January 2026: {moves}"
    first = "b by 0.0900 to 0.3900, a by"  # the production run, or the one with the largest loss
    assert first in write_headline(replace(both, production="b"))
    assert list_changes(both) == []
    rows = [build_metric_row("b", NIGHTS[0], 0.5, 0.001), build_metric_row("b", NIGHTS[2], 0.4, 0.001)]
    rows += [build_metric_row("a", NIGHTS[1], 0.6, 0.001), build_metric_row("a", NIGHTS[2], 0.5, 0.001)]
    apart = build_contents(rows)
    since = "a by 0.1000 to 0.5000 since 29 January 2026, b by 0.1000 to 0.4000 since 28 January 2026"
    assert write_headline(apart) == f"NDCG@10 of both rankers fell: {since}"
    three = build(a=(0.5, 0.4), b=(0.48, 0.39), c=(0.3, 0.3))
    assert write_headline(three) == "NDCG@10 of a fell by 0.1000 to 0.4000 since 29 January 2026"


def test_a_recovery_is_told_before_the_value():
    rows = [
        build_metric_row(run, night, value, 0.001) for run, value in (("a", 0.4), ("b", 0.5)) for night in NIGHTS[1:]
    ]
    back = SegmentFlag(run="a", by="country", segment="US", flag="recovered", value=0.4, before=0.1)
    contents = build_contents(rows, flags=Flags(recovered=(back,)))
    recovered = "a has recovered: country=US (0.4000 after 0.1000)"
    assert (find_bad_news(contents), write_headline(contents)) == ("", recovered)
    assert list_notices(contents) == []  # nothing is said twice
    assert write_headline(replace(contents, production="b")) == recovered
    of_both = replace(contents.flags, recovered=(back, replace(back, run="b")))
    of_b = replace(contents, flags=of_both, production="b")
    assert write_headline(of_b) == recovered.replace("a has", "b has")
    assert list_notices(of_b) == [("better", f"{recovered}.")]


def test_a_flag_counts_the_segments_that_follow_from_it():
    rows = [build_metric_row(run, night, 0.4, 0.001) for run in "ab" for night in NIGHTS[1:]]
    nights = {(NIGHTS[2], "a"): LOW, (NIGHTS[2], "b"): "low, 5.0 spreads below the usual value"}
    following = tuple(SegmentFlag(run="b", by="country", segment=name, flag=LOW) for name in ("US", "DE"))
    contents = build_contents(rows, flags=Flags(nights=nights, following=following, n_segments=2))
    assert write_headline(contents) == f"a: flagged {LOW}; NDCG@10 0.4000, no clear change"
    more = "also in country=US, country=DE"
    assert list_warnings(contents) == [f"b is flagged tonight: low, 5.0 spreads below the usual value; {more}."]


def test_segments_that_follow_from_a_flag_of_the_headline_are_counted():
    """The line of the flag is not repeated below the headline; flags for the better are counted apart."""
    rows = [build_metric_row("", night, 0.4, 0.001) for night in NIGHTS[1:]]
    following = tuple(
        SegmentFlag(by="country", segment=name, flag=flag)
        for name, flag in (("US", LOW), ("DE", LOW), ("FR", "high"))
    )
    contents = build_contents(rows, flags=Flags(nights={(NIGHTS[2], ""): LOW}, following=following, n_segments=3))
    assert list_warnings(contents) == ["The ranker is also flagged in country=US, country=DE."]
    assert list_notices(contents) == [("better", "The ranker is also flagged in country=FR.")]


def test_queries_may_change_in_the_other_direction_than_means():
    """The shared queries fell, and the means rose."""
    rows = [build_metric_row("", night, value, 0.01) for night, value in zip(NIGHTS[1:], (0.3, 0.31), strict=True)]
    fell = "low, 5.0 standard errors below the night before, query by query"
    segment = SegmentFlag(by="country", segment="US", flag=fell, value=0.31, before=0.3)
    overall = SegmentFlag(by="", segment="", flag=fell, value=0.31, before=0.3, error=0.002)
    changes = {("", flag.by, flag.segment): flag for flag in (segment, overall)}
    contents = build_contents(rows, flags=Flags(segments=(segment,), n_segments=1, changes=changes))
    assert contents.results[0].change.kind == "up"
    assert write_headline(contents).startswith(f"NDCG@10 in country=US is flagged ({fell}); overall 0.310, up 0.010")


@pytest.mark.parametrize(("error", "kind"), [(0.004, "down"), (0.006, "unclear"), (None, "unclear")])
def test_a_flagged_change_has_the_error_of_its_flag(error, kind):
    """A fall of .01 is clear within 1.96 errors of .004; nights are independent with an error of .014."""
    rows = [build_metric_row("", night, value, 0.01) for night, value in zip(NIGHTS[1:], (0.3, 0.29), strict=True)]
    flag = SegmentFlag(by="", segment="", flag=LOW, value=0.29, before=0.3, error=error)
    change = build_contents(rows, flags=Flags(changes={("", "", ""): flag})).results[0].change
    assert (change.kind, change.half) == (kind, pytest.approx(1.959963984540054 * (error or 0.01 * 2**0.5)))
    other = replace(flag, before=0.2)  # it is of another night
    assert build_contents(rows, flags=Flags(changes={("", "", ""): other})).results[0].change.kind == "unclear"


@pytest.mark.parametrize(
    ("metric", "before", "tone"),
    [
        ("ndcg", 0.1, "better"),
        ("ndcg", 0.7, ""),
        ("ils", 0.7, "better"),
        ("ils", 0.1, ""),
        ("novelty", 0.7, "neutral"),
    ],
)
def test_only_what_was_worse_recovers(metric, before, tone):
    """A value that was flagged for being better than usual is not good news when it is usual again."""
    rows = [build_metric_row(run, night, 0.4, 0.01, metric=metric) for run in "ab" for night in NIGHTS[1:]]
    first = SegmentFlag(run="b", by="", segment="", flag="recovered", value=0.4, before=before)
    flags = Flags(recovered=(first, replace(first, run="a")))
    contents = build_contents(rows, (metric, 10), flags=flags, production="a")
    assert ("a has recovered" in write_headline(contents)) == bool(tone)
    assert [kind for kind, line in list_notices(contents) if "recovered" in line] == ([tone] if tone else [])


def test_gaps_of_a_ranker_without_a_name_are_not_those_of_all():
    nights = [date(2026, 1, day) for day in (26, 27, 28, 30, 31)]
    missing = "Nights without a result in the last 14 days: 29 January 2026."
    assert ("neutral", missing) in list_notices(build_contents([build_metric_row("", n, 0.4, 0.01) for n in nights]))


def test_the_first_night_tells_a_difference_once():
    overall = replace(build_differences().rows[0], verdict="better", p_holm=0.01)
    rows = [build_metric_row(run, NIGHTS[2], value, 0.001) for run, value in (("new", 0.43), ("old", 0.42))]
    contents = build_contents(rows, differences=Differences(rows=(overall,)))
    difference = describe_difference(overall, contents).rstrip(".")
    assert write_headline(contents) == f"{difference}; no earlier night to compare with"
    assert difference not in " ".join(build_message(contents)["lines"])
    assert Report(contents).html.count(difference) == 2  # as the verdict and as the first line


@pytest.mark.parametrize("against_night", [True, False])
def test_a_flagged_segment_is_told_with_its_values(against_night):
    """The same night, or a usual value; the line below the headline names the distance only."""
    rows = [build_metric_row("", night, 0.4, 0.01) for night in NIGHTS[1:]]
    low = SegmentFlag(by="country", segment="US", flag=LOW, value=0.3, before=0.4)
    changes = {("", "country", "US"): low} if against_night else {}
    contents = build_contents(rows, flags=Flags(segments=(low,), n_segments=1, changes=changes))
    change = "fell from 0.400 to 0.300 since 29 January 2026" if against_night else "is 0.300, usually 0.400"
    assert write_headline(contents) == f"NDCG@10 in country=US {change}; overall 0.400, no clear change"
    assert list_warnings(contents) == [f"The ranker is flagged tonight in country=US: {LOW}."]


@pytest.mark.parametrize("metric", ["ndcg", "ils"])
@pytest.mark.parametrize(("others", "is_named"), [(0.0, True), (0.09, True), (0.11, False), (0.2, False)])
def test_a_segment_explains_a_loss_that_others_do_not_share(metric, others, is_named):
    """US, with weight 700 of 1,000, gets worse by 0.2; named if the others lose less than half as much."""
    sign, verb, after = (-1, "fell", "0.3000") if metric == "ndcg" else (1, "rose", "0.7000")
    rows = []
    for night, losses in ((NIGHTS[0], (0.0, 0.0)), (NIGHTS[1], (0.2, others))):
        mean = 0.5 + sign * (0.7 * losses[0] + 0.3 * losses[1])
        rows.append(build_metric_row("", night, mean, 0.002, metric=metric))
        for segment, weight, loss in zip(("US", "DE"), (700.0, 300.0), losses, strict=True):
            more = {"segment_by": "country", "segment": segment, "n_queries": 500, "weight_sum": weight}
            rows.append(build_metric_row("", night, 0.5 + sign * loss, 0.003, metric=metric, **more))
    headline = write_headline(build_contents(rows, (metric, 10)))
    assert headline.endswith(
        f"since the night before: country=US {verb} from 0.5000 to {after}" if is_named else "the night before"
    )


@pytest.mark.parametrize("metric", ["ndcg", "ils"])
@pytest.mark.parametrize("production", [None, "a", "b"])
@pytest.mark.parametrize("news", ["gate", "flag", "segment", "ongoing", "missing"])
def test_what_makes_a_night_bad_is_in_its_first_line(news, production, metric):
    """Gates, flags and ongoing changes of run b, or a missing run, whichever run is in production."""
    rows = [build_metric_row(run, night, 0.5, 0.002, metric=metric) for run in "ab" for night in NIGHTS[:2]]
    side = "low, \u22127.1 spreads" if metric == "ndcg" else "high, +7.1 spreads"
    segment = SegmentFlag(run="b", by="country", segment="US", flag=side, value=0.1, before=0.9)
    sections = {
        "gate": {"gates": [f"b: {metric}@10>=0.9" if metric == "ndcg" else f"b: {metric}@10<=0.1"]},
        "flag": {"flags": Flags(nights={(NIGHTS[1], "b"): side})},
        "segment": {"flags": Flags(segments=(segment,), n_segments=1)},
        "ongoing": {"flags": Flags(ongoing=(replace(segment, flag="ongoing"),))},
    }
    contents = replace(build_contents(rows, (metric, 10), **sections.get(news, {})), production=production)
    if news == "missing":  # of a third run, before the refusal of a step that needs it
        gone = MissingSeries(last=replace(contents.results[0].mean, run="b: c"), night=NIGHTS[0])
        contents = replace(
            contents, missing=replace(contents.missing, runs=(gone,)), problems=("compare-runs: no c",)
        )
    assert find_bad_news(contents).startswith("b: ")
    assert write_headline(contents) == find_bad_news(contents)
    assert suggest_next_step(contents)


def test_the_share_is_that_of_the_run_in_the_headline():
    """US falls in both runs; f, which the headline names, fell more. The headline has the letter e, too."""
    rows = []
    for night, falls in ((NIGHTS[0], (0.0, 0.0)), (NIGHTS[1], (0.1, 0.2))):
        for run, fall in zip("ef", falls, strict=True):
            rows.append(build_metric_row(run, night, 0.8 - 0.5 * fall, 0.002))
            more = {"segment_by": "country", "segment": "US", "n_queries": 500, "weight_sum": 500.0}
            rows.append(build_metric_row(run, night, 0.8 - fall, 0.003, **more))
    contents = build_contents(rows)
    assert write_headline(contents).startswith("NDCG@10 of f fell")
    assert find_named_segment(contents).mean.run == "f"
    assert find_named_segment(replace(contents, production="e")).mean.run == "e"


def test_the_share_of_a_lasting_change_is_that_of_the_run_in_the_headline():
    """Both runs have not recovered in the same segment, which is half of one and a tenth of the other."""
    rows = []
    for run, n in (("a", 500), ("b", 100)):
        rows.append(build_metric_row(run, NIGHTS[2], 0.4, 0.01, n_queries=1000))
        more = {"segment_by": "country", "segment": "US", "n_queries": n}
        rows.append(build_metric_row(run, NIGHTS[2], 0.1, 0.01, **more))
    flag = SegmentFlag(run="a", by="country", segment="US", flag="ongoing", value=0.1, before=0.5)
    contents = build_contents(rows, flags=Flags(ongoing=(flag, replace(flag, run="b"))))
    for run, share in (("a", "50.0"), ("b", "10.0")):
        lines = build_message(replace(contents, production=run))["lines"]
        assert f"country=US has {share}\u00a0% of the queries of {run}." in lines


@pytest.mark.parametrize("sign", [1, -1])
def test_the_run_with_the_largest_loss_of_a_query_comes_first(sign):
    """The losses of a run keep their order; if smaller is better, a loss is negative."""
    rows = [QueryRow(run=run, query=run + str(loss), value=0.0, before=sign * loss) for run, loss in
            (("a", 0.2), ("a", 0.1), ("b", 0.9), ("b", 0.3))]  # fmt: skip
    assert [row.query for row in _put_losers_first(rows)] == ["b0.9", "b0.3", "a0.2", "a0.1"]


def test_notices_name_recovered_series(whole):
    back = tuple(
        SegmentFlag(run="new", by=by, segment=segment, flag="recovered", value=value, before=before)
        for by, segment, value, before in (("", "", None, None), ("country", "FR", 0.8243, 0.0312))
    )
    contents = replace(whole, flags=Flags(recovered=back))
    assert ("better", "new has recovered: overall, country=FR (0.8243 after 0.0312).") in list_notices(contents)


def headline_of_nights(*nights, apart=1, **options):
    """Headline of one ranker; `nights` change its row of tonight, then its rows of the nights before."""
    rows = [
        build_metric_row("", NIGHTS[2] - timedelta(days=back * apart), **{"value": 0.4, "error": 0.01, **changed})
        for back, changed in enumerate(nights)
    ]
    return write_headline(build_contents(rows, **options))


STILL = "NDCG@10 0.400 [0.380, 0.420], no clear change from the night before (0.000)"


def test_headline_reports_few_queries_before_the_value():
    """At most half of the queries of the night before, unless the night a week before had as few."""
    few = {"n_queries": 480, "n_unjudged": 500}
    assert (
        headline_of_nights(few, {})
        == "Only 480 queries in the mean, 1,000 on the night before; 500 without any judgment"
    )
    assert headline_of_nights({"n_queries": 501}, {}) == STILL
    week = [{}] * 6
    assert headline_of_nights(few, *week, {"n_queries": 470}) == STILL
    assert headline_of_nights(few, *week, {}).startswith("Only 480 queries")


def test_headline_reports_many_rejected_rows_before_the_value():
    """9,000 of 90,000 rows are a tenth. A share that is usual is not news."""
    bad, usual = ({"n_rows": 90_000 - n, "n_left_out": 0, "n_rejected": n} for n in (9000, 4500))
    rows = "9,000 of 90,000 rows (10.0\u00a0%{}) were rejected as bad; 1,000 queries in the mean"
    assert (
        headline_of_nights(bad, {}) == f"{rows.format(', usually 0.1' + chr(160) + '%')}, 1,000 on the night before"
    )
    assert headline_of_nights(bad, bad, {}, {}).startswith("9,000 of 90,000 rows")
    assert headline_of_nights(bad, usual) == STILL
    assert headline_of_nights(bad, gates=["ndcg@10>0.5"]) == rows.format("")
    assert headline_of_nights({}, gates=["ndcg@10>0.5"]).startswith("Gate ndcg@10>0.5 is not met; NDCG@10 0.400, ")


@pytest.mark.parametrize(("n_before", "told"), [(0, True), (40, True), (41, False), (90, False)])
def test_notices_count_rejected_rows_if_they_are_more_than_usual(n_before, told):
    """Fewer than a hundredth are no bad news, but they are named if the usual share is less than half."""
    columns = {"n_rows": 10_000, "n_left_out": 0}
    rows = [build_metric_row(run, NIGHTS[1], 0.4, 0.01, **columns, n_rejected=n_before) for run in "ab"]
    rows += [build_metric_row(run, NIGHTS[2], 0.4, 0.01, **columns, n_rejected=81) for run in "ab"]
    text = "162 of 20,162 rows of a, b were rejected as bad."
    assert (("neutral", text) in list_notices(build_contents(rows))) is told


@pytest.mark.parametrize(
    ("fall", "rules", "told"),
    [(0.0066, ("a", "a"), True), (0.0065, ("a", "a"), False), (0.02, ("a", "b"), False), (0.02, (None, None), False)],
)
def test_notices_name_a_fall_since_a_week_before(fall, rules, told):
    """Errors of .0014 make one of .00198 for the difference; 3.2905 times that is .00651."""
    week_ago, night_before = (NIGHTS[2] - timedelta(days=days) for days in (7, 1))
    rows = []
    for run, change in (("a", -fall), ("b", fall)):
        for night, part, rule in ((week_ago, 0.0, 0), (night_before, 0.9, 1), (NIGHTS[2], 1.0, 1)):
            rows.append(build_metric_row(run, night, 0.4 + part * change, 0.0014, rules=rules[rule]))
    contents = build_contents(rows)
    text = f"NDCG@10 fell within a week, since 24 January 2026: a from 0.4000 to {0.4 - fall:.4f}."
    assert [text] * told == [line for _, line in list_notices(contents) if "within a week" in line]


def test_a_week_before_that_lost_queries_says_nothing_of_a_fall():
    for n_before, n, told in ((1000, 1000, True), (500, 1000, False), (1000, 500, False)):
        nights = ((7, 0.5, n_before), (1, 0.4, 1000), (0, 0.4, n))
        rows = [build_metric_row("", NIGHTS[2] - timedelta(days=back), value, 0.002, n_queries=n_queries, rules="a")
                for back, value, n_queries in nights]  # fmt: skip
        assert any("within a week" in line for _, line in list_notices(build_contents(rows))) is told


def test_nights_of_other_rules_are_not_what_a_night_is_compared_with():
    """Nor do they say that the night before lost queries."""
    nights = zip(NIGHTS, (1000, 450, 560), ("x=1", "x=2", "x=2"), strict=True)
    rows = [build_metric_row("", night, 0.4, 0.002, n_queries=n, rules=rules) for night, n, rules in nights]
    contents = build_contents(rows)
    (result,) = contents.results
    assert (result.change.since, result.change.kind, result.lost_from) == (NIGHTS[1], "unclear", None)
    assert find_bad_news(contents) == ""


def test_a_night_that_cannot_be_compared_is_bad():
    """What became worse since the night before is unknown."""
    rows = [build_metric_row("", night, 0.4, 0.002, config_hash=f"c{night.day}") for night in NIGHTS[1:]]
    text = "NDCG@10 0.4000 [0.3961, 0.4039], not compared with 29 January 2026, which was computed differently"
    assert find_bad_news(build_contents(rows)) == text
    assert find_bad_news(build_contents([row for row in rows if row[-2] == NIGHTS[2]])) == ""


def test_every_run_that_misses_a_gate_is_named():
    rows = [build_metric_row(run, NIGHTS[2], value, 0.01) for run, value in (("a", 0.4), ("b", 0.3), ("c", 0.5))]
    contents = build_contents(rows, gates=["ndcg@10>=0.45"])
    assert write_headline(contents).startswith("b: gate ndcg@10>=0.45 is not met")
    assert list_warnings(contents) == ["Gate ndcg@10>=0.45 is not met for a: 0.400."]


def test_headline_of_a_run_without_queries():
    none = {"value": None, "error": None, "n_queries": 0}
    was = "NDCG@10 was 0.400 over 1,000 queries on the night before"
    assert headline_of_nights(none, {}) == f"No query counts in the mean; {was}"
    lost = describe_change(Change(kind="lost", since=NIGHTS[1]), NIGHTS[2], 4)
    assert lost == "no value to compare with 29 January 2026"
    assert headline_of_nights({}, none, {}).endswith("no clear change from 29 January 2026 (0.000)")


def test_headline_reports_a_newest_night_that_is_too_old():
    """Daily nights may be one day late, weekly nights eight days."""
    old = "The last night in the table is 31 January 2026, {} nights before {} February 2026"
    assert headline_of_nights({}, {}, today=date(2026, 2, 1)) == STILL
    assert headline_of_nights({}, {}, today=date(2026, 2, 2)) == old.format(2, 2)
    assert not headline_of_nights({}, {}, {}, apart=7, today=date(2026, 2, 7)).startswith("The last night")
    assert headline_of_nights({}, {}, {}, apart=7, today=date(2026, 2, 8)) == old.format(8, 8)


def test_find_worse_segments_corrects_for_the_number_of_segments():
    """Errors of .02 give differences an error of .0283. For 100 segments of 400 queries the limit is 3.51 errors."""
    rows = [build_metric_row("", night, 0.4, 0.01) for night in NIGHTS[1:]]
    for night in NIGHTS[1:]:
        for at in range(100):
            fell = {0: 0.0985, 1: 0.105, 2: 0.2}.get(at, 0.0) if night == NIGHTS[2] else 0.0
            n = 4 if at == 2 else 400
            rows.append(
                build_metric_row("", night, 0.4 - fell, 0.02, segment_by="city", segment=f"s{at}", n_queries=n)
            )
    contents = build_contents(rows)
    assert [row.mean.segment for row in find_worse_segments(contents)] == ["s1"]
    fell = "NDCG@10 in city=s1 fell from 0.400 to 0.295 since 29 January 2026 (400 queries)"
    assert write_headline(contents) == f"{fell}; overall 0.400, no clear change"
    assert sum(row.change.kind == "down" for row in contents.segments.rows) == 3  # each beyond its own interval


@pytest.mark.parametrize("part", [0.99, 1.01])
def test_a_segment_of_five_queries_is_news_beyond_the_limit_of_student(part):
    """Two segments, 95 %, 4 degrees of freedom: the limit is t(0.9875) times the error of both nights, from SciPy."""
    limit = scipy.stats.t.isf(0.0125, 4) * 0.02 * 2**0.5
    rows = [
        build_metric_row("", night, value, 0.02, segment_by=by, segment=name, n_queries=n)
        for night, value in ((NIGHTS[1], 0.4), (NIGHTS[2], 0.4 - part * limit))
        for by, name, n in (("", None, 400), ("city", "small", 5))
    ]
    rows += [build_metric_row("", night, 0.4, 0.02, segment_by="city", segment="same") for night in NIGHTS[1:3]]
    worse = [row.mean.segment for row in find_worse_segments(build_contents(rows))]
    assert worse == (["small"] if part > 1 else [])


def test_warnings_name_worse_segments_unless_the_pair_is_worse_overall(whole):
    """The segment with the largest loss, and a count of the others."""
    overall, german, american, _ = build_differences().rows
    rows = [
        replace(row, difference=difference, verdict=verdict)
        for row, difference, verdict in (
            (overall, 0.02, "better"), (german, -0.01, "worse"), (american, -0.03, "worse"),
        )
    ]  # fmt: skip
    worse = [
        text for text in list_warnings(replace(whole, differences=Differences(rows=tuple(rows)))) if "worse" in text
    ]
    lost_most = "new is worse than old where country is US: \u22120.0300 [\u22120.0050, 0.0070]."
    assert worse == [f"{lost_most} Other segments that are worse: 1."]


@pytest.mark.parametrize(
    ("changed", "n_lost", "expected"),
    [
        ({}, 0, ""),
        ({"n_only_run": 18}, 0, "; old lacks 18 queries of new, counted as 0"),
        ({"n_only_run": 18, "unpaired": "drop"}, 0, "; old lacks 18 queries of new, left out"),
        ({"n_only_run": 18, "metric": "novelty"}, 0, "; old lacks 18 queries of new, left out"),
        (
            {"n_only_baseline": 1, "n_only_run": 2},
            0,
            "; new lacks 1 query of old and old lacks 2 queries of new, counted as 0",
        ),
        (
            {"n_only_run": 18},
            18,
            "; old lacks 18 queries of new (its mean leaves out 18 with rejected rows only), counted as 0",
        ),
        ({"n_only_baseline": 18}, 18, "; new lacks 18 queries of old, counted as 0"),
    ],
)
def test_describe_difference_counts_queries_that_one_run_lacks(whole, changed, n_lost, expected):
    """The mean leaves out queries whose rows were all rejected; a comparison counts them as 0, by `unpaired`."""
    results = [
        replace(result, mean=replace(result.mean, n_lost_queries=n_lost if result.mean.run == "old" else 0))
        for result in whole.results
    ]
    row = replace(whole.differences.rows[0], **{"unpaired": "zero", **changed})
    assert (row.run, row.baseline) == ("new", "old")
    text = describe_difference(row, replace(whole, results=tuple(results)))
    assert text == describe_difference(whole.differences.rows[0], whole).removesuffix(".") + expected + "."


@pytest.mark.parametrize("metric", ["ndcg", "ils"])
@pytest.mark.parametrize("in_trouble", ["", "old", "new", "both"])
def test_a_run_is_better_than_one_that_is_flagged(in_trouble, metric):
    """Only the baseline: then the difference says nothing good of the run. Segments are not told so."""
    flags = dict.fromkeys({"": (), "both": ("old", "new")}.get(in_trouble, (in_trouble,)))
    worse = "low, far" if metric == "ndcg" else "high, far"
    rows = [build_metric_row(run, NIGHTS[0], 0.4, 0.01, metric=metric) for run in ("old", "new")]
    overall = replace(build_differences().rows[0], verdict="better", metric=metric)
    segment = replace(overall, by="country", segment="US")
    flag = SegmentFlag(run="", by="country", segment="US", flag=worse)
    tonight = Flags(segments=tuple(replace(flag, run=run) for run in flags))
    of_runs = Flags(nights={(NIGHTS[0], run): worse for run in flags})
    lasting = Flags(ongoing=tuple(replace(flag, run=run) for run in flags))
    for of_night, state in ((tonight, "is flagged"), (of_runs, "is flagged"), (lasting, "has not recovered")):
        contents = build_contents(rows, (metric, 10), flags=of_night)
        text = describe_difference(overall, contents)
        assert (f", while old {state}." in text) == (in_trouble == "old"), text
        assert ("while" in text) == (in_trouble == "old"), text
        assert "while" not in describe_difference(segment, contents)


def test_accounting_adds_up(whole):
    accounting = whole.accounting
    assert sum(n for _, n in accounting.rows) == accounting.n_read == 100_120
    assert accounting.rejected == (("nan_score", 60), (HOSTILE, 40))
    assert dict(accounting.queries)["in the mean"] == 2000
    assert dict(accounting.queries)["whose rows were all rejected"] == 6


def test_accounting_of_a_metric_table_without_the_json():
    """Tables of older versions lack the counts; the page then does not show 0."""
    accounting = build_contents([build_metric_row("", NIGHTS[0], 0.5, 0.1)]).accounting
    parts = {"evaluated": 50_000, "rejected as bad": 40, "left out by a stated rule": 10}
    assert (dict(accounting.rows), accounting.n_read) == (parts, None)
    assert dict(accounting.queries)["whose rows were all rejected"] == 3
    old = build_contents([build_metric_row("", NIGHTS[0], 0.5, 0.1, n_rejected=None, n_lost_queries=None)]).accounting
    assert dict(old.rows) == {"evaluated": 50_000, "left out by a stated rule": 10}
    assert "whose rows were all rejected" not in dict(old.queries)


@pytest.mark.parametrize(
    ("runs", "changed", "expected"),
    [
        ("ab", {}, "2,468 items among the first 10 have no judgment."),
        ("a", {"n_unjudged_items": None}, ""),
        ("a", {"n_unjudged_items": 0}, ""),
        ("a", {"n_unjudged_items": 1, "k": None}, "1 item in the lists has no judgment."),
    ],
)
def test_describe_unjudged(runs, changed, expected):
    rows = [build_metric_row(run, NIGHTS[0], 0.5, 0.1, **changed) for run in runs]
    contents = build_contents(rows, chosen=("ndcg", changed.get("k", 10)))
    assert describe_unjudged(contents.accounting) == expected
    if runs == "ab":
        assert f"{expected} Rows, queries and items are summed" in Report(contents).html


def test_provenance_describes_conventions_without_functions_of_users(whole):
    (provenance,) = whole.provenance
    assert ("Gain of an item", "the relevance itself") in provenance.words
    (provenance,) = build_contents(
        [build_metric_row("", NIGHTS[0], 0.5, 0.1, convention="default;gain=my.module.gain")]
    ).provenance
    assert (provenance.convention, provenance.words) == ("default;gain=my.module.gain", ())


def test_long_names_are_shortened_in_headline_and_title():
    rows = [build_metric_row(run, NIGHTS[2], 0.4, 0.002) for run in ("r" * 3000, "s")]
    assert len(write_headline(build_contents(rows))) < 200
    assert len(choose_title(None, "d" * 3000, ["r" * 3000, "s"])) < 100
    assert len(choose_title(None, "d" * 3000, ["r" * 3000])) < 150


def test_read_changed_queries():
    def changed(**limits):
        scope = Scope("shop", NIGHTS[2], ("old", "new"), "ndcg", 10, ReportLimits(**limits))
        return read_changed_queries(CHANGED, scope)

    queries = changed()
    assert [(query.change, query.query, query.before, query.value) for query in queries] == [
        ("lost", "query 7", 0.9, 0.4),
        ("lost", HOSTILE, 0.5, 0.25),
        ("gained", "query 2", 0.0, 1.0),
    ]
    first = queries[0]
    assert [(item.rank, item.name, item.relevance, item.other_rank, item.rise) for item in first.run_list] == [
        (1, "item c", 0.0, 3, 2),
        (2, "item d", None, None, 0),
        (3, "item a", 3.0, 1, -2),
        (4, "item b", 1.0, 2, -2),
    ]
    assert (first.label, first.difference, queries[2].baseline_list) == ("NDCG@10", pytest.approx(-0.5), ())
    assert [(query.query, len(query.run_list)) for query in changed(queries=1, items=2)] == [
        ("query 7", 2),
        ("query 2", 2),
    ]


# ------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("options", [{"runs": 0}, {"runs": 9}, {"segments": 5000}])
def test_report_limits_must_be_in_range(options):
    with pytest.raises(InvalidParameterError, match="must be between"):
        ReportLimits(**options)


@pytest.mark.parametrize(("gate", "named"), [("rr@10>0", "rr@10 is not computed"), ("ndcg", "must look like")])
def test_gates_on_other_metrics_are_refused(gate, named):
    with pytest.raises(InvalidParameterError, match=named):
        build_contents(gates=[gate])


@pytest.mark.parametrize(
    ("summary", "named"),
    [
        ({"rows": 3}, "not a JSON file of mean-ndcg"),
        ({**SUMMARY, "run_date": "2026-01-30"}, "of another date: '2026-01-30'"),
        ({**SUMMARY, "dataset": "web"}, "of another data set: 'web'"),
        ({**SUMMARY, "config_hash": "f"}, "of another config_hash: 'f'"),
    ],
)
def test_check_summary_refuses_other_nights(summary, named):
    with pytest.raises(InvalidParameterError, match=named):
        check_summary(summary, "shop", NIGHTS[2], {SUMMARY["config_hash"]})
    check_summary(SUMMARY, "shop", NIGHTS[2], {SUMMARY["config_hash"]})


def test_choose_shown_runs():
    rows = [{"metric": "ndcg", "k": 10, "run": run, "value": value} for run, value in (("a", 0.1), ("b", 0.3))]
    rows.append({"metric": "ndcg", "k": 10, "run": "c", "value": None})
    limits, metric = ReportLimits(runs=1), ("ndcg", 10)
    sentence = ["Runs: the 1 with the highest NDCG@10; 2 more are left out."]
    assert choose_shown_runs(rows, metric, limits, are_named=False, production=None) == (("b",), sentence)
    assert choose_shown_runs(rows, metric, limits, are_named=False, production="a")[0] == ("a",)
    with pytest.raises(InvalidParameterError, match="at most 1 runs; got 3"):
        choose_shown_runs(rows, metric, limits, are_named=True, production=None)
    with pytest.raises(InvalidParameterError, match=r"production 'd' is not among the runs: 'b', 'a', 'c'"):
        choose_shown_runs(rows, metric, limits, are_named=False, production="d")


# ------------------------------------------------------------------------------------------------- figures


def test_figures_are_usable_matplotlib_figures(whole):
    figures = Report(whole).figures
    assert set(figures) == {"curve", "trend", "differences", "distribution"}
    axes = figures["trend"].axes[0]
    values = {round(value, 6) for line in axes.get_lines() for value in line.get_ydata()}
    assert {value for value, _ in VALUES.values()} <= values
    assert [len(part) for part in split_at_gaps(whole.trend.nights["old"])] == [2, 1]
    figures["curve"].savefig(io.BytesIO(), format="png")


def test_figures_cut_intervals_at_the_range_of_the_metric():
    """NDCG .95 and .03 with an error of .05: 1.96 * .05 = .098 reaches beyond 1 and below 0. DCG is not cut."""
    rows = []
    for night in NIGHTS[1:]:
        for run, value in (("high", 0.95), ("low", 0.03)):
            rows += [build_metric_row(run, night, value, 0.05, k=k) for k in (5, 10)]
            rows.append(build_metric_row(run, night, 12.0, 9.0, metric="dcg"))
    report = Report(build_contents(rows))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures = report.figures
    assert [label.get_text() for label in figures["trend"].axes[0].get_xticklabels()] == ["29 Jan", "31 Jan"]
    for name in ("trend", "curve"):
        axes = figures[name].axes[0]
        drawn = [y for collection in axes.collections for path in collection.get_paths() for y in path.vertices[:, 1]]
        assert (min(drawn), max(drawn)) == (0.0, 1.0)
        arrows = {line.get_marker(): set(line.get_ydata()) for line in axes.get_lines()}
        assert (arrows["v"], arrows["^"]) == ({0.0}, {1.0})
    assert report.html.count('class="beyond"') == 2
    assert "0.852" in report.html
    assert "1.048" in report.html
    assert 'class="beyond"' not in Report(build_contents(rows, chosen=("dcg", 10))).html


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"p_holm": 0.07}, "new is not clearly different from old (p 0.07 after Holm): "),
        ({"p_holm": None, "note": "one_side_empty"}, "new is not clearly different from old: "),  # not tested
        ({"p_holm": 0.07, "high": 0.01}, "new is not clearly different from old: "),
    ],
)
def test_describe_difference_explains_an_interval_without_0(whole, changed, expected):
    """Intervals are not corrected for the number of tests, and verdicts are."""
    row = replace(whole.differences.rows[0], verdict="unclear", **changed)
    assert row.high < 0 or "high" in changed
    assert describe_difference(row, whole).startswith(expected)


@pytest.mark.parametrize(
    ("metric", "low", "high", "text"),
    [
        ("ndcg", 0.001, 0.02, "not worse than old (p 0.07 after Holm)"),
        ("ndcg", -0.005, 0.01, "not worse than old"),
        ("ils", -0.02, -0.001, "not worse than old (p 0.07 after Holm)"),
    ],
)
def test_a_run_that_is_not_worse_has_a_p_value_if_its_interval_excludes_0(whole, metric, low, high, text):
    row = replace(whole.differences.rows[0], verdict="not_worse", p_holm=0.07, low=low, high=high)
    assert describe_difference(row, replace(whole, metric=metric)).startswith(f"new is {text}: ")


def test_add_night_without_result_keeps_the_newest_first():
    """A night that the index has, or that is older than its newest, is not added."""
    head = '<thead><th scope="col">Night</th><th scope="col" class="n">bm25</th></thead>\n<tbody>'
    nights = '\n<tr><th scope="row"><time>2026-01-30</time></th></tr></tbody>\n'
    text = add_night_without_result(head + nights, date(2026, 1, 31), "mean-ndcg refused: a&b")
    row = '<tr><th scope="row"><time>2026-01-31</time></th><td class="n">\u2014</td><td class="worse">'
    assert text.startswith(f"{head}\n{row}")
    assert "</span> <bdi>mean-ndcg refused: a&amp;b</bdi></td></tr>\n" in text
    assert text.endswith(nights)
    for day in (29, 30, 31):
        assert add_night_without_result(text, date(2026, 1, day), "refused") == text


def test_list_warnings_counts_other_flagged_segments_whatever_the_headline_says(whole):
    """The count, 2, is a digit of the headline, too."""
    flags = Flags(segments=(SegmentFlag(run="new", by="country", segment="DE", flag=LOW),), n_segments=3)
    contents = replace(whole, flags=flags)
    assert "2" in write_headline(contents)
    assert "Other segments flagged tonight: 2." in list_warnings(contents)


@pytest.mark.parametrize(("verdict", "mark"), [("better", "▲"), ("worse", "▲"), ("", "≈"), ("equivalent", "≈")])
def test_a_difference_has_an_arrow_if_it_is_clear(whole, verdict, mark):
    """The arrow is that of the value, which may be larger and worse."""
    row = next(row for row in whole.differences.rows if not row.by)
    differences = replace(whole.differences, rows=(replace(row, verdict=verdict, difference=0.01),))
    page = Report(replace(whole, differences=differences)).html
    assert re.search(rf'<li class="(good|neutral)"><span aria-hidden="true">{mark}</span><span>.{{0,20}}new is', page)


def test_list_warnings_name_changes_that_have_not_recovered(whole):
    """They make the night bad, although the value is as on the night before."""
    fallen = {"flag": "ongoing", "value": 0.0, "before": 0.98, "change_night": date(2026, 1, 25)}
    ongoing = (
        SegmentFlag(run="old", by="country", segment="BR", **fallen),
        SegmentFlag(run="old", by="", segment="", **{**fallen, "value": 0.839, "before": 0.968}),
    )
    contents = replace(whole, results=whole.results[:1], gates=(), flags=Flags(ongoing=ongoing))
    text = "NDCG@10 in country=BR has not recovered since 25 January 2026: it is 0.0000, and was 0.9800"
    assert find_bad_news(contents) == write_headline(contents) == text
    assert f"{text}." not in list_warnings(contents)
    overall = "NDCG@10 has not recovered since 25 January 2026: it is 0.8390, and was 0.9680."
    assert overall in list_warnings(contents)


@pytest.mark.parametrize(
    ("metric", "value", "state"),
    [
        ("ndcg", 0.4, "has not recovered since 25 January 2026"),
        ("ndcg", 0.61, "is not as before 25 January 2026"),
        ("ils", 0.8, "has not recovered since 25 January 2026"),
        ("tied_share", 0.8, "is not as before 25 January 2026"),
    ],
)
def test_only_what_became_worse_has_not_recovered(whole, metric, value, state):
    """Shared queries may have fallen while the mean rose; neither direction of the share of tied items is better."""
    flag = SegmentFlag(run="old", by="", segment="", flag="ongoing", value=value, before=0.6)
    flag = replace(flag, change_night=date(2026, 1, 25))
    contents = replace(whole, metric=metric, gates=(), flags=Flags(ongoing=(flag,)))
    lines = [f"{write_headline(contents)}.", *list_warnings(contents)]
    assert sum(f" {state}: it is {value:.4f}, and was 0.6000." in line for line in lines) == 1


@pytest.mark.parametrize("status", ["low", "ongoing"])
@pytest.mark.parametrize(("values", "named"), [((0.7, 0.5, 0.5, 0.75), ["DE", "FR"]), ((0.7, 0.7, 0.71, 0.69), [])])
def test_a_change_is_named_once(status, values, named):
    """DE lost 0.3 of 0.8, which moves the mean; what phones lost is due to DE, too. FR lost as much by itself.

    If all lost 0.1, no segment is named.
    """
    night, fallen = date(2026, 1, 31), {"status": status, "metric": "ndcg", "k": 10, "dataset": "shop", "run": "a"}
    keys = (("", ""), ("country", "DE"), ("country", "FR"), ("device", "phone"))
    series = [(*key, value) for key, value in zip(keys, values, strict=True)]
    rows = [
        {
            **fallen,
            "night": night,
            "segment_by": by,
            "segment": segment,
            "value": value,
            "median": 0.8,
            "z": -9.0 + at,
        }
        for at, (by, segment, value) in enumerate(series)
    ]
    table = LocalFlags(open_memory_table(pa.Table.from_pylist(rows), "flags"))
    scope = Scope(dataset="shop", run_date=night, runs=("a",), metric="ndcg", k=10)
    flags = Flags.read(table, scope)
    assert [flag.segment for flag in flags.segments] == (named if status == "low" else [])
    assert [flag.segment for flag in flags.ongoing] == ([] if status == "low" else named or [""])
    others = ["phone"] if named else ["DE", "FR", "phone"]
    assert sorted(flag.segment for flag in flags.following) == (others if status == "low" else [])


@pytest.mark.parametrize(
    ("n_now", "n_before", "share"),
    [(23, 25, "has 12.8\u00a0%"), (0, 25, "had 13.9\u00a0%"), (180, 180, "has 100.0\u00a0%")],
)
def test_share_of_a_segment_is_that_of_the_night(whole, n_now, n_before, share):
    """23 of 180; of a segment without queries, 25 of 180 on the night before."""
    mean = replace(whole.segments.rows[0].mean, run="old", n_queries=n_now)
    row = replace(whole.segments.rows[0], mean=mean, before=replace(mean, n_queries=n_before))
    result = replace(next(each for each in whole.results if each.mean.run == "old"))
    result = replace(result, mean=replace(result.mean, n_queries=180), before=replace(result.mean, n_queries=180))
    assert f" {share} of the queries." in _describe_share(row, replace(whole, results=(result,)))


def test_list_warnings_names_a_fall_of_shared_queries_once(whole):
    """BR lost 0.98 and the other segments of its column nothing; devices that BR uses lost less than half of that."""
    template = next(row for row in whole.segments.rows if row.mean.run == "new" and row.mean.segment == "DE")
    rows = []
    for by, segment, fall in (
        ("country", "BR", 0.9),
        ("country", "US", 0.3),
        ("device", "tv", 0.4),
        ("device", "pc", 0.5),
    ):
        mean = replace(template.mean, by=by, segment=segment, value=0.95 - fall)
        change = replace(template.change, kind="down", difference=-fall, half=0.01)
        rows.append(replace(template, mean=mean, change=change, before=replace(mean, value=0.95)))
    contents = replace(whole, gates=(), flags=Flags(), segments=replace(whole.segments, rows=tuple(rows)))
    text = " ".join([write_headline(contents), *list_warnings(contents)])
    named = [name for name in ("country=BR", "country=US", "device=tv", "device=pc") if name in text]
    assert named == ["country=BR", "country=US", "device=pc"]
