"""Hostile names and values in every form of the input, and through the other jobs: numbers of the definition."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.main_job import assert_refused, command, done, mean_ndcg, stored_rows
from support.oracle import Choices, Row
from support.oracle import evaluate as defined
from tables.test_hostile_names import COLUMNS, IDS, ITEM, QUERY, RELEVANCE, SCORE, SCORES

pytestmark = pytest.mark.usefixtures("spark")

RUN, WEIGHT, ORDER, RANK = "r.u`n 'x'", "w'ei.gh`t;", '`o"r.d`er', "r.an`k;--"
RUNS = ("", "`a.b`", '"; DROP TABLE x; --')
CUTOFFS = (2, 10)
NIGHT = ("--run-date", "2026-01-31", "--dataset", "shop")
# Beside ordinary weights huge ones would hide them; weights of nothing else are tried below.
WEIGHTS = (0.0, 5e-324, 1e-100, 0.1, 1.0, 3.5, 1e3)


@dataclass(frozen=True)
class Listed:
    """A row of the oracle, with what the job reads beside it."""

    run: str
    weight: float
    row: Row


def hostile_lists() -> list[Listed]:
    """The same judged items in each run, in other orders; ties are common, and the order column breaks them."""
    picked = random.Random(20260201)
    found = []
    for query in dict.fromkeys(IDS):
        items = picked.sample(sorted(set(IDS)), picked.randint(1, 5))
        relevances = {item: picked.choice((0.0, 0.0, 1.0, 2.0, 5e-324, 2.0**62)) for item in items}
        weight = picked.choice(WEIGHTS)
        for run in RUNS:
            for place, item in enumerate(picked.sample(items, len(items))):
                row = Row(
                    query=query, item=item, score=picked.choice(SCORES), relevance=relevances[item], position=place
                )
                found.append(Listed(run, weight, row))
    return found


LISTS = hostile_lists()


def of_runs() -> dict[str, list[Row]]:
    return {run: [one.row for one in LISTS if one.run == run] for run in RUNS}


def in_rank_order(listed: list[Listed]) -> dict[tuple[str, str], list[Listed]]:
    """Rows of each list, best first."""
    lists: dict[tuple[str, str], list[Listed]] = {}
    for one in sorted(listed, key=lambda one: (-one.row.score, one.row.position)):
        lists.setdefault((one.run, one.row.query), []).append(one)
    return lists


def write_table(path: Path, cells: list[dict[str, object]]) -> Path:
    pq.write_table(pa.Table.from_pylist(cells), path)
    return path


def long_table(folder: Path) -> list[object]:
    cells = [
        {QUERY: one.row.query, ITEM: one.row.item, SCORE: one.row.score, RELEVANCE: one.row.relevance, RUN: one.run,
         WEIGHT: one.weight, ORDER: one.row.position}
        for one in LISTS
    ]  # fmt: skip
    return ["--input", write_table(folder / "rows.parquet", cells), *COLUMNS, "--order-col", ORDER]


def two_tables(folder: Path) -> list[object]:
    cells = [
        {QUERY: one.row.query, ITEM: one.row.item, SCORE: one.row.score, RUN: one.run, ORDER: one.row.position}
        for one in LISTS
    ]
    judged = [
        {QUERY: one.row.query, ITEM: one.row.item, RELEVANCE: one.row.relevance, WEIGHT: one.weight}
        for one in LISTS
        if one.run == RUNS[0]
    ]
    run, judgments = (write_table(folder / f"{at}.parquet", rows) for at, rows in enumerate((cells, judged)))
    return ["--input", run, "--judgments", judgments, *COLUMNS, "--order-col", ORDER]


def given_ranks(folder: Path) -> list[object]:
    cells = [
        {QUERY: query, RANK: rank, RELEVANCE: one.row.relevance, RUN: run, WEIGHT: one.weight}
        for (run, query), its in in_rank_order(LISTS).items()
        for rank, one in enumerate(its, 1)
    ]
    names = ("--query-col", QUERY, "--rank-col", RANK, "--relevance-col", RELEVANCE)
    return ["--input", write_table(folder / "rows.parquet", cells), *names]


def arrays(folder: Path) -> list[object]:
    cells = [
        {QUERY: query, RELEVANCE: [one.row.relevance for one in its], RUN: run, WEIGHT: its[0].weight}
        for (run, query), its in in_rank_order(LISTS).items()
    ]
    names = ("--query-col", QUERY, "--relevance-col", RELEVANCE)
    return ["--input", write_table(folder / "rows.parquet", cells), *names]


# ------------------------------------------------------------------------------------------------ forms of the input


@pytest.mark.parametrize("form", [long_table, two_tables, given_ranks, arrays])
def test_each_form_gives_the_numbers_of_the_definition(tmp_path, form):
    """Of several runs, with weights, in an order that another column decides."""
    ties = ("--ties", "input_order") if form in (long_table, two_tables) else ()
    done(
        *form(tmp_path), *ties, "--run-col", RUN, "--weight-col", WEIGHT, "--k", "2,10", "--gain", "linear", *NIGHT,
        "--per-query-output", tmp_path / "queries", "--output", tmp_path / "metrics",
    )  # fmt: skip
    choices = Choices(gain="linear", ties="input_order")
    expected = {run: defined(rows, choices, CUTOFFS) for run, rows in of_runs().items()}
    found = {(row["run"], row[QUERY], row["k"]): row for row in stored_rows(tmp_path / "queries")}
    assert found.keys() == {(run, *key) for run, results in expected.items() for key in results}
    for (run, *key), row in found.items():
        for name in ("dcg", "idcg", "ndcg"):
            wanted = getattr(expected[run][tuple(key)], name)
            assert row[name] == pytest.approx(wanted, rel=1e-12, abs=0), (run, key, name)
    weights = {one.row.query: Fraction(one.weight) for one in LISTS}
    total = sum(weights.values())
    stored = [row for row in stored_rows(tmp_path / "metrics") if row["metric"] == "ndcg"]
    assert {(row["run"], row["k"]): (row["value"], row["weight_sum"]) for row in stored} == {
        (run, k): (
            pytest.approx(
                float(sum(weights[q] * Fraction(one.ndcg) for (q, its), one in results.items() if its == k) / total),
                abs=1e-12,
            ),
            pytest.approx(float(total), rel=1e-15),
        )
        for run, results in expected.items()
        for k in CUTOFFS
    }


@pytest.mark.parametrize("weight", [3e17, 1e-20, 1e19, 1e300, 1e-40, 1e-70, 1e-100, 5e-324])
def test_weights_of_any_size_weigh_or_are_refused(tmp_path, weight):
    """Three queries of NDCG 1, 0 and 1 / log2(3), the first of which counts three times."""
    lists = {"a": (3 * weight, [1.0, 0.0]), "b": (weight, [0.0, 0.0]), "c": (weight, [0.0, 1.0])}
    cells = [{QUERY: query, RELEVANCE: its, WEIGHT: one} for query, (one, its) in lists.items()]
    asked = ("--input", write_table(tmp_path / "rows.parquet", cells), "--query-col", QUERY, "--relevance-col",
             RELEVANCE, "--weight-col", WEIGHT, "--k", "2", "--gain", "linear", *NIGHT)  # fmt: skip
    if 1e-20 <= weight <= 3e17:
        (row,) = [row for row in done(*asked, "--json", "-").json["metrics"] if row["metric"] == "ndcg"]
        c = 1 / math.log2(3)
        mean = (3 + c) / 5
        # Cochran 1977, section 6.4: sqrt(n / (n - 1) * sum(w^2 (v - mean)^2)) / sum(w)
        error = math.sqrt(3 / 2 * (9 * (1 - mean) ** 2 + mean**2 + (c - mean) ** 2)) / 5
        assert (row["value"], row["std_error"]) == (pytest.approx(mean), pytest.approx(error))
    else:
        ended = mean_ndcg(*asked, "--output", tmp_path / "metrics")
        assert_refused(ended, "bad_weight 3" if weight > 1 else "weights of queries sum to")
        assert not (tmp_path / "metrics").exists()


# ----------------------------------------------------------------------------------- metrics of items, and other jobs

VECTOR, CATEGORIES = "v.ec`tor", "c'at.`s;"
HUGE, TINY = [1e149, 0.0], [1e-139, 1e-139]  # of cosine 1 / sqrt(2)


def test_metrics_of_items_with_hostile_names(tmp_path):
    """Two items of each query. The items at even places of IDS are huge and of category `x.y`, the others tiny."""
    ids = list(dict.fromkeys(IDS))
    rng = random.Random(3)
    lists = {query: rng.sample(range(len(ids)), 2) for query in ids}
    cells = [
        {QUERY: query, ITEM: ids[at], SCORE: float(-place), RELEVANCE: 1.0}
        for query, its in lists.items()
        for place, at in enumerate(its)
    ]
    items = [
        {ITEM: one, VECTOR: TINY if at % 2 else HUGE, CATEGORIES: ["x.y"] if at % 2 == 0 else ["a`b", ""]}
        for at, one in enumerate(ids)
    ]
    # The first item was met by three users, the second one by one.
    met = [{QUERY: user, ITEM: ids[0]} for user in ("u", "", "'")] + [{QUERY: "u", ITEM: ids[1]}]
    done(
        *("--input", write_table(tmp_path / "rows.parquet", cells), *COLUMNS),
        *("--items", write_table(tmp_path / "items.parquet", items), "--vector-col", VECTOR),
        *("--categories-col", CATEGORIES, "--interactions", write_table(tmp_path / "met.parquet", met)),
        *("--metrics", "ild@2,ild(by=categories)@2,novelty@2,coverage@2", *NIGHT, "--ties", "item_asc"),
        *("--per-query-output", tmp_path / "queries", "--output", tmp_path / "metrics"),
    )
    found = {row[QUERY]: row for row in stored_rows(tmp_path / "queries")}
    assert found.keys() == lists.keys()
    for query, (one, other) in lists.items():
        differ = one % 2 != other % 2
        assert found[query]["ild"] == pytest.approx(1 - 1 / math.sqrt(2) if differ else 0, abs=1e-12)
        assert found[query]["ild_by_categories"] == pytest.approx(1 if differ else 0, abs=1e-12)
        # -log2 of the share of the four meetings; an item that nobody has met counts as met once
        information = [math.log2(4 / 3) if at == 0 else 2 for at in (one, other)]
        assert found[query]["novelty"] == pytest.approx(sum(information) / 2, abs=1e-12)
    (coverage,) = [row["value"] for row in stored_rows(tmp_path / "metrics") if row["metric"] == "coverage"]
    assert coverage == len({at for its in lists.values() for at in its}) / len(ids)


def test_retrieval_with_hostile_names(tmp_path):
    """The cosine of (cos a, sin a) with (1, 0), whatever the length of the vectors."""
    ids = list(dict.fromkeys(IDS))
    angles = {one: 0.02 * (at + 1) for at, one in enumerate(random.Random(5).sample(ids, len(ids)))}
    lengths = (1e149, 1e-138, 1.0, 1e-5)
    labels = "la'be.l`s"
    corpus = [
        {ITEM: one, VECTOR: [lengths[at % 4] * math.cos(angle), lengths[at % 4] * math.sin(angle)],
         labels: "a`b" if at % 3 else ""}
        for at, (one, angle) in enumerate(angles.items())
    ]  # fmt: skip
    queries = [{QUERY: one, VECTOR: [lengths[at % 4], 0.0], labels: "a`b"} for at, one in enumerate(ids[::5])]
    ended = command(
        *("retrieve", "--queries", write_table(tmp_path / "q.parquet", queries)),
        *("--corpus", write_table(tmp_path / "c.parquet", corpus), "--query-col", QUERY, "--item-col", ITEM),
        *("--vector-col", VECTOR, "--labels-col", labels, "--parts", 2, "--k", "3", "--run", RUNS[2], *NIGHT),
        *("--rankings-output", tmp_path / "rankings", "--per-query-output", tmp_path / "queries"),
    )
    assert (ended.code, ended.complaints) == (0, []), ended.err
    rows = sorted(stored_rows(tmp_path / "rankings"), key=lambda row: (row[QUERY], row["rank"]))
    nearest = list(enumerate(angles.items()))[:3]  # the smallest angles
    assert [(row["run"], row[QUERY], row[ITEM], row["rank"]) for row in rows] == [
        (RUNS[2], query, item, at + 1) for query in sorted(ids[::5]) for at, (item, _) in nearest
    ]
    assert [row["score"] for row in rows] == pytest.approx(
        [math.cos(angle) for _ in ids[::5] for _, (_, angle) in nearest], abs=1e-12
    )
    # Relevances 0, 1, 1 of many: (1 / log2(3) + 1 / 2) / (1 + 1 / log2(3) + 1 / 2)
    gained = 1 / math.log2(3) + 1 / 2
    found = {row[QUERY]: row["ndcg"] for row in stored_rows(tmp_path / "queries")}
    assert found == {query: pytest.approx(gained / (1 + gained), abs=1e-12) for query in ids[::5]}


class Page(HTMLParser):
    """Names of all elements, numbers behind what is shown, and all text between elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.text: list[str] = []
        self.values: list[float] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.values += [float(value) for name, value in attributes if name == "data-value" and value]

    def handle_data(self, text: str) -> None:
        self.text.append(text)


