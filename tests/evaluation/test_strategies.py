"""Every form of input and every way of ranking, against the oracle: the same numbers, and the same counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.oracle import Choices, Row, evaluate, mean
from support.random_rankings import GIANT_QUERY, random_rows
from support.small_rankings import ranked
from support.spark_rankings import (
    LONG,
    RANKED,
    STRUCTS,
    Case,
    array_table,
    assert_same_results,
    collect_cases,
    convention_of,
    differences,
    every_strategy,
    scored_table,
    session_settings,
)

from ndcg_spark.conventions import Convention
from ndcg_spark.evaluation.explanation import ranked_rows
from ndcg_spark.evaluation.frames.ranking import choose_ranking
from ndcg_spark.evaluation.settings import EvaluationSettings

CUTOFFS = (1, 3, 10, None)
IN_STEPS = "table:0=0.5,1=1,2=1,3=3,4=3"

CHOICES = {
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


@pytest.fixture(scope="module", autouse=True)
def _one_shuffle_partition(spark):
    """Tables have two partitions, so partial lists are merged; more, or planning anew, would only take time here."""
    with session_settings(spark, spark__sql__shuffle__partitions=1, spark__sql__adaptive__enabled="false"):
        yield


def rows_for(name: str) -> list[Row]:
    shape = SHAPES.get(name, {})
    rows = random_rows(list(CHOICES).index(name), **shape)
    return [row for row in rows if row.score is not None] if not shape.get("unretrieved", True) else rows


@pytest.mark.parametrize("name", CHOICES)
def test_every_strategy_equals_the_oracle(spark, name):
    """The cutoff 10 is beyond most lists; None is the whole list; one query has half of all rows."""
    rows, choices = rows_for(name), CHOICES[name]
    assert sum(row.query == GIANT_QUERY for row in rows) >= 0.4 * len(rows)
    ways = every_strategy(spark, rows, choices, CUTOFFS)
    assert len(ways) == 10
    found = collect_cases(ways)
    assert found.keys() == ways.keys()
    wrong = []
    for way, got in found.items():
        difference = differences(got, evaluate(rows, choices, CUTOFFS))
        wrong += [f"{way}: {difference}"] * bool(difference)
    assert not wrong, "\n".join(wrong)


def test_the_random_rankings_meet_every_status():
    """What the test above would not notice if its rows had no such query."""
    statuses = {result.status for result in evaluate(rows_for("table"), Choices(ties="item_asc"), [3]).values()}
    assert statuses == {"evaluated", "no_relevant", "missing", "unjudged"}


def test_the_worked_examples(spark):
    """By hand, to six decimals: 3,2,3,0,1,2 with and without two more judged items, and a list that is too short."""
    six = (3.0, 2.0, 3.0, 0.0, 1.0, 2.0)
    rows = ranked(six, query="alone") + ranked(six, unretrieved=(3.0, 2.0), query="with others")
    short = ranked((1.0, 1.0, 1.0), unretrieved=(1.0, 1.0), query="short")
    table = scored_table(spark, rows + short)
    cases = {
        gain: Case(
            data=table,
            settings=EvaluationSettings(cutoffs=(5, 6), null_score="unretrieved", convention=Convention(gain=gain)),
        )
        for gain in ("linear", "exponential")
    }
    found = collect_cases(cases)
    linear, exponential = found["linear"], found["exponential"]
    alone, others = ("alone", 6), ("with others", 6)
    assert (linear[alone].dcg, exponential[alone].dcg) == pytest.approx((6.861127, 13.848264), abs=5e-7)
    assert (linear[alone].idcg, exponential[alone].idcg) == pytest.approx((7.140995, 14.595391), abs=5e-7)
    assert (linear[alone].ndcg, exponential[alone].ndcg) == pytest.approx((0.960808, 0.948811), abs=5e-7)
    assert (linear[others].idcg, exponential[others].idcg) == pytest.approx((8.740262, 18.437718), abs=5e-7)
    assert (linear[others].ndcg, exponential[others].ndcg) == pytest.approx((0.785002, 0.751083), abs=5e-7)
    assert linear["short", 5].ndcg == pytest.approx(0.722727, abs=5e-7)


def test_the_ideal_list_of_as_many_is_no_longer_than_the_condensed_list(spark, tmp_path):
    """Two unjudged items leave a list of one: IDCG 1, not 1 + 1/log2(3) + 1/2 = 2.13; NDCG 1, not 1/2.13 = .469.

    Two of three left: DCG 1, IDCG 1 + 1/log2(3). With none left, the ideal list is empty and nothing relevant.
    """
    condensed = Choices(gain="linear", ties="item_asc", ideal="as_many", unjudged="condensed")
    one, two = ranked((None, None, 1.0), unretrieved=(1.0, 1.0)), (1.0, None, 0.0)
    rows = (
        one
        + ranked(two, unretrieved=(1.0, 1.0), query="two left")
        + ranked((None,), unretrieved=(1.0,), query="none left")
    )
    rows += random_rows(43, n_queries=12)
    ways = every_strategy(spark, rows, condensed, (2, 3, None))
    scored_table(spark, rows, condensed).coalesce(1).sortWithinPartitions("query_id").write.parquet(
        f"{tmp_path}/rows"
    )
    ways["files"] = replace(ways["long engine"], data=f"{tmp_path}/rows")
    found, expected = collect_cases(ways), evaluate(rows, condensed, (2, 3, None))
    both = 1 + 0.6309297535714575
    for way, got in found.items():
        hand = [
            (got[query, 3].dcg, got[query, 3].idcg, got[query, 3].ndcg) for query in ("q", "two left", "none left")
        ]
        assert hand[0] == (1.0, 1.0, 1.0), way
        assert hand[1] == pytest.approx((1.0, both, 1 / both), abs=1e-12), way
        assert hand[2] == (0.0, 0.0, 0.0), way
        assert differences(got, expected) == "", way
    settings = replace(ways["long engine"].settings, cutoffs=(3,))
    means = choose_ranking(f"{tmp_path}/rows", settings).summary().where("metric = 'ndcg'").collect()
    assert means[0]["value"] == mean(expected, 3)
    shown = ranked_rows(scored_table(spark, one), replace(settings, convention=convention_of(condensed))).collect()
    assert sum(row["gain"] * (row["ideal_discount"] or 0.0) for row in shown) == 1.0


def test_callables_and_tables_of_discounts(spark):
    """A NumPy function of ranks, a table per position, and a NumPy gain, on one table."""
    import numpy as np

    rows = random_rows(31, ties=False)
    pairs = {
        "callable discount": (lambda ranks: 1.0 / np.sqrt(ranks), lambda rank: rank**-0.5),
        "table": ("table:1.25,0.63,0.5", "table:1.25,0.63,0.5"),
    }
    table = scored_table(spark, rows)
    cases, expected = {}, {}
    for name, (ours, theirs) in pairs.items():
        convention = Convention(gain=np.sqrt, discount=ours)
        cases[name] = Case(
            data=table, settings=EvaluationSettings(cutoffs=(1, 3), null_score="unretrieved", convention=convention)
        )
        expected[name] = Choices(gain=lambda relevance: relevance**0.5, discount=theirs, ties="item_asc")
    for name, got in collect_cases(cases).items():
        assert_same_results(got, evaluate(rows, expected[name], [1, 3]))


def test_given_ranks_of_a_table_with_unretrieved_rows(spark):
    """Whole lists, where the test above has cutoffs alone."""
    rows, cutoffs = random_rows(40), (2, None)
    choices = Choices(ties="item_asc")
    settings = EvaluationSettings(columns=RANKED, cutoffs=cutoffs, null_score="unretrieved")
    found = collect_cases({"rank": Case(data=scored_table(spark, rows, choices), settings=settings)})
    assert_same_results(found["rank"], evaluate(rows, choices, cutoffs))


def test_given_ranks_with_gaps_keep_their_discounts(spark):
    """Items on ranks 2 and 5 only: DCG = 1/log2(3) + 3/log2(6), as if other items had been cut from the log."""
    schema = "query_id string, item_id string, rank int, relevance double"
    table = spark.createDataFrame([("q", "a", 2, 1.0), ("q", "b", 5, 3.0)], schema)
    by_name = {
        way: EvaluationSettings(
            columns=RANKED, cutoffs=(1, 4, 5, None), convention=Convention(gain="linear"), strategy=way
        )
        for way in ("engine", "window")
    }
    found = collect_cases({way: Case(data=table, settings=settings) for way, settings in by_name.items()})
    expected = {1: 0.0, 4: 0.6309297535714575, 5: 0.6309297535714575 + 3 * 0.38685280723454163}
    for got in found.values():
        values = {k: result.dcg for (_, k), result in got.items()}
        assert values == pytest.approx({**expected, None: expected[5]}, abs=1e-12)


@pytest.mark.parametrize("check", ["top", "none"])
def test_items_of_relevance_0_keep_negative_ones_from_the_first_ideal_ranks(spark, check):
    """Given ranks do not list zeros; by hand, linear: the ideal of -1,0,2 is 2 + 0 - 1/log2(4)."""
    rows = ranked((-1.0, 0.0, 2.0), query="q") + ranked((-1.0, -2.0, 1.0), query="no zero")
    rows += ranked((0.0, -1.0, 0.0, 0.0), query="zeros enough") + random_rows(44, negatives=True)
    choices = Choices(gain="linear", ties="item_asc")
    settings = EvaluationSettings(
        columns=RANKED,
        cutoffs=(1, 2, 3, 12),
        null_score="unretrieved",
        check_duplicates=check,
        convention=convention_of(choices),
    )
    found = collect_cases({"rank": Case(data=scored_table(spark, rows, choices), settings=settings)})["rank"]
    assert (found["q", 2].idcg, found["q", 3].idcg) == pytest.approx((2.0, 1.5), abs=1e-12)
    assert found["no zero", 3].idcg == pytest.approx(1 - 0.6309297535714575 - 2 * 0.5, abs=1e-12)
    assert found["zeros enough", 3].idcg == 0.0
    assert_same_results(found, evaluate(rows, choices, settings.cutoffs))


def test_condensed_given_ranks_close_up_whatever_the_tie_rule(spark):
    """Ranks are all different, so that no tie rule is asked and no order column needed; see above for one."""
    rows = random_rows(41, ties=False)
    choices = Choices(ties="input_order", unjudged="condensed")
    settings = EvaluationSettings(
        columns=RANKED,
        convention=convention_of(choices),
        cutoffs=(1, 3),
        null_score="unretrieved",
    )
    found = collect_cases({"rank": Case(data=scored_table(spark, rows, choices), settings=settings)})
    assert_same_results(found["rank"], evaluate(rows, choices, [1, 3]))


def test_arrays_of_whole_numbers_decimals_and_booleans(spark):
    rows = [row for row in random_rows(42, special=False, unretrieved=False) if row.relevance in (None, 0.0, 1.0)]
    choices = Choices(ties="item_asc")
    arrays = array_table(spark, rows, choices)
    kinds = ("tinyint", "bigint", "float", "decimal(5,2)", "boolean")
    cases = {
        kind: Case(
            data=arrays.selectExpr("query_id", f"cast(ranked as array<{kind}>) as relevance"),
            settings=EvaluationSettings(cutoffs=(1, 3, None)),
        )
        for kind in kinds
    }
    expected = evaluate(rows, replace(choices, ideal="retrieved"), [1, 3, None])
    for got in collect_cases(cases).values():
        assert_same_results(got, expected)


def test_k_ones_does_not_depend_on_the_other_cutoffs(spark):
    """IDCG@3 of three items of relevance 1 is 1 + 1/log2(3) + 1/log2(4), for a list of one item too."""
    rows = ranked((1.0,), query="q")
    convention = Convention(ideal="k_ones")
    table = scored_table(spark, rows)
    by_name = {
        str(cutoffs): EvaluationSettings(cutoffs=cutoffs, convention=convention) for cutoffs in [(3,), (3, None)]
    }
    found = collect_cases({name: Case(data=table, settings=settings) for name, settings in by_name.items()})
    assert {name: got["q", 3].idcg for name, got in found.items()} == pytest.approx(
        dict.fromkeys(by_name, 1.0 + 0.6309297535714575 + 0.5), abs=1e-12
    )


def test_padding_of_short_lists_where_the_whole_list_is_asked_for_too(spark):
    """One item, padded to three: 1 - (1/log2(3) + 1/log2(4)) with relevance -1 and the linear gain."""
    settings = EvaluationSettings(cutoffs=(3, None), convention=Convention(gain="linear", pad_to_k=-1.0))
    found = collect_cases({"long": Case(data=scored_table(spark, ranked((1.0,), query="q")), settings=settings)})
    values = {k: result.dcg for (_, k), result in found["long"].items()}
    assert values == pytest.approx({3: 1.0 - 0.6309297535714575 - 0.5, None: 1.0}, abs=1e-12)


def test_counts_of_arrays_do_not_depend_on_the_ideal(spark):
    """Judged items that were not retrieved count in n_judged and n_relevant, and make a query a missing one."""
    rows = [*ranked((1.0, None), unretrieved=(2.0,), query="q"), Row(query="m", item="x", relevance=1.0)]
    choices = Choices(ties="item_asc", ideal="retrieved")
    settings = EvaluationSettings(columns=STRUCTS, cutoffs=(2,), convention=convention_of(choices))
    found = collect_cases({"structs": Case(data=array_table(spark, rows, choices), settings=settings)})
    assert_same_results(found["structs"], evaluate(rows, choices, [2]))


def test_unjudged_items_are_not_in_the_ideal_of_a_clipped_table(spark):
    """Level 1 gains less than nothing here; an unjudged item is no level 0. IDCG@1 is the gain of level 1."""
    rows = ranked((1.0, None), query="q")
    choices = Choices(gain="table:0=-3,1=-2", ties="item_asc", negative="clip", ideal="retrieved")
    cases = every_strategy(spark, rows, choices, (1,))
    found = collect_cases({name: case for name, case in cases.items() if name.startswith(("long", "judgments"))})
    for got in found.values():
        assert_same_results(got, evaluate(rows, choices, [1]))


def test_a_query_that_is_only_judged_in_arrays_of_structs(spark):
    """An empty ranked array, and a null element: an item that was retrieved and not judged."""
    rows = [*ranked((None, 1.0), unretrieved=(2.0,), query="q"), Row(query="missing", item="x", relevance=1.0)]
    choices = Choices(ties="item_asc")
    settings = EvaluationSettings(columns=STRUCTS, cutoffs=(1, None))
    found = collect_cases({"structs": Case(data=array_table(spark, rows, choices), settings=settings)})
    assert_same_results(found["structs"], evaluate(rows, choices, [1, None]))


def test_a_long_table_needs_no_item_where_no_rule_asks_for_it(spark):
    rows = random_rows(43)
    choices = Choices(ties="input_order")
    columns = replace(LONG, item=None)
    settings = EvaluationSettings(
        columns=columns, convention=convention_of(choices), cutoffs=(1, 10), null_score="unretrieved"
    )
    found = collect_cases({"long": Case(data=scored_table(spark, rows).drop("item_id"), settings=settings)})
    assert_same_results(found["long"], evaluate(rows, choices, [1, 10]))
