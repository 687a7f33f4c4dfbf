"""Every parameter that takes a name refuses unknown names and lists known ones."""

from __future__ import annotations

from dataclasses import fields
from datetime import date
from functools import partial

import pytest

import ndcg_spark as ns
from ndcg_spark import clicks, diagnosis, evaluation, history, judgments, retrieval
from ndcg_spark.core.shown import Shown
from ndcg_spark.errors import NdcgSparkError
from ndcg_spark.evaluation.api import OPTIONS
from ndcg_spark.evaluation.settings import Columns, ItemColumns
from ndcg_spark.ml import with_query_folds

NOWHERE = "nowhere"
NIGHT = date(2026, 2, 1)
RANKED = {"run": "ranker", "k": 5}


class Tables:
    """The inputs of the golden nights, by file name, and the outputs of the main job."""

    def __init__(self, spark, folder):
        self.spark, self.folder = spark, folder

    def __getattr__(self, name):
        path = self.folder / f"{name}.parquet"
        return self.spark.read.parquet(str(path if path.exists() else self.folder / name))


@pytest.fixture(scope="module")
def tables(spark, golden_nights):
    return Tables(spark, golden_nights)


def evaluate_next(tables):
    return ns.evaluate(tables.next, **RANKED)


def list_column_fields(settings):
    """Return the fields of a class of column names that each hold one name."""
    return [field.name for field in fields(settings)]


COLUMNS = {
    "evaluate": (
        [*list_column_fields(Columns), *list_column_fields(ItemColumns), "segments"],
        lambda of, **named: ns.evaluate(of.next, **RANKED | named),
    ),
    "rank_queries": (
        ["query", "score", "weight"],
        lambda of, **named: evaluation.rank_queries(of.run, evaluation.evaluation_settings(**named)),
    ),
    "compare": (
        ["query", "segments", "weight", "cluster"],
        lambda of, **named: ns.compare(of.queries.where("run_date = '2026-02-01'"), baseline="a", **named),
    ),
    "judgments_from_events": (
        list_column_fields(judgments.EventColumns),
        lambda of, **named: judgments.from_events(of.events, grades={"click": 1.0}, as_of=date(2026, 2, 1), **named),
    ),
    "judgments_from_ratings": (
        list_column_fields(judgments.RatingColumns),
        lambda of, **named: judgments.from_ratings(of.ratings, **named),
    ),
    "fit_propensities": (
        ["query", "item", "position", "click"],
        lambda of, **named: clicks.fit_propensities(of.impressions, **named),
    ),
    "judgments_from_impressions": (
        list_column_fields(clicks.ImpressionColumns),
        lambda of, **named: clicks.judgments_from_impressions(
            of.impressions, None if "propensity" in named else of.given, **named
        ),
    ),
    "inverse_propensity_estimates": (
        ["run", "segments"],
        lambda of, **named: clicks.inverse_propensity_estimates(of.impressions, of.given, **named),
    ),
    "retrieve": (
        ["query", "item", "vector", "labels", "same"],
        lambda of, **named: ns.retrieve(of.photos, of.corpus, k=2, metric="hamming", **named),
    ),
    "judgments_from_labels": (
        ["query", "item", "labels", "same"],
        lambda of, **named: retrieval.judgments_from_labels(
            of.photos, of.corpus, **{"metric": "hamming", "labels": "labels"} | named
        ),
    ),
    "flag_changes": (
        ["query"],
        lambda of, **named: history.flag_changes(of.metrics, per_query=of.queries, **named),
    ),
    "with_query_folds": (["query"], lambda of, **named: with_query_folds(of.next, num_folds=2, **named)),
}
"""Parameters that name columns, and a call that takes them."""
SEVERAL = {"query": (NOWHERE,), "segments": [NOWHERE]}
"""Values of parameters that take several names."""
ONE_NAME = ("retrieve", "judgments_from_labels", "with_query_folds")
OTHERS = {
    "evaluate metrics": ("ndcg", lambda of: ns.evaluate(of.next, **RANKED, metrics=NOWHERE)),
    "evaluate convention": ("trec_eval", lambda of: ns.evaluate(of.next, **RANKED, convention=NOWHERE)),
    "compare baseline": ("a, b", lambda of: ns.compare(of.queries, baseline=NOWHERE)),
    "compare baseline of an evaluation": ("a, b", lambda of: ns.compare(evaluate_next(of), baseline=NOWHERE)),
    "compare metrics": ("ndcg", lambda of: ns.compare(evaluate_next(of), baseline="a", metrics=NOWHERE)),
    "compare convention": ("trec_eval", lambda of: ns.compare(of.queries, baseline="a", convention=NOWHERE)),
    "changed_queries baseline": (
        "a, b",
        lambda of: diagnosis.changed_queries(evaluate_next(of), baseline=NOWHERE, run="b", n=2),
    ),
    "changed_queries run": (
        "a, b",
        lambda of: diagnosis.changed_queries(evaluate_next(of), baseline="a", run=NOWHERE, n=2),
    ),
    "changed_queries metric": (
        "ndcg",
        lambda of: diagnosis.changed_queries(evaluate_next(of), baseline="a", run="b", n=2, metric=NOWHERE),
    ),
    "changed_queries segments": (
        "",
        lambda of: diagnosis.changed_queries(evaluate_next(of), baseline="a", run="b", n=2, segments=[NOWHERE]),
    ),
    "explain_difference": ("trec_eval", lambda of: ns.explain_difference(of.next, "default", NOWHERE, **RANKED)),
    "report runs": ("'a', 'b'", lambda of: ns.report(of.metrics, night=NIGHT, runs=[NOWHERE])),
    "report metric": ("lists them all", lambda of: ns.report(of.metrics, night=NIGHT, metric=f"{NOWHERE}@2")),
    "report baseline": ("'b', 'a'", lambda of: ns.report(of.metrics, night=NIGHT, baseline=NOWHERE)),
    "report production": ("'b', 'a'", lambda of: ns.report(of.metrics, night=NIGHT, production=NOWHERE)),
    "report dataset": ("shop", lambda of: ns.report(of.metrics, night=NIGHT, dataset=NOWHERE)),
    "report gates": ("lists them all", lambda of: ns.report(of.metrics, night=NIGHT, gates=[f"{NOWHERE}@2>=0.5"])),
}
"""Calls with a name of a run, metric, convention or data set, and names that do exist."""


