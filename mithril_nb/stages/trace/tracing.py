"""From a Python function and the shapes of its arguments to a jaxpr whose inputs and outputs have names."""

from __future__ import annotations

import functools
import inspect as python_inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages import jax_jit, jax_versions
from mithril_nb.stages.jax_versions import jaxpr_as_fun, spec_of
from mithril_nb.stages.param_names import DEFAULT, check_params, names_of_params
from mithril_nb.stages.trace.collectives import Layout, divided
from mithril_nb.stages.trace.equations import Outline, outline_of
from mithril_nb.stages.trace.tags import Tags

_LONGEST_NAME = 60


@dataclass(frozen=True)
class Leaf:
    """One array among the arguments or the results of a program.

    Attributes:
        name: How to reach it, in Python's words: `params['linear_0.weight']`.
        argument: Name of the argument that it is part of: `params`.
        spec: Its shape and dtype.
        keys: The keys, attribute names and places on the way to it, from the outside in.
    """

    name: str
    argument: str
    spec: TensorSpec
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trace:
    """A traced program.

    Attributes:
        name: Name of the function.
        closed: The closed jaxpr, as JAX gave it.
        arguments: What its arguments are called, those without an array too.
        inputs: The leaves of its arguments, in the order of its invars.
        outputs: The leaves of its results, in the order of its outvars.
        donated_leaves: For each leaf of the arguments whether its memory may be reused for results.
        call: Makes, from another closed jaxpr of the same signature, a function of the original arguments.
        function: The function's own name, whatever the program is called; of an object that is called, its class.
        starts: Where the function begins, as `"file.py:12"`, or `""`.
        traced: What JAX made of it.
        layouts: For each of its inputs how it is divided among several devices; `None` if it is not.
        are_placed: For each of its inputs whether it has a sharding that XLA keeps.
    """

    name: str
    closed: Any
    arguments: tuple[str, ...]
    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]
    donated_leaves: tuple[bool, ...]
    call: Callable[[Any], Callable[..., Any]]
    function: str
    starts: str
    traced: jax.stages.Traced
    layouts: tuple[Layout | None, ...]
    are_placed: tuple[bool, ...]

    @cached_property
    def outline(self) -> Outline:
        """What it holds, before anything is asked of its equations."""
        return outline_of(self.closed.jaxpr)

    @cached_property
    def tags(self) -> Tags:
        """How its equations are marked in later stages."""
        return Tags({self.name} | self.outline.names)

    @cached_property
    def sizes_without_numbers(self) -> tuple[str, ...]:
        """The names of sizes of its inputs that have no numbers."""
        shapes = (aval.shape for aval in self.closed.in_avals if hasattr(aval, "shape"))
        return tuple(sorted({name for shape in shapes for name in jax_versions.names_of_sizes(shape)}))

    def lower(self, closed: Any, args: tuple[Any, ...]) -> jax.stages.Lowered:
        """Lower another closed jaxpr of the same signature.

        Args:
            closed: The closed jaxpr.
            args: The arguments, or their shapes.
        """
        # XLA cuts names of files that become too long, and then there is no telling which program wrote what.
        name = self.name[:_LONGEST_NAME]
        retraced = jax_jit.with_jaxpr(self.traced, closed, name, self.donated_leaves)
        if retraced is not None:
            return retraced.lower()
        # Unused inputs are dropped as `jax.jit` does by default: else what only they feed would stay, too.
        return jax.jit(self.call(closed), donate_argnums=_whole_arguments(args, self.donated_leaves)).lower(*args)


def trace(fn: Callable[..., Any], args: tuple[Any, ...], name: str | None = None) -> Trace:
    """Trace a function without running it.

    Args:
        fn: Any function that JAX can trace.
        args: Its arguments: pytrees of arrays or `jax.ShapeDtypeStruct`s.
        name: What to call the program; by default the name of the function.

    Returns:
        The jaxpr with names for all that goes in and out.
    """
    # The jaxpr of `jax.jit`, whether the function is jitted already or not: it can be lowered with other names in it.
    jitted: Any = fn if hasattr(fn, "trace") else jax.jit(fn)
    traced = jitted.trace(*args)
    closed, donated = traced.jaxpr, jax_jit.donated(traced)
    out = traced.out_info
    arguments = _argument_names(fn, len(args))
    inputs = tuple(
        Leaf(name, arguments[path[0].idx], spec_of(var.aval), _keys(path[1:]))
        for (path, name), var in zip(_paths(args, arguments), closed.jaxpr.invars, strict=True)
    )
    outputs = tuple(
        Leaf("result" + jax.tree_util.keystr(path), "result", spec_of(leaf), _keys(path))
        for path, leaf in jax.tree_util.tree_flatten_with_path(out)[0]
    )
    structure = jax.tree.structure(out)
    title = name or _name_of(fn)

    def call(other: Any) -> Callable[..., Any]:
        flat = jaxpr_as_fun(other)

        def program(*args: Any) -> Any:
            return jax.tree.unflatten(structure, flat(*jax.tree.leaves(args)))

        # JAX names the parameters of StableHLO and HLO after the signature, and the module after the function.
        functools.update_wrapper(program, fn, assigned=("__doc__",), updated=())
        program.__name__ = program.__qualname__ = title
        return program

    placed = divided(jax.tree.leaves(args), traced)
    return Trace(title, closed, tuple(arguments), inputs, outputs, donated, call, *_function(fn), traced, *placed)


