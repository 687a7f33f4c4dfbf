"""Judgments from an event log and from annotators, and what they make of one ranking."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import numpy as np
import pyarrow as pa
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from scripts.demos.data import Digits, cosine_similarity, find_first, name_images, relevance_table
from scripts.demos.runner import create_folder, explain, run, write

N_SHOWN = 10
N_USERS = 8
AS_OF = datetime(2026, 2, 1, tzinfo=timezone.utc)
# Chance that a user who sees an item does this with it, by relevance.
CHANCES = {3: {"view": 0.7, "cart": 0.3, "purchase": 0.15}, 1: {"view": 0.3, "cart": 0.05}, 0: {"view": 0.05}}


class Lists:
    """Lists of the ten most similar images of each of 300 query images."""

    def __init__(self) -> None:
        self.digits = Digits()
        self.query, item = self.digits.query, self.digits.item
        score = cosine_similarity(self.digits.pixels[self.query], self.digits.pixels[item])
        best = find_first(score, N_SHOWN)
        self.item, self.score = item[best], np.take_along_axis(score, best, axis=1)

    def rankings(self) -> pa.Table:
        return pa.table(
            {
                "query_id": np.repeat(name_images(self.query), N_SHOWN),
                "item_id": name_images(self.item),
                "score": self.score.ravel(),
            }
        )


def simulated_events(lists: Lists) -> pa.Table:
    """Simulate eight users with every list in January: they look by rank and click by relevance; seeded."""
    random, relevance = np.random.default_rng(2026), lists.digits.relevance(lists.query[:, None], lists.item)
    rows = []
    for query, items, grades in zip(lists.query, lists.item, relevance.tolist(), strict=True):
        for user in range(N_USERS):
            day = AS_OF - timedelta(days=float(random.uniform(0, 31)))
            for rank, (item, grade) in enumerate(zip(items, grades, strict=True), start=1):
                if random.random() > 1 / rank**0.5:
                    continue  # not looked at
                done = [name for name, chance in CHANCES[grade].items() if random.random() < chance]
                time = day + timedelta(seconds=rank)
                rows += [
                    (f"img-{query:04d}", f"img-{item:04d}", f"u{user}", event, time)
                    for event in ("impression", *done)
                ]
    columns = ("query_id", "item_id", "user_id", "event", "ts")
    return pa.table(dict(zip(columns, zip(*rows, strict=True), strict=True)))


def ratings(lists: Lists) -> pa.Table:
    """Return ratings by three classifiers: each predicts an item's digit and compares it to the query's digit."""
    digits, grades = lists.digits, relevance_table()
    raters = {
        "tree": DecisionTreeClassifier(random_state=0),
        "bayes": GaussianNB(),
        "neighbors": KNeighborsClassifier(),
    }
    rows = []
    for name, model in raters.items():
        predicted = model.fit(digits.pixels[lists.query], digits.digit[lists.query]).predict(digits.pixels)
        for query, items in zip(lists.query, lists.item, strict=True):
            for item in items:
                grade = int(grades[digits.digit[query], predicted[item]])
                rows.append((f"img-{query:04d}", f"img-{item:04d}", name, grade))
    columns = ("query_id", "item_id", "annotator", "relevance")
    return pa.table(dict(zip(columns, zip(*rows, strict=True), strict=True)))


def main() -> int:
    folder = create_folder("judgments")
    lists = Lists()
    run_path = write(lists.rankings(), folder / "run.parquet", "rows: the ten images most alike of 300 images")
    events = write(
        simulated_events(lists), folder / "events.parquet", "simulated events of users who saw these lists"
    )
    rated = write(ratings(lists), folder / "ratings.parquet", "ratings of the same items by three classifiers")
    night = ("--run-date", "2026-02-01")
    explain(
        "From events: a view is worth 1, a cart 2, a purchase 3; half of it after a week. Their sum counts, up to 3."
    )
    rule = ("--rule", "sum", "--as-of", "2026-02-01", "--half-life", "7", "--min-impressions", "3")
    written = ("--output", folder / "clicks", *night)
    run("build-judgments", "events", "--input", events, *rule, *written)
    explain("From annotators: the median of three. Items that they disagree about go to a table of their own.")
    written = ("--output", folder / "rated", "--disputes", folder / "disputes", *night)
    run("build-judgments", "annotators", "--input", rated, "--rule", "median", *written)
    explain("The ranking, judged by what users did:")
    judged = ("--judgments", folder / "clicks" / "run_date=2026-02-01", "--k", "5,10")
    run("mean-ndcg", "--input", run_path, *judged)
    explain(
        "Items that were shown fewer than three times have no judgment from events, and count as irrelevant here\n"
        f"(--unjudged condensed leaves them out). --judgments {folder / 'rated'} takes what annotators\n"
        "said. docs/judgments.md explains the rules."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
