"""Plugins: modules of other packages that register blocks, cost rules, stages, pictures and other extensions."""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "mithril_nb.plugins"
"""The group of entry points that name the modules of plugins."""

public_name: Any = None
"""A function that returns a public name of the package, such as `"compile"`. `mithril_nb/__init__.py` sets it."""
_lock = threading.RLock()
_loaded: list[EntryPoint] = []
_is_loaded = False


def load_plugins() -> tuple[EntryPoint, ...]:
    """Import the modules of all installed plugins, once, and return the entry points of those that were imported.

    Examples:
        >>> [plugin.name for plugin in load_plugins()]
        []
    """
    global _is_loaded
    with _lock:
        if not _is_loaded:
            _is_loaded = True  # first, because a plugin that uses a public name calls this function again
            # Not at the top: importlib.metadata takes half of the time of `import mithril_nb`.
            from importlib.metadata import entry_points

            for plugin in entry_points(group=GROUP):
                try:
                    plugin.load()
                except Exception as error:
                    _warn(plugin, error)
                else:
                    _loaded.append(plugin)
        return tuple(_loaded)


def _warn(plugin: EntryPoint, error: Exception) -> None:
    package = plugin.dist.name if plugin.dist else plugin.value
    warnings.warn(
        f"mithril_nb cannot load the plugin {plugin.name!r} of the package {package!r}: "
        f"{type(error).__name__}: {error}\n    Try: pip install --upgrade {package}",
        stacklevel=4,
    )
