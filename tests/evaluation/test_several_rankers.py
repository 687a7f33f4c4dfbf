"""Several rankers in one pass, query keys of several columns, and what is carried with a query: segments, weights."""

from __future__ import annotations

import html
from dataclasses import replace
from fractions import Fraction

import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from support.engines import collect_rows, parametrize_engine, run_refused, table
from support.main_job import write_table
from support.oracle import Choices, Row, evaluate
from support.random_rankings import random_rows
from support.spark_rankings import Case, assert_same_results, collect_cases, session_settings, shuffle_rows

from ndcg_spark import evaluate as evaluate_tables
from ndcg_spark.conventions import Convention
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, spell_options
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings

CHOICES = Choices()
CUTOFFS = (1, 3, 10)
KEYS = "query_id string, item_id string, "


@pytest.fixture(autouse=True)
def _one_shuffle_partition(request):
    if not request.node.get_closest_marker("spark"):
        yield
        return
    with session_settings(request.getfixturevalue("spark"), spark__sql__shuffle__partitions=1):
        yield


def with_other_scores(rows: list[Row], seed: int) -> list[Row]:
    """The same items and judgments under the scores of another ranker; other items are not retrieved."""
    scores = [row.score for row in shuffle_rows(rows, seed)]
    return [
        replace(row, score=0.25 if score is None and row.relevance is None else score)
        for row, score in zip(rows, scores, strict=True)
    ]


def results_of(case: Case, engine):
    return case.results_here() if engine["engine"] == "local" else collect_cases({"": case})[""]


def without(data: pa.Table, *names: str) -> pa.Table:
    return data.drop_columns([*names])


# --- Rankers


def test_what_is_left_out_is_told_below_the_means(capsys):
    """Nothing where all is plain; of runs of one table that have different queries, which has fewest and most."""
    columns = "ranker string, query_id string, item_id string, score double, relevance int"
    plain = [("a", "p", "x", 1.0, 1), ("a", "q", "x", 1.0, 1), ("b", "p", "x", 1.0, 1), ("b", "q", "x", 1.0, 1)]
    odd = [*plain[:3], ("a", "r", "x", 1.0, None), ("a", "s", "x", None, 1)]
    judgments = table([("p", "x", 1), ("q", "x", 1)], "query_id string, item_id string, relevance int")
    fewer = "runs have different numbers of queries: 'b' has 1, 'a' 3. Means count missing queries as 0 only if"
    rejected = "rows: 1 rejected; queries that lost all of theirs: 1"
    left_out = "queries, those of 2 runs added up: 3 in the mean, among them 0 with nothing relevant, 0 missing; left"
    missing = "queries, those of 2 runs added up: 4 in the mean, among them 0 with nothing relevant, 1 missing; left"
    for rows, given, expected in (
        (plain, {}, []),
        (
            odd,
            {},
            [f"{left_out} out: 1 unjudged", rejected, f"{fewer} relevances are in a separate table (judgments=)."],
        ),
        (odd[:3], {"judgments": judgments}, [f"{missing} out: 0 unjudged"]),
    ):
        data = table(rows, columns)
        data = data.drop_columns(["relevance"]) if given else data
        result = evaluate_tables(data, **given, run="ranker", k=1, on_invalid="reject")
        result.show()
        assert capsys.readouterr().out.splitlines()[3:] == expected
        assert all(line in html.unescape(result._repr_html_()) for line in expected)


@pytest.mark.parametrize("choices", [{"duplicates": "best"}, {}], ids=["best", "all"])
def test_duplicates_of_several_score_columns_by_windows(spark, choices):
    """All rows are compared first, by windows as by the engine."""
    rows = random_rows(50, special=False)
    cells = [(r.query, r.item, r.score, -1.0 if r.score is None else -r.score, r.relevance, 1) for r in rows]
    frame = spark.createDataFrame(cells, KEYS + "a double, b double, relevance double, position int")
    twice = frame.unionAll(frame.withColumn("position", F.lit(2)).withColumn("a", F.col("a") - 100))
    options = {
        "score": ["a", "b"],
        "k": 3,
        "null_score": "unretrieved",
        **({} if choices else {"check_duplicates": "all"}),
    }
    options["convention"] = Convention(**choices)
    data = twice if choices else frame
    actual = [
        evaluate_tables(data, strategy=strategy, **options).summary.orderBy("run", "metric").collect()
        for strategy in ("engine", "window")
    ]
    assert actual[0] == actual[1]
    assert {row["run"] for row in actual[0]} == {"a", "b"}


