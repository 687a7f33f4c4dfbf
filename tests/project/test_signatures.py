"""What public functions take is in their signatures, and says of a setting what the field of its class says."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, get_type_hints

import pytest

import ndcg_spark
from ndcg_spark.comparison.settings import Statistics
from ndcg_spark.core.flag import Setting, settings_in
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings, ItemColumns

FUNCTIONS = sorted(
    name
    for name in set(ndcg_spark.__all__) - {"evaluation_settings"}
    if inspect.isfunction(getattr(ndcg_spark, name))
)
TIED = [
    *(("evaluate", one) for settings in (Columns, ItemColumns, EvaluationSettings) for one in settings_in(settings)),
    *(("explain_difference", one) for settings in (Columns, ItemColumns, EvaluationSettings) for one in
      settings_in(settings) if one.field not in ("cutoffs", "metrics", "segment_sets", "convention", "tie_bounds")),
    *(("compare", one) for one in settings_in(Statistics)),
]  # fmt: skip
"""Functions, and the settings that they take one by one."""
OTHERWISE = {
    "query": ("query_id", str | Sequence[str]),
    "score": ("score", str | Sequence[str]),
    "convention": ("default", str | ndcg_spark.Convention),
    "metrics": (None, str | Sequence[str] | None),
}
"""Arguments that take more than the field: default and type."""
RENAMED = {"cutoffs": "k", "segment_sets": "segments"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_function_lists_what_it_takes(name: str) -> None:
    kinds = {one.kind for one in inspect.signature(getattr(ndcg_spark, name)).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds


@pytest.mark.parametrize(("name", "one"), TIED, ids=lambda one: one.field if isinstance(one, Setting) else one)
def test_an_argument_is_as_its_field(name: str, one: Setting) -> None:
    if one.is_nested:
        return
    function = inspect.unwrap(getattr(ndcg_spark, name))
    argument = inspect.signature(function).parameters[RENAMED.get(one.field, one.field)]
    if one.field in RENAMED:
        return
    kind: Any = one.kind | None if one.optional else one.kind
    wanted = OTHERWISE.get(one.field, (one.default, kind))
    assert (argument.default, get_type_hints(function)[argument.name]) == wanted


def test_settings_that_are_renamed_have_the_default_of_the_class() -> None:
    settings = EvaluationSettings()
    assert (settings.cutoffs, settings.segment_sets) == ((10,), ())
