"""The shardings that the user specified in a program."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any

import jax

from mithril_nb.stages.records import Instruction

_SPEC = re.compile(r"spec=(?:P|PartitionSpec)(\((?:[^()]|\([^()]*\))*\))")
_SPECS = re.compile(r"\b(?:P|PartitionSpec)(\((?:[^()]|\([^()]*\))*\))")
_PARAMS = ("sharding", "dst_sharding", "out_sharding")


def stated_shardings(
    arguments: Any, instructions: Iterable[Instruction], declared: Sequence[Any] = ()
) -> dict[str, str]:
    """Return the partition specs of sharded arguments, and of results whose sharding the program specifies.

    Keys are ids of instructions of the jaxpr: `{"arg0": "P('x',)"}`. XLA chooses all other shardings.

    Args:
        arguments: The arguments of the program, as shapes.
        instructions: The instructions of the jaxpr.
        declared: The `in_shardings` of `jax.jit`, one per array.

    Examples:
        >>> mesh = jax.sharding.AbstractMesh((2,), ("x",))
        >>> sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("x"))
        >>> stated_shardings(jax.ShapeDtypeStruct((4,), "float32", sharding=sharding), ())
        {'arg0': "P('x',)"}
    """
    known: dict[str, str] = {}
    shardings = [getattr(leaf, "sharding", None) for leaf in jax.tree.leaves(arguments)]
    for at, each in enumerate(zip_longest(declared, shardings)):
        specs = [spec for one in each if (spec := getattr(one, "spec", None)) is not None]
        if specs:
            known[f"arg{at}"] = repr(specs[0]).replace("PartitionSpec(", "P(", 1)
    for one in instructions:
        for name, text in one.attributes:
            if name in _PARAMS and (found := _SPEC.search(text)):
                known[one.id] = f"P{found[1]}"
            elif (one.opcode, name) == ("shard_map", "out_specs"):
                known[one.id] = ", ".join(dict.fromkeys(f"P{spec}" for spec in _SPECS.findall(text)))
    return known
