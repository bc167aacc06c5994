"""The kinds of targets that `inspect` accepts, one file each, and the registry of them.

Another kind of target, such as the modules of another library, is one more file that passes a `TargetKind` to
`register_kind`.
"""

from mithril_nb.targets.kinds.kind import PROGRAMS, TargetCall, TargetKind
from mithril_nb.targets.kinds.registry import kind_of, register_kind

__all__ = ["PROGRAMS", "TargetCall", "TargetKind", "kind_of", "register_kind"]
