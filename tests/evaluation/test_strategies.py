"""Every form of input against the oracle, ranked by this machine, and for a few choices by each strategy of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from support.arrow_rows import build_array_table, build_forms, build_long_table, choose_convention
from support.engines import collect_rows, parametrize_engine, table
from support.oracle import Choices, Cutoff, Row, build_ranking, evaluate, mean
from support.random_rankings import GIANT_QUERY, random_rows
from support.spark_rankings import (
    LONG,
    RANKED,
    SHORT_LIVED_PLANS,
    STRUCTS,
    Case,
    assert_same_results,
    build_convention,
    build_strategy_cases,
    collect_cases,
    describe_differences,
    session_settings,
)

from ndcg_spark import evaluate as evaluate_tables
from ndcg_spark.conventions import Convention
from ndcg_spark.evaluation.settings import EvaluationSettings

CUTOFFS = (1, 3, 10, None)
IN_STEPS = "table:0=0.5,1=1,2=1,3=3,4=3"

CHOICES = {
    "expected": Choices(),
    "best, skip": Choices(ties="best", no_relevant="skip"),
    "item_desc, clip, float32": Choices(
        gain="linear", ties="item_desc", score_precision="float32", negative="clip", missing_query="drop"
    ),
    "integers up, condensed": Choices(ties="item_asc", unjudged="condensed", no_relevant="one"),
    "input_order, k_ones, keep": Choices(ties="input_order", ideal="k_ones", unjudged_query="zero"),
    "table": Choices(gain=IN_STEPS, ties="item_asc", no_relevant="skip"),
    "integers down, table, clip, retrieved": Choices(
        gain=IN_STEPS, ties="item_desc", ideal="retrieved", negative="clip", no_relevant="skip"
    ),
    "pad, negative": Choices(ties="input_order", pad_to_k=-1.0, no_relevant="one", missing_query="zero"),
    "condensed, retrieved, input_order": Choices(
        gain="linear", ties="input_order", unjudged="condensed", ideal="retrieved", unjudged_query="zero"
    ),
    "condensed, k_ones, pad": Choices(
        ties="item_desc", discount="reciprocal", unjudged="condensed", ideal="k_ones", pad_to_k=0.5
    ),
}
SHAPES = {
    "item_desc, clip, float32": {"extreme_scores": True, "negatives": True},
    "integers up, condensed": {"integer_items": True},
    "input_order, k_ones, keep": {"negatives": True},
    "integers down, table, clip, retrieved": {"integer_items": True, "negatives": True, "unretrieved": False},
    "pad, negative": {"fractional": True},
    "condensed, retrieved, input_order": {"fractional": True, "negatives": True},
}


def rows_for(name: str, seed: int = 0) -> list[Row]:
    """The cutoff 10 is beyond most lists; one query has half of all rows."""
    shape = SHAPES.get(name, {})
    rows = random_rows(list(CHOICES).index(name) + 100 * seed, **shape)
    rows = [row for row in rows if row.score is not None] if not shape.get("unretrieved", True) else rows
    assert sum(row.query == GIANT_QUERY for row in rows) >= 0.4 * len(rows)
    return rows


def cases_of(rows: Sequence[Row], choices: Choices, cutoffs: tuple[Cutoff, ...]) -> Iterator[tuple[str, Case]]:
    for form, tables, columns in build_forms(rows, choices):
        missing = {"null_score": "unretrieved"} if form in ("long", "rank") else {}
        settings = EvaluationSettings(
            columns=columns, convention=choose_convention(columns, choices), cutoffs=cutoffs, **missing
        )
        yield form, Case(data=tables["input"], judgments=tables.get("judgments"), settings=settings)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CHOICES)
def test_every_form_equals_the_oracle(name, seed):
    """And so do the means."""
    rows, choices = rows_for(name, seed), CHOICES[name]
    expected = evaluate(rows, choices, CUTOFFS)
    cases = dict(cases_of(rows, choices, CUTOFFS))
    assert len(cases) == (2 if name in ("expected", "best, skip") else 6)
    for form, case in cases.items():
        assert describe_differences(case.results_here(), expected) == "", form
        means = {row["k"]: row["value"] for row in collect_rows(case.ranking_here().summary(), "ndcg")}
        assert means == pytest.approx({k: mean(expected, k) for k in CUTOFFS}, abs=1e-12), form


OF_SPARK = ("item_desc, clip, float32", "integers down, table, clip, retrieved", "condensed, retrieved, input_order")


@pytest.mark.parametrize("name", OF_SPARK)
def test_every_strategy_equals_the_oracle(spark, name):
    rows, choices = rows_for(name), CHOICES[name]
    ways = build_strategy_cases(spark, rows, choices, CUTOFFS)
    assert len(ways) == 10
    with session_settings(spark, **SHORT_LIVED_PLANS):
        actual = collect_cases(ways)
    expected = evaluate(rows, choices, CUTOFFS)
    assert {way: describe_differences(got, expected) for way, got in actual.items()} == dict.fromkeys(ways, "")


def test_the_random_rankings_meet_every_status():
    """What the tests above would not notice if their rows had no such query."""
    statuses = {result.status for result in evaluate(rows_for("table"), Choices(ties="item_asc"), [3]).values()}
    assert statuses == {"evaluated", "no_relevant", "missing", "unjudged"}


def test_the_ideal_list_of_as_many_is_no_longer_than_the_condensed_list():
    """Two unjudged items leave a list of one: IDCG 1, not 1 + 1/log2(3) + 1/2 = 2.13; NDCG 1, not 1/2.13 = .469.

    Two of three left: DCG 1, IDCG 1 + 1/log2(3). With none left, the ideal list is empty and nothing relevant.
    """
    condensed = Choices(gain="linear", ties="item_asc", ideal="as_many", unjudged="condensed")
    rows = build_ranking((None, None, 1.0), unretrieved=(1.0, 1.0))
    rows += build_ranking((1.0, None, 0.0), unretrieved=(1.0, 1.0), query="two left")
    rows += build_ranking((None,), unretrieved=(1.0,), query="none left") + random_rows(43, n_queries=12)
    both, expected = 1 + 0.6309297535714575, evaluate(rows, condensed, (2, 3, None))
    for form, case in cases_of(rows, condensed, (2, 3, None)):
        got = case.results_here()
        hand = [got[query, 3] for query in ("q", "two left", "none left")]
        assert [(element.dcg, element.idcg) for element in hand] == [
            (1.0, 1.0),
            (1.0, pytest.approx(both)),
            (0.0, 0.0),
        ], form
        assert [element.ndcg for element in hand] == [1.0, pytest.approx(1 / both), 0.0], form
        assert describe_differences(got, expected) == "", form


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda ranks: 1.0 / np.sqrt(ranks), lambda rank: rank**-0.5),
        ("table:1.25,0.63,0.5", "table:1.25,0.63,0.5"),
    ],
)
def test_functions_of_numpy_and_tables_of_discounts(ours, theirs):
    rows, choices = random_rows(31, ties=False), Choices(gain=lambda rel: rel**0.5, discount=theirs, ties="item_asc")
    convention = Convention(gain=np.sqrt, discount=ours)
    settings = EvaluationSettings(cutoffs=(1, 3), null_score="unretrieved", convention=convention)
    actual = Case(data=build_long_table(rows, choices), settings=settings).results_here()
    assert_same_results(actual, evaluate(rows, choices, [1, 3]))


# --- Given ranks


@parametrize_engine("k", local=[[1, 4, 5, "all"]], window=[[1, 4, 5, "all"]])
def test_given_ranks_with_gaps_keep_their_discounts(engine, k):
    """Items on ranks 2 and 5 only: DCG = 1/log2(3) + 3/log2(6), as if other items had been cut from the log."""
    data = table(
        [("q", "a", 2, 1.0), ("q", "b", 5, 3.0)], "query_id string, item_id string, rank int, relevance double"
    )
    evaluation = evaluate_tables(data, rank="rank", k=k, convention="linear", **engine)
    whole = 0.6309297535714575 + 3 * 0.38685280723454163
    expected = {1: 0.0, 4: 0.6309297535714575, 5: whole, None: whole}
    assert {row["k"]: row["dcg"] for row in collect_rows(evaluation.per_query)} == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("check", ["top", "none"])
def test_items_of_relevance_0_keep_negative_ones_from_the_first_ideal_ranks(check):
    """Given ranks do not list zeros; by hand, linear: the ideal of -1,0,2 is 2 + 0 - 1/log2(4)."""
    rows = build_ranking((-1.0, 0.0, 2.0), query="q") + build_ranking((-1.0, -2.0, 1.0), query="no zero")
    rows += build_ranking((0.0, -1.0, 0.0, 0.0), query="zeros enough") + random_rows(44, negatives=True)
    choices = Choices(gain="linear", ties="item_asc")
    settings = EvaluationSettings(
        columns=RANKED, cutoffs=(1, 2, 3, 12), null_score="unretrieved", check_duplicates=check,
        convention=build_convention(choices),
    )  # fmt: skip
    actual = Case(data=build_long_table(rows, choices), settings=settings).results_here()
    assert (actual["q", 2].idcg, actual["q", 3].idcg) == pytest.approx((2.0, 1.5), abs=1e-12)
    assert actual["no zero", 3].idcg == pytest.approx(1 - 0.6309297535714575 - 2 * 0.5, abs=1e-12)
    assert actual["zeros enough", 3].idcg == 0.0
    assert_same_results(actual, evaluate(rows, choices, settings.cutoffs))


def test_condensed_given_ranks_close_up_whatever_the_tie_rule():
    """Ranks are all different, so that no tie rule is asked and no order column needed; see above for one."""
    rows, choices = random_rows(41, ties=False), Choices(ties="input_order", unjudged="condensed")
    settings = EvaluationSettings(
        columns=RANKED, convention=build_convention(choices), cutoffs=(1, 3), null_score="unretrieved"
    )
    actual = Case(data=build_long_table(rows, choices), settings=settings).results_here()
    assert_same_results(actual, evaluate(rows, choices, [1, 3]))


# --- Arrays


@pytest.mark.parametrize("kind", [pa.int8(), pa.int64(), pa.float32(), pa.decimal128(5, 2), pa.bool_()], ids=str)
def test_arrays_of_whole_numbers_decimals_and_booleans(kind):
    rows = [row for row in random_rows(42, special=False, unretrieved=False) if row.relevance in (None, 0.0, 1.0)]
    choices = Choices(ties="item_asc", ideal="retrieved")
    lists = build_array_table(rows, choices).select(["query_id", "ranked"]).rename_columns(["query_id", "relevance"])
    lists = lists.set_column(1, "relevance", lists["relevance"].cast(pa.list_(kind)))
    actual = Case(data=lists, settings=EvaluationSettings(cutoffs=(1, 3, None))).results_here()
    assert_same_results(actual, evaluate(rows, choices, [1, 3, None]))


MISSING = Row(query="missing", item="x", relevance=1.0)


@pytest.mark.parametrize(
    ("rows", "ideal"),
    [
        ([*build_ranking((1.0, None), unretrieved=(2.0,)), MISSING], "retrieved"),
        ([*build_ranking((None, 1.0), unretrieved=(2.0,)), MISSING], "judged"),
    ],
)
def test_judged_items_that_are_not_in_an_array_count(rows, ideal):
    """In n_judged and n_relevant whatever the ideal; and an empty array makes a query a missing one."""
    choices = Choices(ties="item_asc", ideal=ideal)
    settings = EvaluationSettings(columns=STRUCTS, cutoffs=(1, 2, None), convention=build_convention(choices))
    actual = Case(data=build_array_table(rows, choices), settings=settings).results_here()
    assert_same_results(actual, evaluate(rows, choices, [1, 2, None]))


# --- Long tables


@parametrize_engine("judged", local=[False, True], window=[False, True])
def test_unjudged_items_are_not_in_the_ideal_of_a_clipped_table(engine, judged):
    """Level 1 gains less than nothing here; an unjudged item is no level 0. IDCG@1 is the gain of level 1."""
    ids = "query_id string, item_id string"
    run = table([("q", "a", 2.0), ("q", "b", 1.0)], f"{ids}, score double")
    tables = (run, table([("q", "a", 1.0)], f"{ids}, relevance double"))
    if not judged:
        tables = (run.append_column("relevance", pa.array([1.0, None])),)
    convention = "default;gain=table:0=-3,1=-2;ties=item_asc;negative=clip;ideal=retrieved"
    (row,) = collect_rows(evaluate_tables(*tables, k=1, convention=convention, **engine).per_query)
    assert (row["dcg"], row["idcg"], row["status"]) == (-2.0, -2.0, "no_relevant")


def test_a_long_table_needs_no_item_where_no_rule_asks_for_it():
    rows, choices = random_rows(43), Choices(ties="input_order")
    settings = EvaluationSettings(
        columns=replace(LONG, item=None),
        convention=build_convention(choices),
        cutoffs=(1, 10),
        null_score="unretrieved",
    )
    actual = Case(data=build_long_table(rows, choices).drop_columns(["item_id"]), settings=settings).results_here()
    assert_same_results(actual, evaluate(rows, choices, [1, 10]))
