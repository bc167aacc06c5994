"""Frozen records of a model's structure, and pure edits of them. Knows no array library."""
