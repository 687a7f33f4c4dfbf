"""Where two features meet without Spark: what had been overlooked."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ndcg_spark
from ndcg_spark.errors import InputRefusedError

RUN = {"query_id": ["q", "q"], "item_id": ["a", "b"], "new": [2.0, 1.0], "old": [1.0, 2.0]}
JUDGED = {"query_id": ["q", "q", "q"], "item_id": ["a", "b", "c"], "relevance": [1.0, 0.0, float("inf")]}
OF_THE_SECOND = 0.6309297535714575
"""NDCG@2 where the second item is the relevant one: 1 / log2(3)."""


def test_bad_judgments_beside_several_score_columns():
    options = {"score": ["new", "old"], "k": 2}
    with pytest.raises(InputRefusedError, match=r"infinite_relevance at query_id=q"):
        ndcg_spark.evaluate(pa.table(RUN), pa.table(JUDGED), **options).show()
    evaluation = ndcg_spark.evaluate(pa.table(RUN), pa.table(JUDGED), on_invalid="reject", **options)
    counted = evaluation.ranking.count_bad_rows()
    assert counted["judgments"].rejected == {"infinite_relevance": 1}
    assert (counted["input"].read, counted["judgments"].read) == (4, 3)
    values = {row["run"]: row["value"] for row in evaluation.means().to_pylist()}
    assert values == pytest.approx({"new": 1.0, "old": OF_THE_SECOND})


def test_judgments_without_rows(tmp_path):
    run = pa.table({"query_id": ["q"], "item_id": ["a"], "score": [1.0]})
    pq.write_table(pa.table(JUDGED).slice(0, 0), tmp_path / "judged.parquet")
    with pytest.raises(InputRefusedError, match=r"judg"):
        ndcg_spark.evaluate(run, tmp_path / "judged.parquet", engine="local").show()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_grades_by_large_texts(kind):
    table = pa.table(
        {
            "ranked": pa.array([["a", "b"]], pa.list_(kind)),
            "relevant": pa.array([[("b", 1.0)]], pa.map_(kind, pa.float64())),
        }
    )
    evaluation = ndcg_spark.evaluate(table, ranked="ranked", relevant="relevant", query=None, k=2)
    assert evaluation.means().column("value").to_pylist() == pytest.approx([OF_THE_SECOND])
