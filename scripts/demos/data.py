"""Images of handwritten digits for demos: how much they look alike, and how relevant one is to another.

The images are the 1,797 of 8 x 8 pixels that scikit-learn ships (`load_digits`, from the UCI repository:
E. Alpaydin and C. Kaynak, 1998). Every sixth one, 300 of them, is a query.

Relevance comes from the labels alone, never from the pixels that make the score:

    3  the same digit
    1  a digit whose seven-segment shape differs in exactly one of the seven segments
       (0-8, 1-7, 3-9, 5-6, 5-9, 6-8, 8-9): one stroke more or less makes one of the other
    0  any other digit

The seven-segment display is a fixed drawing of the ten digits that anyone can check, so the grades need no
judge's taste. 3 rather than 2 for the same digit keeps the near misses cheap: with the exponential gain they
earn 1 against 7.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

QUERY_STEP = 6

# Lit segments of the digits 0 to 9, clockwise from the top: a to f; g is the middle.
SEVEN_SEGMENTS = ("abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg")
SAME, ONE_STROKE_APART, UNRELATED = 3, 1, 0
# How a digit is drawn, for a second segment column; 2 and 5 are mixed.
ROUND, STRAIGHT = (0, 3, 6, 8, 9), (1, 4, 7)
SHAPE = np.array(["round" if n in ROUND else "straight" if n in STRAIGHT else "mixed" for n in range(10)])


class Digits:
    """Pixels and digit of each image; every `step`-th one, from `first` on, is a query, the others are items."""

    def __init__(self, step: int = QUERY_STEP, first: int = 0) -> None:
        from sklearn.datasets import load_digits

        data = load_digits()
        self.pixels: FloatArray = data.data
        self.digit: IntArray = data.target
        number = np.arange(len(self.digit))
        self.query, self.item = number[first::step], number[number % step != first]

    def relevance(self, query: IntArray, item: IntArray) -> IntArray:
        """Return the relevance of images to others; the shapes are broadcast."""
        return relevance_table()[self.digit[query], self.digit[item]]


def name_images(images: IntArray) -> npt.NDArray[np.str_]:
    """Return the names of images."""
    return np.array([f"img-{number:04d}" for number in images.ravel()])


def shrink_images(pixels: FloatArray) -> FloatArray:
    """Images of 8 by 8 pixels as 4 by 4, shape (n, 16); sums of four, so the cosine is that of the means."""
    return pixels.reshape(-1, 4, 2, 4, 2).sum(axis=(2, 4)).reshape(len(pixels), 16)


def score_by_both(queries: FloatArray, items: FloatArray) -> dict[str, FloatArray]:
    """Scores of images for others by two rankers, each of shape (n_queries, n_items), by the name of the ranker."""
    return {
        "pixels": cosine_similarity(queries, items),
        "thumbnail": cosine_similarity(shrink_images(queries), shrink_images(items)),
    }


def rankings_table(digits: Digits, query: IntArray, item: IntArray, scores: Mapping[str, FloatArray]) -> pa.Table:
    """Rankings as rows of query_id, item_id, relevance, digit, shape, run, score; a score that is NaN stays NaN."""
    query_of_row, item_of_row = np.repeat(query, len(item)), np.tile(item, len(query))
    name, label = pa.array(name_images(np.arange(len(digits.digit)))), digits.digit[query_of_row]
    columns = {
        "query_id": name.take(pa.array(query_of_row)),
        "item_id": name.take(pa.array(item_of_row)),
        "relevance": digits.relevance(query_of_row, item_of_row).astype(np.int32),
        "digit": pa.array([str(digit) for digit in range(10)]).take(pa.array(label)),
        "shape": pa.array(SHAPE).take(pa.array(label)),
    }
    return pa.concat_tables(
        pa.table({**columns, "run": pa.repeat(run, len(label)), "score": score.ravel()})
        for run, score in scores.items()
    )


def find_first(scores: FloatArray, n: int) -> IntArray:
    """Return the positions of the `n` highest scores of each row, best first."""
    listed: IntArray = np.argsort(-scores, axis=1, kind="stable")[:, :n]
    return listed


def relevance_table() -> IntArray:
    """Relevance of digit j to digit i, shape (10, 10)."""
    table = np.full((10, 10), UNRELATED, dtype=np.int64)
    for i, left in enumerate(SEVEN_SEGMENTS):
        for j, right in enumerate(SEVEN_SEGMENTS):
            n_different = len(set(left) ^ set(right))
            if n_different <= 1:
                table[i, j] = SAME if n_different == 0 else ONE_STROKE_APART
    return table


def cosine_similarity(queries: FloatArray, items: FloatArray) -> FloatArray:
    """Cosine of the angle between every query and every item, shape (n_queries, n_items).

    Pixels are whole numbers: the sums are exact, so the scores are the same bits on every machine.
    """
    squared_norms = np.outer((queries**2).sum(axis=1), (items**2).sum(axis=1))
    similarity: FloatArray = (queries @ items.T) / np.sqrt(squared_norms)
    return similarity
