"""A program before and after each of its transforms."""
