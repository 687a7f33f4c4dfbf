"""The options of `mean-ndcg`, from the words on the command line to one checked value; Spark has no part in it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from datetime import date, datetime, timezone

import click
import pytest

from ndcg_spark import __version__
from ndcg_spark.conventions import CHOICES, PRESETS, Convention
from ndcg_spark.errors import InvalidParameterError, get_message
from ndcg_spark.evaluation.command import MEAN_NDCG
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.jobs.command import Request, build_request
from ndcg_spark.jobs.options import spell_flags
from ndcg_spark.jobs.places import Source, Target
from ndcg_spark.main import main

mean_ndcg = MEAN_NDCG.to_click()


def parsed(*words: str) -> dict:
    """Options as the command sees them under `ndcg-spark`."""
    return mean_ndcg.make_context("mean-ndcg", list(words), help_option_names=["-h", "--help"]).params


def config_of(*words: str, reference: str = "in.parquet") -> Request[EvaluationSettings]:
    return build_request(MEAN_NDCG, parsed("--input", reference, *words))


def test_the_defaults_are_those_of_the_specification():
    request = config_of("--run-date", "2026-01-31")
    assert request.settings == EvaluationSettings(
        columns=Columns(query=("query_id",), item="item_id", score=("score",), relevance="relevance"),
        convention=Convention(),
        cutoffs=(10,),
    )
    assert request.sources == {"input": Source(reference="in.parquet", kind=None, options={})}
    assert (request.run_date, request.dataset, request.on_invalid) == (date(2026, 1, 31), "in", "fail")
    assert (request.targets, request.files, request.gates, request.shared.json) == ({}, {}, (), None)
    assert (request.shared.explain, request.shared.allow_empty, request.spark_settings) == (False, False, {})
    assert request.shared.max_reject_fraction is None
    assert (request.run_log, request.log_format) == (None, "text")


@pytest.mark.parametrize(
    ("words", "short"),
    [
        ((), True),
        (("--k", "5,200"), True),
        (("--k", "201"), False),
        (("--k", "10,all"), False),
        (("--ties", "expected"), True),
        (("--gain", "table:0=0,1=1"), True),
    ],
)
def test_which_rankings_are_too_long_to_go_unweighed(words: tuple[str, ...], short: bool) -> None:
    request = config_of(*words)
    assert request.command.long_rows(request.settings) != short


CONTRACT = """
    --input --input-format --judgments --judgments-format --query-col --item-col --score-col --rank-col
    --relevance-col --run-col --segment-cols --weight-col --order-col --k --convention --gain --discount --ties
    --score-precision --ideal --unjudged --negative --no-relevant --missing-query --unjudged-query --pad-to-k
    --duplicates --run-date --dataset --output --output-format --per-query-output --per-query-format --on-invalid
    --rejects --max-reject-fraction --gate --json --explain
