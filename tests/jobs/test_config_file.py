"""`--config FILE` and `--print-config`: what a file may say, that flags win, and refusals in one line."""

from __future__ import annotations

import datetime
import json
import shlex
from pathlib import Path
from typing import Any

import click
import pytest

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.jobs.options import read_config_file
from ndcg_spark.main import cli, main

FILE = """
run-date = 2026-01-31
dataset = "search"

[mean-ndcg]
input = "prod.rankings"
input-option = ["header=true", "sep=|"]
segment-cols = ["country", "country+device"]
k = [5, 10]
confidence = 0.9
tie-bounds = true
item_col = ""
gate = ["ndcg@10>=0.4", "ndcg@5>=0.3"]

[build-judgments]
input = "prod.events"

[build-judgments.events]
half-life = 30
min-impressions = 3
"""


def context_of(*names: str) -> click.Context:
    """The context in which a command below the root reads its options."""
    context, command = click.Context(cli, info_name="ndcg-spark", **cli.context_settings), cli
    for name in names:
        command = command.commands[name]
        context = click.Context(command, parent=context, info_name=name)
    return context


def parsed(*words: str) -> dict[str, Any]:
    """The options that `mean-ndcg` gets."""
    root = click.Context(cli, info_name="ndcg-spark", **cli.context_settings)
    return cli.commands["mean-ndcg"].make_context("mean-ndcg", list(words), parent=root).params


def written(folder: Path, text: str) -> str:
    path = folder / "run.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_file_says_what_flags_say(tmp_path: Path) -> None:
    flags = shlex.split(
        "--run-date 2026-01-31 --dataset search --input prod.rankings --input-option header=true "
        "--input-option 'sep=|' --segment-cols country,country+device --k 5,10 --confidence 0.9 --tie-bounds "
        "--gate 'ndcg@10>=0.4' --gate 'ndcg@5>=0.3'"
    )
    assert parsed("--config", written(tmp_path, FILE)) == parsed(*flags, "--item-col", "")


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    words = ["--k", "3", "--gate", "ndcg@3>=0.1", "--dataset", "web", "--confidence", "0.8"]
    for order in ([*words, "--config"], ["--config"]):
        path = written(tmp_path, FILE)
        actual = parsed(*order, path, *([] if len(order) > 1 else words))
        assert (actual["k"], actual["gate"], actual["dataset"], actual["confidence"]) == (
            "3", ("ndcg@3>=0.1",), "web", 0.8,
        )  # fmt: skip
        assert actual["input"] == "prod.rankings"


def test_a_command_within_a_command_has_a_table_within_a_table(tmp_path: Path) -> None:
    actual = read_config_file(written(tmp_path, FILE), context_of("build-judgments", "events"))
    assert actual == {
        "run_date": "2026-01-31", "dataset": "search", "input": "prod.events", "half_life": 30, "min_impressions": 3,
    }  # fmt: skip


def test_tables_win_over_keys_outside_of_them(tmp_path: Path) -> None:
    path = written(tmp_path, 'k = 10\nmetrics = "ap"\n[mean-ndcg]\nk = "5"')
    assert read_config_file(path, context_of("mean-ndcg")) == {"k": "5", "metrics": "ap"}


def test_keys_outside_of_tables_hold_for_commands_that_have_them(tmp_path: Path) -> None:
    path = written(tmp_path, 'dataset = "search"\nk = 10\nrun-log = "log"')
    assert read_config_file(path, context_of("diagnose", "runs")) == {"k": "10", "run_log": "log"}


