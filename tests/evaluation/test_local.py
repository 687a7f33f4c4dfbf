"""Evaluations of this machine against the definitions, in every form of table; and what goes to Spark instead.

That both engines give the same bits is the matter of `scripts/check cross-check`.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.arrow_rows import build_forms, build_long_table, choose_convention
from support.engines import collect_rows
from support.oracle import Choices
from support.random_rankings import random_rows

import ndcg_spark
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError
from ndcg_spark.evaluation import LocalEvaluation, local
from ndcg_spark.evaluation.local import LocalRanking, Resources, rank_locally
from ndcg_spark.evaluation.plan_columns import ColumnRead, Conversion
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks.columns import read_column
from ndcg_spark.sources.local import open_memory_table


def ranked(tables: Mapping[str, pa.Table], settings: EvaluationSettings, **options: Any) -> LocalRanking:
    actual = rank_locally({name: open_memory_table(one, name) for name, one in tables.items()}, settings, **options)
    assert isinstance(actual, LocalRanking), actual
    return actual


def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many partitions and processes for small tables, too."""
    monkeypatch.setattr(local, "PARTITION_BYTES", 64)
    monkeypatch.setattr(local, "MIN_PROCESS_BYTES", 64)
    monkeypatch.setattr(local, "MIN_PART_BYTES", 64)


@pytest.mark.parametrize("form", ["long", "judgments", "structs"])
def test_processes_and_partitions_change_no_bit(monkeypatch: pytest.MonkeyPatch, form: str):
    choices = Choices(ties="item_asc")
    rows = random_rows(5, n_queries=60)
    (tables, columns) = next((tables, group) for name, tables, group in build_forms(rows, choices) if name == form)
    missing = {"null_score": "unretrieved"} if form == "long" else {}
    settings = EvaluationSettings(
        columns=columns, convention=choose_convention(columns, choices), cutoffs=(1, 3, None), **missing
    )
    alone = ranked(tables, settings)
    assert alone.n_processes == 1
    small(monkeypatch)
    several = ranked(tables, settings, processes=2)
    assert several.n_processes == 2
    for what in ("summary", "per_query", "rankings"):
        one, other = (sorted(map(repr, getattr(group, what)().to_pylist())) for group in (alone, several))
        assert one == other, what


def test_sorted_files_are_summed_where_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = sorted(random_rows(2, n_queries=40), key=lambda row: row.query.encode())
    table = build_long_table(rows, Choices(ties="item_asc")).filter(pa.compute.field("relevance").is_valid())
    table = table.filter(pa.compute.field("score").is_valid())
    pq.write_table(table, tmp_path / "sorted.parquet", row_group_size=10)
    mixed = pa.concat_tables([table.take(pa.array(range(start, len(table), 2))) for start in (0, 1)])
    pq.write_table(mixed, tmp_path / "mixed.parquet", row_group_size=10)
    small(monkeypatch)
    actual = []
    for name in ("sorted", "mixed"):
        result = ndcg_spark.evaluate(tmp_path / f"{name}.parquet", k=[1, 3], engine="local")
        assert isinstance(result, LocalEvaluation)
        assert ("sorted by query" in result.ranking.reason) == (name == "sorted")
        actual.append(result.summary.to_pylist())
    assert actual[0] == actual[1]
    assert actual[0] == ndcg_spark.evaluate(table, k=[1, 3]).summary.to_pylist()


def exploded(lists: pa.Table, relevant: pa.Table) -> tuple[pa.Table, pa.Table]:
    """By hand: a row for each entry of a list, ranked by its place; and for each relevant item, of grade 1."""
    rows = [(row, item, at) for row in lists.to_pylist() for at, item in enumerate(row["ranked"] or [], start=1)]
    run = {"user": [row["user"] for row, _, _ in rows], "country": [row["country"] for row, _, _ in rows]}
    run |= {"item_id": [item for _, item, _ in rows], "rank": [at for _, _, at in rows]}
    judged = [(row["user"], item) for row in relevant.to_pylist() for item in row["liked"]]
    return pa.table(run), pa.table(
        {
            "user": [user for user, _ in judged],
            "item_id": [item for _, item in judged],
            "relevance": [1] * len(judged),
        }
    )


