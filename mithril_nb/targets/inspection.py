"""`inspect`: return the stages of a model, a function, a module, a traced program or a file."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mithril_nb.errors import StageUnavailableError, UnknownOptionError, short_repr
from mithril_nb.graph.spec import Dim
from mithril_nb.hardware import as_device
from mithril_nb.inspection import Inspection
from mithril_nb.inspection.saved import saved_program
from mithril_nb.models.naming import input_names
from mithril_nb.stages.jax_jit import without_wrapper
from mithril_nb.stages.param_names import DEFAULT, names_of_params
from mithril_nb.targets.arguments import Arguments, accepts_keyword, static_arguments, without_compiler_options
from mithril_nb.targets.functions import function_program, plain_program
from mithril_nb.targets.imported import NAMED, example_args, imported
from mithril_nb.targets.kinds import TargetCall, kind_of
from mithril_nb.targets.library_modules import callable_of, is_foreign
from mithril_nb.targets.lowered import without_trace
from mithril_nb.targets.mithril_models import graph_in, is_mithril_model
from mithril_nb.targets.module_scopes import is_module
from mithril_nb.targets.options import OPTIONS, check_options
from mithril_nb.train.library_models import is_nnx


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
    trips: Mapping[str, int] | None = None,
    **named: Any,
) -> Inspection:
    """Inspect a program at every compiler stage, from its Python to machine code, without running it.

    Arguments are traced as by `jax.jit`:

    - Arrays, numbers and `jax.ShapeDtypeStruct`s (which take no memory) are traced.
    - Values that `jax.jit` rejects are static, such as text, config objects and functions.
    - Numbers in a call of a module, and inside Equinox modules, are static, as in `eqx.filter_jit`.
    - Values that a `functools.partial` binds are constants of the program.

    The blocks of the program are the blocks of a `Model`, or the modules of Flax, Equinox and Haiku by their paths,
    such as `blocks/0/attention/query`. In other programs, named scopes and Python functions are the blocks.

    Args:
        target: One of these:

            - a `Model` or a `PhysicalModel`;
            - a function that JAX can trace;
            - a module of Flax nnx, Flax linen or Equinox, or a Haiku transform. An Equinox module that takes single
              examples can be passed as `jax.vmap(module)`;
            - a traced, lowered, compiled or exported program of JAX, without arguments: `jax.make_jaxpr(f)(x)`,
              `jax.jit(f).trace(x)`, `jax.jit(f).lower(x)`, `jax.jit(f).lower(x).compile()` or
              `jax.export.export(jax.jit(f))(x)`. Stages before it are missing, except `"python"`;
            - `"train.py:step"` or `"package.module:step"`: the object `step` of a file or module, which is run.
              Without arguments, those in its attribute `example_args` are used;
            - StableHLO or HLO as text;
            - the path or the bytes of a file with StableHLO, HLO, a serialized HLO module or an exported program;
            - the path of a `.json` file of `Inspection.save`. Its StableHLO or HLO is inspected.
        *args: Positional arguments of the call; for a model, its inputs in order.
        kwargs: Keyword arguments of the call whose names are also options of `inspect`.
        shapes: Shapes of a model's inputs, instead of arguments: `{"input": [32, 784]}`. If some sizes are names, as in
            `["batch", 784]`, costs are formulas, and the stages end with StableHLO, because XLA needs numbers.
        variables: Variables of a linen module or a Haiku transform; default: the variables that `init` would return.
        params: For a function: names of the arguments that contain its parameters, such as `"w"`, `"state.params"` for
            a part of an argument, or a tuple of names; `()` if it has no parameters. Default: the argument `params`,
            else the nnx modules among the arguments, else the modules that the function closes over. If none of these
            exists, the number of parameters is unknown. If the function has an argument `params` and the call passes no
            other value for it, `params=` is instead the value of this argument.
        static_argnums: Positions of a function's static arguments, as in `jax.jit`: numbers that Python needs during
            tracing, such as an axis, a size, or the condition of a branch.
        static_argnames: Names of static arguments: `"axis"`, or a tuple of names.
        program: Program of a model or a module: `"forward"`, `"forward+backward"` or `"train step"`. Default:
            `"train step"` if an optimizer is given, `"forward+backward"` if only a loss is given, else `"forward"`.
        loss: Loss of a model or a module as in `ml.fit`; default: `"cross_entropy"`.
        optimizer: Optimizer of a model or a module as in `ml.fit`; default: `"adam"`.
        name: Name of the program; for a function, by default the name of the function.
        device: The device to lower and compile for. A name, such as `"h100"` or `"v5e:4x4"`, or an `ml.Device`: one
            that this machine need not have; see `ml.devices`. Or a `jax.Device` of this machine. Default: the device of
            a `PhysicalModel`, else JAX's default.
        compiler_options: Options of XLA, in addition to those of the target's own `jax.jit`.
        trips: Numbers of iterations of loops whose trip count depends on values, such as those of solvers, by line or
            block of the loop: `{"solver.py:12": 20}`. Costs count these.
        **named: Keyword arguments of the call.

    Returns:
        An inspection, which computes each stage on first use. If the function cannot be traced, the error is raised
        when a stage is used.

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
    device = as_device(device) if isinstance(device, str) else device
    options |= {"device": device, "compiler_options": compiler_options, "trips": trips}
    check_options({**options, "kwargs": kwargs})
    if isinstance(target, str | Path) and str(target).lower().endswith(".json"):
        target = saved_program(target)  # the text of its StableHLO or HLO, which is a target as well
    call = TargetCall(target, args, {**named, **(kwargs or {})}, options)
    kind = kind_of(call)
    # Last among texts: importing runs code, and StableHLO may contain a colon as well.
    if kind is None and isinstance(target, str) and NAMED.fullmatch(target):
        target = imported(target)
        args = args or (() if call.kwargs or shapes else example_args(target))
        call = replace(call, target=target, args=args)
        kind = kind_of(call)
    if kind is None or kind.is_traced:  # a partial of a model is a model: its kind is decided again
        call = TargetCall(*_unwrapped(target, args, call.kwargs), options)
        kind = kind_of(call)
    if kind is None:
        raise UnknownOptionError(
            f"cannot inspect {' '.join(short_repr(call.target).split())}.",
            (("needs", "a model, a function, a module, a traced, lowered or compiled program, or a file"),),
        )
    return kind.build(_prepared(call) if kind.is_traced else call)


