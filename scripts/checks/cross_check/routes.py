"""One question by every route that can answer it: the same bits, or the same refusal.

A seed draws rankings of two runs (ties, nulls, missing and unjudged queries, weights, segments, bad rows), a
convention and metrics; questions.py says more. Asked are the means, per run and segment, or the metrics of queries.
The question is put to `evaluate` on paths, DataFrames, catalog tables, arrays, lists of items, given ranks, score
columns, and run + judgments, by each source, strategy and engine; and to the oracle, within 1e-12. That of means is
also put to the job (JSON, metric table, per-query table); to sums of the per-query table by `math.fsum`; to
`compare`, from rankings and from per-query tables; to `merge_summaries` of random splits; to a roll-up of one night;
to the report; to `NdcgEvaluator`; and to `ndcg_spark.functions`, within 1e-12. A route that does not support an
option of the question says why and is skipped.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from support import oracle
from support.main_job import run_command
from support.oracle import Choices

import ndcg_spark
from ndcg_spark import functions
from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import NdcgSparkError, find_refusal
from ndcg_spark.evaluation import summarize
from ndcg_spark.history import roll_up
from ndcg_spark.metrics import parse_metric
from ndcg_spark.ml import NdcgEvaluator
from scripts.checks.cross_check.questions import NIGHT, RUNS, Question

Key = tuple[str | int | None, ...]
"""Run, segment_by, segment, metric, k; or run, query, metric or count, k."""
Answer = dict[Key, Any]
Rule = Callable[[Question], str | None]
"""Why a route cannot be asked a question."""
REASONS = re.compile(r"nan_score|null_query|null_item|appears (?:twice|\d+ times)")
REFUSED = "refused: "
VALUES = ("dcg", "idcg", "ndcg")
FACTS = ("status", "n_items", "n_judged", "n_relevant")
ROWS = ("n_rows", "n_left_out")
"""Counts of what a table has, which the definition does not know."""


class RefusedError(Exception):
    """Refusal of a question by a route, with the reasons."""


@dataclass
class RouteContext:
    """A question in a session, with the evaluations that several routes share."""

    spark: SparkSession
    question: Question
    engine: str = "spark"

    def frame(self, name: str) -> Any:
        """Return a table of the question for the engine: a cached DataFrame, or an Arrow table."""
        return self.given(getattr(self.question, name))

    def given(self, table: pa.Table) -> Any:
        """Convert a table for the engine."""
        return table if self.engine == "local" else self.spark.createDataFrame(table)

    def evaluation(self, data: Any, judgments: Any = None, **options: Any) -> Any:
        """`evaluate` with the options of the question."""
        options = {**self.question.options, "engine": self.engine, **options}
        return ndcg_spark.evaluate(data, judgments=judgments, **options)

    def answer(self, evaluation: Any) -> Answer:
        """Extract the answer to the question from an evaluation."""
        return of_queries(evaluation.per_query) if self.question.per_query else means(evaluation.summary)

    @cached_property
    def plain(self) -> Any:
        """Evaluation that other routes start from."""
        return self.evaluation(self.frame("long"), **LONG)

    @cached_property
    def summary(self) -> DataFrame:
        """Its means, computed once."""
        rows = self.plain.summary.collect()
        return self.spark.createDataFrame(rows, self.plain.summary.schema)

    @cached_property
    def per_query(self) -> DataFrame:
        """Its metrics of queries, computed once."""
        rows = self.plain.per_query.collect()
        return self.spark.createDataFrame(rows, self.plain.per_query.schema)

    @cached_property
    def job(self) -> Mapping[str, Any]:
        """JSON of the nightly job, which also writes `metrics` and `per_query`."""
        folder = self.question.folder
        path = self.question.write("long", self.question.long)
        return run_job(
            *("mean-ndcg", "--input", path, "--run-col", "ranker", "--null-score", "unretrieved"),
            *("--run-date", NIGHT, "--dataset", "routes", "--json", "-", *self.question.flags),
            *("--output", folder / "metrics", "--per-query-output", folder / "per_query"),
        )

    def written(self, name: str) -> DataFrame:
        """Read a table that the job wrote."""
        _ = self.job
        return self.spark.read.parquet(str(self.question.folder / name))


def run_job(*arguments: object) -> Mapping[str, Any]:
    """Run a job in this process; returns its JSON."""
    ended = run_command(*arguments)
    if ended.code == 2:
        raise RefusedError(ended.err)
    if ended.code != 0:
        raise AssertionError(f"{arguments[0]} ended with {ended.code}: {ended.err}")
    return ended.json if "--json" in arguments else {}


LONG: Mapping[str, Any] = {"run": "ranker", "null_score": "unretrieved"}


def means(rows: Iterable[Any] | DataFrame | pa.Table) -> Answer:
    """Convert rows of a summary to an answer."""
    return {
        (row["run"], row["segment_by"], row["segment"], row["metric"], row["k"]): row["value"]
        for row in read_rows(rows)
    }


def of_queries(rows: DataFrame | pa.Table) -> Answer:
    """Metrics, status and counts of each query as an answer."""
    return {
        (row["run"], row["query_id"], name, row["k"]): row[name]
        for row in read_rows(rows)
        for name in (*VALUES, *FACTS)
    }


def read_rows(table: Iterable[Any] | DataFrame | pa.Table) -> Iterable[Any]:
    """Return the rows of a table of either engine."""
    if isinstance(table, pa.Table):
        return table.to_pylist()
    return table.collect() if isinstance(table, DataFrame) else table


# ---------------------------------------------------------------------------------------------------- evaluate


@dataclass(frozen=True)
class Form:
    """Table form of the rows, and the options that read it."""

    table: str
    ways: tuple[str, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    why_not: tuple[Rule, ...] = ()
    judged: bool = False
    """Whether the judgments are a table of their own."""
    alone: bool = False
    """Whether each run is a table of its own, without a column that names it."""
    without: tuple[str, ...] = ()
    """Columns of the table that it does not have."""


def evaluate_form(context: RouteContext, form: Form, source: str) -> Answer:
    """Evaluate the rows in one of their forms, by one of the ways."""
    table = getattr(context.question, form.table).drop_columns(list(form.without))
    if not form.alone:
        return context.answer(evaluate_table(context, form, source, table, form.table))
    answer: Answer = {}
    for number, run in enumerate(context.question.runs):
        rows = table.filter(pc.equal(table["ranker"], run)).drop_columns(["ranker"])
        values = context.answer(evaluate_table(context, form, source, rows, f"{form.table}-{number}"))
        answer |= {(run, *key[1:]): value for key, value in values.items()}
    return answer


def evaluate_table(context: RouteContext, form: Form, source: str, table: pa.Table, name: str) -> Any:
    """Evaluate one table."""
    options = {**form.options, **WAYS[source]}
    if context.question.choices.ties == "input_order" and "rank" not in options:
        options["order"] = "position"
    data = context.given(table)
    if "files" in source:
        by_query = "sorted" in source
        data = context.question.write(f"{name}-sorted" if by_query else name, table, by_query=by_query)
    return context.evaluation(data, context.frame("judgments") if form.judged else None, **options)


WAYS: Mapping[str, Mapping[str, Any]] = {
    "table": {},
    "window": {"strategy": "window"},
    "files": {},
    "files by workers": {"source": "parquet"},
    "files by Spark": {"source": "spark"},
    "sorted files": {},
    "local table": {},
    "local files": {},
    "local sorted files": {},
}
ON_SPARK = ("table", "window", "files by workers", "files by Spark", "sorted files")
LOCAL = ("local table", "local files", "local sorted files")


def catalog_table(context: RouteContext) -> Answer:
    name = f"routes_{context.question.seed}"
    context.frame("long").write.mode("overwrite").saveAsTable(name)
    try:
        return context.answer(context.evaluation(context.spark.table(name), **LONG))
    finally:
        context.spark.sql(f"DROP TABLE {name}")


def definition(context: RouteContext) -> Answer:
    """Loops in Python that a reader can check."""
    question, answer = context.question, {}
    cutoffs = [split_metric(metric)[1] for metric in question.metrics if metric.startswith("ndcg")]
    for run, rows in question.runs.items():
        results = oracle.evaluate(rows, question.choices, cutoffs)
        if question.per_query:
            for (query, k), result in results.items():
                answer |= {(run, str(query), name, k): getattr(result, name) for name in (*VALUES, *FACTS)}
        else:
            counted = {
                key: metric for key, metric in results.items() if metric.ndcg is not None
            }  # in the mean of any metric
            means_by_metric = {(name, k): oracle.mean(counted, k, name) for name in VALUES for k in cutoffs}
            answer |= {
                (run, "", "", name, k): value for (name, k), value in means_by_metric.items() if value is not None
            }
    return answer


# -------------------------------------------------------------------------------------------------------- jobs


def job_json(context: RouteContext) -> Answer:
    return means(context.job["metrics"])


def job_metric_table(context: RouteContext) -> Answer:
    return means(context.written("metrics").collect())


def run_job_on_csv(context: RouteContext) -> Answer:
    """Text of which the job makes numbers."""
    path = context.question.folder / "long.csv"
    pyarrow.csv.write_csv(context.question.long, path)
    ended = run_job(
        *("mean-ndcg", "--input", path, "--run-col", "ranker", "--null-score", "unretrieved", "--json", "-"),
        *context.question.flags,
    )
    return means(ended["metrics"])


def run_job_on_query(context: RouteContext) -> Answer:
    """Run the job on a SQL query and a judgments table."""
    context.frame("retrieved").createOrReplaceTempView("retrieved")
    context.frame("judgments").createOrReplaceTempView("judgments")
    ended = run_job(
        *("mean-ndcg", "--input", "SELECT * FROM retrieved", "--judgments", "judgments", "--run-col", "ranker"),
        *("--dataset", "routes", "--json", "-", *context.question.flags),
    )
    return means(ended["metrics"])


def report_page(context: RouteContext) -> Answer:
    """Return the means in the contents of a report, before the page rounds them."""
    page = ndcg_spark.report(context.written("metrics"), runs=RUNS, metric=context.question.metrics[0])
    name, k = split_metric(context.question.metrics[0])
    return {(standing.mean.run, "", "", name, k): standing.mean.value for standing in page.contents.results}


def roll_up_of_one_night(context: RouteContext) -> Answer:
    rows = roll_up(context.written("metrics")).where("period = 'month'").collect()
    return means(rows)


# --------------------------------------------------------------------------------------------- from what is stored


def merge_splits(context: RouteContext) -> Answer:
    """Split queries at random into three parts, summarize each, and merge the summaries."""
    draw = random.Random(context.question.seed)
    split = F.pmod(F.xxhash64(F.col("query_id"), F.lit(draw.random())), F.lit(3))
    summaries = [summarize(context.per_query.where(split == number), context.plain.settings) for number in range(3)]
    return means(ndcg_spark.merge_summaries(reduce(DataFrame.unionByName, summaries)).collect())


def sums_of_queries(context: RouteContext) -> Answer:
    """Means of the per-query table, by `math.fsum`; by fractions where queries have weights."""
    return average_queries(context.per_query, context.question)


def sums_of_stored_queries(context: RouteContext) -> Answer:
    return average_queries(context.written("per_query"), context.question)


def average_queries(table: DataFrame, question: Question) -> Answer:
    values: dict[Key, list[tuple[float, float]]] = {}
    columns = {
        str(parse_metric(metric_text)[0]): parse_metric(metric_text)[0].column for metric_text in question.metrics
    }
    columns |= {"dcg": "dcg", "idcg": "idcg"}
    requested = {split_metric(metric_text) for metric_text in question.metrics}
    requested |= {(name, k) for metric, k in requested if metric == "ndcg" for name in ("dcg", "idcg")}
    for row in table.collect():
        if row["ndcg"] is None:  # which queries count is decided for all metrics alike
            continue
        for metric, k in requested:
            value = row[columns[metric]]
            if k != row["k"] or value is None:
                continue
            for segment_by, segment in list_groups(row, question.segments):
                weight = row["weight"] if question.is_weighted else 1.0
                values.setdefault((row["run"], segment_by, segment, metric, k), []).append((value, weight))
    return {key: compute_mean(query_values, weighted=question.is_weighted) for key, query_values in values.items()}


def compute_mean(values: list[tuple[float, float]], *, weighted: bool) -> float | None:
    if not weighted:
        return math.fsum(value for value, _ in values) / len(values)
    total = sum(Fraction(weight) for _, weight in values)
    return float(sum(Fraction(value) * Fraction(weight) for value, weight in values) / total) if total else None


def list_groups(row: Any, segments: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    yield "", ""
    for segment_columns in segments:
        names = segment_columns.split("+")
        segment_values = [row[name] for name in names]
        text = [value if value is None else str(value) for value in segment_values]
        yield (
            segment_columns,
            text[0] if len(names) == 1 else json.dumps(text, ensure_ascii=False, separators=(",", ":")),
        )


def compare_results(context: RouteContext) -> Answer:
    return both_sides(ndcg_spark.compare(context.plain, baseline=RUNS[0]).summary, context.question)


def compare_tables(context: RouteContext) -> Answer:
    table = context.written("per_query") if context.engine == "spark" else context.plain.per_query_table
    weight = {"weight": "weight"} if context.question.is_weighted else {}
    comparison = ndcg_spark.compare(
        table, baseline=RUNS[0], segments=context.question.segments,
        metrics=list(context.question.metrics), convention=context.question.convention, **weight,
    ).summary  # fmt: skip
    return both_sides(comparison, context.question)


def both_sides(comparison: DataFrame | pa.Table, question: Question) -> Answer:
    """Values of both runs, where each query is in both: otherwise the means are of other queries."""
    answer: Answer = {}
    for row in read_rows(comparison):
        if row["n_only_run"] or row["n_only_baseline"] or row["n_skipped"]:
            continue
        key = (row["segment_by"], row["segment"], row["metric"], row["k"])
        answer[(row["run"], *key)] = row["value"]
        answer[(row["baseline"], *key)] = row["baseline_value"]
    return answer


def ml_evaluator(context: RouteContext) -> Answer:
    """`NdcgEvaluator`, one run and one metric at a time."""
    name, k = split_metric(context.question.metrics[0])
    evaluator = NdcgEvaluator(
        predictionCol="score", labelCol="relevance", metricName=context.question.metrics[0],
        convention=context.question.convention, missingPrediction="unretrieved",
    )  # fmt: skip
    return {
        (run, "", "", name, k): evaluator.evaluate(context.frame("long").where(F.col("ranker") == run))
        for run in context.question.runs
    }


def explain_difference_first(context: RouteContext) -> Answer:
    """Return the first value of `explain_difference`, at one cutoff."""
    name, k = split_metric(context.question.metrics[0])
    options = {key: value for key, value in context.question.options.items() if key not in ("metrics", "segments")}
    explanation = ndcg_spark.explain_difference(
        context.frame("long"), options.pop("convention"), "sklearn", k="all" if k is None else k, **LONG, **options
    )
    return {(row["run"], "", "", name, k): row["value"] for row in explanation.steps.where("step = 0").collect()}


def aggregates(context: RouteContext) -> Answer:
    """`ndcg_spark.functions` in `groupBy(...).agg(...)`; which queries count is decided here, as users would."""
    choices = context.question.choices
    score, relevance = F.col("score"), F.col("relevance")
    if choices.unjudged == "condensed":
        score = F.when(relevance.isNotNull(), score)
    ideal = F.when(score.isNotNull(), relevance) if choices.ideal == "retrieved" else relevance

    def value(name: str, k: int | str, options: Mapping[str, Any]) -> Column:
        made = getattr(functions, f"{name}_at")
        return made(score, ideal if name == "ndcg" else relevance, k=k, ties=choices.ties, **options)

    return means_of_functions(context, context.frame("long").groupBy("ranker", "query_id"), value)


def array_functions(context: RouteContext) -> Answer:
    """`ndcg_spark.functions` of arrays of relevances in rank order."""
    choices = context.question.choices
    ranked = F.filter("ranked", lambda one: one.isNotNull()) if choices.unjudged == "condensed" else F.col("ranked")

    def value(name: str, k: int | str, options: Mapping[str, Any]) -> Column:
        made = getattr(functions, name)
        if name not in ("ndcg", "recall", "average_precision"):
            return F.first(made(ranked, k=k, **options))
        ideal = F.filter("ranked", lambda one: one.isNotNull()) if choices.ideal == "retrieved" else F.col("judged")
        return F.first(made(ranked, ideal if name == "ndcg" else F.col("judged"), k=k, **options))

    table = context.frame("arrays").withColumn("relevance", F.get("judged", F.lit(0)))
    table = table.withColumn("score", F.when(F.size("ranked") > 0, 1.0))
    return means_of_functions(context, table.groupBy("ranker", "query_id"), value)


NAMED = {"ap": "average_precision", "rr": "reciprocal_rank", "p": "precision", "r": "recall"}
"""Metrics, as functions are called."""


def means_of_functions(
    context: RouteContext, groups: Any, value: Callable[[str, int | str, Mapping[str, Any]], Column]
) -> Answer:
    """Means over the values of queries; `score` and `relevance` of a group tell what it has."""
    choices, columns = context.question.choices, {}
    for metric_text in context.question.metrics:
        metric, cutoff = parse_metric(metric_text)
        options: dict[str, Any] = {"gain": choices.gain, "no_relevant": "skip"}
        if metric.name == "ndcg" and choices.no_relevant != "skip":  # else DCG, too, is left out where NDCG is
            columns["dcg", split_metric(metric_text)[1]] = value("dcg", cutoff or "all", {"gain": choices.gain})
        if metric.name in NAMED:
            options = {"rel": metric.rel}  # type: ignore[attr-defined]  # those that are named have it
        if metric.name in ("ndcg", *NAMED):
            columns[split_metric(metric_text)] = value(NAMED.get(metric.name, metric.name), cutoff or "all", options)
    named = {f"m{cutoff}": key for cutoff, key in enumerate(columns)}
    counts = [F.count("relevance").alias("n_judged"), F.count("score").alias("n_items")]
    rows = groups.agg(
        *counts, *[column.alias(f"m{cutoff}") for cutoff, column in enumerate(columns.values())]
    ).collect()
    values: dict[Key, list[float]] = {}
    for row in rows:
        for name, (metric, k) in named.items():
            query_value = get_query_value(row, name, metric, choices)
            if query_value is not None:
                values.setdefault((row["ranker"], "", "", metric, k), []).append(query_value)
    return {key: math.fsum(query_values) / len(query_values) for key, query_values in values.items()}


def get_query_value(row: Any, name: str, metric: str, choices: Choices) -> float | None:
    """Return the value of a query in the mean; None if it does not count."""
    if row["n_judged"] == 0 or row["n_items"] == 0:
        rule = choices.unjudged_query if row["n_judged"] == 0 else choices.missing_query
        return 0.0 if rule == "zero" else None
    nothing = {"zero": 0.0, "one": 1.0, "skip": None}[choices.no_relevant]
    return row[name] if row[name] is not None else nothing if metric == "ndcg" else 0.0


def split_metric(metric: str) -> tuple[str, int | None]:
    """Split `ndcg@10` into its name and cutoff."""
    parsed, cutoff = parse_metric(metric)
    return str(parsed), None if cutoff in (None, "all") else int(cutoff)


# ------------------------------------------------------------------------------------------------------ routes


def means_alone(question: Question) -> str | None:
    return "has means alone" if question.per_query else None


def needs_order(question: Question) -> str | None:
    return None if question.has_order else "tied items have no ranks"


def no_order(question: Question) -> str | None:
    return "has no order of the input" if question.choices.ties == "input_order" else None


def no_repeats(question: Question) -> str | None:
    return "items come once in this table" if question.has_repeats else None


def no_bad_rows(question: Question) -> str | None:
    return "the bad row is none in this table" if question.bad else None


def by_spark_alone(question: Question) -> str | None:
    return "Spark alone looks for duplicates among all rows" if question.check == "all" else None


def text_items(question: Question) -> str | None:
    is_text = all(isinstance(row.item, str) for rows in question.runs.values() for row in rows)
    return None if is_text else "items of csv are text, which sorts otherwise than numbers"


def no_weight(question: Question) -> str | None:
    return "takes no weights" if question.is_weighted else None


def fails_on_bad_rows(question: Question) -> str | None:
    return "leaves no bad rows out" if question.on_invalid == "reject" else None


def takes_nan_as_null(question: Question) -> str | None:
    return "NaN of a table in memory is null" if question.bad == "nan_score" else None


def takes_nan_as_no_prediction(question: Question) -> str | None:
    return "takes NaN as no prediction" if question.bad == "nan_score" else None


def skips_queries(question: Question) -> str | None:
    """With `no_relevant=skip` other metrics leave out the queries that NDCG leaves out."""
    alone = all(metric.startswith("ndcg") for metric in question.metrics)
    return None if alone or question.choices.no_relevant != "skip" else "other metrics keep queries that NDCG skips"


def groups_ties(question: Question) -> str | None:
    if question.choices.score_precision == "float32":
        return "an aggregate compares scores as they are"
    return "an aggregate has no order of items" if question.has_order else None


@dataclass(frozen=True)
class Route:
    """One way to compute an answer."""

    name: str
    answer: Callable[[RouteContext], Answer]
    why_not: tuple[Rule, ...] = (means_alone,)
    is_whole: bool = True
    """Whether the answer has everything that is asked; otherwise what it has is compared."""
    tolerance: float = 0.0
    """Relative; of sums in floating point."""
    absolute: float = 0.0
    """Of values near 0, which are differences of larger ones."""
    engine: str = "spark"
    form: str = ""

    def skipped(self, question: Question) -> str | None:
        """Return the reason why the route cannot answer the question."""
        return next((why for reason_for in self.why_not if (why := reason_for(question))), None)

    def is_held_against(self, question: Question) -> str:
        """Check whether routes must agree: all do, except that each form treats repeated items in its own way."""
        return self.form if question.has_repeats else ""


FORMS = {
    "long": Form("long", (*ON_SPARK[:-1], *LOCAL), LONG),
    "each run": Form("long", (*ON_SPARK, *LOCAL), {"null_score": "unretrieved"}, why_not=(no_bad_rows,), alone=True),
    "run + judgments": Form("retrieved", (*ON_SPARK, *LOCAL), {"run": "ranker"}, judged=True),
    "ranks": Form(
        "ranked",
        ("table", "window", "files", "local table", "local files"),
        {"rank": "rank", **LONG},
        (needs_order, no_bad_rows, no_repeats),
    ),
    "ranks + judgments": Form(
        "ranked_run",
        ("table", "window", "files", "local table", "local files"),
        {"rank": "rank", "run": "ranker"},
        (needs_order, no_bad_rows, no_repeats),
        judged=True,
    ),
    "arrays": Form(
        "arrays",
        ("table", "local table"),
        {"run": "ranker", "relevance": "ranked", "ideal": "judged", "item": None},
        (needs_order, no_order, no_bad_rows, no_repeats),
    ),
    "lists with scores": Form(
        "lists",
        ("table", "local table"),
        {"run": "ranker", "ranked": "scored", "relevant": "judged"},
        (no_order, no_bad_rows, no_repeats),
    ),
    "lists in order": Form(
        "lists",
        ("table", "local table"),
        {"run": "ranker", "ranked": "in_order", "relevant": "judged"},
        (needs_order, no_order, no_bad_rows, no_repeats),
    ),
    "lists + judgments": Form(
        "lists",
        ("table", "local table"),
        {"run": "ranker", "ranked": "scored"},
        (no_order, no_bad_rows, no_repeats),
        judged=True,
        without=("judged",),
    ),
    "score columns": Form(
        "wide",
        ("table", "local table"),
        {"score": RUNS, "null_score": "unretrieved"},
        (no_bad_rows, no_repeats),
    ),
}


def routes_of_forms() -> Iterator[Route]:
    """Each form by each of its ways."""
    for name, form in FORMS.items():
        for source in form.ways:
            local, why_not = source in LOCAL, form.why_not
            if source == "local table":  # in files NaN is a bad row
                why_not += (takes_nan_as_null,)
            if local or source == "files by workers":
                why_not += (by_spark_alone,)
            answer = partial(evaluate_form, form=form, source=source)
            yield Route(f"{name}, {source}", answer, why_not, engine="local" if local else "spark", form=name)


FUNCTIONS = (means_alone, no_bad_rows, no_weight, skips_queries)
"""Why functions of columns cannot be asked."""
NO_EVALUATOR = (means_alone, no_weight, fails_on_bad_rows, takes_nan_as_no_prediction)
ROUTES = (
    *routes_of_forms(),
    Route(
        "definition",
        definition,
        (no_bad_rows, no_repeats, no_weight),
        is_whole=False,
        tolerance=1e-12,
        absolute=1e-12,
    ),
    Route("catalog table", catalog_table, (no_order,), form="long"),
    Route("job, JSON", job_json),
    Route("job, metric table", job_metric_table),
    Route("job of csv", run_job_on_csv, (means_alone, no_bad_rows, text_items)),
    Route("job of a query and a view", run_job_on_query),
    Route("report", report_page, is_whole=False),
    Route("roll-up", roll_up_of_one_night),
    Route("splits, merged", merge_splits),
    Route("sums of queries", sums_of_queries, is_whole=False, tolerance=1e-15),
    Route("sums of stored queries", sums_of_stored_queries, is_whole=False, tolerance=1e-15),
    Route("compare", compare_results, is_whole=False),
    Route("compare, per-query table", compare_tables, is_whole=False),
    Route("local, compare", compare_results, (means_alone, takes_nan_as_null), is_whole=False, engine="local"),
    Route(
        "local, compare per-query table",
        compare_tables,
        (means_alone, takes_nan_as_null),
        is_whole=False,
        engine="local",
    ),
    Route("NdcgEvaluator", ml_evaluator, NO_EVALUATOR, is_whole=False),
    Route("explain_difference", explain_difference_first, is_whole=False),
    Route("aggregates", aggregates, (*FUNCTIONS, groups_ties), is_whole=False, tolerance=1e-12),
    Route("functions of arrays", array_functions, (*FUNCTIONS, needs_order), is_whole=False, tolerance=1e-12),
)
"""A route is a line here; the first that answers is what the others are held against."""


@dataclass
class Result:
    """Outcome of all routes for one question."""

    asked: int = 0
    answered: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)


def ask(spark: SparkSession, question: Question, routes: Iterable[Route] = ROUTES) -> Result:
    """Put a question to every route."""
    asked = {engine: RouteContext(spark, question, engine) for engine in ("spark", "local")}
    result = Result()
    references: dict[str, tuple[Route, Answer | str]] = {}
    for route in routes:
        reason = route.skipped(question)
        if reason is not None:
            result.skipped[route.name] = reason
            continue
        answer = run_route(route, asked[route.engine])
        result.asked += 1
        if isinstance(answer, str):
            result.refused += 1
        else:
            result.answered[route.name] += len(answer)
        first, reference = references.setdefault(route.is_held_against(question), (route, answer))
        difference = find_first_difference(answer, reference, route)
        if difference:
            result.differences.append(f"{route.name} differs from {first.name}: {difference}")
    return result


def run_route(route: Route, context: RouteContext) -> Answer | str:
    """Return the answer, or the reasons of the refusal."""
    try:
        return route.answer(context)
    except (*SPARK_ERRORS, NdcgSparkError, RefusedError) as error:
        text = find_refusal(str(error)) or str(error)
        reasons = {"repeated" if reason.startswith("comes") else reason for reason in REASONS.findall(text)}
        return REFUSED + ", ".join(sorted(reasons)) if reasons else f"failed: {text.strip().splitlines()[-1]}"


def find_first_difference(answer: Answer | str, reference: Answer | str, route: Route) -> str:
    """Describe the first difference from the reference, or return ""; a failure without a known reason differs."""
    if isinstance(answer, str) or isinstance(reference, str):
        if answer == reference and answer.startswith(REFUSED):  # type: ignore[union-attr]  # both are text
            return ""
        return " against ".join(side if isinstance(side, str) else "answered" for side in (answer, reference))
    if answer.keys() != reference.keys() and (route.is_whole or not answer.keys() <= reference.keys()):
        only = sorted(answer.keys() ^ reference.keys(), key=str)
        return f"{only[0]} is in one of two answers, like {len(only) - 1} others"
    for key, value in sorted(answer.items(), key=str):
        if not is_same(value, reference[key], route):
            return f"{key}: {value!r} against {reference[key]!r}"
    return ""


def is_same(answer: Any, other: Any, route: Route) -> bool:
    """Check whether two values have the same bits, or are within the route's tolerance."""
    if not isinstance(answer, float | int) or not isinstance(other, float | int):
        return bool(answer == other)
    near = route.tolerance > 0 and math.isclose(answer, other, rel_tol=route.tolerance, abs_tol=route.absolute)
    return near or float(answer).hex() == float(other).hex()


def summarize_results(results: list[dict[str, Any]]) -> str:
    """Summarize counts over all questions, and skipped routes."""
    skipped = Counter(why for result in results for why in result["skipped"].values())
    lines = [f"  routes skipped {n} times: {why}" for why, n in sorted(skipped.items())]
    answered: Counter[str] = Counter()
    for result in results:
        answered.update(result["answered"])
    differences = sum(len(result["differences"]) for result in results)
    lines.append(
        f"{len(results)} questions, {len(ROUTES)} routes, {sum(result['asked'] for result in results)} times asked, "
        f"{sum(answered.values())} values compared, {sum(result['refused'] for result in results)} refused, "
        f"{differences or 'no'} differences"
    )
    return "\n".join(["", *lines])
