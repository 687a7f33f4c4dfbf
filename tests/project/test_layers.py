"""The shape of the source: rooms, Spark Connect, length of functions, and what tests replace.

Imports go down the rooms, and each kind of module makes do with what it may import; nothing needs a classic Spark
session, functions fit on a screen. Tests say why something answers in place of what the package relies on. Each rule
is applied to the whole package, or to all tests, and to small bad samples that it has to object to.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.public_names import ROOMS
from support.source_rules import (
    HEAVY,
    KINDS,
    LAYER_RULES,
    MAX_FUNCTION_LINES,
    PACKAGE,
    PROJECT_ROOT,
    SIZE_RULES,
    TEST_RULES,
    Source,
    classic_only_names,
    foreign_imports,
    heavy_root_imports,
    imports_of_later_kinds,
    internal_sections,
    kind_of,
    long_functions,
    misplaced_modules,
    sources_in,
    spelled_labels,
    unexplained_stand_ins,
    unpacked_functions,
    upward_imports,
)

METRICS = "ndcg_spark.metrics"

# ------------------------------------------------------------------------------------- the package obeys them


def test_there_is_a_package_to_look_at():
    modules = {source.module for source in sources_in(PACKAGE)}
    assert {PACKAGE, f"{PACKAGE}.errors", f"{PACKAGE}.core.exact"} <= modules


@pytest.mark.parametrize("rule", LAYER_RULES, ids=lambda rule: rule.__name__)
def test_the_package_obeys(rule):
    assert [finding for source in sources_in(PACKAGE) for finding in rule(source)] == []


@pytest.mark.parametrize("rule", SIZE_RULES, ids=lambda rule: rule.__name__)
def test_package_and_jobs_and_scripts_obey(rule):
    assert [finding for source in sources_in(PACKAGE, "jobs", "scripts") for finding in rule(source)] == []


@pytest.mark.parametrize("rule", TEST_RULES, ids=lambda rule: rule.__name__)
def test_the_tests_obey(rule):
    assert [finding for source in sources_in("tests") for finding in rule(source)] == []


def test_importing_the_package_loads_nothing_heavy():
    code = f"import sys, {PACKAGE}; print(*sorted({set(HEAVY)!r} & set(sys.modules)))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    )
    assert loaded.stdout.split() == []


def test_what_workers_run_loads_no_spark():
    """Of Spark's own Python, a worker gets what its batches need."""
    last = next(at for at, kind in enumerate(KINDS) if kind.name == "tasks")
    named = [source.module for source in sources_in(PACKAGE) if source.module != PACKAGE]
    modules = [module for module in named if kind_of(module) <= last]
    code = f"import sys, {', '.join(modules)}; print('pyspark' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert len(modules) > 80
    assert ended.stdout.split() == ["False"]


