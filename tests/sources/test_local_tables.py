"""Tables opened by Arrow have the columns, types and rows of Spark, or a reason why Spark must read them."""

from __future__ import annotations

import bz2
import datetime
import decimal
import gzip
import math
import os
import pickle
import random
import subprocess
import sys
from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ndcg_spark.core.adapters import accepts_tables
from ndcg_spark.core.columns import describe_table
from ndcg_spark.core.schemas import MALFORMED
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.sources.formats import open_table
from ndcg_spark.sources.local import open_local, open_memory_table, read_columns


def normalize(value):
    """Return a value of Spark or Arrow in one form."""
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone().replace(tzinfo=None)
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    if isinstance(value, dict):
        return tuple(sorted((repr(key), normalize(item)) for key, item in value.items()))
    if isinstance(value, list) and value and all(isinstance(entry, tuple) for entry in value):
        return normalize(dict(value))  # a map of Arrow
    if isinstance(value, bytearray):
        return bytes(value)
    return tuple(map(normalize, value)) if isinstance(value, list) else value


def count_rows(table, columns, n_parts=3):
    """Read all parts, each pickled as for another process; return rows with their counts."""
    schema = pa.schema([(name, table.info.type_of(name)) for name in columns])
    rows = []
    for part in table.parts(n_parts):
        for batch in pickle.loads(pickle.dumps(part)).read([*columns], schema, 1_000):
            assert batch.schema == schema
            assert batch.num_rows <= 1_000
            rows += [repr([normalize(row[name]) for name in columns]) for row in batch.to_pylist()]
    return Counter(rows)


def assert_same_as_spark(frame, table):
    """Check that a local table has the columns, types and rows of Spark."""
    assert not isinstance(table, str), table
    theirs = describe_table(frame)
    used = [name for name in table.info.names if name not in table.info.refused]
    assert table.info.names == theirs.names
    assert [(name, table.info.type_of(name)) for name in used] == [(name, theirs.type_of(name)) for name in used]
    assert table.info.is_text == theirs.is_text
    assert theirs.spellings == {} or table.info.refused
    rows = frame.select(*(f"`{name}`" for name in used)).collect()
    actual = Counter(repr([normalize(value) for value in row.asDict(recursive=True).values()]) for row in rows)
    ours = count_rows(table, used)
    assert (actual - ours, ours - actual) == (Counter(), Counter())
    assert len(used) == 1 or count_rows(table, used[1::2], 1).total() == len(rows)


def assert_opened_alike(spark, path, kind=None):
    assert_same_as_spark(open_table(spark, str(path), kind).frame, open_local(str(path), kind))