BAD = [("high", "2"), ("2", "high")]


@parametrize_engine(
    "bad, options",
    local=[(bad, {"judged": judged}) for bad in BAD for judged in (False, True)],
    spark=[(BAD[0], {"check_duplicates": "all"})],
    window=[(BAD[1], {})],
)
def test_a_text_that_is_no_number_in_one_score_column_is_bad_for_that_run_alone(tmp_path, engine, bad, options):
    """As in csv files, where all is text: the other run keeps item y, which is the relevant one."""
    options, run = dict(options), "ab"[bad.index("high")]
    columns = {"query_id": "qqp", "item_id": "xyx", "a": ["1", bad[0], "1"], "b": ["1", bad[1], "1"]}
    relevance = {"relevance": ["0", "1", "1"]}
    if options.pop("judged", False):
        judged = {name: columns[name] for name in ("query_id", "item_id")} | relevance
        options["judgments"] = str(write_table(tmp_path / "judged.csv", judged))
    else:
        columns |= relevance
    path = str(write_table(tmp_path / "rows.csv", columns))
    evaluation = evaluate_tables(path, score=["a", "b"], k=1, on_invalid="reject", **options, **engine)
    values = {(row["run"], row["query_id"]): row["ndcg"] for row in collect_rows(evaluation.per_query)}
    assert values == {(of, query): float(query == "p" or of != run) for of in "ab" for query in "pq"}
    assert {row["run"]: row["n_rejected"] for row in collect_rows(evaluation.summary, "ndcg")} == {
        "a": 0,
        "b": 0,
        run: 1,
    }
    if engine["engine"] == "local":
        counted = evaluation.ranking.count_bad_rows()["input"]
        assert (counted.read, counted.rejected) == (6, {"score_not_a_number": 1})
        assert counted.examples["score_not_a_number"].startswith(f"run={run}, query_id=q")


TWO_FORMS = [(form, judged) for form in ("run column", "score columns") for judged in (False, True)]


@parametrize_engine("form, judged", local=TWO_FORMS, spark=TWO_FORMS[1:3])
def test_rankers_named_by_a_column_or_by_several_score_columns(engine, form, judged):
    """Forms of the same two rankers, each equal to the evaluations of one ranker at a time."""
    first = random_rows(50, special=False)
    second = with_other_scores(first, 1)
    both = {"a": first, "b": second}
    expected = evaluate(
        [replace(row, query=(run, row.query)) for run, group in both.items() for row in group], CHOICES, CUTOFFS
    )
    if form == "run column":
        cells = [(run, r.query, r.item, r.score, r.relevance) for run, group in both.items() for r in group]
        data = table(cells, "model string, " + KEYS + "score double, relevance double")
        columns = Columns(run="model")
    else:
        wide = [(x.query, x.item, x.score, y.score, x.relevance) for x, y in zip(first, second, strict=True)]
        data, columns = table(wide, KEYS + "a double, b double, relevance double"), Columns(score=("a", "b"))
    settings = EvaluationSettings(columns=columns, cutoffs=CUTOFFS, null_score="unretrieved")
    case = Case(data=data, settings=settings)
    if judged:
        cells = [(row.query, row.item, row.relevance) for row in first if row.relevance is not None]
        run = without(data, "relevance")
        run = run.filter(run["score"].is_valid()) if form == "run column" else run
        case = replace(case, data=run, judgments=table(cells, KEYS + "relevance double"))
    assert_same_results(results_of(case, engine), expected)


