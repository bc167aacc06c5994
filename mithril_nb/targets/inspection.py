"""`inspect`: from anything that a person may want to look at to all its stages."""

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
from mithril_nb.retraces.watching import unwatched
from mithril_nb.stages.param_names import DEFAULT, names_of_params
from mithril_nb.stages.trace.user_lines import calling_line
from mithril_nb.targets.arguments import Arguments, title_of, without_compiler_options
from mithril_nb.targets.calls import check_call
from mithril_nb.targets.constants import static_arguments, without_partial
from mithril_nb.targets.entry_point import door
from mithril_nb.targets.functions import function_program, plain_program
from mithril_nb.targets.given import inspect_late
from mithril_nb.targets.mithril_models import compiled_for, given_specs, inspect_own, is_own
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
"""Programs that a model has."""
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
    """Look at a program at every stage on its way to the machine, without running it, whatever it is.

    A function is traced as `jax.jit` traces it: arrays and numbers among its arguments are traced, and
    `jax.ShapeDtypeStruct`s, which take no memory. What `jax.jit` rejects is static: text, config objects, functions.
    Values that a `functools.partial` binds are constants of the program. In a call of a module, and in the modules of
    Equinox, numbers are static, as in `eqx.filter_jit`. Blocks are the blocks of a `Model`, the modules of Flax,
    Equinox and Haiku by their paths (`blocks/0/attention/query`), else named scopes and Python functions.

    Args:
        target: A `Model`, a `PhysicalModel`, any function that JAX can trace, a module of Flax nnx or linen, of
            Equinox, or a Haiku transform. Equinox modules are called as they are: `jax.vmap(module)` takes a batch, and
            has the programs of a module. Also each object of JAX's own pipeline, which has its arguments: what
            `jax.make_jaxpr(f)(x)`, `jax.jit(f).trace(x)`, `jax.jit(f).lower(x)`, its `compile` and `jax.export`
            return; StableHLO or HLO as text; the path of a file with such a text, a serialized HLO module or an
            exported program, or its bytes. Stages above such an object are unavailable, except the lines of Python
            that JAX wrote into it.
        *args: What it is called with; for a model its inputs in order.
        kwargs: What it is called with by name, where a name is one of those below.
        shapes: Shapes of the inputs of a model, in the place of arguments: `{"input": [32, 784]}`. With names in the
            place of numbers, `["batch", 784]`, costs are formulas, and XLA, which needs numbers, is not asked.
        variables: Variables of a linen module, or of a Haiku transform; default: those that `init` would give.
        params: Which argument of a function holds its parameters, `"w"`, or which part of one, `"state.params"`, or
            several; `()` if it has none. By default the one called `params`, else the modules of nnx that it takes,
            or the modules that it closes over; without any of these, how many there are is unknown. It is the
            function's own argument where that has one called `params` that is not given otherwise.
        static_argnums: Places of the arguments of a function that are static, as in `jax.jit`: a number that Python
            needs while the function is traced, such as an axis or a size, or that a branch depends on.
        static_argnames: The names of such arguments: `"axis"`, or several.
        program: Of a model or a module: `"forward"`, `"forward+backward"` or `"train step"`; default: the last one
            with an optimizer, the second with only a loss, else the first.
        loss: Loss of a model or a module as in `ml.fit`; default: `"cross_entropy"`.
        optimizer: Optimizer of a model or a module as in `ml.fit`; default: `"adam"`.
        name: What to call the program.
        device: The `jax.Device` to lower and compile for.
        compiler_options: Further options of XLA, added to those of the target's own `jax.jit`.
        **named: What it is called with by name.

    Returns:
        The stages, made when they are first asked for. A function that cannot be traced has them, too: each says why
        it is unavailable.

    Raises:
        UnknownOptionError: Something that cannot be called; a program, or an option, that it does not have; an option
            that is no such thing; parameters in an argument that there is not.
        UnexpectedInputError: Too few arguments, or too many.
        ShapeError: Shapes of a model's inputs that are missing, or that do not fit.
        StageUnavailableError: A block of a model that is trained needs a number where a name stands.
        ModelFileError: There is no such file, or it contains no program.

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
    asked = {"program": program, "loss": loss, "optimizer": optimizer}
    late = {"name": name, "params": None if params == DEFAULT else params, "shapes": shapes, "variables": variables}
    late |= {**static, **asked, "device": device, "compiler_options": compiler_options}
    found = inspect_late(target, args, given, late)
    if found is not None:
        return found
    target, args, given = without_trace(*without_partial(unwatched(target), args, given))
    check_target(target, args, {"shapes": shapes, **asked})
    if takes_params(target, args, given, params):
        given, params = {**given, "params": params}, DEFAULT
    holders = names_of_params(params)
    target, own_options = without_compiler_options(target)
    if own_options:
        compiler_options = {**own_options, **(compiler_options or {})}
    options = {"name": name, "device": device, "compiler_options": compiler_options}
    is_model = is_own(target) or is_foreign(target) or is_module(getattr(target, "__self__", None))
    if not is_model and asked != _NOTHING:
        around = within(target)
        is_model = around is not None
        if is_model:
            refuse_several(asked, around, target)
    if not is_model:
        refuse_training(asked, target, args, given)
    chosen = _program_name(program, loss, optimizer)
    loss, optimizer = "cross_entropy" if loss is None else loss, "adam" if optimizer is None else optimizer
    if is_model and holders != (DEFAULT,):
        refuse("params", params, target, args, given)
    if is_own(target):
        for option, value in (("variables", variables), *static.items()):
            refuse(option, value, target, args, given)
        sizes, dtypes = given_specs(target, args, given, shapes)
        if has_names(sizes.values()):
            scope = scope_of((*args, *given.values()))
            return inspect_with_names(target, sizes, dtypes, scope, chosen, loss, optimizer, options)
        return inspect_own(compiled_for(target, sizes, dtypes), chosen, loss, optimizer, options)
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
    """Return the function that `inspect` traces for a call, and its arguments, without what is static.

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
    fn, own, given = without_trace(*without_partial(unwatched(target), args, given))
    if is_own(fn) or is_foreign(fn) or any(map(is_nnx, (*own, *given.values()))):
        return target, args
    if takes_params(fn, own, given, options.get("params", DEFAULT)):
        given = {**given, "params": options["params"]}
    static = static_arguments(fn, own, given, *map(options.get, ("static_argnums", "static_argnames")))
    own, given = jax.tree.map(_as_jax_array, (own, given))  # Arguments keep only the shapes of arrays of NumPy
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
    # A module may make an array of them: then all of its costs would be those of a few numbers, without a word.
    because = "a module computes with arrays"
    if not arguments.traced:
        refused = no_array(arguments.by_name, title, because) or no_array_but_text(arguments, because, door(), whole)
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
        # What JAX says of a module that cannot be traced stands in its stages, as it does for a function.
        return inspect(_raising(error, title), *arguments.traced, **{**options, "name": options["name"] or title})
    if program == "forward":
        return inspect_function(made.function, *made.specs, **{**options, "name": options["name"] or title})
    own = {"name": options["name"] or program, "requested_at": calling_line()}
    return inspect_function(made.function, *made.specs, **{**options, **own})


def _program_name(program: str | None, loss: Any, optimizer: Any) -> str:
    """Return which program of a model or a module is meant.

    Raises:
        UnknownOptionError: There is no such program.
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
