"""Retrieval of images, by their pixels and by codes of 64 bits, and what the codes lose."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from scripts.demos.data import Digits, FloatArray, IntArray, name_images
from scripts.demos.runner import create_folder, explain, run, write

N_BITS = 64
CLOSED_LOOP = (0, 6, 8, 9)
METRICS = "ndcg@10,ndcg,ap@100,acg@10,wap@100"


def compute_codes(pixels: FloatArray) -> list[bytes]:
    """Return 64 bits per image: its side of 64 random planes through the mean image."""
    planes = np.random.default_rng(2026).normal(size=(pixels.shape[1], N_BITS))
    sides = (pixels - pixels.mean(axis=0)) @ planes > 0
    return [row.tobytes() for row in np.packbits(sides, axis=1)]


def compute_labels(digits: IntArray) -> list[list[int]]:
    """Return eleven labels per image: one per digit, and whether the digit has a closed loop."""
    return [[int(digit == label) for label in range(10)] + [int(digit in CLOSED_LOOP)] for digit in digits.tolist()]


def images(data: Digits, indices: IntArray, key: str) -> pa.Table:
    return pa.table(
        {
            key: name_images(indices),
            "vector": pa.array(list(data.pixels[indices]), pa.list_(pa.float64())),
            "code": pa.array(np.array(compute_codes(data.pixels), dtype=object)[indices].tolist(), pa.binary()),
            "labels": pa.array(compute_labels(data.digit[indices]), pa.list_(pa.int32())),
        }
    )


def retrieve(folder: Path, metric: str, run_name: str) -> None:
    tables = ("--queries", folder / "queries.parquet", "--corpus", folder / "corpus.parquet")
    options = ("--metric", metric, "--labels-col", "labels", "--metrics", METRICS, "--run", run_name)
    run("retrieve", *tables, *options, "--output", folder / "metrics")


def main() -> int:
    folder = create_folder("retrieval")
    data = Digits()
    write(images(data, data.query, "query_id"), folder / "queries.parquet", "images of handwritten digits (queries)")
    write(images(data, data.item, "item_id"), folder / "corpus.parquet", "other images (corpus)")
    explain(
        "Each image has 64 pixels (vector), 64 bits that random planes make of them (code), and labels: its digit,\n"
        "and whether that digit is written with a closed loop (0, 6, 8, 9). Relevance is the number of shared\n"
        "labels, 0 to 2. First by pixels. ndcg without a cutoff ranks the whole corpus; ap@100 is small because\n"
        "it divides by all images that share a label, several hundred."
    )
    retrieve(folder, "cosine", "pixels")
    explain(
        "Now by codes. Their distances are whole numbers from 0 to 64, so many images tie. Metrics are the mean\n"
        "over all orders of tied images."
    )
    retrieve(folder, "hamming", "codes")
    explain(
        f"Both runs are in {folder / 'metrics'}. A code takes 8 bytes, the pixels 64 even at a byte each; the\n"
        "difference between the two outputs is what that costs. docs/retrieval.md explains the tables and options."
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