def all_commands(command: click.Command = cli, names: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        return [names]
    return [actual for name, one in command.commands.items() for actual in all_commands(one, (*names, name))]


@pytest.mark.parametrize("names", all_commands(), ids=" ".join)
def test_options_of_a_run_log_are_a_file(tmp_path: Path, names: tuple[str, ...]) -> None:
    """Its column `config` has the names of parameters: `start` for `--from`."""
    context = context_of(*names)
    options = {
        param.name: "2026-01-31" for param in context.command.params
        if type(param.type).__name__ == "StringParamType" and not param.multiple and param.name != "config"
    }  # fmt: skip
    path = written(tmp_path, "".join(f"{name} = {json.dumps(value)}\n" for name, value in options.items()))
    assert read_config_file(path, context) == options


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('inptu = "x"', "unknown key 'inptu' (did you mean 'input'?); keys are the options of mean-ndcg"),
        ("zzz = 1", "unknown key 'zzz'; keys are the options of mean-ndcg (they are allow-empty, "),
        ("config = 'a.toml'", "unknown key 'config'"),
        ("[mean-ndgc]\nk = 1", "[mean-ndgc] is not a command (did you mean 'mean-ndcg'?)"),
        ("[mean-ndcg.inner]\nk = 1", "[inner] is not a command"),
        ("[mean-ndcg]\nhalf-life = 3", "unknown key 'half-life'"),
        ('run-date = "2026-01-31"\nrun_date = "2026-02-01"', "'run-date' and 'run_date' are the same option"),
        ('tie-bounds = "yes"', "'tie-bounds' must be true or false; got \"yes\""),
        ('gate = "ndcg@10>=0.4"', "'gate' must be an array of text; got \"ndcg@10>=0.4\""),
        ('confidence = "high"', "'confidence' must be a number; got \"high\""),
        ("confidence = true", "'confidence' must be a number; got true"),
        ('input = ["a", "b"]', '\'input\' must be text; got ["a", "b"]'),
        ("k = true", "'k' must be text or an array; got true"),
        ("k = [[5], [10]]", "'k' must be text or an array; got [[5], [10]]"),
        ("k = {a = 1}", "[k] is not a command"),
        ('on-invalid = "ignore"', "'on-invalid': 'ignore' is not one of 'fail', 'reject'"),
        ("k = ", "is not valid TOML: Invalid value (at end of document)"),
        ("k = 1\nk = 2", "is not valid TOML: Cannot overwrite a value"),
    ],
)
def test_what_a_file_may_not_say(tmp_path: Path, capsys: pytest.CaptureFixture, text: str, message: str) -> None:
    path = written(tmp_path, text)
    assert main(["mean-ndcg", "--config", path, "--input", "x"], prog="job") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith((f"job: {path}: ", f"job: {path} is not valid TOML: "))
    assert message in err
    assert err.count("\n") == 1


def test_a_whole_number_is_no_fraction(tmp_path: Path) -> None:
    path = written(tmp_path, "min-impressions = 1.5")
    with pytest.raises(InvalidParameterError, match="'min-impressions' must be a whole number"):
        read_config_file(path, context_of("build-judgments", "events"))


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_a_file_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture, name: str) -> None:
    assert main(["mean-ndcg", "--config", str(tmp_path / name)]) == 2
    assert "cannot be read: " in capsys.readouterr().err


def test_a_file_that_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "run.toml").write_bytes(b"k = '\xff'")
    assert main(["mean-ndcg", "--config", str(tmp_path / "run.toml")]) == 2
    assert " is not valid TOML: " in capsys.readouterr().err


