"""Diversity, novelty and coverage beside NDCG, on a bookshelf of copies and on images of handwritten digits.

The digits are those of data.py. Two rankers list 20 images for each query: `alike` takes the most similar ones;
`varied` takes, one after the other, the image whose similarity to the query, less its similarity to those taken
before, is largest (Carbonell and Goldstein, SIGIR 1998). Relevance comes from the labels alone: 3 for the same digit,
1 for one whose seven-segment shape differs in one segment. The topic of an image is its digit, its categories are the
segments that its digit lights, and its vector is its pixels.

Items that `alike` listed for a query "yesterday", for every second query, stand for what users have met before.
"""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from scripts.demos.data import (
    SEVEN_SEGMENTS,
    Digits,
    FloatArray,
    IntArray,
    cosine_similarity,
    find_first,
    name_images,
)
from scripts.demos.runner import create_folder, explain, run, write

LISTED = 20
CANDIDATES = 100
"""Most similar images among which `varied` chooses."""
PENALTY = 0.5
NIGHT = date(2026, 1, 31)
METRICS = "ndcg@10,alpha_ndcg@10,ild@10,ild(by=categories)@10,novelty@10,first_new@10,coverage@10,gini@10"


def books() -> dict[str, pa.Table]:
    """Return tables of two readers with nine equally relevant books, five of which are copies of one book."""
    copies, others = [f"copy-{number}" for number in range(1, 6)], ["essays", "poems", "plays", "letters"]
    relevant = {item: ["the novel"] for item in copies} | {item: [item] for item in others}
    lists = {"copies": copies, "different": ["copy-1", *others]}
    rows = [(query, item, 5.0 - number) for query, items in lists.items() for number, item in enumerate(items)]
    query_id, item_id, score = zip(*rows, strict=True)
    kinds = {"the novel": ["fiction", "sea"], "essays": ["nature"], "poems": ["verse"], "plays": ["stage"]}
    return {
        "rankings": pa.table({"query_id": query_id, "item_id": item_id, "score": score}),
        "judgments": pa.table(
            {
                "query_id": [query for query in lists for _ in relevant],
                "item_id": [item for _ in lists for item in relevant],
                "relevance": [2] * (len(lists) * len(relevant)),
                "topics": [topics for _ in lists for topics in relevant.values()],
            }
        ),
        "items": pa.table(
            {
                "item_id": list(relevant),
                "categories": [kinds.get(topics[0], ["history"]) for topics in relevant.values()],
            }
        ),
    }


def choose_varied(to_query: FloatArray, pixels: FloatArray) -> IntArray:
    """Choose images that are like the query and unlike each other; numbers of images, the first choice first."""
    candidates = np.argsort(-to_query, kind="stable")[:CANDIDATES]
    between = cosine_similarity(pixels[candidates], pixels[candidates])
    worth, nearest, picked = to_query[candidates], np.zeros(CANDIDATES), []
    for _ in range(LISTED):
        value = (1 - PENALTY) * worth - PENALTY * nearest
        value[picked] = -np.inf
        picked.append(int(value.argmax()))
        nearest = np.maximum(nearest, between[picked[-1]])
    return candidates[np.array(picked)]


def long_table(run: str, query: npt.NDArray[np.str_], item: npt.NDArray[np.str_]) -> pa.Table:
    """Return the lists of a ranker, with ranks from 1."""
    return pa.table(
        {
            "run": [run] * (LISTED * len(query)),
            "query_id": np.repeat(query, LISTED),
            "item_id": item,
            "rank": np.tile(np.arange(1, LISTED + 1), len(query)),
        }
    )


def digits() -> dict[str, pa.Table]:
    """Rankings of two rankers, judgments with topics, the catalogue, and what was listed before."""
    data = Digits()
    query, item = data.query, data.item
    pixels = data.pixels[item]
    similarity = cosine_similarity(data.pixels[query], pixels)
    lists = {
        "alike": find_first(similarity, LISTED),
        "varied": np.array([choose_varied(row, pixels) for row in similarity]),
    }
    relevance = data.relevance(query[:, None], item)
    row, column = np.nonzero(relevance)
    shown = lists["alike"][::2, :10]
    lit = [list(SEVEN_SEGMENTS[digit]) for digit in data.digit[item]]
    return {
        "rankings": pa.concat_tables(
            [long_table(run, name_images(query), name_images(item[items])) for run, items in lists.items()]
        ),
        "judgments": pa.table(
            {
                "query_id": name_images(query[row]),
                "item_id": name_images(item[column]),
                "relevance": relevance[row, column],
                "topics": [str(digit) for digit in data.digit[item[column]]],
                "digit": data.digit[query[row]].astype(str),
            }
        ),
        "items": pa.table(
            {
                "item_id": name_images(item),
                "vector": list(pixels),
                "categories": lit,
                "first_seen": [NIGHT - timedelta(days=int(number) % 365) for number in item],
            }
        ),
        "interactions": pa.table(
            {"query_id": np.repeat(name_images(query[::2]), 10), "item_id": name_images(item[shown])}
        ),
    }


def build_options(folder: Path, *tables: str) -> list[str]:
    """Options that name tables of a folder."""
    return [
        word for name in tables for word in (f"--{name}", f"{folder}/{name.replace('input', 'rankings')}.parquet")
    ]


def main() -> int:
    folder = create_folder("beyond")
    shelf, images = folder / "books", folder / "digits"
    for place, tables in ((shelf, books()), (images, digits())):
        place.mkdir()
        for name, table in tables.items():
            write(table, place / f"{name}.parquet", f"rows of {name}")
    explain("Five copies of one book, and five different books, all of the same relevance:")
    run(
        "mean-ndcg", *build_options(shelf, "input", "judgments", "items"), "--ties", "item_asc",
        "--segment-cols", "query_id",
        "--metrics", "ndcg@5,ild(by=categories)@5,alpha_ndcg@5",
    )  # fmt: skip
    explain("Two rankers of images: the most similar ones, and similar ones that differ from each other:")
    return run(
        "mean-ndcg", *build_options(images, "input", "judgments", "items", "interactions"), "--run-col", "run",
        "--rank-col", "rank", "--run-date", NIGHT, "--dataset", "digits", "--metrics", METRICS,
        "--output", folder / "metrics", "--per-query-output", folder / "per_query",
    )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
