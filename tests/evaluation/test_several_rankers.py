"""Several rankers in one pass, query keys of several columns, and what is carried with a query: segments, weights."""

from __future__ import annotations

import html
from dataclasses import replace
from fractions import Fraction

import pytest
from pyspark.sql import functions as F
from support.canonical_rows import run_rows
from support.oracle import Choices, Row, evaluate
from support.random_rankings import random_rows
from support.refusals import refusal
from support.spark_rankings import (
    Case,
    assert_same_results,
    close,
    collect_cases,
    scored_table,
    session_settings,
    shuffled,
)

from ndcg_spark import evaluate as evaluate_frame
from ndcg_spark.conventions import Convention
from ndcg_spark.core.bad_rows import count_rows, rejects_table
from ndcg_spark.core.columns import mark_text_table
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError, find_refusal, spelled
from ndcg_spark.evaluation import rank_queries
from ndcg_spark.evaluation.frames.columns import checked_rows
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.evaluation.tasks.valid_rows import RowRules

CHOICES = Choices()
CUTOFFS = (1, 3, 10)
KEYS = "query_id string, item_id string, "


@pytest.fixture(scope="module", autouse=True)
def _one_shuffle_partition(spark):
    with session_settings(spark, spark__sql__shuffle__partitions=1):
        yield


def with_other_scores(rows: list[Row], seed: int) -> list[Row]:
    """The same items and judgments under the scores of another ranker; other items are not retrieved."""
    scores = [row.score for row in shuffled(rows, seed)]
    return [
        replace(row, score=0.25 if score is None and row.relevance is None else score)
        for row, score in zip(rows, scores, strict=True)
    ]


def named_run(name: str, rows: list[Row]) -> list[Row]:
    return [replace(row, query=(name, row.query)) for row in rows]


# --- Rankers


def test_what_is_left_out_is_told_below_the_means(spark, capsys):
    """Nothing where all is plain; of runs of one table that have different queries, which has fewest and most."""
    columns = "ranker string, query_id string, item_id string, score double, relevance int"
    plain = [("a", "p", "x", 1.0, 1), ("a", "q", "x", 1.0, 1), ("b", "p", "x", 1.0, 1), ("b", "q", "x", 1.0, 1)]
    odd = [*plain[:3], ("a", "r", "x", 1.0, None), ("a", "s", "x", None, 1)]
    judgments = spark.createDataFrame(
        [("p", "x", 1), ("q", "x", 1)], "query_id string, item_id string, relevance int"
    )
    fewer = (
        "runs have different numbers of queries: 'b' has 1, 'a' 3. What a run lacks counts as 0 only where relevances"
    )
    rejected = "rows: 1 rejected; queries that lost all of theirs: 1"
    left_out = "queries, those of 2 runs added up: 3 in the mean, among them 0 with nothing relevant, 0 missing; left"
    missing = "queries, those of 2 runs added up: 4 in the mean, among them 0 with nothing relevant, 1 missing; left"
    for rows, given, expected in (
        (plain, {}, []),
        (odd, {}, [f"{left_out} out: 1 unjudged", rejected, f"{fewer} are a table of their own (judgments=)."]),
        (odd[:3], {"judgments": judgments}, [f"{missing} out: 0 unjudged"]),
    ):
        table = spark.createDataFrame(rows, columns)
        table = table.drop("relevance") if given else table
        result = evaluate_frame(table, **given, run="ranker", k=1, on_invalid="reject")
        result.show()
        assert capsys.readouterr().out.splitlines()[3:] == expected
        assert all(line in html.unescape(result._repr_html_()) for line in expected)


@pytest.mark.parametrize(
    "choices", [{"duplicates": "best"}, {"duplicates": "first"}, {}], ids=["best", "first", "all"]
)
def test_duplicates_of_several_score_columns_by_windows(spark, choices):
    """All rows are compared first, by windows as by the engine."""
    rows = random_rows(50, special=False)
    cells = [(r.query, r.item, r.score, -1.0 if r.score is None else -r.score, r.relevance, 1) for r in rows]
    table = spark.createDataFrame(cells, KEYS + "a double, b double, relevance double, position int")
    twice = table.unionAll(table.withColumn("position", F.lit(2)).withColumn("a", F.col("a") - 100))
    options = {
        "score": ["a", "b"],
        "k": 3,
        "null_score": "unretrieved",
        **({"order": "position"} if choices.get("duplicates") == "first" else {}),
        **({} if choices else {"check_duplicates": "all"}),
    }
    options["convention"] = Convention(**choices)
    data = twice if choices.get("duplicates") == "best" else table
    found = [
        evaluate_frame(data, strategy=strategy, **options).summary.orderBy("run", "metric").collect()
        for strategy in ("engine", "window")
    ]
    assert found[0] == found[1]
    assert {row["run"] for row in found[0]} == {"a", "b"}


