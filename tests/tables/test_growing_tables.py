"""Nights with other columns go into the tables that are there; tables of another kind are called what they are."""

from __future__ import annotations

from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T
from support.main_job import assert_refused, mean_ndcg, read_files, read_stored_rows, write_table

from ndcg_spark.business.tasks import LINK_COLUMNS
from ndcg_spark.clicks.frames import _ESTIMATES
from ndcg_spark.comparison.frames import COMPARISON_SCHEMA
from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.evaluation.frames.summary import METRIC_SCHEMA
from ndcg_spark.history.frames import PERIODS_OF_MEANS, PERIODS_OF_PAIRS
from ndcg_spark.history.tasks.judging import FLAG_COLUMNS
from ndcg_spark.jobs.outputs import REJECT_SCHEMA
from ndcg_spark.jobs.run_log import RUN_LOG_SCHEMA
from ndcg_spark.sources.formats import open_table
from ndcg_spark.tables.catalog import create_table
from ndcg_spark.tables.kinds import ExistingTable, Growth, find_kind

PER_QUERY = ("run", "query_id", "k", "dcg", "idcg", "ndcg", "status", "n_items", "n_judged", "n_relevant")
JUDGED = ("query_id", "item_id", "relevance")
OURS = {
    "metric table": METRIC_SCHEMA.fieldNames(),
    "per-query table": [*PER_QUERY, "country", "weight"],
    "table of rejected rows": REJECT_SCHEMA.names,
    "run log": RUN_LOG_SCHEMA.names,
    "comparison table": COMPARISON_SCHEMA.fieldNames(),
    "table of periods": PERIODS_OF_MEANS.fieldNames(),
    "table of compared periods": PERIODS_OF_PAIRS.fieldNames(),
    "table of flags": list(FLAG_COLUMNS),
    "table of business links": list(LINK_COLUMNS),
    "table of click estimates": _ESTIMATES.fieldNames(),
    "table of propensities": ["position", "propensity", "ratio", "reason", "n_impressions", "n_clicks", "method"],
    "table of rankings": ["query_id", "item_id", "score", "rank", "relevance", "run"],
    "judgments table": [*JUDGED, "rule", "event", "n_events", "n_negative", "n_impressions", "run"],
}
"""Columns of what jobs write, without those that storing adds."""


def schema(names, types=None):
    return T.StructType([T.StructField(name, (types or {}).get(name, T.StringType())) for name in names])


def stored(names):
    return schema([*names, "dataset"])


def in_catalog(names):
    return ExistingTable(name="table 't'", schema=schema(names), hint="name another table", in_catalog=True)


# ---------------------------------------------------------------------------------------------------- kinds


@pytest.mark.parametrize("kind", OURS)
def test_each_of_our_tables_is_known(kind):
    actual = find_kind([*OURS[kind], "dataset"])
    assert actual is not None
    assert actual.name == kind
    assert in_catalog([*OURS[kind], "dataset"]).compare(stored(OURS[kind]), grow=True) == Growth()


@pytest.mark.parametrize("theirs", OURS)
def test_results_of_another_kind_do_not_go_into_one_of_our_tables(theirs):
    """Neither as it is, nor after ALTER TABLE ... ADD COLUMNS with all that was missing; its own results still do."""
    for ours in OURS.keys() - {theirs}:
        message = f"table 't' is a {theirs}, and these are rows of a {ours}; name another table."
        mixed = in_catalog(dict.fromkeys([*OURS[theirs], "dataset", *OURS[ours]]))
        for there in (in_catalog([*OURS[theirs], "dataset"]), mixed):
            with pytest.raises(OutputRefusedError) as error:
                there.compare(stored(OURS[ours]), grow=True)
            assert str(error.value) == message
        lacking = [name for name in OURS[ours] if name not in OURS[theirs]]
        assert mixed.compare(stored(OURS[theirs]), grow=True) == Growth(lacking=tuple(lacking))


