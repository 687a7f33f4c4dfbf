"""Lists of every form under every rule: the numbers of the long table of the same lists, and of loops.

Rules are made of the fields of `Convention`: each value of each field, with each way to take entries out of a list.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import pyarrow as pa
import pytest
from support.engines import parametrize_engine, table
from support.oracle import Choices, Results, Row
from support.oracle import evaluate as evaluate_by_loops
from support.spark_rankings import Case, assert_same_results, collect_cases

from ndcg_spark.conventions import CHOICES, Convention
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings, PositionColumns
from ndcg_spark.evaluation.tasks.list_rankings import rank_lists
from ndcg_spark.evaluation.tasks.query_rows import RankingTask
from ndcg_spark.evaluation.tasks.scoring import build_scoring_task, score_rankings

CUTOFFS = (1, 3, None)
OTHERS: dict[str, tuple[Any, ...]] = {
    "gain": ("linear", "table:0=0,1=1,2=3,3=4"),
    "discount": ("reciprocal", "ln"),
    "pad_to_k": (1.0,),
}
"""Values of the fields of `Convention` that have no list of values."""
NOT_OF_LISTS = {("ideal", "unsorted")}
"""Beside a table of judgments, which has no order."""
TAKEN_OUT = (("error", "fail"), ("error", "reject"), ("best", "fail"), ("best", "reject"), ("first", "reject"))
"""Values of `duplicates` and `on_invalid`."""


@dataclass(frozen=True)
class Rule:
    """A convention, and what happens to bad rows and to entries without a score."""

    convention: Convention
    on_invalid: str = "fail"
    null_score: str = "bad"

    def __str__(self) -> str:
        return f"{self.convention};{self.on_invalid};{self.null_score}"

    @property
    def changes(self) -> set[str]:
        """Fields that are not as by default, but for how copies are told apart."""
        usual = replace(Convention(), duplicates=self.convention.duplicates)
        names = [field.name for field in fields(Convention)]
        return {name for name in names if getattr(self.convention, name) != getattr(usual, name)} - {"name"}

    @property
    def is_ordered(self) -> bool:
        return self.convention.ties == "input_order" or self.convention.duplicates == "first"


def every_rule() -> Iterator[Rule]:
    values = {
        name: tuple(element for element in group if element != "error") for name, group in (CHOICES | OTHERS).items()
    }
    assert {*values} == {field.name for field in fields(Convention)} - {"name"}
    del values["duplicates"]
    changes = [{}] + [{name: group} for name, several in values.items() for group in several]
    changes = [change for change in changes if not {*change.items()} & NOT_OF_LISTS]
    for number, change in enumerate(changes):
        for at, (duplicates, on_invalid) in enumerate(TAKEN_OUT):
            null_score = ("bad", "unretrieved")[(number + at) % 2]
            yield Rule(Convention(duplicates=duplicates, **change), on_invalid, null_score)


RULES = list(every_rule())


# ------------------------------------------------------------------------------------------------- lists, and loops


@dataclass(frozen=True)
class Lists:
    """The lists of a query: items with scores and ranks, and relevant items with grades. An item may be null."""

    query: str
    items: list[str | None]
    scores: list[float | None]
    ranks: list[int]
    relevant: list[str]
    grades: list[int]


def lists_for(rule: Rule, seed: int, n_queries: int = 14) -> list[Lists]:
    """Lists with ties, with items that appear twice if a rule chooses, and with bad entries if they are rejected."""
    draw = random.Random(f"{seed} {rule.convention.duplicates} {rule.on_invalid} {rule.null_score}")
    actual = []
    for number in range(n_queries):
        items: list[str | None] = [f"i{at}" for at in draw.sample(range(9), draw.randint(0, 6))]
        relevant = [f"i{at}" for at in draw.sample(range(9), draw.randint(0 if len(items) > 1 else 1, 4))]
        if rule.convention.duplicates != "error":
            for listed in (items, relevant):
                for _ in range(draw.randint(0, 2) if listed else 0):
                    listed.insert(draw.randint(0, len(listed)), draw.choice(listed))
        if rule.on_invalid == "reject" and draw.random() < 0.6:
            items.insert(draw.randint(0, len(items)), None)
        scores: list[float | None] = [draw.choice((0.0, 1.0, 2.0, 2.0 + 1e-12)) for _ in items]
        if items and rule.null_score == "unretrieved":
            scores[draw.randrange(len(items))] = None
        elif items and rule.on_invalid == "reject" and draw.random() < 0.3:
            scores[draw.randrange(len(items))] = math.nan
        ranks = sorted(draw.sample(range(1, 12), len(items)))
        grades = [draw.randint(0, 3) for _ in relevant]
        actual.append(Lists(f"q{number}", items, scores, ranks, relevant, grades))
    return actual


def kept(entries: list[dict[str, Any]], duplicates: str, better: Callable[[Any], float]) -> list[dict[str, Any]]:
    """One entry of each item: the first, or the best and of those the first."""
    actual: dict[str, dict[str, Any]] = {}
    for entry in entries:
        before = actual.setdefault(entry["item"], entry)
        if duplicates == "best" and better(entry) > better(before):
            actual[entry["item"]] = entry
    return list(actual.values()) if duplicates != "error" else entries


def by_loops(lists: list[Lists], rule: Rule, *, scored: bool, graded: bool, whole_lists: bool) -> Results:
    """What the definition says of lists whose bad entries, or which themselves as a whole, are left out."""
    rows = []
    for ranked_list in lists:
        entries = [
            {"item": item, "score": score if scored else -float(at), "at": at}
            for at, (item, score) in enumerate(zip(ranked_list.items, ranked_list.scores, strict=True))
        ]
        bad = [group for group in entries if group["item"] is None or is_bad(group["score"], rule)]
        assert not bad or rule.on_invalid == "reject"
        if bad and whole_lists:
            continue
        entries = [group for group in entries if group not in bad]
        known = lambda group: -math.inf if group["score"] is None else group["score"]  # noqa: E731
        entries = kept(entries, rule.convention.duplicates, known)
        grades = ranked_list.grades if graded else [1] * len(ranked_list.grades)
        judged = [{"item": item, "grade": grade} for item, grade in zip(ranked_list.relevant, grades, strict=True)]
        judged = kept(judged, rule.convention.duplicates, lambda group: group["grade"])
        relevance = {group["item"]: group["grade"] for group in judged}
        listed = {group["item"]: group for group in entries if group["score"] is not None}
        for item in dict.fromkeys([*listed, *relevance]):
            group = listed.get(item, {"score": None, "at": 0})
            row = Row(
                query=ranked_list.query,
                item=item,
                score=group["score"],
                relevance=relevance.get(item),
                position=group["at"],
            )
            rows.append(row)
    names = [field.name for field in fields(Choices)]
    return evaluate_by_loops(rows, Choices(**{name: getattr(rule.convention, name) for name in names}), CUTOFFS)


def is_bad(score: float | None, rule: Rule) -> bool:
    return rule.null_score == "bad" if score is None else math.isnan(score)


# -------------------------------------------------------------------------- relevant items in the row: no Spark


@pytest.mark.parametrize("graded", [False, True], ids=["ids", "grades"])
@pytest.mark.parametrize("scored", [False, True], ids=["places", "scores"])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_rows_with_both_lists_are_as_loops_say(rule, scored, graded):
    """A row is bad as a whole: one bad entry, and the query is lost."""
    lists = lists_for(rule, seed=1)
    settings = EvaluationSettings(
        columns=(Columns if scored else PositionColumns)(
            rank=None if scored else "rank", order="position" if rule.is_ordered else None
        ),
        convention=rule.convention,
        cutoffs=CUTOFFS,
        on_invalid=rule.on_invalid,
        null_score=rule.null_score,
    )
    texts, numbers = pa.list_(pa.string()), pa.list_(pa.float64())
    columns = {
        "query_0": pa.array([ranked_list.query for ranked_list in lists]),
        "ranked_items": pa.array([ranked_list.items for ranked_list in lists], texts),
        "ranked_scores": pa.array([ranked_list.scores for ranked_list in lists], numbers),
        "ideal_items": pa.array([ranked_list.relevant for ranked_list in lists], texts),
        "ideal_list": pa.array(
            [ranked_list.grades if graded else [1] * len(ranked_list.grades) for ranked_list in lists], numbers
        ),
    }
    if not scored:
        del columns["ranked_scores"]
    batch = pa.RecordBatch.from_pydict(columns)
    rankings = list(rank_lists(iter([batch]), RankingTask(settings=settings, rows=batch.schema)))
    rows = [row for group in score_rankings(iter(rankings), build_scoring_task(rankings[0].schema.names, settings))
            for row in group.to_pylist() if row["status"] not in ("lost", "no_query")]  # fmt: skip
    expected = by_loops(lists, rule, scored=scored, graded=graded, whole_lists=True)
    assert len(rows) == len(expected)
    for row in rows:
        group = expected[row["query_id"], row["k"]]
        assert (row["status"], row["n_items"], row["n_judged"], row["n_relevant"]) == (
            group.status, group.n_items, group.n_judged, group.n_relevant
        )  # fmt: skip
        for name in ("dcg", "idcg", "ndcg"):
            value = getattr(group, name)
            assert row[name] == (value if value is None else pytest.approx(value, rel=1e-12, abs=1e-12)), (row, name)


# ------------------------------------------------------------------------------------- relevant items in a table

SCHEMA = (
    "query_id string, ids array<string>, other array<string>, scored array<struct<Doc: string, Score: double>>, "
    "placed array<struct<doc: string, RANK: int>>"
)
TRUTH = "query_id string, relevant array<string>, graded array<struct<doc: string, Grade: int>>, one array<string>"


def tables(lists: list[Lists]) -> dict[str, pa.Table]:
    """The same lists as lists and as long tables; what has nothing in it may have no row."""

    def pairs(items: list, values: list) -> list[tuple]:
        return list(zip(items, values, strict=True))

    rows = [
        (one.query, one.items, one.items[::-1], pairs(one.items, one.scores), pairs(one.items, one.ranks))
        for at, one in enumerate(lists)
        if one.items or at % 2
    ]
    truth = [
        (one.query, one.relevant, pairs(one.relevant, one.grades), one.relevant)
        for at, one in enumerate(lists)
        if one.relevant or at % 2
    ]
    run = [
        (ranked_list.query, item, -float(at), score, rank, at)
        for ranked_list in lists
        for at, (item, score, rank) in enumerate(
            zip(ranked_list.items, ranked_list.scores, ranked_list.ranks, strict=True)
        )
    ]
    judged = [
        (ranked_list.query, item, grade, 1, at)
        for ranked_list in lists
        for at, (item, grade) in enumerate(zip(ranked_list.relevant, ranked_list.grades, strict=True))
    ]
    return {
        "lists": table(rows, SCHEMA),
        "truth": table(truth, TRUTH),
        "run": table(run, "query_id string, doc string, place double, score double, rank int, position int"),
        "judged": table(judged, "query_id string, doc string, relevance int, one int, position int"),
    }


FORMS = {
    "ids, table": (("lists", "judged"), {"ranked": ("ids",), "relevance": "one"}),
    "ids, lists": (("lists", "truth"), {"ranked": ("ids",), "relevant": "relevant"}),
    "scores, table": (("lists", "judged"), {"ranked": ("scored",)}),
    "scores, lists of grades": (("lists", "truth"), {"ranked": ("scored",), "relevant": "graded"}),
    "ranks, table": (("lists", "judged"), {"ranked": ("placed",)}),
    "ranks, lists of grades": (("lists", "truth"), {"ranked": ("placed",), "relevant": "graded"}),
}


def cases_of(rules: list[Rule], strategy: str) -> tuple[dict[str, Case], dict[str, Results | str]]:
    """Lists of each form in two tables, and what they give: by loops, or the name of the case of their long tables.

    Given ranks keep their gaps, as those of a long table do.
    """
    cases: dict[str, Case] = {}
    expected: dict[str, Results | str] = {}
    for number, rule in enumerate(rules):
        lists, (form, (names, columns)) = lists_for(rule, seed=2), list(FORMS.items())[(number + number // 6) % 6]
        row = tables(lists)
        settings = EvaluationSettings(
            columns=Columns(item="doc", **columns), convention=rule.convention, cutoffs=CUTOFFS,
            on_invalid=rule.on_invalid, null_score=rule.null_score, strategy=strategy,
        )  # fmt: skip
        name = f"{form}: {rule}"
        cases[name] = Case(data=row[names[0]], judgments=row[names[1]], settings=settings)
        if form.startswith("ranks"):
            order = "position" if rule.is_ordered else None
            long = replace(settings, columns=Columns(item="doc", rank="rank", order=order))
            cases[f"long {name}"] = Case(data=row["run"], judgments=row["judged"], settings=long)
            expected[name] = f"long {name}"
        else:
            scored = form.startswith("scores")
            expected[name] = by_loops(lists, rule, scored=scored, graded=scored, whole_lists=False)
    return cases, expected


def rules_of(taken_out: tuple[str, str]) -> list[Rule]:
    chosen = [rule for rule in RULES if (rule.convention.duplicates, rule.on_invalid) == taken_out]
    return list({str(element): element for element in chosen}.values())


def assert_expected(found: Mapping[str, Results], expected: Mapping[str, Results | str]) -> None:
    for name, results in expected.items():
        try:
            assert_same_results(found[name], found[results] if isinstance(results, str) else results)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


@pytest.mark.parametrize("taken_out", TAKEN_OUT[:2], ids="-".join)
def test_lists_in_two_tables_are_the_long_tables(taken_out):
    """Where copies are not told apart, which only Spark does."""
    cases, expected = cases_of(rules_of(taken_out), "auto")
    assert_expected({name: one.results_here() for name, one in cases.items()}, expected)


CHOOSES = ("ties", "score_precision", "negative", "unjudged")
"""What tells entries apart before they are ranked; all other rules work on a ranking, wherever it comes from."""


@parametrize_engine("taken_out", spark=TAKEN_OUT[2:], window=TAKEN_OUT[1:4:2])
def test_lists_in_two_tables_that_spark_explodes(engine, taken_out):
    """All forms under all rules that tell entries apart, where copies are; by windows, a few."""
    chosen = [element for element in rules_of(taken_out) if element.changes <= {*CHOOSES}]
    strategy = engine.get("strategy", "engine")
    cases, expected = cases_of(chosen[::4] if strategy == "window" else chosen, strategy)
    assert_expected(collect_cases(cases), expected)


def test_several_columns_of_lists_are_several_long_runs(spark):
    """Each column closes up by itself: entries are taken out of one of two lists."""
    rule = Rule(Convention(duplicates="first", unjudged="condensed"), "reject")
    lists = lists_for(rule, seed=3)
    row = tables(lists)
    settings = EvaluationSettings(
        columns=Columns(item="doc", ranked=("ids", "other"), relevance="one"), convention=rule.convention,
        cutoffs=CUTOFFS, on_invalid="reject",
    )  # fmt: skip
    actual = collect_cases({"": Case(data=row["lists"], judgments=row["judged"], settings=settings)})[""]
    turned = [replace(ranked_list, items=ranked_list.items[::-1]) for ranked_list in lists]
    for name, each in (("ids", lists), ("other", turned)):
        expected = by_loops(each, rule, scored=False, graded=False, whole_lists=False)
        of_run = {(key[1], k): result for (key, k), result in actual.items() if key[0] == name}
        assert_same_results(of_run, expected)