LISTS = pa.table(
    {
        "user": [1, 2, 3, 4],
        "ranked": pa.array([["a", "b", "c"], [], ["z"], ["c", "a"]], pa.list_(pa.string())),
        "country": ["DE", "FR", "FR", "DE"],
    }
)
LIKED = pa.table({"user": [1, 2, 4, 9], "liked": [["b", "q"], ["a"], ["a", "c"], ["x"]]})


def test_lists_beside_judgments_are_their_long_tables():
    """But for the segment of user 2, whose list is empty: no long row tells it."""
    options = {"query": "user", "k": [1, 3], "segments": "country", "on_invalid": "reject"}
    run, judged = exploded(LISTS, LIKED)
    expected = ndcg_spark.evaluate(run, judged, rank="rank", **options)
    beside = ndcg_spark.evaluate(LISTS, judged, ranked="ranked", **options)
    both = ndcg_spark.evaluate(LISTS, LIKED, ranked="ranked", relevant="liked", **options)
    rows = {row["user"]: row for row in expected.per_query.filter(pa.compute.field("k") == 3).to_pylist()}
    assert rows[2].pop("country") is None
    for actual in (beside, both):
        group = {row["user"]: row for row in actual.per_query.filter(pa.compute.field("k") == 3).to_pylist()}
        assert group[2].pop("country") == "FR"
        assert group == rows


KEYS = {
    "unsigned": pa.array([5] * 3 + [3_000_000_000] * 3, pa.uint32()),
    "above all signed": pa.array([5] * 3 + [2**63 + 5] * 3, pa.uint64()),
    "boolean": pa.array([False] * 3 + [True] * 3),
    "two zeros": pa.array([-0.0, 0.0, -0.0, 1.0, 1.0, 1.0]),
    "date": pa.array([0] * 3 + [1] * 3, pa.date32()),
    "binary": pa.array([b"a"] * 3 + [b"b"] * 3),
}


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_queries_of_any_type_are_the_same_in_files_and_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: pa.Array
):
    """Files are sorted, and each query lies in two of them."""
    table = pa.table({**SIX, "query_id": keys})
    for start in range(0, 6, 2):
        pq.write_table(table.slice(start, 2), tmp_path / f"{start}.parquet", row_group_size=1)
    small(monkeypatch)
    read = ndcg_spark.evaluate(tmp_path, k=3, engine="local")
    values = {row["metric"]: row["value"] for row in read.summary.to_pylist()}
    assert values["ndcg"] == pytest.approx((OF_A + 0.5) / 2)
    assert read.summary.to_pylist() == ndcg_spark.evaluate(table, k=3).summary.to_pylist()


# ---------------------------------------------------------------------------------------- the front door

ROOT = Path(__file__).resolve().parents[2]
SIX = {
    "query_id": ["a", "a", "a", "b", "b", "b"],
    "item_id": [1, 2, 3, 4, 5, 6],
    "score": [0.9, 0.8, 0.7, 0.9, 0.8, 0.7],
    "relevance": [2, 0, 1, 0, 0, 1],
    "country": ["DE", "DE", "DE", "FR", "FR", "FR"],
}
"""NDCG@3 of a is 3.5 / (3 + 1/log2(3)), and 1/2 of b."""
OF_A = 3.5 / (3 + 1 / 1.584962500721156)


