"""`scripts/check dependencies`: forbidden licences, findings here, and a missing network, which is not a failure."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts.checks import dependencies as checks


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True),
        ("BSD-3-Clause AND (MIT OR GPL-2.0-only)", True),
        ("Apache-2.0 AND LGPL-3.0-or-later", False),
        ("GPL-3.0-or-later WITH GCC-exception-3.1", True),
        ("GPL-3.0-only", False),
        ("unknown", False),
    ],
)
def test_licences(expression, allowed):
    assert checks.is_allowed(expression) is allowed


def test_what_is_installed_is_allowed():
    actual = checks.collect_installed()
    assert {"numpy", "pandas", "pyarrow", "click", "rich", "pyspark", "py4j"} <= set(actual)
    assert "pytest" not in actual
    assert checks.check_licences(actual) == []


def test_a_forbidden_licence_is_named():
    viral = SimpleNamespace(version="1.0", metadata={"Name": "viral", "License-Expression": "AGPL-3.0-only"})
    assert checks.check_licences({"viral": viral}) == [
        "viral 1.0 has the licence 'AGPL-3.0-only', which scripts/checks/dependencies.py does not allow"
    ]


@pytest.mark.parametrize(("version", "n"), [("14.0.0", 1), ("14.0.1", 0), ("3.0.0rc1", 1)])
def test_versions_of_the_list_are_named_without_network(version, n):
    actual = checks.check_known(
        {"pyarrow": SimpleNamespace(version=version), "numpy": SimpleNamespace(version="1.0")}
    )
    assert len(actual) == n
    assert all("CVE-2023-47248" in line for line in actual)


def test_without_network_vulnerabilities_are_left_out(monkeypatch):
    monkeypatch.setattr(checks, "SERVICE", ("host.invalid", 443))
    # stands in for: pip-audit, because it is no package of the tests
    monkeypatch.setattr(metadata, "distribution", lambda name: name)
    assert checks.check_vulnerabilities({}) == (None, "host.invalid cannot be reached from here")


def test_without_pip_audit_vulnerabilities_are_left_out(monkeypatch):
    def missing(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    assert checks.check_vulnerabilities({}) == (None, "pip-audit is not installed")


def test_a_known_vulnerability_is_named(monkeypatch):
    """From the output of pip-audit; packages unknown to its service are counted."""
    message = {
        "dependencies": [
            {"name": "old", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]},
            {"name": "new", "version": "2.0", "vulns": []},
            {"name": "ours", "skip_reason": "not found"},
        ]
    }
    # stands in for: pip-audit and its service, because the tests run without network
    monkeypatch.setattr(metadata, "distribution", lambda name: name)
    monkeypatch.setattr(checks, "service_answers", lambda: True)
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=json.dumps(message)))
    assert checks.check_vulnerabilities({}) == (
        ["old 1.0 has PYSEC-1, fixed in 1.1"],
        " (1 packages are not known to the service)",
    )
    message["dependencies"] = message["dependencies"][2:]
    assert checks.check_vulnerabilities({}) == (None, "the service knows none of the packages")
    # stands in for: pip-audit without its service, because it is no package of the tests
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stdout="ServiceError"))
    assert checks.check_vulnerabilities({}) == (None, "pip-audit had no answer from its service")


@pytest.mark.slow
def test_a_package_that_is_broken_is_not_called_missing(tmp_path):
    """Example: SciPy built for another NumPy, which installing again would not repair."""
    broken = ("scipy", "jinja2", "matplotlib", "mlflow")
    for name in broken:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text('raise ImportError("numpy.core.multiarray failed to import")')
    script = """if True:
        from importlib import import_module
        from ndcg_spark.errors import MissingPackageError
        def says(call):
            try:
                call()
            except MissingPackageError as error:
                print(error)
        says(lambda: import_module("ndcg_spark.core.student").require_scipy())
        says(lambda: import_module("ndcg_spark.reports.page"))
        says(lambda: import_module("ndcg_spark.reports.figures"))
        says(lambda: import_module("ndcg_spark.mlflow")._import_mlflow())
    """
    path = os.pathsep.join([str(tmp_path), str(Path(__file__).resolve().parents[2])])
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=True)
    lines = ended.stdout.splitlines()
    assert len(lines) == 4
    for name, line in zip(broken, lines, strict=True):
        assert f"{name} is installed but cannot be imported (numpy.core.multiarray failed to import)" in line
        assert f"pip install --upgrade {name}" in line
