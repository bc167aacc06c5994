"""The shardings that the user specified in a program."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import jax

from mithril_nb.stages.records import Instruction

_SPEC = re.compile(r"spec=(?:P|PartitionSpec)(\((?:[^()]|\([^()]*\))*\))")
_PARAMS = ("sharding", "dst_sharding", "out_sharding")


def stated_shardings(arguments: Any, instructions: Iterable[Instruction]) -> dict[str, str]:
    """Return the partition specs of sharded arguments, and of results whose sharding the program specifies.

    Keys are ids of instructions of the jaxpr: `{"arg0": "P('x',)"}`. XLA chooses all other shardings.

    Args:
        arguments: The arguments of the program, as shapes.
        instructions: The instructions of the jaxpr.

    Examples:
        >>> mesh = jax.sharding.AbstractMesh((2,), ("x",))
        >>> sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
        >>> stated_shardings(jax.ShapeDtypeStruct((4,), "float32", sharding=sharding), ())
        {'arg0': "P('x',)"}
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
