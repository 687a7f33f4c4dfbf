"""Gates, the order of a summary, what is printed, and the JSON."""

from __future__ import annotations

import json
import re
from contextlib import redirect_stdout
from datetime import date, datetime

import pytest
from support.processes import open_terminal

from ndcg_spark.conventions import Convention
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.gates import Gate
from ndcg_spark.evaluation.printed import (
    format_counts,
    format_query_counts,
    format_rejects,
    format_unjudged,
    show_summary,
)
from ndcg_spark.evaluation.settings import EvaluationSettings, parse_metrics
from ndcg_spark.jobs.printing import MAX_SEGMENTS, format_gate, format_json


def row(run="", by="", segment="", metric="ndcg", k=10, value=0.5, n=1234, half=0.25):
    bounds = {"ci_low": None, "ci_high": None}
    if half is not None and value is not None:
        bounds = {"ci_low": value - half, "ci_high": value + half}
    key = {"run": run, "segment_by": by, "segment": segment, "metric": metric, "k": k, "asked": None}
    return {**key, "value": value, "n_queries": n, **bounds}


# --- Gates


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ndcg@10>=0.40", ("ndcg", 10, ">=", 0.40)),
        ("  dcg@5 < 1e2 ", ("dcg", 5, "<", 100.0)),
        ("idcg@all<=+3.", ("idcg", None, "<=", 3.0)),
        ("ndcg@5>-0.5", ("ndcg", 5, ">", -0.5)),
    ],
)
def test_a_gate_is_read(text, parts):
    gate = Gate.parse(text, EvaluationSettings(cutoffs=(5, 10, None)))
    assert (gate.metric, gate.k, gate.comparison, gate.bound) == parts
    assert gate.text == text


@pytest.mark.parametrize(
    ("text", "run"), [("bm25: ndcg@10>=0.4", "bm25"), ("a: b : ndcg@10>=0.4", "a: b"), ("ndcg@10>=0.4", None)]
)
def test_a_gate_may_name_the_run_that_it_is_about(text, run):
    gate = Gate.parse(text, EvaluationSettings(cutoffs=(10,)))
    assert (gate.run, gate.metric, gate.k, gate.bound) == (run, "ndcg", 10, 0.4)
    rows = [row(run="bm25", value=0.5), row(run="a: b", value=0.3)]
    actual = [(row["run"], row["met"]) for row in gate.results(rows)]
    assert actual == [element for element in (("bm25", True), ("a: b", False)) if run in (None, element[0])]
    lines = [format_gate(result) for result in gate.results(rows)]
    assert (f"gate {text}: NOT MET (a: b: 0.300000)" in lines) == (run != "bm25")


@pytest.mark.parametrize(
    ("runs", "there"),
    [
        (("bm25", "a: b"), "there are 'bm25', 'a: b'"),
        (("",), "the only run has no name"),
        (("", "b"), "there are '', 'b'"),
        ((), "there are none"),
    ],
)
def test_a_gate_that_names_another_run_is_told_which_there_are(runs, there):
    gate = Gate.parse("x: ndcg@10>=0.4", EvaluationSettings(cutoffs=(10,)))
    with pytest.raises(InvalidParameterError, match=rf"there is no run 'x'; {there}\.$"):
        gate.results([row(run=run, value=0.5) for run in runs])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must look like METRIC@K>=NUMBER"),
        ("ndcg>=0.4", "name the cutoff too, as ndcg@10"),
        ("ndcg@10=0.4", "must look like METRIC@K>=NUMBER"),
        ("bm25: >=0.4", "or RUN: METRIC@K>=NUMBER"),
        ("ndcg@10==0.4", "must look like METRIC@K>=NUMBER"),
        ("ndcg@10>=", "must look like METRIC@K>=NUMBER"),
        ("ndcg@10>=nan", "must look like METRIC@K>=NUMBER"),
        ("ndcg@10>=0.4 or 1", "must look like METRIC@K>=NUMBER"),
        ("ndcg@10>=0,4", "must look like METRIC@K>=NUMBER"),
        ("ndcg@10>=e", "'e' is not a number"),
        ("ndcg@10>=1-2", "'1-2' is not a number"),
        ("map@10>=0.4", "ap@10 is not computed; computed are ndcg@10, ndcg@all, dcg@10"),
        ("ndgc@10>=0.4", "unknown metric 'ndgc': did you mean 'ndcg'"),
        ("ndcg@5>=0.4", "ndcg@5 is not computed; computed are ndcg@10, ndcg@all"),
        ("ndcg@>=0.4", "must look like METRIC@K>=NUMBER"),
    ],
)
def test_a_gate_that_cannot_be_held_is_refused(text, message):
    with pytest.raises(InvalidParameterError) as caught:
        Gate.parse(text, EvaluationSettings(cutoffs=(10, None)))
    assert message in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("comparison", "met"),
    [
        (">=", [False, True, True]),
        (">", [False, False, True]),
        ("<=", [True, True, False]),
        ("<", [True, False, False]),
    ],
)
def test_comparisons(comparison, met):
    gate = Gate.parse(f"ndcg@10{comparison}0.4", EvaluationSettings(cutoffs=(10,)))
    assert [gate.results([row(value=value)])[0]["met"] for value in (0.3999, 0.4, 0.4001)] == met


