"""Functions as targets, plain and jitted, also around modules."""

from __future__ import annotations

from mithril_nb.inspection import Inspection
from mithril_nb.inspection import inspect as inspect_function
from mithril_nb.stages.param_names import DEFAULT, names_of_params
from mithril_nb.targets.arguments import title_of
from mithril_nb.targets.calls import check_call
from mithril_nb.targets.constants import static_arguments
from mithril_nb.targets.functions import function_program
from mithril_nb.targets.kinds.kind import TargetCall, TargetKind
from mithril_nb.targets.option_checks import OF_FUNCTIONS
from mithril_nb.targets.unsupported import refuse, refuse_training


def _accepts(call: TargetCall) -> bool:
    is_ours = isinstance(call.target, type) or type(call.target).__module__.startswith("mithril_nb.")
    return callable(call.target) and not is_ours


def _inspect(call: TargetCall) -> Inspection:
    target, args, kwargs, options = call.target, call.args, call.kwargs, call.options
    refuse_training(call.training(), target, args, kwargs)
    for option in ("shapes", "variables"):
        refuse(option, options[option], target, args, kwargs)
    check_call(target, args, kwargs, target, title_of(target), OF_FUNCTIONS)
    static = static_arguments(target, args, kwargs, options["static_argnums"], options["static_argnames"])
    made = function_program(target, args, kwargs, static)
    holders = names_of_params(DEFAULT if options["params"] is None else options["params"])
    own = {"name": options["name"] or title_of(target), "params": made.params(holders)}
    return inspect_function(made.function, *made.specs, **{**call.of_stages(), **own})


FUNCTION = TargetKind("functions", _accepts, _inspect)
