"""Public functions list their parameters, each with the type and default of its setting."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, get_type_hints

import pytest
from pyspark.sql import DataFrame
from support.source_rules import PUBLIC_ROOMS, list_public_functions, list_public_names, list_type_checking_names

import ndcg_spark
from ndcg_spark.business.settings import LinkSettings
from ndcg_spark.clicks.settings import ImpressionColumns, PropensitySettings, WeightSettings
from ndcg_spark.comparison import Comparison
from ndcg_spark.comparison.settings import ChosenRuns, Statistics
from ndcg_spark.core.flag import Setting, create_settings, list_settings
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation import Evaluation, Explanation
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings, ItemColumns
from ndcg_spark.history.settings import LIMITS, PERIODS, FlagSettings, Period, RollUpSettings
from ndcg_spark.judgments.settings import EventColumns, EventSettings, RatingColumns, RatingSettings
from ndcg_spark.retrieval.settings import RetrievalSettings

ONLY_OF_SPARK = {element.__name__: element for element in (DataFrame, Evaluation, Comparison, Explanation)}
"""Names in annotations of functions that work without Spark, too."""
FUNCTIONS = {
    name: function for name, function in list_public_functions().items() if name != "evaluation.evaluation_settings"
}


def list_tied(name: str, *classes: type, without: Sequence[str] = ()) -> list[tuple[str, Setting]]:
    return [(name, setting) for cls in classes for setting in list_settings(cls) if setting.field not in without]


TIED = [
    *list_tied("evaluate", Columns, ItemColumns, EvaluationSettings),
    *list_tied("explain_difference", Columns, ItemColumns, EvaluationSettings,
          without=("cutoffs", "metrics", "segment_sets", "convention", "tie_bounds", "allow_unmatched")),
    *list_tied("compare", Statistics, ChosenRuns, without=("runs",)),
    *list_tied("history.roll_up", RollUpSettings),
    *list_tied("history.flag_changes", FlagSettings),
    *list_tied("business.business_link", LinkSettings),
    *list_tied("judgments.from_events", EventColumns, EventSettings),
    *list_tied("judgments.from_ratings", RatingColumns, RatingSettings),
    *list_tied("judgments.rating_agreement", RatingColumns, RatingSettings, without=("rule", "tie", "dispute_range")),
    *list_tied("clicks.fit_propensities", ImpressionColumns, PropensitySettings, without=("propensity",)),
    *list_tied("clicks.judgments_from_impressions", ImpressionColumns, WeightSettings,
          without=("propensity_of", "run", "segment_sets", "confidence")),
    *list_tied("clicks.inverse_propensity_estimates", ImpressionColumns, WeightSettings),
    *list_tied("retrieve", RetrievalSettings, without=("run",)),
    *list_tied("retrieval.rank_by_retrieval", RetrievalSettings, without=("labels",)),
    *list_tied("retrieval.judgments_from_labels", RetrievalSettings, without=("labels", "run")),
]  # fmt: skip
"""Functions, and the settings that they take one by one."""
OTHERWISE = {
    "query": ("query_id", str | Sequence[str]),
    "score": ("score", str | Sequence[str]),
    "ranked": ((), str | Sequence[str]),
    "convention": ("default", str | ndcg_spark.Convention),
    "metrics": (None, str | Sequence[str] | None),
    "baseline": (None, str | int | None),
    "grades": (None, Mapping[str, float] | None),
    "periods": (PERIODS, Period | Sequence[Period]),
    "limits": (LIMITS, Sequence[tuple[int, float]]),
}
"""Arguments that take more than the field: default and type."""
RENAMED = {"cutoffs": "k", "segment_sets": "segments"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_function_lists_its_parameters(name: str) -> None:
    kinds = {parameter.kind for parameter in inspect.signature(FUNCTIONS[name]).parameters.values()}
    assert inspect.Parameter.VAR_KEYWORD not in kinds


@pytest.mark.parametrize(
    ("name", "setting"), TIED, ids=lambda element: element.field if isinstance(element, Setting) else element
)
def test_an_argument_is_as_its_field(name: str, setting: Setting) -> None:
    if setting.is_nested:
        return
    function = inspect.unwrap(FUNCTIONS[name])
    argument = inspect.signature(function).parameters[RENAMED.get(setting.field, setting.field)]
    if setting.field in RENAMED:
        return
    kind: Any = setting.kind | None if setting.optional else setting.kind
    wanted = OTHERWISE.get(setting.field, (setting.default, kind))
    if setting.field in ("query", "score") and setting.kind is str:  # a single name
        wanted = (setting.default, kind)
    assert (argument.default, get_type_hints(function, localns=ONLY_OF_SPARK)[argument.name]) == wanted


def test_settings_that_are_renamed_have_the_default_of_the_class() -> None:
    settings = EvaluationSettings()
    assert (settings.cutoffs, settings.segment_sets) == ((10,), ())


def test_the_package_has_few_names_and_rooms_the_rest() -> None:
    assert len(ndcg_spark.__all__) <= 16
    assert (
        sorted(ndcg_spark.__all__)
        == dir(ndcg_spark)
        == sorted([*list_type_checking_names("ndcg_spark"), "__version__"])
    )


@pytest.mark.parametrize("room", PUBLIC_ROOMS)
def test_type_checkers_see_the_names_of_a_room(room: str) -> None:
    assert list_public_names(room) == list_type_checking_names(f"ndcg_spark.{room}")


@pytest.mark.parametrize("place", ["ndcg_spark", *(f"ndcg_spark.{room}" for room in PUBLIC_ROOMS)])
def test_missing_name_is_an_attribute_error(place: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{place}' has no attribute 'nowhere'"):
        import_module(place).nowhere  # noqa: B018


def test_names_of_rooms_for_python() -> None:
    """In a new process: rooms exist without an import, and `*` imports their names."""
    code = (
        "import ndcg_spark as ns; print(ns.judgments.from_events.__name__, ns.errors.NdcgSparkError.__name__)\n"
        "from ndcg_spark.history import *; print(roll_up.__name__, RollUpSettings.__name__)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["from_events", "NdcgSparkError", "roll_up", "RollUpSettings"]


@pytest.mark.parametrize(("value", "error"), [(5, "query= must be a name or a list of names; got 5")])
def test_a_value_of_a_wrong_type_is_refused_by_name(value: object, error: str) -> None:
    with pytest.raises(InvalidParameterError, match=error):
        create_settings(EventSettings, {"query": value})


@pytest.mark.parametrize("limits", ["8=5.9", (8, 5.9), None, ((8, 5.9), (9,)), ((8, "5.9"),)])
def test_limits_are_pairs(limits: object) -> None:
    with pytest.raises(InvalidParameterError, match=r"limits= must be pairs|must be a name or a list of names"):
        create_settings(FlagSettings, {"limits": limits})
