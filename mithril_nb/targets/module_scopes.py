"""Named scopes with the paths of modules of Flax, Equinox and Haiku, opened while a program is traced.

linen and Haiku have hooks for calls of modules, which receive the path of the module. Modules of nnx and Equinox do not
have a path. While a program is traced, the `__call__` of their classes is replaced by a function that finds it.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from itertools import islice
from types import FunctionType
from typing import Any

import jax

from mithril_nb.program import block_scope
from mithril_nb.stages.trace.provenance.scopes import LIBRARY, ROOT
from mithril_nb.train.library_models import class_of

Path = tuple[str, ...]
_KINDS = (("flax.nnx", "Module"), ("flax.linen", "Module"), ("equinox", "Module"))
_PATCHING = threading.RLock()
"""Held while methods of classes are replaced, because all threads share the classes."""


def is_module(value: Any) -> bool:
    """Return whether a value is a module of Flax or Equinox. Equinox's wrappers of functions are not."""
    return is_module_class(type(value))


# The answer for a class never changes: a subclass of a Module exists only after the import of its package.
@lru_cache(maxsize=1024)
def is_module_class(cls: type) -> bool:
    """Return whether the objects of a class are modules; see `is_module`."""
    return any(issubclass(cls, class_of(*kind)) for kind in _KINDS) and not is_machinery(cls)


@lru_cache(maxsize=1024)
def _has_parts(cls: type) -> bool:
    return any(issubclass(cls, class_of(*kind)) for kind in (("flax.nnx", "Pytree"), *_KINDS))


def _has_arrays(module: Any) -> bool:
    # A module of Equinox may be a setting, such as a solver of Diffrax.
    is_of_equinox = isinstance(module, class_of("equinox", "Module"))
    return not is_of_equinox or any(hasattr(leaf, "dtype") for leaf in jax.tree.leaves(module))


def is_machinery(cls: type) -> bool:
    """Return whether a class is one of Equinox's wrappers, such as bound methods and results of `filter_jit`."""
    return cls.__module__.startswith("equinox.") and not cls.__module__.startswith("equinox.nn.")


