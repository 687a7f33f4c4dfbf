"""Values of settings must have the types of their fields, in Python and on the command line."""

from __future__ import annotations

import importlib
from dataclasses import is_dataclass
from datetime import date, datetime
from typing import Any, get_args, get_origin

import numpy as np
import pyarrow as pa
import pytest
from support.source_rules import WITH_SETTINGS

from ndcg_spark import Convention, compare
from ndcg_spark.core.flag import Setting, list_settings
from ndcg_spark.errors import InvalidParameterError, option, spell_options
from ndcg_spark.evaluation import evaluation_settings, explain_ranks
from ndcg_spark.evaluation.settings import EvaluationSettings, parse_single_cutoff
from ndcg_spark.history import FlagSettings, RollUpSettings
from ndcg_spark.metrics import EVERY, MetricAt
from ndcg_spark.metrics.normalized_gain import NDCG

BAD: dict[Any, tuple[list[Any], str]] = {
    bool: ([1, "no", 0.0], "True or False"),
    int: ([2.5, "3", True, 2.0], "a whole number"),
    float: (["0.5", True, 1j], "a number"),
    str: ([5, b"a", ("a",)], "a name"),
    date: (["2026-01-31", datetime(2026, 1, 31)], "a datetime.date"),
}
"""By type: values that it does not have, and how a message says so."""
NEEDED: dict[str, dict[str, Any]] = {
    "ComparisonSettings": {"runs": ("a", "b"), "baseline": None, "metrics": (MetricAt(NDCG, EVERY),)},
    "EventSettings": {"grades": {"click": 1.0}},
}
"""What a class has no default for."""
OF_COMMANDS = ("JobSettings", "MetricRows", "QueryColumns", "SharedSettings", "ChosenPair")
"""Ends of names of what a command alone makes, of values that click has checked."""


def list_settings_classes() -> dict[str, type]:
    """Return settings that can be built without values that only a command has."""
    classes_by_name = {}
    for room in WITH_SETTINGS:
        module = importlib.import_module(f"ndcg_spark.{room}.settings")
        for name, value in vars(module).items():
            is_own = is_dataclass(value) and value.__module__ == module.__name__
            if is_own and not name.endswith(OF_COMMANDS) and not _needs_more(name, value):
                classes_by_name[name] = value
    return classes_by_name


def _needs_more(name: str, cls: type) -> bool:
    return any(setting.is_required and setting.field not in NEEDED.get(name, {}) for setting in list_settings(cls))


def list_typed_fields() -> list[tuple[str, type, Setting, Any]]:
    typed_fields = []
    for name, cls in list_settings_classes().items():
        for setting in list_settings(cls):
            kind = get_args(setting.kind)[0] if get_origin(setting.kind) is tuple else setting.kind
            if kind in BAD and not setting.choices and not setting.is_nested:
                typed_fields.append((name, cls, setting, kind))
    return typed_fields


FIELDS = list_typed_fields()


def test_fields_cover_settings_of_all_rooms():
    named = {name for name, *_ in FIELDS}
    assert {"Columns", "EvaluationSettings", "Statistics", "FlagSettings", "LinkSettings", "EventSettings"} < named
    assert {kind for *_, kind in FIELDS} == {*BAD}


@pytest.mark.parametrize(("name", "cls", "setting", "kind"), FIELDS, ids=[f"{n}.{o.field}" for n, _, o, _ in FIELDS])
def test_a_value_of_another_type_is_refused_by_name(name, cls, setting, kind):
    values, words = BAD[kind]
    several = get_origin(setting.kind) is tuple
    for value in values if setting.optional or several else [None, *values]:
        if several and isinstance(value, tuple):
            continue
        with pytest.raises(InvalidParameterError) as refused:
            cls(**{**NEEDED.get(name, {}), setting.field: (value,) if several else value})
        assert str(refused.value) == f"{spell_options(option(setting.field))} must be {words}; got {value!r}."


def test_numbers_of_numpy_are_numbers():
    made = EvaluationSettings(confidence=np.float64(0.9), sample=np.float32(0.5), tie_bounds=np.bool_(True))
    assert [type(number) for number in (made.confidence, made.sample, made.tie_bounds)] == [float, float, bool]
    assert type(FlagSettings(lookback=np.int32(9)).lookback) is int
    assert evaluation_settings(item=np.str_("doc")).digest == evaluation_settings(item="doc").digest


def test_a_name_may_be_of_a_class_of_texts():
    class Name(str):
        __slots__ = ()

    assert evaluation_settings(item=Name("doc")).digest == evaluation_settings(item="doc").digest


def test_hash_of_an_int_equals_that_of_an_equal_float():
    assert evaluation_settings(sample=1).digest == evaluation_settings().digest
    assert Convention(pad_to_k=0).digest == Convention(pad_to_k=0.0).digest
    assert type(RollUpSettings(margin=0).margin) is float


@pytest.mark.parametrize("k", ["1,3", [1, 3], ()])
def test_parse_single_cutoff_refuses_other_values(k):
    for name in ("k", "k_b"):
        with pytest.raises(InvalidParameterError, match=f"^{name} must be one cutoff; got "):
            parse_single_cutoff(k, name)
    with pytest.raises(InvalidParameterError, match=r"^k must be one cutoff"):
        explain_ranks(None, k=k)


def test_arguments_of_functions_are_checked_before_anything_is_read():
    with pytest.raises(InvalidParameterError, match=r"^flips= must be a whole number; got 2\.5\.$"):
        compare({"a": pa.table({}), "b": pa.table({})}, flips=2.5, weight="")
