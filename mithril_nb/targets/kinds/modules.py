"""Modules of Flax, Equinox and Haiku as targets, their methods, and functions around an Equinox module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mithril_nb.errors import MithrilError
from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect as inspect_function
from mithril_nb.stages.trace.provenance.frames import calling_line
from mithril_nb.targets.arguments import Arguments, title_of
from mithril_nb.targets.calls import check_call
from mithril_nb.targets.entry_point import entry_point
from mithril_nb.targets.kinds.kind import TargetCall, TargetKind, training_of
from mithril_nb.targets.libraries.modules import callable_of, foreign, is_foreign, is_haiku, is_linen, within
from mithril_nb.targets.libraries.programs import module_program
from mithril_nb.targets.libraries.scopes import is_module
from mithril_nb.targets.option_checks import OF_MODULES
from mithril_nb.targets.sizes import no_array
from mithril_nb.targets.texts import no_array_but_text
from mithril_nb.targets.unsupported import refuse, refuse_several


def _is_module(target: Any) -> bool:
    """Return whether a target is a module, a transform of Haiku, or a method of a module."""
    return is_foreign(target) or is_module(getattr(target, "__self__", None))


def _accepts(call: TargetCall) -> bool:
    if _is_module(call.target):
        return True
    # A function around a module is a plain function, unless a program of the module is requested.
    return any(value is not None for value in call.training().values()) and within(call.target) is not None


def _inspect(call: TargetCall) -> Inspection:
    target, args, given, variables = call.target, call.args, call.kwargs, call.options["variables"]
    if not _is_module(target):
        refuse_several(call.training(), within(target), target)
    program, loss, optimizer = training_of(call)
    for option in ("params", "shapes", "static_argnums", "static_argnames"):
        refuse(option, call.options[option], target, args, given)
    options = call.of_stages()
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


def _raising(error: Exception, title: str) -> Callable[..., Any]:
    def function(*_: Any) -> Any:
        raise error

    function.__name__ = title
    return function


MODULE = TargetKind("modules of Flax, Equinox and Haiku", _accepts, _inspect)
