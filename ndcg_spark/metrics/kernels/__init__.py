"""What computes metrics: ranked lists in, a value of each query out."""
