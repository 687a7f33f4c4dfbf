"""What computes metrics: arrays in, arrays out."""
