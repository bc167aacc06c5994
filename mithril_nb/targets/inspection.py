"""`inspect`: return all stages of a model, a function, a module, a traced program or a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from mithril_nb.graph.spec import Dim
from mithril_nb.inspection import Inspection
from mithril_nb.stages.jax_jit import without_wrapper
from mithril_nb.stages.param_names import DEFAULT, names_of_params
from mithril_nb.targets.arguments import Arguments, without_compiler_options
from mithril_nb.targets.constants import static_arguments, without_partial
from mithril_nb.targets.entry_point import OPTIONS, check_options
from mithril_nb.targets.functions import plain_program
from mithril_nb.targets.given import without_trace
from mithril_nb.targets.kinds import TargetCall, kind_of
from mithril_nb.targets.library_modules import is_foreign, is_nnx
from mithril_nb.targets.mithril_models import is_mithril_model
from mithril_nb.targets.unsupported import takes_params, unsupported_target


def inspect(
    target: Any,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    variables: Any = None,
    params: Any = DEFAULT,
    static_argnums: int | Sequence[int] | None = None,
    static_argnames: str | Sequence[str] | None = None,
    program: str | None = None,
    loss: Any = None,
    optimizer: Any = None,
    name: str | None = None,
    device: Any = None,
    compiler_options: Mapping[str, Any] | None = None,
    **named: Any,
) -> Inspection:
    """Inspect a program at every compiler stage, from its Python to machine code, without running it.

    A function is traced as by `jax.jit`: arrays, numbers and `jax.ShapeDtypeStruct`s, which take no memory, are traced.
    Values that `jax.jit` rejects are static: text, config objects, functions. Values that a `functools.partial` binds
    are constants of the program. Numbers in a call of a module, and inside Equinox modules, are static, as in
    `eqx.filter_jit`. Blocks are the blocks of a `Model`, or the modules of Flax, Equinox and Haiku by their paths
    (`blocks/0/attention/query`), otherwise named scopes and Python functions.

    Args:
        target: A `Model`, a `PhysicalModel`, any function that JAX can trace, a module of Flax nnx or linen, of
            Equinox, or a Haiku transform. An Equinox module is called directly; `jax.vmap(module)` takes a batch, and
            has the same programs. Also an object of JAX's own pipeline, without arguments: `jax.make_jaxpr(f)(x)`,
            `jax.jit(f).trace(x)`, `jax.jit(f).lower(x)`, `jax.jit(f).lower(x).compile()` or a result of
            `jax.export.export`. Also StableHLO or HLO as text, or a file with such text, with a serialized HLO module
            or with an exported program, as path or bytes. A program that begins at a later stage has no stages before
            it, except the lines of Python that JAX recorded.
        *args: Positional arguments of the call; for a model, its inputs in order.
        kwargs: Keyword arguments of the call whose names clash with the options below.
        shapes: Shapes of a model's inputs, instead of arguments: `{"input": [32, 784]}`. If some sizes are names,
            `["batch", 784]`, costs are formulas, and nothing is compiled, because XLA needs numbers.
        variables: Variables of a linen module or a Haiku transform; default: the variables that `init` would return.
        params: The argument of a function that holds its parameters, `"w"`, or a part of one, `"state.params"`, or
            several; `()` if it has none. Default: the argument called `params`, otherwise the nnx modules among the
            arguments, otherwise the modules that the function closes over; without these, the number of parameters is
            unknown. If the function has an argument called `params` that is not given otherwise, this option is the
            value of that argument.
        static_argnums: Positions of a function's static arguments, as in `jax.jit`: numbers that Python needs during
            tracing, such as an axis, a size, or the condition of a branch.
        static_argnames: Names of static arguments: `"axis"`, or several.
        program: Program of a model or a module: `"forward"`, `"forward+backward"` or `"train step"`. Default:
            `"train step"` if an optimizer is given, `"forward+backward"` if only a loss is, otherwise `"forward"`.
        loss: Loss of a model or a module as in `ml.fit`; default: `"cross_entropy"`.
        optimizer: Optimizer of a model or a module as in `ml.fit`; default: `"adam"`.
        name: Name of the program.
        device: The `jax.Device` to lower and compile for.
        compiler_options: Further options of XLA, added to those of the target's own `jax.jit`.
        **named: Keyword arguments of the call.

    Returns:
        An inspection, which computes each stage on first use. If a function cannot be traced, its stages report the
        error when they are used.

    Raises:
        UnknownOptionError: The target cannot be called, it has no such program or option, an option has a wrong type,
            or `params` names an argument that does not exist.
        UnexpectedInputError: There are too few or too many arguments, or one has an unknown name.
        ShapeError: Shapes of a model's inputs are missing, or do not fit.
        StageUnavailableError: A block of a trained model needs a number instead of a name, or a module receives
            sizes or text instead of arrays.
        ModelFileError: The file does not exist, or contains no program.

    Examples:
        >>> import jax
        >>> from mithril_nb.models import Linear
        >>> inspect(Linear(10), shapes={"input": [32, 784]}, optimizer="adam")
        Inspection('train step', computed: none yet)
        >>> inspect(Linear(10), shapes={"input": ["batch", 784]}).cost().formula()
        '15690·batch'
        >>> print(inspect(jax.numpy.add, 3, 4).inputs[0].spec)
        () int32
        >>> x = jax.ShapeDtypeStruct((8, 4), "float32")
        >>> inspect(jax.numpy.sum, x, axis=0, static_argnames="axis").outputs[0].spec.shape
        (4,)
    """
    options = {"name": name, "params": None if params == DEFAULT else params, "shapes": shapes, "variables": variables}
    options |= {"static_argnums": static_argnums, "static_argnames": static_argnames}
    options |= {"program": program, "loss": loss, "optimizer": optimizer}
    options |= {"device": device, "compiler_options": compiler_options}
    check_options({**options, "kwargs": kwargs})
    call = TargetCall(target, args, {**named, **(kwargs or {})}, options)
    kind = kind_of(call)
    if kind is None or kind.is_traced:
        call = TargetCall(*_unwrapped(target, args, call.kwargs), options)
        kind = kind_of(call)
    if kind is None:
        raise unsupported_target(call.target, call.args, {"shapes": shapes, **call.training()})
    return kind.build(_prepared(call) if kind.is_traced else call)


def _unwrapped(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...], Any]:
    """Return the target without `ml.watch`, `functools.partial` and JAX's trace around it, and its arguments."""
    return without_trace(*without_partial(without_wrapper(target), args, kwargs))


