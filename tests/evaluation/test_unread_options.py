"""Every option is read, or refused where it has no effect."""

from __future__ import annotations

from datetime import date

import pytest
from support.engines import collect_rows, parametrize_engine, table
from support.main_job import assert_refused, run_command

from ndcg_spark import compare, evaluate
from ndcg_spark.errors import InvalidParameterError, NdcgSparkError
from ndcg_spark.evaluation.api import OPTIONS

SCHEMA = "query_id string, item_id string, score double, relevance double, other string, number double, place int"
ROWS = [
    (f"q{query}", f"i{item}", float(item * 7 % 5), float(item * query % 3), f"o{query % 2}", float(1 + query), item)
    for query in range(4)
    for item in range(1, 6)
]
VALUES = {
    "k": 1, "metrics": "p@2", "convention": "linear", "segments": "other", "query": "other", "item": "other",
    "score": "number", "rank": "place", "relevance": "number", "ideal": "number", "ranked": "other",
    "relevant": "other", "run": "other", "weight": "number", "order": "place", "vector": "other",
    "categories": "other", "first_seen": "other", "topics": "other", "user": "other", "confidence": 0.5,
    "sample": 0.5, "tie_bounds": True, "as_of": date(2026, 1, 1), "strategy": "window", "source": "spark",
    "on_invalid": "reject", "null_score": "unretrieved", "check_duplicates": "all",
    "allow_unmatched": True,
}  # fmt: skip
"""A value of each option that is not its default; columns are there, of a type that fits where there is one."""
SAME_VALUES = {
    "strategy": "the reference has the same values",
    "source": "so have all readers",
    "on_invalid": "no row is bad",
    "null_score": "no score is null",
    "check_duplicates": "no item appears twice",
    "allow_unmatched": "relevances are in the table",
}
"""Options that are read, and change no value of good rows."""


OF_SPARK = ("strategy", "source", "check_duplicates")
"""Options whose value above sends the table to Spark."""
TABLE = table(ROWS, SCHEMA)


def outcome(**options):
    """Rows of the summary, or the refusal."""
    names = ("run", "segment_by", "segment", "metric", "k", "value", "ci_low")
    try:
        return sorted(repr([row[name] for name in names]) for row in collect_rows(evaluate(TABLE, **options).summary))
    except NdcgSparkError as error:
        return str(error)


USUAL = outcome()


@parametrize_engine("name", local=[name for name in OPTIONS if name not in OF_SPARK], spark=OF_SPARK)
def test_every_option_is_read_or_refused(engine, name):
    actual = outcome(**{name: VALUES[name]}, **engine)
    assert (actual != USUAL) == (name not in SAME_VALUES)


UNREAD = [
    ({"order": "place"}, "order= has no effect: only convention='default;ties=input_order' and"),
    ({"order": "place", "convention": "trec_eval"}, "only convention='trec_eval;ties=input_order' and"),
    ({"order": "place", "rank": "place", "convention": "default;ties=input_order"}, "order= has no effect"),
    ({"score": "number", "rank": "place"}, "score= has no effect: ranks are used instead"),
    pytest.param(
        {"check_duplicates": "none", "convention": "default;duplicates=best"},
        "check_duplicates= has no effect",
        marks=pytest.mark.spark,
    ),
    ({"as_of": date(2026, 1, 1), "metrics": "ndcg"}, "as_of= has no effect"),
    ({"k": 5, "metrics": ["ndcg@10", "p(rel=2)@3"]}, "k= has no effect: each metric names its cutoff"),
    ({"k": 10, "metrics": "rprec,ap@3", "convention": "trec_eval"}, "k= has no effect"),
    ({"convention": "default;ties=best;ties=worst"}, "has 'ties' twice; keep one"),
]


@pytest.mark.parametrize(("options", "message"), UNREAD, ids=lambda element: str(element)[:60])
def test_an_option_without_effect_is_refused(options, message):
    assert message in outcome(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"order": "place", "convention": "default;ties=input_order"},
        {"k": 5, "metrics": ["ndcg@10", "p"]},
        {"k": 5},
        {"check_duplicates": "none"},
    ],
    ids=str,
)
def test_an_option_with_an_effect_is_taken(options):
    assert isinstance(outcome(**options), list)


def test_options_of_compare_without_effect_are_refused(spark):
    result = evaluate(spark.createDataFrame(ROWS, SCHEMA), score=["score", "number"], k=[1, 5])
    for options, message in (
        ({"seed": 1, "replicates": 0, "flips": 0}, "seed= has no effect without replicates or flips"),
        ({"k": 1, "metrics": "ndcg@5"}, "k= has no effect"),
    ):
        with pytest.raises(InvalidParameterError, match=message):
            compare(result, **options)


FLAGS = [
    ("mean-ndcg --input x.parquet", {"order-col": "o"}, "--order-col has no effect: only --ties input_order and"),
    (
        "mean-ndcg --input x.parquet --rank-col r",
        {"score-col": "s"},
        "--score-col has no effect: ranks are used instead",
    ),
    ("mean-ndcg --input x.parquet --metrics ndcg@5", {"k": "3"}, "--k has no effect"),
    ("compare-runs --input x.parquet --run-col r", {"order-col": "o"}, "--order-col has no effect"),
    ("compare-runs --input x.parquet --run-col r --metrics ndcg@5", {"k": "3"}, "--k has no effect"),
    ("compare-runs --per-query x.parquet --metrics ndcg@5", {"k": "3"}, "--k has no effect"),
    (
        "compare-runs --per-query x.parquet --replicates 0 --flips 0",
        {"seed": 3},
        "--seed has no effect without replicates or flips",
    ),
]
DUPLICATES = (
    "mean-ndcg --input x.parquet --duplicates best",
    {"check-duplicates": "all"},
    "--check-duplicates has no effect",
)
DIAGNOSE = ("diagnose runs --input x.parquet", {"order-col": "o"}, "--order-col has no effect")


@parametrize_engine("words, options, message", local=FLAGS, spark=[DUPLICATES, DIAGNOSE])
def test_a_flag_without_effect_is_refused_and_a_key_of_a_file_is_not(
    tmp_path, monkeypatch, engine, words, options, message
):
    """A file for --config may serve several commands."""
    monkeypatch.chdir(tmp_path)
    flags = [text for name, group in options.items() for text in (f"--{name}", group)]
    assert_refused(run_command(*words.split(), *flags), message)
    lines = [f"{name} = {group if isinstance(group, int) else repr(group)}\n" for name, group in options.items()]
    (tmp_path / "options.toml").write_text("".join(lines))
    assert_refused(run_command(*words.split(), "--config", "options.toml"), "there is no path 'x.parquet'")
