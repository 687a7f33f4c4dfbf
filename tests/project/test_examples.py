"""Files of docs/examples work: their arguments parse, their programs run.

Options of spark-submit are read from its own `--help`. Nothing here needs a cluster, Airflow or Databricks.
"""

from __future__ import annotations

import ast
import importlib.util
import math
import os
import re
import stat
import subprocess
from argparse import Namespace
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
import pytest
import yaml

from ndcg_spark.main import cli, main
from ndcg_spark.nights.steps import Night, read_night

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
NIGHT = "2026-01-31"
CONFIG = EXAMPLES / "night_tables.toml"
# Parameters of a DAG in the documentation of Airflow, in 2.4 and later as well as in 3.
DAG = {
    "dag_id", "description", "schedule", "start_date", "end_date", "template_searchpath", "template_undefined",
    "user_defined_macros", "user_defined_filters", "default_args", "params", "max_active_tasks", "max_active_runs",
    "dagrun_timeout", "catchup", "on_failure_callback", "on_success_callback", "access_control",
    "is_paused_upon_creation", "jinja_environment_kwargs", "render_template_as_native_obj", "tags", "owner_links",
    "auto_register", "doc_md",
}  # fmt: skip
# Parameters of BaseOperator.
TASK = {"task_id", "retries", "retry_delay"}
# Parameters of SparkSubmitOperator in apache-airflow-providers-apache-spark 5.
SPARK_SUBMIT = {
    "application", "conf", "conn_id", "files", "py_files", "archives", "driver_class_path", "jars", "java_class",
    "packages", "exclude_packages", "repositories", "total_executor_cores", "executor_cores", "executor_memory",
    "driver_memory", "keytab", "principal", "proxy_user", "name", "num_executors", "application_args", "env_vars",
    "verbose", "spark_binary", "properties_file", "yarn_queue", "deploy_mode",
}  # fmt: skip

# Settings on the pages Configuration, Running on Kubernetes, and Running on YARN of Spark's documentation.
SETTINGS = {
    "spark.driver.memory", "spark.executor.cores", "spark.executor.instances", "spark.executor.memory",
    "spark.executor.memoryOverhead", "spark.kubernetes.authenticate.driver.serviceAccountName",
    "spark.kubernetes.container.image", "spark.kubernetes.namespace", "spark.kubernetes.submission.waitAppCompletion",
    "spark.kubernetes.driver.label.submission", "spark.pyspark.driver.python", "spark.pyspark.python",
    "spark.sql.catalogImplementation", "spark.sql.execution.arrow.maxBytesPerBatch", "spark.sql.session.timeZone",
    "spark.yarn.maxAppAttempts",
}  # fmt: skip


def parse_command(words: list[str]) -> dict[str, Any]:
    """Parse a command line of `ndcg-spark` into options; raise if it would be refused."""
    command: click.Command = cli
    context = click.Context(cli, info_name="ndcg-spark", **cli.context_settings)
    while isinstance(command, click.Group):
        name, *words = words
        command = command.commands[name]
        if isinstance(command, click.Group):
            context = click.Context(command, parent=context, info_name=name)
    return command.make_context(str(command.name), words, parent=context).params


def fill_templates(words: list[str]) -> list[str]:
    """Fill in the night and the folders of this checkout, as schedulers do."""
    filled_words = []
    for word in words:
        for template in ("{{ ds }}", "{{job.parameters.run_date}}"):
            word = word.replace(template, NIGHT)
        for folder in ("${workspace.file_path}", "/opt/ndcg-spark"):
            word = word.replace(f"{folder}/{CONFIG.name}", str(CONFIG))
        assert not re.search(r"\{\{|\$\{", word), word
        filled_words.append(str(CONFIG) if word == CONFIG.name else word)
    return filled_words