def test_a_report_of_hostile_names(tmp_path):
    """Runs, data set and segments are text in the page, not markup."""
    rows = [one for one in LISTS if one.run in RUNS[1:]]
    marked = "<img src=x onerror=alert(1)>"
    cells = [
        {QUERY: one.row.query, ITEM: one.row.item, SCORE: one.row.score, RELEVANCE: min(one.row.relevance, 2.0),
         RUN: marked if one.run == RUNS[1] else one.run}
        for one in rows
    ]  # fmt: skip
    plain = [{**cell, RUN: "plain" if cell[RUN] == marked else "other"} for cell in cells]
    pages = []
    for name, table, dataset in (("hostile", cells, "</title><script>x</script>"), ("plain", plain, "shop")):
        folder = tmp_path / name
        folder.mkdir()
        asked = (*COLUMNS, "--run-col", RUN, "--segment-cols", QUERY, "--k", "2", "--ties", "item_asc")
        done("--input", write_table(folder / "rows.parquet", table), *asked, "--output", folder / "metrics",
             "--per-query-output", folder / "queries", "--run-date", "2026-01-31", "--dataset", dataset)  # fmt: skip
        ended = command("report", "--metrics", folder / "metrics", "--per-query", folder / "queries", "--output",
                        folder / "page.html", "--run-date", "2026-01-31")  # fmt: skip
        assert (ended.code, ended.complaints) == (0, [])
        assert len(ended.out.splitlines()) == 1  # the headline
        pages.append(Page((folder / "page.html").read_text(encoding="utf-8")))
    hostile, ordinary = pages
    assert [one.elements.count(tag) for one in pages for tag in ("script", "img")] == [
        *[ordinary.elements.count("script"), 0] * 2
    ]
    text = "\n".join(hostile.text)
    for name in (marked, RUNS[2], "</title><script>x</script>"):
        assert name in text
    results = defined([replace(one.row, relevance=min(one.row.relevance, 2.0)) for one in rows if one.run == RUNS[2]],
                      Choices(ties="item_asc"), (2,))  # fmt: skip
    mean = sum(one.ndcg for one in results.values()) / len(results)
    assert [value for value in hostile.values if value == pytest.approx(mean, abs=1e-12)]


# ---------------------------------------------------------------------------------------------------- catalog tables


@pytest.fixture
def dropped(spark) -> Iterator[list[str]]:
    """Names of tables that are dropped in the end."""
    names: list[str] = []
    yield names
    for name in names:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_queries_in_a_catalog_table(spark, tmp_path, dropped):
    """A new table, and one that is there, have the column under its name."""
    dropped.append("hostile_queries")
    queries = list(dict.fromkeys(IDS))
    rows = write_table(tmp_path / "rows.parquet", [{QUERY: one, RELEVANCE: [0.0, 1.0]} for one in queries])
    for night in ("2026-01-30", "2026-01-31"):
        done(
            *("--input", rows, "--query-col", QUERY, "--relevance-col", RELEVANCE, "--run-date", night),
            *("--per-query-output", "hostile_queries", "--per-query-format", "table", "--k", "2"),
        )
    table = spark.table("hostile_queries")
    assert sorted((str(row["run_date"]), row[QUERY], row["ndcg"]) for row in table.collect()) == [
        (night, query, pytest.approx(1 / math.log2(3)))
        for night in ("2026-01-30", "2026-01-31")
        for query in sorted(queries)
    ]