def test_results_of_no_kind_go_into_tables_of_results_only():
    """A table without the data set is one that nobody has written results to."""
    own = stored(["sessions"])
    assert in_catalog(["sessions", "dataset"]).compare(own, grow=False) == Growth()
    with pytest.raises(OutputRefusedError, match="table 't' has other columns than these results; name another"):
        in_catalog(["sessions"]).compare(own, grow=True)
    with pytest.raises(OutputRefusedError, match="table 't' is a run log, and these are other results; name another"):
        in_catalog([*OURS["run log"], "dataset"]).compare(own, grow=True)


def test_a_table_that_may_not_grow_is_that_of_the_same_columns():
    names = [*PER_QUERY, "country", "dataset"]
    assert in_catalog(names).compare(schema(names), grow=False) == Growth()
    with pytest.raises(OutputRefusedError, match="table 't' has no column 'site', unlike these results"):
        in_catalog(names).compare(schema([*names, "site"]), grow=False)
    with pytest.raises(OutputRefusedError, match="table 't' has a column 'site', unlike these results"):
        in_catalog([*names, "site"]).compare(schema(names), grow=False)


def test_keys_are_those_in_front_of_a_column_of_its_own_spelling():
    rankings = find_kind(["query_id", "item_id", "score", "rank", "dataset"])
    assert rankings.find_keys(["query_id", "item_id", "score", "rank"]) == ("query_id", "item_id")
    assert rankings.find_keys(["query_id", "item_id", "Score", "Rank"]) == ()


@pytest.mark.parametrize("ours", OURS)
def test_our_results_do_not_go_into_a_table_of_something_else(ours):
    with pytest.raises(OutputRefusedError) as error:
        in_catalog(["city", "temperature", "dataset"]).compare(stored(OURS[ours]), grow=True)
    assert str(error.value) == f"table 't' has other columns than a {ours}; name another table."


def test_judgments_of_several_makers_are_one_kind():
    ratings = [*JUDGED, "rule", "decided_by", "n_ratings", "weight_sum", "run"]
    growth = in_catalog([*OURS["judgments table"], "dataset"]).compare(stored(ratings), grow=True)
    assert [field.name for field in growth.added] == ["decided_by", "n_ratings", "weight_sum"]
    assert growth.lacking == ("event", "n_events", "n_negative", "n_impressions")


@pytest.mark.parametrize("keys", [["user_id"], ["query_id", "user_id"], []], ids=repr)
def test_rows_that_other_columns_identify_are_refused(keys):
    """Nights without them would have null keys."""
    there = in_catalog([*PER_QUERY, "country", "dataset"])
    others = [PER_QUERY[0], *keys, *PER_QUERY[2:], "country"]
    with pytest.raises(OutputRefusedError, match="identified by 'query_id', but these results by"):
        there.compare(stored(others), grow=True)


def test_a_table_whose_order_does_not_show_its_keys_takes_rows_whose_keys_it_has():
    """Somebody made it by a statement of their own, say."""
    there = in_catalog(["k", *(name for name in PER_QUERY if name != "k"), "dataset"])
    assert there.compare(stored(PER_QUERY), grow=True) == Growth()
    with pytest.raises(OutputRefusedError, match="identified by other columns, but these results by 'user_id'"):
        there.compare(stored([PER_QUERY[0], "user_id", *PER_QUERY[2:]]), grow=True)


def test_a_case_is_not_a_column_in_the_catalog_and_is_refused_in_a_folder():
    names, spelled = [*PER_QUERY, "country"], [*PER_QUERY, "Country"]
    assert in_catalog([*names, "dataset"]).compare(stored(spelled), grow=False) == Growth()
    folder = ExistingTable(name="'./q'", schema=stored(names), hint="write to a new folder")
    with pytest.raises(OutputRefusedError, match=r"'Country' is spelled 'country' in '\./q'; rename it in the input"):
        folder.compare(stored(spelled), grow=True)


