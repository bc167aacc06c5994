"""`jax`, `jnp` and `lax` as the kernels of blocks name them.

Importing JAX takes ten times as long as importing the blocks, and a session that only composes models needs no JAX. So
a name such as `jnp.sin` in a class body is looked up when the kernel first runs. Once JAX is imported, every name is
the name of JAX itself.
"""

from __future__ import annotations

import sys
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any


class _Later:
    def __init__(self, path: str):
        self._path = path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python asks every object for names such as `__wrapped__`
            raise AttributeError(name)
        module = sys.modules.get(self._path)
        return _Later(f"{self._path}.{name}") if module is None else getattr(module, name)

    def __call__(self, *args: Any, **named: Any) -> Any:
        return resolve_name(self._path)(*args, **named)


def loaded(function: Any) -> Any:
    """Return the function of JAX that a kernel names."""
    return resolve_name(function._path) if isinstance(function, _Later) else function


if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp
    from jax import lax
else:
    jax, jnp, lax = _Later("jax"), _Later("jax.numpy"), _Later("jax.lax")
