"""Errors about targets that are not supported, and about options that are misspelt or do not apply to the target."""

from __future__ import annotations

import inspect as python_inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.inspection import Inspection
from mithril_nb.models.naming import input_names
from mithril_nb.stages.param_names import DEFAULT
from mithril_nb.targets.arguments import accepts_keyword, signature_of, title_of
from mithril_nb.targets.arrays import article
from mithril_nb.targets.calls import shown, variable_of
from mithril_nb.targets.constants import without_partial
from mithril_nb.targets.entry_point import OF_FUNCTIONS, OPTIONS, meant
from mithril_nb.targets.functions import modules_of, other_modules
from mithril_nb.targets.library_modules import callable_of
from mithril_nb.targets.mithril_models import graph_in, is_mithril_model

_ALIKE = 0.8


def has_argument(target: object, name: str, args: Sequence[object] = ()) -> bool | None:
    """Return whether a target accepts the keyword argument `name`; `None` if it accepts any name.

    A parameter that already receives one of the positional arguments `args` is not accepted.

    Examples:
        >>> from mithril_nb.models import Linear
        >>> has_argument(Linear(3), "input"), has_argument(Linear(3), "batch"), has_argument(dict, "batch")
        (True, False, False)
        >>> has_argument(lambda x, axis: x, "x", args=(1,)), has_argument(lambda **every: 0, "batch")
        (False, None)
    """
    if is_mithril_model(target):
        return name in input_names(graph_in(target))[len(args) :]
    return accepts_keyword(callable_of(target)[0], len(args), name)


def takes_params(target: object, args: tuple[object, ...], given: Mapping[str, object], params: object) -> bool:
    """Return whether the user's `params=` is meant as an argument of the target, and not as the option of `inspect`."""
    target, args, given = without_partial(target, args, given)
    if "params" in given or (isinstance(params, str) and params == DEFAULT):
        return False
    is_argument = has_argument(target, "params", args)
    is_names = isinstance(params, str | tuple | list) and all(isinstance(name, str) for name in params)
    return not is_names if is_argument is None else is_argument


def refuse_misspelt(
    called: str, options: Mapping[str, object], own: Callable[..., object], target: object, example: str = "..."
) -> None:
    """Raise if an unknown option is a misspelt argument of the public function that the user called.

    Args:
        called: Name of the function, such as `"ml.sweep"`.
        options: The keyword arguments of the call that the function would pass to `ml.inspect`.
        own: The function. Options are compared with its keyword-only parameters.
        target: The target. A name that it accepts as an argument is not an error.
        example: Source code of the value that the advice suggests.

    Raises:
        UnknownOptionError: An option is misspelt.
    """
    known = [one.name for one in python_inspect.signature(own).parameters.values() if one.kind is one.KEYWORD_ONLY]
    for name in options:
        if name in OPTIONS or has_argument(target, name) is not False:
            continue
        near = meant(name, known, _ALIKE)
        if near:
            raise UnknownOptionError(
                f"{called} takes no argument {name!r}.",
                (("takes", ", ".join(known)),),
                f"{near}={example}",
            )


_TAKERS = {
    "params": "functions; inspect finds the parameters of {} itself",
    "shapes": "models of mithril_nb",
    "static_argnums": "functions; numbers that {} receives are always static",
    "static_argnames": "functions; numbers that {} receives are always static",
    "variables": "Flax linen modules, Haiku transforms",
}
_MODELS = "models, and modules of Flax, Equinox and Haiku"


def unsupported_target(target: Any) -> UnknownOptionError:
    """Return the error for a target that `inspect` does not accept, such as a class or an inspection."""
    needs = (
        "needs",
        "a model, a function, a module of Flax, Equinox or Haiku, a traced, lowered or compiled program, or a file",
    )
    if isinstance(target, type):
        return UnknownOptionError(
            f"cannot inspect the class {target.__name__!r}.",
            (needs,),
            f"ml.inspect({target.__name__}(...), x)",
        )
    if isinstance(target, Inspection):
        return UnknownOptionError(
            f"program {target.name!r} is already inspected: it takes no arguments and no options.",
            advice="print(inspection)",
        )
    if type(target).__module__.startswith("mithril_nb."):
        kind = type(target).__name__
        return UnknownOptionError(
            f"cannot inspect {' '.join(short_repr(target).split())}.",
            (("is", f"{article(kind)} {kind}, which describes a program but does not contain it"), needs),
            "ml.inspect(model, x)  # with the model itself",
        )
    return UnknownOptionError(
        f"cannot inspect {short_repr(target)}.",
        (needs,),
        "ml.inspect(lambda x: x + 1, jax.numpy.ones(3))",
    )