@pytest.mark.parametrize("grow", [True, False])
def test_types(grow):
    """Only the catalog casts, and only to a wider type; whether there may be nulls is no matter of the type."""
    have = {"n_items": T.LongType(), "ndcg": T.FloatType(), "list": T.ArrayType(T.LongType(), containsNull=False)}
    names = [*PER_QUERY, "list"]
    for more, want, refused in [
        ({"in_catalog": True}, {"n_items": T.IntegerType()}, None),
        ({}, {"n_items": T.IntegerType()}, "column 'n_items' is bigint in 't' and int in these results"),
        ({"in_catalog": True}, {"ndcg": T.DoubleType()}, "column 'ndcg' is float in 't' and double in these results"),
        ({}, {"list": T.ArrayType(T.LongType())}, None),
    ]:
        there = ExistingTable(
            name="'t'", schema=schema([*names, "dataset"], have), hint="write to a new folder", **more
        )
        results = schema([*names, "dataset"], have | want)
        if refused is None:
            assert there.compare(results, grow=grow) == Growth()
            continue
        with pytest.raises(OutputRefusedError, match=f"{refused}; cast it in the input, or write to a new folder"):
            there.compare(results, grow=grow)


def test_a_column_that_must_not_be_null_cannot_lack():
    declared = [T.StructField("site", T.StringType(), nullable=False), *stored(PER_QUERY)]
    there = ExistingTable(name="table 't'", schema=T.StructType(declared), hint="name another table", in_catalog=True)
    with pytest.raises(OutputRefusedError, match="'site' of table 't' must not be null"):
        there.compare(stored(PER_QUERY), grow=True)
    assert replace(there, in_catalog=False).compare(stored(PER_QUERY), grow=True).lacking == ("site",)


# ----------------------------------------------------------------------------------------------------- nights

NIGHTS = ("2026-01-29", "2026-01-30", "2026-01-31")
MORE = ("--metrics", "ndcg@3,ap@3", "--segment-cols", "country")
"""With one metric and one segment more than by `--k 3`."""
LOCAL = ("--engine", "local")


@pytest.fixture(scope="module")
def rankings(tmp_path_factory):
    """Of two queries; the relevant item is first, and second: average precision 1 and .5."""
    columns = {
        "query_id": ["q0"] * 3 + ["q1"] * 3,
        "item_id": ["a", "b", "c"] * 2,
        "score": [3.0, 2.0, 1.0] * 2,
        "relevance": [1, 0, 0, 0, 1, 0],
        "country": ["DE"] * 3 + ["FR"] * 3,
    }
    return write_table(tmp_path_factory.mktemp("growing") / "rankings.parquet", columns)


def night(rankings, run_date, *more):
    """Run the job; its lines that are neither progress nor the summary."""
    ended = mean_ndcg("--input", rankings, "--dataset", "shop", "--run-date", run_date, *more)
    assert ended.code == 0, ended.err
    return ended.complaints


def told_of(place):
    added = f"columns 'ap', 'country' are added to '{place}'; they are null for earlier nights"
    return [added], [f"this night has no 'ap', 'country' of '{place}'; they are null"]


def values(spark, place, kind=None):
    """Average precision and country of each night and query."""
    rows = open_table(spark, str(place), kind).frame.orderBy("run_date", "query_id").collect()
    return [(str(row["run_date"]), row["query_id"], row["ap"], row["country"]) for row in rows]


def of_a_night(run_date, *, more):
    facts = [(1.0, "DE"), (0.5, "FR")] if more else [(None, None)] * 2
    return [(run_date, f"q{at}", *group) for at, group in enumerate(facts)]


THREE_NIGHTS = [row for at, one in enumerate(NIGHTS) for row in of_a_night(one, more=at == 1)]


