"""What `--explain` says a job costs: for each source, table of judgments and metric of items that which is true."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.main_job import mean_ndcg

pytestmark = pytest.mark.usefixtures("spark")

CUT = "one shuffle of about 2 K numbers per query and input partition, or the rows of a query if these are fewer"
PASSES = "; two passes through Python workers"
TIES = ("--ties", "item_asc")


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> dict[str, Path]:
    """Tables of all forms, the long one in the order of queries."""
    folder = tmp_path_factory.mktemp("explained")
    long = {"query_id": ["a", "a", "b"], "item_id": ["x", "y", "x"], "score": [2.0, 1.0, 1.0]}
    judged = {"relevance": [1, 0, 1], "topics": [["1"], ["2"], ["1"]]}
    entries = [[{"item": "x", "relevance": 1.0}], [{"item": "y", "relevance": 0.0}]]
    actual = {
        "long": long | judged,
        "run": long,
        "judgments": {name: long[name] for name in ("query_id", "item_id")} | judged,
        "arrays": {"query_id": ["a", "b"], "relevance": entries},
        "items": {
            "item_id": ["x", "y"], "vector": [[1.0], [2.0]], "categories": [["1"], ["2"]],
            "first_seen": [date(2026, 1, 1)] * 2,
        },
        "interactions": {"query_id": ["a", "b"], "item_id": ["x", "y"]},
    }  # fmt: skip
    for name, columns in actual.items():
        (folder / name).mkdir()
        pq.write_table(pa.table(columns), folder / name / "rows.parquet")
    return {name: folder / name for name in actual}


def explained(*arguments: object) -> dict[str, str]:
    """The lines of `--explain`, by what they are about; the last has no name."""
    ended = mean_ndcg(*arguments, "--run-date", "2026-01-31", "--explain")
    assert (ended.code, ended.complaints) == (0, []), ended.err
    lines = ended.out.splitlines()
    assert lines[-1] == "Nothing was run."
    return {line[:12].strip(): line[13:] for line in lines[:-1]}


def cost(tables: dict[str, Path], form: str, *more: object) -> str:
    """The cost of a job of one form, without its number of actions."""
    judgments = ("--judgments", tables["judgments"]) if form == "run" else ()
    return explained("--input", tables[form], *judgments, *more)["cost"].rpartition("; at least ")[0]


RANKED = [
    (("long", "--source", "spark"), CUT + PASSES),
    (("run",), f"{CUT}, and of all judgments{PASSES}"),
    (("arrays",), "no shuffle of rows; one pass through Python workers"),
    # There is nothing to cut in whole lists, and before labels are known.
    (("long", "--source", "spark", "--k", "all"), f"one shuffle of all rows{PASSES}"),
    (("run", "--k", "all"), f"one shuffle of all rows, and of all judgments{PASSES}"),
    (("run", "--unjudged", "condensed"), f"one shuffle of all rows, and of all judgments{PASSES}"),
    (("run", "--convention", "default;ideal=retrieved"), f"one shuffle of all rows, and of all judgments{PASSES}"),
    (("long", "--unjudged", "condensed", "--source", "spark"), CUT + PASSES),
    (
        ("long", "--strategy", "window"),
        f"three shuffles of all rows, two of them with a sort{PASSES}",
    ),
    (
        ("run", "--strategy", "window"),
        "a full join of all rows and all judgments, and a shuffle of the result, by (query, item); three shuffles "
        f"of all rows, two of them with a sort{PASSES}",
    ),
]


def test_what_ranking_costs(tables):
    assert {form: cost(tables, *form) for form, _ in RANKED} == dict(RANKED)


def test_a_session_that_limits_batches_is_told(tables):
    source = explained("--input", tables["long"], "--source", "spark")["source"]
    assert source.startswith("spark: ")
    assert "; spark.sql.execution.arrow.maxBytesPerBatch=2147483647 saves" in source


def test_what_it_costs_to_look_for_duplicates(tables):
    every = ("--check-duplicates", "all")
    for form, message in (("long", "a shuffle of all rows"), ("run", "a shuffle of all rows, and of all judgments,")):
        plain = cost(tables, form, "--source", "spark")
        more = f"; {message} by (query, item) for duplicates, after a pass through Python workers"
        assert cost(tables, form, *every) == cost(tables, form, "--duplicates", "best") == plain + more
    message = "a shuffle by query of about 2 K numbers per query, to find repeated queries"
    assert cost(tables, "arrays", *every) == f"{message}; one pass through Python workers"


COUNTED = "; a shuffle of counts of the listed items, and a join of them with the items of the catalogue"
SECOND = "a shuffle of the relevant rows and a join, both by query"


def joined(*read: str) -> str:
    return (
        "; a join of the first K items of each query with the features that metrics read "
        f"({', '.join(read)}), and a shuffle by "
        "query"
    )


OF_ITEMS = [
    ("coverage@3,gini@3,entropy@3", "items", COUNTED),
    ("ild@3", "items", joined("items: vector")),
    ("ils(by=categories)@3", "items", joined("items: categories")),
    ("first_appearance@3", "items", joined("items: first_seen")),
    ("ild@3,coverage@3", "items", joined("items: vector") + COUNTED),
    (
        "novelty@3",
        "interactions",
        joined("interactions: counts") + "; shuffles of the interactions, counted by item and in all",
    ),
    (
        "first_new@3",
        "interactions",
        joined("interactions: of the user") + "; a shuffle of the interactions by user and item",
    ),
]


@pytest.mark.parametrize("form", ["long", "run", "arrays"])
def test_what_metrics_of_items_cost(tables, form):
    plain = cost(tables, form, *TIES, "--k", "3", "--source", "spark")
    for metrics, table, stages in OF_ITEMS:
        assert cost(tables, form, *TIES, "--metrics", metrics, f"--{table}", tables[table]) == plain + stages, metrics


def test_what_topics_cost(tables):
    alpha = (*TIES, "--metrics", "alpha_ndcg@3")
    for form, table in (("long", "input"), ("run", "judgments")):
        plain = cost(tables, form, *TIES, "--k", "3", "--source", "spark")
        scan = f"; a second scan of the {table} for topics"
        checked = f"{plain}{scan} through Python workers, {SECOND}"
        assert cost(tables, form, *alpha) == f"{plain}{scan}, {SECOND}"
        assert cost(tables, form, *alpha, "--on-invalid", "reject") == checked
        best = cost(tables, form, *alpha, "--duplicates", "best")
        assert best.endswith(
            f"{scan} through Python workers, a shuffle of all of them by (query, item) for duplicates, {SECOND}"
        )
    ended = mean_ndcg("--input", tables["arrays"], *TIES, "--metrics", "alpha_ndcg@3", "--explain")
    assert (ended.code, ended.out) == (2, "")
    assert "'alpha_ndcg@3' needs a row for each judged item" in ended.err


@pytest.mark.classic("Python workers read files themselves")
def test_complete_queries_of_sorted_files_are_scored_where_they_are_read_for_means_alone(tables, tmp_path):
    plain = explained("--input", tables["long"])
    assert plain["source"] == "parquet: 1 Parquet files under a local path, sorted by query"
    in_place = f"complete queries are scored by the tasks that read them; for other queries, {CUT}{PASSES}"
    in_place += "; at least 1 action"
    assert plain["cost"] == in_place
    queries = explained("--input", tables["long"], "--per-query-output", tmp_path / "queries")
    assert queries["source"] == plain["source"]
    assert queries["cost"] == f"{CUT}{PASSES}; at least 2 actions"
    judged = explained("--input", tables["run"], "--judgments", tables["judgments"])
    assert judged["source"] == "parquet: 1 Parquet files under a local path"
    whole = explained("--input", tables["long"], "--k", "all")["cost"]
    assert whole.startswith(
        "complete queries are scored by the tasks that read them; for other queries, one shuffle of all rows"
    )
