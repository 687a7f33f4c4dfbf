"""Four weeks in which NDCG rises and click-through falls: nightly metrics, simulated clicks, and the alarm."""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import pyarrow as pa

from scripts.demos.data import QUERY_STEP, Digits, cosine_similarity, find_first, name_images
from scripts.demos.runner import create_folder, explain, run, write

FIRST, N_NIGHTS, CHANGED = date(2026, 1, 5), 28, 21
N_SHOWN, N_VIEWS = 10, 40
# Blur of the pixels by which a night ranks: the ranker gets better after night 21, and the page worse.
BLUR = (5.0, 4.0)
CLICK_RATE, DEVICES = (0.30, 0.25), ("desktop", "phone")


class Night:
    """Lists of one night: 300 images rank the others by blurred pixels."""

    def __init__(self, number: int) -> None:
        digits, self.random, self.late = Digits(), np.random.default_rng([2026, number]), int(number >= CHANGED)
        pixels = digits.pixels[digits.item]
        blurred = pixels + self.random.normal(scale=BLUR[self.late], size=pixels.shape)
        score = cosine_similarity(digits.pixels[digits.query], blurred)
        self.run_date = FIRST + timedelta(days=number)
        self.query, self.item = digits.query, digits.item[find_first(score, N_SHOWN)]
        self.relevance = digits.relevance(self.query[:, None], self.item)
        self.device = np.array(DEVICES)[self.query // QUERY_STEP % 2]

    def rows(self) -> pa.Table:
        n = self.item.size
        return pa.table(
            {
                "night": [str(self.run_date)] * n,
                "query_id": [f"{self.run_date}/{query}" for query in self.query for _ in range(N_SHOWN)],
                "item_id": name_images(self.item),
                "rank": np.tile(np.arange(1, N_SHOWN + 1), len(self.query)),
                "relevance": self.relevance.ravel().astype(np.int32),
                "device": np.repeat(self.device, N_SHOWN),
            }
        )

    def clicks(self) -> list[dict[str, object]]:
        """Users look at rank i with chance 1/sqrt(i), click by relevance, and buy after one click in ten."""
        looked = 1 / np.sqrt(np.arange(1, N_SHOWN + 1))
        chance = CLICK_RATE[self.late] * looked * (0.1 + self.relevance / 3)
        clicked = self.random.binomial(N_VIEWS, chance)
        bought = self.random.binomial(clicked, 0.1)
        groups = [("", "", np.ones(len(self.query), dtype=bool))]
        groups += [("device", device, self.device == device) for device in DEVICES]
        return [
            {
                **{"run_date": self.run_date, "segment_by": by, "segment": segment},
                **{"impressions": N_VIEWS * N_SHOWN * int(is_member.sum())},
                **{"clicks": int(clicked[is_member].sum()), "conversions": int(bought[is_member].sum())},
            }
            for by, segment, is_member in groups
        ]


def main() -> int:
    folder = create_folder("business_link")
    nights = [Night(number) for number in range(N_NIGHTS)]
    rows = pa.concat_tables([night.rows() for night in nights])
    rankings = write(rows, folder / "rankings.parquet", f"rows: lists of {N_NIGHTS} nights, for images of digits")
    counts = pa.Table.from_pylist([row for night in nights for row in night.clicks()])
    clicks = write(counts, folder / "clicks.parquet", "counts of simulated clicks: per night, overall and per device")
    explain(
        f"On {FIRST + timedelta(days=CHANGED)} the ranker gets better, and a new page makes users click less.\n"
        "In production a job writes the metric table every night. Here one run computes all nights, as segments:"
    )
    segments = ("--segment-cols", "night,night+device", "--k", "10")
    written = ("--output", folder / "metrics", "--dataset", "shop", "--run-date", nights[-1].run_date)
    run("mean-ndcg", "--input", rankings, *segments, *written, most=3)
    explain("A query gives these rows the form of a nightly table, and business-link holds them against the clicks:")
    both = 'segment_by = "night+device"'
    query = (
        f'SELECT run, metric, k, value, if({both}, get_json_object(segment, "$[0]"), segment) AS run_date, '
        f'if({both}, "device", "") AS segment_by, if({both}, get_json_object(segment, "$[1]"), "") AS segment '
        f'FROM parquet.`{folder / "metrics"}` WHERE segment_by IN ("night", "night+device")'
    )
    link = ("business-link", "--clicks", clicks, "--output", folder / "links")
    run(*link, "--input", query)
    explain(
        "The alarm says that the metric and users disagree: here the page is to blame, not the ranker. With\n"
        "--fail-on-alarm the exit code is 3. The numbers and the rules are explained in docs/business_link.md"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
