"""Every kind of error that a user can meet: its class and its one line."""

from __future__ import annotations

import inspect

import pytest
from support.error_kinds import KINDS, assert_expected_errors, catch_kind_error
from support.source_rules import list_public_functions

from ndcg_spark.errors import InputRefusedError, cannot_import

ROW_BY_ROW = {"diagnosis.score_losses", "evaluation.score_queries", "ml.with_query_folds"}
"""These look at no other row, so a stream may pass through them."""


def test_errors_have_a_class_and_a_line(spark, tmp_path):
    assert_expected_errors({name: catch_kind_error(spark, name, tmp_path / name) for name in KINDS})


def list_table_arguments(function):
    """Return the arguments that are tables."""
    parameters = inspect.signature(function).parameters.values()
    return [
        field.name for field in parameters if "DataFrame" in str(field.annotation) or field.annotation == "Tables"
    ]


TAKE_TABLES = {
    name: list_table_arguments(function)
    for name, function in list_public_functions().items()
    if list_table_arguments(function)
}


def test_every_function_that_needs_all_rows_refuses_a_stream(spark):
    stream = spark.readStream.format("rate").load()
    assert {"compare", "evaluate", "retrieve", "history.roll_up", *ROW_BY_ROW} < set(TAKE_TABLES)
    for name in sorted(set(TAKE_TABLES) - ROW_BY_ROW):
        function = list_public_functions()[name]
        required = [
            parameter
            for parameter in inspect.signature(function).parameters.values()
            if parameter.default is parameter.empty
        ]
        others = {field.name: None for field in required if field.kind is not field.VAR_KEYWORD}
        for table in TAKE_TABLES[name]:
            with pytest.raises(
                InputRefusedError, match=f"^{table} is a stream, .* call {name.rpartition('.')[2]} in .*foreachBatch"
            ):
                function(**{**others, table: stream})


def test_missing_dependency_of_an_installed_package_is_named():
    use = "figures need matplotlib"
    lacks = ModuleNotFoundError("No module named 'kiwisolver'", name="kiwisolver")
    assert "is installed but cannot be imported (No module" in str(cannot_import(lacks, use, "matplotlib", "report"))
    broken = ImportError("libfreetype.so.6: cannot open shared object file", name="matplotlib.ft2font")
    assert "but cannot be imported (libfreetype" in str(cannot_import(broken, use, "matplotlib", "report"))
    missing = ModuleNotFoundError("No module named 'matplotlib.pyplot'", name="matplotlib.pyplot")
    assert str(cannot_import(missing, use, "matplotlib", "report")) == f"{use}: pip install 'ndcg-spark[report]'."
