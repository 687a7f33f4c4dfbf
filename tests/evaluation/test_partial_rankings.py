"""Rows ranked in parts, exchanged and merged, against the oracle; and that no split of them changes a bit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import pyarrow as pa
import pytest
from support.arrow_rankings import assert_same, build_convention, build_task, score_batches
from support.arrow_rows import (
    QUERY,
    Parts,
    build_canonical_rows,
    build_ranking_task,
    deal_rows,
    exchange_rows,
    index_bits,
    select_judgments,
    select_run,
    send_parts,
)
from support.oracle import Choices, Row, evaluate
from support.random_rankings import random_rows
from support.spark_rankings import compute_ranks

from ndcg_spark.core.batches import hash_keys
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.evaluation.tasks.exchange import PARTIALS, ROWS, send_rows
from ndcg_spark.evaluation.tasks.partial_ranking import advise_on_repeats
from ndcg_spark.evaluation.tasks.query_rows import RankingTask

SEEDS = range(80)
TABLE = "table:-2=-3,-1=-3,0=0.5,0.25=0.5,0.5=1,1=1,1.5=1,2=1,2.75=7,3=7,4=9"
"""Gains that do not rise with relevance: the ideal list is ordered by gain."""
OPTIONS: dict[str, tuple] = {
    "gain": ("exponential", "linear", TABLE, "power:2", lambda rel: rel + 2.5),
    "ties": ("item_asc", "item_desc", "input_order", "expected", "best", "worst"),
    "score_precision": ("double", "float32"),
    "ideal": ("judged", "retrieved", "k_ones", "as_many"),
    "unjudged": ("zero", "condensed"),
    "negative": ("keep", "clip"),
    "no_relevant": ("zero", "one", "skip"),
    "missing_query": ("zero", "drop"),
    "unjudged_query": ("drop", "zero"),
    "pad_to_k": (None, -1.0),
}
LIMITS: dict[str, dict[str, int]] = {
    "as they are": {},
    "little is held": {"chunk_rows": 7, "held_rows": 3, "queries_at_once": 2},
    "few bytes are held": {"chunk_rows": 20, "held_bytes": 300},
}
N_PARTITIONS = (1, 3, 64)


def choices_of(seed: int) -> Choices:
    """Choices of a seed. A power of a negative relevance is left to other tests: the definition has none."""
    random_ = random.Random(seed)
    choices = Choices(**{name: random_.choice(values) for name, values in OPTIONS.items()})
    return replace(choices, negative="clip") if choices.gain == "power:2" else choices


def rows_of(seed: int) -> list[Row]:
    shape = {"negatives": seed % 2 == 0, "fractional": seed % 3 == 0, "integer_items": seed % 5 == 0}
    rows = random_rows(seed, n_queries=10, max_items=9, extreme_scores=seed % 4 == 0, **shape)
    return sorted(rows, key=lambda row: row.query) if seed % 2 else rows  # clustered, or shuffled


def settings_of(choices: Choices, cutoffs: tuple[int | None, ...] = (3,), **changes: object) -> EvaluationSettings:
    columns = Columns(order="position") if choices.ties == "input_order" else Columns()
    chosen = {"columns": columns, "cutoffs": cutoffs, "null_score": "unretrieved"} | changes
    return EvaluationSettings(convention=build_convention(choices), **chosen)


@dataclass(frozen=True)
class Tables:
    """One evaluation as workers see it."""

    settings: EvaluationSettings
    rows: pa.RecordBatch
    judgments: pa.RecordBatch | None = None

    def rankings(self, parts: Parts | None = None, *, seed: int = 0, **limits: int) -> list[pa.RecordBatch]:
        """Of rows that lie in some parts, or in one; judgments are in random ones, too."""
        task = self.task(**limits)
        judged: Parts = ()
        if self.judgments is not None:
            judged = [[self.judgments]] if parts is None else deal_rows(self.judgments, seed)
        return exchange_rows(task, [[self.rows]] if parts is None else parts, judged, seed)

    def task(self, **limits: int) -> RankingTask:
        return build_ranking_task(self.rows, self.settings, self.judgments, **limits)


def tables_of(form: str, rows: Sequence[Row], choices: Choices, settings: EvaluationSettings) -> Tables:
    """A long table, or a run and judgments; with scores, or with the ranks that the choices give."""
    ranks = None
    if "ranks" in form:
        settings = replace(settings, columns=replace(settings.columns, rank="rank"))
        ranks = compute_ranks(rows, choices)
    canonical = build_canonical_rows(rows, settings, ranks)
    if "judgments" in form:
        return Tables(settings, select_run(canonical), select_judgments(canonical))
    return Tables(settings, canonical)


FORMS = ("long", "run and judgments", "ranks", "ranks and judgments")


def form_of(seed: int, choices: Choices) -> str:
    """Ranks have no ties, so that they stand for tie rules that order items only."""
    ordered = choices.ties in ("item_asc", "item_desc", "input_order")
    return FORMS[seed // 2 % (4 if ordered else 2)]


def scored(rankings: list[pa.RecordBatch], settings: EvaluationSettings):
    return score_batches(rankings, build_task(settings.convention, settings.cutoffs))


# --- Against the definition


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_that_lie_anywhere_score_what_the_oracle_says(seed: int) -> None:
    choices, rows, cutoffs = choices_of(seed), rows_of(seed), ((1, 3), (2, 5, 20), (1,), (3, None))[seed % 4]
    if choices.ideal == "k_ones" or choices.pad_to_k is not None:
        cutoffs = tuple(k for k in cutoffs if k is not None)  # their whole lists: see test_scoring.py
    settings = settings_of(choices, cutoffs, check_duplicates=("top", "none")[seed % 3 // 2])
    tables = tables_of(form_of(seed, choices), rows, choices, settings)
    limits = list(LIMITS.values())[seed % 3]
    actual = tables.rankings(deal_rows(tables.rows, seed), seed=seed, n_partitions=N_PARTITIONS[seed % 3], **limits)
    assert_same(scored(actual, tables.settings), evaluate(rows, choices, cutoffs))


def test_the_seeds_meet_every_value_of_every_choice_and_every_form() -> None:
    for name, values in OPTIONS.items():
        assert {getattr(choices_of(seed), name) for seed in SEEDS} == set(values), name
    assert {form_of(seed, choices_of(seed)) for seed in SEEDS} == set(FORMS)


# --- Wherever rows lie


def equal_rows(seed: int) -> list[Row]:
    """Rows of which many share score, item and order value, so that only relevance tells them apart.

    Order values are integers, or fractions such as times have.
    """
    random_ = random.Random(seed)
    return [
        Row(
            query=f"q{random_.randint(0, 5)}",
            item=random_.choice("abc"),
            score=random_.choice([0.0, -0.0, 1.0, 2.0]),
            relevance=random_.choice([None, -1.0, 0.0, 1.0, 2.0]),
            position=random_.randint(0, 2) if seed % 2 else random_.randint(0, 2) / 4,
        )
        for _ in range(150)
    ]


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("form", ["long", "run and judgments"])
@pytest.mark.parametrize("ties", OPTIONS["ties"])
def test_no_split_changes_a_bit(ties: str, form: str, limits: str) -> None:
    """Whole rankings are compared, counts among them, with those of all rows in one chunk."""
    for seed, (unjudged, ideal) in enumerate([("zero", "judged"), ("condensed", "judged"), ("zero", "retrieved")]):
        choices = Choices(ties=ties, unjudged=unjudged, ideal=ideal)
        settings = settings_of(choices, (1, 4), check_duplicates="none")
        rows = equal_rows(seed)
        expected = index_bits(tables_of(form, rows, choices, settings).rankings())
        assert len(expected) == 6
        for n_partitions in N_PARTITIONS:
            shuffled = random.Random(n_partitions).sample(rows, len(rows))
            tables = tables_of(form, shuffled, choices, settings)
            parts = deal_rows(tables.rows, seed + n_partitions, max_rows=60)
            actual = tables.rankings(parts, seed=seed, n_partitions=n_partitions, **LIMITS[limits])
            assert index_bits(actual) == expected, (n_partitions, choices)


def one_hash(number: int) -> str:
    """One of 16 texts of the same hash.

    Polynomials of a Thue-Morse word and of its complement are equal modulo 2^64 at any odd number: they differ by
    the product of 1 - B^(2^i), i < 11, whose factors have 2^64 in them. So are those of texts made of the two.
    """
    word = "".join("ab"[bin(n).count("1") % 2] for n in range(2**11))
    other = word.translate(str.maketrans("ab", "ba"))
    return "".join(other if number >> bit & 1 else word for bit in range(4))


@pytest.mark.parametrize("n_hashes", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_hashes_that_queries_share_change_no_bit(form: str, n_hashes: int) -> None:
    """Keys are compared where hashes are equal: queries have the rankings that each has alone."""
    choices = Choices(ties="item_asc")
    settings, rows = settings_of(choices), rows_of(2)
    number = {query: n for n, query in enumerate(sorted({row.query for row in rows}))}
    names = {query: f"{n % n_hashes}{one_hash(n)}" for query, n in number.items()}
    assert len(set(names.values())) == len(names)
    hashes = hash_keys(pa.RecordBatch.from_pydict({"q": list(names.values())}), ("q",))
    assert len(set(hashes.tolist())) == n_hashes
    rows = [replace(row, query=names[row.query]) for row in rows]
    expected = {}
    for query in names.values():
        expected |= index_bits(
            tables_of(form, [row for row in rows if row.query == query], choices, settings).rankings()
        )
    tables = tables_of(form, rows, choices, settings)
    parts = deal_rows(tables.rows, 1)
    for limits in LIMITS.values():
        assert index_bits(tables.rankings(parts, n_partitions=3, **limits)) == expected


@pytest.mark.parametrize(
    ("ties", "dcg"), [("item_asc", 0.0), ("item_desc", 3.0), ("input_order", 0.0), ("best", 3.0), ("worst", 0.0)]
)
def test_rows_that_tie_in_all_else_rank_by_relevance_the_lowest_first(ties: str, dcg: float) -> None:
    """An unjudged item comes before all judged ones. By `item_desc`, item b is first: it gains 2^2 - 1."""
    alike = [Row(query="q", item="a", score=1, relevance=relevance) for relevance in (0.0, 1.0, None)]
    rows = [*alike, Row(query="q", item="b", score=1, relevance=2.0, position=1)]
    settings = settings_of(Choices(ties=ties), (1,), check_duplicates="none")
    for order in permutations(rows):
        tables = Tables(settings, build_canonical_rows(order, settings))
        for parts in ([[tables.rows]], [[tables.rows.slice(0, 2)], [tables.rows.slice(2)]]):
            assert scored(tables.rankings(parts, held_rows=1), settings)["q", 1]["dcg"] == dcg


# --- What is sent


def kinds_sent(rows: Sequence[Row], k: int | None, **limits: int) -> list[int]:
    settings = settings_of(Choices(ties="item_asc"), (k,))
    task = build_ranking_task(build_canonical_rows(rows, settings), settings, **limits)
    return [row["kind"] for row in send_parts([[build_canonical_rows(rows, settings)]], send_rows, task)]


def test_long_stretches_are_cut_and_short_ones_sent_as_they_are() -> None:
    long = [Row(query="long", item=f"{n}", score=n, relevance=1) for n in range(50)]
    short = [Row(query=f"{n}", item="x", score=n, relevance=1) for n in range(50)]
    assert kinds_sent(long, 3) == [PARTIALS]
    assert kinds_sent(short, 3) == [ROWS]
    assert sorted(kinds_sent(long + short, 3)) == [ROWS, PARTIALS]
    assert kinds_sent(long, 30) == [ROWS]
    assert kinds_sent(long, None) == [ROWS]


def test_what_a_worker_holds_is_bounded() -> None:
    """A message each time it holds enough: 50 rows in chunks of 5, passed on from 10 rows."""
    short = [Row(query=f"{n}", item="x", score=n, relevance=1) for n in range(50)]
    settings = settings_of(Choices(ties="item_asc"))
    rows = build_canonical_rows(short, settings)
    batches = [rows.slice(at, 5) for at in range(0, 50, 5)]
    for limits in ({"held_rows": 10}, {"held_bytes": 1}):
        task = build_ranking_task(rows, settings, chunk_rows=5, **limits)
        assert len(send_parts([batches], send_rows, task)) == (5 if "held_rows" in limits else 10)


# --- Duplicates


def one_query(*rows: tuple[str, float | None, float | None]) -> list[Row]:
    return [Row(query="q", item=item, score=score, relevance=relevance) for item, score, relevance in rows]


TWICE_RANKED = one_query(("a", 3, 0), ("b", 2, 0), ("a", 1, 0), ("c", 0, 1))
TWICE_BEST = one_query(("a", 3, 2), ("b", 2, 0), ("c", 1, 0), ("d", 0, 1), ("e", -1, 0), ("a", -2, 2))
TWICE_AT_THE_END = one_query(("a", 3, 2), ("b", 2, 0), ("c", 1, 0), ("d", 0, 1), ("e", -1, 1), ("d", -2, 1))
TWICE_BELOW = one_query(("a", 3, 2), ("b", 2, 1), ("c", 1, 1), ("d", 0, 0), ("d", -1, 0))
TINY = {"chunk_rows": 1, "held_rows": 1, "held_bytes": 1}


@pytest.mark.parametrize("limits", [{}, TINY], ids=["together", "apart"])
@pytest.mark.parametrize(("rows", "where"), [(TWICE_RANKED, "ranking"), (TWICE_BEST, "ideal list")])
def test_an_item_twice_in_a_list_is_refused(rows, where, limits) -> None:
    settings = settings_of(Choices(ties="item_asc"))
    tables = Tables(settings, build_canonical_rows(rows, settings))
    for seed in range(4):
        parts = deal_rows(tables.rows, seed, max_rows=3)
        with pytest.raises(
            InputRefusedError, match=rf"an item appears twice in the {where} of query query_id=q\. Does"
        ):
            tables.rankings(parts, **limits)
    unchecked = replace(settings, check_duplicates="none")
    assert Tables(unchecked, tables.rows).rankings(**limits)


@pytest.mark.parametrize("limits", [{}, TINY], ids=["together", "apart"])
@pytest.mark.parametrize("rows", [TWICE_AT_THE_END, TWICE_BELOW], ids=["tied at the cutoff", "below k"])
def test_items_that_are_not_certainly_in_a_list_are_ignored(rows, limits) -> None:
    """Which of several items of relevance 1 end the ideal list is arbitrary."""
    settings = settings_of(Choices(ties="item_asc"))
    tables = Tables(settings, build_canonical_rows(rows, settings))
    for seed in range(4):
        assert tables.rankings(deal_rows(tables.rows, seed, max_rows=3), **limits)


def test_two_items_on_one_rank_are_refused_wherever_they_lie() -> None:
    """Also where the second is the one beyond the cutoff that is kept to see it."""
    settings = settings_of(Choices(ties="item_asc"), (2,), columns=Columns(rank="rank"), check_duplicates="none")
    rows = one_query(("a", None, 1), ("b", None, 1), ("c", None, 0))
    ranks = {("q", "a"): 1, ("q", "b"): 2, ("q", "c"): 2}
    tables = Tables(settings, build_canonical_rows(rows, settings, ranks))
    for order in permutations(range(3)):
        parts = [[tables.rows.slice(at, 1)] for at in order]
        for limits in ({}, TINY):
            with pytest.raises(InputRefusedError, match="query_id=q has two items on one rank"):
                scored(tables.rankings(parts, **limits), settings)
    only_first = replace(settings, cutoffs=(1,))
    assert scored(Tables(only_first, tables.rows).rankings(), only_first)["q", 1]["dcg"] == 1.0


# --- Columns that are carried


def carried(values: pa.Array, queries: str, parts_of: int = 1, **limits: int) -> dict[str, object]:
    """The segment of each query."""
    settings = settings_of(Choices(ties="item_asc"), segment_sets=(("country",),))
    rows = [Row(query=query, item=f"{n}", score=-n, relevance=0) for n, query in enumerate(queries)]
    batch = build_canonical_rows(rows, settings).append_column("segment_0", values)
    parts = [[batch.slice(at, parts_of)] for at in range(0, len(rows), parts_of)]
    actual = Tables(settings, batch).rankings(parts, **limits)
    return {row["query_id"]: row["country"] for element in actual for row in element.to_pylist()}


@pytest.mark.parametrize("n_rows", [1, 2, 20])
def test_a_segment_is_the_value_of_the_rows_of_its_query(n_rows: int) -> None:
    """A null beside a value does not count; only nulls are null."""
    countries = pa.array(["x", None, "x", None, None, "z", "z"])
    assert carried(countries, "aaabbcc", n_rows) == {"a": "x", "b": None, "c": "z"}


@pytest.mark.parametrize("n_rows", [1, 2, 20])
@pytest.mark.parametrize(
    "kind", [pa.bool_(), pa.int8(), pa.float64(), pa.date32(), pa.string(), pa.timestamp("us", "UTC")]
)
def test_two_segments_in_a_query_are_refused_whatever_their_type(kind: pa.DataType, n_rows: int) -> None:
    numbers = pa.array([1, None, 1, 1, None, 0], pa.int64())
    values = numbers.cast(pa.int8()).cast(kind) if kind in (pa.bool_(), pa.int8()) else _as(numbers, kind)
    with pytest.raises(InputRefusedError, match=r"column 'country' has more than one value in query query_id=b\."):
        carried(values, "aaabbb", n_rows)
    assert carried(values.slice(0, 3), "aaa", n_rows)["a"] is not None


def _as(numbers: pa.Array, kind: pa.DataType) -> pa.Array:
    return numbers.cast(pa.int32()).cast(kind) if pa.types.is_date32(kind) else numbers.cast(kind)


def test_nan_is_one_value_of_a_segment() -> None:
    nan = float("nan")
    actual = carried(pa.array([nan, None, nan]), "aaa")
    assert str(actual["a"]) == "nan"
    with pytest.raises(InputRefusedError, match="more than one value"):
        carried(pa.array([nan, None, 1.0]), "aaa")


def of_both_tables(values: pa.Array, judged: pa.Array) -> object:
    """The segment of a query with two items; its first is judged."""
    settings = settings_of(Choices(), segment_sets=(("country",),))
    rows = build_canonical_rows(one_query(("a", 2, 1), ("b", 1, None)), settings)
    run, judgments = select_run(rows), select_judgments(rows)
    tables = Tables(settings, run.append_column("segment_0", values), judgments.append_column("segment_0", judged))
    (actual,) = tables.rankings()
    return actual.column("country")[0].as_py()


@pytest.mark.parametrize("values", [["DE", "FR"], ["DE", "AT"], ["FR", "FR"], ["FR", None]])
def test_a_segment_that_the_run_tells_otherwise_than_the_judgments_is_refused(values: list[str]) -> None:
    """Also where the run has two values, one of which is that of the judgments."""
    with pytest.raises(InputRefusedError, match="'country' differs between run and judgments in query query_id=q"):
        of_both_tables(pa.array(values), pa.array(["DE"]))
    assert of_both_tables(pa.array(["DE", None]), pa.array(["DE"])) == "DE"


def test_nan_is_the_same_segment_in_run_and_judgments() -> None:
    nan = float("nan")
    assert str(of_both_tables(pa.array([nan, nan]), pa.array([nan]))) == "nan"
    with pytest.raises(InputRefusedError, match="differs"):
        of_both_tables(pa.array([nan, nan]), pa.array([1.0]))


# --- Values at the edge


def test_whole_numbers_that_no_double_holds_are_rounded() -> None:
    """As Spark casts them: 2^53 and 2^53 + 1 tie, and the item decides."""
    settings = settings_of(Choices(ties="item_asc"), (1,))
    rows = build_canonical_rows(one_query(("a", 0, 0), ("b", 0, 1)), settings)
    rows = rows.set_column(rows.schema.get_field_index("score"), "score", pa.array([2**53, 2**53 + 1]))
    for parts in ([[rows]], [[rows.slice(1)], [rows.slice(0, 1)]]):
        assert scored(Tables(settings, rows).rankings(parts), settings)["q", 1]["dcg"] == 0.0


def test_items_beyond_2_to_the_53_are_told_apart() -> None:
    """By value: 2^53 + 1 comes after 2^53, although no double is between them."""
    for ties, dcg in {"item_asc": 0.0, "item_desc": 1.0}.items():
        settings = settings_of(Choices(ties=ties), (1,))
        rows = build_canonical_rows([Row(query="q", item=2**53, score=0, relevance=0)], settings)
        other = build_canonical_rows([Row(query="q", item=2**53 + 1, score=0, relevance=1)], settings)
        assert scored(Tables(settings, rows).rankings([[other], [rows]]), settings)["q", 1]["dcg"] == dcg


def test_nothing_but_bad_rows_is_a_lost_query() -> None:
    settings = replace(settings_of(Choices(ties="item_asc")), on_invalid="reject")
    rows = build_canonical_rows(one_query(("a", float("nan"), 0), ("b", float("inf"), 0)), settings)
    (lost,) = Tables(settings, rows).rankings()
    assert (lost["query_id"].to_pylist(), lost["n_rows"].to_pylist(), lost["n_rejected"].to_pylist()) == (
        ["q"],
        [0],
        [2],
    )
    assert Tables(settings, rows.slice(0, 0)).rankings() == []


@pytest.mark.parametrize(
    "limits", [{}, TINY, {"chunk_rows": 20, "held_rows": 30}], ids=["together", "apart", "mixed"]
)
@pytest.mark.parametrize("k", [1, None])
def test_rejected_rows_of_a_query_are_counted_in_any_parts(limits, k) -> None:
    """Twelve queries of up to 40 rows, of which three have bad rows only; expected counts by a loop."""
    settings = replace(settings_of(Choices(ties="item_asc"), (k,)), on_invalid="reject")
    for seed in range(4):
        random_ = random.Random(seed)
        bad = {f"q{n}": (0.0, 0.2, 0.9, 1.0)[n % 4] for n in range(12)}
        scores_of = {(query, f"{n}"): float(n) for query in bad for n in range(random_.randint(1, 40))}
        rejected = {key for key in scores_of if random_.random() < bad[key[0]]}
        rows = [
            Row(query=query, item=item, score=float("nan") if (query, item) in rejected else score, relevance=1.0)
            for (query, item), score in scores_of.items()
        ]
        random_.shuffle(rows)
        tables = Tables(settings, build_canonical_rows(rows, settings))
        actual = [
            row
            for batch in tables.rankings(deal_rows(tables.rows, seed, max_rows=9), **limits)
            for row in batch.to_pylist()
        ]
        assert len(actual) == len(bad)
        for row in actual:
            n_rows = sum(query == row["query_id"] for query, _ in scores_of)
            n_rejected = sum(query == row["query_id"] for query, _ in rejected)
            assert (row["n_rows"], row["n_rejected"]) == (n_rows - n_rejected, n_rejected)
            assert len(row["ranked"]) == min(n_rows - n_rejected, k or 40)


# --- Several rankers


def test_runs_of_a_column_share_judgments_and_miss_queries_each_for_itself() -> None:
    """Run b has no row of query p, which is missing there alone; query z is judged and in no run."""
    settings = settings_of(Choices(), (2,), columns=Columns(run="run"))
    rows = {
        "run": ["a", "a", "b"],
        QUERY: ["p", "q", "q"],
        "item": ["x", "x", "y"],
        "score": [1.0, 1.0, 2.0],
    }
    judged = {QUERY: ["p", "q", "z"], "item": ["x", "y", "x"], "relevance": [1.0, 1.0, 1.0]}
    tables = Tables(settings, pa.RecordBatch.from_pydict(rows), pa.RecordBatch.from_pydict(judged))
    for n_partitions in N_PARTITIONS:
        actual = index_bits(
            tables.rankings(deal_rows(tables.rows, n_partitions, max_rows=1), n_partitions=n_partitions)
        )
        n_items = {key: dict(row)["n_items"] for key, row in actual.items()}
        assert n_items == {
            ("a", "p"): 1, ("a", "q"): 1, ("a", "z"): 0, ("b", "p"): 0, ("b", "q"): 1, ("b", "z"): 0,
        }  # fmt: skip
        assert {dict(row)["n_judged"] for row in actual.values()} == {1}


def test_a_query_without_run_and_relevance_is_none() -> None:
    """Query z is not in the run, and a null relevance is no judgment."""
    settings = settings_of(Choices(unjudged_query="zero"))
    rows = pa.RecordBatch.from_pydict({QUERY: ["q"], "item": ["a"], "score": [1.0]})
    judged = {QUERY: ["q", "z"], "item": ["a", "c"], "relevance": [1.0, None]}
    tables = Tables(settings, rows, pa.RecordBatch.from_pydict(judged))
    assert [query for _, query in index_bits(tables.rankings())] == ["q"]


@pytest.mark.parametrize("judged", [False, True], ids=["long", "judgments"])
def test_score_columns_are_evaluations_of_their_own(judged: bool) -> None:
    """Bit for bit what each column alone gives, where rows lack one score or the other."""
    choices = Choices(ties="expected")
    first, second = (random_rows(seed, n_queries=8, special=False) for seed in (1, 2))
    n = min(len(first), len(second))
    others = [replace(one, score=other.score) for one, other in zip(first[:n], second[:n], strict=True)]
    alone = {}
    for run, rows in {"bm25": first[:n], "dense": others}.items():
        settings = settings_of(choices, (1, 3), columns=Columns(score=(run,)))
        canonical = build_canonical_rows(rows, settings)
        tables = Tables(settings, canonical)
        if judged:
            tables = Tables(settings, canonical.drop_columns(["relevance"]), select_judgments(canonical))
        alone |= {(run, query): row for (_, query), row in index_bits(tables.rankings()).items()}
    settings = settings_of(choices, (1, 3), columns=Columns(score=("bm25", "dense")))
    canonical = build_canonical_rows(first[:n], settings)
    wide = canonical.rename_columns(["score_0" if name == "score" else name for name in canonical.schema.names])
    wide = wide.append_column("score_1", build_canonical_rows(others, settings).column("score"))
    tables = Tables(settings, wide)
    if judged:
        tables = Tables(settings, wide.drop_columns(["relevance"]), select_judgments(canonical))
    for limits in LIMITS.values():
        assert index_bits(tables.rankings(deal_rows(tables.rows, 3), n_partitions=3, **limits)) == alone


@pytest.mark.parametrize(
    ("kind", "columns", "advice"),
    [
        ("list", Columns(), "Remove it."),
        ("ranking", Columns(run="ranker"), "Remove it, or choose which one counts"),
        ("ranking", Columns(score=("bm25", "dense")), "Remove it, or choose which one counts"),
        ("judgments", Columns(), "Remove it, or choose which one counts"),
        (
            "ranking",
            Columns(),
            "Does the table hold several rankers? Then name the column that tells them apart: run=...",
        ),
    ],
)
def test_what_is_advised_on_an_item_that_comes_twice(kind: str, columns: Columns, advice: str) -> None:
    """Several rankers are asked about only where the table may hold some, and no option tells them apart."""
    assert advise_on_repeats(kind, EvaluationSettings(columns=columns), ["site"]).startswith(advice)
