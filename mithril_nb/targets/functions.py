"""The user's functions as targets, with the modules among their arguments and in their closures."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from mithril_nb.stages.param_names import DEFAULT
from mithril_nb.targets.arguments import Arguments, named, names_of, title_of, with_self
from mithril_nb.targets.arrays import checked_result, explain_sizes
from mithril_nb.targets.constants import explaining
from mithril_nb.targets.library_modules import Arrays, is_equinox, is_nnx, nnx_params, part
from mithril_nb.targets.module_scopes import by_path, is_module, modules_in, named_modules, submodules

_LIBRARIES = frozenset(
    {"builtins", "equinox", "flax", "functools", "haiku", "jax", "jaxlib", "mithril_nb", "numpy", "optax"}
)
"""Packages whose functions are not searched for modules."""


@dataclass(frozen=True)
class FunctionProgram:
    """A function whose arguments are pytrees of arrays, so that JAX can trace it.

    Attributes:
        function: The function.
        specs: Arguments to trace `function` with.
        holders: A dict from the name of each argument of the user's function, and of each module that it closes over,
            to the inputs of `function` with its arrays, such as `["x"]`. For a module, only the inputs with its
            parameters, such as `["modules['net']['kernel']"]`.
        trained: The inputs of `function` that are parameters of nnx modules among the arguments. If there are no such
            modules: the parameters of modules that the user's function closes over.
    """

    function: Callable[..., Any]
    specs: tuple[Any, ...]
    holders: Mapping[str, Sequence[str]]
    trained: tuple[str, ...] = ()

    def params(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the inputs of `function` that contain the parameters, from the names in the option `params=`."""
        if names == (DEFAULT,) and DEFAULT not in self.holders:
            return self.trained or names
        return tuple(one for name in names for one in self.holders.get(name, (name,)))


def function_program(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    static: Collection[int | str],
) -> FunctionProgram:
    """Return a function and its arguments as a function of arrays.

    nnx modules among the arguments, and nnx and Equinox modules that the function closes over, become inputs. If there
    are nnx modules, their arrays after the call are a second result.
    """
    count = len(args)
    fn, args = with_self(fn, args)
    skipped = len(args) - count
    static = frozenset(one + skipped if isinstance(one, int) else one for one in static)
    whole = Arguments(fn, args, kwargs, static=static)
    values = dict(zip(whole.all_names, whole.values, strict=True))
    held = modules_of(fn)
    roots = {**_roots(values), **held}
    objects = {name: value for name, value in values.items() if is_nnx(value)}
    if not roots and not objects:
        program = plain_program(whole)
        return FunctionProgram(program, whole.traced, _holders(whole, names_of(program)))
    given = Arguments(fn, args, kwargs, frozenset(objects), static)
    closed = {name: one for name, one in held.items() if name not in objects and (is_nnx(one) or is_equinox(one))}
    parts = {name: part(one) for name, one in closed.items() if not is_nnx(one)}
    nnx = {**objects, **{name: one for name, one in closed.items() if is_nnx(one)}}
    if nnx:
        parts["modules"] = part(nnx)  # all in one input, because an optimizer may share arrays with its model
    known = {path for start, root in by_path(roots).items() for path, _ in submodules(root, start)}
    nests = {name: _Nest({**one.params, **one.state}, known) for name, one in parts.items()}

    def called(*traced: Any) -> tuple[Any, dict[str, Any]]:
        built = dict[str, Any]()
        for (name, one), tree in zip(parts.items(), traced[: len(parts)], strict=True):
            arrays = nests[name].flat(tree)
            params, state = ({key: arrays[key] for key in keys} for keys in (one.params, one.state))
            built.update(one.build(params, state) if name == "modules" else {name: one.build(params, state)})
        again, keywords = given.whole(*traced[len(parts) :], apart={name: built[name] for name in objects})
        here = _roots(dict(zip(given.all_names, (*again, *keywords.values()), strict=True)))
        here |= {name: built.get(name, one) for name, one in held.items()}
        naming = named_modules(here, [(one, built[name]) for name, one in closed.items()])
        with naming, explain_sizes(values, title_of(fn)):
            out = fn(*again, **keywords)
        return out, built

    def run(*traced: Any) -> Any:
        out, built = called(*traced)
        if not nnx:
            return checked_result(out, title_of(fn))
        checked_result(out, title_of(fn))  # an empty result is valid: a train step may only change its modules
        after = part({name: built[name] for name in nnx})
        return out, nests["modules"].tree({**after.params, **after.state})

    lifted = tuple(nests[name].tree({**one.params, **one.state}) for name, one in parts.items())
    names = (*(f"{name}_" * (name in values) or name for name in parts), *given.names)
    specs = (*lifted, *given.traced)
    program = named(explaining(run, given), names, title_of(fn), fn)
    arguments = names_of(program)
    trained = dict[str, list[str]]()
    for (name, one), argument in zip(parts.items(), arguments, strict=False):
        is_nnx_part = name == "modules"
        for dots in nnx_params(nnx) if is_nnx_part else one.params if callable(closed[name]) else ():
            owner = dots.partition(".")[0] if is_nnx_part else name
            trained.setdefault(owner, []).append(argument + nests[name].reach(dots))
    chosen = [name for name in trained if name in objects] or [*trained]
    return FunctionProgram(
        program,
        specs,
        {**_holders(given, arguments[len(parts) :]), **trained},
        tuple(one for name in chosen for one in trained[name]),
    )


