"""Results of two rules are not combined: every setting against every function that combines two results.

The settings come from the fields of the classes, and the functions from the public API, so that a new one without a
decision here fails.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from datetime import date
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ndcg_spark.business.settings import LinkSettings
from ndcg_spark.business.tasks import link_rates
from ndcg_spark.comparison.settings import ComparisonSettings
from ndcg_spark.comparison.spark_results import open_on_spark
from ndcg_spark.comparison.tables import build_settings
from ndcg_spark.comparison.tasks import finishing, summing
from ndcg_spark.conventions import PRESETS, Convention
from ndcg_spark.core.exact import MOMENTS, N_LIMBS
from ndcg_spark.diagnosis.tasks import split_changes
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.evaluation import Columns, Evaluation, EvaluationSettings, ItemColumns
from ndcg_spark.evaluation.rules import combine_rules, format_rules_notes, read_rules
from ndcg_spark.evaluation.tasks.partial_sums import GROUP_COUNTS, compute_means
from ndcg_spark.history.settings import FlagSettings, RollUpSettings
from ndcg_spark.history.tasks.judging import flag_nights
from ndcg_spark.history.tasks.period_sums import roll_up_nights
from ndcg_spark.metrics import parse_metric
from ndcg_spark.metrics.base import EVERY, MetricAt
from ndcg_spark.metrics.normalized_gain import NDCG

BASE = EvaluationSettings(
    columns=Columns(order="at"), convention=Convention(ties="expected"), cutoffs=(2, 5), as_of=date(2026, 1, 1)
)
NOT_A_RULE = None
OF_CONVENTIONS: dict[str, Any] = {
    "name": NOT_A_RULE,
    "gain": "linear",
    "discount": "ln",
    "ties": "worst",
    "score_precision": "float32",
    "ideal": "retrieved",
    "unjudged": "condensed",
    "negative": "clip",
    "no_relevant": "one",
    "missing_query": "drop",
    "unjudged_query": "zero",
    "duplicates": "best",
    "pad_to_k": 0.5,
}
"""By each field of a convention, another value than that of `BASE`."""
RULES_OF_EVALUATIONS: dict[str, Any] = {"null_score": "unretrieved", "sample": 0.5}
OTHERS_OF_EVALUATIONS: dict[str, Any] = {
    "columns": Columns(item="sku", order="at"),
    "cutoffs": (2, 3, 5),
    "metrics": (MetricAt(parse_metric("ap")[0], 5), MetricAt(parse_metric("ndcg")[0], 2)),
    "segment_sets": (("country",),),
    "strategy": "window",
    "source": "spark",
    "on_invalid": "reject",
    "check_duplicates": "none",
    "confidence": 0.9,
    "tie_bounds": True,
    "item_columns": ItemColumns(vector="embedding"),
    "as_of": date(2026, 1, 2),
    "allow_unmatched": True,
}
"""By each setting that changes no value of a query, another value than that of `BASE`."""


def build_differing() -> dict[str, EvaluationSettings]:
    """Return settings that differ from `BASE` in the rule of that name."""
    changed = {name: value for name, value in OF_CONVENTIONS.items() if value is not NOT_A_RULE}
    settings = {
        name: replace(BASE, convention=replace(BASE.convention, **{name: value})) for name, value in changed.items()
    }
    return settings | {name: replace(BASE, **{name: value}) for name, value in RULES_OF_EVALUATIONS.items()}


def build_alike() -> dict[str, EvaluationSettings]:
    """Return settings that differ from `BASE` in something other than a rule."""
    settings = {name: replace(BASE, **{name: value}) for name, value in OTHERS_OF_EVALUATIONS.items()}
    return settings | {"name": replace(BASE, convention=replace(BASE.convention, name="sklearn"))}


def test_every_field_is_a_rule_or_is_not():
    assert [field.name for field in fields(Convention)] == list(OF_CONVENTIONS)
    decided = {"convention", *RULES_OF_EVALUATIONS, *OTHERS_OF_EVALUATIONS}
    assert {field.name for field in fields(EvaluationSettings)} == decided
    assert set(read_rules(BASE.rules)) == set(build_differing())
    for name, settings in build_alike().items():
        assert settings != BASE, name
        assert settings.rules == BASE.rules, name
    for name, settings in build_differing().items():
        ours, theirs = read_rules(BASE.rules), read_rules(settings.rules)
        assert [field for field in ours if ours[field] != theirs[field]] == [name]


# ------------------------------------------------------------------------------------------ ways of combining

KEYS = {"run": "a", "segment_by": "", "segment": "", "metric": "ndcg", "k": 2}
STATE = [0] * MOMENTS.size


def build_batch(rows: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pylist(rows)])


def collect_rules(batches: Iterator[pa.RecordBatch]) -> set[str | None]:
    return {text for batch in batches for text in batch.column("rules").to_pylist()}


def add_means(left: str | None, right: str | None, across: bool) -> set[str | None]:
    row = {**KEYS, **dict.fromkeys(GROUP_COUNTS, 0), "states": [STATE, STATE], "rules": [left or "", right or ""]}
    return collect_rules(compute_means(build_batch([row]), 0.95, None, across))


def divide_shift(left: str | None, right: str | None, across: bool) -> set[str | None]:
    state = np.array(STATE)
    state[0] = state[N_LIMBS] = 1
    row = {**KEYS, "segment_by": "country", "segment": "DE", "state": state.tolist()}
    rows = [{**row, "after": after, "rules": text or ""} for after, text in ((False, left), (True, right))]
    return collect_rules(split_changes(build_batch(rows), across))


def link_clicks(left: str | None, right: str | None, across: bool) -> set[str | None]:
    nights = [
        {"day": day, "value": 0.5, "config_hash": str(day), "rules": text or ""}
        for day, text in enumerate((left, right))
    ]
    clicks = [{"day": 0, "impressions": 10, "clicks": 5, "conversions": 1}]
    settings = LinkSettings(across_rules=across)
    return collect_rules(link_rates(build_batch([{**KEYS, "nights": nights, "clicks": clicks}]), settings))


COMPARED = ComparisonSettings(
    runs=("a", "b"), baseline="a", metrics=(MetricAt(NDCG, EVERY),), replicates=0, flips=0, rules_in_rows=True
)


def compare_rows(left: str | None, right: str | None, across: bool) -> set[str | None]:
    return collect_rules(iter([build_compared_batch(left, right, across)]))


def build_compared_batch(left: str | None, right: str | None, across: bool = False) -> pa.RecordBatch:
    settings = replace(COMPARED, across_rules=across)
    rows = [
        {"unit": query, "key_0": str(query), "run": run, "k": 2, "value_0": 0.1 * query + run, "rules": text}
        for query in (1, 2, 3)
        for run, text in enumerate((left, right))
    ]
    schema = [("unit", pa.int64()), ("key_0", pa.string()), ("run", pa.int32()), ("k", pa.int32())]
    canonical = pa.RecordBatch.from_pylist(
        rows, schema=pa.schema([*schema, ("value_0", pa.float64()), ("rules", pa.string())])
    )
    sums = summing.merge_sums(summing.add_up(iter([canonical]), settings))
    (estimated,) = finishing.estimate_groups(sums, settings)
    return estimated


def add_comparisons(left: str | None, right: str | None, across: bool) -> set[str | None]:
    night = (
        build_compared_batch("ties=expected", "ties=expected").drop_columns(["rules", "replicates"]).to_pylist()[0]
    )
    rows = [
        {**night, "night": date(2026, 1, day), "as_of": date(2026, 1, 11), "convention": "x",
         "config_hash": str(day), "rules": text or "", "verdict": "unclear"}
        for day, text in ((5, left), (6, right))
    ]  # fmt: skip
    return collect_rules(roll_up_nights(build_batch(rows), RollUpSettings(periods=("week",), across_rules=across)))


def log_rows(left: str | None, right: str | None, across: bool) -> set[str | None]:
    from ndcg_spark.mlflow import _describe_result

    stamps = {"convention": "x", "config_hash": "y", "package_version": "z"}
    rows = [{**stamps, "rules": left}, {**stamps, "config_hash": "other", "rules": right}]
    return {_describe_result(None, rows, across=across)["rules"]}  # type: ignore[arg-type]  # anything but an evaluation


WAYS: dict[str, tuple[Callable[..., set[str | None]], ...]] = {
    "merge_summaries": (add_means,),
    "roll_up": (add_means, add_comparisons),
    "shift_of_means": (divide_shift,),
    "business_link": (link_clicks,),
    "compare": (compare_rows,),
    "log_evaluation": (log_rows,),
}
"""What makes one number or pair of several results, and what does so in its workers."""
SERIES = {"flag_changes", "report"}
"""What takes results of other rules for another series, or puts them into another table."""
COMBINES_NOTHING = {
    # One evaluation, with one set of settings.
    "evaluate", "evaluation_settings", "rank_queries", "score_queries", "summarize", "summarize_rankings",
    "explain_ranks", "changed_queries", "score_losses", "summarize_losses",
    # Two conventions are the subject, and each row names its own.
    "explain_difference",
    "mlflow_name",
}  # fmt: skip
ROOMS = ("evaluation", "comparison", "history", "diagnosis", "business", "reports", "mlflow")


def test_every_public_function_is_classified():
    """A new function of results must be added to one of the lists."""
    actual = set()
    for room in ROOMS:
        module = importlib.import_module(f"ndcg_spark.{room}")
        names = [name for name in dir(module) if not name.startswith("_")]
        functions = {name: getattr(module, name) for name in names if inspect.isfunction(getattr(module, name))}
        actual |= {
            name for name, function in functions.items() if room != "mlflow" or function.__module__ == module.__name__
        }
    assert actual == {*WAYS, *SERIES, *COMBINES_NOTHING}
    for name in WAYS:
        (function,) = [
            getattr(module, name)
            for module in (importlib.import_module(f"ndcg_spark.{room}") for room in ROOMS)
            if hasattr(module, name)
        ]
        assert "across_rules" in inspect.signature(function).parameters, name


COMBINING = [pytest.param(work, id=f"{name}-{work.__name__}") for name, works in WAYS.items() for work in works]


@pytest.mark.parametrize("combine", COMBINING)
@pytest.mark.parametrize("name", build_differing())
def test_results_of_two_rules_are_refused(combine, name):
    left, right = BASE.rules, build_differing()[name].rules
    values = [read_rules(text)[name] for text in (left, right)]
    named = "|".join(f"{name}: {re.escape(' and '.join(order))}" for order in (values, values[::-1]))
    with pytest.raises(InputRefusedError, match=rf"different rules \(({named})\)"):
        combine(left, right, False)
    (mixed,) = combine(left, right, True)
    assert read_rules(mixed)[name] == "mixed"
    assert format_rules_notes([mixed]) == [
        f"rules: results of different rules are combined, as requested; they differ in {name}"
    ]


@pytest.mark.parametrize("combine", COMBINING)
def test_results_that_differ_in_something_else_are_combined(combine):
    for name, settings in build_alike().items():
        (rules,) = combine(BASE.rules, settings.rules, False)
        assert str(rules).startswith(BASE.rules), name
        assert format_rules_notes([rules]) == []


@pytest.mark.parametrize("combine", COMBINING)
def test_unknown_rules_are_combined_with_known_ones(combine):
    (nothing,) = combine(None, None, False)
    assert nothing is None
    (rules,) = combine(None, BASE.rules, False)
    assert read_rules(rules).items() >= {**read_rules(BASE.rules), "unknown": "some"}.items()
    (line,) = format_rules_notes([rules, None])
    assert "the rules of some results are unknown" in line


@pytest.mark.parametrize("name", build_differing())
def test_evaluations_are_refused_before_anything_runs(name):
    """Only `ranking` could run, and it is None."""
    tables = {
        run: Evaluation(settings=settings, ranking=None)
        for run, settings in (("a", BASE), ("b", build_differing()[name]))
    }  # type: ignore[arg-type]
    with pytest.raises(InputRefusedError, match=rf"the comparison would .*\({name}: "):
        build_settings(open_on_spark(tables))
    settings = build_settings(open_on_spark(tables), across_rules=True)
    assert read_rules(settings.rules)[name] == "mixed"
    same = {
        run: Evaluation(settings=settings, ranking=None) for run, settings in (("a", BASE), *build_alike().items())
    }  # type: ignore[arg-type]
    assert build_settings(open_on_spark(same), metrics="ndcg").rules == BASE.rules


def test_runs_of_a_run_column_of_numbers_are_named_by_numbers():
    """Results store names as text."""
    result = Evaluation(settings=replace(BASE, columns=Columns(score=("1", "2"), order="at")), ranking=None)  # type: ignore[arg-type]
    for baseline, runs in ((1, None), ("1", None), (np.int64(1), 2), (1, [2]), (1, "2")):
        settings = build_settings(open_on_spark(result), baseline=baseline, runs=runs)
        assert (settings.baseline, settings.runs) == ("1", ("1", "2"))
    assert build_settings(open_on_spark({1: result, 2: result}), baseline=2).baseline == "2"
    for baseline in (3, True, 1.0):
        with pytest.raises(InvalidParameterError, match="baseline must be one of 1, 2"):
            build_settings(open_on_spark(result), baseline=baseline)  # type: ignore[arg-type]


def test_queries_outside_a_sample_are_not_missing():
    """Samples of evaluations are known to the driver, samples of stored tables to workers only."""
    half = replace(BASE, sample=0.5)
    tables = {run: Evaluation(settings=settings, ranking=None) for run, settings in (("a", BASE), ("b", half))}  # type: ignore[arg-type]
    assert build_settings(open_on_spark(tables), across_rules=True).unpaired == "drop"
    same = open_on_spark({**tables, "b": tables["a"]})
    assert build_settings(same, across_rules=True).unpaired == "zero"
    settings = replace(COMPARED, across_rules=True)
    group = summing.Group(rules={BASE.rules, half.rules})
    group.sums.counts[[0, 5]] = 1
    key = summing.GroupKey(0, 0, "", 0, 2)
    sums = list(summing.build_partial_batches({key: group}))
    with pytest.raises(InputRefusedError, match="two different samples of queries"):
        list(finishing.estimate_groups(iter(sums), settings))
    (actual,) = finishing.estimate_groups(iter(sums), replace(settings, unpaired="drop"))
    assert read_rules(actual.column("rules")[0].as_py())["sample"] == "mixed"


@pytest.mark.parametrize("name", [*build_differing(), "nothing"])
def test_history_has_no_nights_of_other_rules(name):
    """28 nights of 0.5, then one of 0.1: far from usual, if there is a history."""
    rules = {**build_differing(), "nothing": BASE}[name].rules
    night = {"value": 0.5, "std_error": 0.001, "config_hash": "x", "n_queries": 9, "n_missing": 0}
    nights = [{**night, "day": day, "rules": BASE.rules} for day in range(28)]
    nights.append({**night, "day": 28, "value": 0.1, "config_hash": "y", "rules": rules})
    series = {**KEYS, "nights": nights, "run_nights": [], "run_counts": [], "table_nights": None}
    flags = [row for night in flag_nights(build_batch([series]), FlagSettings()) for row in night.to_pylist()]
    assert flags[-1]["status"] == ("low" if name == "nothing" else "short_history")
    assert flags[-1]["n_nights"] == (28 if name == "nothing" else 0)


def test_without_rules_a_history_is_that_of_one_configuration():
    night = {"value": 0.5, "std_error": 0.001, "n_queries": 9, "n_missing": 0}
    nights = [{**night, "day": day, "config_hash": "x", "rules": ""} for day in range(28)]
    for config_hash, rules, n in (("x", BASE.rules, 28), ("x", "", 28), ("y", BASE.rules, 0), ("y", "", 0)):
        series = {**KEYS, "nights": [*nights, {**night, "day": 28, "config_hash": config_hash, "rules": rules}]}
        series |= {"run_nights": [], "run_counts": [], "table_nights": None}
        flags = [row for night in flag_nights(build_batch([series]), FlagSettings()) for row in night.to_pylist()]
        assert flags[-1]["n_nights"] == n


# ------------------------------------------------------------------------------------------------- one text


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"gain": "table:0=0,1=1,2=3.50"}, {"gain": "table: 2=3.5, 0.0 = 0, 1=1"}),
        ({"gain": "power:.5"}, {"gain": "power:0.50"}),
        ({"gain": "linear:2"}, {"gain": "linear:2.0"}),
        ({"discount": "table:1,.5"}, {"discount": "table: 1.0, 0.5"}),
        ({"discount": "log:3"}, {"discount": "log:3.0"}),
        ({"pad_to_k": 0}, {"pad_to_k": -0.0}),
        ({"name": "sklearn"}, {}),
    ],
)
def test_equal_rules_have_equal_texts(left, right):
    assert Convention(**left).choices == Convention(**right).choices


def test_a_preset_is_its_fields():
    for name, preset in PRESETS.items():
        written = ";".join(f"{choice}={value}" for choice, value in preset.differences().items())
        convention = Convention.parse(f"default;{written}" if written else "default")
        assert EvaluationSettings.rules_by(convention) == EvaluationSettings.rules_by(preset), name
    assert EvaluationSettings(sample=1).rules == EvaluationSettings(sample=1.0).rules  # type: ignore[arg-type]


SCALE = 2.0


def test_functions_are_distinguished_by_their_code():
    def make_scale(by: float) -> Callable[[Any], Any]:
        return lambda relevance: relevance * by

    class Power:
        def __init__(self, exponent: float) -> None:
            self.exponent = exponent

        def __call__(self, relevance: Any) -> Any:
            return relevance**self.exponent

    class Scale(Power):
        def gain(self, relevance: Any) -> Any:
            return relevance**self.exponent

    class Slots:
        __slots__ = ("by",)

        def __init__(self, by: float) -> None:
            self.by = by

        def __call__(self, relevance: Any) -> Any:
            return relevance * self.by

    def of_class(by: float) -> Any:
        class Fixed:
            factor = by

            def __call__(self, relevance: Any) -> Any:
                return relevance * self.factor

            @classmethod
            def gain(cls, relevance: Any) -> Any:
                return relevance * cls.factor

        return Fixed

    def text(gain: Callable[[Any], Any]) -> str:
        return Convention(gain=gain).choices["gain"]

    assert text(make_scale(2.0)) == text(make_scale(2.0))
    assert text(Power(2)) == text(Power(2))
    different = [make_scale(2.0), make_scale(3.0), Power(2), Power(3), np.sqrt, np.cbrt, lambda r: r, lambda r: r + 1]
    different += [lambda r: np.sqrt(r), lambda r: np.cbrt(r), lambda r, by=1: r * by, lambda r, by=2: r * by]
    for make in (
        lambda by: Scale(by).gain, lambda by: partial(Scale(by).gain), Slots, lambda by: of_class(by)(),
        lambda by: of_class(by).gain, lambda by: {1.0: by}.get, lambda by: np.vectorize({1.0: by}.get),
    ):  # fmt: skip
        assert text(make(2.0)) == text(make(2.0))
        different += [make(2.0), make(3.0)]
    assert len({text(element) for element in different}) == len(different)
    globals()["SCALE"] = 2.0
    by_global = lambda r: r * SCALE  # noqa: E731
    before = text(by_global)
    globals()["SCALE"] = 3.0
    assert text(by_global) != before


def test_mixed_results_equal_none_of_their_parts():
    mixed = combine_rules([BASE.rules, build_differing()["ties"].rules], "it", across=True)
    with pytest.raises(InputRefusedError, match="ties: mixed and expected"):
        combine_rules([mixed, BASE.rules], "it", across=False)
    assert combine_rules([mixed, mixed], "it", across=False) == mixed


def test_rules_is_a_name_of_results():
    for columns in ({"query": ("rules",)}, {"query": ("Rules",)}):
        with pytest.raises(InvalidParameterError, match=r"(?i)'rules' has a reserved name"):
            EvaluationSettings(columns=Columns(**columns))
