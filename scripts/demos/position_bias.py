"""Which of two rankers is better, when all that is known are clicks on the lists of one of them?"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from scripts.demos.data import Digits, cosine_similarity, find_first, name_images
from scripts.demos.runner import create_folder, explain, run, write

N_SHOWN = 10
N_SESSIONS = 60
SHUFFLED = 0.1
"""Share of the sessions whose list is shuffled."""
ATTRACTIVE = {3: 0.5, 1: 0.2, 0: 0.05}
"""Chance of a click on an item that is looked at, by its relevance."""


class Lists:
    """Ten images for each of 300 query images: in the order of ranker `old`, with scores of both rankers."""

    def __init__(self) -> None:
        digits = Digits()
        query, item, pixels = digits.query, digits.item, digits.pixels
        # The old ranker compares the upper three rows of pixels, the new one whole images.
        old = cosine_similarity(pixels[query, :24], pixels[item, :24])
        new = cosine_similarity(pixels[query], pixels[item])
        best = find_first(old, N_SHOWN)
        self.old, self.new = (np.take_along_axis(scores, best, axis=1) for scores in (old, new))
        self.relevance = digits.relevance(query[:, None], item[best])
        self.query_id = np.repeat(name_images(query), N_SHOWN)
        self.item_id = name_images(item[best])

    def table(self) -> pa.Table:
        """Both rankings, and the relevance that nobody knows in practice."""
        return pa.table(
            {
                "query_id": self.query_id,
                "item_id": self.item_id,
                "old": self.old.ravel(),
                "new": self.new.ravel(),
                "relevance": self.relevance.ravel().astype(np.float64),
            }
        )

    def impressions(self) -> pa.Table:
        """Sessions of users who see the list of the old ranker, and look at rank k with probability 1 / k."""
        random = np.random.default_rng(2026)
        n_queries = len(self.relevance)
        places = np.tile(np.arange(N_SHOWN), (n_queries, N_SESSIONS, 1))
        shuffled = random.random((n_queries, N_SESSIONS)) < SHUFFLED
        places[shuffled] = random.permuted(places[shuffled], axis=1)
        chance = np.vectorize(ATTRACTIVE.get)(self.relevance)[:, None, :] / (places + 1)
        clicked = random.random(places.shape) < chance
        row = np.broadcast_to(np.arange(n_queries * N_SHOWN).reshape(n_queries, 1, N_SHOWN), places.shape).ravel()
        return pa.table(
            {
                "query_id": self.query_id[row],
                "item_id": self.item_id[row],
                "position": (places + 1).ravel().astype(np.int32),
                "click": clicked.ravel().astype(np.int8),
            }
        )


def main() -> int:
    folder = create_folder("position_bias")
    lists = Lists()
    rankings = write(lists.table(), folder / "rankings.parquet", "rows: ten images by an old and a new ranker")
    log = write(lists.impressions(), folder / "log.parquet", "simulated impressions of the lists of the old one")
    night = ("--run-date", "2026-02-01", "--dataset", "digits")
    explain(
        "Users look at the k-th image with probability 1 / k; one list in ten is shuffled. How likely each position\n"
        "is looked at follows from the clicks alone:"
    )
    propensities, labels = folder / "propensities", folder / "labels"
    written = ("--output", propensities, *night)
    run("position-bias", "propensities", "--input", log, "--max-iter", "5000", *written, most=2)
    explain("Each click is weighted by the inverse of that:")
    options = ("--propensities", propensities / "run_date=2026-02-01")
    run("position-bias", "judgments", "--input", log, *options, "--output", labels, *night, most=1)
    compared = ("--input", rankings, "--score-col", "old,new", "--convention", "linear", "--metrics", "dcg@10")
    explain("Which ranker is better? By the relevances that nobody knows in practice, the new one:")
    run("mean-ndcg", *compared, most=2)
    without = pa.table({name: lists.table()[name] for name in ("query_id", "item_id", "old", "new")})
    unjudged = write(without, folder / "unjudged.parquet", "rows: the same rankings without relevances")
    compared = ("--input", unjudged, *compared[2:])
    judged = ("--judgments", labels / "run_date=2026-02-01")
    explain("By plain click-through, the old one, whose order made the clicks:")
    run("mean-ndcg", *compared, *judged, "--relevance-col", "uncorrected", most=2)
    explain("By the corrected labels:")
    run("mean-ndcg", *compared, *judged, most=2)
    explain("Clicks per list as if all of it were looked at, with intervals:")
    run("position-bias", "estimates", "--input", log, *options, "--clip", "20", most=1)
    explain("When this works and when it does not is told by docs/position_bias.md")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