def test_every_public_name_is_there():
    """After every module was imported, too: a module of a name hides what the package looks up under it."""
    names = ", ".join(sorted({source.module for source in sources_in(PACKAGE)}))
    code = (
        f"import {names}; package = {PACKAGE}; "
        f"rooms = [getattr(package, name) for name in {ROOMS}]; "
        "found = [(name, getattr(one, name)) for one in (package, *rooms) for name in dir(one)]; "
        "print([name for name, one in found if type(one).__name__ == 'module'])"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["[]"]


# ------------------------------------------------------------------------------- the rules object to bad code


def long_function(n_lines: int, docstring: str = "") -> str:
    return "\n".join(["def f():", *([f'    """{docstring}"""'] if docstring else []), *["    x = 1"] * (n_lines - 1)])


SECTIONS = 'def roll_up():\n    """Add nights up.\n\n    Parameters\n    ----------\n    x\n    """'


def label(text: str) -> Source:
    return Source("ndcg_spark.history.work", text)


def stand_in(value: str, before: str = "") -> Source:
    return Source("tests.a", f"{before}monkeypatch.setattr(a, 'call', {value})")


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        pytest.param(misplaced_modules, Source("ndcg_spark.helpers", ""), id="module without a room"),
        pytest.param(upward_imports, Source(f"{METRICS}.dcg", "import ndcg_spark.evaluation.settings"), id="import"),
        pytest.param(upward_imports, Source("ndcg_spark.errors", "from ndcg_spark.core import exact"), id="from"),
        pytest.param(upward_imports, Source("ndcg_spark.core.a", "from ndcg_spark import tables"), id="the package"),
        pytest.param(upward_imports, Source("ndcg_spark.core.a", "from ..tables import writing"), id="relative"),
        pytest.param(upward_imports, Source("ndcg_spark.core", "from .. import tables", True), id="in an __init__"),
        pytest.param(
            upward_imports, Source("ndcg_spark.tables.a", "def f():\n    import ndcg_spark.jobs"), id="in a function"
        ),
        pytest.param(upward_imports, Source("ndcg_spark.core.a", "import ndcg_spark"), id="the package itself"),
        pytest.param(
            upward_imports, Source("ndcg_spark.core.a", "from ndcg_spark import evaluate"), id="a lazy name"
        ),
        pytest.param(
            upward_imports,
            Source("ndcg_spark.evaluation.api", "from ndcg_spark.comparison.api import compare"),
            id="a feature above",
        ),
        pytest.param(
            upward_imports,
            Source("ndcg_spark.jobs.logs", "from ndcg_spark.evaluation.settings import Columns"),
            id="jobs, where it is no exception",
        ),
        pytest.param(
            imports_of_later_kinds,
            Source("ndcg_spark.comparison.kernels.a", "from ndcg_spark.comparison.tasks import summing"),
            id="kernel tasks",
        ),
        pytest.param(
            imports_of_later_kinds,
            Source("ndcg_spark.comparison.tasks.a", "from ndcg_spark.core.columns import named"),
            id="tasks frames",
        ),
        pytest.param(
            imports_of_later_kinds,
            Source("ndcg_spark.evaluation.frames.a", "from ndcg_spark.evaluation.work import inputs_of"),
            id="frames work",
        ),
        pytest.param(
            imports_of_later_kinds,
            Source("ndcg_spark.evaluation.settings", "from ndcg_spark.comparison.kernels import paired"),
            id="settings kernel",
        ),
        pytest.param(
            imports_of_later_kinds,
            Source("ndcg_spark.reports", "from ndcg_spark.reports.assembly import report", True),
            id="a room that loads what is in it",
        ),
        pytest.param(
            foreign_imports,
            Source("ndcg_spark.evaluation.tasks.a", "from pyspark.sql import Row"),
            id="tasks pyspark",
        ),
        pytest.param(foreign_imports, Source("ndcg_spark.evaluation.settings", "import scipy"), id="settings scipy"),
        pytest.param(foreign_imports, Source(f"{METRICS}.dcg", "import pyarrow"), id="kernel pyarrow"),
        pytest.param(foreign_imports, Source("ndcg_spark.errors", "import pandas"), id="errors pandas"),
        pytest.param(foreign_imports, Source("ndcg_spark.core.given", "import click"), id="frames click"),
        pytest.param(heavy_root_imports, Source(PACKAGE, "import numpy as np", True), id="root numpy"),
        pytest.param(heavy_root_imports, Source(PACKAGE, "from .core import exact", True), id="root own module"),
        pytest.param(
            heavy_root_imports,
            Source(PACKAGE, "try:\n    import pyspark\nexcept E:\n    pass", True),
            id="in try",
        ),
        pytest.param(classic_only_names, Source("ndcg_spark.core.a", "df.rdd.count()"), id="rdd"),
        pytest.param(classic_only_names, Source("ndcg_spark.core.a", "spark.sparkContext"), id="sparkContext"),
        pytest.param(classic_only_names, Source("ndcg_spark.jobs.a", "getattr(df, '_jdf')"), id="getattr"),
        pytest.param(
            unpacked_functions,
            Source("ndcg_spark.core.a", "rows.mapInArrow(score, schema=s)"),
            id="unpacked",
        ),
        pytest.param(
            unpacked_functions, Source("ndcg_spark.history.tasks", "def make_flagger(): pass"), id="factory"
        ),
        pytest.param(spelled_labels, label('f"{metric}@{k}"'), id="metric@k"),
        pytest.param(spelled_labels, label('f"ndcg@{k}"'), id="ndcg@k"),
        pytest.param(spelled_labels, label('f"{name}@all"'), id="metric@all"),
        pytest.param(spelled_labels, label('F.concat_ws("@", "metric", "k")'), id="column of metrics"),
        pytest.param(spelled_labels, label("F.expr(\"concat_ws('@', metric, k)\")"), id="metrics in SQL"),
        pytest.param(spelled_labels, label('"all" if row["k"] is None else str(row["k"])'), id="all"),
        pytest.param(spelled_labels, label('k if k is not None else "all"'), id="all at last"),
        pytest.param(spelled_labels, label("one.k or 'all'"), id="or all"),
        pytest.param(spelled_labels, label('F.coalesce("k", F.lit("all"))'), id="column of cutoffs"),
        pytest.param(spelled_labels, label('by or "overall"'), id="overall"),
        pytest.param(long_functions, Source("jobs.a", long_function(MAX_FUNCTION_LINES + 1)), id="long function"),
        pytest.param(internal_sections, Source("ndcg_spark.core.a", SECTIONS), id="sections"),
        pytest.param(unexplained_stand_ins, stand_in("lambda _: True"), id="answers"),
        pytest.param(unexplained_stand_ins, stand_in("answer", "def answer(_):\n    return 1\n"), id="a function"),
        pytest.param(
            unexplained_stand_ins, stand_in("other", "kept = a.other\nother = lambda x: kept(x)\n"), id="calls"
        ),
        pytest.param(unexplained_stand_ins, stand_in("None", "# stands in for: a server\n"), id="no reason"),
        pytest.param(
            unexplained_stand_ins, stand_in("None", "# stands in for: x, because y\nz = 1\n"), id="of another line"
        ),
        pytest.param(unexplained_stand_ins, Source("tests.a", "from unittest.mock import Mock"), id="mock"),
        pytest.param(unexplained_stand_ins, Source("tests.a", "from unittest import mock"), id="mock, too"),
    ],
)
def test_a_rule_objects_to(rule, source):
    assert len(rule(source)) == 1


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        pytest.param(
            upward_imports,
            Source("ndcg_spark.evaluation.tasks.a", "from ndcg_spark.evaluation.settings import Columns"),
            id="same room",
        ),
        pytest.param(upward_imports, Source("ndcg_spark.jobs", "from ndcg_spark.errors import E"), id="far below"),
        pytest.param(
            imports_of_later_kinds,
            Source("ndcg_spark.metrics.a", "from ndcg_spark.core import ragged"),
            id="a metric computes",
        ),
        pytest.param(
            upward_imports,
            Source("ndcg_spark.tables", "from ndcg_spark._version import __version__"),
            id="version",
        ),
        pytest.param(foreign_imports, Source(f"{METRICS}.dcg", "import math\nimport numpy"), id="kernel numpy"),
        pytest.param(
            heavy_root_imports, Source(PACKAGE, "from ndcg_spark.errors import NdcgError", True), id="errors"
        ),
        pytest.param(heavy_root_imports, Source(PACKAGE, "def __getattr__(n):\n    import numpy", True), id="lazy"),
        pytest.param(
            heavy_root_imports,
            Source(PACKAGE, "if TYPE_CHECKING:\n    from .core import a", True),
            id="types",
        ),
        pytest.param(classic_only_names, Source("ndcg_spark.core.a", "rdd = 1  # .rdd"), id="a name, a comment"),
        pytest.param(
            unpacked_functions,
            Source("ndcg_spark.core.a", "in_workers(rows, f, task, schema=s)"),
            id="packed",
        ),
        pytest.param(spelled_labels, label('f"leave @{k} out"'), id="what a user wrote"),
        pytest.param(spelled_labels, label('run or "all"'), id="another default"),
        pytest.param(spelled_labels, Source("ndcg_spark.core.labels", "OVERALL = 'overall'"), id="labels"),
        pytest.param(long_functions, Source("jobs.a", long_function(MAX_FUNCTION_LINES, "\n" * 9)), id="docstring"),
        pytest.param(internal_sections, Source("ndcg_spark.history.frames", SECTIONS), id="a public name"),
        pytest.param(internal_sections, Source("ndcg_spark.history.settings", SECTIONS), id="settings"),
        pytest.param(unexplained_stand_ins, stand_in("fail", "def fail(_):\n    raise OSError\n"), id="fails"),
        pytest.param(unexplained_stand_ins, stand_in("lambda x: kept(x)", "kept, n = a.call, 1\n"), id="passes on"),
        pytest.param(unexplained_stand_ins, stand_in("None", "# stands in for: x, because y\n"), id="a reason"),
        pytest.param(
            unexplained_stand_ins,
            stand_in("None", "# stands in for: x, because y\nm.setattr(b, 'c', 1)\n"),
            id="a reason for several",
        ),
        pytest.param(unexplained_stand_ins, Source("tests.a", "m.setattr('a.b._MOST_ROWS', 3)"), id="a limit"),
        pytest.param(unexplained_stand_ins, Source("tests.a", "m.setitem(sys.modules, 'x', None)"), id="absent"),
    ],
)
def test_a_rule_accepts(rule, source):
    assert rule(source) == []