def assert_runs_the_night(options: dict[str, Any]) -> Night:
    """Check that options of `nightly` run the file of catalog tables for the night; return it."""
    assert (options["config"], options["run_date"]) == (str(CONFIG), NIGHT)
    night = read_night(options["config"], date.fromisoformat(options["run_date"]), log_format=options["log_format"])
    assert night.request.run_log is not None
    assert (night.dataset, night.request.run_log.reference) == ("search", "prod.run_log")
    means = night.steps[0].request
    assert means.sources["input"].reference == f"SELECT * FROM prod.rankings WHERE run_date = DATE'{NIGHT}'"
    assert (means.settings.cutoffs, means.targets["output"].reference) == ((1, 3, 5, 10), "prod.ranking_metrics")
    return night


def parse_run_alerts(words: list[str]) -> Namespace:
    """Parse arguments of run_alerts.py; refused ones fail the test."""
    spec = importlib.util.spec_from_file_location("run_alerts", EXAMPLES / "run_alerts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.parsed(words)


def test_alerts_allow_jobs_six_hours_unless_they_run_after_all_jobs() -> None:
    assert parse_run_alerts([NIGHT]).hours == 6


@pytest.mark.parametrize("file", ["night.toml", "night_tables.toml"])
def test_files_of_a_night_are_read(capsys: pytest.CaptureFixture, file: str) -> None:
    """A page has the date in its name, so that a backfill writes one page per night."""
    assert main(["nightly", "--config", str(EXAMPLES / file), "--run-date", NIGHT, "--plan"]) == 0
    lines = capsys.readouterr().out.splitlines()
    steps = ["mean-ndcg", *(["compare-runs"] if file == "night.toml" else []), "flag-changes", "report"]
    assert [line.strip() for line in lines if re.match(r" {2}\S", line)] == steps
    assert re.search(rf"writes page: \S*{NIGHT}\.html$", lines[-1])


def test_docs_of_nights_show_the_file() -> None:
    comment, file = (EXAMPLES / "night.toml").read_text(encoding="utf-8").split("\n", 1)
    page = (EXAMPLES.parent / "operations.md").read_text(encoding="utf-8")
    assert comment.startswith("# ")
    assert re.search(r"^```toml\n(.*?)^```$", page, re.M | re.S).group(1) == file


# --- spark-submit


@pytest.fixture(scope="module")
def options_of_spark_submit() -> dict[str, bool]:
    """Options of spark-submit, and whether they take a value."""
    import pyspark

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    result = subprocess.run([submit, "--help"], capture_output=True, text=True, timeout=120)
    usage = result.stdout + result.stderr
    options = {
        flag: bool(value) for flag, value in re.findall(r"^\s+(--[a-z-]+)(?:, -\w)?,?( [A-Z]\S*)?", usage, re.M)
    }
    if not options:
        pytest.skip(f"spark-submit --help lists no options here: {usage[:200]}")
    return options


def run_script(
    script: str, folder: Path, *arguments: str, driver: str = "echo 0"
) -> subprocess.CompletedProcess[str]:
    """Run a script with a fake spark-submit that prints its arguments and writes its folder to a file.

    A fake kubectl writes its arguments to a file and runs `driver`, which prints the exit code of the driver.
    """
    submit = 'for word in "$@"; do printf "%s\\0" "$word"; done; pwd > ' + f"{folder}/started_in"
    ask = f'for word in "$@"; do printf "%s\\0" "$word"; done > {folder}/asked; {driver}'
    for name, text in (("spark-submit", submit), ("kubectl", ask)):
        fake = folder / name
        fake.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    more = {"KUBERNETES_API": "https://10.0.0.1:6443", "NDCG_SPARK_HOME": str(folder)}
    environment = os.environ | more | {"PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(
        [EXAMPLES / script, *arguments], env=environment, capture_output=True, text=True, timeout=60
    )


def list_submitted(script: str, folder: Path, *arguments: str) -> list[str]:
    """Return the arguments that a script passes to spark-submit."""
    ran = run_script(script, folder, *arguments)
    ran.check_returncode()
    return ran.stdout.split("\0")[:-1]


def split_arguments(words: list[str], options: dict[str, bool]) -> tuple[dict[str, list[str]], str, list[str]]:
    """Split arguments like spark-submit: its own options, the program, the program's arguments."""
    actual: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            return actual, word, list(rest)
        assert word in options, f"spark-submit has no option {word}"
        actual.setdefault(word, []).append(next(rest) if options[word] else "")
    raise AssertionError("there is no program to run")


@pytest.mark.slow
@pytest.mark.spark  # starts Java
@pytest.mark.classic("a client has no spark-submit")
@pytest.mark.parametrize(
    ("script", "master", "program"),
    [
        ("spark_submit_yarn.sh", "yarn", "jobs/nightly.py"),
        ("spark_submit_kubernetes.sh", "k8s://https://10.0.0.1:6443", "local:///opt/ndcg-spark/jobs/nightly.py"),
    ],
)
def test_spark_submit(
    tmp_path: Path, options_of_spark_submit: dict[str, bool], script: str, master: str, program: str
) -> None:
    assert options_of_spark_submit["--master"]
    assert not options_of_spark_submit["--verbose"]
    words = list_submitted(script, tmp_path, NIGHT, "--resume")
    options, actual, arguments = split_arguments(words, options_of_spark_submit)
    assert (options["--master"], actual) == ([master], program)
    settings = dict(option.split("=", 1) for option in options["--conf"])
    assert sorted(set(settings) - SETTINGS) == []  # Spark ignores unknown names
    assert settings["spark.sql.catalogImplementation"] == "hive"
    assert settings.get("spark.yarn.maxAppAttempts") == ("1" if master == "yarn" else None)
    options_of_job = parse_command(["nightly", *fill_templates(arguments)])
    assert options_of_job["resume"]
    assert_runs_the_night(options_of_job)


@pytest.mark.parametrize("script", ["spark_submit_yarn.sh", "spark_submit_kubernetes.sh"])
def test_scripts_name_missing_variables(tmp_path: Path, script: str) -> None:
    ran = run_script(script, tmp_path)
    assert ran.returncode != 0
    assert f"usage: {script} YYYY-MM-DD" in ran.stderr


def test_the_script_for_yarn_starts_in_the_folder_whose_files_it_names(tmp_path: Path) -> None:
    words = list_submitted("spark_submit_yarn.sh", tmp_path, NIGHT)
    assert (tmp_path / "started_in").read_text(encoding="utf-8").strip() == str(tmp_path.resolve())
    used = [words[words.index(option) + 1].split("#")[0] for option in ("--archives", "--py-files", "--config")]
    header = (EXAMPLES / "spark_submit_yarn.sh").read_text(encoding="utf-8").split("set -euo", 1)[0]
    assert used == ["environment.tar.gz", "ndcg_spark.zip", CONFIG.name]
    assert "jobs/nightly.py" in words
    assert all(f"\n#   {name} " in header for name in [*used, "jobs/"])


@pytest.mark.parametrize(
    ("driver", "code", "said"),
    [
        ("echo 0", 0, ""),
        ("printf 3", 3, ""),
        ("printf 137", 137, ""),
        ("true", 1, "the exit code of the driver is not known"),  # the pod is gone
        ("exit 2", 1, "the exit code of the driver is not known"),  # no permission
    ],
)
def test_the_script_for_kubernetes_ends_as_the_driver_did(tmp_path: Path, driver: str, code: int, said: str) -> None:
    ran = run_script("spark_submit_kubernetes.sh", tmp_path, NIGHT, driver=driver)
    assert ran.returncode == code, ran.stderr
    assert said in ran.stderr
    assert bool(said) == bool(ran.stderr)
    label = re.search(rf"spark\.kubernetes\.driver\.label\.(submission={NIGHT}-\d+-\d+)\0", ran.stdout).group(1)
    arguments = (tmp_path / "asked").read_text(encoding="utf-8").split("\0")
    assert arguments[:6] == ["get", "pods", "--namespace", "ranking", "--selector", label]
    assert arguments[7].endswith(".state.terminated.exitCode}")


# --- Airflow


def find_calls(tree: ast.AST, name: str) -> Iterator[dict[str, ast.expr]]:
    """Yield the keyword arguments of every call of a function."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield {str(keyword.arg): keyword.value for keyword in node.keywords}


def evaluate_literal(node: ast.expr, names: dict[str, Any]) -> Any:
    """Evaluate a literal of the DAG, with its constants."""
    return eval(compile(ast.Expression(node), "airflow_dag.py", "eval"), {"__builtins__": {}}, names)


@pytest.fixture(scope="module")
def dag() -> ast.Module:
    return ast.parse((EXAMPLES / "airflow_dag.py").read_text(encoding="utf-8"))


def read_constants(tree: ast.Module) -> dict[str, Any]:
    return {
        statement.targets[0].id: ast.literal_eval(statement.value)
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    }


def test_airflow(dag: ast.Module) -> None:
    """A failed night fails the run: it is its only task."""
    (arguments,) = find_calls(dag, "SparkSubmitOperator")
    assert [name for name in list_operators(dag) if name != "SparkSubmitOperator"] == []
    assert set(arguments) <= SPARK_SUBMIT | TASK
    task = {name: evaluate_literal(node, read_constants(dag)) for name, node in arguments.items()}
    assert task["deploy_mode"] == "client"  # the page is a file of the driver
    program = Path(task["application"])
    assert (program.name, (EXAMPLES.parents[1] / "jobs" / program.name).exists()) == ("nightly.py", True)
    assert_runs_the_night(parse_command(["nightly", *fill_templates(task["application_args"])]))
    assert sorted(set(task["conf"]) - SETTINGS) == []
    assert all(isinstance(value, str) for value in task["conf"].values())
    assert task["conf"]["spark.sql.catalogImplementation"] == "hive"


def list_operators(tree: ast.AST) -> list[str]:
    """Return the names of the operators that a DAG creates."""
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [node.func.id for node in nodes if isinstance(node.func, ast.Name) and node.func.id.endswith("Operator")]


def test_airflow_takes_the_arguments_of_the_dag(dag: ast.Module) -> None:
    (arguments,) = find_calls(dag, "DAG")
    assert set(arguments) <= DAG
    assert ast.literal_eval(arguments["catchup"]) is False
    assert isinstance(arguments["default_args"], ast.Dict)
    assert {ast.literal_eval(key) for key in arguments["default_args"].keys if key} <= TASK


def test_a_night_of_airflow_is_a_data_interval_in_every_version(dag: ast.Module) -> None:
    """A cron string is a CronDataIntervalTimetable in Airflow 2, a CronTriggerTimetable in 3, with another `ds`."""
    imports = {
        alias.name: node.module for node in dag.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imports["CronDataIntervalTimetable"] == "airflow.timetables.interval"
    (arguments,) = find_calls(dag, "DAG")
    schedule = arguments["schedule"]
    assert isinstance(schedule, ast.Call)
    assert ast.unparse(schedule.func) == "CronDataIntervalTimetable"
    (cron,) = (ast.literal_eval(arg) for arg in schedule.args)
    assert len(cron.split()) == 5
    assert {keyword.arg: ast.literal_eval(keyword.value) for keyword in schedule.keywords} == {"timezone": "UTC"}


# --- Databricks


@pytest.fixture(scope="module")
def bundle() -> dict[str, Any]:
    return yaml.safe_load((EXAMPLES / "databricks.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def databricks_job(bundle: dict[str, Any]) -> dict[str, Any]:
    (job,) = bundle["resources"]["jobs"].values()
    return job


def test_databricks(bundle: dict[str, Any], databricks_job: dict[str, Any]) -> None:
    """A failed night fails the job: it is its only task."""
    assert {"bundle", "resources", "targets"} <= set(bundle)
    assert [row["name"] for row in databricks_job["parameters"]] == ["run_date"]
    (task,) = databricks_job["tasks"]
    assert task["environment_key"] in {row["environment_key"] for row in databricks_job["environments"]}
    scripts = (EXAMPLES.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    wheel = task["python_wheel_task"]
    assert f'name = "{wheel["package_name"]}"' in scripts
    assert f"{wheel['entry_point']} = " in scripts
    assert wheel["parameters"][0] == "nightly"
    assert_runs_the_night(parse_command(fill_templates(wheel["parameters"])))


def test_databricks_installs_what_the_page_needs(databricks_job: dict[str, Any]) -> None:
    """The extra `report`, which a wheel named by a pattern cannot have."""
    (environment,) = databricks_job["environments"]
    _, *others = environment["spec"]["dependencies"]
    text = (EXAMPLES.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert sorted(others) == sorted(ast.literal_eval(re.search(r"^report = (\[.*\])$", text, re.M).group(1)))


def test_the_notebook_on_databricks_has_the_wheel_of_the_job(
    bundle: dict[str, Any], databricks_job: dict[str, Any]
) -> None:
    (environment,) = databricks_job["environments"]
    wheel, *_ = environment["spec"]["dependencies"]
    # The notebook reads the wheel from the folder beside it, to which only `sync` copies what .gitignore names.
    assert bundle["sync"]["include"] == [wheel.removeprefix("./")]
    (install,) = (cell.split()[2:] for cell in split_cells() if cell.startswith("# MAGIC %pip"))
    # pip takes a folder, and no pattern; without an index it finds no other wheel.
    assert wheel == f"{install[install.index('--find-links') + 1]}/*.whl"
    assert {"--no-index", "--no-deps", "--upgrade"} < set(install)
    assert (install[:2], install[-1]) == (["%pip", "install"], "ndcg-spark")


def test_databricks_notifies_someone_when_the_job_fails(
    bundle: dict[str, Any], databricks_job: dict[str, Any]
) -> None:
    (address,) = databricks_job["email_notifications"]["on_failure"]
    name = re.fullmatch(r"\$\{var\.(\w+)\}", address).group(1)
    assert "default" not in bundle["variables"][name]  # a deployment without an address is refused


# --- The notebook

NOTEBOOK, FIRST_NOTEBOOK = EXAMPLES / "nightly_notebook.py", EXAMPLES / "first_notebook.py"
RETRIEVER_NOTEBOOK = EXAMPLES / "retriever_notebook.py"


def split_cells(notebook: Path = NOTEBOOK) -> list[str]:
    first, rest = notebook.read_text(encoding="utf-8").split("\n", 1)
    assert first == "# Databricks notebook source"
    return [part.strip("\n") for part in re.split(r"^# COMMAND -{10}$", rest, flags=re.M)]


@pytest.mark.parametrize("notebook", [NOTEBOOK, FIRST_NOTEBOOK, RETRIEVER_NOTEBOOK], ids=lambda path: path.stem)
def test_a_notebook_is_in_the_source_format_of_databricks_and_has_cells_for_others(notebook: Path) -> None:
    for cell in split_cells(notebook):
        lines = cell.splitlines()
        if lines[0].startswith("# MAGIC"):
            assert all(line.startswith("# MAGIC") for line in lines), cell
            assert lines[0].split()[2] in ("%md", "%pip", "%restart_python")
        else:
            assert lines[0] == "# %%"
    assert len(split_cells(notebook)) > 8


class Widgets:
    def __init__(self, **values: str) -> None:
        self.values, self.defaults = values, {}

    def text(self, name: str, default: str, label: str) -> None:
        self.defaults[name] = default

    def get(self, name: str) -> str:
        return self.values.get(name, self.defaults[name])


def run_notebook(notebook: Path = NOTEBOOK, **names: Any) -> dict[str, Any]:
    for cell in split_cells(notebook):
        exec(compile(cell, notebook.name, "exec"), names)
    return names


SECOND = 1 / math.log2(3)
"""NDCG of a query whose only relevant item is second, and of none at rank 1."""
OF_ERRORS = {
    "a name": "evaluate has no option 'segment'. Did you mean 'segments'?",
    "a column": "column 'scores' (score=) is not in the input, which has: ranker, query_id, country, device, ",
    "a cutoff": "k must be a positive whole number, or all; got 0.",
    "bad rows": "4 bad rows of 160 in the data: null_score 4 (e.g. ",
    "bad rows of a comparison": "4 bad rows of 160 in the data: null_score 4 (e.g. ",
    "a run": "baseline must be one of bm25, neural; got 'bm52'.",
    "any action": "bad row: null_score at run=",
}


@pytest.mark.slow
def test_the_first_notebook_has_every_form_of_a_result(spark: Any, capsys: pytest.CaptureFixture) -> None:
    """By hand: of 40 queries, bm25 has the relevant item second in 10, which include all 20 in FR."""
    names = run_notebook(FIRST_NOTEBOOK)
    lines = capsys.readouterr().out.splitlines()
    table = names["table"].set_index(["run", "segment", "metric"])["value"]
    for segment, share in (("overall", 0.25), ("country=DE", 0), ("country=FR", 0.5)):
        assert table["bm25", segment, "ndcg@1"] == pytest.approx(1 - share, abs=1e-15)
        assert table["bm25", segment, "ndcg@3"] == pytest.approx(1 - share + share * SECOND, abs=1e-15)
        assert table["neural", segment, "ndcg@3"] == 1
    assert [line.partition(":")[0] for line in lines if re.match(r"Evaluation|Comparison|Report", line)] == [
        "Evaluation", "Comparison", "Report",
    ]  # fmt: skip
    of_pandas = [line.split() for line in lines if line.split()[:2] in (["overall", "ndcg@1"], ["overall", "ndcg@3"])]
    assert [line[2] for line in of_pandas] == ["0.7500", f"{0.75 + SECOND / 4:.4f}"]
    (all_of_it,) = [line.split() for line in lines if line.split()[:4] == ["neural", "bm25", "overall", "ndcg@3"]]
    assert (all_of_it[4], all_of_it[-3:]) == (f"{(1 - SECOND) / 4:.4f}", ["better", "40", "0"])
    for what, message in OF_ERRORS.items():
        assert sum(line.startswith(f"{what}: {message}") for line in lines) == 1, what
    without = f"{(30 + 9 * SECOND) / 39:.4f}"  # the query of the bad rows is one of the ten
    assert sum(line.split()[:4] == ["bm25", "overall", "ndcg@3", without] for line in lines) == 1
    assert sum(re.match(rf"\|bm25\| +q\d+\|{SECOND}", line) is not None for line in lines) == 3
    assert "<table" in names["result"]._repr_html_()
    assert "<svg" in Path(f"{names['folder']}/night.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_notebook_runs_anywhere(spark: Any, capsys: pytest.CaptureFixture) -> None:
    """By hand: hats fall from 1 to 1/log2(3) = 0.630930, shoes stay at 1; the mean of the four is 0.907732."""
    run_notebook()
    shown = capsys.readouterr().out
    assert len(re.findall(r"^\+-[-+]+\+$", shown, re.M)) == 9  # three tables
    assert "0.81546487678572" in shown  # (1 + 1/log2(3)) / 2, last night at 10
    assert "-0.36907024642854" in shown
    assert "0.9077324383928" in shown


@pytest.mark.slow
def test_the_notebook_of_a_retriever(
    spark: Any, capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By hand: grades 0, 2, 1 on three ranks; the reverse has an unjudged chunk first, then 1 and 2."""
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed: pip install 'ndcg-spark[mlflow]'")
    for name in ("MLFLOW_ALLOW_FILE_STORE", "MLFLOW_DISABLE_TELEMETRY"):
        monkeypatch.setenv(name, "true")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    try:
        names = run_notebook(RETRIEVER_NOTEBOOK)
        (file,) = (tmp_path / "runs").rglob("per_query.parquet")
    finally:
        mlflow.set_tracking_uri(before)
    small = (3 * SECOND + 1 / 2) / (3 + SECOND + 1 / 2)
    large = (SECOND + 3 / 2) / (3 + SECOND + 1 / 2)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert any(line.startswith(f"small chunks overall ndcg@3 {small:.4f}") for line in lines)
    assert any(line.startswith(f"large chunks overall ndcg@3 {(3 * large + small) / 4:.4f}") for line in lines)
    values = {(row["run"], row["question"]): row for row in pq.read_table(file).to_pylist()}
    assert len(values) == 8
    assert values["small chunks", names["questions"][0]]["ndcg"] == pytest.approx(small, abs=1e-15)
    assert values["large chunks", names["questions"][0]]["ndcg"] == pytest.approx(large, abs=1e-15)
    assert values["large chunks", names["questions"][0]]["judged"] == pytest.approx(2 / 3)


VIEW = "metrics_of_the_notebook"


@pytest.fixture(scope="module")
def stored_view(spark: Any) -> Iterator[Any]:
    """Nights of two data sets: of shop with two configurations and k=all, of other with a third configuration.

    By hand, hats of shop fall from 1 to 1/log2(3) = 0.630930 at k=10 and at k=all, and shoes stay at 1.
    """
    from pyspark.sql import functions as F

    from ndcg_spark import evaluate

    rows = [
        ("shoes", "a", 0.9, 3), ("shoes", "b", 0.8, 2),
        ("hats", "c", 0.9, 1), ("hats", "d", 0.5, 0),
    ]  # fmt: skip
    good = spark.createDataFrame(rows, "query_id string, item_id string, score double, relevance int")
    good = good.withColumn("country", F.when(F.col("query_id") == "hats", "FR").otherwise("DE"))
    worse = good.withColumn("score", F.when(F.col("item_id") == "c", 0.4).otherwise(F.col("score")))
    nights = [
        ("2026-01-29", "shop", "old", worse), ("2026-01-30", "shop", "new", good),
        ("2026-01-31", "shop", "new", worse), ("2026-02-01", "other", "third", good),
    ]  # fmt: skip
    tables = [
        evaluate(rankings, k=[10, "all"], segments=["country"])
        .summary.withColumn("run_date", F.to_date(F.lit(night)))
        .withColumn("dataset", F.lit(dataset))
        .withColumn("config_hash", F.lit(config))
        for night, dataset, config, rankings in nights
    ]
    merged = tables[0]
    for table in tables[1:]:
        merged = merged.unionByName(table)
    spark.createDataFrame(merged.collect(), merged.schema).createOrReplaceTempView(VIEW)
    yield VIEW
    spark.catalog.dropTempView(VIEW)


def show_on_databricks(capsys: pytest.CaptureFixture, **widgets: str) -> list[list[dict[str, Any]]]:
    """Return the rows of the tables that the notebook shows on Databricks."""
    shown: list[Any] = []
    dbutils = type("dbutils", (), {"widgets": Widgets(**widgets)})
    run_notebook(dbutils=dbutils, display=shown.append)
    assert capsys.readouterr().out == ""
    return [[row.asDict() for row in frame.collect()] for frame in shown]


def test_the_notebook_reads_one_data_set_and_its_newest_configuration(
    stored_view: str, capsys: pytest.CaptureFixture
) -> None:
    last, changes, merged = show_on_databricks(capsys, metrics=stored_view, dataset="shop")
    low = 1 / math.log2(3)
    assert {row["k"]: row["value"] for row in last} == pytest.approx({None: (1 + low) / 2, 10: (1 + low) / 2})
    assert {row["dataset"] for row in last} == {"shop"}
    assert {(row["segment"], row["k"]): row["difference"] for row in changes} == pytest.approx(
        {("FR", None): low - 1, ("FR", 10): low - 1, ("DE", None): 0, ("DE", 10): 0}
    )
    assert {row["k"]: row["value"] for row in merged} == pytest.approx({None: (3 + low) / 4, 10: (3 + low) / 4})


def test_the_notebook_takes_the_data_set_of_the_newest_night_by_default(
    stored_view: str, capsys: pytest.CaptureFixture
) -> None:
    last, changes, merged = show_on_databricks(capsys, metrics=stored_view)
    assert [(row["dataset"], row["value"]) for row in last] == [("other", 1.0)] * 2
    assert changes == []
    assert [row["value"] for row in merged] == [1.0] * 2


def test_nothing_in_the_examples_is_a_secret() -> None:
    from ndcg_spark.core.redaction import redact

    for path in EXAMPLES.rglob("*"):
        if path.is_file() and path.suffix in (".sh", ".toml", ".yml"):
            text = path.read_text(encoding="utf-8")
            assert redact(text) == text
