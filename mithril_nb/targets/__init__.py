"""Everything that a person may want to look at, and `inspect`, which takes it.

What reads one library's modules imports none: whoever has a module has imported its library.
"""

from mithril_nb.targets.inspection import PROGRAMS, inspect

__all__ = ["PROGRAMS", "inspect"]