@parametrize_engine("zero", local=["zero"], window=["zero"])
def test_a_query_without_run_and_relevance_is_none(engine, zero):
    """Query z is not in the run, and a null relevance is no judgment: NDCG of q alone is 1."""
    run = table([("q", "a", 1.0)], KEYS + "score double")
    judgments = table([("q", "a", 1.0), ("z", "c", None)], KEYS + "relevance double")
    evaluation = evaluate_tables(run, judgments, convention=f"default;unjudged_query={zero}", **engine)
    (row,) = collect_rows(evaluation.summary, "ndcg")
    assert (row["value"], row["n_queries"], row["n_unjudged"]) == (1.0, 1, 0)


# --- Keys


@parametrize_engine("judged", local=[False, True], spark=[True], window=[False])
def test_keys_of_several_columns_with_awkward_names(engine, judged):
    """Spaces and accents in names; the same query text in two sessions is two queries; a key may be a number."""
    rows = [replace(row, query=("7", row.query)) for row in random_rows(51, special=False, unretrieved=False)]
    rows += [replace(row, query=("8", row.query)) for row in random_rows(52, special=False, unretrieved=False)]
    cells = [(int(r.query[0]), r.query[1], r.item, r.score, r.relevance) for r in rows]
    names, kinds = ["session id", "reqûete", "item id", "a-score", "rel (0-4)"], "int string string double double"
    data = table(cells, ", ".join(f"c{at} {kind}" for at, kind in enumerate(kinds.split()))).rename_columns(names)
    columns = Columns(query=tuple(names[:2]), item=names[2], score=(names[3],), relevance=names[4])
    strategy = engine.get("strategy", "auto")
    case = Case(data=data, settings=EvaluationSettings(columns=columns, cutoffs=CUTOFFS, strategy=strategy))
    if judged:
        known = data.filter(data["rel (0-4)"].is_valid())
        case = replace(case, data=without(data, "rel (0-4)"), judgments=without(known, "a-score"))
    assert_same_results(results_of(case, engine), evaluate(rows, CHOICES, CUTOFFS))


def test_columns_with_a_dot_in_their_names(engine):
    """As flattened tables have them."""
    parts = {"query": "q", "item": "x", "score": 1.0, "relevance": 1.0, "segment": "s", "weight": 1.0}
    names = {part: f"a.{part}" if part not in ("query", "segment") else f"a_{part}" for part in parts}
    data = pa.table({names[one]: [value] for one, value in parts.items()})
    roles = {element: names[element] for element in ("query", "item", "score", "relevance", "weight")}
    rows = collect_rows(evaluate_tables(data, segments=[names["segment"]], k=1, **roles, **engine).summary, "ndcg")
    assert {(row["segment_by"], row["value"]) for row in rows} == {("", 1.0), (names["segment"], 1.0)}


def test_a_segment_whose_name_differs_in_case_from_one_of_ours_is_refused_by_name_or_works(spark):
    """Spark does not tell `Item` from `item`; a user must not meet that as an ambiguous reference."""
    for name in ("Item", "SCORE", "Relevance", "Rank"):
        names = f"query_id string, iid string, points double, rel double, {name} string"
        frame = spark.createDataFrame([("q", "x", 1.0, 1.0, "s")], names)
        try:
            rows = evaluate_tables(
                frame, item="iid", score="points", relevance="rel", segments=[name], k=1
            ).per_query.collect()
        except (InvalidParameterError, InputRefusedError) as error:
            assert name in str(error)  # noqa: PT017  # refusing is one of two right answers
        else:
            assert [row["ndcg"] for row in rows] == [1.0]


# --- Segments and weights


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


def country(n: int) -> str:
    return "DE" if n < 5 else "FR"


CARRIED = ["country", "tier", "mobile", "w"]
FORMS = {
    "long": (),
    "from the run": ([], CARRIED),
    "from the judgments": (CARRIED, []),
    "from both": (["tier"], ["country"]),
}
"""Columns that the run lacks, and those that the judgments lack."""


