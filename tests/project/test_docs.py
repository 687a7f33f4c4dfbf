"""`scripts/docs` has a page for every page and every public name; the build itself checks links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.source_rules import list_public

import ndcg_spark
from ndcg_spark.comparison.tasks.finishing import RESULT_SCHEMA
from ndcg_spark.evaluation.tasks.stored import METRIC_SCHEMA, PROVENANCE
from ndcg_spark.jobs.run_log import RUN_LOG_SCHEMA
from ndcg_spark.tables.slices import STAMPS

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_public_name_has_a_page():
    listed = set(re.findall(r"^   ([\w.]+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert sorted(set(list_public()) - listed) == ["__version__"]
    others = sorted(listed - set(list_public()))
    assert [name for name in others if not name.startswith(("errors.", "mlflow."))] == []


def test_every_page_is_in_the_table_of_contents():
    indexes = [(DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("index", "guide", "development")]
    listed = set(re.findall(r"^(\w+)$", "\n".join(indexes), re.MULTILINE))
    assert sorted({page.stem for page in DOCS.glob("*.md")} - {"index"} - listed) == []


PACKAGE = Path(ndcg_spark.__file__).parent
PLACES = re.findall(r"`([\w/]+\.py)(?::([\w.]+))?`", (DOCS / "architecture.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("file", "name"), sorted(set(PLACES)))
def test_files_and_names_in_the_architecture_exist(file, name):
    path = next((path for path in (PACKAGE / file, DOCS.parent / file, *PACKAGE.rglob(file)) if path.exists()), None)
    assert path is not None, file
    if name:
        kinds = r"(def|class) |^" if "." not in name else r"def "
        assert re.search(rf"^\s*({kinds}){name.rpartition('.')[2]}\b", path.read_text(encoding="utf-8"), re.MULTILINE)


TELLING = [
    path
    for pattern in ("scripts/**/*", "docs/*.md", "*.md", ".ci/*", "pyproject.toml")
    for path in sorted(DOCS.parent.glob(pattern))
    if path.is_file() and path.suffix != ".pyc"
]


def expand_braces(word):
    """Expand braces like a shell: `a_{b,c}` is `a_b` and `a_c`."""
    match = re.fullmatch(r"(.*)\{(.*)\}(.*)", word)
    return [f"{match[1]}{part}{match[3]}" for part in match[2].split(",")] if match else [word]


@pytest.mark.parametrize("path", TELLING, ids=lambda path: path.name)
def test_tests_named_in_files_exist(path):
    words = re.findall(r"\btests/[\w/{},.*-]+", path.read_text(encoding="utf-8"))
    named = {brace.rstrip(".") for word in words for brace in expand_braces(word)}
    assert sorted(name for name in named if not any(DOCS.parent.glob(f"{name.rstrip('*/')}*"))) == []


REASONS = {
    "tables": (("evaluation/tasks/valid_rows.py",), r'yield "(\w+)"|_check_key\([^"]+, "(\w+)"\)'),
    "judgments": (("core/bad_rows.py", "judgments/frames.py"), r'\("(\w+_(?:\w+))", (?:~|named|has_relevance|F\.)'),
    "position_bias": (
        ("clicks/frames.py",),
        r'\("(\w+_\w+)", (?:named|position|propensity|click|F\.|\()',
    ),
}


@pytest.mark.parametrize("page", REASONS)
def test_every_reason_of_a_bad_row_is_documented(page):
    places, pattern = REASONS[page]
    code = "\n".join(path.read_text(encoding="utf-8") for place in places for path in PACKAGE.glob(place))
    reasons = {
        name for actual in re.findall(pattern, code) for name in ([actual] if isinstance(actual, str) else actual)
    }
    documented = set(re.findall(r"`(\w+)`", (DOCS / f"{page}.md").read_text(encoding="utf-8")))
    assert len(reasons - {""}) >= 5
    assert sorted(reasons - {""} - documented) == []


COLUMNS = {
    "compare": {*RESULT_SCHEMA.names, *PROVENANCE, *STAMPS, "computed_at", "baseline_input", "source_computed_at"},
    "run_log": {*RUN_LOG_SCHEMA.names, *STAMPS},
    "tables": {*METRIC_SCHEMA.names, *STAMPS},
}


@pytest.mark.parametrize("page", COLUMNS)
def test_columns_tables_have_all_stored_columns(page):
    """All tables of a page with the head `columns` together list each stored column, and no others."""
    tables = re.findall(
        r"^\| columns? \|.*\n((?:\|.*\n)+)", (DOCS / f"{page}.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    cells = [line.split(" | ")[0] for table in tables for line in table.splitlines()[1:]]
    assert sorted({name for cell in cells for name in re.findall(r"`(\w+)`", cell)}) == sorted(COLUMNS[page])


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.stem)
def test_pages_have_no_duplicate_rows_and_headings_have_blank_lines(page):
    """Merges leave such errors."""
    lines = page.read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and line.count("|") > 2 and "---" not in line]
    twice = {line for at, line in enumerate(rows[1:]) if line == rows[at]}
    assert twice == set()
    fenced = False
    for before, line in zip(["", *lines], lines, strict=False):
        fenced ^= line.startswith("```")
        assert fenced or not re.match(r"#{1,4} ", line) or before == "", line