def _unwrapped(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...], Any]:
    # `ml.watch` wraps a function, a partial may bind arguments, and `jax.jit(f).trace` has its own.
    return without_trace(*without_partial(without_wrapper(target), args, kwargs))


def without_partial(
    target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Move inputs of the program from a `functools.partial` to the arguments; return the target and its arguments.

    Bound modules and `jax.ShapeDtypeStruct`s are inputs. Other bound values stay in the partial, and are constants of
    the program, as in `jax.jit`. If the partial is of a model or module, all bound values become arguments.

    Examples:
        >>> import jax.numpy as jnp
        >>> without_partial(functools.partial(jnp.clip, min=0.0), (1,), {})[1:]
        ((1,), {})
        >>> without_partial(functools.partial(jnp.dot, jax.ShapeDtypeStruct((3,), "float32")), (1,), {})[1:]
        ((ShapeDtypeStruct(shape=(3,), dtype=float32), 1), {})
    """
    if not isinstance(target, functools.partial):
        return target, args, dict(kwargs)
    fn: Any = target.func
    if is_mithril_model(fn) or is_foreign(fn) or is_module(getattr(fn, "__self__", None)):
        return fn, (*target.args, *args), {**target.keywords, **kwargs}
    positional = target.args if any(map(_is_input, target.args)) else ()
    inputs = {name: value for name, value in target.keywords.items() if _is_input(value)}
    if not positional and not inputs:
        return target, args, dict(kwargs)
    constants = {name: value for name, value in target.keywords.items() if name not in inputs}
    bound = () if positional else target.args
    rest = functools.partial(fn, *bound, **constants) if bound or constants else fn
    return rest, (*positional, *args), {**inputs, **kwargs}


def _is_input(value: Any) -> bool:
    leaves = jax.tree.leaves(value, is_leaf=is_module)
    return any(is_module(leaf) or isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves)


def has_argument(target: Any, name: str, args: Sequence[Any] = ()) -> bool | None:
    """Return whether a target accepts the keyword `name` after the positional `args`; `None` if it accepts any name.

    Examples:
        >>> from mithril_nb.models import Linear
        >>> has_argument(Linear(3), "input"), has_argument(Linear(3), "batch"), has_argument(dict, "batch")
        (True, False, False)
    """
    if is_mithril_model(target):
        return name in input_names(graph_in(target))[len(args) :]
    return accepts_keyword(callable_of(target)[0], len(args), name)


def takes_params(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], params: Any) -> bool:
    """Return whether the user's `params=` is meant as an argument of the target, and not as the option of `inspect`."""
    target, args, kwargs = without_partial(target, args, kwargs)
    if "params" in kwargs or (isinstance(params, str) and params == DEFAULT):
        return False
    # Names select; anything else, such as a dict of arrays, can only be meant as the argument.
    is_argument = has_argument(target, "params", args)
    is_names = isinstance(params, str | tuple | list) and all(isinstance(name, str) for name in params)
    return not is_names if is_argument is None else is_argument


def _prepared(call: TargetCall) -> TargetCall:
    kwargs, options = call.kwargs, dict(call.options)
    if options["params"] is not None and takes_params(call.target, call.args, kwargs, options["params"]):
        kwargs, options["params"] = {**kwargs, "params": options["params"]}, None
    # "params" names what the default names, so it must not be refused where `params=` does not apply.
    if options["params"] is not None and names_of_params(options["params"]) == (DEFAULT,):
        options["params"] = None
    target, own = without_compiler_options(call.target)
    if own:
        options["compiler_options"] = {**own, **(options["compiler_options"] or {})}
    return TargetCall(target, call.args, kwargs, options)


def as_plain_call(
    target: Any, args: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function that `inspect` traces for a call of a function, and its arguments without the static ones.

    A model, a module, or a call with nnx modules is returned unchanged.

    Examples:
        >>> import jax.numpy as jnp
        >>> fn, args = as_plain_call(jnp.sum, (jnp.ones((2, 3)),), {"axis": 0, "static_argnames": "axis"})
        >>> fn(*args).shape
        (3,)
    """
    kwargs = {name: value for name, value in options.items() if name not in OPTIONS} | (options.get("kwargs") or {})
    fn, own_args, kwargs = _unwrapped(target, args, kwargs)
    if is_mithril_model(fn) or is_foreign(fn) or any(map(is_nnx, (*own_args, *kwargs.values()))):
        return target, args
    if takes_params(fn, own_args, kwargs, options.get("params", DEFAULT)):
        kwargs = {**kwargs, "params": options["params"]}
    static = static_arguments(fn, own_args, kwargs, options.get("static_argnums"), options.get("static_argnames"))
    own_args, kwargs = _with_jax_arrays((own_args, kwargs))
    arguments = Arguments(fn, own_args, kwargs, static=static)
    return plain_program(arguments), arguments.traced


def function_arguments(target: Any, args: tuple[Any, ...], options: Mapping[str, Any]) -> list[Any]:
    """Return the arrays of a call of a function, in the order of the inputs of the program that `inspect` returns.

    Examples:
        >>> function_arguments(jax.numpy.add, (3, 4), {})
        [3, 4]
    """
    kwargs = {name: value for name, value in options.items() if name not in OPTIONS} | (options.get("kwargs") or {})
    fn, own_args, kwargs = _unwrapped(target, args, kwargs)
    if not callable(fn) or is_mithril_model(fn) or is_foreign(fn):
        raise StageUnavailableError(
            f"{short_repr(target)} is no function, so it is not known with which arrays it would run.",
            (("needs", "a function, such as a train step, with its arguments"),),
        )
    static = static_arguments(fn, own_args, kwargs, options.get("static_argnums"), options.get("static_argnames"))
    own_args, kwargs = _with_jax_arrays((own_args, kwargs))
    return jax.tree.leaves(function_program(fn, own_args, kwargs, static).specs)


def _with_jax_arrays(values: Any) -> Any:
    # `Arguments` drops the data of NumPy arrays.
    return jax.tree.map(
        lambda leaf: (
            jax.numpy.asarray(leaf)
            if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in "biufcV"
            else leaf
        ),
        values,
    )
