"""The public view of a program: its stages, their costs and pictures, in one object."""

from mithril_nb.inspection.exports import exporter
from mithril_nb.inspection.inspection import Inspection, inspect_function

__all__ = ["Inspection", "exporter", "inspect_function"]