@pytest.mark.parametrize("kind", ["parquet", "table"])
def test_a_night_with_a_metric_and_a_segment_more_and_one_with_less(spark, rankings, tmp_path, kind):
    place = "growing_queries" if kind == "table" else tmp_path / "q"
    group = ("--per-query-output", place, "--per-query-format", kind)
    try:
        assert night(rankings, NIGHTS[0], "--k", 3, *group) == []
        added, lacking = told_of(place)
        assert night(rankings, NIGHTS[1], *MORE, *group) == added
        assert night(rankings, NIGHTS[2], "--k", 3, *group) == lacking
        assert values(spark, place, kind) == THREE_NIGHTS
    finally:
        spark.sql("DROP TABLE IF EXISTS growing_queries")


def test_strict_refuses_what_is_new_and_what_lacks(rankings, tmp_path):
    narrow, wide = (
        ("--per-query-output", tmp_path / name, "--schema", "strict", *LOCAL) for name in ("narrow", "wide")
    )
    night(rankings, NIGHTS[0], "--k", 3, *narrow)
    night(rankings, NIGHTS[0], *MORE, *wide)
    before = read_files(tmp_path)
    group = ("--input", rankings, "--dataset", "shop", "--run-date", NIGHTS[1])
    assert_refused(mean_ndcg(*group, *MORE, *narrow), "has no column 'ap', 'country'", "--schema grow")
    assert_refused(mean_ndcg(*group, "--k", 3, *wide), "has a column 'ap', 'country'", "write to a new folder")
    assert read_files(tmp_path) == before
    config = tmp_path / "run.toml"
    config.write_text('schema = "strict"\n')
    assert_refused(mean_ndcg(*group, *MORE, *narrow[:2], *LOCAL, "--config", config), "has no column 'ap', 'country'")


def test_a_column_of_another_type_than_on_any_earlier_night_is_refused(rankings, tmp_path):
    """It is not in the newest night, and one file of another type would make the folder unreadable."""
    place = tmp_path / "q"
    numbers = write_table(
        tmp_path / "numbers.parquet",
        {name: group.to_pylist() for name, group in zip(*_columns(rankings), strict=True) if name != "country"}
        | {"country": [49] * 6},
    )
    group = ("--per-query-output", place, *LOCAL)
    night(numbers, NIGHTS[0], *MORE, *group)
    night(rankings, NIGHTS[1], "--k", 3, *group)
    before = read_files(place)
    ended = mean_ndcg("--input", rankings, "--dataset", "shop", "--run-date", NIGHTS[2], *MORE, *group)
    assert_refused(ended, f"column 'country' is bigint in '{place}' and string in these results", "new folder")
    assert read_files(place) == before


def _columns(path):
    table = pq.read_table(path)
    return table.column_names, table.columns


def test_a_table_that_was_named_by_mistake_goes_on(spark, rankings):
    """Per-query results into the metric table, twice: as it is, and after their columns were added to it."""
    spark.sql("DROP TABLE IF EXISTS growing_metrics")
    group = ("--input", rankings, "--dataset", "shop", "--k", 3)
    mistake = (*group, "--run-date", NIGHTS[1], "--per-query-output", "growing_metrics")
    try:
        night(rankings, NIGHTS[0], "--k", 3, "--output", "growing_metrics")
        ended = mean_ndcg(*mistake)
        assert_refused(ended, "'growing_metrics' is a metric table, and these are rows of a per-query table")
        assert "ALTER" not in ended.err
        added = "query_id STRING, dcg DOUBLE, idcg DOUBLE, ndcg DOUBLE, status STRING, n_items BIGINT, "
        spark.sql(f"ALTER TABLE growing_metrics ADD COLUMNS ({added} n_judged BIGINT, n_relevant BIGINT)")
        assert_refused(mean_ndcg(*mistake), "is a metric table")
        (told,) = night(rankings, NIGHTS[1], "--k", 3, "--output", "growing_metrics")
        assert told.startswith("this night has no 'query_id', 'dcg'")
        assert spark.table("growing_metrics").where("metric = 'ndcg' AND status IS NULL").count() == 2
    finally:
        spark.sql("DROP TABLE IF EXISTS growing_metrics")


