"""Search in the documentation of Python's standard library, by two rankers, from text to a report.

The text is that of docstrings, which every machine with Python has. A passage is what follows the first paragraph of
one; that first paragraph is a query, for every second passage. Queries and grades come from this structure, not from
a judge:

    3  the passage of the same docstring
    2  one of the same class, or of functions of the same module
    1  any other of the same module

Two rankers list 100 passages a query: `words`, by TF-IDF, and `mixed`, which adds the cosine of vectors, 100
dimensions of parts of words (latent semantic analysis), and the words of the first five passages that are found so
(feedback, as Rocchio proposed). Feedback finds more where many passages are relevant, and leads away where few are:
the segment `answers` is their number. Which ranker is better, and where, is what the commands tell.
"""

from __future__ import annotations

import ast
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scripts.demos.data import FloatArray, IntArray, find_first
from scripts.demos.runner import create_folder, explain, run, run_commands

LEFT_OUT = frozenset(
    ("test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "ensurepip", "turtledemo", "distutils")
)
N_LISTED, EVERY, N_DIMENSIONS, SHARE_OF_VECTORS = 100, 2, 100, 0.2
N_FEEDBACK, SHARE_OF_FEEDBACK = 5, 1.5
MIN_WORDS, WORDS_OF_A_QUERY = 12, (4, 25)
"""Words of a passage, at least, and of a query, from and to."""


SHOES = """query_id,item_id,score,relevance
shoes,a,0.9,3
shoes,b,0.8,2
shoes,c,0.7,3
shoes,d,0.6,0
hats,e,0.9,0
hats,f,0.5,1
"""
NEXT = """Next, the example of the README (other demos: scripts/demo --help):
  source .venv/bin/activate
  python docs/examples/ten_lines.py"""


@dataclass(frozen=True, slots=True)
class Docstring:
    """A docstring: its first paragraph, the rest, and its place."""

    name: str
    module: str
    scope: str
    first: str
    rest: str


def collect_docstrings() -> list[Docstring]:
    """Docstrings of public classes, functions and methods that can be a query and a passage; nothing is imported."""
    library = Path(sysconfig.get_paths()["stdlib"])
    all_docs = []
    for path in sorted(library.rglob("*.py")):
        parts = path.relative_to(library).with_suffix("").parts
        if not LEFT_OUT & set(parts):
            module = ".".join(parts).removesuffix(".__init__")
            try:
                all_docs += list(_docstrings_in(ast.parse(path.read_text(encoding="utf-8")), module, module))
            except (SyntaxError, UnicodeDecodeError):  # of samples that are to be bad
                continue
    low, high = WORDS_OF_A_QUERY
    return [doc for doc in all_docs if len(doc.rest.split()) >= MIN_WORDS and low <= len(doc.first.split()) <= high]


def _docstrings_in(node: ast.AST, scope: str, module: str) -> Iterator[Docstring]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        name, text = f"{scope}.{child.name}", ast.get_docstring(child)
        if text and not child.name.startswith("_"):
            first, *rest = (" ".join(paragraph.split()) for paragraph in re.split(r"\n\s*\n", text))
            yield Docstring(name, module, scope, first, " ".join(rest))
        if isinstance(child, ast.ClassDef):
            yield from _docstrings_in(child, name, module)


def score_passages(passages: Sequence[str], queries: Sequence[str]) -> dict[str, FloatArray]:
    """Return the score of each passage by each ranker, shape (n_queries, n_passages)."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.preprocessing import normalize

    by_word = TfidfVectorizer(sublinear_tf=True, stop_words="english")
    passage_words = by_word.fit_transform(passages)
    query_words = by_word.transform(queries)
    words = (query_words @ passage_words.T).toarray()
    by_part = TfidfVectorizer(sublinear_tf=True, analyzer="char_wb", ngram_range=(3, 5))
    vectors = TruncatedSVD(N_DIMENSIONS, random_state=0)
    meant = normalize(vectors.fit_transform(by_part.fit_transform(passages)))
    cosine = SHARE_OF_VECTORS * normalize(vectors.transform(by_part.transform(queries))) @ meant.T
    top = find_first(words + cosine, N_FEEDBACK)
    feedback = sum(passage_words[top[:, rank]] for rank in range(N_FEEDBACK)) / N_FEEDBACK
    return {
        "words": words,
        "mixed": ((query_words + SHARE_OF_FEEDBACK * feedback) @ passage_words.T).toarray() + cosine,
    }


def run_table(docs: Sequence[Docstring], queries: IntArray, score: dict[str, FloatArray]) -> pa.Table:
    """Return the first passages of each query by each ranker: ranker, query, passage, score."""
    parts = []
    for ranker, ranker_scores in score.items():
        listed = find_first(ranker_scores, N_LISTED)
        passages = listed.ravel()
        query = np.repeat(queries, N_LISTED)
        parts.append(
            pa.table(
                {
                    "ranker": [ranker] * len(passages),
                    "query_id": [docs[index].name for index in query.tolist()],
                    "item_id": [docs[index].name for index in passages.tolist()],
                    "score": np.take_along_axis(ranker_scores, listed, axis=1).ravel(),
                }
            )
        )
    return pa.concat_tables(parts)


def judge_passages(docs: Sequence[Docstring], queries: IntArray) -> pa.Table:
    """Return the passages of each query's module, their grades, and the size class of their number."""
    rows = []
    for doc in (docs[index] for index in queries.tolist()):
        of_module = [other for other in docs if other.module == doc.module]
        answers = "1-3" if len(of_module) <= 3 else "4-20" if len(of_module) <= 20 else "over 20"
        for other in of_module:
            grade = 3 if other.name == doc.name else 2 if other.scope == doc.scope else 1
            rows.append((doc.name, other.name, grade, answers))
    names = ("query_id", "item_id", "relevance", "answers")
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def build_commands(folder: Path, night: str) -> list[list[str]]:
    """Return the commands."""
    tables = {name: f"{folder}/{name}" for name in ("runs", "judgments", "metrics", "queries", "compared")}
    shop = ["--run-date", night, "--dataset", "search"]
    return [
        ["mean-ndcg", "--input", tables["runs"], "--judgments", tables["judgments"], "--run-col", "ranker",
         "--segment-cols", "answers", "--k", "10", *shop, "--output", tables["metrics"],
         "--per-query-output", tables["queries"]],
        ["compare-runs", "--per-query", tables["queries"], "--baseline", "words", "--metrics", "ndcg@10",
         "--segment-cols", "answers", *shop, "--output", tables["compared"]],
        ["report", "--metrics", tables["metrics"], "--per-query", tables["queries"],
         "--comparison", tables["compared"], "--baseline", "words", "--run-date", night,
         "--output", f"{folder}/report.html"],
    ]  # fmt: skip


def describe_largest_loss(folder: Path, docs: Sequence[Docstring], runs: pa.Table) -> str:
    """Describe the query whose NDCG fell most from `words` to `mixed`, and the rank of its answer."""
    queries = pq.ParquetDataset(folder / "queries").read(["run", "query_id", "ndcg"]).to_pylist()
    values = {(row["run"], row["query_id"]): row["ndcg"] for row in queries}
    change = {query: value - values["words", query] for (run, query), value in values.items() if run == "mixed"}
    query = min(change, key=lambda candidate: (change[candidate], candidate))
    doc = next(candidate for candidate in docs if candidate.name == query)
    parts = []
    for ranker in ("words", "mixed"):
        items = [row["item_id"] for row in runs.to_pylist() if (row["ranker"], row["query_id"]) == (ranker, query)]
        place = f"on rank {items.index(query) + 1}" if query in items else "not listed"
        parts.append(f"{ranker} has {query} {place}, first {items[0]}")
    lost = f"{values['words', query]:.2f} to {values['mixed', query]:.2f}"
    return f"The query that lost most, {lost}: {doc.first!r}\n  {'; '.join(parts)}"


def main(argv: Sequence[str] | None = None) -> int:
    more = list(sys.argv[1:] if argv is None else argv)
    folder, night = create_folder("search"), date.today().isoformat()
    explain("A first number, on this machine without Spark: two queries of a shop, as in the README.")
    (folder / "shoes.csv").write_text(SHOES, encoding="utf-8")
    run("mean-ndcg", "--input", f"{folder}/shoes.csv", "--k", "1,3")
    explain("Now real text, ranked twice ...")
    docs = collect_docstrings()
    queries: IntArray = np.arange(0, len(docs), EVERY)
    runs = run_table(
        docs, queries, score_passages([doc.rest for doc in docs], [docs[index].first for index in queries.tolist()])
    )
    explain(
        f"{len(docs):,} passages of the documentation of Python's standard library. {len(queries)} queries: first\n"
        "paragraphs of docstrings, answered by what follows. Queries and grades come from that structure: 3 the\n"
        "same docstring, 2 the same class or functions of the module, 1 the same module. Two rankers: `words` is\n"
        "TF-IDF, `mixed` adds vectors and feedback. Segments: how many answers a query has."
    )
    for name, table in (("runs", runs), ("judgments", judge_passages(docs, queries))):
        (folder / name).mkdir()
        pq.write_table(table, folder / name / "part-0.parquet")
    evaluation, *others = build_commands(folder, night)
    explain("Means, on this machine without Spark:")
    ended = run(*evaluation, *more)
    if "--explain" in more:
        return ended
    explain("The same on Spark, which replaces the night by the same rows; then who is better, and a page:")
    ended = run_commands([[*evaluation, *more, "--engine", "spark"], *others], refusals=False) or ended
    print(f"\n{describe_largest_loss(folder, docs, runs)}\n{NEXT}\nOpen {folder.absolute()}/report.html")
    return ended


if __name__ == "__main__":
    raise SystemExit(main())
