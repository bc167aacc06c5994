"""`inspect`: from a model, a function, a module, a traced program or a file to all its stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import jax
import numpy as np

from mithril_nb.errors import MithrilError, UnknownOptionError
from mithril_nb.graph.spec import Dim
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect as inspect_function
from mithril_nb.stages.jax_jit import without_wrapper
from mithril_nb.stages.param_names import DEFAULT, names_of_params
from mithril_nb.stages.trace.user_lines import calling_line
from mithril_nb.targets.arguments import Arguments, title_of, without_compiler_options
from mithril_nb.targets.calls import check_call
from mithril_nb.targets.constants import static_arguments, without_partial
from mithril_nb.targets.entry_point import entry_point
from mithril_nb.targets.functions import function_program, plain_program
from mithril_nb.targets.given import inspect_late
from mithril_nb.targets.mithril_models import compiled_for, given_specs, inspect_model, is_mithril_model
from mithril_nb.targets.modules import callable_of, foreign, is_foreign, is_haiku, is_linen, is_nnx, within
from mithril_nb.targets.option_checks import OF_FUNCTIONS, OF_MODULES, OPTIONS, check_options
from mithril_nb.targets.options import takes_params
from mithril_nb.targets.programs import module_program
from mithril_nb.targets.scopes import is_module
from mithril_nb.targets.sizes import no_array
from mithril_nb.targets.symbolic import has_names, inspect_with_names, scope_of
from mithril_nb.targets.texts import no_array_but_text
from mithril_nb.targets.traced import without_trace
from mithril_nb.targets.unsupported import check_target, refuse, refuse_several, refuse_training

PROGRAMS = ("forward", "forward+backward", "train step")
"""Names of a model's programs."""
_NOTHING = {"program": None, "loss": None, "optimizer": None}


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
            Equinox, or a Haiku transform. Equinox modules are called directly; `jax.vmap(module)` takes a batch and
            has the programs of a module. Also the objects of JAX's own pipeline, which contain their arguments: the
            results of `jax.make_jaxpr(f)(x)`, `jax.jit(f).trace(x)`, `jax.jit(f).lower(x)`, its `compile` and
            `jax.export`; StableHLO or HLO as text; the path of a file with such text, a serialized HLO module or an
            exported program, or the file's bytes. Stages before such an object are unavailable, except the lines of
            Python that JAX recorded in it.
        *args: Positional arguments of the call; for a model, its inputs in order.
        kwargs: Keyword arguments of the call whose names clash with the options below.
        shapes: Shapes of a model's inputs, instead of arguments: `{"input": [32, 784]}`. If some sizes are names,
            `["batch", 784]`, costs are formulas, and nothing is compiled, because XLA needs numbers.
        variables: Variables of a linen module or a Haiku transform; default: the variables that `init` would return.
        params: The argument of a function that holds its parameters, `"w"`, or a part of one, `"state.params"`, or
            several; `()` if it has none. Default: the argument called `params`, otherwise the nnx modules among the
            arguments, otherwise the modules that the function closes over; without these, the number of parameters is
            unknown. If the function has an argument called `params` that is not given otherwise, this is its value.
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
        The stages, each computed on first use. A function that cannot be traced has them as well: each stage reports
        why it is unavailable.

    Raises:
        UnknownOptionError: The target cannot be called, it has no such program or option, an option has a wrong type,
            or `params` names an argument that does not exist.
        UnexpectedInputError: There are too few or too many arguments.
        ShapeError: Shapes of a model's inputs are missing, or do not fit.
        StageUnavailableError: A block of a trained model needs a number instead of a name.
        ModelFileError: The file does not exist, or contains no program.

    Examples:
        >>> import jax
        >>> from mithril_nb.models import Linear
        >>> inspect(Linear(10), shapes={"input": [32, 784]}, optimizer="adam")
        Inspection('train step', made: nothing yet)
        >>> inspect(Linear(10), shapes={"input": ["batch", 784]}).cost().formula()
        '15690·batch'
        >>> print(inspect(jax.numpy.add, 3, 4).inputs[0].spec)
        () int32
        >>> x = jax.ShapeDtypeStruct((8, 4), "float32")
        >>> inspect(jax.numpy.sum, x, axis=0, static_argnames="axis").outputs[0].spec.shape
        (4,)
    """
    check_options(kwargs, name, device, compiler_options)
    given = {**named, **(kwargs or {})}
    static = {"static_argnums": static_argnums, "static_argnames": static_argnames}
    training = {"program": program, "loss": loss, "optimizer": optimizer}
    late = {"name": name, "params": None if params == DEFAULT else params, "shapes": shapes, "variables": variables}
    late |= {**static, **training, "device": device, "compiler_options": compiler_options}
    found = inspect_late(target, args, given, late)
    if found is not None:
        return found
    target, args, given = without_trace(*without_partial(without_wrapper(target), args, given))
    check_target(target, args, {"shapes": shapes, **training})
    if takes_params(target, args, given, params):
        given, params = {**given, "params": params}, DEFAULT
    holders = names_of_params(params)
    target, own_options = without_compiler_options(target)
    if own_options:
        compiler_options = {**own_options, **(compiler_options or {})}
    options = {"name": name, "device": device, "compiler_options": compiler_options}
    is_model = is_mithril_model(target) or is_foreign(target) or is_module(getattr(target, "__self__", None))
    if not is_model and training != _NOTHING:
        around = within(target)
        is_model = around is not None
        if is_model:
            refuse_several(training, around, target)
    if not is_model:
        refuse_training(training, target, args, given)
    chosen = _program_name(program, loss, optimizer)
    loss, optimizer = "cross_entropy" if loss is None else loss, "adam" if optimizer is None else optimizer
    if is_model and holders != (DEFAULT,):
        refuse("params", params, target, args, given)
    if is_mithril_model(target):
        for option, value in (("variables", variables), *static.items()):
            refuse(option, value, target, args, given)
        sizes, dtypes = given_specs(target, args, given, shapes)
        if has_names(sizes.values()):
            scope = scope_of((*args, *given.values()))
            return inspect_with_names(target, sizes, dtypes, scope, chosen, loss, optimizer, options)
        return inspect_model(compiled_for(target, sizes, dtypes), chosen, loss, optimizer, options)
    refuse("shapes", shapes, target, args, given)
    if is_model:
        for option, value in static.items():
            refuse(option, value, target, args, given)
        return _inspect_module(target, args, given, variables, chosen, loss, optimizer, options)
    refuse("variables", variables, target, args, given)
    check_call(target, args, given, target, title_of(target), OF_FUNCTIONS)
    made = function_program(target, args, given, static_arguments(target, args, given, **static))
    options |= {"name": name or title_of(target), "params": made.params(holders)}
    return inspect_function(made.function, *made.specs, **options)


def as_plain_call(
    target: Any, args: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return the function that `inspect` traces for a call, and its arguments without the static ones.

    Args:
        target: A function, as in `inspect`; a model or a module is returned unchanged.
        args: Its positional arguments.
        options: The other arguments of `inspect`.

    Raises:
        UnknownOptionError: `jax.jit` rejects its static arguments.

    Examples:
        >>> import jax.numpy as jnp
        >>> fn, args = as_plain_call(jnp.sum, (jnp.ones((2, 3)),), {"axis": 0, "static_argnames": "axis"})
        >>> fn(*args).shape
        (3,)
    """
    given = {name: value for name, value in options.items() if name not in OPTIONS} | (options.get("kwargs") or {})
    fn, own, given = without_trace(*without_partial(without_wrapper(target), args, given))
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


