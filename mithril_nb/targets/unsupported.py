"""What cannot be inspected, or not with these options, and what to write instead."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import jax

from mithril_nb.errors import UnknownOptionError, short_repr
from mithril_nb.inspection import Inspection
from mithril_nb.models.calling import example_block, example_call
from mithril_nb.models.model import Model
from mithril_nb.models.naming import input_names
from mithril_nb.targets.arguments import Arguments, argument_names, is_own_argument, signature_of, title_of
from mithril_nb.targets.calls import required, shown, variable_of
from mithril_nb.targets.entry_point import door
from mithril_nb.targets.functions import modules_of, names_in_code, other_modules
from mithril_nb.targets.mithril_models import example_shapes, graph_in, is_own
from mithril_nb.targets.modules import callable_of, is_equinox, is_foreign
from mithril_nb.targets.option_checks import OF_FUNCTIONS, meant, options_written
from mithril_nb.targets.results import article
from mithril_nb.targets.scopes import is_module_class

_TAKERS = {
    "params": "functions: a model knows its own",
    "shapes": "models of mithril_nb",
    "static_argnums": "functions: numbers that a module receives are static",
    "static_argnames": "functions: numbers that a module receives are static",
    "variables": "Flax linen modules, Haiku transforms",
}
_MODELS = "models, and modules of Flax, Equinox and Haiku"
_MADE = {"rngs": "rngs=flax.nnx.Rngs(0)", "key": "key=jax.random.key(0)"}
"""What the libraries' modules are made with, by the names that all of them use."""


def check_target(target: Any, args: Sequence[Any], options: Mapping[str, Any]) -> None:
    """Raise if something is neither a model nor a function nor a module.

    Args:
        target: It.
        args: What it is called with.
        options: Options by name; `None` counts as not given.

    Raises:
        UnknownOptionError: A class, what an inspection gave, or something else.
    """
    needs = (
        "needs",
        "a model, a function, a module of Flax, Equinox or Haiku, a jaxpr, a lowered or compiled program, or its file",
    )
    if isinstance(target, type):
        raise UnknownOptionError(
            f"cannot inspect the class {target.__name__!r}.",
            (needs,),
            door().call(*_of_class(target, args, options)),
        )
    if is_own(target) or is_foreign(target):
        return
    is_inspect = door().name == "ml.inspect"
    if isinstance(target, Inspection):
        raise UnknownOptionError(
            f"program {target.name!r} is inspected already: it takes no arguments and no options.",
            advice="print(inspection)" if is_inspect else door().call("inspection"),
        )
    if type(target).__module__.startswith("mithril_nb."):
        kind = type(target).__name__
        raise UnknownOptionError(
            f"cannot inspect {' '.join(short_repr(target).split())}.",
            (("is", f"{article(kind)} {kind}, which tells of a program and does not hold it"), needs),
            "ml.inspect(model, x)  # with the model behind it" if is_inspect else door().call("inspection"),
        )
    if not callable(target):
        raise UnknownOptionError(
            f"cannot inspect {short_repr(target)}.", (needs,), door().call("lambda x: x + 1", "jax.numpy.ones(3)")
        )


def _of_class(cls: type, args: Sequence[Any], options: Mapping[str, Any]) -> list[str]:
    """Return the arguments of a call that inspects an object of a class."""
    xs = [f"x_{place}" for place in range(len(args))] if len(args) > 1 else ["x"]
    if not issubclass(cls, Model):
        # Of the class itself some libraries say nothing: how it is made is said by its `__init__`.
        names = required(functools.partial(cls.__init__, None), {}) if is_module_class(cls) else ["..."]
        made = [_MADE.get(name.partition("=")[0], name) for name in names]
        return [f"{cls.__name__}({', '.join(made)})", *xs, *options_written({**options, "shapes": None})]
    call, given = example_call(cls), options_written(options)
    if not args and options.get("shapes") is None:
        with suppress(Exception):  # a person's own class, whose arguments nobody knows
            given = [f"shapes={example_shapes(example_block(cls))}", *given]
    return [call, *(xs if args else ()), *given]


def refuse(option: str, value: Any, target: Any, args: Sequence[Any], given: Mapping[str, Any]) -> None:
    """Raise if an option was given to a target that has no use for it.

    Args:
        option: Name of the option.
        value: Its value; `None` is not given.
        target: The target.
        args: What it is called with.
        given: What it is called with by name.

    Raises:
        UnknownOptionError: It was given.
    """
    if value is None:
        return
    if is_own(target):
        names = list(input_names(graph_in(target)))
    else:
        names = required(callable_of(target)[0], given, value if option == "shapes" else None)
    raise UnknownOptionError(
        f"{title_of(target)!r} takes no {option}=.",
        ((f"{option}= is for", _TAKERS[option]),),
        door().call(variable_of(target), *names),
    )


