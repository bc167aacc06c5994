"""Tracing of a Python function to a jaxpr with named inputs and outputs."""

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
from mithril_nb.stages.trace.equations import Outline, each_equation, outline_of
from mithril_nb.stages.trace.partitioned import Layout, divided
from mithril_nb.stages.trace.provenance.scopes import Tags

_LONGEST_NAME = 60


@dataclass(frozen=True)
class Leaf:
    """One array among the arguments or the results of a program.

    Attributes:
        name: Python expression of the array: `params['linear_0.weight']`.
        argument: Name of the argument that contains the array: `params`; `"result"` for a result.
        spec: Shape and dtype of the array.
        keys: Keys, attribute names and indices that lead from the argument to the array, the outermost first; `()` if
            the argument is the array.
    """

    name: str
    argument: str
    spec: TensorSpec
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trace:
    """A traced program.

    Attributes:
        name: Name of the program.
        closed: The closed jaxpr.
        arguments: Names of all arguments, also of those without arrays.
        inputs: The input arrays, in the order of the jaxpr.
        outputs: The output arrays, in the order of the jaxpr.
        donated_leaves: For each input, True if its memory may be reused for results.
        call: A function that converts a closed jaxpr with the same inputs and outputs to a Python function. This takes
            the arguments of the traced function and returns results in the same structure.
        function: Name of the traced function; for a callable object, the name of its class.
        starts: File and first line of the traced function, as `"file.py:12"`; `""` if unknown.
        traced: JAX's trace.
        layouts: For each input, how it is divided among devices; `None` if it is not divided.
        are_placed: For each input, True if its sharding is specified, so that XLA must keep it.
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
        """Ids and names of the jaxpr, which take less time to compute than its sites."""
        return outline_of(self.closed.jaxpr)

    @cached_property
    def tags(self) -> Tags:
        """The tags that identify the equations in later stages."""
        return Tags({self.name} | self.outline.names)

    @cached_property
    def sizes_without_numbers(self) -> tuple[str, ...]:
        """Names of the symbolic sizes in the shapes of the inputs."""
        return jax_versions.names_of_sizes(aval.shape for aval in self.closed.in_avals if hasattr(aval, "shape"))

    def lower(self, closed: Any, platform: str | None = None) -> jax.stages.Lowered:
        """Lower a closed jaxpr with the same inputs and outputs instead of `closed`, by default for JAX's platform."""
        # XLA cuts long file names, so the files of two programs with a long common prefix would have the same name.
        name = self.name[:_LONGEST_NAME]
        traced = jax_jit.with_jaxpr(self.traced, closed, name, self.donated_leaves)
        lowered = traced.lower() if platform is None else traced.lower(lowering_platforms=(platform,))
        return jax_jit.for_all_devices(lowered, each_equation(closed.jaxpr), platform is None)


def trace(fn: Callable[..., Any], args: tuple[Any, ...], name: str | None = None) -> Trace:
    """Trace a function without running it.

    Args:
        fn: Any function that JAX can trace.
        args: Arguments of the function: pytrees of arrays or `jax.ShapeDtypeStruct`s.
        name: Name of the program; default: the name of the function.
    """
    # A function that is not jitted is traced by `jax.jit` too, because `Trace.lower` needs a `jax.stages.Traced`.
    jitted: Any = fn if hasattr(fn, "trace") else jax.jit(fn)
    traced = jitted.trace(*args)
    closed, donated = traced.jaxpr, jax_jit.donated(traced)
    arguments = _argument_names(fn, len(args))
    inputs, outputs = leaves_of(args, arguments, closed.jaxpr, traced.out_info)
    title = name or _name_of(fn)
    call = caller(traced.out_info, title, fn)
    placed = divided(jax.tree.leaves(args), traced)
    return Trace(title, closed, tuple(arguments), inputs, outputs, donated, call, *_function(fn), traced, *placed)


def leaves_of(
    args: tuple[Any, ...], arguments: list[str], jaxpr: Any, out: Any
) -> tuple[tuple[Leaf, ...], tuple[Leaf, ...]]:
    """Return the input arrays and the output arrays of a program.

    `args`: The arguments, or their shapes.
    """
    inputs = tuple(
        Leaf(name, arguments[path[0].idx], spec_of(var.aval), _keys(path[1:]))
        for (path, name), var in zip(_paths(args, arguments), jaxpr.invars, strict=True)
    )
    outputs = tuple(
        Leaf("result" + jax.tree_util.keystr(path), "result", spec_of(leaf), _keys(path))
        for path, leaf in jax.tree_util.tree_flatten_with_path(out)[0]
    )
    return inputs, outputs