@parametrize_engine("form", local=FORMS, spark=["from both"])
def test_segments_and_weights_reach_the_summary(engine, form):
    """Ten queries with a segment of the run, one of the judgments, one of both, and a weight."""
    rows = random_rows(53, n_queries=10, special=False, unretrieved=False)
    numbers = [int(row.query[1:]) for row in rows]
    cells = [
        (row.query, row.item, row.score, row.relevance, country(n), n % 3, n % 2 == 0, 0.5 + n)
        for row, n in zip(rows, numbers, strict=True)
    ]
    data = table(cells, KEYS + "score double, relevance double, country string, tier int, mobile boolean, w double")
    tables = (data,)
    if form != "long":
        of_run, of_judgments = FORMS[form]
        judged = data.filter(data["relevance"].is_valid())
        tables = (without(data, "relevance", *of_run), without(judged, "score", *of_judgments))
    segments = ["country", "tier", "country+mobile"]
    actual = collect_rows(evaluate_tables(*tables, k=3, segments=segments, weight="w", **engine).summary, "ndcg")
    expected = {}
    for name, segment in {
        "": lambda n: "",
        "country": country,
        "tier": lambda n: str(n % 3),
        "country+mobile": lambda n: f'["{country(n)}","{str(n % 2 == 0).lower()}"]',
    }.items():
        weighted = expected_means(rows, segment, lambda n: Fraction(1, 2) + n)
        expected |= {(name, value): mean for value, mean in weighted.items()}
    judged_queries = {row.query for row in rows if row.relevance is not None}
    assert judged_queries == {row.query for row in rows}, "an unjudged query would have no segment of the judgments"
    assert {(row["segment_by"], row["segment"]): row["value"] for row in actual} == pytest.approx(expected, abs=1e-12)


OF_QUERY = [("country", "long"), ("w", "long"), ("country", "run"), ("w", "judgments")]


@parametrize_engine("column, of", local=OF_QUERY, spark=OF_QUERY[3:], window=OF_QUERY[:1])
def test_a_segment_or_weight_that_is_not_constant_in_a_query_is_refused(engine, column, of):
    cells = [("q1", "x", 1.0, 1.0, "DE", 1.0), ("q2", "x", 1.0, 1.0, "DE", 1.0), ("q2", "y", 0.5, 0.0, "FR", 2.0)]
    data = table(cells, KEYS + "score double, relevance double, country string, w double")
    tables = (data,)
    if of != "long":
        lacks = {"run": ((), ("country", "w")), "judgments": (("country", "w"), ())}[of]
        tables = (without(data, "relevance", *lacks[0]), without(data, "score", *lacks[1]))
    role = {"segments": ["country"]} if column == "country" else {"weight": "w"}
    said = run_refused(evaluate_tables(*tables, **role, **engine))
    assert f"'{column}'" in said
    assert "query_id=q2" in said


@parametrize_engine("of_judgments", local=["DE"], spark=["DE"], window=["DE"])
def test_a_segment_of_the_run_that_judgments_contradict_in_one_item_is_refused(engine, of_judgments):
    run = table([("q", "x", 2.0, "DE"), ("q", "y", 1.0, "FR")], KEYS + "score double, country string")
    judgments = table([("q", item, 1.0, of_judgments) for item in "xy"], KEYS + "relevance double, country string")
    said = run_refused(evaluate_tables(run, judgments, segments=["country"], **engine))
    assert "'country'" in said
    assert " in query query_id=q" in said


@parametrize_engine("of", local=["run", "judgments"], window=["run", "judgments"])
def test_a_query_without_a_weight_is_refused_as_what_it_is(engine, of):
    """The other table has the weights: p is in the run and not judged, or judged and not in the run."""
    ids = [("p", "x", 1.0), ("q", "x", 1.0)]
    weighted = [("q", "x", 1.0, 1.0)]
    tables = [table(ids, KEYS + f"{name} double") for name in ("score", "relevance")]
    at = 1 if of == "run" else 0
    tables[at] = table(weighted, KEYS + f"{('score', 'relevance')[at]} double, w double")
    convention = Convention(unjudged_query="zero", missing_query="zero")
    said = run_refused(evaluate_tables(*tables, weight="w", convention=convention, **engine))
    where, rule = {
        "run": ("is in the run but not judged, and only the judgments have weights", "unjudged_query"),
        "judgments": ("is judged but not in the run, and only the run has weights", "missing_query"),
    }[of]
    assert said.startswith(f"query query_id=p {where};")
    assert said.endswith(f"or choose {spell_options(convention.advice(rule, 'drop'))}.")
