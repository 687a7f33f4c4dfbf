"""Diversity, alpha-NDCG, novelty and catalogue metrics: worked values of other tools, definitions in loops, refusals.

rt: RecTools 0.19.0; rec: recommenders 1.2.1; rp: RecPack 0.3.6; nd: pyndeval 0.0.8; def: by definition.
"""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from support import item_lists
from support.item_lists import build_rankings_batch, compute_values
from support.item_lists import read_item_lists as lists_in

from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.metrics import CatalogueMetric, Metric, all_metrics, parse_metric
from ndcg_spark.metrics.catalogue import Exposure

THREE = {"a": {"vector": [1.0, 0.0]}, "b": {"vector": [0.6, 0.8]}, "c": {"vector": [0.0, 1.0]}}
GENRES = {"a": {"categories": ["a", "b"]}, "b": {"categories": ["b", "c"]}, "c": {"categories": ["d"]}}
DIVERSE = [("d1", 1, "12"), ("d2", 1, "1"), ("d3", 1, "23"), ("d4", 1, "3"), ("d5", 1, "4")]
NOT_OPTIMAL = [("a", 1, "34"), ("b", 1, "23"), ("c", 1, "14"), ("d", 1, "24")]
COPIES = ["copy1", "copy2", "copy3", "copy4", "copy5"]
BOOKS = [*[(copy, 2, "1") for copy in COPIES], ("w", 2, "2"), ("x", 2, "3"), ("y", 2, "4"), ("z", 2, "5")]
POPULAR = {
    "x": {"interactions": 4, "users": 4}, "y": {"interactions": 2, "users": 2}, "z": {"interactions": 1, "users": 1},
}  # fmt: skip


@pytest.mark.parametrize(
    ("metric", "items", "expected"),
    [
        ("ild@3", THREE, 0.533333333333),  # rt rec
        ("ils@3", THREE, 0.466666666667),
        ("ild(by=categories)@3", GENRES, 0.888888888889),  # rp
    ],
)
def test_worked_values_of_diversity(metric, items, expected):
    assert compute_values(metric, [["a", "b", "c"]], items) == pytest.approx([expected], abs=1e-12)
    assert compute_values(metric.replace("@3", "@50"), [["a", "b", "c"]], items) == pytest.approx(
        [expected], abs=1e-12
    )


@pytest.mark.parametrize(
    ("judged", "listed", "k", "expected"),
    [
        (DIVERSE, ["d2", "d1", "d4", "d6", "d3"], 1, 0.5),  # nd, all
        (DIVERSE, ["d2", "d1", "d4", "d6", "d3"], 3, 0.709841702052),
        (DIVERSE, ["d2", "d1", "d4", "d6", "d3"], 5, 0.734923568017),
        (NOT_OPTIMAL, ["b", "c"], 2, 1.107068100632),  # the greedy list is not the best one
        (BOOKS, COPIES, 5, 0.515007224375),
        (BOOKS, ["copy1", "w", "x", "y", "z"], 5, 1.0),
    ],
)
def test_worked_values_of_alpha_ndcg(judged, listed, k, expected):
    assert compute_values(f"alpha_ndcg@{k}", [listed], judged=[judged]) == pytest.approx([expected], abs=1e-12)
    assert compute_values(f"alpha_nDCG(alpha=0.5)@{k}", [listed], judged=[judged]) == pytest.approx(
        [expected], abs=1e-12
    )


def test_five_copies_of_one_book_are_not_diverse():
    items = {copy: {"vector": [0.3, 0.1, 0.7], "categories": ["novel", "sea"]} for copy in COPIES}
    for by in ("vector", "categories"):
        assert compute_values(f"ils(by={by})@5", [COPIES], items) == pytest.approx([1.0], abs=1e-12)
        assert compute_values(f"ild(by={by})@5", [COPIES], items) == pytest.approx([0.0], abs=1e-12)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("novelty@3", 2.140688255391),  # def; rec adds 0 for an unseen item: 1.204903281372
        ("novelty(by=users)@3", 1.333333333333),  # rt
    ],
)
def test_worked_values_of_novelty(metric, expected):
    assert compute_values(metric, [["x", "z", "new"]], POPULAR, totals=(7, 4)) == pytest.approx([expected], abs=1e-12)


