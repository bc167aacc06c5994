"""Mithril models as targets: with numbers as sizes, or with names, so that costs are formulas."""

from __future__ import annotations

from mithril_nb.inspection import Inspection
from mithril_nb.targets.kinds.kind import TargetCall, TargetKind, training_of
from mithril_nb.targets.mithril_models import compiled_for, given_specs, inspect_model, is_mithril_model
from mithril_nb.targets.symbolic import has_names, inspect_with_names, scope_of
from mithril_nb.targets.unsupported import refuse


def _inspect(call: TargetCall) -> Inspection:
    program, loss, optimizer = training_of(call)
    for option in ("params", "variables", "static_argnums", "static_argnames"):
        refuse(option, call.options[option], call.target, call.args, call.kwargs)
    sizes, dtypes = given_specs(call.target, call.args, call.kwargs, call.options["shapes"])
    options = call.of_stages()
    if has_names(sizes.values()):
        scope = scope_of((*call.args, *call.kwargs.values()))
        return inspect_with_names(call.target, sizes, dtypes, scope, program, loss, optimizer, options)
    return inspect_model(compiled_for(call.target, sizes, dtypes), program, loss, optimizer, options)


MODEL = TargetKind("models of mithril_nb", lambda call: is_mithril_model(call.target), _inspect)