def commands_below(group: click.Group, names: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    actual = []
    for name, one in group.commands.items():
        actual += commands_below(one, (*names, name)) if isinstance(one, click.Group) else [(*names, name)]
    return actual


JOBS = [
    names for names in commands_below(cli) if names not in [("conventions",), ("metrics",), ("nightly",), ("init",)]
]


@pytest.mark.parametrize("names", JOBS, ids=" ".join)
def test_every_option_of_every_job_can_stand_in_a_file(tmp_path: Path, names: tuple[str, ...]) -> None:
    context = context_of(*names)
    lines, expected = [], {}
    for option in context.command.params:
        name = str(option.name)
        if name in ("config", "print_config", "help"):
            continue
        given: Any = "x=1"
        if option.is_flag:
            given = True
        elif option.multiple:
            given = ["a=1", "b=2"]
        elif isinstance(option.type, click.Choice):
            given = next(iter(option.type.choices))
        elif option.type.name in ("integer", "float"):
            given = 3
        lines.append(f"{option.opts[0][2:]} = {str(given).lower() if given is True else repr(given)}")
        expected[name] = given
    assert {"run_log", "run_log_format", "log_format", "conf"} <= set(expected)
    assert read_config_file(written(tmp_path, "\n".join(lines)), context) == expected


def test_which_options_take_an_array_for_a_list_with_commas() -> None:
    taken = [
        option.name
        for option in cli.commands["mean-ndcg"].params
        if not option.multiple and "," in (option.metavar or "")
    ]
    assert taken == ["query_col", "score_col", "ranked_cols", "segment_cols", "k", "metrics"]


def test_dates_and_times_need_no_quotes(tmp_path: Path) -> None:
    path = written(tmp_path, "as-of = 2026-01-31T18:00:00Z\nfrom = 2026-01-01")
    actual = read_config_file(path, context_of("build-judgments", "events"))
    assert actual == {"as_of": "2026-01-31T18:00:00+00:00", "start": "2026-01-01"}
    assert datetime.datetime.fromisoformat(actual["as_of"]).tzinfo is not None


# --- --print-config


def test_what_is_printed_can_be_used_again(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = [
        "--config",
        written(tmp_path, FILE),
        "--k",
        "3,all",
        "--gain",
        'table:0=0,1="1"',
        "--discount",
        "ü\x7f\\",
    ]
    assert main(["mean-ndcg", *words, "--print-config"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert 'k = "3,all"  # command line' in out.splitlines()
    assert 'dataset = "search"  # --config' in out.splitlines()
    assert 'convention = "default"' in out.splitlines()
    shown = [line.partition("  #")[0].split(" = ") for line in out.splitlines() if " = " in line]
    assert not {"config", "print-config", "help"}.intersection(key for key, _ in shown)
    assert not {"false", "[]", "null"}.intersection(value for _, value in shown)  # what is not set
    again = tmp_path / "again.toml"
    again.write_text(out, encoding="utf-8")
    assert parsed("--config", str(again)) == parsed(*words)


def test_credentials_are_not_printed(capsys: pytest.CaptureFixture) -> None:
    words = ["--input", "https://a.blob.core.windows.net/c?sig=S3CRET", "--input-option", 'password="S3 CRET"']
    assert main(["mean-ndcg", *words, "--print-config"]) == 0
    out = capsys.readouterr().out
    assert "S3" not in out
    assert 'input = "https://a.blob.core.windows.net/c?sig=***"  # command line; *** hides a credential' in out


def test_credentials_are_not_in_the_traceback_of_a_crash(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    def crash(*_: object) -> None:
        try:
            raise ValueError("jdbc:postgresql://etl:S3CRET@db/x")
        except ValueError as cause:
            raise RuntimeError("cannot connect: token=S3CRET") from cause

    monkeypatch.setattr("ndcg_spark.jobs.runner.run", crash)
    assert main(["mean-ndcg", "--input", "x"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "S3CRET" not in err
    assert err.startswith("Traceback (most recent call last):")
    assert "ValueError: jdbc:postgresql://etl:***@db/x" in err.splitlines()
    assert err.endswith("\nRuntimeError: cannot connect: token=***\n")


def test_the_format_of_log_lines_comes_from_the_environment_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setenv("NDCG_SPARK_LOG_FORMAT", "json")
    assert main(["mean-ndcg", "--input", "x", "--print-config"]) == 0
    assert 'log-format = "json"  # environment' in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--log-format", "json"], ["--log-format=json"]], ids=" ".join)
def test_what_is_wrong_with_an_option_is_logged_in_the_format_too(capsys: pytest.CaptureFixture, words) -> None:
    for wrong in (["--config", "missing.toml"], ["--bogus"]):
        assert main(["mean-ndcg", *wrong, *words]) == 2
        line = json.loads(capsys.readouterr().err)
        assert (line["level"], line["context"]) == ("ERROR", {"exit_code": 2})