def test_worked_values_of_first_appearance():  # def
    items = {"a": {"days": 60.0, "seen": True}, "b": {"days": 1.0, "seen": True}}
    assert compute_values("first_appearance@3", [["a", "b", "never"]], items) == pytest.approx(
        [20.333333333333], abs=1e-12
    )
    actual = compute_values("first_new@3", [["a", "b", "never"], ["b", "a"], ["never"], []], items)
    assert actual == pytest.approx([3, math.nan, 1, math.nan], nan_ok=True)
    assert compute_values("first_new@2", [["a", "b", "never"]], items) == pytest.approx([math.nan], nan_ok=True)


@pytest.mark.parametrize(("metric", "expected"), [("coverage", 0.6), ("gini", 0.5), ("entropy", 1.5)])  # rt, def, rec
def test_worked_values_of_the_catalogue(metric, expected):
    """Lists x,y and x,z of a catalogue of five."""
    assert parse_metric(f"{metric}@2")[0].value(Exposure({2: 1, 1: 2}, 5)) == expected


@pytest.mark.parametrize(
    ("exposure", "expected"),
    [
        (Exposure({3: 4}, 4), (1.0, 0.0, 2.0, 0.0)),
        (Exposure({8: 1}, 4), (0.25, 0.75, 0.0, 0.0)),
        (Exposure({}, 4, 6), (0.0, None, None, 1.0)),
        (Exposure({}, 0, 3), (None, None, None, 1.0)),
        (Exposure({}, 4), (0.0, None, None, None)),
        (Exposure({1: 1}, 2, 3), (0.5, 0.5, 0.0, 0.75)),
    ],
)
def test_catalogues_at_their_ends(exposure, expected):
    names = ("coverage", "gini", "entropy", "outside_catalogue")
    assert tuple(parse_metric(name)[0].value(exposure) for name in names) == expected


# ------------------------------------------------------------------------------------------- definitions in loops


def random_world(draw: random.Random, *, whole: bool):
    """Items of which some have no features, and lists and judgments of five queries."""
    names = list(range(30)) if whole else [f"item-{at}" for at in range(30)]
    items = {
        name: {
            "vector": [draw.gauss(0, 1) for _ in range(5)] if draw.random() < 0.8 else None,
            "categories": draw.sample("abcdefgh", draw.randint(0, 4)) if draw.random() < 0.8 else None,
            "days": float(draw.randint(0, 99)),
            "interactions": draw.randint(0, 9),
            "users": draw.randint(0, 4),
            "seen": draw.random() < 0.6,
        }
        for name in names[:25]
    }
    lists = [draw.sample(names, draw.randint(0, 12)) for _ in range(5)]
    judged = [
        [(name, draw.choice([0, 1, 2]), draw.sample("12345", draw.randint(1, 3))) for name in group]
        for group in (draw.sample(names, draw.choice([0, 3, 12])) for _ in range(5))
    ]
    return items, lists, judged


