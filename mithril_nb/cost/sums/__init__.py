"""Rows of costs and their sums: by block, by role and by line of Python."""