def test_a_column_stays_where_the_write_fails(spark, rankings, tmp_path, monkeypatch):
    group = ("--per-query-output", "growing_failed")
    try:
        night(rankings, NIGHTS[0], "--k", 3, *group)
        with monkeypatch.context() as broken:
            broken.setattr("ndcg_spark.tables.table_writes.LocalTableWrite.swap", _fails)
            ended = mean_ndcg("--input", rankings, "--dataset", "shop", "--run-date", NIGHTS[1], *MORE, *group)
        assert ended.code == 2
        assert values(spark, "growing_failed") == of_a_night(NIGHTS[0], more=False)
        assert night(rankings, NIGHTS[1], *MORE, *group) == []
        assert values(spark, "growing_failed") == THREE_NIGHTS[:4]
    finally:
        spark.sql("DROP TABLE IF EXISTS growing_failed")


def _fails(_):
    raise OutputRefusedError("no")


def test_tables_of_a_version_with_fewer_columns_get_them(rankings, tmp_path):
    """Also the run log."""
    places = {"--output": tmp_path / "m", "--run-log": tmp_path / "log"}
    group = [*LOCAL, *(part for pair in places.items() for part in pair)]
    night(rankings, NIGHTS[0], "--k", 3, *group)
    for path in tmp_path.rglob("*.parquet"):
        table = pq.ParquetFile(path).read().replace_schema_metadata(None)  # in which Spark has the columns once more
        fewer = table.drop_columns([element for element in ("input", "steps") if element in table.column_names])
        pq.write_table(fewer, path, use_deprecated_int96_timestamps=True)  # as Spark does
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    told = night(rankings, NIGHTS[1], "--k", 3, *group)
    assert sorted(line for line in told if not line.startswith("run ")) == [
        f"column 'input' is added to '{places['--output']}'; it is null for earlier nights",
        f"column 'steps' is added to '{places['--run-log']}'; it is null for earlier nights",
    ]
    for flag, column in (("--output", "input"), ("--run-log", "steps")):
        rows = read_stored_rows(places[flag])
        assert {row["run_date"] for row in rows if row.get(column) is not None} == {NIGHTS[1]}
        assert {row["run_date"] for row in rows} == {*NIGHTS[:2]}


def test_other_readers_need_to_merge(spark, rankings, tmp_path):
    """As docs/tables.md says; and a reader that was told not to merge does not."""
    for at in (0, 1):
        night(rankings, NIGHTS[at], *(MORE if at else ("--k", 3)), "--per-query-output", tmp_path / "q")
    path = str(tmp_path / "q")
    assert "ap" not in spark.read.parquet(path).columns
    assert "ap" in spark.read.option("mergeSchema", "true").parquet(path).columns
    assert "ap" not in open_table(spark, path, options={"mergeSchema": "false"}).frame.columns


def test_a_table_that_somebody_else_makes_and_drops_meanwhile(spark, monkeypatch):
    """Another writer makes it first, and drops it as its rows do not come; nobody is refused for that."""
    spark.sql("CREATE TABLE made_meanwhile (x INT) USING parquet")
    ask = type(spark.catalog).tableExists

    def drop(catalog, table):
        spark.sql(f"DROP TABLE IF EXISTS {table}")
        return ask(catalog, table)

    # stands in for: a writer of another process, because the moment between two statements is too short to be met
    monkeypatch.setattr(type(spark.catalog), "tableExists", drop)
    assert not create_table(spark, "made_meanwhile", METRIC_SCHEMA, "table")
    spark.sql("DROP TABLE IF EXISTS made_meanwhile")
    assert create_table(spark, "made_meanwhile", METRIC_SCHEMA, "table")
    spark.sql("DROP TABLE made_meanwhile")
