"""Directions of metrics: every metric of the registry in every place that interprets its values.

Each place has a word for a rise and a fall of a metric; the expected words follow from `DIRECTIONS` alone.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from datetime import date

import pytest
from scipy import stats
from support.comparing import build_metric, build_settings, compare_rows
from support.nights import CLICK_COLUMNS, CLICKS, METRIC_COLUMNS, build_click_rows, build_metric_rows, nth_night
from support.source_rules import PROJECT_ROOT

from ndcg_spark import evaluate
from ndcg_spark.business import LinkSettings
from ndcg_spark.business.frames import link_metric
from ndcg_spark.comparison.command import ComparisonGate
from ndcg_spark.comparison.printed import format_pair, format_sentence, show_comparison
from ndcg_spark.comparison.tasks.finishing import choose_verdict
from ndcg_spark.diagnosis.frames import find_changed_queries
from ndcg_spark.diagnosis.tasks import Loss
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.gates import Gate
from ndcg_spark.history import FlagSettings
from ndcg_spark.history.frames import judge_nights
from ndcg_spark.metrics import EVERY, CatalogueMetric, Metric, MetricAt, all_metrics, direction_of, parse_metric
from ndcg_spark.metrics.base import NamedMetric
from ndcg_spark.metrics.intra_list_diversity import IntraListDiversity
from ndcg_spark.ml import NdcgEvaluator
from ndcg_spark.reports import sentences
from ndcg_spark.reports.assembly import choose_shown_runs
from ndcg_spark.reports.contents import (
    Change,
    ChangedQuery,
    ComparisonRow,
    GateResult,
    Mean,
    RunResult,
    SegmentFlag,
    SegmentRow,
    TrendPoint,
)
from ndcg_spark.reports.page import draw_page
from ndcg_spark.reports.queries import name_queries
from ndcg_spark.reports.reading import Scope
from ndcg_spark.reports.sections import Contents, Differences, Flags, Segments, Trend
from ndcg_spark.reports.settings import ReportLimits
from ndcg_spark.reports.spark_reading import SparkFlags, SparkQueries

LARGER = (
    "ndcg", "dcg", "cg", "acg", "ap", "ap_r", "wap", "p", "r", "rprec", "rr", "success", "err", "rbp", "bpref",
    "alpha_ndcg", "ndcg_worst", "ild",
)  # fmt: skip
SMALLER = ("ils", "first_new", "first_appearance", "outside_catalogue")
NEITHER = (
    "idcg", "ndcg_best", "tied_share", "judged", "pairs_left_out", "rbp_residual", "novelty", "coverage", "entropy",
    "gini",
)  # fmt: skip
DIRECTIONS = {**dict.fromkeys(LARGER, True), **dict.fromkeys(SMALLER, False), **dict.fromkeys(NEITHER, None)}
"""Stated by people, once here and once in the metrics; a metric that is new must be stated in both."""
OF_PARAMETERS = {"p(rel=2)": True, "ils(by=categories)": False, "rbp_residual(p=0.5)": None}
NO_VALUE_OF_NOTHING = {"ild", "novelty", "judged", "pairs_left_out"}
"""Metrics of which an empty list has no value, so that a query that a run lacks does not count as 0."""
UNKNOWN = {"clicks_per_visit": None, "ndcg_rank_1": None, "lost_ranked_low": None}
ALL = {**DIRECTIONS, **OF_PARAMETERS, **UNKNOWN}
"""Metrics as stored rows name them."""
SIGNS = {"rise": 1, "fall": -1}


def build_expected(
    *, better: str, worse: str, rise: str = "", fall: str = "", of: dict[str, bool | None] | None = None
) -> dict[tuple[str, str], str]:
    """Return the expected word by (metric, `rise` or `fall`); `rise` and `fall` are words without a direction."""
    neither = {"rise": rise, "fall": fall}
    return {
        (metric, way): neither[way] if larger is None else better if larger == (sign > 0) else worse
        for metric, larger in (ALL if of is None else of).items()
        for way, sign in SIGNS.items()
    }


# ------------------------------------------------------------------------------------------- what metrics state


def test_every_metric_states_its_direction():
    assert {name: metric.larger_is_better for name, metric in all_metrics().items()} == DIRECTIONS


def test_stored_names_have_the_direction_of_their_metric():
    assert {name: direction_of(name) for name in ALL} == ALL
    assert [direction_of(name) for name in ("recall", "MAP", "", "ndcg(nothing=1)", "null")] == [True, True] + [
        None
    ] * 3


@pytest.mark.parametrize("base", [NamedMetric, Metric, CatalogueMetric, IntraListDiversity])
@pytest.mark.parametrize("stated", [{}, {"larger_is_better": "yes"}, {"larger_is_better": 1}])
def test_a_class_that_does_not_state_it_cannot_be_defined(base, stated):
    """Also a subclass of a metric: `ild` is a subclass of `ils`."""
    with pytest.raises(TypeError, match="metric 'new' must set larger_is_better itself: True, False or None; got"):
        type("New", (base,), {"name": "new", "about": "", "source": "", **stated})


def test_the_page_of_metrics_has_all_directions():
    """docs/metrics.md has a table with a row for each direction and the names of its metrics."""
    text = (PROJECT_ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (larger|smaller|neither) \| (.+?) \|", text, re.MULTILINE))
    actual = {name: word for word, names in rows.items() for name in re.findall(r"`(\w+)`", names)}
    words = {True: "larger", False: "smaller", None: "neither"}
    assert actual == {name: words[metric.larger_is_better] for name, metric in all_metrics().items()}


# --------------------------------------------------------------------------------------------------- comparisons

NO_VALUE = {"ild", "judged", "novelty", "pairs_left_out"}
"""Metrics, not of those where smaller is better, that have no value for a list without items."""
COMPARED = {name: direction for name, direction in ALL.items() if name != "idcg"}  # which is refused


@pytest.fixture(scope="module")
def comparison():
    """Rows of `up` and `down` against `base` by (metric, way): 30 of 32 queries go that way."""
    metrics = tuple(MetricAt(Loss(name), EVERY) if name in UNKNOWN else build_metric(name) for name in COMPARED)
    settings = build_settings(runs=("base", "up", "down"), baseline="base", metrics=metrics)
    rows = []
    for at in range(32):
        more = (0.1 + 0.001 * at) * (-1 if at == 31 else 1)
        values = (0.5, 0.5 + more, 0.5 - more) if at else (0.5, 0.5, 0.5)
        rows += [{"query": f"q{at}", "run": run, "value": value} for run, value in enumerate(values)]
    ways = {"up": "rise", "down": "fall"}
    return {(row["metric"], ways[row["run"]]): row for row in compare_rows(rows, settings)}, settings


def test_verdicts(comparison):
    rows, _ = comparison
    words = build_expected(better="better", worse="worse", rise="higher", fall="lower", of=COMPARED)
    assert {key: row["verdict"] for key, row in rows.items()} == words


def test_wins_and_losses(comparison):
    """Without a direction a win is a higher value."""
    rows, _ = comparison
    counts = build_expected(better=(30, 1, 1), worse=(1, 1, 30), rise=(30, 1, 1), fall=(1, 1, 30), of=COMPARED)
    assert {key: (row["n_wins"], row["n_ties"], row["n_losses"]) for key, row in rows.items()} == counts


def test_numbers_do_not_depend_on_the_direction(comparison):
    """Difference, interval, lift and p-values are not turned."""
    rows, _ = comparison
    names = ("difference", "ci_low", "ci_high", "t", "p_value", "p_sign_flip", "p_holm", "lift", "mde", "state")
    for way in SIGNS:
        assert len({str([rows[metric, way][name] for name in names]) for metric in COMPARED}) == 1


def test_sentences_of_comparisons(comparison):
    rows, settings = comparison
    words = build_expected(
        better="is better than", worse="is worse than", rise="is higher than", fall="is lower than", of=COMPARED
    )
    said = {key: format_sentence(row, settings) for key, row in rows.items()}
    assert {key: re.search(r": \w+ (.*) base \(", text)[1] for key, text in said.items()} == words


def test_counts_of_other_metrics(comparison):
    """The line that counts verdicts names the largest clear difference in each direction."""
    rows, settings = comparison
    up = [row for (metric, way), row in rows.items() if way == "rise"]
    n = {word: sum(direction is larger for direction in COMPARED.values()) for word, larger in _WORDS.items()}
    line = format_pair(up, settings)[-1]
    counted = {word: int(actual) for actual, word in re.findall(r"(\d+) (\w+), most \+0\.\d+ \(", line)}
    assert counted == {**n, "better": n["better"] - 1}  # one is the sentence before


_WORDS = {"better": True, "worse": False, "higher": None}


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_colours_of_comparisons(comparison, monkeypatch):
    for name, value in (("TERM", "xterm"), ("COLUMNS", "200"), ("FORCE_COLOR", "1")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    rows, settings = comparison
    actual = {}
    for key, row in rows.items():
        with redirect_stdout(Terminal()) as printed:
            show_comparison([row], settings, verbose=True)
        (verdict,) = re.findall(
            r"(\x1b\[[\d;]+m)?(?:better|worse|higher|lower)(?:\x1b| )", printed.getvalue().split("│", 1)[1]
        )
        actual[key] = {"\x1b[32m": "green", "\x1b[31m": "red"}.get(verdict, "none")
    assert actual == build_expected(better="green", worse="red", rise="none", fall="none", of=COMPARED)


INTERVALS = {"rise": {"difference": 0.2, "ci_low": -0.05, "ci_high": 0.5}}
INTERVALS["fall"] = {"difference": -0.2, "ci_low": -0.5, "ci_high": 0.05}


def test_not_worse():
    """ci_low > -margin if larger is better, ci_high < margin if smaller is; else there is no verdict."""
    actual = {
        (metric, way): choose_verdict({"metric": metric, **interval}, 0.5, alpha=0.05, margin=0.1)
        for metric in ALL
        for way, interval in INTERVALS.items()
    }
    assert actual == build_expected(better="not_worse", worse="unclear", rise="unclear", fall="unclear")
    ends = [(-0.1, 0.3), (-0.3, 0.1), (-0.0999, 0.3), (-0.3, 0.0999)]
    rows = [{"difference": 0.0, "ci_low": low, "ci_high": high} for low, high in ends]
    for metric, verdicts in (("ndcg", "uunu"), ("ils", "uuun"), ("judged", "uuuu")):
        got = [choose_verdict({"metric": metric, **row}, None, alpha=0.05, margin=0.1)[0] for row in rows]
        assert "".join(got) == verdicts


@pytest.mark.parametrize(("metric", "difference"), [("ndcg", -0.01), ("ils", 0.01)])
def test_the_one_sided_p_is_of_the_worse_direction(metric, difference):
    """By SciPy: the probability that a run that is worse by the margin looks this good."""
    row = {
        "metric": metric, "k": 10, "asked": None, "run": "new", "baseline": "old", "verdict": "not_worse",
        "n_wins": 1, "n_losses": 9, "n_queries": 12, "difference": difference, "std_error": 0.01,
        "df": 11.0, "p_holm": 0.3, "ci_low": difference - 0.02, "ci_high": difference + 0.02,
    }  # fmt: skip
    p = stats.t.sf(0.03 / 0.01, 11) if metric == "ndcg" else stats.t.cdf(-0.03 / 0.01, 11)
    assert f"one-sided p {p:.4f}, not adjusted" in format_sentence(row, build_settings(margin=0.04))


def test_missing_queries_are_no_advantage():
    """`unpaired=zero` counts 0, unless 0 is the best value or an empty list has no value (left out)."""
    metrics = tuple(MetricAt(Loss(name), EVERY) if name in UNKNOWN else build_metric(name) for name in COMPARED)
    rows = [{"query": f"q{at}", "run": run, "value": 0.5} for at in range(4) for run in (0, 1) if at or not run]
    actual = {row["metric"]: row for row in compare_rows(rows, build_settings(metrics=metrics, unpaired="zero"))}
    for metric, direction in COMPARED.items():
        row, is_left_out = actual[metric], direction is False or metric.partition("(")[0] in NO_VALUE
        assert (row["n_queries"], row["n_skipped"], row["n_only_baseline"]) == (
            (3, 1, 1) if is_left_out else (4, 0, 1)
        )
        assert (row["difference"], row["n_losses"]) == ((0.0, 0) if is_left_out else (-0.125, 1))
        row |= {"run": "b", "verdict": "unclear"}
        lacks = format_pair([row], build_settings(metrics=metrics))[0]
        assert lacks == f"{metric}@10: b lacks 1 query of a, {'left out' if is_left_out else 'counted as 0'}."


# ---------------------------------------------------------------------------------------------------------- gates


@pytest.mark.parametrize("comparison", [">", ">=", "<", "<="])
def test_gates_in_the_worse_direction_get_a_warning(comparison):
    """The gate itself is never turned."""
    way = "rise" if ">" in comparison else "fall"
    more, less = ("more", "less") if way == "rise" else ("less", "more")
    known = {name: direction for name, direction in ALL.items() if name not in UNKNOWN}
    lines = build_expected(better="", worse="gate {0} requires {1} of {2}, but {3} is better.", of=known)
    for metric in known:
        k = 5 if parse_metric(metric)[0].takes_cutoff else None
        named = metric if k is None else f"{metric}@{k}"
        text = f"{named}{comparison}0.3"
        gate = Gate.among(text, [(metric, k)])
        assert gate.contrary == lines[metric, way].format(text, more, metric, less)
        rows = [{"segment_by": "", "run": "", "metric": metric, "k": k, "value": value} for value in (0.2, 0.4)]
        met = [row["met"] for row in gate.results(rows)]
        assert met == ([False, True] if way == "rise" else [True, False])
        text = f"{named}.ci_low{comparison}0.3"
        assert ComparisonGate.parse(text).contrary == lines[metric, way].format(text, more, metric, less)
        assert [ComparisonGate.parse(f"{named}.{column}<9").contrary for column in ("p_holm", "n_losses")] == [
            "",
            "",
        ]


# ------------------------------------------------------------------------------------------------- nights, clicks


def repeat_for_metrics(rows, names):
    return [row | {"metric": name} for row in rows for name in names]


def test_rules_of_flags(spark):
    """Twelve usual weeks and one far above or below; two nights, the second far from the first."""
    usual = [0.4420, 0.4431, 0.4409, 0.4415, 0.4442, 0.4398, 0.4426, 0.4411, 0.4437, 0.4404, 0.4423, 0.4418]
    rows = []
    for way, sign in SIGNS.items():
        for run, values in (("long", [*usual, 0.44 + sign * 0.1]), ("short", [0.44, 0.44 + sign * 0.1])):
            nights = [row | {"run_date": nth_night(7 * at)} for at, row in enumerate(build_metric_rows(values))]
            rows += [row | {"run": f"{run} {way}"} for row in repeat_for_metrics(nights, ALL)]
    actual = judge_nights(spark.createDataFrame(rows, METRIC_COLUMNS), FlagSettings(direction="both")).where(
        "status in ('low', 'high')"
    )
    rules = {}
    for row in actual.collect():
        length, way = row["run"].split()
        rules[row["metric"], way, length] = (row["status"], *re.findall(r"\); (\w+ is \w+)", row["rule"]))
    words = build_expected(better="better", worse="worse", rise="", fall="")
    statuses = {"rise": ("high", "higher is "), "fall": ("low", "lower is ")}
    assert rules == {
        (metric, way, length): (statuses[way][0], *([statuses[way][1] + word] if word else []))
        for (metric, way), word in words.items()
        for length in ("long", "short")
    }


def test_ongoing_changes_of_a_report(spark):
    """Three nights, the second and third away from the first; a metric without a better side is told either way.

    The only country changed like all queries: one cause.
    """
    metrics = {"ndcg": {"fall"}, "ils": {"rise"}, "tied_share": {"rise", "fall"}}
    rows = [
        row | {"run": way, "segment_by": by, "segment": segment}
        for way, sign in SIGNS.items()
        for row in repeat_for_metrics(build_metric_rows([0.44, 0.44 + sign * 0.1, 0.44 + sign * 0.1]), metrics)
        for by, segment in (("", ""), ("country", "US"))
    ]
    flags = judge_nights(spark.createDataFrame(rows, METRIC_COLUMNS), FlagSettings(direction="both")).cache()
    for metric, ways in metrics.items():
        scope = Scope("", nth_night(2), ("rise", "fall"), metric, 10)
        ongoing = {(flag.run, flag.by, flag.segment): flag for flag in Flags.read(SparkFlags(flags), scope).ongoing}
        assert set(ongoing) == {(way, "", "") for way in ways}
        for (way, *_), flag in ongoing.items():
            assert (flag.value, flag.before) == (0.44 + SIGNS[way] * 0.1, 0.44)
            assert flag.change_night == nth_night(1)
    flags.unpersist()


def test_alarms_of_the_business_link(spark):
    """Clicks fall by 4 %; the metric moves by 2.5 %. If the metric improves, the two contradict each other."""
    values = [0.400, 0.402, 0.398, 0.401, 0.399, 0.400, 0.400, 0.410, 0.412, 0.409, 0.411, 0.413, 0.410, 0.412]
    falling = [0.8 - value for value in values]
    rows = [
        row | {"run": way}
        for way, metric_values in (("rise", values), ("fall", falling))
        for row in repeat_for_metrics(build_metric_rows(metric_values), ALL)
    ]
    metrics, clicks = (
        spark.createDataFrame(rows, METRIC_COLUMNS),
        spark.createDataFrame(build_click_rows(CLICKS), CLICK_COLUMNS),
    )
    links = link_metric(metrics, clicks, LinkSettings()).where("rate = 'ctr'").collect()
    actual = {(row["metric"], row["run"]): row["alarm"] or row["note"] or "" for row in links}
    alarms = build_expected(better="alarm", worse="", rise="no_direction", fall="no_direction")
    named = {"rise": "metric_up_ctr_down", "fall": "metric_down_ctr_down"}
    assert actual == {key: named[key[1]] if word == "alarm" else word for key, word in alarms.items()}


# --------------------------------------------------------------------------------------------------------- models


def test_models_are_chosen_by_metrics_with_a_direction():
    actual = {}
    for name in all_metrics():
        try:
            actual[name] = NdcgEvaluator(metricName=name).isLargerBetter()
        except InvalidParameterError as error:
            actual[name] = str(error)
    refused = "metricName {0!r} cannot choose a model: neither more nor less of {0} is better; choose another metric"
    for name, larger in DIRECTIONS.items():
        if all_metrics()[name]().needs:
            assert actual[name].startswith(f"metricName {name!r} needs more than predictions")
        elif larger is None:
            assert actual[name].startswith(refused.format(name))
        else:
            assert actual[name] is larger


# -------------------------------------------------------------------------------------------------------- queries

OF_QUERIES = {name: direction for name, direction in ALL.items() if name not in UNKNOWN and not issubclass(
    all_metrics()[name.split("(")[0]], CatalogueMetric)}  # fmt: skip


@dataclass(frozen=True)
class Scored:
    """Settings of an evaluation with all metrics computed for each query."""

    settings: object

    def __getattr__(self, name):
        return getattr(self.settings, name)

    @property
    def computed(self):
        return tuple(MetricAt(metric, 3) for metric in list_query_metrics())


def list_query_metrics():
    return [parse_metric(name)[0] for name in OF_QUERIES]


@pytest.fixture(scope="module")
def per_query(spark):
    """Four queries: one falls, one rises, one has no value in `new`, one has no row there; equal for all metrics."""
    values = {"a": (0.9, 0.2), "b": (0.1, 0.5), "c": (0.3, None)}
    columns = [metric.column for metric in list_query_metrics()]
    rows = [
        (run, query, 3, *[value] * len(columns), 1, "missing" if value is None else "evaluated")
        for query, run_values in values.items()
        for run, value in zip(("old", "new"), run_values, strict=True)
    ]
    rows.append(("old", "d", 3, *[0.3] * len(columns), 1, "evaluated"))
    names = ", ".join(f"{name} double" for name in columns)
    schema = f"run string, query_id string, k int, {names}, n_relevant int, status string"
    return spark.createDataFrame(rows, schema).cache()


def test_queries_that_gained_and_lost(spark, per_query):
    rows = [("old", query, "i", 1.0, 1) for query in "abcd"] + [("new", query, "i", 1.0, 1) for query in "abcd"]
    table = spark.createDataFrame(rows, "r string, query_id string, item_id string, score double, relevance int")
    result = evaluate(table, run="r", k=3)
    frames = [
        find_changed_queries(
            per_query, result.ranking, Scored(result.settings), baseline="old", run="new", metric=metric.column, k=3
        ).selectExpr(f"'{metric}' AS metric", "change", "query_id")
        for metric in list_query_metrics()
    ]
    actual: dict[tuple[str, str], set[str]] = {}
    for frame in frames:
        for row in frame.collect():
            actual.setdefault((row["metric"], row["query_id"]), set()).add(row["change"])
    words = build_expected(better="gained", worse="lost", rise="higher", fall="lower", of=OF_QUERIES)
    ways = {"a": "fall", "b": "rise", "c": "fall", "d": "fall"}
    assert actual == {
        (metric, query): {words[metric, way]}
        for metric, direction in OF_QUERIES.items()
        for query, way in ways.items()
        if query in "ab" or (direction is not False and metric not in NO_VALUE_OF_NOTHING)
    }


def test_queries_of_a_report(per_query):
    """Queries with the worst values come first, and queries that got worse; or changed, without a direction."""
    worst, losses = {}, {}
    for metric in OF_QUERIES:
        scope = Scope(dataset="", run_date=None, runs=("new", "old"), metric=metric, k=3)
        table = SparkQueries(per_query, scope)
        worst[metric] = [row.query for row in name_queries(table.find_lowest(), table.keys) if row.run == "new"][:1]
        losses[metric] = [
            row.query for row in name_queries(table.find_losses(before=None, baseline="old"), table.keys)
        ]
    assert worst == {name: ["b"] if direction is False else ["a"] for name, direction in OF_QUERIES.items()}
    assert losses == {
        name: {True: ["a"], False: ["b"], None: ["a", "b"]}[direction] for name, direction in OF_QUERIES.items()
    }


# --------------------------------------------------------------------------------------------------------- reports

TONIGHT, BEFORE = date(2026, 1, 31), date(2026, 1, 30)


def build_mean(metric, run, value, by="", segment=""):
    return Mean(
        run=run, by=by, segment=segment, metric=metric, k=10, value=value, n_queries=100, std_error=0.01,
        low=value - 0.02, high=value + 0.02,
    )  # fmt: skip


def build_change(sign):
    return Change(kind="up" if sign > 0 else "down", difference=0.2 * sign, half=0.03, since=BEFORE)


def build_comparison_row(metric, sign, verdict):
    return ComparisonRow(
        run="new", baseline="old", by="", segment="", metric=metric, k=10, n_queries=100,
        difference=0.2 * sign, low=0.2 * sign - 0.05, high=0.2 * sign + 0.05, lift=None, wins=1,
        ties=2, losses=3, p_holm=0.001, verdict=verdict, note="",
    )  # fmt: skip


def build_contents(metric, way, **parts):
    """Build a night on which the run `new` rises or falls, with other parts."""
    sign = SIGNS[way]
    now, then = build_mean(metric, "new", 0.5 + 0.2 * sign), build_mean(metric, "new", 0.5)
    nights = tuple(
        TrendPoint(run_date=day, mean=point_mean, config_hash="c")
        for day, point_mean in ((BEFORE, then), (TONIGHT, now))
    )
    sections = {
        "results": (RunResult(mean=now, change=build_change(sign), before=then),),
        "trend": Trend(nights={"new": nights}), **parts,
    }  # fmt: skip
    return Contents(
        title="t", dataset="d", run_date=TONIGHT, metric=metric, k=10, level=0.95, means=(now,), **sections
    )


def map_nights(place, **parts):
    return {(metric, way): place(build_contents(metric, way, **parts)) for metric in ALL for way in SIGNS}


def build_unchanged(metric):
    return RunResult(
        mean=build_mean(metric, "new", 0.5), change=Change(kind="unclear", difference=0.0, half=0.03, since=BEFORE)
    )


def test_news_of_a_report():
    """A run that got worse is news, with its name; an improved run, or a metric without direction, is not."""
    actual = map_nights(sentences.find_bad_news)
    words = {"rise": "rose by 0.200", "fall": "fell by 0.200"}
    news = build_expected(better="", worse="news", rise="", fall="")
    assert {key: bool(text) for key, text in actual.items()} == {key: bool(word) for key, word in news.items()}
    assert all(words[way] in actual[metric, way] for (metric, way), word in news.items() if word)


def test_segments_that_got_worse():
    actual = {}
    for metric in ALL:
        for way, sign in SIGNS.items():
            now, then = (build_mean(metric, "new", value, "country", "DE") for value in (0.5 + 0.2 * sign, 0.5))
            row = SegmentRow(mean=now, change=build_change(sign), before=then)
            contents = build_contents(metric, way, segments=Segments(rows=(row,)), results=(build_unchanged(metric),))
            said = [
                text
                for text in (sentences.find_bad_news(contents), *sentences.list_warnings(contents))
                if "country" in text
            ]
            actual[metric, way] = re.search(r"country=DE (\w+) from 0.5\d* to", said[0])[1] if said else ""
    moved = {"rise": "rose", "fall": "fell"}
    words = build_expected(better="", worse="moved", rise="", fall="")
    assert actual == {key: word and moved[key[1]] for key, word in words.items()}


def test_flags_of_a_report():
    """A flag for the worse is bad news and comes before a fall; other flags come last, in a neutral colour."""
    actual = {}
    for metric in ALL:
        for way in SIGNS:
            flag = f"{'high' if way == 'rise' else 'low'}, 5.0 spreads from the usual value"
            of_segment = SegmentFlag(run="new", by="country", segment="DE", flag=flag)
            contents = build_contents(
                metric, way, results=(replace(build_unchanged(metric), flag=flag),),
                flags=Flags(segments=(of_segment,), n_segments=1),
            )  # fmt: skip
            bad = [text for text in sentences.list_warnings(contents) if "is flagged" in text]
            others = [tone for tone, text in sentences.list_notices(contents) if "is flagged" in text]
            # The headline has the flag of the run; lines have the rest.
            assert len(bad) + len(others) == 1
            actual[metric, way] = "worse" if bad else others[0]
    assert actual == build_expected(better="better", worse="worse", rise="neutral", fall="neutral")
    of_user = build_contents("judged", "rise", results=(replace(build_unchanged("judged"), flag="release day"),))
    assert sentences.find_bad_news(of_user).startswith("Flagged release day")


def test_the_first_run_of_a_report_is_the_best():
    rows = [
        {"metric": "m", "k": 10, "run": run, "value": value} for run, value in (("b", 0.2), ("a", 0.1), ("c", None))
    ]
    for metric, direction in ALL.items():
        metric_rows = [{**row, "metric": metric} for row in rows]
        shown, left_out = choose_shown_runs(
            metric_rows, (metric, 10), ReportLimits(runs=1), are_named=False, production=None
        )
        assert shown == (("a",) if direction is False else ("b",))
        assert ("the 1 with the lowest " in left_out[0]) is (direction is False)


def build_moving(metric):
    """Build a night on which the run `rise` rises and the run `fall` falls, both flagged, each against `new`."""
    verdicts = build_expected(
        better="better", worse="worse", rise="higher", fall="lower", of={metric: DIRECTIONS[metric]}
    )
    results, trend, rows = [], {}, []
    for way, sign in SIGNS.items():
        now, then = build_mean(metric, way, 0.5 + 0.2 * sign), build_mean(metric, way, 0.5)
        flags = {BEFORE: None, TONIGHT: "high, far" if sign > 0 else "low, far"}
        trend[way] = tuple(
            TrendPoint(run_date=day, mean=point_mean, config_hash="c", flag=flags[day])
            for day, point_mean in ((BEFORE, then), (TONIGHT, now))
        )
        results.append(RunResult(mean=now, change=build_change(sign), before=then))
        rows.append(replace(build_comparison_row(metric, sign, verdicts[metric, way]), run=way))
    return build_contents(
        metric,
        "rise",
        results=tuple(results),
        trend=Trend(nights=trend),
        differences=Differences(rows=tuple(rows)),
    )


def test_colours_of_a_report():
    """Colours of changes and verdicts in tables, of flagged nights in figures, and to the right of 0."""
    changed, verdicts, figures, captions = {}, {}, {}, {}
    for metric in DIRECTIONS:
        page = draw_page(build_moving(metric))
        for way, arrow in (("rise", "▲"), ("fall", "▼")):
            changed[metric, way] = re.search(
                rf'<td class="n"><span class="(\w+)"><span aria-hidden="true">{arrow}', page
            )[1]
            row = page[page.index(f'data-run="{way}"') :]
            verdicts[metric, way] = re.search(r'<td class="(\w+)"><bdi>(?:better|worse|higher|lower)</bdi>', row)[1]
        rings = set(re.findall(r"fill-opacity: 0; stroke: var\(--(\w+)\); stroke-width: 2", page))
        marks = page[page.index('id="differences"') : page.index('id="comparison-table"')].split("</ul>")[1]
        figures[metric] = (rings, {name for name in ("run-0", "bad") if f"var(--{name})" in marks})
        captions[metric] = re.search(r"(\w+) of 0 is (\w+)\.", page).groups()
    words = build_expected(better="better", worse="worse", rise="neutral", fall="neutral", of=DIRECTIONS)
    assert changed == verdicts == words
    drawn = {None: ({"muted"}, set())}
    assert figures == {
        name: drawn.get(larger, ({"accent", "bad"}, {"run-0", "bad"})) for name, larger in DIRECTIONS.items()
    }
    of_side = {True: ("right", "better"), False: ("left", "better"), None: ("right", "higher")}
    assert captions == {metric: of_side[direction] for metric, direction in DIRECTIONS.items()}


@pytest.mark.parametrize(
    ("metric", "colours"), [("ap", "better worse"), ("ils", "worse better"), ("gini", "neutral neutral")]
)
def test_the_colour_of_the_one_run_of_a_report(metric, colours):
    pages = [draw_page(build_contents(metric, way)) for way in SIGNS]
    assert [re.search(r'<p class="change (\w+)">', page)[1] for page in pages] == colours.split()
    note = {"ap": "", "ils": " Smaller is better.", "gini": " Neither direction is better."}[metric]
    assert all(f"with its 95 % interval.{note}</p>" in page for page in pages)


def test_changed_queries_in_a_report():
    """Gains and losses of queries are coloured, except for metrics without a direction."""
    colours = {}
    for change in ("gained", "lost", "higher", "lower"):
        row = ChangedQuery(
            change=change, run="new", baseline="old", query="q", metric="x", k=3, before=0.5, value=0.7,
            baseline_list=(), run_list=(),
        )  # fmt: skip
        page = draw_page(build_contents("ndcg", "rise", changed=(row,)))
        title, colours[change] = re.search(
            r"<h3>(\w+ the most) from .*?<span class=\"(better|worse|neutral)\">", page, re.S
        ).groups()
        assert title == {"gained": "Gained", "lost": "Lost", "higher": "Rose", "lower": "Fell"}[change] + " the most"
    assert colours == {"gained": "better", "lost": "worse", "higher": "neutral", "lower": "neutral"}


def test_gates_of_a_report_in_the_worse_direction():
    gate = GateResult(
        text="ils@10>=0.3", run="new", metric="ils", k=10, comparison=">=", bound=0.3, value=0.5, met=True
    )
    said = sentences.list_warnings(build_contents("ndcg", "rise", gates=(gate, gate)))
    assert said == ["gate ils@10>=0.3 requires more of ils, but less is better."]
