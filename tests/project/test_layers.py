"""The shape of the source: rooms, Spark Connect, length of functions, stand-ins of tests.

Imports go down the rooms, and each kind of module has its allowed imports; nothing needs a classic Spark
session, functions fit on a screen. Tests say why something answers in place of what the package relies on. Each rule
is applied to the whole package, or to all tests, and to small bad samples.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.source_rules import (
    HEAVY,
    KINDS,
    LAYER_RULES,
    MAX_FUNCTION_LINES,
    PACKAGE,
    PROJECT_ROOT,
    PUBLIC_ROOMS,
    SIZE_RULES,
    TEST_RULES,
    Source,
    find_classic_only_names,
    find_foreign_imports,
    find_heavy_root_imports,
    find_imports_of_later_kinds,
    find_internal_sections,
    find_kind,
    find_long_functions,
    find_misplaced_modules,
    find_spelled_labels,
    find_unexplained_stand_ins,
    find_unpacked_functions,
    find_upward_imports,
    parse_sources,
)

METRICS = "ndcg_spark.metrics"

# ------------------------------------------------------------------------------------- the package obeys them


def test_package_has_sources():
    modules = {source.module for source in parse_sources(PACKAGE)}
    assert {PACKAGE, f"{PACKAGE}.errors", f"{PACKAGE}.core.exact"} <= modules


@pytest.mark.parametrize("rule", LAYER_RULES, ids=lambda rule: rule.__name__)
def test_the_package_obeys(rule):
    assert [finding for source in parse_sources(PACKAGE) for finding in rule(source)] == []


@pytest.mark.parametrize("rule", SIZE_RULES, ids=lambda rule: rule.__name__)
def test_package_and_jobs_and_scripts_obey(rule):
    assert [finding for source in parse_sources(PACKAGE, "jobs", "scripts") for finding in rule(source)] == []


@pytest.mark.parametrize("rule", TEST_RULES, ids=lambda rule: rule.__name__)
def test_the_tests_obey(rule):
    assert [finding for source in parse_sources("tests") for finding in rule(source)] == []


def test_importing_the_package_loads_nothing_heavy():
    code = f"import sys, {PACKAGE}; print(*sorted({set(HEAVY)!r} & set(sys.modules)))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    )
    assert loaded.stdout.split() == []


def test_modules_of_workers_load_no_spark():
    """In Spark's Python a worker loads only what its batches need."""
    last = next(at for at, kind in enumerate(KINDS) if kind.name == "tasks")
    named = [source.module for source in parse_sources(PACKAGE) if source.module != PACKAGE]
    modules = [module for module in named if find_kind(module) <= last]
    code = f"import sys, {', '.join(modules)}; print('pyspark' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert len(modules) > 80
    assert ended.stdout.split() == ["False"]


