"""Frozen records of a model's structure, and pure edits of them. Independent of any array library."""
