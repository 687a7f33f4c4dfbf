"""Scores of the worker against the oracle, over random rankings and every combination of choices that turns up."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from support.arrow_rankings import (
    assert_same,
    build_convention,
    build_rankings,
    build_task,
    score_batches,
    slice_batch,
)
from support.oracle import Choices, evaluate
from support.random_rankings import random_rows

SEEDS = range(160)
LONGEST = 25
RISING = "table:-2=-1,-1=-0.5,0=0,0.25=0.1,0.5=0.5,1=1,1.5=1.25,2=4,2.75=5,3=9,4=16"
IN_STEPS = "table:-2=-3,-1=-3,0=0.5,0.25=0.5,0.5=1,1=1,1.5=1,2=1,2.75=7,3=7,4=9"
FALLING = "table:" + ",".join(str(2.0 - rank / 20) for rank in range(1, LONGEST + 1))

OPTIONS: dict[str, tuple] = {
    "gain": ("exponential", "linear", "power:2", "power:0.7", RISING, IN_STEPS, lambda rel: rel * rel * rel + 0.5),
    "discount": ("log2", "ln", "log:10", "reciprocal", FALLING, lambda rank: 3.0 / (rank + 2.0)),
    "ties": ("item_asc", "item_desc", "input_order"),
    "score_precision": ("double", "float32"),
    "ideal": ("judged", "retrieved", "k_ones", "as_many"),
    "unjudged": ("zero", "condensed"),
    "negative": ("keep", "clip"),
    "no_relevant": ("zero", "one", "skip"),
    "missing_query": ("zero", "drop"),
    "unjudged_query": ("drop", "zero"),
    "pad_to_k": (None, 0.0, 1.0, -1.0),
}


def choices_of(seed: int) -> Choices:
    """Choices of a seed. A power of a negative relevance is left to other tests: the definition has none."""
    random_ = random.Random(seed)
    choices = Choices(**{name: random_.choice(values) for name, values in OPTIONS.items()})
    return replace(choices, negative="clip") if str(choices.gain).startswith("power") else choices


def rows_of(seed: int):
    flags = {"negatives": seed % 2 == 0, "fractional": seed % 3 == 0, "integer_items": seed % 5 == 0}
    return random_rows(seed, n_queries=10, max_items=9, extreme_scores=seed % 4 == 0, **flags)


def test_the_seeds_meet_every_value_of_every_choice():
    for name, values in OPTIONS.items():
        assert {getattr(choices_of(seed), name) for seed in SEEDS} == set(values), name


@pytest.mark.parametrize("seed", SEEDS)
def test_every_query_scores_what_the_oracle_says(seed):
    choices, rows = choices_of(seed), rows_of(seed)
    cutoffs = ((1, 3, 5, 20), (LONGEST,), (2, 10))[seed % 3]
    max_k = cutoffs[-1] if seed % 2 else None  # cut as Spark does, or handed over whole
    batch = build_rankings(rows, choices, max_k=max_k, seed=seed, ranks=seed % 7 == 0)
    task = build_task(build_convention(choices), cutoffs)
    whole = score_batches([batch], task)
    assert_same(whole, evaluate(rows, choices, cutoffs))
    for rows_per_batch in (1, 2, 1000):
        assert score_batches(slice_batch(batch, rows_per_batch), task) == whole


@pytest.mark.parametrize("seed", range(40))
def test_whole_lists_score_what_the_oracle_says(seed):
    choices = choices_of(seed)
    if str(choices.discount).startswith("table"):
        choices = replace(choices, discount="log2")  # no table is long enough for all ranks
    alone = choices.ideal == "k_ones" or choices.pad_to_k is not None  # beside others: see test_worker_scoring.py
    cutoffs = (None,) if alone else (3, None)
    rows = rows_of(seed)
    batch = build_rankings(rows, choices, seed=seed)
    assert_same(
        score_batches(slice_batch(batch, 3), build_task(build_convention(choices), cutoffs)),
        evaluate(rows, choices, cutoffs),
    )


@pytest.mark.parametrize("seed", range(20))
def test_neighbours_do_not_matter(seed):
    """Alone, in another order, and among other queries: the same bits."""
    choices = choices_of(seed)
    batch = build_rankings(rows_of(seed), choices, seed=seed)
    task = build_task(build_convention(choices), (3, LONGEST))
    expected = score_batches([batch], task)
    order = random.Random(seed).sample(range(batch.num_rows), batch.num_rows)
    assert score_batches([batch.take(order)], task) == expected
    assert score_batches([batch.take(order[:4])], task).items() <= expected.items()
