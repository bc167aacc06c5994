"""The user's functions as targets, with the modules among their arguments and in their closures."""

from __future__ import annotations

import dis
import functools
import operator
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from mithril_nb.stages.param_names import DEFAULT
from mithril_nb.targets.arguments import Arguments, checked_result, is_jitted, named, names_of, title_of
from mithril_nb.targets.library_modules import Arrays, part, part_nnx
from mithril_nb.targets.module_scopes import by_path, is_module, modules_in, named_modules, submodules
from mithril_nb.train.library_models import is_equinox, is_nnx

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
        return tuple(argument for name in names for argument in self.holders.get(name, (name,)))


def function_program(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    static: Collection[int | str],
) -> FunctionProgram:
    """Return a function and its arguments as a function of arrays."""
    if isinstance(fn, types.MethodType) and is_jitted(fn.__func__):  # `static_argnums` of its jax.jit count `self`
        fn, args = fn.__func__, (fn.__self__, *args)
        static = frozenset(key + 1 if isinstance(key, int) else key for key in static)
    arguments = Arguments(fn, args, kwargs, static=static)
    values = arguments.by_name
    held = modules_of(fn)
    roots = {**_roots(values), **held}
    objects = {name: value for name, value in values.items() if is_nnx(value)}
    if not roots and not objects:
        program = plain_program(arguments)
        return FunctionProgram(program, arguments.traced, _holders(arguments, names_of(program)))
    arguments = Arguments(fn, args, kwargs, frozenset(objects), static)
    closed = {
        name: module for name, module in held.items() if name not in objects and (is_nnx(module) or is_equinox(module))
    }
    parts = {name: part(module) for name, module in closed.items() if not is_nnx(module)}
    nnx = {**objects, **{name: module for name, module in closed.items() if is_nnx(module)}}
    if nnx:
        parts["modules"] = part(nnx)  # all in one input, because an optimizer may share arrays with its model
    paths = {path for start, root in by_path(roots).items() for path, _ in submodules(root, start)}
    nests = {name: _Nest({**split.params, **split.state}, paths) for name, split in parts.items()}

    def called(*traced: Any) -> tuple[Any, dict[str, Any]]:
        built = dict[str, Any]()
        for (name, split), tree in zip(parts.items(), traced[: len(parts)], strict=True):
            arrays = nests[name].flat(tree)
            params, state = ({key: arrays[key] for key in keys} for keys in (split.params, split.state))
            module = split.build(params, state)
            built.update(module if name == "modules" else {name: module})
        args, keywords = arguments.with_traced(*traced[len(parts) :], apart={name: built[name] for name in objects})
        roots = _roots(dict(zip(arguments.all_names, (*args, *keywords.values()), strict=True)))
        roots |= {name: built.get(name, module) for name, module in held.items()}
        naming = named_modules(roots, [(module, built[name]) for name, module in closed.items()])
        with naming, arguments.explained():
            out = fn(*args, **keywords)
        return checked_result(out, title_of(fn)), built

    # A call changes an nnx module in place, so its arrays after the call are a second result, as in `nnx.jit`.
    def run(*traced: Any) -> Any:
        out, built = called(*traced)
        if not nnx:
            return out
        after = part({name: built[name] for name in nnx})
        return out, nests["modules"].tree({**after.params, **after.state})

    lifted = tuple(nests[name].tree({**split.params, **split.state}) for name, split in parts.items())
    # A variable of the function's closure may have the name of an argument.
    names = (*(f"{name}_" * (name in values) or name for name in parts), *arguments.names)
    specs = (*lifted, *arguments.traced)
    program = named(run, names, title_of(fn), fn)
    inputs = names_of(program)
    trained = dict[str, list[str]]()
    for (name, split), argument in zip(parts.items(), inputs, strict=False):
        is_nnx_part = name == "modules"
        # An Equinox module that cannot be called is a setting or a state, as of an optimizer.
        for dots in part_nnx(nnx).params if is_nnx_part else split.params if callable(closed[name]) else ():
            owner = dots.partition(".")[0] if is_nnx_part else name
            trained.setdefault(owner, []).append(argument + nests[name].keystr(dots))
    owners = [name for name in trained if name in objects] or [*trained]
    return FunctionProgram(
        program,
        specs,
        {**_holders(arguments, inputs[len(parts) :]), **trained},
        tuple(path for name in owners for path in trained[name]),
    )


