"""Metrics beside NDCG: their definitions, the same bits by every strategy and source, names and tables."""

from __future__ import annotations

import random
from functools import partial
from types import SimpleNamespace

import pytest
from pyspark.sql import functions as F
from support.arrow_rows import build_forms, choose_convention
from support.engines import collect_rows as rows_in
from support.engines import run_refused
from support.engines import table as table_of
from support.metric_definitions import DEFINITIONS, average_over_orders
from support.oracle import Choices, Row
from support.spark_rankings import Case

import ndcg_spark
from ndcg_spark.diagnosis import changed_queries
from ndcg_spark.errors import InvalidParameterError, MissingColumnError
from ndcg_spark.evaluation import evaluation_settings, summarize
from ndcg_spark.evaluation.settings import EvaluationSettings, parse_metrics
from ndcg_spark.evaluation.tasks.scoring import build_scoring_task
from ndcg_spark.metrics import parse_metric

METRICS = [
    "ndcg@3", "ap@3", "ap(denominator=hits)@3", "rr@3", "p(rel=2)@3", "r@20", "err@20", "success@1", "acg@3",
    "wap@20", "rbp", "ap_r", "cg@20",
]  # fmt: skip
ORDERED = ["bpref", "rprec(rel=2)"]
SCHEMA = "query_id string, item_id bigint, score double, relevance double"


def random_table(seed: int, *, tied: bool) -> list[tuple[str, int, float | None, float | None]]:
    """Rows of 25 queries: one without judgments, one that is judged and not retrieved, the others mixed."""
    draw, rows = random.Random(seed), []
    for query in range(25):
        n = draw.randint(1, 9)
        scores = [float(draw.randint(0, 4)) for _ in range(n)] if tied else draw.sample([x / 8 for x in range(99)], n)
        for item, score in enumerate(scores):
            relevance = None if query == 3 or draw.random() < 0.2 else draw.choice([0.0, 0.0, 1.0, 1.5, 2.0, 3.0])
            rows.append((f"q{query}", item, score, relevance))
        missing = [draw.choice([0.0, 1.0, 2.0]) for _ in range(0 if query == 3 else draw.randint(0, 3))]
        rows += [(f"q{query}", 100 + at, None, relevance) for at, relevance in enumerate(missing)]
    rows += [("missing", 0, None, 2.0), ("missing", 1, None, 0.0)]
    return rows


def groups_of(rows):
    """Relevances of the retrieved items of one query, those of one score together."""
    by_score = {}
    for _, _, score, relevance in rows:
        if score is not None:
            by_score.setdefault(score, []).append(relevance)
    return [by_score[score] for score in sorted(by_score, reverse=True)]


def defined(name: str, rows) -> dict[str, float]:
    """A metric of every query that is judged, by its definition."""
    metric, at = parse_metric(name)
    options = {field: getattr(metric, field) for field in metric.__dataclass_fields__ if field in name}
    actual = {}
    for query in {row[0] for row in rows}:
        group = [row for row in rows if row[0] == query]
        judged = [row[3] for row in group if row[3] is not None]
        if judged:
            k = 1000 if at is None else int(at)
            definition = partial(DEFINITIONS[metric.name], judged=judged, k=k, **options)
            actual[query] = average_over_orders(definition, groups_of(group))
    return actual


def values_of(evaluation) -> dict[tuple[str, str, int | None], str]:
    """Every value of every query to the last bit."""
    actual = {}
    for row in rows_in(evaluation.per_query):
        for metric in evaluation.settings.metrics:
            value = row[metric.metric.column]
            if metric.k == row["k"] and value is not None:
                actual[str(metric), row["query_id"], row["k"]] = value.hex()
    return actual


TIED = table_of(random_table(1, tied=True), SCHEMA)