def _inspect_module(
    target: Any,
    args: tuple[Any, ...],
    given: Mapping[str, Any],
    variables: Any,
    program: str,
    loss: Any,
    optimizer: Any,
    options: Mapping[str, Any],
) -> Inspection:
    around, whole = within(target), target
    method = None if is_foreign(target) or around is not None else target
    if method is not None:
        target = method.__self__
        if is_linen(target):
            given, method = {**given, "method": method.__name__}, None
    takes, own = callable_of(target) if method is None else (method, frozenset[str]())
    title = title_of(method) if method is not None else title_of(target)
    if "method" in given and is_linen(target):
        takes = getattr(target, str(given["method"]), takes)
    own_options = [one for one in OF_MODULES if one != "variables" or is_linen(target) or is_haiku(target)]
    check_call(takes, args, {key: value for key, value in given.items() if key not in own}, whole, title, own_options)
    arguments = Arguments(takes, args, given, are_numbers_static=True)
    # A module may convert sizes to an array: its costs would then silently be those of a few numbers.
    because = "a module computes with arrays"
    if not arguments.traced:
        refused = no_array(arguments.by_name, title, because) or no_array_but_text(
            arguments, because, entry_point(), whole
        )
        if refused is not None:
            raise refused
    try:
        if around is None:
            module = foreign(target, arguments, variables, getattr(method, "__func__", None))
        else:
            module = foreign(around, arguments, variables, around=target)
        made = module_program(module, arguments, program, loss, optimizer)
    except MithrilError:
        raise
    except Exception as error:
        # The stages report JAX's error for a module that cannot be traced, as they do for a function.
        return inspect_function(
            _raising(error, title), *arguments.traced, **{**options, "name": options["name"] or title}
        )
    if program == "forward":
        return inspect_function(made.function, *made.specs, **{**options, "name": options["name"] or title})
    own = {"name": options["name"] or program, "requested_at": calling_line()}
    return inspect_function(made.function, *made.specs, **{**options, **own})


def _program_name(program: str | None, loss: Any, optimizer: Any) -> str:
    """Return the name of the requested program of a model or a module.

    Raises:
        UnknownOptionError: The program does not exist.
    """
    if program is not None and program not in PROGRAMS:
        near = get_close_matches(str(program).replace("_", " ").replace("-", " "), PROGRAMS, 1, 0.5)
        raise UnknownOptionError(
            f"unknown program {program!r}.", (("known", ", ".join(PROGRAMS)),), f'program="{(*near, PROGRAMS[0])[0]}"'
        )
    return program or PROGRAMS[2 if optimizer is not None else 1 if loss is not None else 0]


def _raising(error: Exception, title: str) -> Callable[..., Any]:
    def function(*_: Any) -> Any:
        raise error

    function.__name__ = title
    return function
