"""Helpers of the tests: the reference, rows and tables to evaluate, and what came out."""