def write_files(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


# ---------------------------------------------------------------------------------------------------- csv, tsv


def generate_lines(seed, n, alphabet):
    draw = random.Random(seed)
    return "".join("".join(draw.choices(alphabet, k=draw.randint(0, 14))) + "\n" for _ in range(n))


CSV = {
    "plain.csv": "a,b,c\n1,x,2.5\n007,,\n,,\n",
    "crlf.csv": "a,b,c\r\n1,x,2\r\n3,y\r\n\r\n,,\r\n",
    "cr.csv": "a,b,c\r1,x,2\r3,y,4,5\r",
    "bom.csv": b"\xef\xbb\xbfa,b,c\nz\xc3\xbcrich,\xe2\x82\xac,\xf0\x9f\x98\x80\n",
    "latin.csv": b"a,b,c\nz\xfcrich,x,1\n",
    "quotes.csv": 'a,b,c\n"x","y,z","say ""hi"""\n"","",""\n" a "," b",c \n"a" ,"b" x,"c"y,"d\n"\n',
    "header in quotes.csv": '"a","b",c\n1,2,3\n',
    "blanks.csv": "\n  \na,b,c\n\n   \n1,2,3\n \t \n , , \n\n",
    "none.csv": "",
    "no end.csv": "a,b,c\n1,2,3\n4,5,6",
    "short.csv": "a,b,c\n1\n1,2\n1,2,3,4\n1,2,3,4,5\n,\n",
    "only a header.csv": "a,b,c\n",
    "long.csv": "a,b,c\n" + "".join(f"{i},{'é' * (i % 50)},{i / 7}\n" for i in range(2_000)) + "x\n",
    "packed.csv.gz": gzip.compress(b"a,b,c\n1,packed,\n") + gzip.compress(b"2,twice,\n"),
    "packed.csv.bz2": bz2.compress(b"a,b,c\n1,packed too,\n"),
    "odd.csv": "a,b,c\n" + generate_lines(1, 6_000, 'ab"", ,,"\tx'),
    "_hidden.csv": "z\n1\n",
}


def test_csv(spark, tmp_path):
    assert_opened_alike(spark, write_files(tmp_path, CSV), "csv")


def test_tsv_csv_of_one_column_and_odd_names(spark, tmp_path):
    assert_opened_alike(
        spark, write_files(tmp_path / "names", {"a.csv": ' a ,"b ""c""",d.e,"f" g,\u00e9\n1,2,3,4,5\n'}), "csv"
    )
    folder = write_files(tmp_path / "tsv", {"odd": "a\tb\n" + generate_lines(2, 4_000, 'ab"" \t\t"\x0b')})
    assert_opened_alike(spark, folder, "tsv")
    assert_opened_alike(
        spark, write_files(tmp_path / "one", {"one.csv": "a\n" + generate_lines(3, 2_000, 'ab"" ,"\t')}), "csv"
    )


def test_blocks_of_a_long_file_are_cut_between_lines(tmp_path):
    n = 400_000
    path = tmp_path / "long.csv"
    path.write_text("a,b\r\n" + "".join(f"{i},{'x' * (i % 20)}\r\n" for i in range(n)), newline="")
    (part,) = open_local(str(path)).parts(8)
    actual = [a for batch in part.read(["a"], pa.schema([("a", pa.string())]), 10_000) for a in batch[0].to_pylist()]
    assert actual == list(map(str, range(n)))


# -------------------------------------------------------------------------------------------------------- TREC


TREC = {
    "run": "1 Q0 a 1 2.5 tag\n1\tQ0\tb\t2\t1.5\ttag more fields\n  2   Q0  a \x0b 1 \x0c 3 t  \n",
    "comments": "# a comment of six words here\n#\n #x y z u v w\n1 Q0 # 1 2 t\n",
    "short": "1 Q0 a 1 2.5\nx\n\n \t \n1 Q0 a 1 2.5 t",
    "qrels": "1 0 a 2\r\n1 0 b 0\r\n\r\n",
    "bom": b"\xef\xbb\xbf1 0 \xc3\xbc 2\n1 0 \xe2\x80\x83 1\n1 0 z\xfc 1\n1 0 a\xc2\xa0b 1\n",
    "packed.gz": gzip.compress(b"1 Q0 gz 1 2.5 t\n1 0 gz 1"),
    "odd": generate_lines(4, 3_000, 'ab1 \t  #"x') + generate_lines(5, 2_000, "a b c d e "),
}


@pytest.mark.parametrize("kind", ["trec-run", "trec-qrels"])
def test_trec(spark, tmp_path, kind):
    assert_opened_alike(spark, write_files(tmp_path, TREC), kind)


# -------------------------------------------------------------------------------------------------------- JSON


JSON = {
    "a.json": '{"q": 1, "s": 2, "t": "2026-01-31", "ok": true, "n": null, "z": {"y": [1, 2.5], "x": "a"}}\n',
    "b.jsonl": '{"s": 2.5, "t": "2026-01-31 10:00:00", "l": [{"id": "x", "v": 1}, {"w": null}], "e": [], "q": -5}\n',
    "c.json": '\n\r\n  {"q": 9007199254740993, "t": "\\u00fc \\ud83d\\ude00 \u20ac \\n", "z": {"y": []}}'
    ' \t\r\n{}\n{"t": null}',
    "d.json": b'\xef\xbb\xbf{"q":1,"s":1e3}\n{"q":2,"s":0.1}\n{"s":123456789012345678}\n'
    b'{"b":[[1],[]],"m":{"Q":{"a":1}}}\n',
    "e.json": "",
    "f.json.gz": gzip.compress(b'{"q":7,"t":"2026-01-31T10:00:00Z","l":null}\n'),
}


def test_json(spark, tmp_path):
    assert_opened_alike(spark, write_files(tmp_path, JSON), "json")


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}\n{"a": "x"}\n', '{"a": 1}{"a": 2}\n', '{"a":\n1}\n', '{"a": tru}\n', "[1]\n", '[{"a": 1}]\n',
        '{"a": 9223372036854775808}\n', '{"a": [123456789012345678901]}\n', '{"a": NaN}\n', '{"a": -0, "b": 1}\n',
        '{"a": 1, "A": 2}\n', '{"a": {}}\n', '{"a": 1}\n{"a": [1]}\n', '{"a": true}\n{"a": 1}\n', "{'a': 1}\n",
        '{"a": 1, "a": 2}\n', '{"a": 1} x\n', "\n", '{"a": [1, "x"]}\n', b'{"a": "\xfc"}\n', '{"a": 1e999}\n',
        '{"a": {"b": 1, "B": 1}}\n', '{"a": "b\n"}\n', '{"a": Infinity}\n', '{"_corrupt_record": 1}\n',
        '{"a": 1}\n{"a": 1.5}\n{"a": "x"}\n',
    ],
)  # fmt: skip
def test_json_that_spark_may_read_differently_is_left_to_spark(tmp_path, text):
    path = write_files(tmp_path, {"a.json": text}) / "a.json"
    assert isinstance(open_local(str(path)), str)


