"""`ndcg-spark init`: files of nights for tables in each form, with columns as people name them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from support.main_job import RunResult, assert_refused, read_stored_rows, run_command, write_table
from support.night_files import NIGHT

from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.nights.guess import (
    choose_columns,
    choose_segments,
    insert_run_date,
    normalize_name,
    write_night_file,
)

LONG = {"query_id": ["q", "q"], "item_id": ["a", "b"], "score": [2.0, 1.0], "relevance": [0.0, 1.0]}
SECOND = 1 / 1.584962500721156  # NDCG of a list whose one relevant item is second: 1 / log2(3)
FORMS = {
    "usual names": LONG,
    "other names": dict(zip(("userId", "Product ID", "prediction", "label"), LONG.values(), strict=True)),
    "several rankers": {name: [*its, *its] for name, its in LONG.items()} | {"model": ["x", "x", "y", "y"]},
    "several rankers, other names": {
        name: [*its, *its] for name, its in zip(("search_id", "doc", "score", "rel"), LONG.values(), strict=True)
    }
    | {"ranker": ["x", "x", "y", "y"]},
    "ranks": {**{name: LONG[name] for name in ("query_id", "item_id", "relevance")}, "position": [1, 2]},
    "segments": LONG | {"country": ["DE", "DE"], "text": ["t", "t"]},
    "arrays": {"qid": ["q"], "labels": [[0.0, 1.0]]},
    "lists": {"user_id": ["q"], "recommended": [["a", "b"]], "ground_truth": [["b"]]},
    "lists of several rankers": {
        "user_id": ["q", "q"],
        "model": ["x", "y"],
        "recommended": [["a", "b"], ["b", "a"]],
        "ground_truth": [["b"], ["b"]],
    },
}


ONE_ID = dict(zip(("search_id", "clip_id", "score", "grade"), LONG.values(), strict=True))
FORMS["another id"] = ONE_ID


def init(*words: object) -> RunResult:
    return run_command("init", *words)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NDCG_SPARK_ENGINE", "local")
    return tmp_path


def value(folder) -> float:
    """The mean NDCG at 10 of the first run."""
    rows = [row for row in read_stored_rows(folder / "metrics") if (row["metric"], row["segment_by"]) == ("ndcg", "")]
    return min(rows, key=lambda row: row["run"])["value"]


@pytest.mark.parametrize("form", FORMS)
def test_nightly_runs_the_file_as_it_is(folder, form):
    write_table(folder / "rankings.parquet", FORMS[form])
    assert init("--input", "rankings.parquet").code == 0
    steps = ["mean-ndcg", *(["compare-runs"] if "rankers" in form else [])]
    only = [word for step in steps for word in ("--only", step)]
    ended = run_command("nightly", "--config", "night.toml", "--run-date", NIGHT, *only)
    assert ended.code == 0, ended.err
    assert value(folder) == pytest.approx(SECOND)


@pytest.mark.parametrize("place", ["score", "rank"])
def test_columns_whose_names_say_too_little_are_named(folder, place):
    """The table also has a column with a usual name for each, which is not meant."""
    names = dict(
        zip(("query", "item", place, "relevance"), ("shopper", "part no", "sc", "Purchase Grade"), strict=True)
    )
    values = LONG if place == "score" else LONG | {"score": [1, 2]}
    rows = dict(zip(names.values(), values.values(), strict=True)) | {"arm type": ["x", "x"]}
    usual = {name: values[::-1] for name, values in LONG.items()} | {"model": ["y", "z"]}
    write_table(folder / "rankings.parquet", rows | usual)
    columns = [word for option, name in names.items() for word in (f"--{option}-col", name)]
    assert init("--input", "rankings.parquet", *columns, "--run-col", "arm type").code == 0
    text = (folder / "night.toml").read_text("utf-8")
    assert 'relevance-col = "Purchase Grade"  # how good an item is for the query\n' in text
    ended = run_command("nightly", "--config", "night.toml", "--run-date", NIGHT, "--only", "mean-ndcg")
    assert ended.code == 0, ended.err
    assert value(folder) == pytest.approx(SECOND)


def test_a_named_column_is_not_chosen_for_anything_else(folder):
    """`score` is the relevance here, so the list is ordered by `rank`."""
    table = {"query_id": ["q", "q"], "item_id": ["a", "b"], "rank": [1, 2], "score": [0.0, 1.0]}
    write_table(folder / "rankings.parquet", table)
    assert init("--input", "rankings.parquet", "--relevance-col", "score").code == 0
    ended = run_command("nightly", "--config", "night.toml", "--run-date", NIGHT, "--only", "mean-ndcg")
    assert ended.code == 0, ended.err
    assert value(folder) == pytest.approx(SECOND)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("--item-col", "grade"), "column 'grade' (--item-col) is not in the input"),
        (("--score-col", "item_id"), "column 'item_id' (--score-col) of the input is string, not a number"),
    ],
)
def test_named_columns_that_cannot_be_meant_are_refused(folder, columns, message):
    write_table(folder / "rankings.parquet", LONG)
    assert_refused(init("--input", "rankings.parquet", *columns), message)
    assert not (folder / "night.toml").exists()


def test_a_run_with_judgments(folder):
    write_table(folder / "run.csv", {name: LONG[name] for name in ("query_id", "item_id", "score")})
    write_table(folder / "qrels.csv", {"qid": ["q"], "doc_id": ["b"], "relevance": [1]})
    # A table of judgments has the columns of the run, but for the relevance.
    assert init("--input", "run.csv", "--judgments", "qrels.csv").code == 0
    write_table(folder / "qrels.csv", {"query_id": ["q"], "item_id": ["b"], "relevance": [1]})
    ended = run_command("nightly", "--config", "night.toml", "--run-date", NIGHT, "--only", "mean-ndcg")
    assert ended.code == 0, ended.err
    assert value(folder) == pytest.approx(SECOND)


def test_the_date_in_a_reference_is_that_of_the_night(folder):
    write_table(folder / "logs" / "2026-01-31" / "part.parquet", LONG)
    ended = init("--input", "logs/2026-01-31")
    assert ended.out.endswith("ndcg-spark nightly --config night.toml --run-date 2026-01-31\n")
    text = (folder / "night.toml").read_text("utf-8")
    assert 'input = "logs/{run_date}"\n' in text
    assert "# {run_date} is the night, for example 2026-01-31.\n" in text
    ended = run_command("nightly", "--config", "night.toml", "--run-date", NIGHT, "--only", "mean-ndcg")
    assert (ended.code, value(folder)) == (0, pytest.approx(SECOND))
    assert insert_run_date("a/2026-01-30/b-2026-01-31")[1] == ""


@pytest.mark.parametrize("name", ["run_date", "dt", "day"])
def test_a_folder_of_nights_is_read_a_night_at_a_time(folder, name):
    for day in (30, 31):
        write_table(folder / "logs" / f"{name}=2026-01-{day}" / "part.parquet", LONG)
    ended = init("--input", "logs/", "--input-format", "parquet")
    assert ended.out.endswith("ndcg-spark nightly --config night.toml --run-date DATE\n")
    text = (folder / "night.toml").read_text("utf-8")
    assert f'input = "logs/{name}={{run_date}}"\n' in text
    assert f'# {{run_date}} is the night, a value of the column "{name}".\n' in text
    ended = run_command("nightly", "--config", "night.toml", "--run-date", NIGHT, "--only", "mean-ndcg")
    assert (ended.code, value(folder)) == (0, pytest.approx(SECOND))


@pytest.mark.parametrize("kind", [None, "table"])
@pytest.mark.parametrize(("column", "arrow_type"), [("run_date", pa.date32()), ("Day", pa.string())])
def test_a_catalog_table_of_nights_is_read_a_night_at_a_time(column, arrow_type, kind):
    info = TableInfo(schema=pa.schema([*pa.table(LONG).schema, pa.field(column, arrow_type)]))
    text = write_night_file("prod.rankings", info, None, "shop", {"input": kind, "judgments": None})
    date_of = "DATE" if column == "run_date" else ""
    assert f"input = \"SELECT * FROM prod.rankings WHERE {column} = {date_of}'{{run_date}}'\"\n" in text
    assert ('input-format = "sql"' in text) == (kind is not None)
    assert "not used" not in text
    times = TableInfo(schema=pa.schema([*pa.table(LONG).schema, pa.field("day", pa.timestamp("us"))]))
    text = write_night_file("prod.rankings", times, None, "shop", {"input": kind, "judgments": None})
    assert 'input = "prod.rankings"\n' in text
    assert '# not used: "day"\n' in text


def test_columns_that_could_be_segments_are_offered(folder):
    """`shape` and `digit` are no usual names of segments; a column of numbers with fractions is none."""
    more = {"shape": ["round", "straight"], "digit": [1, 2], "price": [0.5, 1.5]}
    write_table(folder / "clicks.parquet", LONG | more)
    assert init("--input", "clicks.parquet", "--output", "a.toml").code == 0
    text = (folder / "a.toml").read_text("utf-8")
    assert text.index('# segment-cols = ["shape", "digit"]  # columns that are not used') < text.index("[[step]]")


def test_the_file_says_why(folder):
    more = {"market": ["a", "b"], "shown_at": [1.5, 2.5], "client": ["x", "y"]}
    write_table(folder / "clicks.parquet", FORMS["other names"] | more)
    ended = init("--input", "clicks.parquet", "--output", "a.toml", "--dataset", "shop")
    assert (ended.code, ended.out.splitlines()[0].split("; ")[0]) == (0, 'a.toml: not used: "shown_at", "client"')
    text = (folder / "a.toml").read_text("utf-8")
    assert 'query-col = "userId"  # by its name: who or what is ranked for\n' in text
    assert text.index('segment-cols = ["market"]') < text.index("[[step]]")
    assert '# not used: "shown_at", "client"\n' in text
    assert 'dataset = "shop"' in text
    assert "compare-runs" not in text
    assert '# run-col = "..."  # column of the ranker, if there are several' in text
    assert_refused(init("--input", "clicks.parquet", "--output", "a.toml"), "'a.toml' already exists")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"a": [1], "b": [2]},
            "(a, b) has a usual name for the query, such as query_id, qid, query, queryid: name it with --query-col; "
            "the item, such as",
        ),
        ({"query_id": ["q"], "item_id": ["i"]}, "score or rank"),
        ({"query_id": ["q"], "item_id": ["i"], "score": ["high"]}, "score or rank"),
        (
            {"query_id": ["q"], "item_id": ["i"], "score": [1.0]},
            "name it with --relevance-col, or the table that has it with --judgments",
        ),
        ({"recommended": [["a"]]}, "relevant items"),
    ],
)
def test_a_table_whose_columns_say_nothing_is_refused(folder, columns, message):
    write_table(folder / "t.parquet", columns)
    assert_refused(init("--input", "t.parquet"), message, *list(columns)[:1])
    assert not (folder / "night.toml").exists()


def test_lines_of_a_csv_file_have_no_columns_beside_those_of_its_header(folder):
    (folder / "t.csv").write_text("user_id,dish,position,rating,shift\nu,d,1,2,day\n")
    refused = init("--input", "t.csv")
    assert "(user_id, dish, position, rating, shift) has a usual name for the item" in refused.err
    assert init("--input", "t.csv", "--item-col", "dish").code == 0
    assert '# segment-cols = ["shift"]  #' in (folder / "night.toml").read_text("utf-8")


def test_a_table_that_is_not_there(folder):
    assert_refused(init("--input", "none.parquet"), "none.parquet")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("queryID", "query_id"), ("Product ID", "product_id"), ("doc-id", "doc_id"), ("URL", "url"), ("score", "score")],
)
def test_names_are_compared_in_one_spelling(name, expected):
    assert normalize_name(name) == expected


def test_the_most_usual_name_is_chosen():
    info = TableInfo(schema=pa.schema([(name, pa.float64()) for name in ("qid", "query_id", "item", "rank", "score")]
                                      + [("grade", pa.int64()), ("rating", pa.int64())]))  # fmt: skip
    chosen = {field.option: field.column for field in choose_columns(info, None)}
    assert chosen == {"query": "query_id", "item": "item", "score": "score", "relevance": "grade"}
    assert choose_segments(info, []) == []


@pytest.mark.parametrize("other", ["part_id", "run_id", "store_id"])
def test_an_id_that_may_be_something_else_is_not_taken_for_an_item(folder, other):
    """Of two ids neither is chosen, and never that of a run or a store."""
    rows = ONE_ID if other == "part_id" else {**ONE_ID, "clip": ONE_ID["clip_id"]}
    without = {name: values for name, values in rows.items() if other == "part_id" or name != "clip_id"}
    write_table(folder / "rankings.parquet", without | {other: ["s", "s"]})
    assert_refused(init("--input", "rankings.parquet"), "the item, such as item_id", "--item-col")


@pytest.mark.parametrize("column", ["model_id", "model_version", "ranker_id"])
def test_the_id_of_a_model_is_that_of_the_run(folder, column):
    write_table(folder / "rankings.parquet", ONE_ID | {column: ["s", "s"]})
    assert init("--input", "rankings.parquet").code == 0
    text = (folder / "night.toml").read_text("utf-8")
    assert 'item-col = "clip_id"' in text
    assert f'run-col = "{column}"' in text
