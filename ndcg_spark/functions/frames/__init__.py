"""Metrics as expressions of Spark: what they compute (`formulas`), and the two ways to write it (`languages`)."""
