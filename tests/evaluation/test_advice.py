"""Advice that is printed can be followed as it stands, in Python and on the command line."""

from __future__ import annotations

import ast
import re
import shlex
from dataclasses import fields
from functools import partial

import pyarrow as pa
import pytest
from support.engines import table as table_of
from support.main_job import run_command
from support.source_rules import PACKAGE, parse_sources

from ndcg_spark import Convention, compare, evaluate, readable_errors
from ndcg_spark.diagnosis import score_losses
from ndcg_spark.errors import (
    InputRefusedError,
    InvalidParameterError,
    NdcgSparkError,
    find_refusal,
    get_message,
    spell_options,
)
from ndcg_spark.evaluation import explain_ranks
from ndcg_spark.jobs.options import spell_flags

RULES = [field.name for field in fields(Convention) if field.name != "name"]
SCHEMA = "query_id string, item_id string, score double, relevance double, place int, day string"
TWICE = [("q", "a", 2.0, 1.0, 1, "mon"), ("q", "a", 1.0, 1.0, 2, "mon"), ("q", "b", 1.0, 0.0, 3, "mon")]
OTHER = {
    "gain": "linear", "discount": "ln", "ties": "worst", "score_precision": "float32", "ideal": "retrieved",
    "unjudged": "condensed", "negative": "clip", "no_relevant": "one", "missing_query": "drop",
    "unjudged_query": "zero", "duplicates": "best", "pad_to_k": 0,
}  # fmt: skip
"""A value of each rule that is not its default."""


@pytest.fixture(scope="module")
def twice(spark):
    return spark.createDataFrame(TWICE, SCHEMA)


def rows_of(frame):
    with readable_errors():
        return frame.to_pylist() if isinstance(frame, pa.Table) else frame.collect()


def losses(evaluation):
    return score_losses(evaluation.rankings, evaluation.settings)


# --- Rules as keywords


@pytest.mark.parametrize("function", [evaluate, compare], ids=lambda element: element.__name__)
@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "ideal"])
def test_a_rule_as_a_keyword_is_answered_by_the_convention_that_has_it(function, rule):
    for convention in ({}, {"convention": "trec_eval_9"}):
        with pytest.raises(InvalidParameterError) as refused:
            function(None, **{rule: OTHER[rule]}, **convention)
        named = re.search(r"write convention='([^']*)'", str(refused.value))
        start = convention.get("convention", "default")
        assert Convention.parse(named[1]) == Convention.parse(f"{start};{rule}={OTHER[rule]}")
        with pytest.raises(InvalidParameterError, match=rule):  # refused for its value
            function(None, **{rule: "nonsense"}, **convention)


def test_ideal_names_a_column_and_a_rule(spark, twice):
    arrays = spark.createDataFrame([("q", [1.0, 0.0], [1.0, 1.0])], "query_id string, relevance array<double>, "
                                   "judged array<double>")  # fmt: skip
    for table in (twice, arrays.drop("judged")):
        with pytest.raises(InvalidParameterError) as refused:
            evaluate(table, ideal="judged")
        assert "ideal= names column 'judged', which does not exist" in str(refused.value)
        assert str(refused.value).endswith("the rule for ideal lists is convention='default;ideal=judged'.")
        assert spell_flags(get_message(refused.value)).endswith("the rule for ideal lists is --ideal judged.")
    assert rows_of(evaluate(arrays, ideal="judged").summary)


@pytest.mark.parametrize(
    ("name", "meant"), [("metric", "metrics"), ("segment", "segments"), ("weights", "weight"), ("scores", "score"),
                        ("judgements", "judgments"), ("duplicate", "duplicates")]
)  # fmt: skip
def test_a_name_that_is_nearly_an_option_is_answered(name, meant):
    with pytest.raises(InvalidParameterError, match=f"^evaluate has no option '{name}'. Did you mean '{meant}'\\?$"):
        evaluate(None, **{name: 1})


def test_a_function_of_numpy_as_a_rule_is_answered():
    with pytest.raises(InvalidParameterError, match=r"write convention=Convention\(gain=\.\.\.\)"):
        evaluate(None, gain=abs)


# --- Advice that was followed

ADVICE = {
    "an item appears twice": lambda table, **more: evaluate(table, run="day", **more).summary,
    "an item appears twice, under a preset": lambda table, **more: (
        evaluate(table, run="day", **{"convention": "trec_eval", **more}).summary
    ),
    "ranks of items": lambda table, **more: explain_ranks(table.limit(1), check_duplicates="none", **more),
    "lost gain": lambda table, **more: losses(
        evaluate(table.limit(1), **{"convention": "default;ideal=k_ones", **more})
    ),
    "unpaired queries": lambda table, **more: (
        compare(
            {"a": evaluate(table.limit(1)), "b": evaluate(table.limit(1).replace("q", "p", "query_id"))},
            **{"unpaired": "error", **more},
        ).summary
    ),
}
"""Calls that are refused with advice."""
OF_OPTIONS = {
    "tie bounds": {"convention": "trec_eval;gain=exponential", "tie_bounds": True},
    "a metric in an order of items": {"metrics": "rprec"},
    "a metric of ties": {"metrics": "ndcg_best", "convention": "default;ties=item_desc"},
}
"""Options that are."""
FLAGS = {"an item appears twice": "--run-col day",
         "an item appears twice, under a preset": "--run-col day --convention trec_eval"}  # fmt: skip
