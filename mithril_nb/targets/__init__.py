"""`inspect`, and readers for all targets that it accepts: models, functions, modules, lowered and compiled programs.

No reader imports Flax, Equinox or Haiku. If the target is a module, the user has imported the library already.
"""

from mithril_nb.targets.inspection import inspect
from mithril_nb.targets.kinds import PROGRAMS

__all__ = ["PROGRAMS", "inspect"]
