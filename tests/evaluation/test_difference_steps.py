"""The steps of a difference as settings, without data: what each changes, and where they end."""

from __future__ import annotations

from itertools import pairwise, permutations

import pytest

from ndcg_spark import PRESETS, Convention, explain_difference
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation import Columns, EvaluationSettings
from ndcg_spark.evaluation.difference import PARTS, list_steps


def test_the_steps_end_at_the_other_convention_and_change_a_part_each():
    columns = Columns(order="pos")
    for a, b in permutations(PRESETS.values(), 2):
        steps = list_steps(EvaluationSettings(columns=columns, convention=a), b)
        assert (steps[0][3].convention, steps[-1][3].convention.digest) == (a, b.digest), (a.name, b.name)
        parts = [part for part, *_ in steps[1:]]
        assert parts == [part for part in PARTS if part in parts], (a.name, b.name)
        for (*_, before), (part, *_, after) in pairwise(steps):
            changed = after.convention.differences(before.convention)
            assert changed, (a.name, b.name, part)
            assert changed.keys() <= set(PARTS[part]), (a.name, b.name, part)


def test_one_cutoff_is_explained():
    with pytest.raises(InvalidParameterError, match="single k; got 2"):
        explain_difference(None, "default", "trec_eval", k=[1, 2])


@pytest.mark.parametrize(("a", "b"), list(permutations(["best", "first", "error"], 2)))
def test_the_choice_of_duplicates_is_changed_too(a, b):
    settings = EvaluationSettings(columns=Columns(order="pos"), convention=Convention(duplicates=a))
    assert list_steps(settings, Convention(duplicates=b))[-1][3].convention.duplicates == b


def test_one_convention_twice_has_no_parts():
    for convention in PRESETS.values():
        settings = EvaluationSettings(columns=Columns(order="pos"), convention=convention)
        assert list_steps(settings, convention) == [("", "", "", settings)]


def test_the_other_cutoff_is_read_as_any_cutoff():
    steps = {k: list_steps(EvaluationSettings(cutoffs=(10,)), Convention(), k)[1:] for k in (5, "5", None, "all")}
    assert [(part, a, b, settings.cutoffs) for [(part, a, b, settings)] in steps.values()] == [
        ("cutoff", "10", "5", (5,)),
        ("cutoff", "10", "5", (5,)),
        ("cutoff", "10", "all", (None,)),
        ("cutoff", "10", "all", (None,)),
    ]
    for k in (10, "10", "same"):
        assert list_steps(EvaluationSettings(cutoffs=(10,)), Convention(), k)[1:] == []
    with pytest.raises(InvalidParameterError, match="ten"):
        list_steps(EvaluationSettings(), Convention(), "ten")


@pytest.mark.parametrize(("k", "k_b"), [(3, 2), (2, 3)])
def test_a_table_of_discounts_reaches_as_far_as_the_cutoff_at_every_step(k, k_b):
    tables = {2: "table:1,0.5", 3: "table:1,0.5,0.25"}
    settings = EvaluationSettings(cutoffs=(k,), convention=Convention(discount=tables[k]))
    steps = list_steps(settings, Convention(discount=tables[k_b]), k_b)
    assert {part for part, *_ in steps} == {"", "cutoff", "discount"}
    assert (steps[-1][3].cutoffs, steps[-1][3].convention.discount) == ((k_b,), tables[k_b])