# ----------------------------------------------------------------------------------------------------- Parquet


READS_NO_PAIR = int(pa.__version__.partition(".")[0]) >= 26
"""Whether Arrow reads lists of a fixed size from Parquet files where one is null; earlier ones say they cannot."""
PARQUET = pa.table({
    "text": pa.array(["a", None, ""], pa.large_string()),
    "words": pa.array(["x", "y", "x"]).dictionary_encode(),
    "u8": pa.array([1, 255, None], pa.uint8()),
    "u16": pa.array([1, 65535, None], pa.uint16()),
    "u32": pa.array([1, 2**32 - 1, None], pa.uint32()),
    "u64": pa.array([1, 2**64 - 1, None], pa.uint64()),
    "i8": pa.array([1, -128, None], pa.int8()),
    "whole": pa.array([1, -(2**63), None]),
    "float": pa.array([1.5, math.nan, None], pa.float32()),
    "double": pa.array([-0.0, math.inf, None]),
    "flag": [True, False, None],
    "day": [datetime.date(2026, 1, 31), datetime.date(1969, 12, 31), None],
    "day64": pa.array([datetime.date(2026, 1, 31), None, None], pa.date64()),
    "money": [decimal.Decimal("1.50"), decimal.Decimal("-2.25"), None],
    "at": pa.array([0, 1_700_000_000_123_456, None], pa.timestamp("us", "UTC")),
    "berlin": pa.array([0, 1_700_000_000_123, None], pa.timestamp("ms", "Europe/Berlin")),
    "plain": pa.array([0, 1_700_000_000_123_456, None], pa.timestamp("us")),
    "bytes": pa.array([b"a", b"\xff", None], pa.large_binary()),
    "list": pa.array([[1, None], [], None], pa.large_list(pa.int32())),
    "pairs": pa.array([[1.0, 2.0], [3.0, 4.0], None if READS_NO_PAIR else [5.0, 6.0]], pa.list_(pa.float32(), 2)),
    "categories": pa.array([["a"], [None], None], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "structs": [[{"id": "a", "v": 1, "deep": {"x": [1.5]}}], [], None],
    "map": pa.array([[("a", 1)], [], None], pa.map_(pa.string(), pa.int64())),
    "a.b": [1, 2, 3],
    "nothing": pa.nulls(3),
    "lasts": pa.array([1, 2, 3], pa.duration("us")),
})  # fmt: skip


def test_parquet(spark, tmp_path):
    for at in range(3):
        options = {"row_group_size": 1 + at % 2, "use_compliant_nested_type": at != 1}
        pq.write_table(PARQUET.slice(at), tmp_path / f"{at}.parquet", **options)
    (tmp_path / "_SUCCESS").touch()
    assert_opened_alike(spark, tmp_path)
    table = open_local(str(tmp_path))
    assert set(table.info.refused) == {"categories", "nothing", "lasts"}
    assert table.listing.files == tuple(str(tmp_path / f"{at}.parquet") for at in range(3))
    assert len(table.footers) == 3


@pytest.mark.parametrize("store_schema", [True, False])
def test_files_whose_columns_differ_in_the_names_of_lists_or_structs(tmp_path, store_schema):
    for name, column in (("a", "relevances"), ("b", "grades")):
        pq.write_table(
            pa.table({column: [[1.0]], "s": [{"x": 1}]}), tmp_path / f"{name}.parquet", store_schema=store_schema
        )
    clause = open_local(str(tmp_path))
    assert clause == f"{tmp_path}/b.parquet has other columns than {tmp_path}/a.parquet"


def test_parquet_of_spark(spark, tmp_path):
    frame = spark.sql(
        "SELECT id, CAST(id AS string) text, TIMESTAMP'2026-01-31 10:00:00' at, TIMESTAMP_NTZ'2026-01-31 10:00:00' "
        "plain, array(named_struct('a', id, 'b', map('k', DATE'2026-01-31'))) items, INTERVAL '1' DAY lasts "
        "FROM range(5)"
    )
    frame.write.parquet(str(tmp_path / "x"))
    assert_opened_alike(spark, tmp_path / "x")
    assert set(open_local(str(tmp_path / "x")).info.refused) == {"lasts"}


FOLDERS = {
    "whole": ["7", "-12", "0"],
    "long": ["7", "3000000000"],
    "zeros": ["007", "7"],
    "day": ["2026-01-31", "2026-02-28", None],
    "word": ["a b", "x%2Fy", "Ä", None],
    "mixed": ["7", "bm25", "2026-01-31"],
    "version": ["v1.0", "v2"],
    "with space": ["a", "b"],
}


def test_columns_in_names_of_folders(spark, tmp_path):
    names = list(FOLDERS)
    for at in range(4):
        texts = [FOLDERS[name][at % len(FOLDERS[name])] or "__HIVE_DEFAULT_PARTITION__" for name in names]
        folder = tmp_path.joinpath(*(f"{name}={text}" for name, text in zip(names, texts, strict=True)))
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"q": [at, at + 1]}), folder / "part-0.parquet")
    assert_opened_alike(spark, tmp_path)
    table = open_local(str(tmp_path))
    types = [table.info.type_text(name) for name in names]
    assert types == ["int", "bigint", "string", "date", *["string"] * 4]
    assert table.footers == ()
    assert count_rows(table, ["day"]).total() == 8