@pytest.mark.classic("Python workers read files themselves")
@pytest.mark.parametrize(
    ("convention", "tied", "metrics"),
    [("default", True, METRICS), ("default;ties=item_asc", False, [*METRICS, *ORDERED])],
    ids=["expected", "in order"],
)
def test_every_strategy_and_source_gives_the_bits_of_the_definition(spark, tmp_path, convention, tied, metrics):
    rows = random_table(1 if tied else 2, tied=tied)
    table = spark.createDataFrame(rows, SCHEMA)
    table.coalesce(1).write.parquet(str(tmp_path / "table"))
    table.orderBy("query_id").coalesce(1).write.parquet(str(tmp_path / "sorted"))
    run = table.where("score is not null").drop("relevance")
    judgments = table.where("relevance is not null").drop("score")
    evaluate = partial(ndcg_spark.evaluate, metrics=metrics, convention=convention, null_score="unretrieved")
    actual = {
        "Spark": evaluate(table),
        "seven partitions": evaluate(table.repartition(7, F.rand(3))),
        "window": evaluate(table, strategy="window"),
        "files": evaluate(str(tmp_path / "table"), source="parquet"),
        "sorted files": evaluate(str(tmp_path / "sorted"), source="parquet"),
        "judgments": evaluate(run, judgments=judgments),
        "judgments, window": evaluate(run, judgments=judgments, strategy="window"),
    }
    values = {name: values_of(evaluation) for name, evaluation in actual.items()}
    means = {
        name: {(row["metric"], row["k"]): row["value"] for row in evaluation.summary.collect()}
        for name, evaluation in actual.items()
    }
    assert len({str(sorted(value.items())) for value in values.values()}) == 1
    assert len({str(sorted(mean.items(), key=str)) for mean in means.values()}) == 1
    for name in metrics[1:]:
        wanted = defined(name, rows)
        k = actual["Spark"].settings.metrics[metrics.index(name)].k
        got = {query: float.fromhex(value) for (one, query, _), value in values["Spark"].items() if one == name}
        assert got == pytest.approx(wanted, abs=1e-13), name
        mean = means["Spark"][str(parse_metric(name)[0]), k]
        assert mean == pytest.approx(sum(wanted.values()) / len(wanted), abs=1e-13), name


def test_gains_are_null_at_cutoffs_at_which_none_of_them_was_asked_for(engine):
    """Three metrics at three cutoffs: each column of the per-query table has values at its own cutoffs alone.

    The means stay: of queries that count by their status, whether NDCG is there or not. By hand for AP: q has its
    relevant item second, AP 1/2; p has nothing relevant and is left out; r is not judged, and dropped.
    """
    gains, ties = ("ndcg", "dcg", "idcg"), ("ndcg_best", "ndcg_worst", "tied_share")
    settings = {"metrics": ["ndcg@2", "dcg@3", "ap@5"], "tie_bounds": True, "convention": "default;no_relevant=skip"}
    rows = [("q", 1, 0.9, 0.0), ("q", 2, 0.8, 1.0), ("p", 1, 0.9, 0.0), ("r", 1, 0.5, None)]
    evaluation = ndcg_spark.evaluate(table_of(rows, SCHEMA), **settings, **engine)
    per_query = {(row["query_id"], row["k"]): row for row in rows_in(evaluation.per_query)}
    assert len(per_query) == 9
    for (query, k), row in per_query.items():
        if k == 5:
            assert {row[name] for name in (*gains, *ties)} == {None}
            assert row["ap"] == {"q": 0.5, "p": 0.0, "r": None}[query]
        else:
            assert row["ap"] is None
            assert (row["dcg"] is None) == (query == "r")
            assert (row["ndcg"] is None) == (row["ndcg_best"] is None) == (query != "q")
    means = {(row["metric"], row["k"]): row for row in rows_in(evaluation.summary)}
    assert (means["ap", 5]["value"], means["ap", 5]["n_queries"]) == (0.5, 1)
    counts = [(row["n_no_relevant"], row["n_unjudged"], row["n_rows"], row["n_left_out"]) for row in means.values()]
    assert set(counts) == {(1, 1, 3, 1)}
    if engine["engine"] == "spark":
        again = rows_in(summarize(evaluation.per_query, evaluation.settings))
        assert {(row["metric"], row["k"]): row for row in again} == means