def refuse_training(asked: Mapping[str, Any], function: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> None:
    """Raise if a plain function is asked for a program of a model, or is given an option of one that is misspelt.

    Args:
        asked: Program, loss and optimizer; `None` is not given.
        function: The function.
        args: What it is called with.
        given: What it is called with by name.

    Raises:
        UnknownOptionError: It was so.
    """
    own = {name: value for name, value in given.items() if is_own_argument(function, len(args), name) is not False}
    options = {name: (name, value) for name, value in asked.items() if value is not None}
    takes = signature_of(function)
    known = [*(takes.parameters if takes else ()), *OF_FUNCTIONS, *asked]
    for name in (name for name in given if name not in own):
        near = meant(name, known)
        if near is not None and near in asked:
            options[near] = name, given[name]
    if not options:
        return
    option, (written, value) = next(iter(options.items()))
    if written != option and modules_of(function):  # around a module it may well be taken
        raise UnknownOptionError(
            f"{title_of(function)!r}, a function around a module, takes no {written}=.",
            (("options", ", ".join(asked)),),
            f"{option}={shown(value)}",
        )
    _refuse_around_module(option, value, function)
    if takes is not None and option in takes.parameters:
        by_name = option if hasattr(value, "shape") else shown(value)
        raise UnknownOptionError(
            f"{title_of(function)!r} takes {option}= by kwargs, as ml.inspect has an option of that name.",
            ((f"option {option}= is for", _MODELS),),
            door().call(variable_of(function), *argument_names(function, args), f'kwargs={{"{option}": {by_name}}}'),
        )
    slip = [("given", f"{written}={shown(value)}")] if written != option else []
    raise UnknownOptionError(
        f"{title_of(function)!r} takes no {option}=.",
        (*slip, (f"{option}= is for", _MODELS)),
        _gradient(function, args, own),
    )


def _gradient(function: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> str:
    """Return how to see the gradient of a function, if it has one."""
    by_name = [f"{key}={key if hasattr(value, 'shape') else shown(value)}" for key, value in given.items()]
    name, names = variable_of(function), argument_names(function, args)
    for are_numbers_static in (False, True):
        arguments = Arguments(function, args, given, are_numbers_static=are_numbers_static)
        is_number = _is_number_differentiable(arguments)
        if is_number is None:
            continue
        inside = f"lambda *x: {name}({', '.join(['*x', *by_name])}){'' if is_number else '.mean()'}"
        is_direct = is_number and not are_numbers_static
        advised = [f"jax.grad({name})", *names, *by_name] if is_direct else [f"jax.grad({inside})", *names]
        return f"{door().call(*advised)}  # or a function that is the whole step"
    return f"{door().call('step', 'x')}, where step is a function that is the whole step."


def _is_number_differentiable(arguments: Arguments) -> bool | None:
    """Return whether a function returns one number; `None` if it has no derivative by its first argument."""
    with suppress(Exception):  # it cannot be called so
        call, specs = arguments.calling, arguments.traced
        is_number = jax.eval_shape(call, *specs).shape == ()
        jax.eval_shape(jax.grad(lambda *x: jax.numpy.mean(call(*x))), *specs)
        return is_number if arguments.names[0] == arguments.all_names[0] else None
    return None


def _refuse_around_module(option: str, value: Any, function: Any) -> None:
    """Raise if a function that was given a module's option closes over a module, as `jax.vmap(module)` does."""
    held = list(modules_of(function).items())
    if not held:
        return
    name, module = held[0]
    given = ["x", f"{option}={short_repr(value, 40)}"]
    advice = door().call(name, *given)
    if is_equinox(module):  # it may take one of the batch at a time: then the function has to map it
        is_mapped = names_in_code(function) & {"vmap", "filter_vmap"}
        advice += f"  # or jax.vmap({name}) for a batch"
        advice = door().call(f"jax.vmap({name})", *given) if is_mapped else advice
    raise UnknownOptionError(
        f"{title_of(function)!r}, a function around the module {type(module).__name__!r}, takes no {option}=.",
        ((f"{option}= is for", _MODELS),),
        advice,
    )


def refuse_several(options: Mapping[str, Any], module: Any, function: Any) -> None:
    """Raise if a function made of a module holds others: they would be neither counted nor trained, without a word.

    Args:
        options: Options that make it a program of a module; `None` is not given.
        module: The module that it was made of.
        function: The function.

    Raises:
        UnknownOptionError: It holds others.
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
            ("holds besides", besides),
            (f"{option}= is for", _MODELS),
        ),
        f"{door().call('function', 'x')}  # counts all of them; or train one module that holds them",
    )