@pytest.mark.parametrize(
    "texts",
    [["1.5"], ["1d", "2"], ["2026-01-31 10:00:00"], ["2026-01-31", "7"], ["NaN"], ["2026-02-30"], ["10:00:00"],
     [f"{2**64}"], ["__HIVE_DEFAULT_PARTITION__"], ["%37"], ["2026-01"], ["\u0667"], ["0x1p3"], [" 7"]],
)  # fmt: skip
def test_folder_names_that_are_left_to_spark(tmp_path, texts):
    for text in texts:
        (tmp_path / f"x={text}").mkdir()
        pq.write_table(pa.table({"q": [1]}), tmp_path / f"x={text}" / "a.parquet")
    assert "(x=...)" in open_local(str(tmp_path))


def test_folders_of_csv_and_json(spark, tmp_path):
    write_files(tmp_path / "csv", {"run=a/1.csv": "q,s\n1,2\nx\n", "run=b/1.csv": "q,s\n3,4\n"})
    write_files(tmp_path / "json", {"n=1/1.json": '{"q": 1}\n', "n=2/2.json": '{"q": 2.5}\n'})
    write_files(tmp_path / "trec", {"n=1/1": "1 0 a 2\n"})
    theirs, ours = open_table(spark, str(tmp_path / "csv"), "csv").frame, open_local(str(tmp_path / "csv"), "csv")
    assert_same_as_spark(theirs, ours)
    assert_opened_alike(spark, tmp_path / "json", "json")
    assert_opened_alike(spark, tmp_path / "trec", "trec-qrels")


# ------------------------------------------------------------------------------------------- clauses, refusals


def build_table(**columns):
    return pa.table(columns or {"q": [1]})


def write_parquet(tmp_path, files):
    for name, what in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(what, path)
    return tmp_path


@pytest.mark.parametrize(
    "files",
    [
        {"a.parquet": build_table(), "b.parquet": build_table(q=["x"])},
        {"a.parquet": build_table(), "b.parquet": build_table(q=[1], r=[1])},
        {"a.parquet": build_table(), "b": build_table()},
        {"a.parquet": build_table(), "x=1/b.parquet": build_table()},
        {"x/b.parquet": build_table()},
        {"q=1/b.parquet": build_table()},
        {"x=1/a.parquet": build_table(), "X=2/a.parquet": build_table()},
        {"a.parquet": build_table(q=[1], Q=[2])},
        {"a.parquet": build_table(), "_common_metadata": build_table()},
        {"a.parquet": build_table().replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})},
    ],
)
def test_parquet_that_is_left_to_spark(tmp_path, files):
    assert isinstance(open_local(str(write_parquet(tmp_path, files)), "parquet"), str)


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.csv", "a,a\n1,2\n"), ("a.csv", "a,\n1,2\n"), ("a.csv.lz4", "a\n"), ("a.csv.GZ", "a\n"),
     ("_a.csv", "a\n1\n"), ("a.csv", f"{MALFORMED}\n")],
)  # fmt: skip
def test_csv_that_is_left_to_spark(tmp_path, name, text):
    assert isinstance(open_local(str(write_files(tmp_path, {name: text}) / name)), str)


