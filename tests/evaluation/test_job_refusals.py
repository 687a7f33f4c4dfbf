"""What the main job refuses before it has written anything: exit code 2 and one line that names the thing."""

from __future__ import annotations

import shutil

import pytest
from support.engines import parametrize_engine
from support.main_job import assert_refused, mean_ndcg, read_files, write_rows, write_run, write_table
from support.oracle import build_ranking

ROWS = build_ranking([3, 0, 1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("refusals")


@pytest.fixture(scope="module")
def good(folder):
    return write_rows(folder / "good.parquet", ROWS, country=lambda _: "DE")


@pytest.fixture
def outputs(tmp_path):
    """Flags that ask for every output; nothing may come of them."""
    assert not read_files(tmp_path)
    yield (
        *("--output", tmp_path / "metrics", "--per-query-output", tmp_path / "queries"),
        *("--json", tmp_path / "out.json"),
    )
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------- options: refused before Spark is asked


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--k", "0"), ("k ", "0")),
        (("--k", "x"), ("k ", "'x'")),
        (("--k", "1,,5"), ("k ",)),
        (("--k", "2.5"), ("k ", "'2.5'")),
        (("--k", "-3"), ("k ", "-3")),
        (("--convention", "trec"), ("convention", "'trec'", "trec_eval")),
        (("--convention", "default;colour=red"), ("'colour'",)),
        (("--ties", "random"), ("ties", "'random'", "item_asc")),
        (("--ties", "input_order"), ("ties=input_order", "order-col")),
        (("--gain", "cubic"), ("gain", "'cubic'", "exponential")),
        (("--gain", "table:0=0,1"), ("gain", "'1'")),
        (("--discount", "log:1"), ("1",)),
        (("--discount", "table:1,0.5", "--k", "3"), ("discount", "2", "k=3")),
        (("--pad-to-k", "few"), ("pad_to_k", "'few'")),
        (("--negative", "drop"), ("negative", "'drop'", "clip")),
        (("--no-relevent", "skip"), ("--no-relevent", "--no-relevant")),
        (("--gates", "ndcg@10>=0.4", "extra"), ("--gate",)),
        (("surplus",), ("surplus",)),
        (("--gate", "ndcg=0.4"), ("'ndcg=0.4'", "ndcg@10>=0.40")),
        (("--gate", "ndcg@10>=high"), ("'ndcg@10>=high'",)),
        (("--gate", "ndcg@10>=1e"), ("'ndcg@10>=1e'",)),
        (("--gate", "mrr@10>=0.4"), ("'mrr@10>=0.4'", "ndcg")),
        (("--gate", "ndcg@5>=0.4"), ("'ndcg@5>=0.4'", "ndcg@5 is not computed", "ndcg@10")),
        (("--run-date", "31.01.2026"), ("--run-date", "'31.01.2026'")),
        (("--run-date", "2026-02-30"), ("--run-date", "'2026-02-30'")),
        (("--run-date", "20260131"), ("--run-date", "'20260131'")),
        (("--rejects", "rejects"), ("--rejects", "--on-invalid reject")),
        (("--on-invalid", "ignore"), ("--on-invalid", "'ignore'", "reject")),
        (("--on-invalid", "reject", "--max-reject-fraction", "1.5"), ("--max-reject-fraction", "1.5")),
        (("--max-reject-fraction", "few"), ("--max-reject-fraction", "'few'")),
        (("--confidence", "95"), ("confidence", "95")),
        (("--strategy", "fast"), ("--strategy", "'fast'")),
        (("--source", "disk"), ("--source", "'disk'")),
        (("--segment-cols", "country,country"), ("segment", "country")),
        (("--query-col", "run"), ("'run'",)),
        (("--score-col", "a,b", "--run-col", "ranker"), ("run-col",)),
        (("--input-option", "header"), ("'header'", "NAME=VALUE")),
        (("--conf", "spark.sql.shuffle.partitions"), ("'spark.sql.shuffle.partitions'", "NAME=VALUE")),
    ],
    ids=" ".join,
)
def test_option(outputs, options, named):
    ended = mean_ndcg("--input", "nowhere/at/all", *outputs, *options)
    assert_refused(ended, *named)
    assert ended.err.count("\n") == 1


def test_no_input():
    assert_refused(mean_ndcg(), "--input")


# ------------------------------------------------------------------- schemas: refused before anything is computed