def refuse(names: Sequence[str], options: Mapping[str, Any], target: Any) -> None:
    """Raise if an option is given that does not apply to the target.

    Args:
        names: Names of the options that do not apply.
        options: All options of the call; `None` for an option that is not given.
        target: The target.

    Raises:
        UnknownOptionError: One of the options is given.
    """
    option = next((name for name in names if options[name] is not None), None)
    if option is None:
        return
    raise UnknownOptionError(
        f"{title_of(target)!r} takes no {option}=.",
        ((f"{option}= is for", _TAKERS[option].format(repr(title_of(target)))),),
        'ml.inspect(f, jax.ShapeDtypeStruct((4, 64), "float32"))' if option == "shapes" else "",
    )


def refuse_training(
    requested: Mapping[str, Any], function: Any, args: tuple[Any, ...], given: Mapping[str, Any]
) -> None:
    """Raise if the user passes `program=`, `loss=` or `optimizer=`, or a misspelling of one, for a plain function.

    Args:
        requested: The three options by name; `None` for an option that is not given.
        function: The function.
        args: Its positional arguments.
        given: Its keyword arguments. One that the function does not accept may be a misspelt option.

    Raises:
        UnknownOptionError: One of these options was given.
    """
    own = {name: value for name, value in given.items() if accepts_keyword(function, len(args), name) is not False}
    options = {name: (name, value) for name, value in requested.items() if value is not None}
    takes = signature_of(function)
    known = [*(takes.parameters if takes else ()), *OF_FUNCTIONS, *requested]
    for name in (name for name in given if name not in own):
        near = meant(name, known)
        if near is not None and near in requested:
            options[near] = name, given[name]
    if not options:
        return
    option, (written, value) = next(iter(options.items()))
    if written != option and modules_of(function):  # the option may apply, because the function wraps a module
        raise UnknownOptionError(
            f"{title_of(function)!r}, a function around a module, takes no {written}=.",
            (("options", ", ".join(requested)),),
            f"{option}={shown(value)}",
        )
    _refuse_around_module(option, function)
    if takes is not None and option in takes.parameters:
        by_name = option if hasattr(value, "shape") else shown(value)
        raise UnknownOptionError(
            f"{title_of(function)!r} takes {option}= in kwargs=, because ml.inspect has an option of this name.",
            ((f"option {option}= is for", _MODELS),),
            f'kwargs={{"{option}": {by_name}}}',
        )
    slip = [("given", f"{written}={shown(value)}")] if written != option else []
    raise UnknownOptionError(
        f"{title_of(function)!r} takes no {option}=.",
        (*slip, (f"{option}= is for", _MODELS)),
        f"ml.inspect(jax.grad({variable_of(function)}), x)  # or a function that is the whole step",
    )


def _refuse_around_module(option: str, function: Any) -> None:
    """Raise if a function closes over a module, with advice to inspect the module."""
    held = list(modules_of(function).items())
    if not held:
        return
    name, module = held[0]
    raise UnknownOptionError(
        f"{title_of(function)!r}, a function around the module {type(module).__name__!r}, takes no {option}=.",
        ((f"{option}= is for", _MODELS),),
        f"ml.inspect({name}, x, {option}=...)  # or jax.vmap({name}) for a batch",
    )


def refuse_several(options: Mapping[str, Any], module: Any, function: Any) -> None:
    """Raise if a function around a module closes over other modules, whose parameters would not be trained.

    Raises:
        UnknownOptionError: The function closes over other modules.
    """
    others = other_modules(function, module)
    if not others:
        return
    option = next(name for name, value in options.items() if value is not None)
    name = getattr(function, "__name__", None)
    title = name if isinstance(name, str) else title_of(function)
    besides = ", ".join(f"{name} ({type(one).__name__})" for name, one in others.items())
    raise UnknownOptionError(
        f"{title!r}, a function around several modules, takes no {option}=.",
        (
            ("wraps", type(module).__name__),
            ("also holds", besides),
            (f"{option}= is for", _MODELS),
        ),
        "ml.inspect(function, x)  # counts all of them; or train one module that contains them",
    )
