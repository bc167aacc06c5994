"""A traced program: its inputs, and its equations with their provenance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from mithril_nb.graph.paths import lineage
from mithril_nb.graph.ports import Ports
from mithril_nb.stages import jax_jit, jax_versions
from mithril_nb.stages.jax_versions import library_of
from mithril_nb.stages.once import Once, paused_collector
from mithril_nb.stages.param_names import which_are_params
from mithril_nb.stages.records import UNATTRIBUTED, Equation, Ids, Input, Origin, Range, Role
from mithril_nb.stages.trace.equations import Site, Sites, sites_of
from mithril_nb.stages.trace.loops import with_trips
from mithril_nb.stages.trace.params import collective_params, params_of
from mithril_nb.stages.trace.partitioned import divisions, partitioned_ids
from mithril_nb.stages.trace.provenance.attribution import Attribution, are_all_in_blocks, common_block
from mithril_nb.stages.trace.provenance.frames import Lines, Span, lines_of
from mithril_nb.stages.trace.python_source import MODEL, SourceLine
from mithril_nb.stages.trace.tracing import Trace

_CONTRACTIONS = frozenset({"dot_general", "conv_general_dilated", "ragged_dot_general"})
MOVERS = frozenset({"transpose", "reshape", "convert_element_type", "squeeze", "broadcast_in_dim", "copy"})


class Program:
    """A traced program: inputs, and equations with blocks, roles and lines of Python.

    The equations are computed on first use, because links between stages do not need them.

    Attributes:
        trace: The result of tracing, which contains the jaxpr.
        model: For a `Model`, the Python code that builds it; else `""`.
        tags: The tags that identify the equations in later stages.
        ports: For a `Model`, the connections between its blocks; empty for other programs.
        kinds: For a `Model`, the kind of each block by path, such as `"Linear"`; empty for other programs.
    """

    def __init__(
        self,
        trace: Trace,
        params: Sequence[str],
        source: tuple[str, Mapping[int, str]] | None = None,
        requested_at: Span | None = None,
        ports: Ports | None = None,
        kinds: Mapping[str, str] | None = None,
        trips: Mapping[str, int] | None = None,
    ):
        self.trace = trace
        self.ports, self.kinds = ports or Ports({}, {}), kinds or {}
        self._requested_at, self._stated_trips = requested_at, trips or {}
        self._params = params
        self._attributed = Once(self._attribute)
        self.model = "" if source is None else source[0]
        self._adding = {block: line for line, block in source[1].items()} if source is not None else {}
        self._sources_of: dict[Lines, tuple[str, str, Range | None]] = {}  # most equations share a line with others
        self._inputs = Once(self._find_inputs)
        self.tags = trace.tags

    def _attribute(self) -> tuple[Sites, Sites, Attribution]:
        with paused_collector():
            top, sites = sites_of(self.trace.closed.jaxpr)
            return top, sites, Attribution(self.trace, top, sites, self._params)

    @property
    def top(self) -> Sites:
        """The sites of the jaxpr's own equations, without nested ones."""
        return self._attributed.get()[0]

    @property
    def sites(self) -> Sites:
        """The sites of all equations, nested ones included."""
        return self._attributed.get()[1]

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The input arrays, in the order of the jaxpr."""
        return self._inputs.get()

    @cached_property
    def _lines(self) -> Mapping[str, Lines]:
        return lines_of(self.trace, self.top, self._requested_at)

    @cached_property
    def labels(self) -> dict[str, str]:
        """The label of each file with the lines of equations, by path."""
        files = jax_versions.file_labels(lines.user.file for lines in self._lines.values() if lines.user is not None)
        own = [lines.library.file for lines in self._lines.values() if lines.user is None and lines.library is not None]
        return files | {file: jax_versions.library_label(file) for file in own if library_of(file) != "mithril_nb"}

    @property
    def files(self) -> dict[str, str]:
        """The path of each file with lines of equations, by label."""
        # It includes libraries that the user calls.
        called = [lines.library.file for lines in self._lines.values() if lines.library is not None]
        return {jax_versions.library_label(file): file for file in called} | {
            label: path for path, label in self.labels.items()
        }

    @cached_property
    def equations(self) -> tuple[Equation, ...]:
        """The records of all equations, in the order of `sites`."""
        _, sites, attribution = self._attributed.get()
        with paused_collector():
            records = tuple([self._record(site, self._lines[site.id], *attribution[site.id]) for site in sites])
        return with_trips(records, self._stated_trips, "ml.inspect(..., trips={})") if self._stated_trips else records

    @cached_property
    def by_id(self) -> dict[str, Equation]:
        """The records of all equations by id."""
        return {equation.id: equation for equation in self.equations}

    @property
    def ids(self) -> Sequence[str]:
        """The ids of all equations, in the order of `sites`."""
        return self.trace.outline.ids

    @cached_property
    def outside(self) -> frozenset[str]:
        """The ids of the equations that belong to no block."""
        if are_all_in_blocks(self.trace):
            return frozenset()
        _, sites, attribution = self._attributed.get()
        return frozenset([site.id for site in sites if attribution[site.id][0] == UNATTRIBUTED])

    @cached_property
    def is_divided(self) -> bool:
        """True if an array of the program is sharded over several devices."""
        requested = jax_jit.shardings(self.trace.traced, "out_shardings")
        return any(True for _ in divisions(self.sites, self.trace.layouts, requested))

    @cached_property
    def _partitioned(self) -> frozenset[str]:
        trace, requested = self.trace, jax_jit.shardings(self.trace.traced, "out_shardings")
        return partitioned_ids(trace.closed.jaxpr, self.top, self.sites, trace.layouts, requested, trace.are_placed)

    def instructions(self) -> Iterator[tuple[str, Ids]]:
        """Yield the id of each instruction of the jaxpr, with the ids of the equations that it includes."""
        yield from ((id, (id,)) for id in (f"arg{index}" for index in range(len(self.trace.inputs))))
        ids, inside, _, _ = self.trace.outline
        for index, id in enumerate(ids):
            yield id, tuple(ids[index : index + inside[index]]) if index in inside else (id,)

    @property
    def source_lines(self) -> dict[str, SourceLine]:
        """The line of the user that created each equation, by id."""
        # Equations without one are left out.
        files = {label: path for path, label in self.labels.items()}
        source_lines: dict[str, SourceLine] = {}
        for equation in self.equations:
            label, _, line = equation.source.rpartition(":")
            if label in files:
                source_lines[equation.id] = SourceLine(
                    files[label], label, int(line), equation.source_range[2] if equation.source_range else 0
                )
        return source_lines

    def _record(self, site: Site, lines: Lines, block: str, role: Role | None, origin: Origin | None) -> Equation:
        sources = self._sources_of.get(lines)
        if sources is None:
            sources = self._sources_of[lines] = self._sources(lines)
        if self._adding:
            adding = next((path for path in reversed(lineage(block)) if path in self._adding), None)
            sources = sources if adding is None else (f"{MODEL}:{self._adding[adding]}", sources[1], None)
        return record_of(site, block, role, origin, *sources, is_partitioned=site.id in self._partitioned)

    def _sources(self, lines: Lines) -> tuple[str, str, Range | None]:
        """Return `source`, `library_source` and `source_range` of an equation with these lines."""
        user, library = lines
        if user is None and library is not None and library.file in self.labels:  # a function of a library itself
            user, library = library, None
        library_source = "" if library is None else f"{jax_versions.library_label(library.file)}:{library.line}"
        return (
            ("", library_source, None)
            if user is None
            else (f"{self.labels[user.file]}:{user.line}", library_source, user[1:])
        )

    def _find_inputs(self) -> tuple[Input, ...]:
        top, _, attribution = self._attributed.get()
        owners = [attribution.owner(leaf) for leaf in self.trace.inputs]
        are_params = which_are_params(self.trace.arguments, [leaf.name for leaf in self.trace.inputs], self._params)
        # Only needed if the name of a parameter does not show its block, because it visits all nested jaxprs.
        users = [frozenset[str]()] * len(owners)
        if any(is_param and not owner for owner, is_param in zip(owners, are_params, strict=True)):
            users = attribution.users_of_inputs(self.trace.closed.jaxpr, top)
        inputs: list[Input] = []
        rows = zip(self.trace.inputs, owners, are_params, users, strict=True)
        for index, (leaf, owner, is_param, blocks) in enumerate(rows):
            block = owner or common_block(blocks) if is_param else owner
            used_by = tuple(sorted(blocks)) if is_param and not block else ()
            is_moved = f"arg{index}" in self._partitioned
            inputs.append(Input(leaf.name, leaf.spec, block, is_param, used_by, leaf.argument, is_moved))
        return tuple(inputs)

    def contractions_behind(self, opcode: str, id: str) -> Ids:
        """Return the id of the equation of the matrix product or convolution that an HLO instruction computes."""
        # XLA may merge transpose(dot(a, b)) into one product, which gets the tag of the transpose. Then the result is
        # a tuple with the id of the product; otherwise it is `()`.
        return self._behind.get(id, ()) if opcode in ("dot", "convolution") else ()

    @cached_property
    def _behind(self) -> dict[str, Ids]:

        producers: dict[tuple[str, Any], str] = {}
        contractions: dict[str, Ids] = {}
        for site in self.sites:
            # The id of the call is part of the key, because calls of one jaxpr share its variables.
            body = site.id.rpartition(".")[0]
            for var in site.equation.outvars:
                producers[body, var] = site.id
            if site.primitive in MOVERS and not jax_versions.is_literal(site.equation.invars[0]):
                producer = producers.get((body, site.equation.invars[0]))
                if producer is not None:
                    is_made = self.by_id[producer].primitive in _CONTRACTIONS
                    contractions[site.id] = (producer,) if is_made else contractions.get(producer, ())
        return contractions


def record_of(
    site: Site,
    block: str = UNATTRIBUTED,
    role: Role | None = None,
    origin: Origin | None = None,
    source: str = "",
    library_source: str = "",
    source_range: Range | None = None,
    is_partitioned: bool = False,
) -> Equation:
    """Return the record of an equation; with `is_partitioned`, XLA's partitioner may add communication to it."""
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
        params_of(site) + collective_params(site, is_partitioned),
        origin,
        site.is_used,
        site.constants,
        site.transforms,
        library_source,
        source_range,
    )