def _prepared(call: TargetCall) -> TargetCall:
    """Move `params=` to the arguments if the target has that argument, and options of its `jax.jit` to the options."""
    kwargs, options = call.kwargs, dict(call.options)
    if options["params"] is not None and takes_params(call.target, call.args, kwargs, options["params"]):
        kwargs, options["params"] = {**kwargs, "params": options["params"]}, None
    if options["params"] is not None and names_of_params(options["params"]) == (DEFAULT,):
        options["params"] = None
    target, own = without_compiler_options(call.target)
    if own:
        options["compiler_options"] = {**own, **(options["compiler_options"] or {})}
    return TargetCall(target, call.args, kwargs, options)


def as_plain_call(
    target: Any, args: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function that `inspect` traces for a call, and its arguments without the static ones.

    A model, a module, and a function with nnx modules among its arguments are returned unchanged.

    Raises:
        UnknownOptionError: `jax.jit` rejects the static arguments.

    Examples:
        >>> import jax.numpy as jnp
        >>> fn, args = as_plain_call(jnp.sum, (jnp.ones((2, 3)),), {"axis": 0, "static_argnames": "axis"})
        >>> fn(*args).shape
        (3,)
    """
    given = {name: value for name, value in options.items() if name not in OPTIONS} | (options.get("kwargs") or {})
    fn, own, given = _unwrapped(target, args, given)
    if is_mithril_model(fn) or is_foreign(fn) or any(map(is_nnx, (*own, *given.values()))):
        return target, args
    if takes_params(fn, own, given, options.get("params", DEFAULT)):
        given = {**given, "params": options["params"]}
    static = static_arguments(fn, own, given, *map(options.get, ("static_argnums", "static_argnames")))
    own, given = jax.tree.map(_as_jax_array, (own, given))  # `Arguments` keeps only the shapes of NumPy arrays
    whole = Arguments(fn, own, given, static=static)
    return plain_program(whole), whole.traced


def _as_jax_array(leaf: Any) -> Any:
    return jax.numpy.asarray(leaf) if isinstance(leaf, np.ndarray) and leaf.dtype.kind in "biufcV" else leaf
