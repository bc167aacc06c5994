"""Renderers of all values that a notebook can display, by type. Each file is imported when it is first needed."""