@pytest.mark.parametrize("bad", [("high", "2"), ("2", "high")], ids=["first", "second"])
@pytest.mark.parametrize(
    "options", [{}, {"strategy": "window"}, {"check_duplicates": "all"}, {"judged": True}], ids=str
)
def test_a_text_that_is_no_number_in_one_score_column_is_bad_for_that_run_alone(spark, bad, options):
    """As in csv files, where all is text: the other run keeps item y, which is the relevant one."""
    options = dict(options)
    rows = [("q", "x", "1", "1", "0"), ("q", "y", *bad, "1"), ("p", "x", "1", "1", "1")]
    table = mark_text_table(spark.createDataFrame(rows, KEYS + "a string, b string, relevance string"))
    judgments = table.drop("a", "b") if options.pop("judged", False) else None
    data = table if judgments is None else table.drop("relevance")
    settings = EvaluationSettings(columns=Columns(score=("a", "b")), cutoffs=(1,), on_invalid="reject", **options)
    ranked = rank_queries(data, settings, judgments=judgments)
    expected = {
        (run, query): [1.0] if query == "p" or text != "high" else [0.0]
        for run, text in zip("ab", bad, strict=True)
        for query in "pq"
    }
    assert {(row["run"], row["query_id"]): row["ranked"] for row in ranked.collect()} == expected

    rows = run_rows(data, settings, judged=judgments is None, original=True)
    checked = checked_rows(rows, RowRules(settings))
    counted, run = count_rows(checked), "ab"[bad.index("high")]
    assert (counted.read, counted.rejected) == (6, {"score_not_a_number": 1})
    assert counted.examples["score_not_a_number"].startswith(f"run={run}, query_id=q")
    assert [row["reason"] for row in rejects_table(checked, "input").collect()] == ["score_not_a_number"]


def test_rankers_named_by_a_column_or_by_several_score_columns(spark):
    """Three forms of the same two rankers, each equal to the evaluations of one ranker at a time."""
    first = random_rows(50, special=False)
    second = with_other_scores(first, 1)
    both = {"a": first, "b": second}
    expected = evaluate(named_run("a", first) + named_run("b", second), CHOICES, CUTOFFS)
    cells = [(run, r.query, r.item, r.score, r.relevance) for run, its in both.items() for r in its]
    table = spark.createDataFrame(cells, "model string, " + KEYS + "score double, relevance double")
    wide = [(x.query, x.item, x.score, y.score, x.relevance) for x, y in zip(first, second, strict=True)]
    wide_table = spark.createDataFrame(wide, "query_id string, item_id string, a double, b double, relevance double")
    judgments = wide_table.where("relevance is not null").select("query_id", "item_id", "relevance")
    by_column, by_score = Columns(run="model"), Columns(score=("a", "b"))
    cases = {
        "run column": Case(data=table, settings=settings_of(by_column, null_score="unretrieved")),
        "run column, judgments": Case(
            data=table.where("score is not null").drop("relevance"),
            judgments=judgments,
            settings=settings_of(by_column),
        ),
        "score columns": Case(data=wide_table, settings=settings_of(by_score, null_score="unretrieved")),
        "score columns, judgments": Case(
            data=wide_table.drop("relevance"),
            judgments=judgments,
            settings=settings_of(by_score, null_score="unretrieved"),
        ),
    }
    for got in collect_cases(cases).values():
        assert_same_results(got, expected)


def settings_of(columns: Columns, **changes) -> EvaluationSettings:
    return EvaluationSettings(columns=columns, cutoffs=CUTOFFS, **changes)


