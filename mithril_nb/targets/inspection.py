"""`inspect`: return the stages of a model, a function, a module, a traced program or a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mithril_nb.graph.spec import Dim
from mithril_nb.inspection import Inspection
from mithril_nb.inspection.saved import saved_program
from mithril_nb.stages.jax_jit import without_wrapper
from mithril_nb.stages.param_names import DEFAULT, names_of_params
from mithril_nb.targets.arguments import Arguments, without_compiler_options
from mithril_nb.targets.constants import static_arguments, without_partial
from mithril_nb.targets.entry_point import OPTIONS, check_options
from mithril_nb.targets.functions import plain_program
from mithril_nb.targets.given import without_trace
from mithril_nb.targets.imported import NAMED, imported
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
            - `"train.py:step"` or `"package.module:step"`: the object `step` of a file or module, which is run;
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
        device: The `jax.Device` to lower and compile for; default: the device of a `PhysicalModel`, else JAX's default.
        compiler_options: Options of XLA, in addition to those of the target's own `jax.jit`.
        trips: Numbers of iterations of loops whose trip count depends on values, such as those of solvers, by line or
            block of the loop: `{"solver.py:12": 20}`. Costs count these.
        **named: Keyword arguments of the call.

    Returns:
        An inspection, which computes each stage on first use. If the function cannot be traced, the error is raised
        when a stage is used.

    Raises:
        UnknownOptionError: The target is not supported, an option does not apply to it, an option has a wrong type,
            or `params` names an argument that does not exist.
        UnexpectedInputError: There are too few or too many arguments, or one has an unknown name.
        ShapeError: Shapes of a model's inputs are missing, or do not fit.
        StageUnavailableError: A block of a model needs a number for a size that is a name, or a module receives sizes
            or text instead of arrays.
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
    options |= {"device": device, "compiler_options": compiler_options, "trips": trips}
    check_options({**options, "kwargs": kwargs})
    if isinstance(target, str | Path) and str(target).lower().endswith(".json"):
        target = saved_program(target)
    call = TargetCall(target, args, {**named, **(kwargs or {})}, options)
    kind = kind_of(call)
    if kind is None and isinstance(target, str) and NAMED.fullmatch(target):
        call = replace(call, target=imported(target))
        target, kind = call.target, kind_of(call)
    if kind is None or kind.is_traced:
        call = TargetCall(*_unwrapped(target, args, call.kwargs), options)
        kind = kind_of(call)
    if kind is None:
        raise unsupported_target(call.target)
    return kind.build(_prepared(call) if kind.is_traced else call)


def _unwrapped(target: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, tuple[Any, ...], Any]:
    """Return the function in the result of `ml.watch`, `functools.partial` or `jax.jit(f).trace`, and its arguments."""
    return without_trace(*without_partial(without_wrapper(target), args, kwargs))


def _prepared(call: TargetCall) -> TargetCall:
    """Move `params=` to the arguments if the target has this argument, and options of its `jax.jit` to `options`."""
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
    """Return the function that `inspect` traces for a call of a function, and its arguments without the static ones.

    If the target is a model or a module, or if nnx modules are among the arguments, `target` and `args` are returned
    unchanged.

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
