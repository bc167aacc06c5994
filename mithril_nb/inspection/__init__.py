"""The public view of a program: its stages, their costs and pictures, in one object."""

from mithril_nb.inspection.inspection import Inspection, inspect

__all__ = ["Inspection", "inspect"]
