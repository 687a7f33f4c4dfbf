"""Clicks with known relevances, simulated by hashes: the same on every machine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache

import numpy as np

from ndcg_spark.clicks.kernels import Cells

N_QUERIES, N_ITEMS, N_SESSIONS = 60, 5, 200


def hash_uniform(*parts: object) -> float:
    text = "|".join(map(str, parts))
    return int(hashlib.sha256(text.encode()).hexdigest()[:13], 16) / 2**52


@dataclass(frozen=True)
class Simulation:
    """Impressions as rows (query, item, position from 0, click, explored), the truth, and two rankings."""

    rows: np.ndarray
    truth: np.ndarray
    order_a: list[list[int]]
    order_b: list[list[int]]

    def cells(self, *, explored_only: bool = False) -> Cells:
        rows = self.rows[self.rows[:, 4] == 1] if explored_only else self.rows
        shown, clicked = np.zeros((2, N_QUERIES * N_ITEMS, N_ITEMS))
        pair = rows[:, 0] * N_ITEMS + rows[:, 1]
        np.add.at(shown, (pair, rows[:, 2]), 1)
        np.add.at(clicked, (pair, rows[:, 2]), rows[:, 3])
        pairs, positions = np.nonzero(shown)
        return Cells(pairs, positions, shown[pairs, positions], clicked[pairs, positions], np.ones(len(shown)))


@cache
def simulate_clicks() -> Simulation:
    truth = np.array(
        [[0.05 + 0.9 * hash_uniform(7, "relevance", q, x) for x in range(N_ITEMS)] for q in range(N_QUERIES)]
    )
    order_a = [sorted(range(N_ITEMS), key=lambda x, q=q: hash_uniform(7, "a", q, x)) for q in range(N_QUERIES)]
    order_b = [
        sorted(range(N_ITEMS), key=lambda x, q=q: -truth[q, x] - 0.5 * hash_uniform(7, "b", q, x))
        for q in range(N_QUERIES)
    ]
    rows = []
    for q in range(N_QUERIES):
        for s in range(N_SESSIONS):
            explored = hash_uniform(7, "explore", q, s) < 0.2
            order = (
                sorted(range(N_ITEMS), key=lambda x, q=q, s=s: hash_uniform(7, "order", q, s, x))
                if explored
                else order_a[q]
            )
            for position, x in enumerate(order):
                click = hash_uniform(7, "click", q, s, x) < truth[q, x] / (position + 1)
                rows.append((q, x, position, click, explored))
    return Simulation(np.array(rows, dtype=np.int64), truth, order_a, order_b)