def test_an_empty_csv_has_no_columns(tmp_path):
    """So every requested column is missing, as with Spark."""
    assert open_local(str(write_files(tmp_path, {"a.csv": ""}) / "a.csv")).info.names == []


def test_tables_of_years_of_nights_are_read(tmp_path):
    """Five rankers write 2,000 files in 400 nights; the state of more than 10,000 takes longer than a second."""
    first = tmp_path / "part-0.parquet"
    pq.write_table(pa.table({"a": [1]}), first)
    for number in range(1, 10_001):
        os.link(first, tmp_path / f"part-{number}.parquet")
        if number == 2000:
            table = open_local(str(tmp_path))
            assert read_columns(table, {"a": pa.int64()}).num_rows == 2001
    assert open_local(str(tmp_path)) == "there are more than 10,000 files"


def test_other_tables_are_left_to_spark(tmp_path):
    write_files(tmp_path, {"a.csv": "a\n1\n", "b.csv": "b\n1\n"})
    assert (
        open_local("prod.rankings") == "'prod.rankings' is a table of a catalog, not a path such as './prod.rankings'"
    )
    assert open_local("SELECT 1 AS x") == "only Spark reads the format sql"
    assert open_local(str(tmp_path / "a.orc")) == "only Spark reads the format orc"
    assert open_local(str(tmp_path / "a.csv"), options={"sep": ";"}) == "options of Spark's reader are set"
    assert open_local(str(tmp_path / "*.csv")) == "Spark expands wildcards in the path"
    assert open_local(str(tmp_path), "csv") == "headers of files differ"
    assert open_local("hdfs://host/a.csv") == "only Spark may be able to read the path"
    assert open_local("s3://bucket/a.csv") == "only Spark reads csv from object stores"


