"""Nights that Spark and the engine without it write in turns into one folder, beside the same ones by Spark alone."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from support.main_job import RunResult, run_command

TURNS, ALONE = "turns", "alone"
ENGINES = ("local", "spark")
FIRST = date(2026, 1, 1)
TABLES = {"--output": "metrics", "--per-query-output": "queries", "--rejects": "bad"}
DATASETS = {"shop": ("--weight-col", "w"), "app": ()}
"""Each with the options that all its nights share, as a table of periods needs."""
CUTOFFS = ("10", "3,10", "10,all")
SEGMENTS = ("", "country", "country,device", "country+device", "device")
RANKERS = ("a", "b", "c")
COLUMNS = {"ranker": pa.string(), "query_id": pa.string(), "item_id": pa.string(), "score": pa.float64(),
           "relevance": pa.float64(), "country": pa.string(), "device": pa.string(), "w": pa.float64()}  # fmt: skip
OF_THE_MOMENT = ("computed_at", "source_computed_at")
NAN = float("nan")
BAD = {"item_id": None, "score": NAN, "relevance": NAN}


def generate_night(rng: random.Random, rankers: Sequence[str]) -> list[dict[str, Any]]:
    """Generate rows with ties, unjudged items, null segments, and sometimes bad rows."""
    rows = []
    for query in range(rng.randint(2, 40)):
        about = {
            "query_id": f"q{query}",
            "country": rng.choice(("DE", "US", None)),
            "device": rng.choice(("phone", "desk")),
            "w": rng.choice((0.5, 1.0, 2.0)),
        }
        grades = [rng.choice((0.0, 1.0, 2.0, 3.0, None)) for _ in range(12)]
        for ranker in rankers:
            for item_number in rng.sample(range(12), rng.randint(1, 12)):
                row = {
                    "ranker": ranker,
                    "item_id": f"i{item_number}",
                    "score": rng.randrange(9) / 7,
                    "relevance": grades[item_number],
                }
                rows.append({**about, **row})
    for row in rng.sample(rows, rng.choice((0, 0, 1, 2))):
        name = rng.choice([*BAD])
        rows.append({**row, "item_id": "bad", name: BAD[name]})
    return rows


def write_table(path: Path, rows: Sequence[dict[str, Any]], names: Iterable[str]) -> str:
    """Write some columns of rows in small groups, and say where."""
    columns = {name: pa.array([row[name] for row in rows], COLUMNS[name]) for name in names}
    pq.write_table(pa.table(columns), path, row_group_size=100)
    return str(path)


def plan_night(rng: random.Random, folder: Path) -> tuple[str, list[str]]:
    """Write the input of a night: a table of several rankers, or a run and judgments; return data set and options."""
    folder.mkdir(parents=True)
    dataset = rng.choice([*DATASETS])
    options = ["--dataset", dataset, *DATASETS[dataset], "--k", rng.choice(CUTOFFS), "--on-invalid", "reject"]
    if dataset == "app" and rng.random() < 0.3:
        rows = generate_night(rng, RANKERS[:1])
        judged = [row for row in rows if row["relevance"] is not None and row["item_id"] != "bad"]
        options += ["--input", write_table(folder / "run.parquet", rows, ("query_id", "item_id", "score"))]
        names = ("query_id", "item_id", "relevance")
        return dataset, [*options, "--judgments", write_table(folder / "judged.parquet", judged, names)]
    rows = generate_night(rng, rng.sample(RANKERS, rng.randint(1, 3)))
    options += ["--input", write_table(folder / "in.parquet", rows, COLUMNS), "--run-col", "ranker"]
    return dataset, [*options, "--segment-cols", rng.choice(SEGMENTS)]


@dataclass
class Turns:
    """Two folders of the same nights: one by both engines in turns, one by Spark."""

    spark: SparkSession
    folder: Path
    counts: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    datasets: set[str] = field(default_factory=set)

    def run(self, what: str, *arguments: object, places: dict[str, str], by: Sequence[str] = ENGINES[1:]) -> None:
        """Run a job for both folders: for that of turns once by each of some engines, which must end alike."""
        ended = [self._run(TURNS, what, arguments, places, engine) for engine in by]
        ended.append(self._run(ALONE, what, arguments, places, ENGINES[1]))
        if len(set(ended)) > 1:
            self.complain(f"{what} {arguments} by {by}: {sorted(set(ended))}")

    def _run(self, name: str, what: str, arguments: Sequence[object], places: dict[str, str], engine: str) -> str:
        placed = [word for flag, place in places.items() for word in (flag, self.folder / name / place)]
        engines = ["--engine", engine] if what == "mean-ndcg" else []
        ended = run_command(what, *arguments, *placed, *engines, "--json", self.folder / "out.json")
        self.counts.update(writers=1)
        self.counts.update(done=ended.code == 0, refused=ended.code == 2)
        return self._normalize_output(ended, name)

    def _normalize_output(self, ended: RunResult, name: str) -> str:
        """Normalize the output of a job: replace folder names, and drop lines about new columns.

        Spark merges columns of files in no order that can be told, so words of these lines are in order here.
        """
        lines = [sorted(line.replace(",", "").split()) for line in ended.complaints if " added to " not in line]
        facts = json.loads((self.folder / "out.json").read_text()) if ended.code == 0 else {}
        facts = {name: value for name, value in facts.items() if name not in OF_THE_MOMENT}
        if "periods" in facts:  # in no order
            facts["periods"] = sorted(map(repr, facts["periods"]))
        return repr((ended.code, ended.out, lines, facts)).replace(str(self.folder / name), "FOLDER")

    def night(self, rng: random.Random, number: int) -> None:
        """Write a night by one engine or by one after the other, and by Spark; compare."""
        night = FIRST + timedelta(days=number)
        dataset, options = plan_night(rng, self.folder / "in" / str(night))
        self.datasets.add(dataset)
        by = rng.sample(ENGINES, rng.choice((1, 1, 2)))
        self.run("mean-ndcg", *options, "--run-date", night, places=TABLES, by=by)
        self.counts.update({"nights": 1, "re-runs": len(by) - 1, **Counter(by)})
        for table in TABLES.values():
            self.compare(table, f"run_date={night}")

    def compare(self, table: str, below: str) -> None:
        """Compare the slices of a table: columns with their types, and rows to the bit."""
        ours, theirs = (read_slices(self.folder / name / table, below) for name in (TURNS, ALONE))
        if ours.keys() != theirs.keys():
            self.complain(f"{table}, {below}: slices {sorted(ours)}, not {sorted(theirs)}")
        for name in ours.keys() & theirs.keys():
            for what, mine, other in zip(("columns", "rows"), ours[name], theirs[name], strict=True):
                if mine != other:
                    different = [(a, b) for a, b in zip(mine, other, strict=False) if a != b][:2]
                    self.complain(f"{table}, {name}: {what} {len(mine)} and {len(other)}: {different}")

    def finish(self) -> None:
        """Compare what Spark reads of all nights, and what is computed from them."""
        for table in TABLES.values():
            places = [str(self.folder / name / table) for name in (TURNS, ALONE)]
            ours, theirs = (self.spark.read.option("mergeSchema", True).parquet(place) for place in places)
            if ours.schema != theirs.schema:
                self.complain(f"{table}: {ours.schema.simpleString()}, not {theirs.schema.simpleString()}")
        for dataset in sorted(self.datasets):
            self.run("roll-up", "--dataset", dataset, places={"--input": "metrics", "--output": "periods"})
            places = {"--input": "metrics", "--per-query": "queries", "--output": "flags"}
            self.run("flag-changes", "--dataset", dataset, "--from", FIRST, places=places)
        for table in ("periods", "flags"):
            self.compare(table, "*")

    def complain(self, text: str) -> None:
        """Keep what differs."""
        self.counts["wrong"] += 1
        self.complaints.append(f"engines in turns, {text}")


def read_slices(folder: Path, below: str) -> dict[str, tuple[list[str], list[str]]]:
    """Read columns and rows of each folder of a slice."""
    rows_by_slice = {}
    for place in sorted(folder.glob(f"{below}/**/")):
        files = [pq.ParquetFile(path) for path in sorted(place.glob("*.parquet"))]
        columns = sorted({f"{field.name} {field.type}" for file in files for field in file.schema_arrow})
        tables = [file.read().to_pylist() for file in files]
        rows = [
            {name: value for name, value in row.items() if name not in OF_THE_MOMENT}
            for row_table in tables
            for row in row_table
        ]
        if files:
            texts = [repr(row).replace(str(folder.parent), "FOLDER") for row in rows]
            rows_by_slice[str(place.relative_to(folder))] = columns, sorted(texts)
    return rows_by_slice


def write_in_turns(spark: SparkSession, folder: Path, count: int, seed: str) -> Turns:
    """Write as many nights, and compare."""
    turns, rng, began = Turns(spark, folder), random.Random(f"{seed} engines"), time.monotonic()
    for number in range(count):
        turns.night(rng, number)
    turns.finish()
    turns.counts["seconds"] = round(time.monotonic() - began)
    return turns
