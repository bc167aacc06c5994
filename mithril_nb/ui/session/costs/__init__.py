"""Costs for a front end: tables, formulas, pictures and what-if questions."""
