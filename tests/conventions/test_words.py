"""Conventions in words: every choice of every preset has a text, and different choices have different texts."""

from __future__ import annotations

import pytest

from ndcg_spark.conventions import CHOICES, PRESETS, Convention
from ndcg_spark.conventions.convention import in_words


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_words(name):
    words = in_words(PRESETS[name])
    assert len(words) == len(CHOICES) + 3
    assert all(title and text for title, text in words)


@pytest.mark.parametrize(("choice", "value"), [(choice, value) for choice in CHOICES for value in CHOICES[choice]])
def test_every_value_has_words_of_its_own(choice, value):
    changed = in_words(Convention().changed({choice: value}))
    differing = [pair for pair in changed if pair not in in_words(Convention())]
    assert len(differing) == (value != CHOICES[choice][0])


@pytest.mark.parametrize(
    ("convention", "expected"),
    [
        ("default;gain=linear:2", ("Gain of an item", "the relevance itself; 0 for relevances below 2")),
        ("default;gain=power:1.5", ("Gain of an item", "the relevance to the power of 1.5")),
        ("default;gain=table:0=0,1=4", ("Gain of an item", "by a table of relevance and gain: 0=0,1=4")),
        ("default;discount=log:10", ("Discount of a rank", "1 / log(rank + 1), to base 10")),
        ("default;discount=table:1,0.5", ("Discount of a rank", "by a table, from rank 1 on: 1,0.5")),
        ("default;pad_to_k=0.5", ("Lists shorter than k", "are filled up with items of relevance 0.5")),
    ],
)
def test_choices_with_a_parameter(convention, expected):
    assert expected in in_words(Convention.parse(convention))
