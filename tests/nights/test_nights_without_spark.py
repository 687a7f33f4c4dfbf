"""Nights whose steps need no Spark: files, order, refusals, exit codes, the run log, what is run again."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from support.main_job import assert_refused, read_files, read_stored_rows, run_command
from support.night_files import (
    FILE,
    NIGHT,
    OTHER,
    assert_resumed_with_late_file,
    make_night_folder,
    read_log,
    read_statuses,
    run_night,
    split_by_ranker,
    write_file,
)
from support.opened import count_opened

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.jobs.endings import choose_exit_code
from ndcg_spark.nights.message import build_night_message
from ndcg_spark.nights.results import StepResult
from ndcg_spark.nights.steps import read_night
from ndcg_spark.tables.claims import claim_slices
from ndcg_spark.tables.slices import slice_name

OF_THE_MOMENT = {"computed_at": "", "source_computed_at": ""}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return make_night_folder(tmp_path, monkeypatch)


# ---------------------------------------------------------------------------------------------- what is run


def test_steps_read_what_earlier_ones_wrote(folder):
    ended = run_night()
    assert ended.code == 0, ended.err
    assert read_statuses(ended) == {"mean-ndcg": "succeeded", "compare-runs": "succeeded"}
    (row,) = [row for row in read_stored_rows(folder / "comparisons") if (row["metric"], row["k"]) == ("ndcg", 1)]
    # The relevant item is second for bm25, and first for vectors.
    assert (row["run"], row["baseline"], row["difference"], row["dataset"]) == ("vectors", "bm25", 1.0, "shop")
    assert read_log(folder) == [
        ("compare-runs", "succeeded", 0), ("mean-ndcg", "succeeded", 0), ("nightly", "succeeded", 0)
    ]  # fmt: skip


def test_the_tables_are_those_of_the_commands_one_by_one(folder):
    assert run_night().code == 0
    of_night = {
        name: [row | OF_THE_MOMENT for row in read_stored_rows(folder / name)] for name in ("metrics", "comparisons")
    }
    shared = ("--run-date", NIGHT, "--dataset", "shop")
    assert run_command("mean-ndcg", *shared, "--input", "rankings/2026-01-31.parquet", "--run-col", "ranker", "--k",
                       "1,3", "--output", "./m", "--per-query-output", "./q").code == 0  # fmt: skip
    assert run_command("compare-runs", *shared, "--per-query", "./q", "--baseline", "bm25", "--replicates", 0,
                       "--flips", 0, "--output", "./c").code == 0  # fmt: skip
    alone = {"metrics": read_stored_rows(folder / "m"), "comparisons": read_stored_rows(folder / "c")}
    for name, rows in of_night.items():
        changed = {"input", "baseline_input"}  # which names the table
        assert [
            {key: group for key, group in (row | OF_THE_MOMENT).items() if key not in changed} for row in alone[name]
        ] == [{key: group for key, group in row.items() if key not in changed} for row in rows]


def test_periods_of_means_and_of_comparisons_are_added_up_night_by_night(folder):
    """A week of two nights has the queries of both, and their mean; the first night wrote a week of its own."""
    periods = '\n[[step]]\ncommand = "roll-up"\nperiods = ["week"]\noutput = "./weeks"\n'
    of_pairs = periods.replace('output = "./weeks"', 'name = "pairs"\ninput = "./comparisons"\noutput = "./pairs"')
    write_file(FILE + periods + of_pairs)
    for night, n_days in ((date(2026, 1, 30), 1), (NIGHT, 2)):
        ended = run_night("--run-date", night)
        assert ended.code == 0, ended.err
        assert read_statuses(ended)["roll-up"] == read_statuses(ended)["pairs"] == "succeeded"
        nights = [row for row in read_stored_rows(folder / "metrics") if (row["metric"], row["k"]) == ("ndcg", 1)]
        for run in ("bm25", "vectors"):
            of_run = [row for row in nights if row["run"] == run]
            (week,) = [
                row for row in read_stored_rows(folder / "weeks")
                if (row["metric"], row["k"], row["run"]) == ("ndcg", 1, run)
            ]  # fmt: skip
            assert (str(week["period_end"]), week["n_days"]) == ("2026-02-01", n_days)
            assert week["n_queries"] == sum(row["n_queries"] for row in of_run)
            assert week["value"] == sum(row["value"] * row["n_queries"] for row in of_run) / week["n_queries"]
        pairs = read_stored_rows(folder / "pairs")
        assert {(row["run"], row["baseline"], row["n_days"]) for row in pairs} == {("vectors", "bm25", n_days)}


def test_an_input_is_listed_once_and_read_once(folder):
    """Each file is opened for its footer and for its rows, by the step that evaluates it alone."""
    night = split_by_ranker(folder)
    more = [("flag-changes", "flags"), ("roll-up", "periods"), ("report", "page.html")]
    steps = "".join(f'\n[[step]]\ncommand = "{name}"\noutput = "./{output}"\n' for name, output in more)
    write_file(FILE.replace("{run_date}.parquet", "{run_date}") + steps)
    with count_opened(night) as opened:
        ended = run_night()
    assert ended.code == 0, ended.err
    assert opened == {str(night): 1, str(night / "bm25.parquet"): 2, str(night / "vectors.parquet"): 2}


def test_a_comparison_reads_the_queries_of_its_night_alone(folder):
    """Of other nights it reads footers alone: when the steps are checked, and when it begins."""
    assert run_night("--backfill", f"2026-01-30..{NIGHT}", "--only", "mean-ndcg").code == 0
    with count_opened(folder / "queries") as opened:
        assert run_night("--only", "compare-runs").code == 0
    files = {path: n for path, n in opened.items() if path.endswith(".parquet")}
    assert {n for path, n in files.items() if "run_date=2026-01-30" in path} == {2}
    assert all(n > 2 for path, n in files.items() if f"run_date={NIGHT}" in path)


def test_a_file_that_arrives_after_the_input_was_opened_is_read_when_the_night_is_resumed(folder, monkeypatch):
    night = split_by_ranker(folder)
    write_file(FILE.replace("{run_date}.parquet", "{run_date}").partition('[[step]]\ncommand = "compare-runs"')[0])
    assert_resumed_with_late_file(folder, night, monkeypatch)


def test_nights_of_a_backfill_are_those_one_by_one_and_a_refused_one_stops_no_other(folder):
    ended = run_night("--backfill", "2026-01-29..2026-01-31")
    assert ended.code == 2
    assert {row["run_date"] for row in read_stored_rows(folder / "metrics")} == {"2026-01-30", "2026-01-31"}
    assert any("2026-01-29" in line and "rankings/2026-01-29.parquet" in line for line in ended.complaints)


def test_without_a_baseline_each_pair_is_compared(folder):
    write_file(FILE.replace('baseline = "bm25"\n', ""))
    ended = run_night()
    assert (ended.code, read_statuses(ended)["compare-runs"]) == (0, "succeeded"), ended.err
    assert {(row["run"], row["baseline"]) for row in read_stored_rows(folder / "comparisons")} == {
        ("vectors", "bm25")
    }


def test_what_a_night_says_is_text_and_json(folder):
    """Without a report: gates that are missed, and steps that were not done."""
    write_file(FILE + OTHER.replace("rankings/{run_date}", "rankings/gone"))
    shared = 'run-col = "ranker"\n'
    write_file(
        (folder / "night.toml").read_text("utf-8").replace(shared, shared + 'gate = ["bm25: ndcg@1>0.5"]\n', 1)
    )
    ended = run_night("--message", "said.txt")
    assert ended.code == 2, ended.err
    said = json.loads((folder / "said.json").read_text("utf-8"))
    assert (said["verdict"], said["exit_code"], said["page"], said["run_date"]) == ("bad", 2, None, "2026-01-31")
    first, refused, gate = said["lines"]
    assert first == "night 2026-01-31 of shop:"
    assert refused.startswith("other: refused: ")
    assert "rankings/gone.parquet" in refused
    assert gate == "gate bm25: ndcg@1>0.5: NOT MET (bm25: 0.000000)"
    assert (folder / "said.txt").read_text("utf-8") == "\n".join([*said["lines"], ""])
    assert ended.out.endswith("\n  ".join([*said["lines"]]) + "\n")


@pytest.mark.parametrize("n_lines", [7, 8])
def test_a_message_counts_what_it_has_no_room_for(folder, n_lines):
    """Of at most ten lines: title, headline, seven others, and the page; with one more, two make room for a count."""
    write_file(FILE + PAGE)
    night = read_night("night.toml", date(2026, 1, 31))
    said = {"verdict": "bad", "headline": "Headline.", "lines": [f"Line {at}." for at in range(n_lines)]}
    result = StepResult(step="report", status="succeeded", writes={"page": "page.html"}, facts={"message": said})
    lines = build_night_message(night, [result], 0)["lines"]
    assert len(lines) == 10
    last = ["Line 6."] if n_lines == 7 else ["2 more lines are on the page."]
    assert lines[1:] == ["Headline.", *said["lines"][:6], *last, "page: page.html"]


def test_a_message_says_a_refusal_once(folder):
    """The headline of the page is the first sentence of the refusal, whose others say what to do."""
    write_file(FILE + PAGE)
    why = "compare-runs: refused: query q1 has two values of IDCG"
    said = {"verdict": "bad", "headline": f"{why}.", "lines": ["NDCG@10: vectors 0.5."]}
    refusal = why.removeprefix("compare-runs: refused: ") + ". Mend it."
    results = [
        StepResult(step="compare-runs", status="refused", exit_code=2, message=refusal),
        StepResult(step="report", status="succeeded", facts={"message": said}),
    ]
    lines = build_night_message(read_night("night.toml", date(2026, 1, 31)), results, 2)["lines"]
    assert lines[1:] == [f"{why}. Mend it.", "NDCG@10: vectors 0.5."]


def test_each_night_has_its_message(folder):
    assert run_night("--backfill", "2026-01-30..2026-01-31", "--message", "said-{run_date}.txt").code == 0
    for day in (30, 31):
        assert (folder / f"said-2026-01-{day}.txt").read_text("utf-8").startswith(f"night 2026-01-{day} of shop")


def test_a_message_is_not_written_over_its_json(folder):
    assert_refused(run_night("--message", "said.json"), "--message 'said.json' is for the text", "'said.txt'")
    assert not (folder / "log").exists()


@pytest.mark.parametrize("day", [30, 31])
def test_a_comparison_is_older_than_means_that_were_computed_again(folder, day):
    """Points in time are stored to the second."""
    assert "older" not in run_night("--backfill", "2026-01-30..2026-01-31").out
    time.sleep(1)
    night = f"2026-01-{day}..2026-01-{day}"
    assert run_night("--backfill", night, "--only", "mean-ndcg").out.splitlines()[-3:] == [
        "older than their inputs:",
        f"  compare-runs: 2026-01-{day} is older",
        f"  to renew them: ndcg-spark nightly --config night.toml --backfill {night} --stale",
    ]
    renewed = run_night("--backfill", night, "--stale")
    assert read_statuses(renewed) == {"compare-runs": "succeeded"}
    assert "older than" not in renewed.out
    assert renewed.out.endswith("\nthese results are up to date\n")
    assert run_night("--stale").out.endswith("night 2026-01-31: nothing is older than its inputs\n")


def test_the_message_of_a_bad_night_whose_results_are_up_to_date_is_bad(folder):
    """Of each way to run no step again: the verdict is that of the page."""
    steps = '[[step]]\ncommand = "report"\ngate = ["ndcg@1>0.5"]\noutput = "page.html"\n'
    write_file(FILE + steps)
    assert run_night().code == 3
    for way in ("--resume", "--stale"):
        assert run_night(way, "--message", "said.txt").code in (0, 3)
        said = json.loads((folder / "said.json").read_text("utf-8"))
        assert (said["verdict"], said["page"]) == ("bad", "page.html"), way


def test_a_night_that_never_had_an_input_stays_bad_where_nothing_is_renewed(folder):
    write_file(FILE + PAGE.replace("page.html", "page-{run_date}.html"))
    assert run_night("--run-date", "2026-01-29", "--message", "said.txt").code == 2
    for _ in range(2):
        assert run_night("--backfill", "2026-01-29..2026-01-29", "--stale", "--message", "said.txt").code == 0
        said = read_message(folder)  # that of the night: nothing was run
        assert (said["verdict"], said["page"], said["exit_code"]) == ("bad", None, 2)
        assert "refused" in said["lines"][1]


PAGE = """
[[step]]
command = "flag-changes"
output = "./flags"

