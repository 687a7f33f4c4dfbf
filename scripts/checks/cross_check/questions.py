"""Questions of routes.py: random rankings of two runs, and the options by which they are evaluated.

A question is about means, with weights, segments, bad rows and several metrics; or about the NDCG of each query, with
everything that a convention can choose, negative relevances, and items and order values that appear twice.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from support import oracle
from support.random_rankings import random_rows
from support.spark_rankings import sort_by_rank

RUNS = ("bm25", "a/b =1")
NIGHT = date(2026, 1, 31)
COUNTRIES = ("DE", "é", "US", None)
METRICS = ("ndcg", "ap", "rr", "p(rel=2)", "rbp(p=0.5)", "success", "err(max_grade=8)", "cg", "r")
BAD = ("nan_score", "null_query", "null_item")
"""Reasons of bad rows that every table with scores and items can have."""
SHAPES = ("extreme_scores", "nulls", "fractional", "negatives", "unretrieved")
GAINS = ("exponential", "linear", "power:2", "table:-2=-1,-1=-1,0=0.5,0.25=0.5,0.5=1,1=1,1.5=2,2=2,2.75=2,3=9,4=9")
ONE_ORDER = ("item_asc", "item_desc", "input_order")
"""Rules for ties that give each item a rank of its own."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """Facts about a query that are the same in all tables."""

    country: str | None
    device: int
    weight: float


@dataclass(frozen=True, kw_only=True)
class Question:
    """Rows, the evaluation that is requested of them, and a folder for tables of these rows."""

    seed: int
    folder: Path
    per_query: bool
    """True if the question is about queries, not means."""
    runs: Mapping[str, list[oracle.Row]]
    queries: Mapping[str, Query]
    choices: oracle.Choices
    metrics: tuple[str, ...]
    segments: tuple[str, ...] = ()
    is_weighted: bool = False
    bad: str | None = None
    on_invalid: str = "fail"
    check: str = "top"
    has_repeats: bool = False

    @property
    def convention(self) -> str:
        """Text of the convention that has these choices."""
        named = {name: getattr(self.choices, name) for name in (*oracle.ALLOWED, "gain", "discount")}
        named["pad_to_k"] = "off" if self.choices.pad_to_k is None else self.choices.pad_to_k
        return "default;" + ";".join(f"{name}={value}" for name, value in named.items())

    @property
    def has_order(self) -> bool:
        """Check whether the order of tied items is fixed, so that rows have ranks."""
        return self.choices.ties in ONE_ORDER

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of `evaluate` that all routes share."""
        arguments: dict[str, Any] = {
            "metrics": list(self.metrics),
            "convention": self.convention,
            "segments": list(self.segments),
            "on_invalid": self.on_invalid,
            "check_duplicates": self.check,
        }
        return arguments | {"weight": "w"} if self.is_weighted else arguments

    @property
    def flags(self) -> list[str]:
        """Arguments of `mean-ndcg` with the same meaning as `options`."""
        words = ["--metrics", ",".join(self.metrics), "--convention", self.convention]
        words += ["--on-invalid", self.on_invalid]
        if self.on_invalid == "reject":
            words += ["--rejects", str(self.folder / "rejects")]
        if self.segments:
            words += ["--segment-cols", ",".join(self.segments)]
        return [*words, "--weight-col", "w"] if self.is_weighted else words

    @cached_property
    def long(self) -> pa.Table:
        """Long table of all runs; items that a run did not retrieve have a null score."""
        rows = [(run, row) for run, run_rows in self.runs.items() for row in run_rows]
        return self._table(rows, ("ranker", "query_id", "item_id", "score", "relevance", "position"))

    @cached_property
    def retrieved(self) -> pa.Table:
        """Retrieved items of the runs, without relevances."""
        rows = [(run, row) for run, run_rows in self.runs.items() for row in run_rows if row.score is not None]
        return self._table(rows, ("ranker", "query_id", "item_id", "score", "position"))

    @cached_property
    def judgments(self) -> pa.Table:
        """Judged items; the same for all runs."""
        return self._table(
            [("", row) for row in next(iter(self.runs.values())) if row.relevance is not None],
            ("query_id", "item_id", "relevance"),
        )

    @cached_property
    def ranked(self) -> pa.Table:
        """Long table with the rank of each item by the definition."""
        ranks = {
            (run, row.query, row.item): rank
            for run, run_rows in self.runs.items()
            for query in oracle.group_by_query(run_rows).values()
            for rank, row in enumerate(sort_by_rank(query, self.choices), start=1)
        }
        keys = zip(*(self.long[name].to_pylist() for name in ("ranker", "query_id", "item_id")), strict=True)
        return self.long.append_column("rank", pa.array([ranks.get(key) for key in keys], pa.int32()))

    @cached_property
    def ranked_run(self) -> pa.Table:
        """Retrieved items of the runs, with ranks and without relevances."""
        return self.ranked.filter(self.ranked["score"].is_valid()).drop_columns(["relevance"])

    @cached_property
    def arrays(self) -> pa.Table:
        """Arrays, one row per run and query: relevances in rank order, and all judged relevances."""
        columns: dict[str, list[Any]] = {name: [] for name in ("ranker", "query_id", "ranked", "judged")}
        for run, values in self.runs.items():
            for query, rows in oracle.group_by_query(values).items():
                columns["ranker"].append(run)
                columns["query_id"].append(query)
                columns["ranked"].append([row.relevance for row in sort_by_rank(rows, self.choices)])
                columns["judged"].append([row.relevance for row in rows if row.relevance is not None])
        lists = pa.list_(pa.float64())
        table = pa.table(
            {name: pa.array(values, lists if name[-2:] == "ed" else None) for name, values in columns.items()}
        )
        return self._with_facts(table)

    @cached_property
    def lists(self) -> pa.Table:
        """Lists, one row per run and query: items with scores, items in rank order, and judged items with grades."""
        columns: dict[str, list[Any]] = {name: [] for name in ("ranker", "query_id", "scored", "in_order", "judged")}
        for run, values in self.runs.items():
            for query, rows in oracle.group_by_query(values).items():
                scored = [{"item_id": row.item, "score": row.score} for row in rows if row.score is not None]
                judged = [{"id": row.item, "relevance": row.relevance} for row in rows if row.relevance is not None]
                in_order = [row.item for row in sort_by_rank(rows, self.choices)] if self.has_order else []
                cells = (run, query, scored, in_order, judged)
                for name, cell in zip(columns, cells, strict=True):
                    columns[name].append(cell)
        item, number = self.long.schema.field("item_id").type, pa.float64()
        kinds = {
            "scored": pa.list_(pa.struct({"item_id": item, "score": number})),
            "in_order": pa.list_(item),
            "judged": pa.list_(pa.struct({"id": item, "relevance": number})),
        }
        return self._with_facts(
            pa.table({name: pa.array(values, kinds.get(name)) for name, values in columns.items()})
        )

    @cached_property
    def wide(self) -> pa.Table:
        """Wide table, one row per query and item, with a score column for each run."""
        first, second = self.runs.values()
        scores = {(row.query, row.item): row.score for row in second}
        table = self._table([("", row) for row in first], ("query_id", "item_id", "score", "relevance", "position"))
        other = [scores.get((row.query, row.item)) for row in first]
        other += [None] * (table.num_rows - len(other))
        return table.rename_columns(
            [RUNS[0] if column == "score" else column for column in table.column_names]
        ).append_column(RUNS[1], pa.array(other, pa.float64()))

    def _table(self, rows: Sequence[tuple[str, oracle.Row]], names: Sequence[str]) -> pa.Table:
        """Build a table of these columns and the facts about queries; tables with scores get the bad row."""
        cells = {
            "ranker": pa.array([run for run, _ in rows], pa.string()),
            "query_id": pa.array([row.query for _, row in rows], pa.string()),
            "item_id": pa.array([row.item for _, row in rows]),
            "score": pa.array([row.score for _, row in rows], pa.float64()),
            "relevance": pa.array([row.relevance for _, row in rows], pa.float64()),
            "position": pa.array([row.position for _, row in rows], pa.int32()),
        }
        table = self._with_facts(pa.table({name: cells[name] for name in names}))
        if self.bad is None or "score" not in names:
            return table
        good = table.slice(0, 1).to_pylist()[0]
        bad = {"nan_score": {"score": float("nan")}, "null_query": {"query_id": None}, "null_item": {"item_id": None}}
        new = {"item_id": -(10**6) if isinstance(good["item_id"], int) else "never seen", **bad[self.bad]}
        return pa.concat_tables([table, pa.Table.from_pylist([{**good, **new}], schema=table.schema)])

    def _with_facts(self, table: pa.Table) -> pa.Table:
        queries = [self.queries[query] for query in table["query_id"].to_pylist()]
        return (
            table.append_column("country", pa.array([fact.country for fact in queries], pa.string()))
            .append_column("device", pa.array([fact.device for fact in queries], pa.int32()))
            .append_column("w", pa.array([fact.weight for fact in queries], pa.float64()))
        )

    def write(self, name: str, table: pa.Table, *, by_query: bool = False) -> str:
        """Write a folder of two files with several row groups, once; returns its path."""
        path = self.folder / name
        if not path.exists():
            path.mkdir(parents=True)
            draw = random.Random(self.seed)
            order = draw.sample(range(table.num_rows), table.num_rows)
            rows = table.sort_by("query_id") if by_query else table.take(order)
            middle = draw.randint(0, rows.num_rows)
            for number, file_rows in enumerate((rows.slice(0, middle), rows.slice(middle))):
                pq.write_table(file_rows, path / f"{number}.parquet", row_group_size=draw.choice((3, 17, 1000)))
        return str(path)