@pytest.mark.slow
def test_every_public_name_exists():
    """Also after every module was imported: a module can hide a lazy name of the package."""
    names = ", ".join(sorted({source.module for source in parse_sources(PACKAGE)}))
    code = (
        f"import {names}; package = {PACKAGE}; "
        f"rooms = [getattr(package, name) for name in {PUBLIC_ROOMS}]; "
        "found = [(name, getattr(one, name)) for one in (package, *rooms) for name in dir(one)]; "
        "print([name for name, one in found if type(one).__name__ == 'module'])"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["[]"]


# ------------------------------------------------------------------------------- the rules object to bad code


def long_function(n_lines: int, docstring: str = "") -> str:
    return "\n".join(["def f():", *([f'    """{docstring}"""'] if docstring else []), *["    x = 1"] * (n_lines - 1)])


SECTIONS = 'def roll_up():\n    """Add nights up.\n\n    Parameters\n    ----------\n    x\n    """'
CORE, TASKS, HISTORY = "ndcg_spark.core.a", "ndcg_spark.evaluation.tasks.a", "ndcg_spark.history.work"
REPLACE = "monkeypatch.setattr(a, 'call', {})"
BAD = {
    find_misplaced_modules: [("ndcg_spark.helpers", "")],
    find_upward_imports: [
        (f"{METRICS}.dcg", "import ndcg_spark.evaluation.settings"),
        ("ndcg_spark.errors", "from ndcg_spark.core import exact"),
        (CORE, "from ndcg_spark import tables"),
        (CORE, "from ..tables import writing"),
        ("ndcg_spark.core", "from .. import tables", True),
        ("ndcg_spark.tables.a", "def f():\n    import ndcg_spark.jobs"),
        (CORE, "import ndcg_spark"),
        (CORE, "from ndcg_spark import evaluate"),  # a lazy name
        ("ndcg_spark.evaluation.api", "from ndcg_spark.comparison.api import compare"),  # a feature above
        ("ndcg_spark.jobs.logs", "from ndcg_spark.evaluation.settings import Columns"),
    ],
    find_imports_of_later_kinds: [
        ("ndcg_spark.comparison.kernels.a", "from ndcg_spark.comparison.tasks import summing"),
        ("ndcg_spark.comparison.tasks.a", "from ndcg_spark.core.columns import named"),
        ("ndcg_spark.evaluation.frames.a", "from ndcg_spark.evaluation.work import MeanNdcg"),
        ("ndcg_spark.evaluation.settings", "from ndcg_spark.comparison.kernels import paired"),
        ("ndcg_spark.reports", "from ndcg_spark.reports.api import report", True),  # loads what is in it
    ],
    find_foreign_imports: [
        (TASKS, "from pyspark.sql import Row"),
        ("ndcg_spark.evaluation.settings", "import scipy"),
        (f"{METRICS}.dcg", "import pyarrow"),
        ("ndcg_spark.errors", "import pandas"),
        ("ndcg_spark.core.adapters", "import click"),
    ],
    find_heavy_root_imports: [
        (PACKAGE, "import numpy as np", True),
        (PACKAGE, "from .core import exact", True),
        (PACKAGE, "try:\n    import pyspark\nexcept E:\n    pass", True),
    ],
    find_classic_only_names: [(CORE, "df.rdd.count()"), (CORE, "spark.sparkContext"), (CORE, "getattr(df, '_jdf')")],
    find_unpacked_functions: [
        (CORE, "rows.mapInArrow(score, schema=s)"),
        ("ndcg_spark.history.tasks.judging", "def make_flagger(): pass"),
    ],
    find_spelled_labels: [
        (HISTORY, 'f"{metric}@{k}"'),
        (HISTORY, 'f"ndcg@{k}"'),
        (HISTORY, 'f"{name}@all"'),
        (HISTORY, 'F.concat_ws("@", "metric", "k")'),
        (HISTORY, "F.expr(\"concat_ws('@', metric, k)\")"),
        (HISTORY, '"all" if row["k"] is None else str(row["k"])'),
        (HISTORY, 'k if k is not None else "all"'),
        (HISTORY, "one.k or 'all'"),
        (HISTORY, 'F.coalesce("k", F.lit("all"))'),
        (HISTORY, 'by or "overall"'),
    ],
    find_long_functions: [("jobs.a", long_function(MAX_FUNCTION_LINES + 1))],
    find_internal_sections: [(CORE, SECTIONS)],
    find_unexplained_stand_ins: [
        ("tests.a", REPLACE.format("lambda _: True")),
        ("tests.a", "def answer(_):\n    return 1\n" + REPLACE.format("answer")),
        ("tests.a", "kept = a.other\nother = lambda x: kept(x)\n" + REPLACE.format("other")),
        ("tests.a", "# stands in for: a server\n" + REPLACE.format("None")),  # no reason
        ("tests.a", "# stands in for: x, because y\nz = 1\n" + REPLACE.format("None")),  # of another line
        ("tests.a", "from unittest.mock import Mock"),
        ("tests.a", "from unittest import mock"),
    ],
}
GOOD = {
    find_upward_imports: [
        (TASKS, "from ndcg_spark.evaluation.settings import Columns"),
        ("ndcg_spark.jobs", "from ndcg_spark.errors import E"),
        ("ndcg_spark.tables", "from ndcg_spark._version import __version__"),
    ],
    find_imports_of_later_kinds: [("ndcg_spark.metrics.a", "from ndcg_spark.core import ragged")],
    find_foreign_imports: [(f"{METRICS}.dcg", "import math\nimport numpy")],
    find_heavy_root_imports: [
        (PACKAGE, "from ndcg_spark.errors import NdcgError", True),
        (PACKAGE, "def __getattr__(n):\n    import numpy", True),
        (PACKAGE, "if TYPE_CHECKING:\n    from .core import a", True),
    ],
    find_classic_only_names: [(CORE, "rdd = 1  # .rdd")],
    find_unpacked_functions: [(CORE, "in_workers(rows, f, task, schema=s)")],
    find_spelled_labels: [
        (HISTORY, 'f"remove @{k}"'),  # what a user wrote
        (HISTORY, 'run or "all"'),
        ("ndcg_spark.core.labels", "OVERALL = 'overall'"),
    ],
    find_long_functions: [("jobs.a", long_function(MAX_FUNCTION_LINES, "\n" * 9))],
    find_internal_sections: [("ndcg_spark.history.frames", SECTIONS), ("ndcg_spark.history.settings", SECTIONS)],
    find_unexplained_stand_ins: [
        ("tests.a", "def fail(_):\n    raise OSError\n" + REPLACE.format("fail")),
        ("tests.a", "kept, n = a.call, 1\n" + REPLACE.format("lambda x: kept(x)")),  # passes on
        ("tests.a", "# stands in for: x, because y\n" + REPLACE.format("None")),
        ("tests.a", "# stands in for: x, because y\nm.setattr(b, 'c', 1)\n" + REPLACE.format("None")),
        ("tests.a", "m.setattr('a.b._MOST_ROWS', 3)"),
        ("tests.a", "m.setitem(sys.modules, 'x', None)"),
    ],
}


@pytest.mark.parametrize(("findings", "samples"), [(1, BAD), (0, GOOD)], ids=["bad", "good"])
def test_rules_find_bad_code_only(findings, samples):
    for rule, sources in samples.items():
        for source in sources:
            assert (rule.__name__, source, len(rule(Source(*source)))) == (rule.__name__, source, findings)
