"""Comparisons of this machine and of Spark: the same bits, texts and refusals."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.main_job import run_command

from ndcg_spark import compare, evaluate, readable_errors, report
from ndcg_spark.comparison import LocalComparison
from ndcg_spark.errors import NdcgSparkError

ORDER = ("baseline", "run", "segment_by", "segment", "metric", "k")
RUNS = ("a", "b", "c")
RULES = ("gain=linear;ties=item_asc;sample=1.0;weight=no", "gain=exponential;ties=item_asc;sample=1.0;weight=no")
FAST = {"replicates": 60, "flips": 70}


def rows_of_queries(seed: int, *, runs=RUNS, ks=(1, 10, None), n: int = 45) -> list[dict[str, Any]]:
    """Metrics of queries with nulls, ties, queries that a run lacks, and queries that count in no mean."""
    draw, rows = random.Random(seed), []
    for query in range(n):
        shared = {
            "query_id": query,
            "country": draw.choice(["DE", "US", None, "Côte d'Ivoire"]),
            "hour": draw.randrange(3),
            "lang": draw.choice([1.5, -0.0, 0.0]),
            "user": draw.choice(["u1", "u2", "u3", None]),
            "w": draw.choice([0.0, 0.5, 1.0, 3.25]),
        }
        is_relevant = draw.random() < 0.85
        for run in runs:
            if draw.random() < 0.15:
                continue
            status = "missing" if draw.random() < 0.1 else "ok" if is_relevant else "no_relevant"
            for k in ks:
                value = (
                    None
                    if status == "no_relevant"
                    else 0.0
                    if status == "missing"
                    else draw.choice([0.5, draw.random()])
                )
                group = {"k": k, "ndcg": value, "dcg": None if value is None else 3 * value, "ap": draw.random()}
                rows.append({**shared, **group, "run": run, "status": status, "idcg": 3.0 if is_relevant else 0.0})
    draw.shuffle(rows)
    return rows


def table(rows: list[dict[str, Any]], **types: pa.DataType) -> pa.Table:
    kinds = {"k": pa.int32(), "ndcg": pa.float64(), "query_id": pa.int64(), **types}
    names = list(rows[0])
    return pa.table({name: pa.array([row[name] for row in rows], kinds.get(name)) for name in names})


def exact(rows: Any) -> list[str]:
    """Rows as texts that tell each bit."""
    return sorted(repr(sorted(row.items())) for row in rows)


def assert_same(spark, capsys, results: Any, **options: Any) -> LocalComparison:
    """Both engines must find the same, and say the same."""
    local = compare(results, **{**FAST, **options})
    assert isinstance(local, LocalComparison)
    other = local.to_spark(spark)
    assert exact(local.summary.to_pylist()) == exact(row.asDict() for row in other.summary.collect())
    assert local.summary.num_rows > 0
    assert local.summary.schema.names == other.summary.columns
    shown = []
    for element in (local, other):
        element.show(1000)
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    people = local.differences()
    assert people.schema.names == other.differences().columns
    assert local.to_pandas().equals(people.to_pandas())
    return local


OPTIONS = {
    "all pairs": {},
    "segments and weights": {"baseline": "b", "segments": ["country", "country+hour", "lang"], "weight": "w"},
    "clusters": {"cluster": "user", "segments": "hour", "weight": "w", "unpaired": "drop", "metrics": "ndcg@10,ap"},
    "clusters of queries": {"cluster": "query_id", "runs": ["a", "c"], "metrics": ["ap"], "k": "all"},
    "rules": {
        "convention": "default;no_relevant=skip;missing_query=drop", "lift": "delta", "margin": 0.02, "alpha": 0.1,
        "effect": 0.03, "metrics": ["ndcg", "dcg@1"], "seed": 7,
    },
    "kept replicates": {"keep_replicates": True, "baseline": "a", "segments": "country", "metrics": "ndcg@10"},
    "no resampling": {"replicates": 0, "flips": 0, "query": ["query_id", "hour"]},
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_tables(spark, capsys, name):
    assert_same(spark, capsys, table(rows_of_queries(1)), **OPTIONS[name])


def test_many_queries(spark, capsys):
    """More than are kept as they are, for sign flips and in segments."""
    rows = rows_of_queries(2, runs=("a", "b"), ks=(10,), n=1500)
    assert_same(spark, capsys, table(rows), segments="country", metrics="ndcg")


def test_a_table_for_each_run(spark, capsys):
    """Types of keys and columns that only some have; the rules of rows; a run of which nothing is asked."""
    rows = rows_of_queries(3)
    for at, row in enumerate(rows):
        row["rules"] = RULES[0] if row["run"] == "a" else RULES[at % 2]
    tables = {
        "a": table([row for row in rows if row["run"] == "a"], query_id=pa.int32(), ndcg=pa.float32()),
        "b": table([row for row in rows if row["run"] == "b"]).drop_columns(["status", "rules"]),
        "c": table([row for row in rows if row["run"] == "c"]).to_pandas(),
    }
    actual = assert_same(spark, capsys, tables, across_rules=True, segments="hour", runs=["a", "b"])
    assert actual.settings.runs == ("a", "b")
    assert_same(spark, capsys, tables, across_rules=True, baseline="a", metrics="ndcg@10")


def rankings(seed: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [
        {
            "query_id": f"q{query}", "item_id": f"i{item}", "ranker": run, "score": draw.choice([0.5, draw.random()]),
            "relevance": float((query + 3 * item) % 5 % 3), "country": "DE" if query % 3 else "US",
            "w": 1.0 + query % 2,
        }
        for query in range(14)
        for run in (7, 10)
        for item in range(5)
        if (query, run) != (3, 10)
    ]  # fmt: skip


def test_evaluations(spark, capsys):
    long = pa.Table.from_pylist(rankings(1))
    options = {"k": [1, 3], "convention": "default;ties=item_asc"}
    several = evaluate(long, run="ranker", segments="country", weight="w", **options)
    actual = assert_same(spark, capsys, several, baseline=7)
    assert actual.settings.runs == ("10", "7")
    message = [
        report(several, comparison=element).contents.differences.rows for element in (actual, actual.to_spark(spark))
    ]
    assert message[0] == message[1] != ()
    judged = long.filter(pa.compute.equal(long["ranker"], 7)).select(["query_id", "item_id", "relevance"])
    apart = {
        run: evaluate(
            long.filter(pa.compute.equal(long["ranker"], run)).drop_columns(["relevance"]),
            judged,
            **{**options, "convention": "trec_eval"},
        )
        for run in (7, 10)
    }
    assert_same(spark, capsys, apart)
    mixed = {"10": apart[10], "7": apart[7].per_query_table}
    assert_same(spark, capsys, mixed, baseline="7", metrics="ndcg@3")


@pytest.mark.parametrize(("unpaired", "more"), [("zero", {}), ("drop", {"segments": "country", "weight": "w"})])
def test_samples_of_metrics_of_both_directions(spark, capsys, unpaired, more):
    """Run b lacks queries; segments are null for some; less is better in two of the metrics."""
    draw = random.Random(7)
    rows = [
        {
            "ranker": run, "query_id": f"q{query}", "item_id": f"i{item}", "w": 1.0 + query % 3,
            "score": draw.choice([0.1, 0.2, draw.random()]), "relevance": float((query * 7 + item * 3) % 4 % 3),
            "country": None if query % 3 else "DE",
        }
        for run in RUNS for query in range(60) if run != "b" or query % 11 for item in range(5)
    ]  # fmt: skip
    metrics = ["ndcg@3", "rbp_residual@3", "judged@3", "rr"]
    result = evaluate(pa.Table.from_pylist(rows), run="ranker", metrics=metrics, sample=0.4, engine="local", **more)
    assert_same(spark, capsys, result, baseline="a", unpaired=unpaired)


def refusal(results: Any, options: dict[str, Any]) -> tuple[type, str]:
    """What a comparison raises, or its action."""
    with pytest.raises(NdcgSparkError) as refused, readable_errors():
        compare(results, **{"replicates": 0, "flips": 0, **options}).to_pandas()
    return type(refused.value), str(refused.value)


def changed(rows: list[dict[str, Any]], **values: Any) -> list[dict[str, Any]]:
    """The rows, of which one has other values."""
    at = next(at for at, row in enumerate(rows) if row["run"] == "b" and row["status"] == "ok" and row["k"] == 10)
    return [row | values if place == at else row for place, row in enumerate(rows)]


REFUSED = {
    "twice": (lambda rows: [*rows, rows[0]], {}),
    "no query": (lambda rows: changed(rows, query_id=None), {}),
    "two segments": (lambda rows: changed(rows, country="XX"), {"segments": "country"}),
    "two clusters": (lambda rows: changed(rows, user="XX"), {"cluster": "user"}),
    "a bad weight": (
        lambda rows: [row | {"w": -1.0 if row["query_id"] == 4 else 1.0} for row in rows],
        {"weight": "w"},
    ),
    "two ideals": (lambda rows: changed(rows, idcg=7.0), {}),
    "two kinds of rules": (lambda rows: [row | {"rules": RULES[row["run"] == "b"]} for row in rows], {}),
    "a run without rows": (lambda rows: rows, {"runs": ["a", "nobody"]}),
    "no such baseline": (lambda rows: rows, {"baseline": "nobody"}),
    "no such column": (lambda rows: rows, {"cluster": "usr"}),
    "a name in another case": (lambda rows: [{**row, "Rules": None} for row in rows], {}),
    "no number": (lambda rows: rows, {"weight": "country"}),
    "no such metric": (lambda rows: rows, {"metrics": "ndgc"}),
}


def test_refusals(spark):
    for name, (change, options) in REFUSED.items():
        refused = table(change(rows_of_queries(4, runs=("a", "b"), ks=(10,), n=9)))
        assert refusal(refused, options) == refusal(spark.createDataFrame(refused), options), name


def test_refusals_of_evaluations(spark):
    one, other = (pa.Table.from_pylist([row for row in rankings(2) if row["ranker"] == run]) for run in (7, 10))
    bad = one.set_column(3, "score", pa.array([float("nan")] + [1.0] * (len(one) - 1)))
    judgments = pa.table({"query_id": ["Q1"], "item_id": ["I1"], "relevance": [1.0]})
    cases = [
        {"a": evaluate(one), "b": evaluate(bad)},
        {"a": evaluate(one, judgments), "b": evaluate(other, judgments)},
        {"a": evaluate(one, k=1), "b": evaluate(other, k=3)},
    ]
    for case in cases:
        message = refusal(case, {})
        assert message == refusal({name: one.to_spark(spark) for name, one in case.items()}, {})


def test_the_job(spark, tmp_path):
    """Folders, JSON and texts; of rankings and of nights, with a baseline of its own."""
    pq.write_table(pa.Table.from_pylist(rankings(3)), tmp_path / "in.parquet")
    queries = table(rows_of_queries(5, runs=("a", "b"), ks=(1, 10)))
    for night, part in (("2026-01-30", queries.slice(0, 40)), ("2026-01-31", queries)):
        folder = tmp_path / "nights" / f"run_date={night}"
        folder.mkdir(parents=True)
        pq.write_table(part.append_column("dataset", pa.repeat("shop", len(part))), folder / "1.parquet")
    stored = ("--run-date", "2026-01-31", "--dataset", "shop")
    same = (*stored, "--flips", "50", "--replicates", "50", "--verbose")
    nights = ("--per-query", tmp_path / "nights", "--gate", "ndcg@10.ci_low>-5")
    beside = ("--baseline-per-query", tmp_path / "nights" / "run_date=2026-01-30", "--baseline", "before")
    for number, (arguments, code) in enumerate(
        [
            (("--input", tmp_path / "in.parquet", "--run-col", "ranker", "--k", "3", "--segment-cols", "country"), 0),
            ((*nights, "--keep-replicates", "--segment-cols", "country", "--cluster-col", "user"), 0),
            ((*nights, "--runs", "b", *beside, "--weight-col", "w"), 2),
            ((*nights[:2], "--runs", "b", *beside, "--run-date", "2026-02-02"), 2),
            ((*nights[:2], "--metrics", "ndcg", "--cluster-col", "usr"), 2),
        ]
    ):  # fmt: skip
        ended = {}
        for engine in ("local", "spark"):
            out = tmp_path / f"{engine}-{number}"
            outputs = ("--output", out, "--json", tmp_path / f"{engine}-{number}.json", "--engine", engine)
            ended[engine] = run_command("compare-runs", *arguments, *same, *outputs)
        assert ended["local"].code == code, ended["local"].err
        assert ended["local"].complaints == ended["spark"].complaints
        assert (ended["local"].code, ended["local"].out) == (ended["spark"].code, ended["spark"].out)
        if code == 0:
            texts = [(tmp_path / f"{engine}-{number}.json").read_text() for engine in ended]
            assert texts[0] == texts[1]
            frames = [
                spark.read.parquet(str(tmp_path / f"{engine}-{number}")).drop("computed_at") for engine in ended
            ]
            assert frames[0].schema == frames[1].schema
            assert exact(row.asDict() for row in frames[0].collect()) == exact(
                row.asDict() for row in frames[1].collect()
            )