def draw_question(seed: int, folder: Path, *, per_query: bool = False) -> Question:
    """Draw a question; the same seed draws the same one, always."""
    draw = random.Random(seed)
    shape = {name: draw.random() < 0.5 for name in SHAPES}
    if not per_query:
        shape |= {"negatives": False, "unretrieved": True}
    rows = random_rows(
        seed, n_queries=draw.choice((3, 9)), max_items=draw.choice((3, 12, 40) if per_query else (3, 12)),
        integer_items=draw.random() < 0.5, **shape,
    )  # fmt: skip
    queries = {
        query: Query(
            country=draw.choice(COUNTRIES), device=draw.randint(1, 2), weight=draw.choice((0.0, 0.1, 1.0, 3.5))
        )
        for query in oracle.group_by_query(rows)
    }
    cutoffs = draw.sample(("1", "2", "3", "5", "10", "50", "all"), draw.randint(1, 3))
    metrics, more = ["ndcg"], {}
    if per_query:
        if has_repeats := draw.random() < 0.3:
            rows = _add_repeats(rows, draw)
        more = {"has_repeats": has_repeats, "check": draw.choice(("top", "none", *(() if has_repeats else ("all",))))}
    else:
        metrics += draw.sample(METRICS[1:], draw.randint(0, 2))
        bad = draw.choice(BAD) if draw.random() < 0.3 else None
        more = {
            "segments": draw.choice(((), ("country",), ("device", "country+device"))),
            "is_weighted": draw.random() < 0.4,
            "bad": bad,
            "on_invalid": draw.choice(("fail", "reject")) if bad else "fail",
        }
    return Question(
        seed=seed,
        folder=folder,
        per_query=per_query,
        runs={RUNS[0]: rows, RUNS[1]: [_rescore(row, draw) for row in rows]},
        queries=queries,
        choices=_draw_choices(draw, everything=per_query),
        metrics=tuple(f"{metric}@{cutoff}" for metric in metrics for cutoff in cutoffs),
        **more,
    )