def plain_program(arguments: Arguments) -> Callable[..., Any]:
    """Return the function of a call as a function of the traced arguments. Closed-over modules are constants."""

    def naming(run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def calling(*traced: Any) -> Any:
            with named_modules({}):  # the function may build modules, as `nnx.merge` does
                return run(*traced)

        return calling

    trace = None if arguments.has_clash else naming(arguments.trace)  # JAX 0.10 fails if two arguments have one name
    return named(naming(arguments.calling), arguments.names, title_of(arguments.fn), arguments.fn, trace)


def _holders(arguments: Arguments, names: Sequence[str]) -> dict[str, Sequence[str]]:
    traced = dict(zip(arguments.names, names, strict=True))
    return {name: [traced[name]] if name in traced else [] for name in arguments.all_names}


class _Nest:
    # Converts arrays by dotted name to a nested dict and back. The path of a module and the name of its array stay
    # together: with a module `layers/0`, `mu.layers.0.kernel` becomes `{"mu": {"layers.0.kernel": array}}`.
    def __init__(self, arrays: Arrays, paths: set[tuple[str, ...]]):
        self._keys = {dots: self._keys_of(tuple(dots.split(".")), paths) for dots in arrays}

    def _keys_of(self, parts: tuple[str, ...], paths: set[tuple[str, ...]]) -> tuple[str, ...]:
        for start in range(len(parts)):
            if parts[start:-1] and parts[start:-1] in paths:
                return (*(".".join(parts[:start]),) * bool(start), ".".join(parts[start:]))
        return (".".join(parts[:-1]), parts[-1]) if len(parts) > 1 else parts

    def keystr(self, dots: str) -> str:
        return jax.tree_util.keystr(tuple(map(jax.tree_util.DictKey, self._keys.get(dots, (dots,)))))

    def tree(self, arrays: Arrays) -> Any:
        tree: dict[str, Any] = {}
        for dots, array in arrays.items():
            *outer, last = self._keys.get(dots, (dots,))
            (tree.setdefault(outer[0], {}) if outer else tree)[last] = array
        return tree

    def flat(self, tree: Any) -> Arrays:
        return {dots: functools.reduce(operator.getitem, keys, tree) for dots, keys in self._keys.items()}


def _roots(values: Mapping[str, Any]) -> dict[str, Any]:
    # The state of an optimizer, such as the moments of Adam, contains copies of a module. They have its type, but are
    # nested deeper. So only the modules with the shortest path of each type are roots.
    modules = [((name, *path), module) for name, value in values.items() for path, module in modules_in(value)]
    least: dict[type, int] = {}
    for path, module in modules:
        least[type(module)] = min(len(path), least.get(type(module), len(path)))
    return {"/".join(path): module for path, module in modules if len(path) == least[type(module)]}


def modules_of(fn: Any) -> dict[str, Any]:
    """Return the modules that a function closes over or reads from globals, by variable name."""
    modules: dict[str, Any] = {}
    seen: set[int] = set()

    def look(name: str, value: Any) -> None:
        if id(value) in seen:  # functions may refer to each other
            return
        seen.add(id(value))
        if is_module(value):
            modules.setdefault(name, value)
            return
        if isinstance(value, functools.partial):
            for part in (value.func, *value.args, *value.keywords.values()):
                look(name, part)
        inner = getattr(value, "__wrapped__", None) if callable(value) and not isinstance(value, type) else None
        if inner is not None:
            look(name, inner)
        if isinstance(value, types.MethodType):
            look(name, value.__func__)
        if isinstance(value, types.FunctionType):
            # Both names, because `functools.wraps` copies `__module__` from the wrapped function, but not the globals.
            homes = (value.__module__ or "", str(value.__globals__.get("__name__", "")))
            if not all(home.partition(".")[0] in _LIBRARIES for home in homes):
                for variable, part in _variables(value):
                    look(variable, part)

    look("module", fn)
    return modules


def other_modules(fn: Any, module: Any) -> dict[str, Any]:
    """Return the modules with parameters that a function closes over, without `module` and its copies."""
    own = {id(array) for array in part(module).params.values()}  # Equinox wrappers may contain a copy of the module
    return {
        name: other
        for name, other in modules_of(fn).items()
        if (is_nnx(other) or is_equinox(other)) and any(id(array) not in own for array in part(other).params.values())
    }


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    # Inner functions have their own code, and before Python 3.12, comprehensions too.
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
        # Not `co_names`, which also contains the names of attributes.
        used = (step.argval for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL")
        yield from ((name, fn.__globals__[name]) for name in used if name in fn.__globals__)