def test_what_ties_decide_is_asked_for_by_name():
    """By hand: two tied items, one of them relevant, and k=1; a query without ties; one that nobody has judged.

    The share of tied items is one of the ranking: without judgments, too.
    """
    rows = [("q", 1, 0.9, 0.0), ("q", 2, 0.9, 1.0), ("p", 1, 0.9, 1.0), ("p", 2, 0.8, 0.0)]
    table = table_of([*rows, ("u", 1, 0.9, None), ("u", 2, 0.9, None)], SCHEMA)
    names = ("ndcg", "ndcg_best", "ndcg_worst", "tied_share")
    for rule in ("zero", "skip"):
        evaluation = ndcg_spark.evaluate(
            table,
            metrics=[f"{name}@1" for name in names[1:]],
            convention=f"default;unjudged_query=zero;no_relevant={rule}",
        )
        values = {row["query_id"]: tuple(row[name] for name in names) for row in rows_in(evaluation.per_query)}
        assert values == {"q": (0.5, 1.0, 0.0, 1.0), "p": (1.0, 1.0, 1.0, 0.0), "u": (0.0, 0.0, 0.0, 1.0)}
        means = {row["metric"]: row["value"] for row in rows_in(evaluation.summary)}
        assert means == pytest.approx({"ndcg_best": 2 / 3, "ndcg_worst": 1 / 3, "tied_share": 2 / 3}, abs=1e-15)


def test_comparisons_are_of_the_cutoffs_at_which_a_metric_was_asked_for(spark):
    """Without --k all cutoffs of a table are compared at which the metric has a value. Changed queries: likewise."""
    rows = [("a", "q", 1, 0.9, 0.0), ("a", "q", 2, 0.8, 1.0), ("b", "q", 1, 0.1, 0.0), ("b", "q", 2, 0.8, 1.0)]
    table = spark.createDataFrame(rows, "ranker string, " + SCHEMA)
    evaluation = ndcg_spark.evaluate(table, run="ranker", metrics=["ndcg@1", "ndcg@2", "ap@5"])
    for runs in (evaluation.per_query, evaluation):
        compared = ndcg_spark.compare(
            runs, baseline="a", metrics=["ndcg", "ap"], runs=["a", "b"], replicates=0, flips=0
        ).summary
        seen = {(row["metric"], row["k"]): (row["n_queries"], row["difference"]) for row in compared.collect()}
        third = 0.6309297535714575
        assert seen == {("ndcg", 1): (1, 1.0), ("ndcg", 2): (1, 1.0 - third), ("ap", 5): (1, 0.5)}
    changed = changed_queries(evaluation, baseline="a", run="b").collect()
    assert [(row["metric"], row["k"], row["difference"]) for row in changed] == [("ndcg", 2, 1.0 - third)]
    with pytest.raises(InvalidParameterError, match=r"'ndcg' was evaluated at k=1, 2; got k=5"):
        changed_queries(evaluation, baseline="a", run="b", k=5)
    with pytest.raises(InvalidParameterError, match="metric must be one of"):
        changed_queries(ndcg_spark.evaluate(table, run="ranker", metrics="ap"), baseline="a", run="b")


def test_comparisons_leave_out_the_queries_that_no_mean_has(spark):
    """By `no_relevant=skip` the second query is in no mean: success@1 is 1 and 0, not 1/2 and 0."""
    rows = [("a", "q", 1, 0.9, 1.0), ("a", "q", 2, 0.8, 0.0), ("b", "q", 1, 0.1, 1.0), ("b", "q", 2, 0.8, 0.0)]
    rows += [(run, "nothing", 1, 0.5, 0.0) for run in ("a", "b")]
    table = spark.createDataFrame(rows, "ranker string, " + SCHEMA)
    convention = "default;no_relevant=skip"
    for metrics in (["success@1"], ["success@1", "ndcg@1"]):
        evaluation = ndcg_spark.evaluate(table, run="ranker", metrics=metrics, convention=convention)
        told = {"convention": convention} if len(metrics) == 1 else {}  # NDCG beside it shows the rule
        for runs, more in ((evaluation, {}), (evaluation.per_query, {"metrics": "success", **told})):
            compared = ndcg_spark.compare(runs, baseline="a", runs=["a", "b"], replicates=0, flips=0, **more).summary
            (row,) = compared.where("metric = 'success'").collect()
            assert (row["baseline_value"], row["value"], row["n_queries"], row["n_skipped"]) == (1.0, 0.0, 1, 1)