DEFINED = {
    "ild": lambda listed, items, judged, k: 1 - item_lists.compute_ils(listed, items, "vector", k),
    "ils": lambda listed, items, judged, k: item_lists.compute_ils(listed, items, "vector", k),
    "ils(by=categories)": lambda listed, items, judged, k: item_lists.compute_ils(listed, items, "categories", k),
    "ild(by=categories)": lambda listed, items, judged, k: 1 - item_lists.compute_ils(listed, items, "categories", k),
    "pairs_left_out": lambda listed, items, judged, k: item_lists.compute_left_out(listed, items, "vector", k),
    "pairs_left_out(by=categories)": lambda listed, items, judged, k: item_lists.compute_left_out(
        listed, items, "categories", k
    ),
    "alpha_ndcg": lambda listed, items, judged, k: item_lists.compute_alpha_ndcg(listed, judged, 0.5, 1, k),
    "alpha_ndcg(alpha=0.3,rel=2)": lambda listed, items, judged, k: item_lists.compute_alpha_ndcg(
        listed, judged, 0.3, 2, k
    ),
    "alpha_ndcg(alpha=1)": lambda listed, items, judged, k: item_lists.compute_alpha_ndcg(listed, judged, 1, 1, k),
    "alpha_ndcg(alpha=0)": lambda listed, items, judged, k: item_lists.compute_alpha_ndcg(listed, judged, 0, 1, k),
    "novelty": lambda listed, items, judged, k: item_lists.compute_mean(
        listed, lambda element: -math.log2(max(1, items.get(element, {}).get("interactions", 0)) / 700), k
    ),
    "novelty(by=users)": lambda listed, items, judged, k: item_lists.compute_mean(
        listed, lambda element: -math.log2(max(1, items.get(element, {}).get("users", 0)) / 40), k
    ),
    "first_appearance": lambda listed, items, judged, k: item_lists.compute_mean(
        listed, lambda element: items.get(element, {}).get("days", 0.0), k
    ),
    "first_new": lambda listed, items, judged, k: item_lists.compute_first_new(listed, items, k),
}


@pytest.mark.parametrize("name", DEFINED)
@pytest.mark.parametrize("k", [1, 2, 5, 50])
def test_by_its_definition_in_plain_loops(name, k):
    draw = random.Random(f"{name} {k}")
    for seed in range(12):
        items, lists, judged = random_world(draw, whole=seed % 2 == 0)
        wanted = [DEFINED[name](*element, k) for element in zip(lists, [items] * len(lists), judged, strict=True)]
        actual = compute_values(f"{name}@{k}", lists, items, judged, totals=(700, 40))
        np.testing.assert_allclose(actual, wanted, rtol=0, atol=1e-12)


def test_every_metric_of_lists_of_items_has_a_definition():
    named = {parse_metric(name)[0].name for name in DEFINED}
    assert {name for name, metric in all_metrics().items() if metric().needs and issubclass(metric, Metric)} == named


@pytest.mark.parametrize("seed", range(20))
def test_catalogue_metrics_by_sorted_exposures(seed):
    draw = random.Random(seed)
    catalogue, k = range(draw.randint(3, 30)), draw.randint(1, 5)
    lists = [draw.sample(range(35), draw.randint(0, 8)) for _ in range(draw.randint(1, 9))]
    lists.append([0])
    wanted = item_lists.compute_exposure(lists, list(catalogue), k)
    places = [row for listed in lists for row in listed[:k]]
    counts = [places.count(element) for element in catalogue if element in places]
    exposure = Exposure(
        {count: counts.count(count) for count in counts},
        len(catalogue),
        sum(place not in catalogue for place in places),
    )
    actual = {name: parse_metric(name)[0].value(exposure) for name in wanted}
    assert actual == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("name", DEFINED)
def test_a_query_has_the_same_bits_alone_and_in_a_batch_and_at_any_largest_cutoff(name):
    draw = random.Random(name)
    items, lists, judged = random_world(draw, whole=False)
    metric = parse_metric(name)[0]
    batch = build_rankings_batch(lists, items, judged, (700, 40))
    together = metric.values(lists_in(batch, metric, 4), 4)
    longer = {one: {**row, "vector": row["vector"] and [*row["vector"], 1.0]} for one, row in items.items()}
    other = build_rankings_batch([["item-1", "item-2", "item-3"]], longer, [[]], (700, 40))
    for at in range(len(lists)):
        for largest in (4, 7, None):
            alone = metric.values(lists_in(batch.slice(at, 1), metric, largest), 4)
            assert alone.tobytes() == together[at : at + 1].tobytes()
    import pyarrow as pa

    with_longer = pa.Table.from_batches([batch, other]).combine_chunks().to_batches()[0]
    assert metric.values(lists_in(with_longer, metric, 4), 4)[:-1].tobytes() == together.tobytes()


