"""The shardings that a program states: of its arguments, and of the results of equations that request one."""

from __future__ import annotations

import re

import jax

from mithril_nb.stages.program_stages import ProgramStages

_SPEC = re.compile(r"spec=(?:P|PartitionSpec)(\((?:[^()]|\([^()]*\))*\))")
_PARAMS = ("sharding", "dst_sharding", "out_sharding")


def stated_shardings(program: ProgramStages) -> dict[str, str]:
    """Return the partition spec of each result that the program states, by id of the jaxpr's instruction.

    XLA chooses the others when it partitions the program.

    Examples:
        >>> from mithril_nb.inspection import inspect
        >>> stated_shardings(inspect(jax.numpy.sin, jax.ShapeDtypeStruct((3,), "float32")))
        {}
    """
    known: dict[str, str] = {}
    for at, leaf in enumerate(jax.tree.leaves(program.arguments)):
        if (spec := getattr(getattr(leaf, "sharding", None), "spec", None)) is not None:
            known[f"arg{at}"] = repr(spec).replace("PartitionSpec(", "P(", 1)
    for one in program.stage("jaxpr").instructions:
        for name, text in one.attributes:
            if name in _PARAMS and (found := _SPEC.search(text)):
                known[one.id] = f"P{found[1]}"
    return known
