"""Rows that workers read from files, cut into pieces and merged, against the oracle; and what is refused."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from support.arrow_rows import cut_somewhere, cut_task, file_rows, gathered
from support.arrow_rankings import convention_of, scores, task_of
from support.oracle import Choices, Row, evaluate
from support.random_rankings import random_rows
from test_worker_oracle import assert_same

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.plan import Columns, EvaluationPlan
from ndcg_spark.worker.bad_rows import usable_rows
from ndcg_spark.worker.packing import lists_in, pack, unpack
from ndcg_spark.worker.pieces import cut_rows

SEEDS = range(150)
OPTIONS: dict[str, tuple] = {
    "gain": ("exponential", "linear", "power:2", lambda rel: rel + 2.5),
    "ties": ("item_asc", "item_desc", "input_order"),
    "score_precision": ("double", "float32"),
    "ideal": ("judged", "retrieved", "k_ones", "judged"),
    "unjudged": ("zero", "condensed"),
    "negative": ("keep", "clip"),
    "no_relevant": ("zero", "one", "skip"),
    "missing_query": ("zero", "drop"),
    "unjudged_query": ("drop", "zero"),
    "pad_to_k": (None, -1.0),
}
BY_POSITION = Columns(order="position")


def choices_of(seed: int) -> Choices:
    random_ = random.Random(seed)
    choices = Choices(**{name: random_.choice(values) for name, values in OPTIONS.items()})
    return replace(choices, negative="clip") if choices.gain == "power:2" else choices


def plan_of(choices: Choices, cutoffs=(3,), **changes) -> EvaluationPlan:
    columns = BY_POSITION if choices.ties == "input_order" else Columns()
    return EvaluationPlan(
        columns=columns, convention=convention_of(choices), cutoffs=cutoffs, null_score="unretrieved", **changes
    )


def rows_of(seed: int) -> list[Row]:
    shape = {"negatives": seed % 2 == 0, "fractional": seed % 3 == 0, "integer_items": seed % 5 == 0}
    rows = random_rows(seed, n_queries=10, max_items=9, extreme_scores=seed % 4 == 0, **shape)
    return sorted(rows, key=lambda row: row.query) if seed % 2 else rows  # together, or scattered


def scored(rankings: pa.RecordBatch, plan: EvaluationPlan):
    task = replace(task_of(plan.convention, plan.cutoffs), looks=plan.looks_at_items)
    return scores([rankings], task)


@pytest.mark.parametrize("seed", SEEDS)
def test_pieces_score_what_the_oracle_says(seed):
    choices, rows, cutoffs = choices_of(seed), rows_of(seed), ((1, 3), (2, 5, 20), (1,))[seed % 3]
    plan = plan_of(choices, cutoffs, check_duplicates=("top", "none")[seed % 2])
    found = scored(cut_somewhere(file_rows(rows), plan, seed), plan)
    assert_same(found, evaluate(rows, choices, cutoffs))


def test_the_seeds_meet_every_value_of_every_choice():
    for name, values in OPTIONS.items():
        assert {getattr(choices_of(seed), name) for seed in SEEDS} == set(values), name


def test_a_piece_holds_no_more_than_its_lists_need():
    """Fifty rows of one query at k = 3: three of each list; one more of the best if duplicates are looked for."""
    rows = file_rows([Row(query="q", item=n, score=-n, relevance=n % 5, position=n) for n in range(50)])
    piece, (ranked, best) = only_piece(rows, plan_of(Choices(ties="item_asc"), check_duplicates="none"))
    assert [one.tolist() for one in ranked] == [[0, -1, -2], [0, 1, 2], [0, 1, 2]]
    assert [one.tolist() for one in best] == [[4, 4, 4]]
    assert [piece[name] for name in ("n_rows", "n_items", "n_judged", "n_relevant")] == [50, 50, 50, 40]


def test_items_come_with_the_best_relevances_unless_they_tie_across_their_end():
    relevances = [9 if n == 7 else 8 if n in (3, 30) else n % 5 for n in range(50)]
    rows = file_rows([Row(query="q", item=n, score=-n, relevance=rel) for n, rel in enumerate(relevances)])
    _, (_, (best, items)) = only_piece(rows, plan_of(Choices(ties="item_asc")))
    assert best.tolist() == [9, 8, 8, 4]
    assert items[:3].tolist() == [7, 3, 30]


def only_piece(rows: pa.RecordBatch, plan: EvaluationPlan):
    pieces = cut_rows(rows, cut_task(rows, plan))
    packed = next(name for name in pieces.schema.names if "|" in name)
    kinds = [["i8" if name.endswith("items") else "f8" for name in names] for names in lists_in(packed)]
    (piece,) = pieces.to_pylist()
    return piece, [lists for _, lists in unpack(pieces.column(packed), kinds)]


def one_query(*rows: tuple[str, float | None, float | None]) -> list[Row]:
    return [Row(query="q", item=item, score=score, relevance=relevance) for item, score, relevance in rows]


TWICE_RANKED = one_query(("a", 3, 0), ("b", 2, 0), ("a", 1, 0), ("c", 0, 1))
TWICE_BEST = one_query(("a", 3, 2), ("b", 2, 0), ("c", 1, 0), ("d", 0, 1), ("e", -1, 0), ("a", -2, 2))
TWICE_AT_THE_END = one_query(("a", 3, 2), ("b", 2, 0), ("c", 1, 0), ("d", 0, 1), ("e", -1, 1), ("d", -2, 1))
TWICE_BELOW = one_query(("a", 3, 2), ("b", 2, 1), ("c", 1, 1), ("d", 0, 0), ("d", -1, 0))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("rows", "where"), [(TWICE_RANKED, "ranking"), (TWICE_BEST, "judgments")])
def test_an_item_twice_in_a_list_is_refused(rows, where, seed):
    plan = plan_of(Choices(ties="item_asc"))
    with pytest.raises(InputRefusedError, match=rf"an item comes twice in the {where} of query query_id=q\. Remove"):
        scored(cut_somewhere(file_rows(rows), plan, seed), plan)
    plan = replace(plan, check_duplicates="none")
    assert scored(cut_somewhere(file_rows(rows), plan, seed), plan)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rows", [TWICE_AT_THE_END, TWICE_BELOW], ids=["ties across the end", "below k"])
def test_items_that_are_not_certainly_in_a_list_are_not_looked_at(rows, seed):
    """Which of several items of relevance 1 end the ideal list is chance."""
    plan = plan_of(Choices(ties="item_asc"))
    assert scored(cut_somewhere(file_rows(rows), plan, seed), plan)


def test_what_a_column_carries_is_the_value_of_its_rows():
    """The lowest and the highest, whichever comes first, as pieces are put together by these; null only where all
    are."""
    rows = file_rows([Row(query=query, item=n, score=-n, relevance=0) for n, query in enumerate("aaabbcccdd")])
    country = pa.array(["x", None, "x", None, None, "y", "x", "y", "z", "z"])  # "y" is there before the second "x"
    rows = rows.append_column("country", country)
    plan = plan_of(Choices(ties="item_asc"), segment_sets=(("country",),))
    task = cut_task(rows, plan)
    fields = [*task.pieces, pa.field("low:country", pa.string()), pa.field("high:country", pa.string())]
    found = cut_rows(rows, replace(task, pieces=pa.schema(fields))).to_pylist()
    assert [(piece["low:country"], piece["high:country"]) for piece in found[:2]] == [("x", "x"), (None, None)]
    assert (found[2]["low:country"], found[2]["high:country"]) == ("x", "y")
    assert (found[3]["low:country"], found[3]["high:country"]) == ("z", "z")


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int8(), pa.float64(), pa.date32()])
def test_every_type_of_a_carried_column_has_a_lowest_and_a_highest_value(kind):
    rows = file_rows([Row(query="q", item=n, score=-n, relevance=0) for n in range(3)])
    rows = rows.append_column("s", pa.array([1, None, 0], pa.int32()).cast(kind))
    task = cut_task(rows, plan_of(Choices(ties="item_asc"), segment_sets=(("s",),)))
    task = replace(task, pieces=pa.schema([*task.pieces, pa.field("low:s", kind), pa.field("high:s", kind)]))
    (piece,) = cut_rows(rows, task).to_pylist()
    assert piece["low:s"] < piece["high:s"]


def test_whole_numbers_that_no_double_holds_are_rounded():
    """As Spark casts them: 2^53 and 2^53 + 1 tie, and the item decides."""
    rows = file_rows([Row(query="q", item=item, score=0, relevance=rel) for item, rel in (("a", 0), ("b", 1))])
    rows = rows.set_column(2, "score", pa.array([2**53, 2**53 + 1]))
    plan = plan_of(Choices(ties="item_asc"), (1,))
    pieces = cut_rows(usable_rows(rows, plan), cut_task(rows, plan)).to_pylist()
    assert scored(gathered(pieces, cut_task(rows, plan)), plan)["q", 1]["dcg"] == 0.0


def test_packed_lists_may_come_back_with_wide_offsets():
    packed = pack([(np.array([2, 1]), [np.array([0.5, 1.5, 2.5])])])
    for kind in (pa.binary(), pa.large_binary()):
        ((lengths, (values,)),) = unpack(packed.cast(kind), [["f8"]])
        assert (lengths.tolist(), values.tolist()) == ([2, 1], [0.5, 1.5, 2.5])


def test_a_batch_of_nothing_but_bad_rows_has_no_pieces():
    rows = file_rows([Row(query="q", item="a", score=float("nan"), relevance=0)])
    plan = replace(plan_of(Choices(ties="item_asc")), on_invalid="reject")
    task = cut_task(rows, plan)
    assert cut_rows(usable_rows(rows, plan), task).num_rows == 0
    assert gathered([], task).num_rows == 0
