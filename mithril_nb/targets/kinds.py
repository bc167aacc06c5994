"""The kinds of targets that `inspect` accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from mithril_nb.errors import MithrilError, UnknownOptionError
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect as inspect_function
from mithril_nb.stages.param_names import DEFAULT, names_of_params
from mithril_nb.stages.trace.provenance.frames import calling_line
from mithril_nb.targets.arguments import Arguments, title_of
from mithril_nb.targets.arrays import no_array
from mithril_nb.targets.calls import check_call
from mithril_nb.targets.constants import no_array_but_text, static_arguments
from mithril_nb.targets.entry_point import OF_FUNCTIONS, OF_MODULES
from mithril_nb.targets.functions import function_program
from mithril_nb.targets.given import inspect_given_program, is_given_program
from mithril_nb.targets.library_modules import (
    callable_of,
    foreign,
    is_foreign,
    is_haiku,
    is_linen,
    module_program,
    within,
)
from mithril_nb.targets.mithril_models import compiled_for, given_specs, inspect_model, is_mithril_model
from mithril_nb.targets.module_scopes import is_module
from mithril_nb.targets.symbolic import has_names, inspect_with_names, scope_of
from mithril_nb.targets.unsupported import refuse, refuse_several, refuse_training

PROGRAMS = ("forward", "forward+backward", "train step")
"""Names of the programs of a model or a module."""
TRAINING = ("program", "loss", "optimizer")
"""The options that select a program of a model or a module."""


@dataclass(frozen=True)
class TargetCall:
    """A call of `inspect`.

    Attributes:
        target: The target, without wrappers such as `functools.partial`.
        args: Positional arguments of the target.
        kwargs: Keyword arguments of the target.
        options: All options of `inspect` by name, except `kwargs`; `None` for an option that is not given.
    """

    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    options: Mapping[str, Any]

    def of_stages(self) -> dict[str, Any]:
        """Return the options that all traced targets accept."""
        return {name: self.options[name] for name in ("name", "device", "compiler_options", "trips")}

    def training(self) -> dict[str, Any]:
        """Return the options `program`, `loss` and `optimizer`; `None` for an option that is not given."""
        return {name: self.options[name] for name in TRAINING}


@dataclass(frozen=True)
class TargetKind:
    """A kind of target of `inspect`, such as functions, or the modules of a library.

    Attributes:
        name: Plural noun for messages.
        accepts: Function that returns whether the target of a call is of this kind. It must be fast, and must not
            import a library.
        build: Function that returns the inspection for a call.
        is_traced: True if `inspect` traces the target; False for programs that JAX has already lowered or compiled.
            `build` then receives the call unchanged.
    """

    name: str
    accepts: Callable[[TargetCall], bool]
    build: Callable[[TargetCall], Inspection]
    is_traced: bool = True


def training_of(call: TargetCall) -> tuple[str, Any, Any]:
    """Return the program, the loss and the optimizer of a call, with the defaults of `inspect`.

    Raises:
        UnknownOptionError: No program has the requested name.
    """
    program, loss, optimizer = (call.options[name] for name in TRAINING)
    if program is not None and program not in PROGRAMS:
        near = get_close_matches(str(program).replace("_", " ").replace("-", " "), PROGRAMS, 1, 0.5)
        raise UnknownOptionError(
            f"unknown program {program!r}.", (("known", ", ".join(PROGRAMS)),), f'program="{(*near, PROGRAMS[0])[0]}"'
        )
    program = program or PROGRAMS[2 if optimizer is not None else 1 if loss is not None else 0]
    return program, "cross_entropy" if loss is None else loss, "adam" if optimizer is None else optimizer


def _inspect_model_target(call: TargetCall) -> Inspection:
    program, loss, optimizer = training_of(call)
    refuse(("params", "variables", "static_argnums", "static_argnames"), call.options, call.target)
    sizes, dtypes = given_specs(call.target, call.args, call.kwargs, call.options["shapes"])
    options = call.of_stages()
    if has_names(sizes.values()):
        scope = scope_of((*call.args, *call.kwargs.values()))
        return inspect_with_names(call.target, sizes, dtypes, scope, program, loss, optimizer, options)
    return inspect_model(compiled_for(call.target, sizes, dtypes), program, loss, optimizer, options)


def _is_module(target: Any) -> bool:
    return is_foreign(target) or is_module(getattr(target, "__self__", None))


def _is_of_module(call: TargetCall) -> bool:
    if _is_module(call.target):
        return True
    # `jax.vmap(module)` is a function, but with `program=`, `loss=` or `optimizer=`, it is a module.
    return any(value is not None for value in call.training().values()) and within(call.target) is not None


def _inspect_module_target(call: TargetCall) -> Inspection:
    target, args, given, variables = call.target, call.args, call.kwargs, call.options["variables"]
    if not _is_module(target):
        refuse_several(call.training(), within(target), target)
    program, loss, optimizer = training_of(call)
    refuse(("params", "shapes", "static_argnums", "static_argnames"), call.options, target)
    options: dict[str, Any] = call.of_stages()
    around, whole = within(target), target
    method = None if is_foreign(target) or around is not None else target
    if method is not None:
        target = method.__self__
        if is_linen(target) and method.__name__ == "apply":
            method, whole = None, target
            if args and variables is None:
                variables, args = args[0], args[1:]
        elif is_linen(target):
            given, method = {**given, "method": method.__name__}, None
    takes, own = callable_of(target) if method is None else (method, frozenset[str]())
    title = title_of(method) if method is not None else title_of(target)
    if "method" in given and is_linen(target):
        takes = getattr(target, str(given["method"]), takes)
    own_options = [one for one in OF_MODULES if one != "variables" or is_linen(target) or is_haiku(target)]
    check_call(takes, args, {key: value for key, value in given.items() if key not in own}, title, own_options)
    arguments = Arguments(takes, args, given, are_numbers_static=True)
    # Some modules convert a tuple to an array, so that the costs would be those of a few numbers.
    because = "a module computes with arrays"
    if not arguments.traced:
        refused = no_array(arguments.by_name, title, because) or no_array_but_text(arguments, because, whole)
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
        # JAX's error is raised when a stage is used, as for a function that cannot be traced.
        return inspect_function(
            _raising(error, title), *arguments.traced, **{**options, "name": options["name"] or title}
        )
    if program != "forward":
        options["requested_at"] = calling_line()
    options["name"] = options["name"] or (title if program == "forward" else program)
    return inspect_function(made.function, *made.specs, **options)


def _raising(error: Exception, title: str) -> Callable[..., Any]:
    def function(*_: Any) -> Any:
        raise error

    function.__name__ = title
    return function


def _is_function(call: TargetCall) -> bool:
    is_ours = isinstance(call.target, type) or type(call.target).__module__.startswith("mithril_nb.")
    return callable(call.target) and not is_ours


def _inspect_function_target(call: TargetCall) -> Inspection:
    target, args, kwargs, options = call.target, call.args, call.kwargs, call.options
    refuse_training(call.training(), target, args, kwargs)
    refuse(("shapes", "variables"), options, target)
    check_call(target, args, kwargs, title_of(target), OF_FUNCTIONS)
    static = static_arguments(target, args, kwargs, options["static_argnums"], options["static_argnames"])
    made = function_program(target, args, kwargs, static)
    holders = names_of_params(DEFAULT if options["params"] is None else options["params"])
    own = {"name": options["name"] or title_of(target), "params": made.params(holders)}
    return inspect_function(made.function, *made.specs, **{**call.of_stages(), **own})


def _is_given(call: TargetCall) -> bool:
    return is_given_program(call.target)


def _inspect_given_target(call: TargetCall) -> Inspection:
    return inspect_given_program(call.target, call.args, call.kwargs, call.options)


_KINDS = [
    TargetKind("lowered and compiled programs", _is_given, _inspect_given_target, is_traced=False),
    TargetKind("models of mithril_nb", lambda call: is_mithril_model(call.target), _inspect_model_target),
    TargetKind("modules of Flax, Equinox and Haiku", _is_of_module, _inspect_module_target),
    TargetKind("functions", _is_function, _inspect_function_target),
]
"""All kinds, in the order in which they are tried. Functions are last, because modules are callable too."""


def register_kind(kind: TargetKind) -> None:
    """Register a kind of target. It is tried before all other kinds.

    Examples:
        >>> import jax
        >>> from mithril_nb.targets import inspect
        >>> def build(call):
        ...     return inspect(jax.numpy.sin, *call.args)
        >>> sines = TargetKind("sines", lambda call: call.target == "sin", build)
        >>> register_kind(sines)
        >>> inspect("sin", 0.5)
        Inspection('sin', computed: none yet)
        >>> _KINDS.remove(sines)
    """
    _KINDS.insert(0, kind)


def kind_of(call: TargetCall) -> TargetKind | None:
    """Return the first kind that accepts a call; `None` if there is none."""
    return next((kind for kind in _KINDS if kind.accepts(call)), None)
