"""`inspect`, and readers for everything it accepts: models, functions, modules, lowered and compiled programs.

No reader imports Flax, Equinox or Haiku: if the target is a module, the user has imported its library already.
"""

from mithril_nb.targets.inspection import inspect
from mithril_nb.targets.kinds import PROGRAMS

__all__ = ["PROGRAMS", "inspect"]
