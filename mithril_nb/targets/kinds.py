"""The kinds of targets that `inspect` accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mithril_nb.errors import MithrilError, UnknownOptionError
from mithril_nb.inspection import Inspection, inspect_function
from mithril_nb.stages.param_names import DEFAULT, names_of_params
from mithril_nb.stages.trace.provenance.frames import calling_line
from mithril_nb.targets.arguments import Arguments, check_call, static_arguments, title_of
from mithril_nb.targets.functions import function_program, other_modules
from mithril_nb.targets.library_modules import (
    callable_of,
    foreign,
    is_foreign,
    module_program,
    within,
)
from mithril_nb.targets.lowered import inspect_given_program, is_given_program
from mithril_nb.targets.mithril_models import (
    compiled_for,
    given_specs,
    has_names,
    inspect_model,
    inspect_with_names,
    is_mithril_model,
    scope_of,
)
from mithril_nb.targets.module_scopes import is_module
from mithril_nb.targets.options import OF_STAGES, TRAINING, check_applicable
from mithril_nb.train.library_models import is_linen

PROGRAMS = ("forward", "forward+backward", "train step")
"""Names of the programs of a model or a module."""


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
        return {name: self.options[name] for name in OF_STAGES}


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
    """Return the program, the loss and the optimizer of a call, with the defaults of `inspect`."""
    program, loss, optimizer = (call.options[name] for name in TRAINING)
    if program is not None and program not in PROGRAMS:
        raise UnknownOptionError(f"unknown program {program!r}.", (("known", ", ".join(PROGRAMS)),))
    program = program or PROGRAMS[2 if optimizer is not None else 1 if loss is not None else 0]
    return program, "cross_entropy" if loss is None else loss, "adam" if optimizer is None else optimizer


def _inspect_model_target(call: TargetCall) -> Inspection:
    program, loss, optimizer = training_of(call)
    check_applicable(call.options, ("shapes", *TRAINING, *OF_STAGES), title_of(call.target))
    sizes, dtypes = given_specs(call.target, call.args, call.kwargs, call.options["shapes"])
    options = call.of_stages()
    if has_names(sizes.values()):
        scope = scope_of((*call.args, *call.kwargs.values()))
        return inspect_with_names(call.target, sizes, dtypes, scope, program, loss, optimizer, options)
    return inspect_model(compiled_for(call.target, sizes, dtypes), program, loss, optimizer, options)


def _is_module(target: Any) -> bool:
    return is_foreign(target) or is_module(getattr(target, "__self__", None))


def _is_of_module(call: TargetCall) -> bool:
    # `jax.vmap(module)` is a function, but with `program=`, `loss=` or `optimizer=`, it is a module.
    is_training = any(call.options[name] is not None for name in TRAINING)
    return _is_module(call.target) or (is_training and within(call.target) is not None)


def _inspect_module_target(call: TargetCall) -> Inspection:
    target, args, kwargs, variables = call.target, call.args, call.kwargs, call.options["variables"]
    around, method, title = within(target), None, title_of(target)
    if not _is_module(target) and (others := other_modules(target, around)):
        held = ", ".join(f"{name} ({type(module).__name__})" for name, module in others.items())
        raise UnknownOptionError(
            f"{title!r} can only be trained if it holds one module, because the others would be constants.",
            (("wraps", type(around).__name__), ("also holds", held)),
        )
    program, loss, optimizer = training_of(call)
    check_applicable(call.options, ("variables", *TRAINING, *OF_STAGES), title)
    if not is_foreign(target) and around is None:  # a bound method, such as `module.encode`
        target, method = target.__self__, target
        if is_linen(target):
            if method.__name__ != "apply":
                kwargs = {**kwargs, "method": method.__name__}
            elif args and variables is None:  # `module.apply(variables, x)`
                variables, args = args[0], args[1:]
            method, title = None, title_of(target)
    takes, own = callable_of(target) if method is None else (method, frozenset[str]())
    if "method" in kwargs and is_linen(target):
        takes = getattr(target, str(kwargs["method"]), takes)
    check_call(takes, args, {name: value for name, value in kwargs.items() if name not in own}, title)
    # Numbers are static, as in `eqx.filter_jit`: a flag such as `train=True` decides in Python.
    arguments = Arguments(takes, args, kwargs, static=own & {"method"}, are_numbers_static=True)
    # Some modules convert a tuple to an array, so that the costs would be those of a few numbers.
    because = ("because", "a module computes with arrays")
    if not arguments.traced and (refused := arguments.no_array(because)) is not None:
        raise refused
    try:
        if around is None:
            module = foreign(target, arguments, variables, getattr(method, "__func__", None))
        else:
            module = foreign(around, arguments, variables, around=target)
        chosen = module_program(module, arguments, program, loss, optimizer)
    except MithrilError:
        raise
    except Exception as error:
        # JAX's error is raised when a stage is used, as for a function that cannot be traced.
        failure = error

        def function(*_: Any) -> Any:
            raise failure

        function.__name__ = title
        return inspect_function(
            function, *arguments.traced, **{**call.of_stages(), "name": call.options["name"] or title}
        )
    options = call.of_stages()
    if program != "forward":  # no line of the user calls the loss and the optimizer, so they belong to this one
        options["requested_at"] = calling_line()
    options["name"] = options["name"] or (title if program == "forward" else program)
    return inspect_function(chosen.function, *chosen.specs, **options)


def _is_function(call: TargetCall) -> bool:
    is_ours = isinstance(call.target, type) or type(call.target).__module__.startswith("mithril_nb.")
    return callable(call.target) and not is_ours


def _inspect_function_target(call: TargetCall) -> Inspection:
    target, args, kwargs, options = call.target, call.args, call.kwargs, call.options
    title = title_of(target)
    check_applicable(options, ("params", "static_argnums", "static_argnames", *OF_STAGES), title)
    check_call(target, args, kwargs, title)
    static = static_arguments(target, args, kwargs, options["static_argnums"], options["static_argnames"])
    program = function_program(target, args, kwargs, static)
    holders = names_of_params(DEFAULT if options["params"] is None else options["params"])
    own = {"name": options["name"] or title, "params": program.params(holders)}
    return inspect_function(program.function, *program.specs, **{**call.of_stages(), **own})


_KINDS = [
    TargetKind(
        "lowered and compiled programs",
        lambda call: is_given_program(call.target),
        lambda call: inspect_given_program(call.target, call.args, call.kwargs, call.options),
        is_traced=False,
    ),
    TargetKind("models of mithril_nb", lambda call: is_mithril_model(call.target), _inspect_model_target),
    TargetKind("modules of Flax, Equinox and Haiku", _is_of_module, _inspect_module_target),
    TargetKind("functions", _is_function, _inspect_function_target),
]
"""All kinds, in the order in which they are tried. Functions are last, because modules are callable too."""


def register_kind(kind: TargetKind) -> None:
    """Register a kind of target. It is tried before all other kinds."""
    _KINDS.insert(0, kind)


def kind_of(call: TargetCall) -> TargetKind | None:
    """Return the first kind that accepts a call; `None` if there is none."""
    return next((kind for kind in _KINDS if kind.accepts(call)), None)