_ARGUMENT = re.compile(r"(\w+)='([^']*)'")


def assert_can_be_followed(call):
    with pytest.raises(NdcgSparkError) as refused:
        rows_of(call())
    advice = dict(_ARGUMENT.findall(str(refused.value)))
    advice = {name: value for name, value in advice.items() if name in ("convention", "unpaired", "on_invalid")}
    assert advice, refused.value
    assert rows_of(call(**advice))


@pytest.mark.parametrize("case", ADVICE)
def test_advice_in_python_can_be_followed(twice, case):
    assert_can_be_followed(partial(ADVICE[case], twice))


@pytest.mark.parametrize("case", OF_OPTIONS)
def test_advice_on_options_can_be_followed(case):
    data = table_of(TWICE[:1], SCHEMA)
    assert_can_be_followed(lambda **more: evaluate(data, **{**OF_OPTIONS[case], **more}).summary)


@pytest.mark.parametrize("case", FLAGS)
def test_advice_on_the_command_line_can_be_followed(twice, tmp_path, case):
    twice.write.parquet(str(tmp_path / "rows"))
    words = ["mean-ndcg", "--input", tmp_path / "rows", *shlex.split(FLAGS[case])]
    refused = run_command(*words)
    assert refused.code == 2
    advised = re.search(r"\((--[^,)]*)", refused.err)
    ended = run_command(*words, *advised[1].split())
    assert ended.code == 0, ended.err


def test_bad_rows_can_be_left_out_as_advised(spark):
    rows = spark.createDataFrame([("q", "a", None, 1.0), ("q", "b", 1.0, 0.0)], "query_id string, item_id string, "
                                 "score double, relevance double")  # fmt: skip
    with pytest.raises(InputRefusedError) as refused:
        evaluate(rows).to_pandas()
    (advice,) = _ARGUMENT.findall(str(refused.value))
    assert advice == ("on_invalid", "reject")
    assert len(evaluate(rows, **dict([advice])).to_pandas()) == 1


# --- Texts of the source

STATED = {
    "ties=", "duplicates=", "ideal=",  # f"ties={convention.ties}": what a rule is, and what follows
    "; got ties=",
    " needs an order of tied items, but ties=",
    "ties=input_order needs ", "duplicates=first needs ", "duplicates=first needs the order column (",
    "ideal=unsorted needs arrays: a column of relevances and a column of judged relevances.",
    "duplicates=best and first do not support arrays; remove duplicates beforehand.",
    ", or retrieved; got ideal=", "; got duplicates=",
}  # fmt: skip
"""Texts that name a rule that is in force, and do not advise one."""
_NAMES_A_RULE = re.compile(rf"(?<!;)\b({'|'.join(RULES)})=")


def test_advice_on_rules_is_spelled_by_the_convention():
    """`Convention.advice` writes it as Python and the command line take it; a text alone is right for neither."""
    actual = []
    for source in parse_sources(PACKAGE):
        if source.module.split(".")[1:2] in (["conventions"], ["reports"], ["functions"]):
            continue
        tree = source.tree
        docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                actual += [f"{source.module}: {node.value}"] if _NAMES_A_RULE.search(node.value) else []
    assert [
        text for text in actual if not any(text.partition(": ")[2].startswith(element) for element in STATED)
    ] == []


# --- What Spark says


def test_no_mark_is_seen_in_an_error_of_spark(spark):
    """Who catches it without `readable_errors` reads plain text; options are there as Python has them."""
    rows = [("q", "a", 1.0, 1.0), ("q", "a", 2.0, 1.0)]
    table = spark.createDataFrame(rows, "query_id string, item_id string, score double, relevance double")
    lazy = evaluate(table.selectExpr("*", "'r' run"), run="run").summary
    with pytest.raises(Exception, match="appears twice") as raised:
        lazy.collect()
    text = re.sub("[\u2061-\u2063]", "", str(raised.value))  # which have no shape
    assert "[[" not in text
    assert "ndcg-spark" not in text
    shown = "Remove it, or choose which one counts (convention='default;duplicates=best', or first with order=)."
    assert shown in text
    assert spell_options(find_refusal(str(raised.value))).endswith(shown)
    assert spell_flags(find_refusal(str(raised.value))).endswith("(--duplicates best, or first with --order-col).")