def test_a_table_in_memory_is_evaluated_here(capsys: pytest.CaptureFixture[str]):
    evaluation = ndcg_spark.evaluate(pa.table(SIX), k=3, segments="country")
    assert evaluation.engine == "local"
    assert "on this machine" in repr(evaluation)
    values = {row["segment"]: row["value"] for row in evaluation.means().to_pylist()}
    assert values == pytest.approx({"overall": (OF_A + 0.5) / 2, "country=DE": OF_A, "country=FR": 0.5})
    evaluation.show()
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == ["run", "overall", "country=DE", "country=FR"]
    assert evaluation.per_query_table.column_names[0] == "run"
    assert "n_rows" not in evaluation.per_query_table.column_names


def test_rows_that_are_rejected_are_counted():
    bad = {**SIX, "score": [0.9, float("inf"), 0.7, 0.9, 0.8, 0.7]}
    (row,) = collect_rows(ndcg_spark.evaluate(pa.table(bad), k=3, on_invalid="reject").summary, "ndcg")
    assert (row["n_rows"], row["n_rejected"], row["n_queries"]) == (5, 1, 2)


def test_a_long_id_that_a_terminal_acts_on_is_cut_and_escaped():
    bad = {**SIX, "query_id": ["\x1b[31m" + "x" * 10_000, *"abcde"], "score": [float("inf"), *SIX["score"][1:]]}
    with pytest.raises(InputRefusedError) as refused:
        _ = ndcg_spark.evaluate(pa.table(bad), k=1).summary
    assert len(str(refused.value)) < 400
    assert str(refused.value).isprintable()


def test_texts_of_numbers_are_the_doubles_next_to_them():
    """Digits are parsed by Arrow, all else by Python, which rounds once by definition."""
    draw = random.Random(3)
    texts = [repr(draw.uniform(-1, 1) * 10.0 ** draw.randint(-300, 300)) for _ in range(2000)]
    texts += [f"{draw.randint(-(10**25), 10**25)}.{draw.randint(0, 10**20)}" for _ in range(2000)]
    texts += [".5", "5.", "-0", "007", "1E5", "1e-400", "1e400", f"{0.1:.50f}"]
    read = ColumnRead(("x",), Conversion.PARSE_DOUBLE, pa.float64())
    for some in (texts, texts[:-3], [*texts, "+1"]):
        got = read_column(pa.RecordBatch.from_pydict({"x": some}), read).to_pylist()
        assert [element.hex() for element in got] == [float(text).hex() for text in some]


def test_mistaken_columns_and_options_are_refused_before_anything_runs():
    with pytest.raises(MissingColumnError, match="column 'rel'"):
        ndcg_spark.evaluate(pa.table(SIX), relevance="rel")
    with pytest.raises(InvalidParameterError, match="has no option 'gain'; it is part of the convention"):
        ndcg_spark.evaluate(pa.table(SIX), gain="linear")
    with pytest.raises(InvalidParameterError, match="engine"):
        ndcg_spark.evaluate(pa.table(SIX), engine="duck")
    with pytest.raises(InvalidParameterError, match=r"not available for this table: .*, not a path of Parquet files"):
        ndcg_spark.evaluate(pa.table(SIX), source="parquet")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"strategy": "window"}, "strategy=window ranks in Spark"),
        ({"convention": "default;duplicates=best"}, "duplicates are resolved among all rows"),
        ({"metrics": "ild@3", "convention": "default;ties=item_asc"}, "metrics of items are joined in Spark"),
    ],
)
def test_what_only_spark_does_is_named(options: dict[str, Any], said: str):
    with pytest.raises(InvalidParameterError, match=said):
        ndcg_spark.evaluate(pa.table(SIX), engine="local", **options)