def test_a_greedy_list_has_alpha_ndcg_1_to_the_last_bit():
    for seed in range(30):
        draw = random.Random(seed)
        judged = [(name, 1, draw.sample("123456", draw.randint(1, 4))) for name in "abcdefghij"]
        topics = {name: set(group) for name, _, group in judged}
        ideal: list[str] = []
        while len(ideal) < len(topics):
            left = sorted(set(topics) - set(ideal), reverse=True)
            gains = [item_lists.topic_gain(element, ideal, topics, 0.3) for element in left]
            ideal.append(left[gains.index(max(gains))])
        assert compute_values("alpha_ndcg(alpha=0.3)@7", [ideal], judged=[judged]) == [1.0]


def test_nothing_listed_and_one_item_have_no_diversity_and_no_novelty():
    items = {"a": {"vector": [1.0], "categories": ["c"]}}
    for name in ("ils", "ild", "ild(by=categories)", "pairs_left_out"):
        assert np.isnan(compute_values(f"{name}@5", [[], ["a"]], items)).all(), name
    assert np.isnan(compute_values("novelty@5", [[]], items)).all()
    assert compute_values("alpha_ndcg@5", [[], ["a"]], judged=[[("a", 1, "1")], []]) == [0.0, 0.0]
    assert compute_values("ild@5", []) == []


def test_an_item_judged_twice_counts_once_with_all_its_topics():
    judged = [("a", 1, "1"), ("a", 2, "12"), ("b", 1, "1")]
    assert compute_values("alpha_ndcg@2", [["b", "a"]], judged=[judged]) == pytest.approx(
        compute_values("alpha_ndcg@2", [["b", "a"]], judged=[[("a", 1, "12"), ("b", 1, "1")]]), abs=0
    )


def test_more_categories_than_a_word_has_bits():
    items = {"a": {"categories": [f"c{at}" for at in range(100)]}, "b": {"categories": ["c99", "other"]}}
    assert compute_values("ils(by=categories)@2", [["a", "b"]], items) == pytest.approx([1 / 101], abs=1e-15)


# ------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (
            {"a": [1.0, 2.0], "b": [1.0]},
            "item item_id=b is listed with items that have vectors of two lengths, 1 and 2.",
        ),
        ({"a": [1.0, math.nan]}, "item item_id=a has a vector with an entry that is not a finite number."),
        ({"a": [1.0, None]}, "item item_id=a has a vector with an entry that is not a finite number."),
        ({"b": [0.0, 0.0]}, "item item_id=b has a vector of zeros, which has no cosine."),
        ({"b": []}, "item item_id=b has a vector of zeros, which has no cosine."),
    ],
)
def test_vectors_that_are_refused(vectors, message):
    with pytest.raises(InputRefusedError) as raised:
        compute_values("ild@2", [["a", "b"]], {name: {"vector": group} for name, group in vectors.items()})
    assert str(raised.value) == message


def test_vectors_of_any_size_have_a_cosine():
    items = {"a": {"vector": [1e200, 0.0]}, "b": {"vector": [1e-200, 1e-200]}}
    assert compute_values("ils@2", [["a", "b"]], items) == pytest.approx([math.sqrt(0.5)], abs=1e-12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("ild(by=colour)@5", "by must be one of vector, categories; got 'colour'"),
        ("ild(with=vector)@5", "unknown parameter 'with'; it has by"),
        ("novelty(by=clicks)@5", "by must be one of interactions, users; got 'clicks'"),
        ("alpha_ndcg(alpha=2)@5", "alpha must be between 0 and 1; got 2"),
        ("alpha_ndcg(alpha=x)@5", "alpha must be a number; got 'x'"),
        ("coverage(of=items)@5", "unknown parameter 'of'; coverage has none"),
    ],
)
def test_names_that_are_refused(given, message):
    with pytest.raises(InvalidParameterError, match=r"^[^\n]*$") as raised:
        parse_metric(given)
    assert message in str(raised.value)


@pytest.mark.parametrize("name", [*DEFINED, "coverage", "gini", "entropy", "outside_catalogue"])
def test_a_name_is_printed_as_it_is_read(name):
    metric = parse_metric(name)[0]
    assert str(metric) == name
    assert metric.needs
    assert metric.needs_order
    assert isinstance(metric, Metric) != isinstance(metric, CatalogueMetric)
