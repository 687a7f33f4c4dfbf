"""`position-bias`: output, its use by the main job, counts and refusals."""

from __future__ import annotations

import pyarrow as pa
import pytest
from support.clicks import N_ITEMS, simulate_clicks
from support.main_job import (
    assert_refused,
    find_value,
    read_files,
    read_stored_rows,
    run_command,
    run_mean_ndcg,
    write_table,
)

NIGHT = ("--run-date", "2026-03-01", "--dataset", "shop")
NAMES = ("query_id", "item_id", "position", "click")


def write(path, rows, names=NAMES, types=()):
    return write_table(path, dict(zip(names, zip(*rows, strict=True), strict=True)), dict(types))


def position_bias(*arguments):
    return run_command("position-bias", *arguments)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("position_bias")


@pytest.fixture(scope="module")
def log(folder):
    """The simulated impressions."""
    rows = [(f"q{q}", f"i{x}", k + 1, c, bool(e)) for q, x, k, c, e in simulate_clicks().rows.tolist()]
    return write(folder / "log.parquet", rows, (*NAMES, "explored"))


@pytest.fixture(scope="module")
def rankings(folder):
    """Rankings A and B."""
    paths = []
    for name, order in (("a", simulate_clicks().order_a), ("b", simulate_clicks().order_b)):
        rows = [(f"q{q}", f"i{x}", -float(at)) for q, items in enumerate(order) for at, x in enumerate(items)]
        paths.append(write(folder / f"{name}.parquet", rows, ("query_id", "item_id", "score")))
    return paths


FOUR = [("q1", "a", 1, 1.0, 1.0), ("q2", "a", 2, 0.0, 0.5), ("q3", "a", 5, 1.0, 0.2), ("q4", "a", 9, 1.0, 0.1)]


@pytest.fixture(scope="module")
def four(folder):
    return write(folder / "four.parquet", FOUR, (*NAMES, "p"))


# ------------------------------------------------------------------------------------------------ what it writes


@pytest.mark.usefixtures("spark")
def test_from_clicks_to_corrected_dcg_in_three_commands(log, rankings, tmp_path):
    """Naive labels rank B below A; the truth and the corrected labels rank it above."""
    written = ("--output", tmp_path / "propensities", *NIGHT)
    ended = position_bias("propensities", "--input", log, *written, "--json", "-")
    assert (ended.code, ended.complaints) == (0, [])
    assert (ended.json["n_iterations"], ended.json["converged"]) == (569, True)
    assert len(ended.json["log_likelihood"]) == 570
    assert "log-likelihood after step 500: " in ended.out
    assert "EM: converged after 569 steps" in ended.out
    actual = {row["position"]: row["propensity"] for row in read_stored_rows(tmp_path / "propensities")}
    assert actual[2] == pytest.approx(0.494810392287, abs=1e-3)
    propensities = tmp_path / "propensities" / "run_date=2026-03-01"
    ended = position_bias(
        *("judgments", "--input", log, "--propensities", propensities, "--output", tmp_path / "labels", *NIGHT)
    )
    assert (ended.code, ended.complaints) == (0, [])
    assert "judgments: 300" in ended.out
    assert "impressions: 60,000 used, 0 rejected" in ended.out
    values = {}
    for label in ("relevance", "uncorrected"):
        for name, run in zip("ab", rankings, strict=True):
            judged = ("--judgments", tmp_path / "labels", "--relevance-col", label, "--convention", "linear")
            outcome = run_mean_ndcg("--input", run, *judged, "--k", N_ITEMS, "--json", "-").json
            values[label, name] = find_value(outcome, "dcg", N_ITEMS)
    assert values["uncorrected", "b"] - values["uncorrected", "a"] == pytest.approx(-0.046239761527, abs=1e-12)
    assert values["relevance", "b"] - values["relevance", "a"] == pytest.approx(0.170232402923, abs=1e-3)


ACTIONS = ("--propensity-of", "action")


