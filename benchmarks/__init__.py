"""Benchmarks with a table: `python -m benchmarks`."""
