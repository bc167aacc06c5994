"""Costs of HLO instructions by XLA's rules, and XLA's own totals for a module."""
