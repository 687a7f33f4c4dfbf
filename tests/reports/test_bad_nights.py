"""Bad nights: the first lines of the job, the report and `flag-changes`.

Every night has 390 queries of two rankers: 360 of DE and 30 of US. A query has one relevant item among two, so its
NDCG@1 is 1 or 0, and a mean is a share of queries. `new` hits 180 queries of DE and 24 of US: 204 / 390 = 0.5231.
`old` hits 144 and 18: 162 / 390 = 0.4154. One night is good; the next one differs from test to test.
"""

from __future__ import annotations

import html
import math
import re
import shutil
from datetime import datetime, timedelta, timezone

import pytest
from support.main_job import assert_refused, mean_ndcg, run_command, write_table

pytestmark = [pytest.mark.usefixtures("spark"), pytest.mark.usefixtures("also_without_spark")]
BAD = datetime.now(timezone.utc).date()  # or yesterday, if a test runs after midnight: the page accepts both
GOOD = BAD - timedelta(days=1)
GOOD_DAY, BAD_DAY = (f"{day.day} {day:%B %Y}" for day in (GOOD, BAD))
QUERIES = {"DE": 360, "US": 30}
HITS = {"new": {"DE": 180, "US": 24}, "old": {"DE": 144, "US": 18}}


def build_rows(hits, queries=QUERIES):
    """Rows of a night; hits are spread evenly over the queries of a segment."""
    rows = []
    for run, by_country in hits.items():
        for country, n in queries.items():
            for at in range(n):
                hit = (at + 1) * by_country[country] // n > at * by_country[country] // n
                for item, relevance in (("x", 1.0), ("y", 0.0)):
                    score = 2.0 if (item == "x") is hit else 1.0
                    rows.append((run, f"{country}{at}", item, score, relevance, country))
    names = ("run", "query_id", "item_id", "score", "relevance", "country")
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def run_job(folder, night, columns, *more):
    """Run the nightly job."""
    rankings = write_table(folder / "rankings" / f"{night}.parquet", columns)
    ended = mean_ndcg("--input", rankings, "--run-col", "run", "--segment-cols", "country", "--k", "1",
                      "--on-invalid", "reject", "--run-date", night, "--dataset", "shop", "--output",
                      folder / "metrics", "--per-query-output", folder / "queries", *more)  # fmt: skip
    assert ended.code == 0, ended.err
    return ended.out.splitlines()


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A good night."""
    folder = tmp_path_factory.mktemp("good")
    run_job(folder, GOOD, build_rows(HITS))
    return folder


@pytest.fixture
def folder(good, tmp_path):
    """A copy of the good night, to which tests add a bad one."""
    shutil.copytree(good, tmp_path, dirs_exist_ok=True)
    return tmp_path


def write_report(folder, *options):
    """Write the page; return exit code, output lines, first paragraph of the page, and its lines with a cross."""
    page = folder / "report.html"
    ended = run_command("report", "--metrics", folder / "metrics", "--output", page, *options)
    assert ended.complaints == []
    answer = html.unescape(page.read_text(encoding="utf-8").partition("<nav")[0])
    leads = re.findall(r'<p class="lead"><bdi>(.*?)</bdi>', answer)
    crosses = re.findall(r'<li class="bad">.*?<span><bdi>(.*?)</bdi>', answer)
    assert ended.out.splitlines()[0] == leads[0]
    return ended.code, ended.out.splitlines(), leads[0], crosses


def run_flag_changes(folder, *options):
    """Run `flag-changes`; return exit code and output lines."""
    ended = run_command("flag-changes", "--input", folder / "metrics", "--fail-on-flag", *options)
    assert ended.complaints == []
    return ended.code, ended.out.splitlines()


def test_a_ranker_collapses_in_one_segment(folder):
    """US falls from 24 to 0 of 30 hits, all queries from 204 to 180 of 390: .0615 less, within an error of .0703."""
    lines = run_job(folder, BAD, build_rows({**HITS, "new": {"DE": 180, "US": 0}}), "--gate", "old: ndcg@1>=0.41")
    assert lines[-1] == "gate old: ndcg@1>=0.41: met (old: 0.415385)"
    change = "0.462, no clear change"
    code, lines, lead, crosses = write_report(folder, "--gate", "old: ndcg@1>=0.41")
    assert lead == f"new: NDCG@1 in country=US fell from 0.800 to 0.000 (30 queries); overall {change}"
    assert (code, lines[1:], crosses) == (0, ["gate old: ndcg@1>=0.41: met (old: 0.415385)"], [])
    code, lines, lead, crosses = write_report(folder, "--gate", "new: ndcg@1>=0.5")
    assert lead == f"new: gate ndcg@1>=0.5 is not met; NDCG@1 {change}; country=US fell from 0.800 to 0.000"
    assert (code, lines[1:]) == (3, ["gate new: ndcg@1>=0.5: NOT MET (new: 0.461538)"])
    assert crosses == []  # the headline says all


def test_a_segment_is_empty(folder):
    run_job(folder, BAD, build_rows(HITS, {"DE": 360}))
    code, _, lead, crosses = write_report(folder)
    what = "{}: no queries in country=US; NDCG@1 was {} over 30 queries on the night before"
    assert (code, lead) == (0, what.format("new", "0.800"))
    assert crosses == [f"{what.format('old', '0.600')}."]
    assert (folder / "report.html").read_text(encoding="utf-8").count('<span class="worse">no value</span>') == 2
    its_last = "US has no value on {}; its last was {} over 30 queries on {}"
    assert run_flag_changes(folder) == (
        3,
        [
            f"night {BAD}, 6 series: 2 missing, 4 without a clear change",
            f"FLAG missing: ndcg@1 of run 'new', country={its_last.format(BAD, '0.800000', GOOD)}",
            f"FLAG missing: ndcg@1 of run 'old', country={its_last.format(BAD, '0.600000', GOOD)}",
        ],
    )


def test_the_baseline_did_not_run(folder):
    """Nothing was compared that night, so the page has no comparison; `flag-changes` comes after it here."""
    compare = ("compare-runs", "--per-query", folder / "queries", "--baseline", "old", "--dataset", "shop",
               "--output", folder / "compared", "--replicates", "0", "--flips", "0", "--run-date")  # fmt: skip
    assert run_command(*compare, GOOD).code == 0
    assert run_flag_changes(folder, "--output", folder / "flags", "--to", GOOD)[0] == 0
    run_job(folder, BAD, build_rows({"new": HITS["new"]}))
    assert_refused(run_command(*compare, BAD), f"has no rows of run 'old' of the night {BAD}; its runs are 'new'")
    options = ("--per-query", folder / "queries", "--baseline", "old", "--gate", "old: ndcg@1>=0.4", "--flags",
               folder / "flags", "--comparison", folder / "compared")  # fmt: skip
    code, lines, lead, crosses = write_report(folder, *options)
    assert lead == f"old has no rows on {BAD_DAY}; NDCG@1 was 0.415 over 390 queries on the night before"
    assert (code, lines[1:]) == (3, ["gate old: ndcg@1>=0.4: NOT MET (old: -)"])
    assert crosses == [
        "Gate old: ndcg@1>=0.4 is not met: there is no value.",
        f"The table of flags has no rows of {BAD_DAY}: it was not judged; its last night is {GOOD_DAY}.",
    ]
    page = (folder / "report.html").read_text("utf-8")
    assert f"<bdi>The comparison table has no rows of {BAD_DAY}; its last night is {GOOD_DAY}.</bdi>" in page
    alone = run_command("report", "--metrics", folder / "metrics", "--run", "old", "--output", folder / "old.html")
    assert_refused(alone, f"run 'old' has no rows of data set 'shop' on {BAD}; its last night is {GOOD}.")
    code, lines = run_flag_changes(folder)
    assert (code, lines[0]) == (3, f"night {BAD}, 4 series: 1 missing, 3 without a clear change")
    its_last = f"0.415385 over 390 queries on {GOOD}"
    assert lines[1:] == [f"FLAG missing: ndcg@1 of run 'old', overall has no value on {BAD}; its last was {its_last}"]


def test_half_of_the_rows_are_rejected(folder):
    """Two queries of four have no scores: 196 of 390 are left, and of `new` 90 + 12 hits."""
    columns = build_rows(HITS)
    spoilt = [int(query[2:]) % 4 >= 2 for query in columns["query_id"]]
    columns["score"] = [math.nan if is_bad else score for score, is_bad in zip(columns["score"], spoilt, strict=True)]
    lines = run_job(folder, BAD, columns, "--json", folder / "night.json")
    assert lines[-2:] == [
        "776 rejected: nan_score 776; 388 queries lost all their rows",
        "49.7% of the rows were rejected; --max-reject-fraction refuses such a night",
    ]
    code, _, lead, crosses = write_report(folder, "--summary", folder / "night.json")
    what = (
        "{}: 388 of 780 rows (49.7\u00a0%, usually 0.0\u00a0%) were rejected as bad, most for nan_score; 196 queries "
        "in the mean, 390 on the night before"
    )
    assert (code, lead, crosses) == (0, what.format("new"), [f"{what.format('old')}."])


def test_a_third_of_the_lists_arrived(tmp_path):
    """Judged queries without a list count as 0, so all 390 are in the mean. Both rankers have the lists of 130."""
    columns = build_rows(HITS)
    rows = list(zip(*columns.values(), strict=True))
    judged = list(dict.fromkeys((query, item, relevance) for _, query, item, _, relevance, _ in rows))
    names = ("query_id", "item_id", "relevance")
    judgments = write_table(
        tmp_path / "judgments.parquet", dict(zip(names, map(list, zip(*judged, strict=True)), strict=True))
    )

    def run_night(night, kept):
        names = ("run", "query_id", "item_id", "score", "country")
        lists = [(*row[:4], row[5]) for row in rows if int(row[1][2:]) % 3 in kept]
        return run_job(tmp_path, night, dict(zip(names, map(list, zip(*lists, strict=True)), strict=True)),
                       "--judgments", judgments, "--relevance-col", "relevance")  # fmt: skip

    nights = [BAD - timedelta(days=back) for back in (2, 1, 0)]
    run_night(nights[0], {0, 1, 2})
    run_night(nights[1], {0})
    code, _, lead, crosses = write_report(tmp_path, "--run-date", nights[1], "--gate", "ndcg@1>=0.3")
    only = "{}: only 130 of 390 queries in the mean have a list, 390 on the night before"
    assert (code, lead) == (3, only.format("new"))
    assert crosses[0] == f"{only.format('old')}."
    # Queries without a list are worth 0, too, but show nothing of a ranking.
    page = ("--run-date", nights[1], "--per-query", tmp_path / "queries")
    assert write_report(tmp_path, *page)[0] == 0
    worst = (tmp_path / "report.html").read_text("utf-8").partition("<h3>Lowest")[2].partition("</section>")[0]
    queries = re.findall(r"(?:DE|US)(\d+)<", worst)
    assert len(queries) == 20
    assert all(int(query) % 3 == 0 for query in queries)
    gates = [line.partition(":")[0] for line in crosses if "Gate" in line]
    assert sorted(gates) == [f"Gate ndcg@1>=0.3 is not met for {run}" for run in ("new", "old")]
    flags = ("--per-query", tmp_path / "queries", "--output", tmp_path / "flags", "--to")
    code, lines = run_flag_changes(tmp_path, *flags, nights[1])
    assert (code, {line.partition(":")[0] for line in lines[1:-1]}) == (3, {"FLAG low"})
    # On the next night nothing is new: that night is passed over, and its queries of no country are not missed.
    run_night(nights[2], {0, 1, 2})
    code, lines = run_flag_changes(tmp_path, *flags, nights[2])
    assert (code, [line for line in lines if "FLAG" in line or "recovered" in line]) == (0, [])
    code, _, lead, crosses = write_report(tmp_path, "--flags", tmp_path / "flags")
    before = f"{nights[0].day} {nights[0]:%B %Y}"
    assert (code, crosses) == (0, [])
    assert lead.endswith(f"no clear change from {before} (0.000)")


def test_a_third_of_the_rows_arrived_with_the_same_means(folder):
    """A third of the queries of each country, and of their hits: the means stay, but the night is flagged and bad."""
    third = {run: {country: n // 3 for country, n in hits.items()} for run, hits in HITS.items()}
    run_job(folder, BAD, build_rows(third, {"DE": 120, "US": 10}))
    few = "FLAG few queries: ndcg@1 of run '{}', overall has 130 queries with a list in its mean on {}, 390 before"
    code, lines = run_flag_changes(folder)
    assert (code, lines[1:]) == (3, [few.format(run, BAD) for run in HITS])
    code, _, lead, crosses = write_report(folder)
    only = "{}: only 130 queries in the mean, 390 on the night before"
    assert (code, lead, crosses) == (0, only.format("new"), [f"{only.format('old')}."])
    # With the loss of one ranker alone, the night is bad whichever is in production.
    part = build_rows({"old": third["old"]}, {"DE": 120, "US": 10})
    whole = build_rows({"new": HITS["new"]})
    run_job(folder, BAD, {name: [*whole[name], *part[name]] for name in whole})
    compared = ("--dataset", "shop", "--run-date", BAD, "--replicates", "0", "--flips", "0")
    compared = (*compared, "--baseline", "old", "--output", folder / "compared")
    assert run_command("compare-runs", "--per-query", folder / "queries", *compared).code == 0
    page = ("--production", "new", "--comparison", folder / "compared", "--per-query", folder / "queries")
    assert write_report(folder, *page)[2] == only.format("old")
    assert "counted as 0, while old lost queries" in html.unescape((folder / "report.html").read_text("utf-8"))


def test_the_night_is_missing(tmp_path):
    """The job of the last night did not run. Jobs that name the night are refused; others report its absence."""
    today = datetime.now(timezone.utc).date()
    last, missing = today - timedelta(days=2), today - timedelta(days=1)
    run_job(tmp_path, last, build_rows(HITS))
    code, _, lead, _ = write_report(tmp_path)
    days = [f"{day.day} {day:%B %Y}" for day in (last, today)]
    assert (code, lead) == (0, f"The last night in the table is {days[0]}, 2 nights before {days[1]}")
    code, lines = run_flag_changes(tmp_path)
    judged = f"the last night in the table is {last}, 2 nights before {today}; this night is judged"
    assert (code, lines[0]) == (0, judged)
    page = tmp_path / "other.html"
    ended = run_command("report", "--metrics", tmp_path / "metrics", "--run-date", missing, "--output", page)
    assert_refused(ended, f"no rows of data set 'shop' on {missing}; its last night is {last}, 1 night before")
    assert not page.exists()
    ended = run_command("flag-changes", "--input", tmp_path / "metrics", "--from", missing, "--to", missing)
    its_nights = f"from {missing} to {missing}; its nights are from {last} to {last}, 1 night before"
    assert_refused(ended, f"has no night {its_nights}")
    ended = run_command(
        "compare-runs", "--per-query", tmp_path / "queries", "--baseline", "old", "--run-date", missing
    )
    assert_refused(ended, f"has no rows of the night {missing}", f"it has the night {last}")
