"""Workers that compare runs: rows to pairs, pairs to sums, sums to results."""
