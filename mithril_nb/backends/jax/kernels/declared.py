"""The kernels that blocks declare in their class, as the attribute `kernel`."""

from __future__ import annotations

from typing import Any

import jax

from mithril_nb.backends.jax.kernels.arithmetic import scalar
from mithril_nb.backends.jax.kernels.registry import KERNELS, kernel, narrowed
from mithril_nb.backends.jax.kernels.shaping import static
from mithril_nb.models.library.operations.elementwise import floating
from mithril_nb.models.op import OPS
from mithril_nb.models.rules import OpRules
from mithril_nb.program import Arrays, Call, Kernel


def declared(rules: type[OpRules]) -> Kernel:
    """Return the kernel of a block that declares one."""
    function: Any = rules.kernel

    def option(call: Call, name: str, dtype: str) -> Any:
        if name not in rules.option_ports or call.options[name] is None:
            return call.options[name]
        if "option" in rules.input_dtypes:  # an axis or a size
            return static(call, name)
        return scalar(call, name, jax.ShapeDtypeStruct((), floating(dtype)))

    # widens=False: a shift of 8 bits keeps its dtype.
    @kernel(rules.op, widens=False)
    def run(call: Call, arrays: Arrays) -> Arrays:
        operands = [arrays[port] for port in rules.input_ports]
        options = [option(call, name, str(operands[0].dtype)) for name in call.options]
        return {"output": narrowed(function(*operands, *options), *operands)}

    return KERNELS[rules.op]


for _rules in list(OPS.values()):
    if _rules.kernel is not None:
        declared(_rules)