def _rescore(row: oracle.Row, draw: random.Random) -> oracle.Row:
    """Return the item as another run ranks it: with another score, or not retrieved if it is judged."""
    if row.relevance is not None and draw.random() < 0.3:
        return replace(row, score=None)
    return row if row.score is None else replace(row, score=draw.choice((row.score, 0.0, 0.5, 7.0)))


def _add_repeats(rows: Sequence[oracle.Row], draw: random.Random) -> list[oracle.Row]:
    """Some items come again with another relevance, and some order values are the same."""
    again = [
        replace(row, relevance=draw.choice((0.0, 1.0, 2.0)), score=draw.choice((row.score, 0.5)))
        for row in draw.sample(list(rows), len(rows) // 6)
    ]
    all_rows = [replace(row, position=row.position // 4) for row in [*rows, *again]]
    return draw.sample(all_rows, len(all_rows))


def _draw_choices(draw: random.Random, *, everything: bool) -> oracle.Choices:
    """Choices of a convention; those of means are such that each route can make them."""
    choices: dict[str, Any] = {name: draw.choice(values) for name, values in oracle.ALLOWED.items()}
    if not everything:
        choices |= {"ties": draw.choice(("expected", *ONE_ORDER[:2])), "ideal": draw.choice(("judged", "retrieved"))}
        return oracle.Choices(gain=draw.choice(GAINS[:3]), **choices)
    padding = draw.choice((None, None, None, -1.0, 0.5))
    gains = GAINS[:2] if choices["ideal"] == "k_ones" or padding is not None else GAINS
    discount = draw.choice(("log2", "reciprocal"))
    return oracle.Choices(gain=draw.choice(gains), discount=discount, pad_to_k=padding, **choices)