def test_refusals_are_those_of_spark(spark, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    nanos = tmp_path / "nanos.parquet"
    pq.write_table(pa.table({"at": pa.array([1], pa.timestamp("ns"))}), nanos)
    delta = tmp_path / "delta"
    (delta / "_delta_log").mkdir(parents=True)
    pq.write_table(build_table(), delta / "a.parquet")
    for path, kind in [
        (tmp_path / "none.csv", None), (tmp_path / "none", None), (empty, "parquet"), (empty, "csv"), (empty, "json"),
        (nanos, None), (delta / "a.parquet", None), (delta, "parquet"),
    ]:  # fmt: skip
        with pytest.raises(InputRefusedError) as theirs:
            open_table(spark, str(path), kind)
        with pytest.raises(InputRefusedError) as ours:
            open_local(str(path), kind)
        assert str(ours.value) == str(theirs.value)
    assert open_local(str(delta)) == "only Spark reads the format delta"
    with pytest.raises(InvalidParameterError, match="credentials"):
        open_local("s3://key:secret@bucket/a.parquet")


def test_changed_and_deleted_files_are_refused(tmp_path):
    paths = [tmp_path / name for name in ("a.parquet", "a.csv")]
    pq.write_table(build_table(), paths[0])
    paths[1].write_text("q\n1\n")
    parts = [open_local(str(path)).parts(1)[0] for path in paths]
    pq.write_table(build_table(q=[2]), paths[0])
    paths[1].unlink()
    for part in parts:
        with pytest.raises(InputRefusedError, match="evaluate again"):
            list(part.read(["q"], pa.schema([("q", pa.string())]), 10))


# --------------------------------------------------------------------------------------- Arrow files, in memory


MEMORY_TABLES = {
    "arrow": pa.table({**{name: PARQUET[name] for name in PARQUET.schema.names if name not in ("lasts",)},
                       "half": pa.array(np.array([0.5, math.nan, 1], np.float16))}),
    "pandas": pd.DataFrame({
        "q": [1, 2, 3], "k": [10.0, math.nan, 5.0], "n_items": [1.0, math.nan, 2.0], "s": [1.0, math.nan, 0.0],
        "c": pd.Categorical(["a", None, "b"]), "w": pd.array([1, None, 3], "Int32"),
        "f": pd.array([1.5, None, 2], "Float64"),
        "t": pd.to_datetime(["2026-01-31 00:00:00.5", None, "2026-02-01 10:00:00.123456"]),
        "z": pd.to_datetime(["2026-01-31", None, "2026-02-01"], utc=True), "text": ["a", None, "é"],
        "b": pd.array([True, None, False], "boolean"), "list": [[1, 2], None, []],
        "words": pd.array(["x", None, ""], "string"),
    }).set_index(pd.Index(["x", "y", "z"], name="id")),
    "dicts": [{"q": 1, "s": 1.5, "items": [{"a": 1}]}, {"q": 2}, {"s": math.nan, "day": datetime.date(2026, 1, 31)}],
    "cut": pd.DataFrame({"q": [1], "t": [pd.Timestamp("2026-01-31 12:00:00.000000001")]}),
}  # fmt: skip


@accepts_tables
def to_frame(rows):
    return rows


@pytest.mark.parametrize("name", [*MEMORY_TABLES, "polars"])
def test_tables_in_memory(spark, name):
    if name == "polars":
        polars = pytest.importorskip("polars")
        data = polars.DataFrame({"q": ["a", "b"], "s": [1.0, math.nan], "l": [["x"], []], "n": [None, None]})
        data = data.with_columns(c=polars.col("q").cast(polars.Categorical)).lazy()
    else:
        data = MEMORY_TABLES[name]
    theirs, ours = to_frame(data), open_memory_table(data, "rows")
    assert_same_as_spark(theirs, ours)
    assert ours.info == describe_table(theirs)
    assert ours.name == ""
    assert ours.n_bytes > 0


def test_values_other_than_tables_are_refused():
    for data, message in (
        (3, "rows must be a table"), ([], "rows must be a table"), ([{"a": 1}, {"a": "x"}], r"\(column 'a'\)"),
        (pa.Table.from_arrays([pa.array([1])] * 2, ["a", "a"]), "column names are not unique"),
    ):  # fmt: skip
        with pytest.raises(InvalidParameterError, match=message):
            open_memory_table(data, "rows")
        if not isinstance(data, int) and data:
            with pytest.raises(InvalidParameterError, match=message):
                to_frame(data)


def test_an_arrow_file_has_the_rows_of_its_table(tmp_path):
    data = MEMORY_TABLES["arrow"]
    with pa.ipc.new_file(tmp_path / "a.arrow", data.schema) as file:
        for at in range(3):
            file.write_table(data.slice(at, 1))
    ours, whole = open_local(str(tmp_path / "a.arrow")), open_memory_table(data, "rows")
    assert ours.info == whole.info
    assert len(ours.parts(2)) == 2
    assert count_rows(ours, ours.info.names) == count_rows(whole, ours.info.names)
    pd.DataFrame({"q": [1, 2]}).to_feather(tmp_path / "b.feather")
    assert count_rows(open_local(str(tmp_path / "b.feather")), ["q"]).total() == 2


def test_timestamps_below_microseconds_in_an_arrow_file_are_refused(tmp_path):
    MEMORY_TABLES["cut"].to_feather(tmp_path / "a.arrow")
    with pytest.raises(InputRefusedError, match="nanoseconds"):
        count_rows(open_local(str(tmp_path / "a.arrow")), ["t"])


@pytest.mark.slow
def test_no_spark_is_needed(tmp_path):
    write_files(tmp_path, {"a.csv": "q\n1\n", "a.tsv": "q\n1\n", "a.json": '{"q": 1}\n', "a.run": "1 0 a 1\n"})
    pq.write_table(build_table(), tmp_path / "a.parquet")
    pd.DataFrame({"q": [1]}).to_feather(tmp_path / "a.arrow")
    program = """
import sys
sys.modules["pyspark"] = None
import pandas as pd
from ndcg_spark.core.adapters import accepts_tables
from ndcg_spark.sources.local import open_local, open_memory_table, read_columns
tables = [open_local(path, "trec-qrels" if path.endswith("run") else None) for path in sys.argv[1:]]
for table in (*tables, open_memory_table(pd.DataFrame({"q": [1]}), "rows")):
    rows = [row for part in table.parts(2) for batch in part.read(table.info.names, table.info.schema, 9)
            for row in batch.to_pylist()]
    assert len(rows) == 1, rows
"""
    paths = sorted(map(str, tmp_path.iterdir()))
    subprocess.run([sys.executable, "-c", program, *paths], check=True)
    assert len(paths) == 6
