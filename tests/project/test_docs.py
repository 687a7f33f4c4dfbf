"""What `scripts/docs` builds has every page and every public name; the build itself checks links."""

from __future__ import annotations

import re
from pathlib import Path

import ndcg_spark

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_every_public_name_has_a_page():
    listed = set(re.findall(r"^   ([\w.]+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert sorted(set(ndcg_spark.__all__) - listed) == ["__version__"]
    others = sorted(listed - set(ndcg_spark.__all__))
    assert [name for name in others if not name.startswith(("errors.", "mlflow."))] == []


def test_every_page_is_in_the_table_of_contents():
    indexes = [(DOCS / f"{name}.md").read_text(encoding="utf-8") for name in ("index", "guide", "development")]
    listed = set(re.findall(r"^(\w+)$", "\n".join(indexes), re.MULTILINE))
    assert sorted({page.stem for page in DOCS.glob("*.md")} - {"index"} - listed) == []