def test_every_form_has_the_bits_of_the_long_table():
    """A run and judgments, given ranks, and arrays as well."""
    rows = [Row(query=query, item=item, score=score, relevance=relevance)
            for query, item, score, relevance in random_table(2, tied=False)]  # fmt: skip
    choices, (metrics, cutoffs) = Choices(ties="item_asc"), parse_metrics([*METRICS, *ORDERED])
    actual = {}
    for form, tables, columns in build_forms(rows, choices):
        missing = {"null_score": "unretrieved"} if form in ("long", "rank") else {}
        settings = EvaluationSettings(columns=columns, convention=choose_convention(columns, choices),
                                      metrics=metrics, cutoffs=cutoffs, **missing)  # fmt: skip
        case = Case(data=tables["input"], judgments=tables.get("judgments"), settings=settings)
        actual[form] = values_of(SimpleNamespace(per_query=case.ranking_here().per_query(), settings=settings))
    assert len(actual) == 6
    assert len(actual["long"]) > 300
    assert [form for form in actual if actual[form] != actual["long"]] == []


def test_best_and_worst_orders_bound_the_expected_value():
    metrics, actual = ["ap@3", "rr@3", "err@20", "p@3", "success@1"], {}
    for ties in ("worst", "expected", "best"):
        evaluation = ndcg_spark.evaluate(
            TIED, metrics=metrics, convention=f"default;ties={ties}", null_score="unretrieved"
        )
        actual[ties] = {key: float.fromhex(value) for key, value in values_of(evaluation).items()}
    assert all(
        actual["worst"][key] <= actual["expected"][key] + 1e-15 <= actual["best"][key] + 2e-15
        for key in actual["best"]
    )
    assert sum(actual["worst"].values()) < sum(actual["expected"].values()) < sum(actual["best"].values())


def test_the_summary_has_the_metrics_that_were_asked_for_and_dcg_beside_ndcg():
    summary = ndcg_spark.evaluate(TIED, metrics="ndcg@3,P(rel=2)@5,r@5,ap", null_score="unretrieved").summary
    actual = {(row["metric"], row["k"]) for row in rows_in(summary)}
    assert actual == {("ndcg", 3), ("dcg", 3), ("idcg", 3), ("p(rel=2)", 5), ("r", 5), ("ap", None)}


def test_names_without_a_cutoff_take_those_of_k():
    settings = evaluation_settings(metrics=["ap", "p@3", "ap_r"], k=[1, 5])
    assert [str(metric) for metric in settings.metrics] == ["ap@1", "ap@5", "p@3", "ap_r"]
    assert settings.cutoffs == (1, 3, 5, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metrics": ["ap@3"], "tie_bounds": True}, "tie bounds need ndcg"),
        ({"metrics": ["rprec"]}, "metric 'rprec' needs an order of tied items, but ties=expected has none"),
        ({"metrics": []}, "metrics must name at least one"),
        ({"metrics": ["ap@0"]}, "k must be a positive whole number"),
        ({"metrics": ["p_rel_2@5", "ap"]}, "unknown metric 'p_rel_2'"),
        ({"metrics": ["p(rel=2)@5"], "segments": ["p_rel_2"]}, "'p_rel_2' has a reserved name"),
    ],
)
def test_what_cannot_be_computed_is_refused_before_anything_runs(options, message):
    with pytest.raises(InvalidParameterError) as raised:
        ndcg_spark.evaluate(TIED, **options)
    assert message in str(raised.value)


def test_a_relevance_above_the_highest_grade_is_refused_by_name(engine):
    data = table_of([("a", 1, 1.0, 1.0), ("b", 1, 1.0, 5.0)], SCHEMA)
    said = run_refused(ndcg_spark.evaluate(data, metrics=["err@5"], **engine))
    assert said == "query query_id=b has relevance 5, above max_grade 4 (metric err@5)."