def modules_in(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each outermost module in nested lists, dicts and dataclasses, after its path."""
    if is_module(value):
        yield path, value
    else:
        for name, part in _parts(value):
            yield from modules_in(part, (*path, name))


def submodules(module: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield a module and all modules inside it, each once, after its path. `path` is that of the module itself."""
    seen: set[int] = set()

    def walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
        if id(value) in seen:
            return
        if is_module(value):
            yield path, value
        elif not isinstance(value, list | tuple | Mapping):
            return
        seen.add(id(value))
        for name, part in _parts(value):
            yield from walk(part, (*path, name))

    yield from walk(module, path)


def _parts(value: Any) -> list[tuple[str, Any]]:
    # A module may be in a container, in a module, or in an object of its library, such as `nnx.Optimizer`.
    if isinstance(value, Mapping):
        return [(str(key), part) for key, part in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(value, list | tuple) or isinstance(value, class_of("flax.nnx", "List")):
        return [(str(index), part) for index, part in enumerate(value)]
    if _has_parts(type(value)):
        # Flax 0.12 keeps its own records of an nnx module in these attributes.
        return [(name, part) for name, part in vars(value).items() if not name.startswith("_pytree__")]
    return []


def by_path(roots: Mapping[str, Any]) -> dict[Path, Any]:
    """Return the outermost modules by path: their names, split at each slash. The path of a single module is `()`.

    Examples:
        >>> by_path({"net": 1}), by_path({"models/encoder": 1, "head": 2})
        ({(): 1}, {('models', 'encoder'): 1, ('head',): 2})
    """
    return {(tuple(name.split("/")) if len(roots) > 1 else ()): root for name, root in roots.items()}


def is_alone(module: Any) -> bool:
    """Return whether a module of nnx or Equinox contains no other modules."""
    return not isinstance(module, class_of("flax.linen", "Module")) and len(list(islice(submodules(module), 2))) == 1


class ModuleScopes:
    """Named scopes for the modules that are called while a program is traced.

    The path of a called module is found by object identity among the modules inside `roots`. A transform may call a
    rebuilt copy of a module, which is not among them. If the enclosing module contains exactly one module of the same
    class, the copy has the path of this module. Otherwise the name of the class is used.

    Examples:
        >>> with ModuleScopes({}).entered():
        ...     pass
    """

    def __init__(self, roots: Mapping[str, Any]):
        self._thread = 0
        self._paths: dict[int, tuple[Path, Any]] = {}
        self._open: list[tuple[Path, Any]] = []
        self._substitutes: dict[int, Any] = {}
        self.has_substituted = False
        self._linen_prefix: Path = ()
        self._roots = by_path(roots)
        for path, root in self._roots.items():
            self._learn(path, root)

    def substitute(self, original: Any, rebuilt: Any) -> None:
        """Redirect calls of a module, and of modules inside it, to `rebuilt`, the same module with traced arrays."""
        parts = dict(submodules(rebuilt))
        for path, module in submodules(original):
            self._substitutes[id(module)] = parts.get(path, module)

    @contextmanager
    def entered(self) -> Iterator[ModuleScopes]:
        """Open scopes for the modules that this thread calls inside the `with` block."""
        with _PATCHING, ExitStack() as undo:
            self._thread = threading.get_ident()
            for package in ("flax.nnx", "equinox"):
                self._patch(class_of(package, "Module"), undo)
            linen, haiku = sys.modules.get("flax.linen"), sys.modules.get("haiku")
            if linen is not None:
                undo.enter_context(linen.intercept_methods(self._linen))
            if haiku is not None:
                undo.enter_context(haiku.intercept_methods(self._haiku))
            yield self

    def _patch(self, base: Any, undo: ExitStack) -> None:
        if base == ():
            return
        classes, pending = {base: None}, [base]
        while pending:
            for cls in pending.pop().__subclasses__():
                if cls not in classes:
                    classes[cls] = None
                    pending.append(cls)
        # All classes, because a subclass that overrides `__call__` does not call the one of its base.
        for cls in classes:
            for name, method in [*vars(cls).items()] if not is_machinery(cls) else ():
                # Other methods too, because a user may call `module.encode(x)`. Those of the base are machinery.
                is_method = isinstance(method, FunctionType) or type(method).__name__ == "_wrap_method"
                if name == "__call__" or (cls is not base and not name.startswith("_") and is_method):
                    setattr(cls, name, self._naming(method))
                    undo.callback(setattr, cls, name, method)

    def _naming(self, call: Any) -> Callable[..., Any]:
        if type(call).__name__ == "_wrap_method":  # Equinox makes bound methods that are pytrees
            return type(call)(self._naming(call.method))

        def __call__(module: Any, /, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:  # another thread calls the class while this one traces
                return call.__get__(module, type(module))(*args, **kwargs)
            self.has_substituted |= id(module) in self._substitutes
            module = self._substitutes.get(id(module), module)
            bound = call.__get__(module, type(module))
            is_super = bool(self._open) and self._open[-1][1] is module  # `super().__call__(x)`
            if is_super or not (self._open or id(module) in self._paths or _has_arrays(module)):
                return bound(*args, **kwargs)
            with self._at(self._path_of(module), module):
                return bound(*args, **kwargs)

        return functools.wraps(call)(__call__) if isinstance(call, FunctionType) else __call__

    def _path_of(self, module: Any) -> Path:
        if id(module) not in self._paths:
            around = self._open[-1][1] if self._open else None
            inside = [pair for path, root in self._roots.items() for pair in submodules(root, path)]
            if around is not None:
                inside = list(submodules(around, self._paths[id(around)][0])) if id(around) in self._paths else []
            alike = {path for path, other in inside if type(other) is type(module) and other is not around}
            enclosing = self._open[-1][0] if self._open else ()
            own = (*enclosing, type(module).__name__)
            self._learn(alike.pop() if len(alike) == 1 else own, module)
        return self._paths[id(module)][0]

    def _learn(self, path: Path, module: Any) -> None:
        for inner, part in submodules(module, path):
            self._paths.setdefault(id(part), (inner, part))

    @contextmanager
    def _at(self, path: Path, module: Any) -> Iterator[None]:
        around = self._open[-1][0] if self._open else ()
        same, name = (len(around) if path[: len(around)] == around else 0), type(module).__name__
        with ExitStack() as scopes:
            if not path:
                # A module that is the whole program is a block only if it contains no other modules.
                scopes.enter_context(jax.named_scope(block_scope(name) if is_alone(module) else ROOT + name))
            # Only the part that is not open yet: a module may call one that is several levels below it.
            for part in path[same:]:
                scopes.enter_context(jax.named_scope(block_scope(part)))
            self._open.append((path, module))
            scopes.callback(self._open.pop)
            yield

    def _linen(self, call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        module = context.module
        if threading.get_ident() != self._thread or context.method_name == "setup" or module.scope is None:
            return call(*args, **kwargs)
        with jax.named_scope(LIBRARY + (module.name or type(module).__name__)):
            return self._linen_in_scope(call, args, kwargs, module)

    def _linen_in_scope(self, call: Any, args: Any, kwargs: Any, module: Any) -> Any:
        if not module.path and any(type(other) is type(module) for _, other in self._open):
            return call(*args, **kwargs)  # a method of the root that another method calls
        before = self._linen_prefix
        if not module.path:
            self._linen_prefix = self._linen_root(module)
        try:
            with self._at((*self._linen_prefix, *module.path), module):
                return call(*args, **kwargs)
        finally:
            self._linen_prefix = before

    def _linen_root(self, module: Any) -> Path:
        # A module without a path in linen is either a root, of which linen's `apply` runs a copy, or a copy that
        # another module calls, such as the cell of an `nn.RNN`.
        alike = [path for path, root in self._roots.items() if type(root) is type(module)]
        if len(alike) == 1:
            return alike[0]
        name = module.name or type(module).__name__
        if self._open:
            return (*self._open[-1][0], name)
        return (name,) if self._roots else ()

    def _haiku(self, call: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if threading.get_ident() != self._thread or context.method_name == "__init__":
            return call(*args, **kwargs)
        path, method = haiku_path(context.module.module_name), context.method_name
        with jax.named_scope(LIBRARY + path[-1]), jax.named_scope(LIBRARY + method), self._at(path, context.module):
            return call(*args, **kwargs)


def haiku_path(name: str) -> Path:
    """Return the path of a Haiku module without `~`. Haiku writes it before a module that a constructor created.

    Examples:
        >>> haiku_path("mlp/~/linear_0")
        ('mlp', 'linear_0')
    """
    return tuple(part for part in name.split("/") if part != "~")


_CONTEXT: Any = jax.make_user_context(None)
"""A part of the key of JAX's trace cache, so that a function traced without scopes is traced again with scopes."""


@contextmanager
def named_modules(roots: Mapping[str, Any], substitutes: Sequence[tuple[Any, Any]] = ()) -> Iterator[ModuleScopes]:
    """Open scopes for the modules that are called inside the `with` block; see `ModuleScopes`."""
    scopes = ModuleScopes(roots)
    for original, rebuilt in substitutes:
        scopes.substitute(original, rebuilt)
    # A trace with substitutes has a unique key: it contains tracers, so it must not be used again.
    key = object() if substitutes else tuple((name, type(root)) for name, root in roots.items())
    with _CONTEXT(key), scopes.entered():
        yield scopes