[[step]]
command = "report"
output = "page.html"
"""


def read_message(folder: Path) -> dict[str, Any]:
    message: dict[str, Any] = json.loads((folder / "said.json").read_text("utf-8"))
    return message


def test_a_page_that_is_drawn_again_keeps_the_refusal_of_a_step(folder):
    write_file(FILE.replace('baseline = "bm25"', 'baseline = "gone"') + PAGE)
    refusal = "compare-runs: refused: "
    assert run_night("--backfill", "2026-01-30..2026-01-31").code == 2
    assert refusal in (folder / "page.html").read_text("utf-8")
    time.sleep(1)
    assert "older" in run_night("--backfill", "2026-01-30..2026-01-30", "--only", "mean-ndcg").out
    again = run_night("--backfill", "2026-01-31..2026-01-31", "--stale", "--message", "said.txt")
    assert again.code == 2
    assert "these results are up to date" not in again.out
    assert refusal in (folder / "page.html").read_text("utf-8")
    assert any("compare-runs: refused" in line for line in read_message(folder)["lines"])


@pytest.mark.parametrize("place", ["./comparisons", "file:{}/comparisons", None])
def test_a_night_without_its_baseline_has_a_page(folder, place):
    """The comparison is refused; with an earlier night, there is a table of comparisons that lacks this one."""
    earlier = place is not None
    write_file(FILE.replace('"./comparisons"', f'"{(place or "./comparisons").format(folder)}"') + PAGE)
    (folder / "comparisons").mkdir()
    if earlier:
        assert run_night("--backfill", "2026-01-30..2026-01-30").code == 0
    path = folder / "rankings" / f"{NIGHT}.parquet"
    rows = pq.read_table(path)
    pq.write_table(rows.filter(pc.equal(rows.column("ranker"), "vectors")), path)
    ended = run_night("--message", "said.txt")
    done = dict.fromkeys(("mean-ndcg", "flag-changes", "report"), "succeeded")
    if earlier:
        done["flag-changes"] = "flagged"
    assert (ended.code, read_statuses(ended)) == (2, done | {"compare-runs": "refused"}), ended.err
    said = read_message(folder)
    assert (said["verdict"], said["page"]) == ("bad", "page.html")
    refused = [line.startswith("compare-runs: refused: ") for line in said["lines"]]
    # The relevant item was second: 1 / log2(3) is 0.6309.
    lacks = "bm25 has no rows on 31 January 2026; NDCG@3 was 0.6309 over 3 queries on the night before."
    assert (said["lines"][1] == lacks, refused.index(True)) == ((True, 2) if earlier else (False, 1))
    lacks = "The comparison table has no rows of 31 January 2026; its last night is 30 January 2026."
    assert (lacks in (folder / "page.html").read_text("utf-8")) == earlier
    assert read_statuses(run_night("--only", "report")) == {"report": "succeeded"}
    pq.write_table(rows, path)
    assert read_statuses(run_night("--resume")) == dict.fromkeys((*done, "compare-runs"), "succeeded")


def test_a_night_without_a_ranker_has_a_page_and_the_index_names_it_later(folder):
    """Only the baseline has rows, so nothing can be compared. The page of the night after names the gap."""
    write_file(FILE + PAGE.replace('output = "page.html"', 'output = "page-{run_date}.html"\nindex = "index.html"'))
    assert run_night("--backfill", "2026-01-30..2026-01-30").code == 0
    path = folder / "rankings" / f"{NIGHT}.parquet"
    rows = pq.read_table(path)
    shutil.copy(path, folder / "rankings" / "2026-02-01.parquet")
    pq.write_table(rows.filter(pc.equal(rows.column("ranker"), "bm25")), path)
    ended = run_night("--message", "said.txt")
    assert (ended.code, read_statuses(ended)["report"]) == (2, "succeeded"), ended.err
    said = read_message(folder)
    news = "vectors has no rows on 31 January 2026; NDCG@3 was 0.6309 over 3 queries on the night before"
    assert (said["verdict"], said["lines"][1]) == ("bad", f"{news}.")
    for page in (True, False):  # the index has the verdict of the page; without it, the night is judged by its runs
        if not page:
            (folder / f"page-{NIGHT}.html").unlink()
        assert run_night("--backfill", "2026-02-01..2026-02-01").code == 0
        index = (folder / "index.html").read_text("utf-8")
        assert f"✕</span> <bdi>{news if page else 'vectors has no result'}" in index
    after = (folder / "page-2026-02-01.html").read_text("utf-8")
    assert "Nights without a result of vectors in the last 14 days: 31 January 2026." in after


def test_a_change_flagged_query_by_query_is_told_as_a_change(folder):
    """Each query finds its item a rank later: a small fall among queries that differ far more from each other."""
    ranks = [rank for rank in range(2, 9) for _ in range(3)]
    for day in (30, 31):
        lists = [range(rank + day - 30) for rank in ranks]
        rows = [
            ("one", f"q{number}", f"{number}-{place}", float(-place), float(place == len(places) - 1))
            for number, places in enumerate(lists)
            for place in places
        ]
        columns = zip(("ranker", "query_id", "item_id", "score", "relevance"), zip(*rows, strict=True), strict=True)
        pq.write_table(pa.table(dict(columns)), folder / "rankings" / f"2026-01-{day}.parquet")
    write_file(FILE.split('\n[[step]]\ncommand = "compare-runs"')[0].replace("k = [1, 3]", "k = [10]") + PAGE)
    assert run_night("--backfill", "2026-01-30..2026-01-31", "--message", "said.txt").code == 0
    before, now = (math.fsum(1 / math.log2(1 + rank + later) for rank in ranks) / 21 for later in (0, 1))
    fell = f"NDCG@10 fell by {before - now:.3f} to {now:.3f} since the night before."
    assert read_message(folder)["lines"][1] == fell
    # By the errors of both means alone, as a report without flags has them, it is not clear.
    unclear = "no clear change from the night before"
    assert unclear not in (folder / "page.html").read_text("utf-8")
    page = ["--metrics", "./metrics", "--output", "other.html", "--run-date", NIGHT]
    assert unclear in run_command("report", *page).out


def test_a_comparison_that_waits_for_a_flag_is_no_bad_news(folder):
    """It is not run on a calm night; the page is drawn without it."""
    text = FILE.replace('command = "compare-runs"', 'command = "compare-runs"\nwhen = "flagged"')
    write_file(text + PAGE)
    ended = run_night("--message", "said.txt")
    assert (ended.code, read_statuses(ended)["compare-runs"], read_statuses(ended)["report"]) == (
        0, "not run", "succeeded"
    )  # fmt: skip
    assert (read_message(folder)["verdict"], read_message(folder)["page"]) == ("good", "page.html")
    assert "compare-runs" not in (folder / "page.html").read_text("utf-8")
    assert run_night("--backfill", "2026-01-30..2026-01-30").code == 0
    write_file(FILE)
    assert run_night("--backfill", "2026-01-30..2026-01-30").code == 0  # earlier nights were compared
    write_file(text + PAGE)
    assert run_night("--message", "said.txt").code == 0
    assert read_message(folder)["verdict"] == "good"
    lacks = "The comparison table has no rows of 31 January 2026; its last night is 30 January 2026."
    page = (folder / "page.html").read_text("utf-8")
    assert re.search(rf'<li class="neutral">.*?<bdi>{lacks}</bdi>', page)


@pytest.mark.parametrize("selected", [(), ("--from", "compare-runs")])
def test_a_page_names_a_comparison_that_could_not_run(folder, selected):
    """The step whose queries it compares is refused."""
    other = OTHER.replace("rankings/{run_date}.parquet", "rankings/gone.parquet")
    other = other.replace('output = "./metrics"', 'output = "./more"\nper-query-output = "./more-queries"')
    first, second = FILE.split('\n[[step]]\ncommand = "compare-runs"')
    compared = '\n[[step]]\ncommand = "compare-runs"\nper-query = "./more-queries"' + second
    drawn = PAGE.replace('command = "report"', 'command = "report"\nmetrics = "./metrics"\nper-query = "./queries"')
    drawn = drawn.replace('command = "flag-changes"', 'command = "flag-changes"\ninput = "./metrics"')
    write_file(first + other + compared + drawn)
    if selected:
        assert run_night("--only", "mean-ndcg").code == 0
    ended = run_night("--message", "said.txt", *selected)
    assert (ended.code, read_statuses(ended)["report"]) == (2, "succeeded"), ended.err
    if not selected:
        assert "compare-runs: not run: it needs other" in (folder / "page.html").read_text("utf-8")
        assert read_message(folder)["verdict"] == "bad"


def test_a_broken_link_beside_an_input_does_not_keep_a_step_from_being_up_to_date(folder):
    texts = folder / "texts"
    texts.mkdir()
    pq.write_table(pa.table({"query_id": ["q1"], "text": ["shoes"]}), texts / "a.parquet")
    (texts / "b.parquet").symlink_to(folder / "gone.parquet")
    named = 'command = "report"\nquery-texts = "./texts"\nquery-text-col = "text"'
    write_file(FILE + PAGE.replace('command = "report"', named))
    assert run_night().code == 0
    assert set(read_statuses(run_night("--resume")).values()) == {"succeeded before"}


def test_a_plan_keeps_the_message(folder):
    write_file(FILE.replace('run-log = "./log"', ""))
    (folder / "said.txt").write_text("of another night", encoding="utf-8")
    assert_refused(run_night("--plan", "--resume", "--message", "said.txt"), "--resume needs a run log")
    assert (folder / "said.txt").read_text("utf-8") == "of another night"
    assert_refused(run_night("--resume", "--message", "said.txt"), "--resume needs a run log")
    assert read_message(folder)["verdict"] == "bad"


@pytest.mark.parametrize("night", ["2026-01-31", "2026-01-30..2026-01-31"])
def test_a_night_that_is_refused_as_a_whole_does_not_say_that_it_is_good(folder, night):
    """Somebody else runs it: the message of the last run is replaced."""
    (folder / "said.txt").write_text("of another night", encoding="utf-8")
    taken = f"run_date={NIGHT}/slice={slice_name('shop', 'nightly')}"
    (folder / "log").mkdir()
    claim = claim_slices(folder / "log", [taken], lambda message: None)
    try:
        words = ("--backfill", night) if ".." in night else ()
        assert run_night("--message", "said.txt", *words).code == 2
    finally:
        claim.release()
    said = json.loads((folder / "said.json").read_text("utf-8"))
    assert (said["verdict"], said["exit_code"], said["run_date"]) == ("bad", 2, "2026-01-31")
    assert "is already being run by another process" in said["lines"][1]
    assert (folder / "said.txt").read_text("utf-8") == "\n".join([*said["lines"], ""])


def test_one_step_and_those_from_one_on(folder):
    assert read_statuses(run_night("--only", "mean-ndcg")) == {"mean-ndcg": "succeeded"}
    assert read_statuses(run_night("--from", "compare-runs")) == {"compare-runs": "succeeded"}
    assert_refused(run_night("--only", "mean-ndgc"), "mean-ndgc", "did you mean 'mean-ndcg'?")


def test_a_plan_runs_nothing(folder):
    before = read_files(folder)
    ended = run_night("--plan")
    assert ended.code == 0
    assert "    reads per-query: ./queries, of mean-ndcg\n" in ended.out
    assert read_files(folder) == before


def test_a_plan_names_the_steps_that_are_not_run_again(folder):
    assert run_night().code == 0
    write_file(FILE.replace("flips = 0", "flips = 7"))
    lines = run_night("--plan", "--resume").out.splitlines()
    assert lines[1:3] == ["  mean-ndcg: up to date, not run again", "  compare-runs"]
    assert "mean-ndcg" not in run_night("--plan", "--only", "compare-runs").out.replace("of mean-ndcg", "")


def test_a_night_that_nobody_named_is_told_where_it_is_refused(folder):
    ended = run_command("nightly", "--config", "night.toml")
    assert ended.code == 2
    today = datetime.now(timezone.utc).date()
    assert f"ndcg-spark nightly: the night is today, {today} (UTC); --run-date names another one." in ended.err
    assert "the night is today" not in run_night("--only", "mean-ndcg", "--backfill", "2026-01-29..2026-01-29").err


@pytest.mark.parametrize(
    ("nights", "told"),
    [
        ("2026-01-31..2026-01-01", "--backfill must name the earlier night first: 2026-01-01..2026-01-31"),
        ("2026-01-31", "--backfill must look like 2026-01-01..2026-01-31"),
        ("2026-02-01..2026-02-30", "--backfill: '2026-02-30' is not a day of the calendar"),
    ],
)
def test_nights_that_are_no_range_are_refused(folder, nights, told):
    assert_refused(run_night("--backfill", nights), told)


def test_other_words_in_braces_are_part_of_a_path(folder):
    shutil.copy("rankings/2026-01-31.parquet", "rankings/{update}.parquet")
    write_file(FILE.replace("{run_date}", "{update}"))
    assert run_night().code == 0


def test_a_step_for_flagged_nights(folder):
    step = OTHER + 'when = "flagged"\n'
    write_file(FILE + step)
    assert read_statuses(run_night())["other"] == "not run"
    write_file(FILE.replace('output = "./metrics"', 'output = "./metrics"\ngate = ["ndcg@1>=0.9"]') + step)
    ended = run_night()
    assert read_statuses(ended) == {"mean-ndcg": "gate not met", "compare-runs": "succeeded", "other": "succeeded"}
    assert ended.code == 3


# ----------------------------------------------------------------------------------------------- what is refused


def test_a_refused_step_stops_those_that_need_it_and_no_others(folder):
    write_file(FILE.replace('"rankings/{run_date}.parquet"', '"rankings/{run_date-7}.parquet"') + OTHER)
    ended = run_night()
    assert ended.code == 2
    assert read_statuses(ended) == {"mean-ndcg": "refused", "compare-runs": "not run", "other": "succeeded"}
    assert len(ended.complaints) == len(
        [complaint for complaint in ended.complaints if "2026-01-24" in complaint or "run " in complaint]
    )
    assert ("nightly", "refused", 2) in read_log(folder)
    (message,) = [row["message"] for row in read_stored_rows(folder / "log") if row["command"] == "nightly"]
    assert message.startswith("mean-ndcg refused: ")
    assert not (folder / "comparisons").exists()


@pytest.mark.parametrize(
    ("changed", "told"),
    {
        'baseline = "bm25"\nsegment-cols = "country"': "column 'country'",
        'baseline = "bm25"\nmetrics = "ap"': "ap",
    }.items(),
)
def test_columns_of_tables_that_are_not_there_yet_are_refused_before_anything_runs(folder, changed, told):
    write_file(FILE.replace('baseline = "bm25"', changed))
    ended = run_night()
    assert read_statuses(ended) == {"mean-ndcg": "succeeded", "compare-runs": "refused"}
    (line,) = [complaint for complaint in ended.complaints if "refused" not in complaint and told in complaint]
    assert ended.err.index(line) < ended.err.index("ranking and scoring")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"[[step]]": "[[steps]]"}, "a night needs steps"),
        ({'[[step]]\ncommand = "mean-ndcg"': "[mean-ndcg]"}, "[mean-ndcg] is not a step; write [[step]]"),
        ({'"compare-runs"': '"compare-run"'}, "the command 'compare-run' (did you mean 'compare-runs'?)"),
        ({'baseline = "bm25"': 'base = "bm25"'}, "step 'compare-runs': unknown key 'base'"),
        ({'dataset = "shop"': 'data-set = "shop"'}, "unknown key 'data-set' (did you mean 'dataset'?)"),
        ({"{run_date}": "{rundate}"}, "{rundate} is unknown; write {run_date} for the night"),
        ({"{run_date}": "{run_date+1}"}, "{run_date+1} is unknown; write {run_date} for the night"),
        ({"{run_date}": "{DATE}"}, "{DATE} is unknown; write {run_date} for the night"),
        ({'dataset = "shop"': "run-date = 2026-01-31"}, "the night is set by --run-date"),
        ({'output = "./metrics"': 'output = "./metrics"\nrun-date = "2026-01-01"'}, "run-date applies to the whole"),
        ({'output = "./metrics"': 'output = "./metrics"\nwhen = "never"'}, "when must be one of always, flagged"),
        ({'"compare-runs"': '"mean-ndcg"'}, "two steps are named 'mean-ndcg'"),
        ({'input = "rankings/{run_date}.parquet"\n': ""}, "step 'mean-ndcg': Missing option '--input'"),
        ({'output = "./comparisons"': 'output = "./queries"'}, "'./queries'; give each its own place"),
        ({"flips = 0": "flips = 0\nseed = 7"}, "--seed has no effect"),
    ],
    ids=lambda element: str(element)[:40],
)
def test_a_file_is_refused_before_anything_runs(folder, changed, told):
    text = FILE
    for old, new in changed.items():
        assert old in text
        text = text.replace(old, new)
    write_file(text)
    assert_refused(run_night(), "night.toml", told)
    assert not (folder / "log").exists()


def test_a_night_is_run_by_one_at_a_time(folder):
    claim = claim_slices(
        folder / "log", [f"run_date={NIGHT}/slice={slice_name('shop', 'nightly')}"], lambda message: None
    )
    try:
        ended = run_night()
        assert (ended.code, ended.out) == (2, "")
        assert "the night 2026-01-31 of data set 'shop' is already being run by another process" in ended.err
    finally:
        claim.release()
    assert run_night().code == 0


# ---------------------------------------------------------------------------------------------- what is run again


def test_what_ended_well_is_not_run_again(folder):
    assert run_night().code == 0
    before = read_files(folder / "metrics") | read_files(folder / "comparisons")
    assert set(read_statuses(run_night("--resume")).values()) == {"succeeded before"}
    assert read_files(folder / "metrics") | read_files(folder / "comparisons") == before


def test_other_options_inputs_and_what_needs_them_are_run_again(folder):
    assert run_night().code == 0
    write_file(FILE.replace("flips = 0", "flips = 0\nalpha = 0.1"))
    assert read_statuses(run_night("--resume")) == {"mean-ndcg": "succeeded before", "compare-runs": "succeeded"}
    os.utime("rankings/2026-01-31.parquet", (0, 2_000_000_000))
    assert read_statuses(run_night("--resume")) == {"mean-ndcg": "succeeded", "compare-runs": "succeeded"}


def test_resume_does_not_repeat_nights_of_a_backfill_whose_tables_hold_later_nights(folder):
    """The tables of the first night have changed since: they have the second night, too."""
    nights = ("--backfill", "2026-01-30..2026-01-31")
    assert run_night(*nights).code == 0
    n_runs = len(read_log(folder))
    assert run_night(*nights, "--resume").code == 0
    assert {(command, status) for command, status, _ in read_log(folder)[n_runs:]} <= {("nightly", "succeeded")}
    assert len(read_log(folder)) == n_runs + 2


def test_resume_repeats_a_step_if_a_step_that_it_needs_was_run_after_it(folder):
    assert run_night().code == 0
    time.sleep(0.01)
    assert run_night("--only", "mean-ndcg").code == 0
    assert read_statuses(run_night("--resume")) == {"mean-ndcg": "succeeded before", "compare-runs": "succeeded"}


def test_resume_of_one_step_sees_later_runs_of_steps_that_are_not_selected(folder):
    assert run_night().code == 0
    time.sleep(0.01)
    assert run_night("--only", "mean-ndcg").code == 0
    assert read_statuses(run_night("--only", "compare-runs", "--resume")) == {"compare-runs": "succeeded"}
    assert read_statuses(run_night("--only", "compare-runs", "--resume")) == {"compare-runs": "succeeded before"}


def test_a_missed_gate_is_told_again(folder):
    write_file(FILE.replace('output = "./metrics"', 'output = "./metrics"\ngate = ["ndcg@1>=0.9"]'))
    assert run_night().code == 3
    ended = run_night("--resume")
    assert (ended.code, read_statuses(ended)["mean-ndcg"]) == (3, "succeeded before")


def test_resume_runs_a_step_for_flagged_nights_after_a_gate_that_was_missed_before(folder):
    gate = FILE.replace('output = "./metrics"', 'output = "./metrics"\ngate = ["ndcg@1>=0.9"]')
    write_file(gate + OTHER + 'when = "flagged"\n')
    assert run_night("--only", "mean-ndcg").code == 3
    done = {"mean-ndcg": "succeeded before", "compare-runs": "succeeded", "other": "succeeded"}
    assert read_statuses(run_night("--resume")) == done


def test_resume_finds_steps_of_other_data_sets(folder):
    write_file(FILE + OTHER)
    assert run_night().code == 0
    assert set(read_statuses(run_night("--resume")).values()) == {"succeeded before"}


def test_every_step_names_the_night_and_data_set_of_its_rows_in_the_run_log(folder):
    more = "".join(f'[[step]]\ncommand = "{name}"\noutput = "./{name}"\n' for name in ("flag-changes", "report"))
    write_file(FILE + OTHER + more)
    logged = {step.name: step.request.logged_night_and_dataset for step in read_night("night.toml", NIGHT).steps}
    assert logged.pop("other") == (NIGHT, "b")
    assert set(logged.values()) == {(NIGHT, "shop")}


def test_resume_goes_by_the_last_run_that_wrote_the_tables(folder):
    """Options that are as before again: the tables hold what other options gave."""
    assert run_night().code == 0
    write_file(FILE.replace("k = [1, 3]", "k = [1]"))
    assert run_night("--only", "mean-ndcg").code == 0
    write_file(FILE)
    assert read_statuses(run_night("--resume")) == {"mean-ndcg": "succeeded", "compare-runs": "succeeded"}
    assert {row["k"] for row in read_stored_rows(folder / "metrics")} == {1, 3}


def test_to_go_on_needs_a_run_log(folder):
    write_file(FILE.replace('run-log = "./log"\n', ""))
    assert_refused(run_night("--resume"), "--resume needs a run log")


# ------------------------------------------------------------------------------------------------------ parts


@pytest.mark.parametrize(
    ("codes", "code"),
    [([], 0), ([0, 3], 3), ([3, 2, 0], 2), ([2, 1], 1), ([1, 143], 143), ([130, 143, 1], 130)],
)
def test_the_worst_exit_code_counts(codes, code):
    assert choose_exit_code(codes) == code


def test_the_night_is_put_into_texts(folder):
    write_file(FILE.replace('output = "./metrics"', 'output = "./m/{run-date-31}"'))
    (first, _) = read_night("night.toml", NIGHT).steps
    assert first.request.targets["output"].reference == "./m/2025-12-31"
    assert first.request.run_date == NIGHT


def test_the_data_set_of_a_night_is_that_of_its_first_step(folder):
    write_file(FILE.replace('dataset = "shop"\n', ""))
    night = read_night("night.toml", NIGHT)
    assert night.dataset == "rankings"
    assert [step.request.dataset for step in night.steps] == ["rankings", "rankings"]
    assert read_night("night.toml", NIGHT, dataset="x").dataset == "x"


def test_an_option_of_a_step_is_as_on_a_command_line(folder):
    write_file(FILE.replace('input = "rankings/{run_date}.parquet"', 'input = "r.parquet"\norder = "score"'))
    with pytest.raises(InvalidParameterError, match=r"night\.toml, step 'mean-ndcg': unknown key 'order'"):
        read_night("night.toml", NIGHT)
    write_file(FILE.replace('input = "rankings/{run_date}.parquet"', 'input = "r.parquet"\norder-col = "score"'))
    with pytest.raises(InvalidParameterError, match=r"step 'mean-ndcg': --order-col has no effect"):
        read_night("night.toml", NIGHT)


def test_the_run_log_has_the_file(folder):
    assert run_night().code == 0
    (row,) = [row for row in read_stored_rows(folder / "log") if row["command"] == "nightly"]
    assert [load["command"] for load in json.loads(row["config"])["step"]] == ["mean-ndcg", "compare-runs"]
    assert [load["step"] for load in json.loads(row["steps"])] == ["mean-ndcg: succeeded", "compare-runs: succeeded"]


# -------------------------------------------------------------------------------------------------- killed nights

KILLED = """
import os, signal, sys
from ndcg_spark.jobs import runner
from ndcg_spark.main import main
from ndcg_spark.nights import work