def test_a_query_that_one_ranker_misses_counts_against_it_alone(spark):
    """Judged for both; found by the first. The second gets a missing query, with the ideal of the judgments."""
    run = spark.createDataFrame(
        [("a", "q", "x", 1.0), ("b", "other", "x", 1.0)],
        "run_id string, query_id string, item_id string, score double",
    )
    judgments = spark.createDataFrame([("q", "x", 1)], "query_id string, item_id string, relevance int")
    case = Case(
        data=run, judgments=judgments, settings=EvaluationSettings(columns=Columns(run="run_id"), cutoffs=(1,))
    )
    found = collect_cases({"two": case})["two"]
    rows = [Row(query=("a", "q"), item="x", score=1.0, relevance=1.0), Row(query=("b", "q"), item="x", relevance=1.0)]
    assert_same_results(found, evaluate([*rows, Row(query=("b", "other"), item="x", score=1.0)], CHOICES, [1]))


@pytest.mark.parametrize("strategy", ["engine", "window"])
def test_a_query_without_run_and_relevance_is_none(spark, strategy):
    """Query z is not in the run, and a null relevance is no judgment: NDCG of q alone is 1."""
    run = spark.createDataFrame([("q", "a", 1.0)], KEYS + "score double")
    judgments = spark.createDataFrame([("q", "a", 1.0), ("z", "c", None)], KEYS + "relevance double")
    convention = Convention(unjudged_query="zero")
    found = evaluate_frame(run, judgments=judgments, convention=convention, strategy=strategy)
    row = found.summary.where("metric = 'ndcg'").first()
    assert (row["value"], row["n_queries"], row["n_unjudged"]) == (1.0, 1, 0)


def test_score_columns_and_a_run_column_exclude_each_other():
    with pytest.raises(InvalidParameterError, match="several score columns are runs themselves"):
        Columns(score=("a", "b"), run="model")


def test_score_columns_and_a_rank_column_exclude_each_other():
    with pytest.raises(InvalidParameterError, match="several score columns are ranked by their scores"):
        Columns(score=("a", "b"), rank="rank")


def test_score_columns_and_arrays_exclude_each_other(spark):
    lists = spark.sql("SELECT 'q' AS query_id, array(1.0D) AS relevance, 0.5D AS a, 0.25D AS b")
    with pytest.raises(InvalidParameterError, match=r"score= names a, b: arrays of relevances are in rank order"):
        evaluate_frame(lists, score=["a", "b"])
    assert evaluate_frame(lists, score=["a"]).summary.count() > 0


# --- Keys


@pytest.mark.parametrize("with_judgments", [False, True])
def test_keys_of_several_columns_with_awkward_names(spark, with_judgments):
    """Spaces and accents in names; the same query text in two sessions is two queries; a key may be a number."""
    rows = [replace(row, query=("7", row.query)) for row in random_rows(51, special=False, unretrieved=False)]
    rows += [replace(row, query=("8", row.query)) for row in random_rows(52, special=False, unretrieved=False)]
    cells = [(int(r.query[0]), r.query[1], r.item, r.score, r.relevance) for r in rows]
    names = ["`session id` int", "`reqûete` string", "`item id` string", "`a-score` double", "`rel (0-4)` double"]
    table = spark.createDataFrame(cells, ", ".join(names))
    columns = Columns(
        query=("session id", "reqûete"), item="item id", score=("a-score",), relevance="rel (0-4)", run=None
    )
    case = Case(data=table, settings=settings_of(columns, strategy="engine"))
    windows = Case(data=table, settings=settings_of(columns, strategy="window"))
    if with_judgments:
        judged = table.where("`rel (0-4)` is not null").drop("a-score")
        case = replace(case, data=table.drop("rel (0-4)"), judgments=judged)
        windows = replace(windows, data=table.drop("rel (0-4)"), judgments=judged)
    for got in collect_cases({"top_k": case, "window": windows}).values():
        assert_same_results(got, evaluate(rows, CHOICES, CUTOFFS))


