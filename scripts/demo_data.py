"""Write a real ranking for the demo: images of handwritten digits, ranked by how much they look alike.

The images are the 1,797 of 8 x 8 pixels that scikit-learn ships (`load_digits`, from the UCI repository:
E. Alpaydin and C. Kaynak, 1998). Every sixth image, 300 of them, is a query. Each query ranks the 1,497 other
images (no query among them) by the cosine similarity of their pixels. That makes 449,100 rows of query_id,
item_id, score, relevance and digit, where `digit` is the query's label and serves as the segment.

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

import argparse
import shutil
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.datasets import load_digits

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

QUERY_STEP = 6
N_FILES = 4

# Lit segments of the digits 0 to 9, clockwise from the top: a to f; g is the middle.
SEVEN_SEGMENTS = ("abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg")
SAME, ONE_STROKE_APART, UNRELATED = 3, 1, 0


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


def rankings() -> pa.Table:
    """The long table: one row per (query, item), a query's rows together, in no useful order within."""
    digits = load_digits()
    image = np.arange(len(digits.target))
    query, item = image[::QUERY_STEP], image[image % QUERY_STEP != 0]
    query_of_row, item_of_row = np.repeat(query, len(item)), np.tile(item, len(query))
    name = np.array([f"img-{number:04d}" for number in image])
    return pa.table(
        {
            "query_id": name[query_of_row],
            "item_id": name[item_of_row],
            "score": cosine_similarity(digits.data[query], digits.data[item]).ravel(),
            "relevance": relevance_table()[digits.target[query_of_row], digits.target[item_of_row]].astype(np.int32),
            "digit": digits.target[query_of_row].astype(str),
        }
    )


def write_parts(table: pa.Table, folder: Path) -> None:
    """Replace `folder` by a parquet table of `N_FILES` files."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    bounds = np.linspace(0, table.num_rows, N_FILES + 1, dtype=int)
    for part, (start, stop) in enumerate(pairwise(bounds)):
        pq.write_table(table.slice(start, stop - start), folder / f"part-{part:05d}.parquet")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Write the ranking that the demo evaluates.")
    parser.add_argument("--output", type=Path, default=Path(".demo/rankings"), help="folder to replace")
    folder: Path = parser.parse_args(argv).output
    if folder.exists() and not (folder.is_dir() and all(path.suffix == ".parquet" for path in folder.iterdir())):
        print(f"demo_data: {folder} holds something else; choose another --output.", file=sys.stderr)
        return 2
    table = rankings()
    write_parts(table, folder)
    n_queries = len(table["query_id"].unique())
    print(f"Wrote {table.num_rows:,} rows ({n_queries} queries, images of handwritten digits) to {folder}.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
