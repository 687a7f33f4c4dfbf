"""NumPy kernels over ragged arrays: where every metric is defined, once."""
