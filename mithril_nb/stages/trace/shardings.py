"""The shardings that a program states: of its arguments, and of the results of equations that request one."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import jax

from mithril_nb.stages.records import Instruction

_SPEC = re.compile(r"spec=(?:P|PartitionSpec)(\((?:[^()]|\([^()]*\))*\))")
_PARAMS = ("sharding", "dst_sharding", "out_sharding")


def stated_shardings(arguments: Any, instructions: Iterable[Instruction]) -> dict[str, str]:
    """Return a dict from the id of an instruction of the jaxpr to the partition spec that the program states for it.

    XLA chooses the shardings of other instructions when it partitions the program.

    Args:
        arguments: The arguments of the program, as shapes.
        instructions: The instructions of its jaxpr.

    Examples:
        >>> stated_shardings((jax.ShapeDtypeStruct((3,), "float32"),), ())
        {}
    """
    known: dict[str, str] = {}
    for at, leaf in enumerate(jax.tree.leaves(arguments)):
        if (spec := getattr(getattr(leaf, "sharding", None), "spec", None)) is not None:
            known[f"arg{at}"] = repr(spec).replace("PartitionSpec(", "P(", 1)
    for one in instructions:
        for name, text in one.attributes:
            if name in _PARAMS and (found := _SPEC.search(text)):
                known[one.id] = f"P{found[1]}"
    return known