def test_columns_with_a_dot_in_their_names(spark):
    """As flattened tables have them."""
    dotted = ("item", "score", "relevance", "weight")
    parts = {"query": "q", "item": "x", "score": 1.0, "relevance": 1.0, "segment": "s", "weight": 1.0}
    names = {one: f"a.{one}" if one in dotted else f"a_{one}" for one in parts}
    types = {one: "double" if isinstance(value, float) else "string" for one, value in parts.items()}
    schema = ", ".join(f"`{names[one]}` {types[one]}" for one in parts)
    table = spark.createDataFrame([tuple(parts.values())], schema)
    roles = {one: names[one] for one in ("query", "item", "score", "relevance", "weight")}
    found = evaluate_frame(table, segments=[names["segment"]], k=1, **roles)
    rows = found.summary.where("metric = 'ndcg'").collect()
    assert {(row["segment_by"], row["value"]) for row in rows} == {("", 1.0), (names["segment"], 1.0)}


@pytest.mark.parametrize("name", ["Item", "SCORE", "Relevance", "Rank"])
def test_a_segment_whose_name_differs_in_case_from_one_of_ours_is_refused_by_name_or_works(spark, name):
    """Spark does not tell `Item` from `item`; a user must not meet that as an ambiguous reference."""
    names = f"query_id string, iid string, points double, rel double, {name} string"
    table = spark.createDataFrame([("q", "x", 1.0, 1.0, "s")], names)
    try:
        found = evaluate_frame(
            table, item="iid", score="points", relevance="rel", segments=[name], k=1
        ).per_query.collect()
    except (InvalidParameterError, InputRefusedError) as error:
        assert name in str(error)  # noqa: PT017  # refusing is one of two right answers
    else:
        assert [row["ndcg"] for row in found] == [1.0]


# --- Segments and weights


def carried_tables(spark):
    """Ten queries with a segment of the run, one of the judgments, one of both, and a weight."""
    rows = random_rows(53, n_queries=10, special=False, unretrieved=False)
    table = scored_table(spark, rows)
    number = "cast(substr(query_id, 2) as int)"
    table = table.selectExpr(
        "*",
        f"if({number} < 5, 'DE', 'FR') as country",
        f"{number} % 3 as tier",
        f"{number} % 2 = 0 as mobile",
        f"0.5 + {number} as w",
    )
    return rows, table


def expected_means(rows: list[Row], segment, weight=lambda query: 1) -> dict[str | None, float]:
    """Weighted mean of NDCG@3 by segment, from the definition."""
    sums: dict[str | None, list[Fraction]] = {}
    for (query, _), result in evaluate(rows, CHOICES, [3]).items():
        if result.ndcg is not None:
            total = sums.setdefault(segment(int(query[1:])), [Fraction(0), Fraction(0)])
            w = Fraction(weight(int(query[1:])))
            total[0] += w * Fraction(result.ndcg)
            total[1] += w
    return {name: float(top / below) for name, (top, below) in sums.items()}


@pytest.mark.parametrize("form", ["long", "from the run", "from the judgments", "from both"])
def test_segments_and_weights_reach_the_summary(spark, form):
    rows, table = carried_tables(spark)
    extra = ["country", "tier", "mobile", "w"]
    run, judgments = table.drop("relevance"), table.where("relevance is not null").drop("score", "position")
    frames = {
        "long": (table, None),
        "from the run": (run, judgments.drop(*extra)),
        "from the judgments": (run.drop(*extra), judgments),
        "from both": (run.drop("tier"), judgments.drop("country")),
    }
    data, judged = frames[form]
    segments = ["country", "tier", "country+mobile"]
    found = evaluate_frame(data, judgments=judged, k=3, segments=segments, weight="w")
    got = {
        (row["segment_by"], row["segment"]): row["value"] for row in found.summary.where("metric = 'ndcg'").collect()
    }

    def weight(n: int) -> Fraction:
        return Fraction(1, 2) + n

    def country(n: int) -> str:
        return "DE" if n < 5 else "FR"

    expected = {("", ""): expected_means(rows, lambda n: "", weight)[""]}
    for name, segment in {
        "country": country,
        "tier": lambda n: str(n % 3),
        "country+mobile": lambda n: f'["{country(n)}","{str(n % 2 == 0).lower()}"]',
    }.items():
        expected |= {(name, value): mean for value, mean in expected_means(rows, segment, weight).items()}
    judged_queries = {row.query for row in rows if row.relevance is not None}
    assert judged_queries == {row.query for row in rows}, "an unjudged query would have no segment of the judgments"
    assert got.keys() == expected.keys()
    assert {key: value for key, value in got.items() if not close(value, expected[key])} == {}


