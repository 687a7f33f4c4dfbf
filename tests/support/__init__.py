"""Helpers of the tests: the reference, input rows and tables, and readers of results."""
