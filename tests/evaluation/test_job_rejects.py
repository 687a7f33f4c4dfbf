"""`--on-invalid reject`: bad rows are put aside with their reason, counted, and change no number."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest
from support.main_job import (
    assert_refused,
    find_value,
    mean_ndcg,
    read_files,
    read_stored_rows,
    run_mean_ndcg,
    write_table,
)
from support.oracle import Choices, Row, evaluate, mean

NAN, INF = math.nan, math.inf
LINEAR = Choices(gain="linear")
NIGHT = ("--run-date", "2026-01-31", "--dataset", "shop", "--convention", "linear", "--k", "2,5")
HERE = ("--engine", "local")

GOOD = [
    Row(query=query, item=item, score=score, relevance=relevance)
    for query, its in {
        "q1": [("a", 3.0, 2.0), ("b", 2.0, 0.0), ("c", 1.0, 3.0)],
        "q2": [("a", 0.5, 0.0), ("d", 0.25, 1.0)],
        "q3": [("e", -1.0, 1.0), ("f", -2.0, None), ("g", -2.0, 2.0)],
    }.items()
    for item, score, relevance in its
]
UNJUDGED = [Row(query="nobody", item=item, score=1.0) for item in "ab"]  # left out by rule
# (query, item, score, relevance), the reason. Taken for good rows, most of them would change a mean.
BAD = [
    ((None, "z", 9.0, 3.0), "null_query"),
    (("q1", None, 9.0, 3.0), "null_item"),
    (("q1", "n", None, 3.0), "null_score"),
    (("q1", "x", NAN, 3.0), "nan_score"),
    (("q2", "x", INF, 3.0), "infinite_score"),
    (("q2", "y", 9.0, NAN), "nan_relevance"),
    (("q3", "y", 9.0, -INF), "infinite_relevance"),
    (("q3", "z", 9.0, 1e300), "gain_overflow"),
    (("only bad", "a", NAN, 3.0), "nan_score"),
]
NAMES = ("query_id", "item_id", "score", "relevance")


def good_values(rows):
    return [(row.query, row.item, row.score, row.relevance) for row in rows]


def write(path, values, names=NAMES):
    at = [NAMES.index(name) for name in names]
    return write_table(path, {name: [row[n] for row in values] for name, n in zip(names, at, strict=True)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rejects")


@pytest.fixture(scope="module")
def long_run(folder):
    """Good rows, rows left out by rule, and bad rows between them; as many are bad as are allowed to be."""
    good = good_values(GOOD + UNJUDGED)
    mixed = [row for n, (bad, _) in enumerate(BAD) for row in (bad, *good[2 * n : 2 * n + 2])]
    assert len(mixed) == len(good) + len(BAD)
    source = write(folder / "mixed.parquet", mixed)
    return run_mean_ndcg(
        *("--input", source, "--on-invalid", "reject", "--rejects", folder / "rejects", *NIGHT, *HERE),
        *("--max-reject-fraction", len(BAD) / len(mixed), "--per-query-output", folder / "queries", "--json", "-"),
        *("--output", folder / "metrics"),
    )


def test_rows_add_up(long_run):
    rows = long_run.json["rows"]
    assert rows["read"] == len(GOOD) + len(UNJUDGED) + len(BAD)
    assert rows["evaluated"] == len(GOOD)
    assert rows["rejected"] == len(BAD)
    assert rows["left_out"] == len(UNJUDGED)
    reasons = [reason for _, reason in BAD]
    assert rows["rejected_by_reason"] == {reason: reasons.count(reason) for reason in reasons}
    assert f"{rows['read']} read = {len(GOOD)} evaluated + {len(BAD)} rejected + 2 left out" in long_run.out


def test_rejected_rows_and_lost_queries_stand_in_every_account(long_run, folder):
    """All rows of one query are bad. Means, metric table, JSON and the last lines say so; so does the run log."""
    reasons = Counter(reason for _, reason in BAD)
    text = ", ".join(f"{reason} {n}" for reason, n in sorted(reasons.items()))
    assert f"9 rejected: {text}; 1 query lost all its rows" in long_run.out.splitlines()
    assert long_run.json["queries"] == {"in_mean": 3, "no_relevant": 0, "missing": 0, "unjudged": 1, "lost": 1}
    for rows in (long_run.json["metrics"], read_stored_rows(folder / "metrics")):
        assert {(row["n_rejected"], row["n_lost_queries"]) for row in rows} == {(9, 1)}


def test_the_rejects_table_holds_each_bad_row_and_its_reason(long_run, folder):
    rejects = read_stored_rows(folder / "rejects")
    assert {(row["run_date"], row["dataset"], row["source"]) for row in rejects} == {("2026-01-31", "shop", "input")}

    def comparable(query, item, score, relevance, reason):
        """Numbers as text: NaN and infinities are text in JSON, and NaN equals nothing."""
        return (
            query,
            item,
            *[None if element is None else str(float(element)) for element in (score, relevance)],
            reason,
        )

    got = [comparable(*[json.loads(row["row"])[name] for name in NAMES], row["reason"]) for row in rejects]
    assert Counter(got) == Counter(comparable(*row, reason) for row, reason in BAD)


def test_means_are_those_of_the_good_rows(long_run):
    results = evaluate(GOOD, LINEAR, (2, 5))
    for metric in ("ndcg", "dcg", "idcg"):
        for k in (2, 5):
            wanted = mean(results, k, metric)
            assert find_value(long_run.json, metric, k) == pytest.approx(wanted, abs=1e-12), (metric, k)
    assert {row["n_queries"] for row in long_run.json["metrics"]} == {3}


def test_a_query_of_bad_rows_only_is_none(long_run, folder):
    assert {row["query_id"] for row in read_stored_rows(folder / "queries")} == {"q1", "q2", "q3"}


def test_metrics_equal_those_of_the_clean_input_to_the_bit(long_run, folder):
    clean = write(folder / "clean.parquet", good_values(GOOD + UNJUDGED))
    ended = run_mean_ndcg("--input", clean, *NIGHT, *HERE, "--json", "-")
    counts = {"n_rejected": 0, "n_lost_queries": 0}
    assert ended.json["metrics"] == [row | counts for row in long_run.json["metrics"]]


def test_too_many_bad_rows(long_run, folder, tmp_path):
    before = read_files(folder)
    ended = mean_ndcg(
        *("--input", folder / "mixed.parquet", "--on-invalid", "reject", "--max-reject-fraction", 0.4),
        *("--rejects", folder / "rejects", *NIGHT, *HERE),
        *("--output", tmp_path / "metrics", "--json", tmp_path / "json"),
    )
    assert_refused(ended, "9 bad rows of 19", "nan_score 2", "--max-reject-fraction 0.4")
    assert list(tmp_path.iterdir()) == []
    assert read_files(folder) == before


def test_run_and_judgments(engine, folder):
    bad_runs = [
        ((None, "z", 9.0, 0), "null_query"),
        (("q1", None, 9.0, 0), "null_item"),
        (("q2", "x", NAN, 0), "nan_score"),
    ]
    bad_judgments = [
        ((None, "z", 0, 3.0), "null_query"),
        (("q1", None, 0, 3.0), "null_item"),
        (("q3", "x", 0, INF), "infinite_relevance"),
    ]
    judged = [row for row in good_values(GOOD) if row[3] is not None]
    run = write(folder / "run.parquet", [row for row, _ in bad_runs] + good_values(GOOD), NAMES[:3])
    qrels = write(
        folder / "qrels.parquet", judged + [row for row, _ in bad_judgments], ("query_id", "item_id", NAMES[3])
    )
    ended = run_mean_ndcg(
        *("--input", run, "--judgments", qrels, "--on-invalid", "reject", "--rejects", folder / "two", *NIGHT),
        *("--json", "-", "--engine", engine["engine"]),
    )
    outcome = ended.json
    results = evaluate(GOOD, LINEAR, (2, 5))
    for k in (2, 5):
        assert find_value(outcome, "ndcg", k) == pytest.approx(mean(results, k), abs=1e-12)
    rows = outcome["rows"]
    assert (rows["read"], rows["evaluated"], rows["rejected"], rows["left_out"]) == (11, 8, 3, 0)
    assert outcome["judgment_rows"]["read"] == len(judged) + 3
    assert outcome["judgment_rows"]["rejected"] == {reason: 1 for _, reason in bad_judgments}
    assert "3 rejected: nan_score 1, null_item 1, null_query 1" in ended.out.splitlines()
    assert "judgments: 3 rejected: infinite_relevance 1, null_item 1, null_query 1" in ended.out.splitlines()
    stored = sorted((row["source"], row["reason"]) for row in read_stored_rows(folder / "two"))
    wanted = [("input", reason) for _, reason in bad_runs] + [("judgments", reason) for _, reason in bad_judgments]
    assert stored == sorted(wanted)


def test_logged_ranks(folder):
    columns = {
        "query_id": ["q1"] * 5,
        "item_id": list("abcde"),
        "rank": [1, 0, 2, -4, None],
        "relevance": [2.0, 3.0, 1.0, 3.0, 3.0],
    }
    ended = run_mean_ndcg(
        *("--input", write_table(folder / "ranks.parquet", columns), "--on-invalid", "reject", *NIGHT, *HERE),
        *("--json", "-"),
    )
    assert ended.json["rows"]["rejected_by_reason"] == {"rank_below_1": 2, "null_rank": 1}
    assert find_value(ended.json, "ndcg", 5) == 1.0
    assert find_value(ended.json, "dcg", 5) == pytest.approx(2 + 1 / math.log2(3), abs=1e-12)


def test_nothing_but_bad_rows(folder, tmp_path):
    source = write(folder / "bad.parquet", [row for row, _ in BAD])
    ended = mean_ndcg("--input", source, "--on-invalid", "reject", *NIGHT, *HERE, "--output", tmp_path / "metrics")
    assert_refused(ended, "no rows to evaluate (9 rejected: gain_overflow 1, ", "--allow-empty")
    assert list(tmp_path.iterdir()) == []


def test_a_night_of_rejects_replaces_itself_only(long_run, folder):
    """The second day has no bad row: no reject of it is there, those of the first day stay."""
    before = read_files(folder / "rejects")
    clean = write(folder / "clean.parquet", good_values(GOOD))
    again = [*NIGHT, *HERE, "--run-date", "2026-02-01"]
    run_mean_ndcg("--input", clean, "--on-invalid", "reject", "--rejects", folder / "rejects", *again)
    after = read_files(folder / "rejects")
    assert before.items() <= after.items()
    assert [row for row in read_stored_rows(folder / "rejects") if row["run_date"] == "2026-02-01"] == []


def test_rejects_of_a_repaired_night_are_gone(folder):
    """A night is run with a bad row, the source is repaired, the night is run again: no reject may be left."""
    night = ("--on-invalid", "reject", "--rejects", folder / "repaired", *NIGHT, *HERE)
    bad = [*good_values(GOOD), ("q1", "x", NAN, 3.0)]
    run_mean_ndcg("--input", write(folder / "first.parquet", bad), *night)
    assert len(read_stored_rows(folder / "repaired")) == 1
    run_mean_ndcg("--input", write(folder / "second.parquet", good_values(GOOD)), *night)
    assert read_stored_rows(folder / "repaired") == []