@pytest.mark.usefixtures("spark")
def test_estimates(four, tmp_path):
    written = ("--output", tmp_path / "estimates", *NIGHT)
    ended = position_bias("estimates", "--input", four, "--propensity-col", "p", *ACTIONS, *written, "--json", "-")
    assert (ended.code, ended.complaints) == (0, [])
    (row,) = ended.json["estimates"]
    assert (row["ips"], row["snips"], row["n_eff"]) == pytest.approx((4, 8 / 9, 2.492307692308), abs=1e-12)
    (stored,) = read_stored_rows(tmp_path / "estimates")
    assert stored["ips_std_error"] == pytest.approx(2.273030282831, abs=1e-12)
    assert ended.out.startswith("overall queries=4  ips 4.000000 [-3.233797, 11.233797]  snips 0.888889 ")
    assert "SNIPS" not in ended.out
    ended = position_bias("estimates", "--input", four, "--power", 1)
    assert "snips -  n_eff" in ended.out
    assert "no SNIPS: these are propensities of positions" in ended.out
    refused = position_bias("estimates", "--input", four, "--power", 1, *ACTIONS)
    assert_refused(refused, "--propensity-of action needs a propensity column (--propensity-col)")
    ended = position_bias("estimates", "--input", four, "--propensity-col", "p", "--clip", 4, "--segment-cols",
                          "item_id,position+item_id", "--run-col", "query_id", "--query-col", "query_id", "--json",
                          "-")  # fmt: skip
    assert {row["run"]: row["ips"] for row in ended.json["estimates"]} == {"q1": 1.0, "q2": 0.0, "q3": 4.0, "q4": 4.0}
    assert len(ended.json["estimates"]) == 12


@pytest.mark.usefixtures("spark")
def test_warnings(folder):
    shown = [("q", item, position, int(at < clicks)) for item, position, clicks in
             (("a", 1, 2), ("a", 2, 4), ("b", 3, 5)) for at in range(10)]  # fmt: skip
    path = write(folder / "short.parquet", shown)
    ended = position_bias("propensities", "--input", path, "--max-iter", 2)
    assert ended.code == 0
    of_pairs = position_bias("propensities", "--input", path, "--method", "pairs", "--json", "-")
    assert of_pairs.json["positions"][1]["ratio"] == 2.0
    assert "log-likelihood" not in of_pairs.out.splitlines()[0]
    unclicked = f"SELECT * FROM parquet.`{path}` WHERE click = 1 OR position > 1"
    ended_by_query = position_bias("propensities", "--input", unclicked, "--method", "randomized", "--json", "-")
    assert ended_by_query.json["positions"][2]["propensity"] == 0.5  # 5 of 10, and 2 of 2
    above, missing, steps = ended.complaints
    assert above.startswith("warning: estimated above 1, so set to 1, at position 2 (1.")
    assert missing == "warning: no propensity for position 3 (no_chain); impressions there will be bad rows"
    assert "not converged in 2 steps" in steps
    assert "position 3: - (5 clicks of 10 impressions)" in ended.out


@pytest.mark.usefixtures("spark")
def test_csv(folder):
    path = write(folder / "log.csv", [("007", "a", 1, 1), ("007", "b", 2, 1), ("007", "b", 2, 0)])
    ended = position_bias("judgments", "--input", path, "--power", 1, "--json", "-")
    assert (ended.code, ended.json["judgments"], ended.json["largest_weight"]) == (0, 2, 2.0)
    table = write(folder / "given.csv", [(1, 1.0), (2, 0.25)], ("position", "propensity"))
    ended = position_bias("judgments", "--input", path, "--propensities", table, "--clip", 3, "--json", "-")
    assert (ended.json["largest_weight"], ended.json["n_clipped"]) == (3.0, 2)
    bad = write(folder / "bad.csv", [("007", "a", 1, 1), ("007", "b", "second", 1), ("007", "c", 2, "yes")])
    reasons = ("position_not_a_number 1", "click_not_a_number 1")
    for makes in (("judgments", "--power", 1), ("propensities",)):
        assert_refused(position_bias(*makes, "--input", bad), "2 bad rows of 3", *reasons, "query_id=007")


@pytest.mark.usefixtures("spark")
def test_explain_runs_nothing(four, tmp_path):
    written = ("--output", tmp_path / "out", "--explain")
    for options in (
        ("propensities",),
        ("judgments", "--power", 1),
        ("estimates", "--propensity-col", "p"),
    ):
        ended = position_bias(*options, "--input", four, *written)
        assert (ended.code, ended.complaints) == (0, [])
        assert f"would write  {options[0]} to {tmp_path / 'out'}" in ended.out
        assert ended.out.endswith("Nothing was run.\n")
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------------------------------- bad rows

