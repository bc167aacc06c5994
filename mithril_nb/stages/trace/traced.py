"""What is known of a program once it is traced: its equations, whose they are, and the tags that mark them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mithril_nb.graph.spec import TensorSpec
from mithril_nb.stages import jax_versions
from mithril_nb.stages.param_names import which_are_params
from mithril_nb.stages.records import UNATTRIBUTED, Equation, Origin, Role
from mithril_nb.stages.trace.attribution import Attribution
from mithril_nb.stages.trace.equations import Site, plain_params, sites_of
from mithril_nb.stages.trace.param_blocks import common_block, users_of_inputs
from mithril_nb.stages.trace.tracing import Trace

_CONTRACTIONS = frozenset({"dot_general", "conv_general_dilated", "ragged_dot_general"})
MOVERS = frozenset({"transpose", "reshape", "convert_element_type", "squeeze", "broadcast_in_dim", "copy"})


@dataclass(frozen=True)
class Input:
    """One array that a program takes.

    Attributes:
        name: How to reach it: `params['linear_0.weight']`.
        spec: Its shape and dtype.
        block: Path of the block that it belongs to, or `""`.
        is_param: Whether it is a parameter of the model, rather than data or the state of an optimizer; `None` if
            nobody knows, as no argument is called `params` and nobody said what holds them.
        used_by: Blocks that use it, if it is a parameter that belongs to none because they have no block in common.
        argument: Name of the argument that it is part of: `params`.
    """

    name: str
    spec: TensorSpec
    block: str
    is_param: bool | None
    used_by: tuple[str, ...] = ()
    argument: str = ""


class Program:
    """A traced program with its provenance.

    Attributes:
        trace: The trace.
        top: Sites of its equations, without those of nested jaxprs.
        sites: Sites of all its equations.
        equations: The same as records.
        by_id: The same by id.
        inputs: What it takes.
        labels: What the files are called that its lines of Python stand in, by path.
        tags: How its equations are marked in later stages.
    """

    def __init__(self, trace: Trace, params: Sequence[str]):
        self.trace = trace
        self.top, self.sites = sites_of(trace.closed.jaxpr)
        attribution = Attribution(trace, self.top, self.sites)
        places = [jax_versions.source_place(site.equation) for site in self.sites]
        self.labels = jax_versions.file_labels(place[0] for place in places if place is not None)
        sources = ["" if place is None else f"{self.labels[place[0]]}:{place[1]}" for place in places]
        self.equations = tuple(
            record_of(site, *attribution[site.id], source) for site, source in zip(self.sites, sources, strict=True)
        )
        self.by_id = {equation.id: equation for equation in self.equations}
        self.inputs = self._inputs(attribution, params)
        self.tags = trace.tags

    def _inputs(self, attribution: Attribution, params: Sequence[str]) -> tuple[Input, ...]:
        owners = [attribution.owner(leaf) for leaf in self.trace.inputs]
        are_params = which_are_params(self.trace.arguments, [leaf.name for leaf in self.trace.inputs], params)
        users = [frozenset[str]()] * len(owners)
        if any(is_param and not owner for owner, is_param in zip(owners, are_params, strict=True)):
            users = users_of_inputs(self.trace.closed.jaxpr, self.top, lambda id: attribution[id][:2])
        found: list[Input] = []
        for leaf, owner, is_param, blocks in zip(self.trace.inputs, owners, are_params, users, strict=True):
            block = owner or common_block(blocks) if is_param else owner
            used_by = tuple(sorted(blocks)) if is_param and not block else ()
            found.append(Input(leaf.name, leaf.spec, block, is_param, used_by, leaf.argument))
        return tuple(found)

    def contractions_behind(self, opcode: str, id: str) -> tuple[str, ...]:
        """Return the contraction that an HLO instruction is, where XLA kept only the name of a transpose of it.

        Args:
            opcode: Opcode of the instruction.
            id: Id of an equation that it is tagged with.
        """
        return self._behind.get(id, ()) if opcode in ("dot", "convolution") else ()

    @cached_property
    def _behind(self) -> dict[str, tuple[str, ...]]:
        makers: dict[tuple[str, Any], str] = {}
        found: dict[str, tuple[str, ...]] = {}
        for site in self.sites:
            body = site.id.rpartition(".")[0]  # Bodies that are shared share their variables: tell the calls apart.
            for var in site.equation.outvars:
                makers[body, var] = site.id
            if site.primitive in MOVERS and not jax_versions.is_literal(site.equation.invars[0]):
                maker = makers.get((body, site.equation.invars[0]))
                if maker is not None:
                    is_made = self.by_id[maker].primitive in _CONTRACTIONS
                    found[site.id] = (maker,) if is_made else found.get(maker, ())
        return found


def record_of(
    site: Site,
    block: str = UNATTRIBUTED,
    role: Role | None = None,
    origin: Origin | None = None,
    source: str = "",
) -> Equation:
    """Return an equation as a record, with what is known of whose it is.

    Args:
        site: The equation at its place.
        block: Path of its block.
        role: Its role.
        origin: How its block is known.
        source: Line of Python it comes from.
    """
    return Equation(
        site.id,
        site.primitive,
        block,
        role,
        jax_versions.specs_of(site.equation.invars),
        jax_versions.specs_of(site.equation.outvars),
        source,
        site.repeats,
        site.is_call,
        plain_params(site.equation),
        origin,
        site.is_used,
        site.constants,
        site.transforms,
    )
