"""Conventions: printing and parsing, digests, refusals of unknown values."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.oracle import ALLOWED

from ndcg_spark.conventions import CHOICES, PRESETS, Convention
from ndcg_spark.errors import InvalidParameterError, NdcgSparkError, find_refusal, mark_refusal

finite = st.floats(allow_nan=False, allow_infinity=False)
positive = st.floats(0, exclude_min=True, allow_infinity=False)
small = st.floats(-1e9, 1e9)


def format_table(pairs: dict[float, float]) -> str:
    return "table:" + ",".join(f"{level!r}={gain!r}" for level, gain in pairs.items())


def sort_gains(pairs: dict[float, float]) -> dict[float, float]:
    """Assign the same gains to the levels in rising order."""
    return dict(zip(sorted(pairs), sorted(pairs.values()), strict=True))


def format_weights(weights: list[float]) -> str:
    return "table:" + ",".join(map(repr, weights))


gains = st.one_of(
    st.sampled_from(["exponential", "linear", "power:2", "power:0.5", "table:0=0,1=1,2=4"]),
    st.dictionaries(small, small, min_size=1, max_size=4).map(sort_gains).map(format_table),
)
discounts = st.one_of(
    st.sampled_from(["log2", "ln", "log:10", "log:2.5", "reciprocal"]),
    st.lists(positive, min_size=1, max_size=5).map(lambda weights: format_weights(sorted(weights, reverse=True))),
)
conventions = st.builds(
    Convention,
    name=st.sampled_from(sorted(PRESETS)),
    gain=gains,
    discount=discounts,
    pad_to_k=st.none() | finite,
    **{choice: st.sampled_from(values) for choice, values in CHOICES.items()},
)


def triple(relevance):
    return 3 * relevance


# --- Print and parse


@given(conventions)
def test_printed_convention_parses_to_the_same(convention):
    text = str(convention)
    again = Convention.parse(text)
    assert again == convention
    assert (str(again), again.digest) == (text, convention.digest)


@given(conventions, conventions)
def test_digest_differs_only_if_a_choice_does(left, right):
    assert (left.digest == right.digest) == (not left.differences(right))
    assert replace(left, name="another").digest == left.digest
    assert len(left.digest) == 16
    assert int(left.digest, 16) >= 0


@pytest.mark.parametrize("field", [field.name for field in fields(Convention) if field.name != "name"])
def test_the_digest_depends_on_every_choice(field):
    other = {"gain": "linear", "discount": "ln", "pad_to_k": 0.0} | {
        name: values[1] for name, values in CHOICES.items()
    }
    assert Convention(**{field: other[field]}).digest != Convention().digest


def test_different_functions_of_one_name_have_different_digests():
    """Lambdas in a notebook share a name."""
    left, right = (Convention(gain=lambda relevance, factor=factor: relevance * factor) for factor in (2, 3))
    assert left.digest != right.digest


@pytest.mark.parametrize(("left", "right"), [(0, 0.0), (1, 1.0), (-0.0, 0.0)])
def test_equal_relevances_for_padding_have_equal_digests(left, right):
    assert Convention(pad_to_k=left) == Convention(pad_to_k=right)
    assert Convention(pad_to_k=left).digest == Convention(pad_to_k=right).digest


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("default", {}),
        ("linear", {"gain": "linear"}),
        ("default;gain=table:0=0,1=1,2=4", {"gain": "table:0=0,1=1,2=4"}),
        ("default;discount=table:1.25,0.63", {"discount": "table:1.25,0.63"}),
        ("default;pad_to_k=-1.5", {"pad_to_k": -1.5}),
        (
            "trec_eval",
            {"gain": "linear", "ties": "item_desc", "negative": "clip", "missing_query": "drop"},
        ),
        (
            "trec_eval_9;gain=exponential",
            {"ties": "item_desc", "negative": "clip", "missing_query": "drop", "score_precision": "float32"},
        ),
    ],
)
def test_parsing(text, choices):
    parsed = Convention.parse(text)
    assert parsed.differences() == {name: value for name, value in choices.items() if value is not None}
    assert parsed.name == text.partition(";")[0]


def test_printing_gives_the_preset_and_what_differs_from_it():
    assert str(Convention()) == "default"
    assert str(replace(PRESETS["trec_eval"], gain="exponential", pad_to_k=0.0)) == (
        "trec_eval;gain=exponential;pad_to_k=0.0"
    )
    assert str(replace(PRESETS["trec_eval"], ties="item_asc")) == "trec_eval;ties=item_asc"
    assert str(Convention(name="house rules", gain="linear")) == "default;gain=linear"


def test_presets_have_their_names():
    assert {name: convention.name for name, convention in PRESETS.items()} == {name: name for name in PRESETS}


def test_functions_are_printed_by_name_and_change_the_digest():
    convention = Convention(gain=triple)
    assert str(convention).endswith(f";gain={__name__}.triple")
    assert convention.digest != Convention().digest
    with pytest.raises(InvalidParameterError, match="gain must be one of"):
        Convention.parse(str(convention))


# --- Refusals


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"unknown convention ''; choose one of catboost, catboost_exp, default"),
        ("Default", "unknown convention 'Default'"),
        ("gain=linear", "unknown convention 'gain=linear'"),
        ("default;", "unknown choice ''; choose one of gain, discount, ties"),
        ("default;gian=linear", "unknown choice 'gian'"),
        ("default;name=x", "unknown choice 'name'"),
        ("default;gain", "gain must be one of .*; got ''"),
        ("default;gain=exp", "gain must be one of exponential, linear, binary .*, table:LEVEL=GAIN.*; got 'exp'"),
        ("default;discount=log", "discount must be one of .*; got 'log'"),
        ("default;discount=log:1", "log base must be above 1; got '1'"),
        ("default;pad_to_k=many", "pad_to_k must be a relevance or 'off'; got 'many'"),
        ("default;pad_to_k=nan", "pad_to_k must be a finite relevance; got nan"),
        ("default;pad_to_k=inf", "pad_to_k must be a finite relevance; got inf"),
    ],
)
def test_parse_errors_name_the_text(text, message):
    with pytest.raises(InvalidParameterError, match=message):
        Convention.parse(text)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("value", ["", "none", None, 1, "ZERO"])
def test_refusal_of_unknown_values_lists_the_known_ones(choice, value):
    with pytest.raises(InvalidParameterError) as caught:
        Convention(**{choice: value})
    assert str(caught.value) == f"{choice} must be one of {', '.join(CHOICES[choice])}; got {value!r}."


# Not in the specification: two values that other tools need.
BEYOND = {"ideal": {"as_many", "unsorted"}}


@pytest.mark.parametrize("choice", ALLOWED)
def test_choices_are_those_of_the_specification(choice):
    """The oracle has every value but `error`, and no duplicates."""
    values = set(CHOICES[choice])
    assert values == set(ALLOWED[choice]) | (values & {"error"}) | BEYOND.get(choice, set())


@pytest.mark.parametrize("value", [3, None, 0.5, ["log2"]])
@pytest.mark.parametrize("choice", ["gain", "discount"])
def test_values_other_than_names_and_functions_are_refused(choice, value):
    with pytest.raises(InvalidParameterError):
        Convention(**{choice: value})


def test_a_convention_is_frozen_and_takes_options_by_name_only():
    with pytest.raises(FrozenInstanceError):
        Convention().gain = "linear"
    with pytest.raises(TypeError):
        Convention("default")


# --- Errors


def test_a_bad_parameter_is_a_value_error_and_one_of_ours():
    with pytest.raises(ValueError, match="ties must be one of"):
        Convention(ties="random")
    assert issubclass(InvalidParameterError, NdcgSparkError)


@pytest.mark.parametrize("text", ["default;ties=best;ties=worst", "default;gain=linear;ties=best;gain=linear"])
def test_a_rule_that_is_named_twice_is_refused(text):
    with pytest.raises(InvalidParameterError, match=r"convention '.*' has '(ties|gain)' twice; keep one\."):
        Convention.parse(text)


@given(st.text(), st.text().filter(lambda text: "\u2063\u2062" not in text), st.text())
def test_a_marked_message_is_found_in_any_stack_trace(message, before, after):
    if "\u2062" not in message:
        assert find_refusal(before + mark_refusal(message) + after) == message
    assert find_refusal(before) is None


def test_specified_gains_and_discounts_are_valid():
    slots = ",".join(str(1 / math.log2(rank + 1)) for rank in range(1, 4))
    for gain in ("exponential", "linear", "table:0=0,1=1,2=4", "power:1.5"):
        for discount in ("log2", "ln", "log:10", "reciprocal", "table:1.25,0.63", f"table:{slots}"):
            convention = Convention(gain=gain, discount=discount)
            assert (convention.gain, convention.discount) == (gain, discount)