@pytest.mark.parametrize(
    ("column", "table"), [("country", "long"), ("w", "long"), ("country", "run"), ("w", "judgments")]
)
def test_a_segment_or_weight_that_is_not_constant_in_a_query_is_refused(spark, column, table):
    cells = [("q1", "x", 1.0, 1.0, "DE", 1.0), ("q2", "x", 1.0, 1.0, "DE", 1.0), ("q2", "y", 0.5, 0.0, "FR", 2.0)]
    names = KEYS + "score double, relevance double, country string, w double"
    data = spark.createDataFrame(cells, names)
    judgments = None
    if table != "long":
        run, judgments = data.drop("relevance"), data.drop("score")
        keep = {"run": (run, judgments.drop("country", "w")), "judgments": (run.drop("country", "w"), judgments)}
        data, judgments = keep[table]
    role = {"segments": ["country"]} if column == "country" else {"weight": "w"}
    found = evaluate_frame(data, judgments=judgments, **role)
    with pytest.raises(Exception) as caught:  # noqa: PT011  # Spark chooses the class
        found.per_query.collect()
    message = find_refusal(str(caught.value))
    assert message is not None
    assert f"'{column}'" in message
    assert "query_id=q2" in message


def test_a_segment_that_run_and_judgments_tell_differently_is_refused(spark):
    run = spark.createDataFrame([("q", "x", 1.0, "DE")], KEYS + "score double, country string")
    judgments = spark.createDataFrame([("q", "x", 1.0, "FR")], KEYS + "relevance double, country string")
    with pytest.raises(Exception) as caught:  # noqa: PT011  # Spark chooses the class
        evaluate_frame(run, judgments=judgments, segments=["country"]).per_query.collect()
    assert find_refusal(str(caught.value)) == (
        "column 'country' differs between run and judgments in query query_id=q."
    )


@pytest.mark.parametrize("strategy", ["engine", "window"])
def test_a_segment_of_the_run_that_judgments_contradict_in_one_item_is_refused(spark, strategy):
    run = spark.createDataFrame([("q", "x", 2.0, "DE"), ("q", "y", 1.0, "FR")], KEYS + "score double, country string")
    judgments = run.selectExpr("query_id", "item_id", "1.0D as relevance", "'DE' as country")
    with pytest.raises(Exception, match=r"'country'.* in query query_id=q"):
        evaluate_frame(run, judgments=judgments, segments=["country"], strategy=strategy).summary.collect()


@pytest.mark.parametrize("strategy", ["engine", "window"])
@pytest.mark.parametrize("of", ["run", "judgments"])
def test_a_query_without_a_weight_is_refused_as_what_it_is(spark, of, strategy):
    """The other table has the weights: p is in the run and not judged, or judged and not in the run."""
    names = KEYS + "score double, relevance double, w double"
    table = spark.createDataFrame([("p", "x", 1.0, 1.0, 1.0), ("q", "x", 1.0, 1.0, 1.0)], names)
    one, both = table.where("query_id = 'q'"), table.drop("w")
    run, judgments = (both, one) if of == "run" else (one, both)
    found = evaluate_frame(
        run.drop("relevance"),
        judgments=judgments.drop("score"),
        weight="w",
        convention=Convention(unjudged_query="zero", missing_query="zero"),
        strategy=strategy,
    )
    message = refusal(found.summary)
    where, rule = {
        "run": ("is in the run but not judged, and only the judgments have weights", "unjudged_query"),
        "judgments": ("is judged but not in the run, and only the run has weights", "missing_query"),
    }[of]
    assert message is not None
    assert message.startswith(f"query query_id=p {where};")
    convention = Convention(unjudged_query="zero", missing_query="zero")
    assert message.endswith(f"or choose {spelled(convention.advice(rule, 'drop'))}.")


def test_a_segment_or_weight_that_no_table_has_is_named(spark):
    table = spark.createDataFrame(
        [("q", "x", 1.0, 1.0, "DE")], KEYS + "score double, relevance double, country string"
    )
    with pytest.raises(MissingColumnError, match=r"'contry' \(segments=\).*Did you mean 'country'"):
        evaluate_frame(table, segments=["contry"])
    with pytest.raises(MissingColumnError, match=r"'w' \(weight=\)"):
        evaluate_frame(table, weight="w")
