"""Costs as formulas of symbolic sizes."""