"""


def test_every_flag_of_the_contract_is_there():
    there = {name for option in mean_ndcg.params for name in option.opts}
    assert [flag for flag in CONTRACT.split() if flag not in there] == []


def test_every_option_has_help_or_lists_its_values():
    bare = [option.name for option in mean_ndcg.params if not (option.help or option.metavar or option.default)]
    assert bare == []


# --- What goes where


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--query-col", "session_id, query"], "query", ("session_id", "query")),
        (["--item-col", "doc"], "item", "doc"),
        (["--item-col", ""], "item", None),
        (["--score-col", "bm25,dense"], "score", ("bm25", "dense")),
        (["--rank-col", "pos"], "rank", "pos"),
        (["--relevance-col", "label"], "relevance", "label"),
        (["--ideal-col", "all_labels"], "ideal", "all_labels"),
        (["--run-col", "ranker"], "run", "ranker"),
        (["--weight-col", "w"], "weight", "w"),
        (["--order-col", "at"], "order", "at"),
    ],
)
def test_columns(words, name, value):
    columns = config_of(*words).settings.columns
    expected = Columns(**{name: value})
    assert {field.name: getattr(columns, field.name) for field in fields(Columns)} == {
        field.name: getattr(expected, field.name) for field in fields(Columns)
    }


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--k", "1,3,5,10"], "cutoffs", (1, 3, 5, 10)),
        (["--k", "all"], "cutoffs", (None,)),
        (["--k", "all, 10 ,5,10"], "cutoffs", (5, 10, None)),
        (["--segment-cols", "country, country+device"], "segment_sets", (("country",), ("country", "device"))),
        (["--strategy", "window"], "strategy", "window"),
        (["--source", "spark"], "source", "spark"),
        (["--on-invalid", "reject"], "on_invalid", "reject"),
        (["--null-score", "unretrieved"], "null_score", "unretrieved"),
        (["--check-duplicates", "all"], "check_duplicates", "all"),
        (["--confidence", "0.9"], "confidence", 0.9),
    ],
)
def test_choices_of_the_settings(words, name, value):
    settings, plain = config_of(*words).settings, EvaluationSettings()
    for field in fields(EvaluationSettings):
        assert getattr(settings, field.name) == (value if field.name == name else getattr(plain, field.name))


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        (["--input-format", "csv", "--input-option", "sep=|", "--input-option", "q=a=b"], "input",
         Source(reference="in.parquet", kind="csv", options={"sep": "|", "q": "a=b"})),
        (["--judgments", "q.txt", "--judgments-format", "trec-qrels", "--judgments-option", "a=1"], "judgments",
         Source(reference="q.txt", kind="trec-qrels", options={"a": "1"})),
        (["--output", "db.metrics", "--output-format", "table"], "output",
         Target(reference="db.metrics", kind="table")),
        (["--per-query-output", "/pq", "--per-query-format", "orc"], "per_query_output",
         Target(reference="/pq", kind="orc")),
        (["--on-invalid", "reject", "--rejects", "/r", "--rejects-format", "csv"], "rejects",
         Target(reference="/r", kind="csv")),
        (["--max-reject-fraction", "0.01"], "max_reject_fraction", 0.01),
        (["--dataset", "web"], "dataset", "web"),
        (["--json", "-"], "json", "-"),
        (["--explain"], "explain", True),
        (["--allow-empty"], "allow_empty", True),
        (["--run-log", "db.runs", "--run-log-format", "table"], "run_log", Target(reference="db.runs", kind="table")),
        (["--log-format", "json"], "log_format", "json"),
        (["--conf", "spark.master=local[1]", "--conf", "spark.x=a=b"], "spark_settings",
         {"spark.master": "local[1]", "spark.x": "a=b"}),
    ],
)  # fmt: skip
def test_inputs_and_outputs(words, name, value):
    request = config_of(*words)
    actual = {**request.sources, **request.targets}
    for owner in (request.shared, request):
        actual |= {element: getattr(owner, element) for element in (name,) if hasattr(owner, element)}
    assert actual[name] == value


@pytest.mark.parametrize(
    ("reference", "dataset"),
    [
        ("/data/digits.parquet", "digits"),
        ("s3://bucket/day/clicks.csv.gz/", "clicks"),
        ("db.rankings", "db.rankings"),
        ("runs", "runs"),
        ("SELECT * FROM t", "query"),
        ("lake/rankings/2026-01-31", "rankings"),
        ("lake/rankings/run_date=2026-01-31/", "rankings"),
        ("lake/rankings/20260131.csv.gz", "rankings"),
        ("lake/rankings/region=DE", "rankings"),
        ("s3://b/rankings/year=2026/month=01/day=31", "rankings"),
        ("s3://b/rankings/2026/01/31", "rankings"),
        ("s3://b/rankings/dt=2026-01-31/hour=03/", "rankings"),
        ("rankings/2026-01-31/*.parquet", "rankings"),
        ("rankings/run_date=2026-01-31/part-00000-a1b2.snappy.parquet", "rankings"),
        ("rankings/2026-01-31/clicks.parquet", "clicks"),
        ("rankings/run_2026-01-31.csv.gz", "run"),
        ("prod.rankings_2026_01_31", "prod.rankings"),
        ("clicks20260131", "clicks"),
        ("lake/top-1000/20260131", "top-1000"),
        ("run_12345678901", "run_12345678901"),
        ("2026-01-31/", "2026-01-31"),
    ],
)
def test_a_data_set_that_is_not_named_has_the_name_of_its_input(reference, dataset):
    assert config_of(reference=reference).dataset == dataset


def test_results_of_a_query_are_stored_under_a_name(tmp_path):
    """Those of two queries without one would replace each other."""
    query = {"reference": "SELECT * FROM t"}
    with pytest.raises(InvalidParameterError, match="--dataset NAME is needed"):
        config_of("--output", str(tmp_path / "metrics"), **query)
    assert config_of("--output", str(tmp_path / "metrics"), "--dataset", "web", **query).dataset == "web"


def test_the_night_is_today_in_utc_when_it_is_not_named():
    before = datetime.now(timezone.utc).date()
    assert before <= config_of().run_date <= datetime.now(timezone.utc).date()


# --- Conventions


@pytest.mark.parametrize("preset", PRESETS)
def test_presets(preset):
    assert config_of("--convention", preset, "--order-col", "at").settings.convention == PRESETS[preset]


@pytest.mark.parametrize(("choice", "value"), [(name, value) for name, values in CHOICES.items() for value in values])
def test_each_flag_overrides_one_choice_of_the_convention(choice, value):
    words = ["--convention", "trec_eval", "--order-col", "at", f"--{choice.replace('_', '-')}", value]
    expected = {**PRESETS["trec_eval"].differences(), choice: value}
    assert config_of(*words).settings.convention == Convention(name="trec_eval", **expected)


def test_flags_with_equals_signs_and_commas_and_changes_in_the_name():
    words = ["--convention", "default;gain=linear;ties=item_desc", "--gain", "table:0=0,1=1,2=4", "--pad-to-k", "0"]
    convention = config_of(*words, "--discount", "table:1.25,0.63", "--k", "2").settings.convention
    assert convention.differences() == {
        "gain": "table:0=0,1=1,2=4", "discount": "table:1.25,0.63", "ties": "item_desc", "pad_to_k": 0.0,
    }  # fmt: skip


# --- Refusals


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--k", "ten"], "k must be a positive whole number, or all; got 'ten'"),
        (["--k", "0"], "got 0"),
        (["--k", "1,,3"], "got ''"),
        (["--k", ""], "got ''"),
        (["--convention", "trec"], "unknown convention 'trec'"),
        (["--gain", "log"], "gain must be one of"),
        (["--gain", "linear;ties=item_desc"], "gain must be one of"),
        (["--ideal", "best"], "ideal must be one of judged, retrieved, k_ones, as_many, unsorted; got 'best'"),
        (["--ties", "input_order"], "needs --order-col"),
        (["--discount", "table:1,0.5"], "too few for k=10"),
        (["--query-col", ""], "--query-col must name at least one column"),
        (["--segment-cols", "a,,b"], "--segment-cols must be column names"),
        (["--segment-cols", "k"], "'k' has a reserved name"),
        (["--confidence", "95"], "confidence must be between 0 and 1"),
        (["--max-reject-fraction", "1.5"], "--max-reject-fraction must be between 0 and 1; got 1.5"),
        (["--max-reject-fraction", "nan"], "--max-reject-fraction must be between 0 and 1"),
        (["--output", "m", "--run-log", "./m"], "--output and --run-log are both './m'; give each its own place"),
        (["--run-log", "in.parquet"], "--input and --run-log are both 'in.parquet'"),
        (["--rejects", "/r"], "--rejects needs --on-invalid reject"),
        (["--input-option", "header"], "'header' is not of the form NAME=VALUE"),
        (["--conf", "=x"], "'=x' is not of the form NAME=VALUE"),
        (["--gate", "ndcg@5>=0.4"], "ndcg@5 is not computed; computed are ndcg@10"),
        *[(["--run-date", text], "write it as 2026-01-31") for text in
          ("2026-02-30", "2026-1-31", "20260131", "2026-W05-6", "yesterday", "", "2026-01-31T00:00")],
    ],
)  # fmt: skip
def test_options_that_are_refused(words, message, capsys):
    with pytest.raises(InvalidParameterError) as caught:
        config_of(*words)
    assert message in spell_flags(get_message(caught.value))
    assert main(["mean-ndcg", "--input", "in.parquet", *words], prog="job") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("job: ")
    assert message in line


@pytest.mark.parametrize(
    "words",
    [[], ["--input"], ["--input", "x", "--kk", "3"], ["--input", "x", "--strategy", "fast"], ["--input", "x", "y"],
     ["--input", "x", "--confidence", "high"], ["--input", "x", "--on-invalid", "ignore"]],
)  # fmt: skip
def test_usage_errors_exit_with_2_and_a_line(words, capsys):
    with pytest.raises(click.UsageError):
        parsed(*words)
    assert main(["mean-ndcg", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ndcg-spark: ")
    assert err.count("\n") == 1


def test_the_package_is_a_program():
    words = [sys.executable, "-m", "ndcg_spark"]
    ended = subprocess.run([*words, "--version"], capture_output=True, text=True, check=True)
    assert ended.stdout == f"ndcg-spark, version {__version__}\n"
    assert subprocess.run([*words, "mean-ndcg"], capture_output=True, check=False).returncode == 2


@pytest.mark.parametrize("words", [["--help"], ["mean-ndcg", "--help"], ["mean-ndcg", "-h"], ["--version"]])
def test_help_and_version_exit_with_0(words, capsys):
    assert main(words) == 0
    assert capsys.readouterr().out
