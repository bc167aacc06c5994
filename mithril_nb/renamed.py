"""Former names of modules and of their public names: they work until version 1.0, with a `DeprecationWarning`."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

_MODULES = {
    "mithril_nb.backends.notices": "mithril_nb.backends.backend",
    "mithril_nb.checks": "mithril_nb.analysis.checks",
    "mithril_nb.exporting": "mithril_nb.interop.exporting",
    "mithril_nb.ipython": "mithril_nb.cli.ipython",
    "mithril_nb.launch": "mithril_nb.compilation.launch.launcher",
    "mithril_nb.measure": "mithril_nb.analysis.measure",
    "mithril_nb.models.custom": "mithril_nb.models.op",
    "mithril_nb.physical": "mithril_nb.compilation",
    "mithril_nb.retraces": "mithril_nb.analysis.retraces",
    "mithril_nb.session": "mithril_nb.ui.session",
    "mithril_nb.ui.session.facts": "mithril_nb.ui.session.snapshot",
    "mithril_nb.whatif": "mithril_nb.analysis.whatif",
    "mithril_nb.widgets": "mithril_nb.ui.widgets",
}
"""New name of each renamed module."""
_NAMES = {
    "mithril_nb.cost": {
        "Comparison": ("mithril_nb.cost", "CostComparison"),
        "Life": ("mithril_nb.cost", "LiveRange"),
    },
    "mithril_nb.stages": {
        "Inspection": ("mithril_nb.inspection", "Inspection"),
        "STAGES": ("mithril_nb.stages.stage_kinds", "STAGE_KINDS"),
        "inspect": ("mithril_nb.inspection", "inspect"),
    },
}
"""By former module, then by former name: the new module and the new name."""


def renamed_names(module: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module whose public names were renamed."""

    def of_former_name(name: str) -> Any:
        if name not in _NAMES[module]:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        home, now = _NAMES[module][name]
        _warn(f"{module}.{name}", f"{home}.{now}")
        return getattr(importlib.import_module(home), now)

    return of_former_name


class _FormerModules:
    """Finds and loads the former modules; an entry of `sys.meta_path`."""

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, cls) if _new_name(name) else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> None:
        return None

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        now = _new_name(module.__name__)
        assert now is not None
        _warn(module.__name__, now)
        # Do not return the new module itself: the import machinery would write the former name into it.
        vars(module)["__getattr__"] = lambda name: getattr(importlib.import_module(now), name)
        # The former package has no files, so that Python does not load the files of the new package a second time.
        module.__path__ = []


def _new_name(name: str) -> str | None:
    """Return the new name of a former module, or of a module in a former package; `None` if there is none."""
    for former, now in _MODULES.items():
        if name == former:
            return now
        if name.startswith(f"{former}.") and find_spec(inner := now + name.removeprefix(former)):
            return inner
    return None


def find_former_modules() -> None:
    """Let `import` find the former modules."""
    if _FormerModules not in sys.meta_path:
        sys.meta_path.append(_FormerModules)


def _warn(former: str, now: str) -> None:
    # The frames of the import machinery do not count, so this is the user's line.
    warnings.warn(
        f"{former} is now {now}; the former name will be removed in version 1.0.", DeprecationWarning, stacklevel=3
    )