def test_a_gate_on_another_metric_names_it_as_it_was_asked_for():
    metrics, cutoffs = parse_metrics(["P(rel=2)@5", "rprec"])
    settings = EvaluationSettings(
        cutoffs=cutoffs, metrics=metrics, convention=Convention.parse("default;ties=item_asc")
    )
    assert (Gate.parse("p(rel=2)@5>=0.4", settings).metric, Gate.parse("Rprec>0.1", settings).k) == ("p(rel=2)", None)
    with pytest.raises(
        InvalidParameterError, match=re.escape("p@5 is not computed; computed are p(rel=2)@5, rprec@all")
    ):
        Gate.parse("p@5>=0.4", settings)


def test_a_gate_on_tie_bounds():
    settings = EvaluationSettings(tie_bounds=True)
    assert Gate.parse("tied_share@10<0.5", settings).metric == "tied_share"
    with pytest.raises(InvalidParameterError, match="tied_share@10 is not computed"):
        Gate.parse("tied_share@10<0.5", EvaluationSettings())


def test_a_gate_is_on_the_overall_mean_of_every_run():
    summary = [
        row("a", value=0.5),
        row("b", value=0.3),
        row("c", value=None),
        row("a", by="country", segment="DE", value=0.1),
        row("a", by="country", segment=None, value=0.1),
        row("a", metric="dcg", value=0.1),
        row("a", k=5, value=0.1),
        row("a", k=None, value=0.1),
    ]
    text = "ndcg@10>=0.4"
    assert Gate.parse(text, EvaluationSettings(cutoffs=(5, 10, None))).results(summary) == [
        {"gate": text, "run": "a", "value": 0.5, "met": True},
        {"gate": text, "run": "b", "value": 0.3, "met": False},
        {"gate": text, "run": "c", "value": None, "met": False},
    ]
    (whole,) = Gate.parse("ndcg@all<0.2", EvaluationSettings(cutoffs=(5, None))).results(summary)
    assert (whole["run"], whole["met"]) == ("a", True)


@pytest.mark.parametrize("comparison", [">=", ">", "<=", "<"])
def test_the_mean_of_no_query_meets_no_gate(comparison):
    assert not Gate.parse(f"ndcg@10{comparison}0", EvaluationSettings(cutoffs=(10,))).results([row(value=None)])[0][
        "met"
    ]


# --- What is printed


def test_a_line_a_group_in_a_log(capsys):
    show_summary(
        [
            row(k=5, value=0.25, half=None),
            row(k=None, value=0.5),
            row(metric="dcg", value=9.0),
            row("b", "country", "DE", value=None, n=0),
        ]
    )
    assert capsys.readouterr().out.splitlines() == [
        "overall queries=1234  ndcg@5 0.2500  ndcg@all 0.5000 ± 0.2500",
        "run=b country=DE queries=0  ndcg@10 -",
    ]


def test_a_table_at_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    with open_terminal() as (stream, read), redirect_stdout(stream):
        show_summary([row("a", value=0.1234), row("a", "country", None, value=0.5, half=None)])
        out = read()
    for text in ("means", "ndcg@10", "overall", "country=null", "1,234", "0.1234 ± 0.2500", "0.5000"):
        assert text in out


def test_more_groups_than_a_person_reads_are_counted(capsys):
    show_summary([row(by="shop", segment=f"{n:03d}") for n in range(MAX_SEGMENTS + 7)])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == MAX_SEGMENTS + 1
    assert lines[-1] == "... and 7 more groups; --output and --json have all of them."


