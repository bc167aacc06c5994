"""The registry of the kinds of targets."""

from __future__ import annotations

from mithril_nb.targets.kinds.functions import FUNCTION
from mithril_nb.targets.kinds.given import GIVEN_PROGRAM
from mithril_nb.targets.kinds.kind import TargetCall, TargetKind
from mithril_nb.targets.kinds.models import MODEL
from mithril_nb.targets.kinds.modules import MODULE

_KINDS = [GIVEN_PROGRAM, MODEL, MODULE, FUNCTION]
"""In the order in which they are tried: functions last, because modules are callable, too."""


def register_kind(kind: TargetKind) -> None:
    """Register a kind of target. It is tried before all kinds registered so far.

    Examples:
        >>> import jax
        >>> from mithril_nb.targets import inspect
        >>> def build(call):
        ...     return inspect(jax.numpy.sin, *call.args)
        >>> sines = TargetKind("sines", lambda call: call.target == "sin", build)
        >>> register_kind(sines)
        >>> inspect("sin", 0.5)
        Inspection('sin', made: nothing yet)
        >>> _KINDS.remove(sines)
    """
    _KINDS.insert(0, kind)


def kind_of(call: TargetCall) -> TargetKind | None:
    """Return the first kind that accepts the target of a call; `None` if there is none."""
    return next((kind for kind in _KINDS if kind.accepts(call)), None)
