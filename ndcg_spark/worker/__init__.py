"""Between Arrow batches and kernels: what runs inside Spark's Python workers. No Spark import."""