def test_the_environment_says_what_auto_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    table, path = pa.table(SIX), str(tmp_path / "six.parquet")
    pq.write_table(table, path)
    monkeypatch.setenv("NDCG_SPARK_ENGINE", "local")
    assert ndcg_spark.evaluate(path).engine == "local"
    with pytest.raises(
        InvalidParameterError, match=r"^NDCG_SPARK_ENGINE=local cannot evaluate this: strategy=window"
    ):
        ndcg_spark.evaluate(table, strategy="window")
    monkeypatch.setenv("NDCG_SPARK_ENGINE", "duck")
    with pytest.raises(
        InvalidParameterError, match=r"^NDCG_SPARK_ENGINE must be one of auto, local, spark; got 'duck'"
    ):
        ndcg_spark.evaluate(table)
    assert ndcg_spark.evaluate(table, engine="local").engine == "local"
    monkeypatch.setenv("NDCG_SPARK_ENGINE", "spark")
    assert ndcg_spark.evaluate(table, engine="local").engine == "local"
    monkeypatch.setenv("NDCG_SPARK_ENGINE", "")
    assert ndcg_spark.evaluate(table).engine == "local"


LINEAR = ((2.5 / (2 + 1 / 1.584962500721156)) + 0.5) / 2
SCRIPT = f"""
import sys
sys.modules["pyspark"] = None
from pathlib import Path
import pyarrow as pa
import pyarrow.parquet as pq
import ndcg_spark
from ndcg_spark.evaluation import local
local.MIN_PROCESS_BYTES = local.PARTITION_BYTES = 64
pq.write_table(pa.table({SIX!r}), "six.parquet", row_group_size=2)
def of_this_module(relevance):
    return relevance
six = pa.table({SIX!r})
for table, gain in (six, of_this_module), (six.to_pandas(), lambda relevance: relevance), (Path("six.parquet"), None):
    convention = "default;gain=linear" if gain is None else ndcg_spark.Convention(gain=gain)
    found = ndcg_spark.evaluate(table, k=3, convention=convention, engine="local")
    print(found.ranking.n_processes, found.summary.column("value").to_pylist()[0])
"""
PLACES = {
    "a script": ["script.py"],
    "standard input": ["-"],
    "a console": ["-c", "import code; code.InteractiveInterpreter().runsource(open('script.py').read(), '', 'exec')"],
}


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_nobody_runs_the_main_module_again(tmp_path: Path, place: str):
    """A script has no guard, a notebook has no file; a rule that only they know is applied in their process."""
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, *PLACES[place]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=SCRIPT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stderr == ""
    lines = [line.split() for line in ended.stdout.splitlines()]
    assert [float(value) for _, value in lines] == pytest.approx([LINEAR] * 3)
    assert {int(n_processes) for n_processes, _ in lines} == {Resources.from_machine().processes}


def test_processes_beside_an_active_session(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As in a notebook: a session has threads and connections, an event loop runs the cell."""
    monkeypatch.setattr(local, "MIN_PROCESS_BYTES", 64)
    monkeypatch.setattr(local, "PARTITION_BYTES", 64)
    pq.write_table(pa.table(SIX), tmp_path / "six.parquet", row_group_size=2)
    rows = spark.range(3)
    assert rows.count() == 3

    async def cell(table: Any) -> Any:
        evaluation = ndcg_spark.evaluate(table, k=3, convention="default;gain=linear", engine="local")
        return evaluation.summary.column("value").to_pylist()[0], evaluation.ranking.n_processes

    for table in (pd.DataFrame(SIX), tmp_path / "six.parquet"):
        assert asyncio.run(cell(table)) == (pytest.approx(LINEAR), Resources.from_machine().processes)
        assert rows.count() == 3


@pytest.mark.slow
def test_what_needs_spark_says_how_to_get_it():
    """Where PySpark is not installed."""
    code = f"""
import sys
sys.modules["pyspark"] = None
import pyarrow as pa
import ndcg_spark
table = pa.table({SIX!r})
for call in (
    lambda: ndcg_spark.evaluate(table, engine="spark"),
    lambda: ndcg_spark.evaluate(table, strategy="window"),
    lambda: ndcg_spark.report(table),
):
    try:
        call()
    except ImportError as error:
        print(error)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    lines = ended.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.endswith("pip install 'ndcg-spark[spark]'.") for line in lines)