def caller(out: Any, name: str, like: Callable[..., Any] | None = None) -> Callable[[Any], Callable[..., Any]]:
    """Return a function that converts a jaxpr of a program to a Python function.

    `like`: A function whose parameter names the Python function gets; by default, they are unnamed.
    """
    # It is the attribute `call` of `Trace`.
    structure = jax.tree.structure(out)

    def call(other: Any) -> Callable[..., Any]:
        flat = jaxpr_as_fun(other)

        def program(*args: Any) -> Any:
            return jax.tree.unflatten(structure, flat(*jax.tree.leaves(args)))

        # JAX names the parameters of StableHLO and HLO after the signature, and the module after the function.
        if like is not None:
            functools.update_wrapper(program, like, assigned=("__doc__",), updated=())
        program.__name__ = program.__qualname__ = name
        return program

    return call


def trace_up_to_failure(
    fn: Callable[..., Any], args: tuple[Any, ...], name: str | None, error: Exception
) -> tuple[Trace | None, Exception]:
    """Trace a function that raises an error when it is traced, up to this error.

    `fn`: The function. `args`: Arguments of the function. `name`: Name of the program; `None` uses the name of the
    function.

    Returns:
        The trace up to the error, or `None` if not even a part can be traced; and the error. If the body of the
        function can be traced, the type of a result is the cause: then the trace is `None`, and `error` is returned.
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
        # `until` returns nothing, because a result of the wrong type may be the cause.
        traced = trace(until, args, name)
    except Exception as another:
        return None, failed[0] if failed else another
    return (traced, failed[0]) if failed else (None, error)


def _function(fn: Any) -> tuple[str, str]:
    while True:
        # Repeated, because wrappers are nested: a partial of a bound method of a decorated function.
        inner = python_inspect.unwrap(fn)
        inner = inner.func if isinstance(inner, functools.partial) else getattr(inner, "__func__", inner)
        if inner is fn:
            break
        fn = inner
    name = _name_of(fn)
    code = getattr(fn if hasattr(fn, "__code__") else type(fn).__call__, "__code__", None)
    return name, "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def checked_params(fn: Callable[..., Any], args: tuple[Any, ...], params: Any, name: str | None) -> tuple[str, ...]:
    """Validate the option `params=` of `inspect` and return it as a tuple of names.

    `fn`: The function. `args`: Arguments of the function. `name`: Name of the program for the error; default: the name
    of the function.
    """
    holders = names_of_params(params)
    if holders != (DEFAULT,):
        arguments = _argument_names(fn, len(args))
        check_params(name or _name_of(fn), arguments, [name for _, name in _paths(args, arguments)], holders)
    return holders


def shape_of(leaf: Any) -> Any:
    """Return a `jax.Array` as a `jax.ShapeDtypeStruct`, so that its memory can be freed; other leaves as they are."""
    # The struct has the sharding of the array if the array is committed to its devices.
    if not isinstance(leaf, jax.Array):
        return leaf
    # JAX moves an uncommitted array to the device of the program.
    sharding = leaf.sharding if leaf.committed else None
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=leaf.aval.weak_type)


def shape_of_aval(aval: Any) -> jax.ShapeDtypeStruct:
    """Return a `jax.ShapeDtypeStruct` for JAX's abstract value of an array, without the sharding."""
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=getattr(aval, "weak_type", False))


def _name_of(fn: Any) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def _argument_names(fn: Callable[..., Any], count: int) -> list[str]:
    try:
        bound = python_inspect.signature(fn).bind(*range(count)).arguments
    except (TypeError, ValueError):
        # A builtin without a signature, or wrong arguments, which JAX reports when it traces.
        return [f"args[{index}]" for index in range(count)]
    names: list[str] = []
    for name, value in bound.items():
        # A tuple has the arguments of `*args`.
        names.extend([name] if isinstance(value, int) else [f"{name}[{index}]" for index in range(len(value))])
    return names


def _paths(args: tuple[Any, ...], arguments: list[str]) -> list[tuple[tuple[Any, ...], str]]:
    paths = (path for path, _ in jax.tree_util.tree_flatten_with_path(args)[0])
    return [(path, arguments[path[0].idx] + jax.tree_util.keystr(path[1:])) for path in paths]


def _keys(path: tuple[Any, ...]) -> tuple[str, ...]:
    # JAX's keys of dicts, attributes and sequences have different attributes.
    keys = (getattr(entry, "key", getattr(entry, "name", getattr(entry, "idx", None))) for entry in path)
    return tuple(str(key) for key in keys if isinstance(key, str | int))