def ranked_and_judged(run: list[tuple], judged: list[tuple], value: str):
    return (
        table_of(run, f"query_id string, item_id int, {value}"),
        table_of(judged, "query_id string, item_id int, relevance double"),
    )


@pytest.mark.parametrize("engine", ["local", "window"], indirect=True)
def test_items_on_given_ranks_beyond_the_cutoff_play_no_part(engine):
    """The item on rank 50 is not judged, and beyond the only cutoff; with another cutoff it is not beyond it."""
    run, judged = [("a", 1, 1), ("a", 2, 2), ("a", 3, 50)], [("a", 1, 1.0), ("a", 2, 0.0), ("b", 1, 1.0)]
    tables = ranked_and_judged(run, judged, "rank int")
    for metrics, rules in (
        (["rbp_residual@10"], "ideal=retrieved;unjudged=error;"),
        (["rbp_residual@10", "p@100"], ""),
    ):
        convention = f"default;{rules}missing_query=drop"
        evaluation = ndcg_spark.evaluate(*tables, rank="rank", metrics=metrics, convention=convention, **engine)
        (row,) = rows_in(evaluation.summary, "rbp_residual")
        assert row["value"] == pytest.approx(1 - 0.2 * (1 + 0.8), abs=1e-15)


@pytest.mark.parametrize("engine", ["local", "window"], indirect=True)
def test_the_judged_share_of_lists_that_are_short_empty_or_have_gaps(engine):
    """a: two of 50 ranks have a judged item, two of the first 10 and of the first 3; b has no list; c is not judged.

    A gap is a rank without a judged item, as it is one without a relevant item to `p`.
    """
    run = [("a", 1, 1), ("a", 2, 3), ("a", 3, 50), ("c", 1, 1)]
    tables = ranked_and_judged(run, [("a", 1, 1.0), ("a", 2, 0.0), ("b", 1, 1.0)], "rank int")
    evaluation = ndcg_spark.evaluate(
        *tables, rank="rank", metrics=["judged@3", "judged@10", "judged@50"],
        convention="default;unjudged_query=zero", **engine,
    )  # fmt: skip
    values = {(row["query_id"], row["k"]): row["judged"] for row in rows_in(evaluation.per_query)}
    assert values == {("a", 3): 2 / 3, ("a", 10): 0.2, ("a", 50): 0.04, ("b", 3): None, ("b", 10): None,
                      ("b", 50): None, ("c", 3): 0.0, ("c", 10): 0.0, ("c", 50): 0.0}  # fmt: skip
    means = {row["k"]: (row["value"], row["n_queries"]) for row in rows_in(evaluation.summary)}
    assert means == {3: (1 / 3, 2), 10: (0.1, 2), 50: (0.02, 2)}


@pytest.mark.parametrize("engine", ["local", "window"], indirect=True)
def test_a_query_without_judgments_has_the_whole_residual(engine):
    """By its definition, 0.8^2 + 0.2 (1 + 0.8) = 1: nothing is known of q, where 0 would say that all is."""
    run = [("q", 1, 2.0), ("q", 2, 1.0), ("r", 1, 1.0)]
    tables = ranked_and_judged(run, [("r", 1, 1.0), ("m", 1, 1.0)], "score double")
    evaluation = ndcg_spark.evaluate(
        *tables, metrics=["rbp@3", "rbp_residual@3"], convention="default;unjudged_query=zero", **engine
    )
    values = {row["query_id"]: (row["rbp"], row["rbp_residual"]) for row in rows_in(evaluation.per_query)}
    assert values == {
        "q": (0.0, 1.0),
        "r": (pytest.approx(0.2, abs=1e-15), pytest.approx(0.8, abs=1e-15)),
        "m": (0.0, 0.0),
    }


def test_rankings_of_a_plan_without_the_metrics_are_refused():
    settings = evaluation_settings(metrics="r@5")
    with pytest.raises(MissingColumnError, match="rankings lack column n_at_least"):
        build_scoring_task(["run", "query_id", "n_items", "n_judged", "ranked", "ideal"], settings)