def plain_program(given: Arguments) -> Callable[..., Any]:
    """Return the function of a call as a function of the traced arguments. Closed-over modules are constants."""

    def naming(run: Callable[..., Any]) -> Callable[..., Any]:
        def calling(*traced: Any) -> Any:
            with named_modules({}):  # the function may build modules, as `nnx.merge` does
                return run(*traced)

        return explaining(calling, given)

    trace = None if given.has_clash else naming(given.trace)  # JAX 0.10 fails if two arguments have one name
    return named(naming(given.calling), given.names, title_of(given.fn), given.fn, trace)


def _holders(given: Arguments, names: Sequence[str]) -> dict[str, Sequence[str]]:
    """Return the attribute `holders` of `FunctionProgram` for the arguments. `names` are those of the inputs."""
    traced = dict(zip(given.names, names, strict=True))
    return {name: [traced[name]] if name in traced else [] for name in given.all_names}


class _Nest:
    """Converts arrays by dotted name to a nested dict, and back.

    The path of a module and the name of its array stay together. With a module `layers/0`, the array
    `mu.layers.0.kernel` becomes `{"mu": {"layers.0.kernel": array}}`.

    Args:
        arrays: Arrays by dotted name.
        known: Paths of the modules, as tuples.
    """

    def __init__(self, arrays: Arrays, known: set[tuple[str, ...]]):
        self._places = {dots: self._place(tuple(dots.split(".")), known) for dots in arrays}

    def _place(self, parts: tuple[str, ...], known: set[tuple[str, ...]]) -> tuple[str, ...]:
        for start in range(len(parts)):
            if parts[start:-1] and parts[start:-1] in known:
                return (*(".".join(parts[:start]),) * bool(start), ".".join(parts[start:]))
        return (".".join(parts[:-1]), parts[-1]) if len(parts) > 1 else parts

    def reach(self, dots: str) -> str:
        """Return the position of an array in the nested dict, as JAX prints it: `['layers.0']['kernel']`."""
        return jax.tree_util.keystr(tuple(map(jax.tree_util.DictKey, self._places.get(dots, (dots,)))))

    def tree(self, arrays: Arrays) -> Any:
        found: dict[str, Any] = {}
        for dots, array in arrays.items():
            *outer, last = self._places.get(dots, (dots,))
            (found.setdefault(outer[0], {}) if outer else found)[last] = array
        return found

    def flat(self, tree: Any) -> Arrays:
        return {
            dots: functools.reduce(lambda inside, key: inside[key], place, tree) for dots, place in self._places.items()
        }


def _roots(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the modules in the arguments by name, without the copies in the state of an optimizer.

    A copy, such as the moments of Adam, has the type of its module but is nested deeper. So of the modules of each
    type, only those with the shortest path are returned.
    """
    found = [((name, *path), module) for name, value in values.items() for path, module in modules_in(value)]
    least: dict[type, int] = {}
    for path, module in found:
        least[type(module)] = min(len(path), least.get(type(module), len(path)))
    return {"/".join(path): module for path, module in found if len(path) == least[type(module)]}


def modules_of(fn: Any) -> dict[str, Any]:
    """Return the modules that a function closes over or reads from globals, by variable name.

    The functions that `fn` calls are searched too, except those of libraries.
    """
    found: dict[str, Any] = {}
    seen: set[int] = set()

    def look(name: str, value: Any) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        if is_module(value):
            found.setdefault(name, value)
            return
        if isinstance(value, functools.partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                look(name, part)
        inner = getattr(value, "__wrapped__", None) if callable(value) and not isinstance(value, type) else None
        if inner is not None:
            look(name, inner)
        if isinstance(value, types.MethodType):
            look(name, value.__func__)
        if isinstance(value, types.FunctionType) and not _is_of_library(value):
            for variable, part in _variables(value):
                look(variable, part)

    look("module", fn)
    return found


def other_modules(fn: Any, module: Any) -> dict[str, Any]:
    """Return the modules with parameters that a function closes over, without `module` and its copies."""
    own = {id(array) for array in part(module).params.values()}  # Equinox wrappers may contain a copy of the module
    return {
        name: one
        for name, one in modules_of(fn).items()
        if (is_nnx(one) or is_equinox(one)) and any(id(array) not in own for array in part(one).params.values())
    }


def _is_of_library(fn: types.FunctionType) -> bool:
    # Both names, because `functools.wraps` copies `__module__` from the wrapped function, but not the globals.
    written = (fn.__module__ or "", str(fn.__globals__.get("__name__", "")))
    return all(name.partition(".")[0] in _LIBRARIES for name in written)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _codes(const)


def _variables(fn: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:  # the variable has no value yet
            continue
    for code in _codes(fn.__code__):
        used = (one.argval for one in dis.get_instructions(code) if one.opname == "LOAD_GLOBAL")
        yield from ((name, fn.__globals__[name]) for name in used if name in fn.__globals__)
