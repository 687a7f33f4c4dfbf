"""Write what stored tables, schedulers and other programs rely on, as golden files: tests/golden/*.json.

`options`: flags, parameter, default, type and repetition of each option of each command, and the keys that a file for
--config may have. `arguments`: argument lists, and the options in force that each gives. `digests`: the hash under
which settings are stored, for forty of them, and names of slices. `nights`: small nights by every command: arguments,
exit code, JSON, columns and types of each table that is written, and a hash of every stored state. Texts of help are
not held. What is asked stands in arguments.txt and nights.txt beside them.

tests/project/test_golden.py makes them again and compares. After a change that is meant, run this script, look at
`git diff tests/golden`, and say in the changelog what users have to change.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import pyarrow.parquet as pq
from support.main_job import RunResult, run_command
from support.source_rules import list_public

from ndcg_spark import PRESETS
from ndcg_spark.comparison.spark_results import open_on_spark
from ndcg_spark.comparison.tables import build_settings
from ndcg_spark.evaluation import evaluation_settings
from ndcg_spark.jobs.command import build_request
from ndcg_spark.jobs.options import index_options
from ndcg_spark.jobs.registry import load_jobs
from ndcg_spark.main import cli
from ndcg_spark.retrieval import RetrievalSettings
from ndcg_spark.tables import slice_name
from scripts.checks import ROOT
from scripts.checks.session import make_session
from scripts.checks.stored_nights import write_inputs

WIDTH = 600
RUN_ID = re.compile(r"\.[0-9a-f]{8}-[0-9a-f-]{27}-[0-9a-f]{8}$")
FOLDER = ROOT / "tests" / "golden"
ARGUMENTS = (FOLDER / "arguments.txt").read_text(encoding="utf-8").splitlines()
STORY = dict(line.split(": ", 1) for line in (FOLDER / "nights.txt").read_text(encoding="utf-8").splitlines())
"""Arguments by what they show; {f} is the folder."""
EVALUATIONS: list[dict[str, Any]] = [
    {},
    {"k": [1, 5, 10]},
    {"k": "all"},
    {"metrics": ["ndcg@10", "ap@100", "rr"]},
    {"metrics": ["novelty@10"], "user": "user", "convention": "default;ties=item_asc"},
    {"segments": ["country"]},
    {"segments": ["country", "country+device"]},
    {"query": ["q", "session"]},
    {"item": "doc"},
    {"score": ["old", "new"]},
    {"run": "ranker"},
    {"rank": "rank"},
    {"relevance": "grade"},
    {"ideal": "judged"},
    {"weight": "w"},
    {"order": "at", "convention": "default;ties=input_order"},
    {"on_invalid": "reject"},
    {"null_score": "unretrieved"},
    {"check_duplicates": "all"},
    {"confidence": 0.9},
    {"sample": 0.1},
    {"strategy": "window"},
    {"source": "spark"},
    {"tie_bounds": True},
    {"vector": "embedding"},
    *({"convention": name, "order": "at"} for name in sorted(PRESETS)),
    {"convention": "default;gain=linear"},
    {"convention": "default;gain=table:1=1,2=3,3=7"},
    {"convention": "default;discount=table:1,0.5,0.25", "k": 3},
    {"convention": "trec_eval;gain=exponential;no_relevant=skip"},
    {"convention": "default;pad_to_k=0;ideal=retrieved"},
]
SLICES = [
    ("digits", "bm25"),
    ("digits", ""),
    ("", ""),
    ("shop/de", "new ranker (v2)"),
    ("läden", "größe"),
    ("x" * 60, "y" * 60),
    ("digits", "bm25", "week"),
    ("2026", "17"),
    ("a.b", "c"),
    ("a", "b.c"),
]
COMPARISONS: list[dict[str, Any]] = [
    {"metrics": "ndcg"},
    {"metrics": ["ndcg", "ap"], "baseline": "a"},
    {"metrics": "ndcg", "k": [1, 10], "segments": ["country"]},
    {"metrics": "ndcg", "cluster": "user", "replicates": 100, "seed": 3},
    {"metrics": "ndcg", "unpaired": "drop", "margin": 0.01, "alpha": 0.1},
    {"metrics": "ndcg", "convention": "default;no_relevant=skip"},
]
SETTINGS: dict[str, Callable[[dict[str, Any]], Any]] = {one.name: partial(build_request, one) for one in load_jobs()}
"""Functions that read the options of each command."""
RETRIEVALS: list[dict[str, Any]] = [
    {},
    {"metric": "hamming", "labels": "labels"},
    {"same": "tenant", "exclude_self": True},
]
KEYS = ("run", "baseline", "metric", "k", "segment_by", "segment", "period")
"""Key columns of stored tables."""
CHANGING = {
    "computed_at",
    "source_computed_at",
    "package_version",
    "seconds",
    "versions",
    "started_at",
    "finished_at",
}
"""Names whose values differ from run to run, or from release to release."""


def list_commands(command: click.Command, name: str = "") -> Iterator[tuple[str, click.Command]]:
    """List the commands that run something, with their names."""
    if isinstance(command, click.Group):
        for word, subcommand in command.commands.items():
            yield from list_commands(subcommand, f"{name} {word}".strip())
    else:
        yield name, command


def describe_option(option: click.Parameter) -> dict[str, Any]:
    """Describe an option without its help."""
    kind = option.type
    choices = list(kind.choices) if isinstance(kind, click.Choice) else None
    return {
        "flags": [*option.opts, *option.secondary_opts],
        "default": _to_plain(option.to_info_dict()["default"]),
        "type": choices or kind.name,
        "repeated": option.multiple,
        "required": option.required,
        "switch": isinstance(option, click.Option) and option.is_flag,
    }


def options(_: Any, __: Path) -> dict[str, Any]:
    """Describe the options of each command, and the keys of its configuration."""
    return {
        name: {
            "options": {str(param.name): describe_option(param) for param in command.params},
            "config_keys": " ".join(sorted(index_options(command))),
        }
        for name, command in list_commands(cli)
    }


def arguments(_: Any, __: Path) -> dict[str, Any]:
    """Return the options that have a value, and the public settings, of each list of arguments."""
    known = dict(list_commands(cli))
    parsed = {}
    for text in ARGUMENTS:
        name = max((known_name for known_name in known if text.startswith(f"{known_name} ")), key=len)
        options_of_case = known[name].make_context(name, shlex.split(text)[len(name.split()) :]).params
        in_force = {key: value for key, value in sorted(options_of_case.items()) if value not in (None, (), False)}
        parsed[text] = {"options": in_force, "settings": public_settings(SETTINGS[name](options_of_case))}
    return parsed


def public_settings(config: Any) -> dict[str, Any]:
    """Return the public settings in the settings of a command."""
    if type(config) in list_public().values():
        return {
            type(config).__name__: {field.name: _to_plain(getattr(config, field.name)) for field in fields(config)}
        }
    parts = (
        [getattr(config, field.name) for field in fields(config)]
        if is_dataclass(config) and not isinstance(config, type)
        else []
    )
    return {name: value for part in parts for name, value in public_settings(part).items()}


def _to_plain(value: Any) -> Any:
    """Convert a value to JSON types; other values become text."""
    if isinstance(value, tuple | list):
        return [_to_plain(element) for element in value]
    if isinstance(value, Mapping):
        return {str(key): _to_plain(element) for key, element in value.items()}
    return value if isinstance(value, bool | int | float | str | None) else str(value)


def digests(spark: Any, _: Path) -> dict[str, Any]:
    """Return the hashes under which settings are stored, and names of slices."""
    columns = "run string, query_id string, k int, ndcg double, ap double, country string, user string"
    queries = open_on_spark(spark.createDataFrame([("a", "q", 1, 0.5, 0.5, "DE", "u")], columns))
    return {
        "evaluations": {
            _format_json(options_of_case): evaluation_settings(**options_of_case).digest
            for options_of_case in EVALUATIONS
        },
        "comparisons": {
            _format_json(options_of_case): build_settings(queries, runs=["a", "b"], **options_of_case).digest
            for options_of_case in COMPARISONS
        },
        "retrieval": {
            _format_json(options_of_case): RetrievalSettings(**options_of_case).digest
            for options_of_case in RETRIEVALS
        },
        "slices": {_format_json(options_of_case): slice_name(*options_of_case) for options_of_case in SLICES},
    }


def _format_json(options_of_case: Any) -> str:
    return json.dumps(options_of_case, ensure_ascii=False)


def nights(_: Any, folder: Path) -> dict[str, Any]:
    """Run each job of the story; return its exit code, JSON, and written tables."""
    folder.mkdir(exist_ok=True)
    write_inputs(folder)
    results, tables = {}, {}
    for name, text in STORY.items():
        ended = run_command(*shlex.split(text.format(f=folder)))
        before, tables = (
            tables,
            {path.name: describe_table(path) for path in sorted(folder.iterdir()) if path.is_dir()},
        )
        results[name] = {
            "arguments": text,
            "exit_code": ended.code,
            "json": _mask_changing(read_last_json(ended), folder),
            "tables": {path: content for path, content in tables.items() if content != before.get(path)},
        }
    return results


def read_last_json(ended: RunResult) -> Any:
    """Return the JSON of the last line (`--json -`), if there is one."""
    last = (ended.out.splitlines() or [""])[-1]
    return json.loads(last) if last.startswith("{") else None


def _mask_changing(value: Any, folder: Path) -> Any:
    """Replace values that differ from run to run."""
    if isinstance(value, list):
        return [_mask_changing(element, folder) for element in value]
    if isinstance(value, dict):
        return {key: "*" if key in CHANGING else _mask_changing(element, folder) for key, element in value.items()}
    if isinstance(value, float):
        return float(f"{value:.12g}")  # the last digits of a quantile are those of SciPy's version
    return value.replace(str(folder), "{f}") if isinstance(value, str) else value


def describe_table(folder: Path) -> dict[str, Any]:
    """Describe columns, types, slices and row counts of a table, and hash its stored states."""
    files = sorted(folder.rglob("*.parquet"))
    rows: Counter[str] = Counter()
    columns, states = {}, {}
    for path in files:
        content = pq.ParquetFile(path).read()
        slice_ = RUN_ID.sub(".*", str(path.parent.relative_to(folder)))
        rows[slice_] += content.num_rows
        columns |= {field.name: str(field.type) for field in content.schema}
        states |= {
            f"{slice_} {_format_json([row.get(name) for name in KEYS])}": hashlib.sha256(
                _format_json(row["state"]).encode()
            ).hexdigest()[:16]
            for row in content.to_pylist()
            if row.get("state") is not None
        }
    return {"columns": columns, "rows": dict(sorted(rows.items())), "states": dict(sorted(states.items()))}


PARTS: dict[str, Callable[[Any, Path], dict[str, Any]]] = {
    "options": options,
    "arguments": arguments,
    "digests": digests,
    "nights": nights,
}
WITHOUT_SPARK = {"options", "arguments"}
"""Golden files that need no Spark."""


def format_golden(name: str, spark: Any, folder: Path) -> str:
    """Make the text of a golden file."""
    plain = json.loads(json.dumps(PARTS[name](spark, folder), sort_keys=True, default=str))
    return format_readable(plain) + "\n"


def format_readable(value: Any, indent: str = "") -> str:
    """Format JSON with one line per value that fits, so that diffs are readable."""
    line = _format_json(value)
    if len(indent) + len(line) <= WIDTH or not isinstance(value, list | dict) or not value:
        return line
    within = indent + "  "
    if isinstance(value, list):
        parts = [within + format_readable(element, within) for element in value]
    else:
        parts = [f"{within}{_format_json(key)}: {format_readable(element, within)}" for key, element in value.items()]
    first, last = "[]" if isinstance(value, list) else "{}"
    return "\n".join([first, ",\n".join(parts), indent + last])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*PARTS, []], help="those to write; default: all")
    names = parser.parse_args().names or [*PARTS]
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        spark = make_session() if {*names} - WITHOUT_SPARK else None
        for name in names:
            text = format_golden(name, spark, Path(folder, name))
            path = FOLDER / f"{name}.json"
            same = path.exists() and path.read_text(encoding="utf-8") == text
            path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(FOLDER.parent.parent)}: {'as it was' if same else 'written'}")
        if spark is not None:
            spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