def trace_up_to_failure(
    fn: Callable[..., Any], args: tuple[Any, ...], name: str | None, error: Exception
) -> tuple[Trace | None, Exception]:
    """Trace a function that JAX refuses, up to where it fails.

    Args:
        fn: The function.
        args: Its arguments.
        name: What to call the program.
        error: What went wrong at first; it may not be in the function, but in what the function gives.

    Returns:
        What was traced before, or `None` if nothing can be traced, and what went wrong.
    """
    failed: list[Exception] = []

    @functools.wraps(fn, updated=())
    def until(*args: Any) -> tuple[()]:
        try:
            fn(*args)
        except Exception as error:
            failed.append(error)
        return ()

    try:
        found = trace(until, args, name)
    except Exception as another:
        return None, failed[0] if failed else another
    return (found, failed[0]) if failed else (None, error)


def _function(fn: Any) -> tuple[str, str]:
    """Return the name of the function that a person wrote, and where it begins: without what is wrapped around it."""
    while True:
        inner = python_inspect.unwrap(fn)
        inner = inner.func if isinstance(inner, functools.partial) else getattr(inner, "__func__", inner)
        if inner is fn:
            break
        fn = inner
    name = _name_of(fn)
    code = getattr(fn if hasattr(fn, "__code__") else type(fn).__call__, "__code__", None)
    return name, "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def _whole_arguments(args: tuple[Any, ...], donated: tuple[bool, ...]) -> tuple[int, ...]:
    """JAX donates whole arguments: return the places of those whose leaves are donated."""
    found, start = [], 0
    for place, arg in enumerate(args):
        count = len(jax.tree.leaves(arg))
        if count and all(donated[start : start + count]):
            found.append(place)
        start += count
    return tuple(found)


def checked_params(fn: Callable[..., Any], args: tuple[Any, ...], params: Any, name: str | None) -> tuple[str, ...]:
    """Return the names of what holds the parameters of a program, which is there if it was named.

    Args:
        fn: The function.
        args: Its arguments.
        params: The names, or the only one.
        name: What to call the program; by default the name of the function.

    Raises:
        UnknownOptionError: No names, or one of an argument, or of a part of one, that is not there.
    """
    holders = names_of_params(params)
    if holders != (DEFAULT,):
        arguments = _argument_names(fn, len(args))
        check_params(name or _name_of(fn), arguments, [name for _, name in _paths(args, arguments)], holders)
    return holders


def shape_of(leaf: Any) -> Any:
    """Return the shape of an array and where it is bound to, so that no array is kept; other leaves as they are."""
    if not isinstance(leaf, jax.Array):
        return leaf
    sharding = leaf.sharding if leaf.committed else None
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=leaf.aval.weak_type)


def _name_of(fn: Any) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def _argument_names(fn: Callable[..., Any], count: int) -> list[str]:
    try:
        bound = python_inspect.signature(fn).bind(*range(count)).arguments
    except (TypeError, ValueError):
        return [f"args[{index}]" for index in range(count)]
    names: list[str] = []
    for name, value in bound.items():
        names.extend([name] if isinstance(value, int) else [f"{name}[{index}]" for index in range(len(value))])
    return names


def _paths(args: tuple[Any, ...], arguments: list[str]) -> list[tuple[tuple[Any, ...], str]]:
    """The way to each array among arguments, and how to reach it in Python's words."""
    paths = (path for path, _ in jax.tree_util.tree_flatten_with_path(args)[0])
    return [(path, arguments[path[0].idx] + jax.tree_util.keystr(path[1:])) for path in paths]


def _keys(path: tuple[Any, ...]) -> tuple[str, ...]:
    keys = (getattr(entry, "key", getattr(entry, "name", getattr(entry, "idx", None))) for entry in path)
    return tuple(str(key) for key in keys if isinstance(key, str | int))