BAD = [
    ((None, "a", 1, 1.0, 0.5), "null_query"),
    (("q", None, 1, 1.0, 0.5), "null_item"),
    (("q", "a", 1, None, 0.5), "null_click"),
    (("q", "a", 1, float("nan"), 0.5), "nan_click"),
    (("q", "a", 1, float("inf"), 0.5), "infinite_click"),
    (("q", "a", 1, 1.0, None), "null_propensity"),
    (("q", "a", 1, 1.0, float("nan")), "nan_propensity"),
    (("q", "a", 1, 1.0, 0.0), "propensity_not_above_0"),
    (("q", "a", 1, 1.0, 1.5), "propensity_above_1"),
]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("makes", ["judgments", "estimates"])
def test_bad_rows_stop_the_job_or_are_counted(folder, tmp_path, makes):
    path = write(folder / "bad.parquet", [*FOUR, *[row for row, _ in BAD]], (*NAMES, "p"), {"p": pa.float64()})
    reasons = [reason for _, reason in BAD]
    options = (makes, "--input", path, "--propensity-col", "p")
    outputs = ("--output", tmp_path / "out", "--json", tmp_path / "out.json")
    assert_refused(position_bias(*options, *outputs), "9 bad rows of 13 in the impressions", *reasons)
    assert list(tmp_path.iterdir()) == []
    rejecting = ("--on-invalid", "reject", "--rejects", tmp_path / "rejects")
    ended = position_bias(*options, *outputs[:2], *rejecting, "--json", "-")
    assert ended.json["rows"] == {
        **{"rejected": 9, "rejected_by_reason": dict.fromkeys(sorted(reasons), 1), "impressions": 4}
    }
    rejects = read_stored_rows(tmp_path / "rejects")
    assert sorted(row["reason"] for row in rejects) == sorted(reasons)
    assert all('"p":' in row["row"] and "given" not in row["row"] for row in rejects)
    limited = position_bias(*options, "--on-invalid", "reject", "--max-reject-fraction", 0.1)
    assert_refused(limited, "9 bad rows of 13", "--max-reject-fraction 0.1")


@pytest.mark.usefixtures("spark")
def test_empty_results_do_not_replace_stored_ones(four, tmp_path):
    for options in (
        ("judgments", "--propensity-col", "p"),
        ("estimates", "--propensity-col", "p"),
        ("propensities",),
    ):
        place = tmp_path / options[0]
        written = (*NIGHT, "--output", place)
        assert position_bias(*options, "--input", four, *written).code == 0
        before = read_files(place)
        assert before
        nothing = f"SELECT * FROM parquet.`{four}` WHERE position > 100"
        assert_refused(position_bias(*options, "--input", nothing, *written), "no impressions", "--allow-empty")
        assert read_files(place) == before
        assert position_bias(*options, "--input", nothing, *written, "--allow-empty").code == 0
        assert read_stored_rows(place) == []


# --------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("judgments",), ("one of a column, a table, or a power", "none")),
        (("judgments", "--power", 1, "--propensity-col", "p"), ("a propensity column and a power",)),
        (("judgments", "--power", -1), ("power", "-1")),
        (("judgments", "--power", 1, "--clip", 0.5), ("clip", "0.5")),
        (("judgments", "--power", 1, "--rejects", "r"), ("--rejects", "--on-invalid reject")),
        (("judgments", "--power", 1, "--output", "nowhere/at/all"), ("--input", "--output")),
        (("judgments", "--propensities", "p", "--output", "p"), ("--propensities", "--output", "'p'")),
        (("judgments", "--power", 1, "--json", "/no/such/folder/out.json"), ("--json",)),
        (("estimates", "--power", 1, "--confidence", 2), ("confidence", "2")),
        (("propensities", "--method", "em"), ("--method", "'em'", "pbm")),
        (("propensities", "--tolerance", 0), ("tolerance", "0")),
        (("propensities", "--max-iter", 0), ("--max-iter 0",)),
        (("propensities", "--query-col", "a,a"), ("a, a",)),
        (("propensities", "--clip", 3), ("--clip",)),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_bad_option_is_refused(options, named):
    assert_refused(position_bias(*options, "--input", "nowhere/at/all"), *named)


@pytest.mark.usefixtures("spark")
def test_unsuitable_tables_are_refused(four, log, folder):
    judged = ("judgments", "--propensity-col", "p", "--input")
    wrong = write(folder / "wrong.parquet", [(1, 0.5)], ("rank", "propensity"))
    refused = {
        position_bias(*judged, log): ("'p'", "propensity-col"),
        position_bias(*judged, four, "--click-col", "item_id"): ("'item_id'", "not a number"),
        position_bias("estimates", "--input", four, "--power", 1, "--segment-cols", "land"): (
            "'land'",
            "segment-cols",
        ),
        position_bias("judgments", "--input", four, "--propensities", wrong): ("'position'", "table of propensities"),
        position_bias("propensities", "--input", four, "--output", four): (str(four),),
        position_bias("propensities", "--input", "/no/such/folder"): ("'/no/such/folder'",),
    }
    for ended, named in refused.items():
        assert_refused(ended, *named)


@pytest.mark.parametrize("words", [(), ("clicks",)], ids=len)
def test_unknown_commands_are_refused(words):
    assert_refused(run_command("position-bias", *words), *(f"'{word}'" for word in words), "ommand")
