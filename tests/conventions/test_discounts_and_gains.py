"""Discounts that rise or are not positive, and gains that fall, are refused in every form."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrow_rankings import build_task

from ndcg_spark.conventions import Convention
from ndcg_spark.conventions.forms import discount_table
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.evaluation.tasks.scoring import score_batch
from ndcg_spark.functions.arguments import resolve_discount

# Few values, so that equal neighbours, falls and rises all occur.
weight = st.sampled_from([-1.0, -0.0, 0.0, 5e-324, 0.5, 0.63, 1.0, 1.25, math.inf, math.nan])
level = st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, 2.0, 3.0])
gain = st.sampled_from([-1.0, 0.0, 1.0, 2.0, 4.0])
COUNTS = ("n_items", "n_judged", "n_relevant", "n_rows", "n_left_out")


def is_valid(call) -> bool:
    try:
        call()
    except InvalidParameterError:
        return False
    return True


@given(st.lists(weight, min_size=1, max_size=4))
def test_discount_is_valid_if_positive_and_never_rising(weights):
    """A table must be positive everywhere. A function may end in zeros: powers of small numbers underflow."""
    finite = all(map(math.isfinite, weights))
    falls = all(later <= earlier for earlier, later in pairwise(weights))
    text, k = "table:" + ",".join(map(repr, weights)), len(weights)
    good = finite and falls and weights[-1] > 0
    assert is_valid(lambda: Convention(discount=text)) == good
    assert is_valid(lambda: Convention.parse(f"linear;discount={text}")) == good
    assert is_valid(lambda: resolve_discount(text, k)) == good
    function = finite and falls and weights[0] > 0 and weights[-1] >= 0
    assert is_valid(lambda: discount_table(lambda rank: np.array(weights), k)) == function


@given(st.dictionaries(level, gain, min_size=1, max_size=4))
def test_gain_table_is_valid_if_it_does_not_fall(table):
    text = "table:" + ",".join(f"{relevance!r}={value!r}" for relevance, value in table.items())
    good = all(table[low] <= table[high] for low, high in pairwise(sorted(table)))
    assert is_valid(lambda: Convention(gain=text)) == good


@given(st.dictionaries(level, gain, min_size=1, max_size=4), st.integers(0, 4))
def test_a_gain_function_is_refused_if_it_falls_within_a_query(table, n_ranked):
    """Relevances may be ranked or only in the ideal list."""
    levels = list(table)
    good = all(table[low] <= table[high] for low, high in pairwise(sorted(table)))
    batch = pa.RecordBatch.from_pydict(
        {
            "run": [""], "query_id": ["q"],
            "n_items": [4], "n_judged": [4], "n_relevant": [4], "n_rows": [4], "n_left_out": [0],
            "ranked": [[*levels[:n_ranked], None]], "ideal": [levels[n_ranked:]],
        },
        schema=pa.schema(
            [("run", pa.string()), ("query_id", pa.string()), *((name, pa.int64()) for name in COUNTS),
             ("ranked", pa.list_(pa.float64())), ("ideal", pa.list_(pa.float64()))]
        ),
    )  # fmt: skip
    convention = Convention(gain=np.vectorize(table.get, otypes=[float]), discount="reciprocal")
    if good:
        list(score_batch(batch, build_task(convention, (4,))))
    else:
        with pytest.raises(InputRefusedError, match="query query_id=q has a gain function that falls from "):
            list(score_batch(batch, build_task(convention, (4,))))


def test_a_function_that_falls_below_the_smallest_double():
    assert discount_table(lambda rank: 0.5**rank, 1100)[[0, 1073, 1074]].tolist() == [0.5, 5e-324, 0.0]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"discount": "table:1,2"}, "discount table rises from 1 to 2 at rank 2; the ideal list has the best gain "),
        ({"discount": "table:1,-1"}, "discount table has -1 at rank 2; a weight must be above 0 (the cutoff k ends "),
        ({"discount": "table:1,0.5,0"}, "discount table has 0 at rank 3; a weight must be above 0 "),
        ({"discount": "table:1,nan"}, "discount table has a value that is not finite: nan at rank 2."),
        ({"gain": "table:0=0,1=4,2=2"}, "gain table falls from 4 at relevance 1 to 2 at 2; the ideal list has the "),
    ],
)
def test_refusals_name_the_rank_or_the_relevance(choices, message):
    with pytest.raises(InvalidParameterError) as error:
        Convention(**choices)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize("first", ["1.25", "1", "0.8", "0.63"])
def test_the_first_place_may_be_boosted(first):
    assert discount_table(f"table:{first},0.63,0.5", 3).tolist() == [float(first), 0.63, 0.5]
