"""Conventions: what they print they parse, what differs has another digest, what is unknown is refused by name."""

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


def table_of(pairs: dict[float, float]) -> str:
    return "table:" + ",".join(f"{level!r}={gain!r}" for level, gain in pairs.items())


def rising(pairs: dict[float, float]) -> dict[float, float]:
    """Give the levels the same gains in rising order."""
    return dict(zip(sorted(pairs), sorted(pairs.values()), strict=True))


def weights_of(weights: list[float]) -> str:
    return "table:" + ",".join(map(repr, weights))


gains = st.one_of(
    st.sampled_from(["exponential", "linear", "power:2", "power:0.5", "table:0=0,1=1,2=4"]),
    st.dictionaries(small, small, min_size=1, max_size=4).map(rising).map(table_of),
)
discounts = st.one_of(
    st.sampled_from(["log2", "ln", "log:10", "log:2.5", "reciprocal"]),
    st.lists(positive, min_size=1, max_size=5).map(lambda weights: weights_of(sorted(weights, reverse=True))),
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
def test_what_is_printed_parses_to_the_same(convention):
    text = str(convention)
    again = Convention.parse(text)
    assert again == convention
    assert (str(again), again.digest) == (text, convention.digest)


@given(conventions, conventions)
def test_the_digest_differs_where_a_choice_does_and_nowhere_else(one, other):
    assert (one.digest == other.digest) == (not one.differences(other))
    assert replace(one, name="another").digest == one.digest
    assert len(one.digest) == 16
    assert int(one.digest, 16) >= 0


@pytest.mark.parametrize("field", [field.name for field in fields(Convention) if field.name != "name"])
def test_the_digest_depends_on_every_choice(field):
    other = {"gain": "linear", "discount": "ln", "pad_to_k": 0.0} | {
        name: values[1] for name, values in CHOICES.items()
    }
    assert Convention(**{field: other[field]}).digest != Convention().digest


def test_functions_of_one_name_have_two_digests():
    """As all lambdas of a notebook have."""
    one, other = (Convention(gain=lambda relevance, factor=factor: relevance * factor) for factor in (2, 3))
    assert one.digest != other.digest


@pytest.mark.parametrize(("one", "other"), [(0, 0.0), (1, 1.0), (-0.0, 0.0)])
def test_equal_relevances_for_padding_have_equal_digests(one, other):
    assert Convention(pad_to_k=one) == Convention(pad_to_k=other)
    assert Convention(pad_to_k=one).digest == Convention(pad_to_k=other).digest


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


def test_presets_are_named_as_they_are_found():
    assert {name: convention.name for name, convention in PRESETS.items()} == {name: name for name in PRESETS}


def test_functions_are_printed_by_name_and_take_part_in_the_digest():
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
def test_what_cannot_be_parsed_is_named(text, message):
    with pytest.raises(InvalidParameterError, match=message):
        Convention.parse(text)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("value", ["", "none", None, 1, "ZERO"])
def test_unknown_values_are_refused_with_those_there_are(choice, value):
    with pytest.raises(InvalidParameterError) as caught:
        Convention(**{choice: value})
    assert str(caught.value) == f"{choice} must be one of {', '.join(CHOICES[choice])}; got {value!r}."


# Beyond the specification: what two peers do that none of its values gives.
BEYOND = {"ideal": {"as_many", "unsorted"}}


@pytest.mark.parametrize("choice", ALLOWED)
def test_every_value_of_the_specification_is_there(choice):
    """The oracle has every value but `error`, and no duplicates."""
    there = set(CHOICES[choice])
    assert there == set(ALLOWED[choice]) | (there & {"error"}) | BEYOND.get(choice, set())


@pytest.mark.parametrize("value", [3, None, 0.5, ["log2"]])
@pytest.mark.parametrize("choice", ["gain", "discount"])
def test_what_is_neither_a_name_nor_a_function_is_refused(choice, value):
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


def test_the_specified_examples_of_gains_and_discounts_are_taken():
    slots = ",".join(str(1 / math.log2(rank + 1)) for rank in range(1, 4))
    for gain in ("exponential", "linear", "table:0=0,1=1,2=4", "power:1.5"):
        for discount in ("log2", "ln", "log:10", "reciprocal", "table:1.25,0.63", f"table:{slots}"):
            convention = Convention(gain=gain, discount=discount)
            assert (convention.gain, convention.discount) == (gain, discount)