moment, number = sys.argv[1], int(sys.argv[2])
calls = {"begin": 0, "write": 0, "end": 0}


def dying(name, call):
    def run(*arguments, **options):
        if moment == name:
            calls[name] += 1
            if calls[name] == number:
                os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)

    return run


work.run = dying("begin", work.run)
runner._write_outputs = dying("write", runner._write_outputs)
runner._print_outcome = dying("end", runner._print_outcome)
main(["nightly", "--config", "night.toml", "--run-date", "2026-01-31"])
"""


def tables(folder: Path) -> dict[str, list[str]]:
    """Rows of each table, but for the moment in which they were computed."""
    names = ("metrics", "queries", "comparisons")
    rows = {name: [row | OF_THE_MOMENT for row in read_stored_rows(folder / name)] for name in names}
    return {name: sorted(map(repr, group)) for name, group in rows.items()}


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("moment", ["begin", "write", "end"])
def test_a_killed_night_goes_on_where_it_ended(folder, tmp_path_factory, moment, number):
    """Its tables are those of an unbroken night, and at most the killed step has begun twice."""
    assert run_night().code == 0
    unbroken = tables(folder)
    for name in ("metrics", "queries", "comparisons", "log"):
        shutil.rmtree(folder / name)
    ended = subprocess.run([sys.executable, "-c", KILLED, moment, str(number)], capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    again = run_night("--resume")
    assert again.code == 0, again.err
    assert tables(folder) == unbroken
    begun = Counter(row["command"] for row in read_stored_rows(folder / "log"))
    killed = ("mean-ndcg", "compare-runs")[number - 1]
    assert begun["nightly"] == 2
    assert all(n == 1 for name, n in begun.items() if name not in ("nightly", killed))
    assert begun[killed] <= 2


@pytest.mark.slow
def test_a_terminated_night_prints_the_command_that_resumes_it(folder):
    terminated = KILLED.replace("SIGKILL", "SIGTERM").replace("main([", "sys.exit(main([").replace('31"])', '31"]))')
    ended = subprocess.run([sys.executable, "-c", terminated, "write", "1"], capture_output=True, text=True)
    assert ended.returncode == 143, ended.stderr
    resume = "to resume: ndcg-spark nightly --config night.toml --run-date 2026-01-31 --resume"
    assert ended.stderr.splitlines().count(resume) == 1
    assert run_night("--resume").code == 0