def catch_refusal(call):
    """Return the error of a call, or of the action on its result."""

    def act():
        results = call()
        for result in results if isinstance(results, tuple) else (results,):
            (result.summary if isinstance(result, Shown) else result).collect()

    with pytest.raises(NdcgSparkError) as refused, ns.readable_errors():
        act()
    return str(refused.value)


@pytest.mark.parametrize("call", COLUMNS)
def test_columns_that_do_not_exist_are_refused(tables, call):
    parameters, made = COLUMNS[call]
    for parameter in parameters:
        value = NOWHERE if call in ONE_NAME else SEVERAL.get(parameter, NOWHERE)
        message = catch_refusal(partial(made, tables, **{parameter: value}))
        assert f"{NOWHERE!r}" in message, parameter
        ways_out = ("which has: ", "leave it out", "remove it", "there is no such table", "does not exist")
        assert any(text in message for text in ways_out), (parameter, message)


@pytest.mark.parametrize("name", dict.fromkeys(case.split()[0] for case in OTHERS))
def test_runs_and_metrics_that_do_not_exist_are_refused(tables, name):
    for case, (exists, call) in OTHERS.items():
        if case.split()[0] == name:
            message = catch_refusal(partial(call, tables))
            assert (case, NOWHERE in message, exists in message) == (case, True, True), message


def test_a_night_of_a_report_is_a_date(tables):
    assert catch_refusal(lambda: ns.report(tables.metrics, night="2026-02-01")) == (
        "night= must be a datetime.date; got '2026-02-01'."
    )


def test_the_columns_of_evaluate_are_those_of_its_options():
    assert set(COLUMNS["evaluate"][0]) <= set(OPTIONS)