def test_an_empty_summary_prints_nothing(capsys):
    show_summary([])
    assert capsys.readouterr().out == ""


def test_the_accounts_in_a_line():
    rows = {"read": 1000, "evaluated": 990, "rejected": 4, "left_out": 6}
    assert format_counts(rows, "queries: 3") == (
        "rows: 1,000 read = 990 evaluated + 4 rejected + 6 left out by rule; queries: 3"
    )


@pytest.mark.parametrize(
    ("metrics", "outside", "n_runs", "told"),
    [
        ("ndcg", ["unjudged"], 1, ", among them 3 with nothing relevant, 2 missing; left out: 1 unjudged"),
        ("ap", ["no_relevant", "missing", "unjudged"], 2,
         "; left out: 3 with nothing relevant, 2 missing, 1 unjudged"),
        ("ap,judged", [], 1, ", among them 3 with nothing relevant, 2 missing, 1 unjudged"),
        ("judged", ["unjudged"], 1, "; of all 3 with nothing relevant, 2 missing, 1 unjudged"),
    ],
)  # fmt: skip
def test_queries_in_a_line(metrics, outside, n_runs, told):
    """Where every metric leaves out queries without a value, nobody knows of which status those in the mean are."""
    asked, cutoffs = parse_metrics(metrics)
    settings = EvaluationSettings(metrics=asked, cutoffs=cutoffs)
    queries = {"in_mean": 1200, "no_relevant": 3, "missing": 2, "unjudged": 1}
    whose = "queries" if n_runs == 1 else "queries, those of 2 runs added up"
    assert format_query_counts(queries, settings, outside, n_runs=n_runs) == f"{whose}: 1,200 in the mean{told}"


def test_unjudged_items_in_a_line():
    def of(*actual):
        rows = [
            row(run, metric=metric, k=k, n=n) | {"n_unjudged_items": items} for run, metric, k, n, items in actual
        ]
        return format_unjudged(rows)

    assert of(("a", "ndcg", 5, 9, 9), ("a", "ndcg", 10, 9, 1)) == [
        "items: 1 among the first 10 is unjudged; see the metric judged@10"
    ]
    # At one cutoff, whichever metric of each run has most queries.
    mixed = [("a", "judged", 3, 2, 4), ("a", "rr", 8, 4, 14), ("b", "judged", 3, 4, 8), ("b", "rr", 8, 4, 28)]
    for runs in (mixed, mixed[::-1]):
        assert of(*runs) == ["items, those of 2 runs added up: 42 among the first 8 are unjudged"]
    assert of(("", "ndcg", None, 9, 1200), ("", "ndcg", 10, 9, 1)) == [
        "items: 1,200 in the lists are unjudged; see the metric judged@all"
    ]
    assert of(("", "ndcg", 10, 9, None)) == of(("", "ndcg", 10, 9, 0)) == of() == []


def test_why_rows_were_rejected_in_a_line():
    rows = {"read": 1000, "rejected_by_reason": {"nan_score": 1, "null_query": 2}}
    assert format_rejects(rows, {"lost": 1}) == ["3 rejected: nan_score 1, null_query 2; 1 query lost all its rows"]
    assert format_rejects(rows, {"lost": 2000}, {"read": 9, "rejected": {"null_item": 1200}}) == [
        "3 rejected: nan_score 1, null_query 2; 2,000 queries lost all their rows",
        "judgments: 1,200 rejected: null_item 1,200",
    ]
    assert format_rejects({"read": 0, "rejected_by_reason": {}}, {"lost": 0}) == []


# --- JSON


def test_json_is_one_line_that_keeps_every_bit():
    outcome = {
        "metrics": [row("bm25 ü", value=0.1 + 0.2), row(k=None, value=None)],
        "run_date": date(2026, 1, 31),
        "computed_at": datetime(2026, 2, 1, 3, 4, 5),
        "note": 'a\nb "c"',
    }
    text = format_json(outcome)
    assert "\n" not in text
    assert "bm25 ü" in text
    read = json.loads(text)
    assert read["metrics"] == outcome["metrics"]
    assert (read["run_date"], read["computed_at"]) == ("2026-01-31", "2026-02-01 03:04:05")
    assert read["note"] == outcome["note"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_has_no_word_for_nan(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        format_json({"metrics": [row(value=value, half=None)]})
