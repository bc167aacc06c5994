"""Shape inference: what flows along every connection of a graph, and what does not fit, all mismatches at once.

What is known goes forward, from inputs to outputs, and back where a block or a person says what an input must be, until
nothing more follows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mithril_nb.errors import Diagnostic, ShapeError, UnknownDtypeError
from mithril_nb.graph.paths import component
from mithril_nb.graph.records import BOUNDARY, BlockSpecs, Endpoint, LogicalGraph, Note
from mithril_nb.graph.spec import LEADING, Dim, Spec, StaticSpec, TensorSpec
from mithril_nb.models.control import Control
from mithril_nb.models.dims import MismatchError, agree, meet, renamed
from mithril_nb.models.dtypes import input_dtype, promoted
from mithril_nb.models.flat import Flat, FlatOp, flat, origin
from mithril_nb.models.folding import all_values, as_arrays, folded
from mithril_nb.models.initializers import initializer_of
from mithril_nb.models.op import OPS, UNKNOWN, Inferred, Initializer, Operator
from mithril_nb.models.port_checks import check_dtype, check_fed, check_option, rule_of
from mithril_nb.models.starting import activated, activated_inside, is_activated, without_activation

ANYTHING: tuple[Dim, ...] = (LEADING,)
"""Shape of what nothing is known of."""
_ROUNDS = 50
"""A chain whose shapes come from its end is known after one round back; only a hostile rule would take so many."""


@dataclass(frozen=True)
class Parameter:
    """An array that belongs to a model: one that is trained, or one that a step hands to the next.

    Attributes:
        name: Its name among the parameters: `"linear_0.weight"`.
        path: Path of the block that it belongs to.
        port: Port of that block.
        spec: Shape and dtype; some dims are names while the input's shape is not known.
        initializer: How it starts.
        is_trainable: Whether training changes it.
        stacked: Along how many axes, its first ones, it holds arrays of one shape, each of which starts by itself.
    """

    name: str
    path: str
    port: str
    spec: TensorSpec
    initializer: Initializer
    is_trainable: bool = True
    stacked: int = 0


@dataclass(frozen=True)
class Inference:
    """What shape inference found.

    Attributes:
        inputs: Spec of each input of the graph.
        outputs: Spec of each output; `None` where a mismatch stands in the way.
        blocks: Specs at each block, by path.
        parameters: All trainable arrays, in the order of the blocks.
        problems: What does not fit; empty if all is well.
        states: All arrays that a step hands to the next.
    """

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, Spec | None]
    blocks: Mapping[str, BlockSpecs]
    parameters: tuple[Parameter, ...]
    problems: tuple[Diagnostic, ...]
    states: tuple[Parameter, ...] = ()

    @property
    def is_concrete(self) -> bool:
        """Whether the shape of every parameter is known in numbers."""
        return all(parameter.spec.is_concrete for parameter in (*self.parameters, *self.states))

    def raise_problems(self) -> None:
        """Raise all problems as one error, if there are any.

        Raises:
            ShapeError: Something does not fit.
        """
        if self.problems:
            first, *more = self.problems
            raise ShapeError(first, more=tuple(more))


def infer(
    graph: LogicalGraph,
    inputs: Mapping[str, TensorSpec],
    dtype: str = "float32",
    *,
    prefix: str = "",
    activated_outputs: Collection[str] = (),
) -> Inference:
    """Infer the specs of everything in a graph from those of its inputs.

    Args:
        graph: The graph.
        inputs: Specs of its inputs; of an input that is left out nothing is known.
        dtype: Dtype of parameters, and of inputs whose block asks for no other.
        prefix: Path of the block that it is inside of, for messages.
        activated_outputs: Those of its outputs that an activation outside reads: parameters start for it.

    Raises:
        CycleError: The graph has a cycle.
        UnknownOpError: A block of an op that does not exist.

    Examples:
        >>> from mithril_nb.models import Linear
        >>> found = infer(Linear(10).graph, {"input": TensorSpec(("batch", 784))})
        >>> found.outputs["output"], found.parameters[0].spec
        (('batch', 10) float32, (784, 10) float32)
    """
    work = _Work(flat(graph), dtype, prefix, activated(flat(graph), activated_outputs))
    for port in graph.inputs:
        if port.role == "data":
            end = Endpoint(BOUNDARY, port.name)
            given = inputs.get(port.name) or TensorSpec(ANYTHING, input_dtype(graph, port.name, dtype))
            work.known[end] = given
    work.solve()
    return work.result()


@dataclass
class _Work:
    """One inference under way."""

    flat: Flat
    dtype: str
    prefix: str = ""
    activated: set[Endpoint] = field(default_factory=set[Endpoint])
    known: dict[Endpoint, Spec | None] = field(default_factory=dict)
    needed: dict[Endpoint, tuple[Dim, ...]] = field(default_factory=dict)
    names: dict[str, Dim] = field(default_factory=dict)
    arrays: dict[str, Parameter] = field(default_factory=dict)
    sizes: dict[str, TensorSpec] = field(default_factory=dict)
    found: dict[str, Inferred] = field(default_factory=dict)
    problems: list[Diagnostic] = field(default_factory=list)
    inner: dict[str, BlockSpecs] = field(default_factory=dict)

    def at(self, path: str) -> str:
        """A path as the outermost model has it."""
        return f"{self.prefix}/{path}" if self.prefix else path

    def solve(self) -> None:
        """Go forward and back until nothing more is learnt."""
        for _ in range(_ROUNDS):
            self.arrays, self.found, self.problems = {}, {}, []
            for end in [end for end in self.known if end.node == BOUNDARY]:
                self.known[end] = self.noted(end, self.known[end])
            for op in self.flat.ops:
                self.forward(op)
            sizes = {name: self.arrays[name].spec for name in self.sizes}
            is_news, self.sizes = sizes != self.sizes, sizes
            if self.problems or not (self.back() or is_news):
                return

    def forward(self, op: FlatOp) -> None:
        rule = rule_of(op)
        data = {port.name: self.spec_of(op, port.name) for port in op.block.inputs if port.role == "data"}
        given = {port: spec for port, spec in data.items() if spec is not None}
        outputs = [Endpoint(op.path, port.name) for port in op.block.outputs]
        if len(given) < len(data):
            self.known.update(dict.fromkeys(outputs))  # a mismatch before it has been noted already
            return
        if all_values(op.block.op, given):
            self.known.update(dict.fromkeys(outputs, folded(op.block.op, given)))
            return
        try:
            options = self.options(op)
            specs: dict[str, Any] = given if rule.takes_values else {**as_arrays(given, self.dtype)}
            for port, spec in specs.items():
                if isinstance(spec, TensorSpec):
                    source = op.sources.get(port)
                    check_dtype(port, spec, rule.wanted_dtype(port, self.dtype), bool(source and source.node))
            specs = {**specs, **self.option_specs(op)} if rule.takes_values else specs
            found = rule.infer(options, specs) if op.block.graph is None else self.body(op, rule, specs)
            for port in (*found.params, *found.states):
                if port in op.sources:
                    check_fed(port, self.known.get(op.sources[port]), {**found.params, **found.states}[port])
        except (MismatchError, UnknownDtypeError) as error:
            is_mismatch = isinstance(error, MismatchError)
            place = self.mismatch(op, error) if is_mismatch else replace(error.diagnostics[0], block=self.at(op.path))
            self.problems.append(place)
            self.known.update(dict.fromkeys(outputs))
            return
        self.found[op.path] = found
        floating = [
            spec.dtype
            for port, spec in specs.items()
            if port in data
            and isinstance(spec, TensorSpec)
            and rule.wanted_dtype(port, self.dtype) in ("any", self.dtype)
        ]
        dtype = promoted((*floating, *([self.dtype] if found.params or not floating else [])))
        for end in outputs:
            given = found.outputs[end.port]
            spec = given if isinstance(given, TensorSpec | StaticSpec) else TensorSpec(given, dtype)
            self.known[end] = self.noted(end, self.sharper(end, spec))
        for port, name in op.arrays.items():
            self.array(op, port, name, found, rule)

    def body(self, op: FlatOp, rule: type[Operator], specs: Mapping[str, TensorSpec]) -> Inferred:
        """Infer what is inside a block that runs others, and note its arrays and specs as parts of the model."""
        assert issubclass(rule, Control)
        place = self.at(op.path)
        outputs = activated_inside(op, self.activated)
        found = rule.infer_body(
            op.block,
            specs,
            lambda graph, given: infer(graph, given, self.dtype, prefix=place, activated_outputs=outputs),
        )
        self.problems += found.problems
        if found.inner.states:
            first = found.inner.states[0]
            self.problems.append(
                Diagnostic(
                    f"the block {place!r} cannot run {first.path!r} again and again: that has a state.",
                    (("state", first.name),),
                    "a norm without running statistics inside, as LayerNorm().",
                    block=f"{place}/{first.path}",
                    code="ShapeError",
                )
            )
        for one in found.inner.parameters:
            shape = one.spec.shape if found.stacked is None else (found.stacked, *one.spec.shape)
            name, note = op.inner[one.name], self.flat.notes.get(op.inner[one.name])
            self.arrays[name] = replace(
                one,
                name=name,
                path=f"{op.path}/{one.path}" if one.path else op.path,
                spec=TensorSpec(shape, one.spec.dtype),
                initializer=initializer_of(note.initializer, one.initializer)
                if note and note.initializer
                else one.initializer,
                is_trainable=one.is_trainable and not (note and note.is_trainable is False),
                stacked=one.stacked + (found.stacked is not None),
            )
        for path, blocks in found.inner.blocks.items():
            self.inner[f"{op.path}/{path}"] = blocks
        return Inferred(found.outputs)

    def options(self, op: FlatOp) -> dict[str, Any]:
        """The attributes, with the values of those that are connected; raises `MismatchError` if one cannot be used."""
        options = dict(op.block.attributes)
        for port in op.block.inputs:
            if port.role == "option" and port.name in op.sources:
                spec = self.known.get(op.sources[port.name])
                if isinstance(spec, StaticSpec) and spec.is_known:
                    check_option(op.block.kind, port.name, spec.value)
                options[port.name] = spec.value if isinstance(spec, StaticSpec) and spec.is_known else UNKNOWN
        return options

    def option_specs(self, op: FlatOp) -> dict[str, Spec]:
        """What comes over the connections of its attributes."""
        found = {
            port.name: self.known.get(op.sources[port.name])
            for port in op.block.inputs
            if port.role == "option" and port.name in op.sources
        }
        return {port: spec for port, spec in found.items() if spec is not None}

    def spec_of(self, op: FlatOp, port: str) -> Spec | None:
        if port in op.sources:
            return self.known.get(op.sources[port])
        # A parameter that this block only reads, or an array to be given that a person made trainable.
        name = op.arrays[port]
        if name in self.sizes:
            return self.sizes[name]
        note = self.flat.notes.get(name, Note())
        return TensorSpec(ANYTHING if note.shape is None else note.shape, note.dtype or self.dtype)

    def array(self, op: FlatOp, port: str, name: str, found: Inferred, rule: type[Operator]) -> None:
        """Note a parameter or a state; one that several blocks share must have one shape."""
        shapes = {**found.params, **found.states}
        shape = shapes[port] if port in shapes else self.spec_of(op, port).shape  # pyright: ignore
        note = self.flat.notes.get(name)
        place, end = f"the parameter {name!r}", Endpoint(op.path, port)
        if note and note.shape is not None:
            both = meet(shape, note.shape, {})
            if both is None:
                advice = f"model.set_shapes({{{name!r}: {list(shape)!r}}})  # or leave it out"
                self.unlike("shape", place, str(note.shape), str(shape), advice, end)
            shape = shape if both is None else both
        if note and note.dtype not in (None, self.dtype):
            advice = f'ml.compile(model, ml.JaxBackend(dtype="{note.dtype}"))  # the dtype of all parameters'
            self.unlike("dtype", place, str(note.dtype), self.dtype, advice, end)
        trainable = port not in found.states and not (note and note.is_trainable is False)
        initializer = rule.initializers.get(port, Initializer("normal"))
        if rule.starts_for_its_reader and not is_activated(op, self.activated):
            initializer = without_activation(initializer)
        if note and note.initializer:
            initializer = initializer_of(note.initializer, initializer)
        if port not in shapes:
            self.sizes.setdefault(name, TensorSpec(shape, self.dtype))
        new = Parameter(name, op.path, port, TensorSpec(shape, self.dtype), initializer, trainable)
        first = self.arrays.setdefault(name, new)
        if port in shapes and first.port not in rule_of(self.flat.op_at[first.path]).initializers:
            # The block whose parameter it is says how it starts, not one that reads it before.
            self.arrays[name] = first = replace(new, spec=first.spec)
        if not first.spec.is_concrete and new.spec.is_concrete:
            self.arrays[name] = replace(first, spec=new.spec)
        elif not agree(first.spec.shape, new.spec.shape):
            self.problems.append(
                Diagnostic(
                    f"the blocks {first.path!r} and {new.path!r} share {new.name!r} in two shapes.",
                    (
                        (f"{first.path}.{first.port}", str(first.spec)),
                        (f"{new.path}.{new.port}", str(new.spec)),
                    ),
                    "give both blocks the same sizes, or the parameters two names.",
                    block=new.path,
                    port=new.port,
                    code="ShapeError",
                )
            )

    def back(self) -> bool:
        """Tell each block what its outputs must be, and hear what its inputs must be; return whether that was news."""
        news = False
        for op in reversed(self.flat.ops):
            if op.path not in self.found:
                continue
            rule = OPS[op.block.op]
            if rule.refine.__func__ is Operator.refine.__func__:  # pyright: ignore
                continue
            given = {p.name: spec for p in op.block.inputs if p.role == "data" and (spec := self.spec_of(op, p.name))}
            outputs = {port.name: self.known.get(Endpoint(op.path, port.name)) for port in op.block.outputs}
            inputs, outputs = (
                {port: spec for port, spec in specs.items() if isinstance(spec, TensorSpec)}
                for specs in (given if rule.takes_values else as_arrays(given, self.dtype), outputs)
            )
            try:
                needs = rule.refine(self.options(op), inputs, outputs)
            except MismatchError as mismatch:
                self.problems.append(self.unmet(op, outputs, mismatch))
                continue
            for port, shape in needs.items():
                if port in op.sources:
                    news = self.need(op.sources[port], shape) or news
        if self.names:
            for end, spec in self.known.items():
                if isinstance(spec, TensorSpec):
                    self.known[end] = replace(spec, shape=renamed(spec.shape, self.names))
        return news

    def need(self, end: Endpoint, shape: tuple[Dim, ...]) -> bool:
        """Note what an output, or an input of the model, must be like; return whether that was news."""
        spec = self.known.get(end)
        if not isinstance(spec, TensorSpec):
            return False
        names: dict[str, Dim] = {}
        both = meet(spec.shape, shape, names)
        if both is None or both == spec.shape:
            return False  # what does not fit is said going forward
        self.names |= names
        self.needed[end] = both
        self.known[end] = replace(spec, shape=both)
        return True

    def sharper(self, end: Endpoint, spec: Spec) -> Spec:
        """The spec, with what is known from those who read it."""
        if end not in self.needed or not isinstance(spec, TensorSpec):
            return spec
        both = meet(spec.shape, self.needed[end], self.names)
        return spec if both is None else replace(spec, shape=both)

    def noted(self, end: Endpoint, spec: Spec | None) -> Spec | None:
        """The spec, with what a person said of it."""
        note = self.flat.notes.get(end)
        if note is None or not isinstance(spec, TensorSpec):
            return spec
        place = self.at(origin(end)) if end.node else origin(end)
        both = spec.shape if note.shape is None else meet(spec.shape, note.shape, self.names)
        if both is None:
            advice = f"model.set_shapes({{{origin(end)!r}: {list(spec.shape)!r}}})  # or " + (
                "other sizes before it" if end.node else "another shape for this input"
            )
            self.unlike("shape", repr(place), str(note.shape), str(spec), advice, end)
            both = spec.shape
        if end.node and note.dtype and note.dtype != spec.dtype:
            advice = f'x.cast("{note.dtype}")  # or a Cast(dtype="{note.dtype}") behind it'
            self.unlike("dtype", repr(place), note.dtype, str(spec), advice, end)
            return replace(spec, shape=both)
        return TensorSpec(both, note.dtype or spec.dtype)

    def unlike(self, what: str, place: str, said: str, has: str, advice: str, end: Endpoint) -> None:
        """Note that something is not as a person said."""
        self.problems.append(
            Diagnostic(
                f"{place} has another {what} than was said of it.",
                (("said", said), ("has", has)),
                advice,
                block=self.at(end.node) if end.node else "",
                port=end.port,
                code="ShapeError",
            )
        )

    def mismatch(self, op: FlatOp, found: MismatchError) -> Diagnostic:
        """Say which two ports do not fit, with both shapes."""
        end = op.sources.get(found.port)
        if end is None and found.port not in op.arrays:
            return self.unset(op, found)
        spec = self.known.get(end) if end else self.spec_of(op, found.port)
        source = op.origins[found.port] if end else op.arrays[found.port]
        source = self.at(source) if end and end.node else source
        target = f"{self.at(op.path)}.{component(found.port)}"
        node, _, port = source.rpartition(".") if end and end.node else ("", "", source)
        given = port if port != found.port else node.rpartition("/")[2] or "given"
        return Diagnostic(
            f"cannot connect {source!r} to {target!r}." if node else f"the input {port!r} does not fit {target!r}.",
            ((given, str(spec)), (found.port, found.need + (f"      {found.detail}" if found.detail else ""))),
            found.advice,
            block=self.at(op.path),
            port=found.port,
            edge=(source, target),
            code="ShapeError",
        )

    def unmet(self, op: FlatOp, outputs: Mapping[str, TensorSpec], found: MismatchError) -> Diagnostic:
        """Return the problem of an op that cannot give the shapes that other blocks need of it."""
        readers = [
            f"{self.at(one.path)}.{component(port)}"
            for one in self.flat.ops
            for port in (port for port, end in one.sources.items() if end.node == op.path)
        ]
        return Diagnostic(
            f"{op.block.kind} at {self.at(op.path)!r} cannot give the shape that is needed.",
            (
                ("needed by", ", ".join(readers) or "set_shapes"),
                *((port, str(spec.shape)) for port, spec in outputs.items()),
                (found.port, found.need + (f"      {found.detail}" if found.detail else "")),
            ),
            f"connect another output to {readers[0]!r}." if readers else found.advice,
            block=self.at(op.path),
            port=found.port,
            code="ShapeError",
        )

    def unset(self, op: FlatOp, found: MismatchError) -> Diagnostic:
        """Say that an attribute has no value, or one that does not do."""
        value = op.block.options.get(found.port)
        return Diagnostic(
            f"{op.block.kind} at {self.at(op.path)!r} cannot use {found.port}={value!r}.",
            ((found.port, found.need + (f"      {found.detail}" if found.detail else "")),),
            found.advice,
            block=self.at(op.path),
            port=found.port,
            code="ShapeError",
        )

    def result(self) -> Inference:
        blocks: dict[str, BlockSpecs] = {}
        for path, (sources, outputs) in self.flat.groups.items():
            blocks[path] = BlockSpecs(
                {port: self.known.get(end) for port, end in sources.items()},
                {},
                {port: self.known.get(end) for port, end in outputs.items()},
            )
        for op in self.flat.ops:
            found = self.found.get(op.path)
            shapes = {**found.params, **found.states} if found else {}
            blocks[op.path] = BlockSpecs(
                {port: self.known.get(end) for port, end in op.sources.items()},
                {port: TensorSpec(shapes[port], self.dtype) if port in shapes else None for port in op.arrays},
                {port.name: self.known.get(Endpoint(op.path, port.name)) for port in op.block.outputs},
            )
        blocks.update(self.inner)
        states = {name for name, array in self.arrays.items() if self.is_state(array)}
        inputs = {end.port: spec for end, spec in self.known.items() if end.node == BOUNDARY}
        return Inference(
            inputs,  # pyright: ignore
            {name: self.known.get(end) for name, end in self.flat.outputs.items()},
            blocks,
            tuple(array for name, array in self.arrays.items() if name not in states),
            tuple(self.problems),
            tuple(array for name, array in self.arrays.items() if name in states),
        )

    def is_state(self, array: Parameter) -> bool:
        return array.path in self.found and array.port in self.found[array.path].states