COLUMNS = [
    (("--query-col", "query"), ("'query'", "query-col", "query_id", "item_id")),
    (("--item-col", "itemid"), ("'itemid'", "item-col", "'item_id'")),
    (("--score-col", "scor"), ("'scor'", "score-col", "'score'")),
    (("--rank-col", "position"), ("'position'", "rank-col")),
    (("--relevance-col", "label"), ("'label'", "relevance-col")),
    (("--segment-cols", "county"), ("'county'", "segment-cols", "'country'")),
    (("--segment-cols", "country+device"), ("'device'", "segment-cols")),
    (("--weight-col", "w"), ("'w'", "weight-col")),
    (("--run-col", "ranker"), ("'ranker'", "run-col")),
    (("--order-col", "line", "--ties", "input_order"), ("'line'", "order-col")),
    (("--weight-col", "country"), ("'country'", "weight-col", "string")),
    (("--score-col", "country"), ("'country'", "score-col", "string")),
]
OF_SPARK = [
    (("--conf", "spark.ui.enabled=true"), ("--conf",)),
    (("--k", "2147483648", "--strategy", "window", "--explain"), ("k ", "2,147,483,648")),
]


@parametrize_engine("options, named", local=COLUMNS, spark=[COLUMNS[1], *OF_SPARK])
def test_column(engine, good, outputs, options, named):
    assert_refused(mean_ndcg("--input", good, "--engine", engine["engine"], *outputs, *options), *named)


ABSENT = [
    (("--input", "/no/such/folder"), ("'/no/such/folder'",)),
    (("--input", "no_such.csv"), ("no_such.csv",)),
    (("--input", "{good}", "--judgments", "/no/such/qrels"), ("'/no/such/qrels'",)),
]
OF_CATALOG = (("--dataset", "web", "--input", "SELECT * FROM no_such_table"), ("no_such_table",))


@parametrize_engine("options, named", local=ABSENT, spark=[OF_CATALOG])
def test_table(engine, good, outputs, options, named):
    """Every table that Spark does not find: test_inputs.py."""
    filled = [option.format(good=good) for option in options]
    assert_refused(mean_ndcg("--engine", engine["engine"], *outputs, *filled), *named)


def test_a_folder_without_files(folder, outputs):
    (folder / "hollow").mkdir()
    assert_refused(mean_ndcg("--input", folder / "hollow", *outputs), "hollow")


@pytest.mark.parametrize("column", ["query_id", "item_id"])
def test_keys_of_other_types_in_the_judgments(folder, outputs, column):
    run, judgments = write_run(folder / "run.parquet", ROWS), folder / f"{column}.parquet"
    columns = {"query_id": ["q"], "item_id": ["0"], "relevance": [1.0], column: [7]}
    judged = write_table(judgments, columns)
    ended = mean_ndcg("--input", run, "--judgments", judged, *outputs, "--engine", "local")
    assert_refused(ended, {"query_id": "query_id", "item_id": "item"}[column], "bigint", "string", "judgments")


# ----------------------------------------------------------------------- outputs: refused before anything is computed

PLACES = [
    (("--output", "{out}/m", "--output-format", "xlsx"), ("'xlsx'", "parquet")),
    (("--json", "{out}/no/out.json"), ("no/out.json",)),
    (("--json", "{out}"), ("{out}",)),
    (("--output", "{good}"), ("good.parquet",)),
    (("--output", "{good}/metrics"), ("good.parquet",)),
    (("--output", "{out}/same", "--per-query-output", "{out}/same"), ("same",)),
    (("--input", "{input}", "--output", "{input}"), ("input",)),
]
TABLES = [
    (("--per-query-output", "{out}/q", "--per-query-format", "delta"), ("is a path", "USING delta LOCATION")),
    (("--output", "ranking_metrics", "--output-format", "delta"), ("no Delta", "ranking_metrics")),
    (("--output", "ranking_metrics", "--output-format", "iceberg"), ("no Iceberg", "ranking_metrics")),
    (("--output", "no_such_schema.metrics"), ("no_such_schema",)),
    (("--output", "my-metrics"), ("my-metrics",)),
]


@parametrize_engine("options, named", local=PLACES, spark=TABLES)
def test_output(engine, good, folder, tmp_path, options, named):
    """The last two places would lose one of the outputs, and make the input unreadable for the next night."""
    source = folder / "input"
    write_rows(source / "rows.parquet", ROWS)
    before = read_files(folder)
    places = {"good": good, "out": tmp_path, "input": source}
    filled = [option.format(**places) for option in options]
    try:
        ended = mean_ndcg("--input", good, "--k", 3, "--engine", engine["engine"], *filled)
        assert_refused(ended, *[name.format(**places) for name in named])
        assert "--engine local cannot" not in ended.err
        assert list(tmp_path.iterdir()) == []
        assert read_files(folder) == before
    finally:
        shutil.rmtree(source)


@pytest.mark.parametrize("source", ["auto", "spark"])
@pytest.mark.usefixtures("spark")
def test_a_corrupt_file_is_named(tmp_path, outputs, source, good):
    """By workers that read it, and by Spark."""
    folder = good.parent / f"corrupt_{source}"
    write_rows(folder / "a.parquet", ROWS)
    (folder / "b.parquet").write_bytes(b"PAR1" + b"x" * 100)
    ended = mean_ndcg("--input", folder, "--k", 3, "--engine", "spark", "--source", source, *outputs)
    assert_refused(ended, "b.parquet", "Nothing was written")
