"""Shape inference: find the spec of every connection of a graph, and report all mismatches together.

Specs propagate forward, from inputs to outputs, and backward, where a block or the user restricts an input, until
nothing changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mithril_nb.errors import Diagnostic, UnknownDtypeError, UnknownOpError, short_repr
from mithril_nb.graph.edit import annotate
from mithril_nb.graph.paths import component
from mithril_nb.graph.records import BOUNDARY, BlockSpecs, Endpoint, LogicalGraph, Note
from mithril_nb.graph.spec import (
    ITEM_BYTES,
    UNKNOWN_SHAPE,
    Dim,
    Dims,
    Spec,
    StaticSpec,
    TensorSpec,
)
from mithril_nb.models.fields import fields_of, unmet_need
from mithril_nb.models.initializers import Initializer, initializer_of
from mithril_nb.models.registry import KINDS
from mithril_nb.models.rules import OPS, UNKNOWN, BodyRules, Inference, Inferred, OpRules, Parameter
from mithril_nb.models.shape_inference.dims import MismatchError, UnknownShapeError, agree, meet, renamed
from mithril_nb.models.shape_inference.dtypes import input_dtype, promoted
from mithril_nb.models.shape_inference.flat import (
    Flat,
    FlatOp,
    activated,
    activated_inside,
    flat,
    is_activated,
    origin,
)
from mithril_nb.models.shape_inference.folding import FOLDS, as_arrays, folded


def _kind(dtype: str) -> str:
    return "whole numbers" if "int" in dtype else "booleans" if dtype == "bool" else "floating-point numbers"


def _rule_of(op: FlatOp) -> type[OpRules]:
    if op.block.op not in OPS:
        raise UnknownOpError(
            f"block {op.path!r} has an unknown op {op.block.op!r}.",
            (("known ops", "list(mithril_nb.models.op.OPS)"),),
            "list(ml.models.op.OPS)  # one of these names",
            block=op.path,
        )
    return OPS[op.block.op]


_ROUNDS = 50
"""Maximum number of forward and backward passes. Few are needed; the limit stops a rule that changes its result."""


def with_param_shapes(graph: LogicalGraph, specs: Mapping[str, TensorSpec]) -> LogicalGraph:
    """Return the graph with the shapes in `specs` declared for its parameters."""
    for port in graph.inputs:
        if port.role == "param" and port.name in specs:
            graph = annotate(graph, Endpoint(BOUNDARY, port.name), shape=specs[port.name].shape)
    return graph


def infer(
    graph: LogicalGraph,
    inputs: Mapping[str, TensorSpec],
    dtype: str = "float32",
    *,
    prefix: str = "",
    activated_outputs: Collection[str] = (),
) -> Inference:
    """Infer the specs of all connections and parameters of a graph. The result contains mismatches as problems.

    Args:
        graph: The graph.
        inputs: Spec by input, or by parameter of the graph. An input that is left out has an unknown shape.
        dtype: Dtype of parameters, and of inputs whose blocks do not require another.
        prefix: Path of the block that contains the graph, for messages.
        activated_outputs: Names of the outputs that an activation outside the graph reads, which affects initializers.

    Examples:
        >>> from mithril_nb.models import Linear
        >>> found = infer(Linear(10).graph, {"input": TensorSpec(("batch", 784))})
        >>> found.outputs["output"], found.parameters[0].spec
        (('batch', 10) float32, (784, 10) float32)
    """
    graph = with_param_shapes(graph, inputs)
    work = _Work(flat(graph), dtype, prefix, activated(flat(graph), activated_outputs))
    for port in graph.inputs:
        if port.role == "data":
            end = Endpoint(BOUNDARY, port.name)
            spec = inputs.get(port.name) or TensorSpec(UNKNOWN_SHAPE, input_dtype(graph, port.name, dtype))
            work.specs[end] = spec
    work.solve()
    return work.result()


@dataclass
class _Work:
    flat: Flat
    dtype: str
    prefix: str = ""
    activated: set[Endpoint] = field(default_factory=set[Endpoint])
    specs: dict[Endpoint, Spec | None] = field(default_factory=dict)  # `None` after a mismatch
    needed: dict[Endpoint, Dims] = field(default_factory=dict)  # the shapes that readers require
    names: dict[str, Dim] = field(default_factory=dict)  # the sizes found for names
    arrays: dict[str, Parameter] = field(default_factory=dict)  # parameters and states by name
    sizes: dict[str, TensorSpec] = field(default_factory=dict)  # specs of arrays that blocks read as inputs
    inferred: dict[str, Inferred] = field(default_factory=dict)  # results of shape rules, by path of the op
    problems: list[Diagnostic] = field(default_factory=list)
    inner: dict[str, BlockSpecs] = field(default_factory=dict)  # specs inside blocks that run others, by path

    def at(self, path: str) -> str:
        """Return a path relative to the outermost model."""
        return f"{self.prefix}/{path}" if self.prefix else path

    def solve(self) -> None:
        """Propagate forward and backward until nothing changes."""
        for _ in range(_ROUNDS):
            self.arrays, self.inferred, self.problems = {}, {}, []
            for end in [end for end in self.specs if end.node == BOUNDARY]:
                self.specs[end] = self.with_note(end, self.specs[end])
            for op in self.flat.ops:
                self.forward(op)
            # An array is missing if a mismatch stopped all blocks that read it.
            sizes = {name: self.arrays[name].spec for name in self.sizes if name in self.arrays}
            is_changed, self.sizes = sizes != self.sizes, sizes
            if self.problems or not (self.backward() or is_changed):
                return

    def forward(self, op: FlatOp) -> None:
        rule = _rule_of(op)
        data = {port.name: self.spec_of(op, port.name) for port in op.block.inputs if port.role == "data"}
        available = {port: spec for port, spec in data.items() if spec is not None}
        outputs = op.outputs.values()
        if len(available) < len(data):
            self.specs.update(dict.fromkeys(outputs))  # the mismatch that caused this is already recorded
            return
        if op.block.op in FOLDS and all(isinstance(spec, StaticSpec) for spec in available.values()):
            self.specs.update(dict.fromkeys(outputs, folded(op.block.op, available)))
            return
        try:
            options = self.options(op)
            specs: dict[str, Any] = available if rule.takes_values else {**as_arrays(available, self.dtype)}
            for port, spec in specs.items():
                expected = rule.required_dtype(port, self.dtype)
                if not isinstance(spec, TensorSpec) or expected == "any":
                    continue
                if (need := _kind(expected)) != _kind(spec.dtype) or "complex" in spec.dtype:
                    advice = f'x.cast("{expected}")  # or a Cast(dtype="{expected}") before it'
                    if port not in op.sources or not op.sources[port].node:
                        advice = f'array.astype("{expected}")  # or a separate input for this block'
                    raise MismatchError(port, f"{need} ({expected})", advice, str(spec.dtype))
            if rule.takes_values:
                connected = self.specs_at(op.sources)
                names = [port.name for port in op.block.inputs if port.role == "option"]
                specs = {**specs, **{name: connected[name] for name in names if connected.get(name) is not None}}
            try:
                inferred = self.body(op, rule, specs) if issubclass(rule, BodyRules) else rule.infer(options, specs)
            except UnknownShapeError:
                inferred = Inferred(dict.fromkeys(op.outputs, UNKNOWN_SHAPE))
            if not isinstance(inferred, Inferred):
                inferred = Inferred({"output": inferred})
            if inferred.params:  # a rule may return the shapes of all parameters that its kind can have
                own = {port.name for port in op.block.inputs if port.role == "param"}
                params = {port: shape for port, shape in inferred.params.items() if port in own}
                inferred = replace(inferred, params=params)
            for port, shape in {**inferred.params, **inferred.states}.items():
                fed = self.specs.get(op.sources[port]) if port in op.sources else None
                if isinstance(fed, TensorSpec) and not agree(fed.shape, shape):
                    raise MismatchError(port, str(shape), f"connect an array of shape {shape}, or leave {port!r} open.")
        except (MismatchError, UnknownDtypeError) as error:
            if isinstance(error, MismatchError):
                self.mismatch(op, error)
            else:
                self.problems.append(replace(error.diagnostics[0], block=self.at(op.path)))
            self.specs.update(dict.fromkeys(outputs))
            return
        self.inferred[op.path] = inferred
        floating = [
            spec.dtype
            for port, spec in specs.items()
            if port in data
            and isinstance(spec, TensorSpec)
            and rule.required_dtype(port, self.dtype) in ("any", self.dtype)
        ]
        dtype = promoted((*floating, *([self.dtype] if inferred.params or not floating else [])))
        for end in outputs:
            output = inferred.outputs[end.port]
            spec = output if isinstance(output, TensorSpec | StaticSpec) else TensorSpec(output, dtype)
            if end in self.needed and isinstance(spec, TensorSpec):
                both = meet(spec.shape, self.needed[end], self.names)
                spec = spec if both is None else replace(spec, shape=both)
            self.specs[end] = self.with_note(end, spec)
        for port, name in op.arrays.items():
            self.array(op, port, name, inferred, rule)

    def body(self, op: FlatOp, rule: type[BodyRules], specs: Mapping[str, TensorSpec]) -> Inferred:
        """Infer the inner graph of a block that runs others. Adds its arrays, specs and problems to this inference."""
        location = self.at(op.path)
        outputs = activated_inside(op, self.activated)
        inferred = rule.infer_body(
            op.block,
            specs,
            lambda graph, inputs: infer(graph, inputs, self.dtype, prefix=location, activated_outputs=outputs),
        )
        self.problems += inferred.inner.problems
        if inferred.inner.states:
            first = inferred.inner.states[0]
            self.report(
                f"the block {location!r} cannot repeat {first.path!r}, which has a state.",
                (("state", first.name),),
                "use blocks without a state, such as LayerNorm().",
                f"{location}/{first.path}",
            )
        for parameter in inferred.inner.parameters:
            shape = parameter.spec.shape if inferred.stacked is None else (inferred.stacked, *parameter.spec.shape)
            name, note = op.inner[parameter.name], self.flat.notes.get(op.inner[parameter.name])
            self.arrays[name] = replace(
                parameter,
                name=name,
                path=f"{op.path}/{parameter.path}" if parameter.path else op.path,
                spec=TensorSpec(shape, parameter.spec.dtype),
                initializer=initializer_of(note.initializer, parameter.initializer)
                if note and note.initializer
                else parameter.initializer,
                is_trainable=parameter.is_trainable and not (note and note.is_trainable is False),
                stacked=parameter.stacked + (inferred.stacked is not None),
            )
        for path, blocks in inferred.inner.blocks.items():
            self.inner[f"{op.path}/{path}"] = blocks
        return Inferred(inferred.outputs)

    def options(self, op: FlatOp) -> dict[str, Any]:
        """Return the attributes of an op. A connected attribute has the value from its connection, which is checked."""
        options = dict(op.block.attributes)
        for port in op.block.inputs:
            if port.role == "option" and port.name in op.sources:
                spec = self.specs.get(op.sources[port.name])
                options[port.name] = UNKNOWN
                if isinstance(spec, StaticSpec) and spec.is_known:
                    options[port.name] = value = spec.value
                    fields = fields_of(KINDS[op.block.kind]) if op.block.kind in KINDS else ()
                    is_name = isinstance(value, str) and value not in ITEM_BYTES  # of a size that is not known yet
                    for field in () if is_name else fields:
                        if field.name != port.name or field.type not in ("int", "float"):
                            continue
                        if need := unmet_need(field, value):
                            advice = f"connect a number, or leave {port.name!r} open."
                            raise MismatchError(port.name, need, advice, short_repr(value))
        return options

    def specs_at(self, ends: Mapping[str, Endpoint]) -> dict[str, Spec | None]:
        return {name: self.specs.get(end) for name, end in ends.items()}

    def spec_of(self, op: FlatOp, port: str) -> Spec | None:
        if port in op.sources:
            return self.specs.get(op.sources[port])
        # A data input that reads a trainable array: a parameter of another block, or a trainable input of the model.
        name = op.arrays[port]
        if name in self.sizes:
            return self.sizes[name]
        note = self.flat.notes.get(name, Note())
        return TensorSpec(UNKNOWN_SHAPE if note.shape is None else note.shape, note.dtype or self.dtype)

    def array(self, op: FlatOp, port: str, name: str, inferred: Inferred, rule: type[OpRules]) -> None:
        """Add a parameter or a state to `arrays`. Adds a problem if two blocks share it in two shapes."""
        shapes = {**inferred.params, **inferred.states}
        shape = shapes[port] if port in shapes else self.spec_of(op, port).shape  # pyright: ignore
        note = self.flat.notes.get(name)
        subject, end = f"the parameter {name!r}", Endpoint(op.path, port)
        if note and note.shape is not None:
            both = meet(shape, note.shape, {})
            if both is None:
                advice = f"model.set_shapes({{{name!r}: {list(shape)!r}}})  # or declare no shape"
                self.contradiction("shape", subject, str(note.shape), str(shape), advice, end)
            shape = shape if both is None else both
        if note and note.dtype not in (None, self.dtype):
            advice = f'ml.compile(model, ml.JaxBackend(dtype="{note.dtype}"))  # the dtype of all parameters'
            self.contradiction("dtype", subject, str(note.dtype), self.dtype, advice, end)
        trainable = port not in inferred.states and not (note and note.is_trainable is False)
        initializer = rule.initializers.get(port, Initializer("normal"))
        if rule.init_depends_on_reader and not is_activated(op, self.activated):
            # He's formula assumes an activation that halves the mean square. LeCun's assumes none.
            initializer = replace(initializer, name=initializer.name.replace("he_", "lecun_"))
        if note and note.initializer:
            initializer = initializer_of(note.initializer, initializer)
        if port not in shapes:
            self.sizes.setdefault(name, TensorSpec(shape, self.dtype))
        new = Parameter(name, op.path, port, TensorSpec(shape, self.dtype), initializer, trainable)
        first = self.arrays.setdefault(name, new)
        if port in shapes and first.port not in _rule_of(self.flat.op_at[first.path]).initializers:
            # A block that only reads the array came first. The block that owns it determines the initializer.
            self.arrays[name] = first = replace(new, spec=first.spec)
        if not first.spec.is_concrete and new.spec.is_concrete:
            self.arrays[name] = replace(first, spec=new.spec)
        elif not agree(first.spec.shape, new.spec.shape):
            self.report(
                f"the blocks {first.path!r} and {new.path!r} share {new.name!r} in two shapes.",
                ((f"{first.path}.{first.port}", str(first.spec)), (f"{new.path}.{new.port}", str(new.spec))),
                "give both blocks the same sizes, or give their parameters different names.",
                new.path,
                new.port,
            )

    def backward(self) -> bool:
        """Propagate shapes from the outputs of ops to their inputs. Return whether a shape changed."""
        changed = False
        for op in reversed(self.flat.ops):
            if op.path not in self.inferred:
                continue
            rule = OPS[op.block.op]
            if rule.refine.__func__ is OpRules.refine.__func__:  # pyright: ignore
                continue
            data = {p.name: spec for p in op.block.inputs if p.role == "data" and (spec := self.spec_of(op, p.name))}
            # An option such as the slope of a LeakyRelu may come from another block, too.
            both = *data.values(), *self.specs_at(op.sources).values(), *self.specs_at(op.outputs).values()
            if all(isinstance(spec, TensorSpec) and spec.is_concrete for spec in both):
                continue  # nothing is left to find, as in most ops
            inputs, outputs = (
                {port: spec for port, spec in specs.items() if isinstance(spec, TensorSpec)}
                for specs in (data if rule.takes_values else as_arrays(data, self.dtype), self.specs_at(op.outputs))
            )
            try:
                needs = rule.refine(self.options(op), inputs, outputs)
            except UnknownShapeError:
                continue
            except MismatchError as mismatch:
                readers = [
                    f"{self.at(reader.path)}.{component(port)}"
                    for reader in self.flat.ops
                    for port, end in reader.sources.items()
                    if end.node == op.path
                ]
                self.report(
                    f"{op.block.kind} at {self.at(op.path)!r} cannot output the required shape.",
                    (
                        ("required by", ", ".join(readers) or "set_shapes"),
                        *((port, str(spec.shape)) for port, spec in outputs.items()),
                        *mismatch.facts,
                    ),
                    f"connect another output to {readers[0]!r}." if readers else mismatch.advice,
                    self.at(op.path),
                    mismatch.port,
                )
                continue
            for port, shape in needs.items():
                if port in op.sources:
                    changed = self.restrict(op.sources[port], shape) or changed
        if self.names:
            for end, spec in self.specs.items():
                if isinstance(spec, TensorSpec):
                    self.specs[end] = replace(spec, shape=renamed(spec.shape, self.names))
        return changed

    def restrict(self, end: Endpoint, shape: Dims) -> bool:
        """Combine the known shape of an endpoint with one that a block needs. Return whether it changed."""
        spec = self.specs.get(end)
        if not isinstance(spec, TensorSpec):
            return False
        names: dict[str, Dim] = {}
        both = meet(spec.shape, shape, names)
        if both is None or both == spec.shape:
            return False  # the forward pass reports mismatches
        self.names |= names
        self.needed[end] = both
        self.specs[end] = replace(spec, shape=both)
        return True

    def with_note(self, end: Endpoint, spec: Spec | None) -> Spec | None:
        """Return the spec of an endpoint, combined with the user's annotation. Adds a problem if they contradict."""
        note = self.flat.notes.get(end)
        if note is None or not isinstance(spec, TensorSpec):
            return spec
        location = self.at(origin(end)) if end.node else origin(end)
        both = spec.shape if note.shape is None else meet(spec.shape, note.shape, self.names)
        if both is None:
            instead = f"change the blocks or shapes that lead to {origin(end)!r}"
            instead = instead if end.node else "pass an input of the declared shape"
            advice = f"model.set_shapes({{{origin(end)!r}: {list(spec.shape)!r}}})  # or {instead}"
            self.contradiction("shape", repr(location), str(note.shape), str(spec), advice, end)
            both = spec.shape
        if end.node and note.dtype and note.dtype != spec.dtype:
            advice = f'x.cast("{note.dtype}")  # or a Cast(dtype="{note.dtype}") after it'
            self.contradiction("dtype", repr(location), note.dtype, str(spec), advice, end)
            return replace(spec, shape=both)
        return TensorSpec(both, note.dtype or spec.dtype)

    def contradiction(
        self, aspect: str, subject: str, declared: str, inferred: str, advice: str, end: Endpoint
    ) -> None:
        self.report(
            f"{subject}: declared {aspect} does not match the inferred {aspect}.",
            (("declared", declared), ("inferred", inferred)),
            advice,
            self.at(end.node) if end.node else "",
            end.port,
        )

    def mismatch(self, op: FlatOp, error: MismatchError) -> None:
        end, path = op.sources.get(error.port), self.at(op.path)
        if end is None and error.port not in op.arrays:
            subject = f"{op.block.kind} at {path!r} cannot use {error.port}={op.block.options.get(error.port)!r}."
            self.report(subject, error.facts, error.advice, path, error.port)
            return
        spec = self.specs.get(end) if end else self.spec_of(op, error.port)
        source = op.origins[error.port] if end else op.arrays[error.port]
        source = self.at(source) if end and end.node else source
        target = f"{path}.{component(error.port)}"
        node, _, port = source.rpartition(".") if end and end.node else ("", "", source)
        label = port if port != error.port else node.rpartition("/")[2] or "given"
        self.report(
            f"cannot connect {source!r} to {target!r}." if node else f"the input {port!r} does not fit {target!r}.",
            ((label, str(spec)), *error.facts),
            error.advice,
            path,
            error.port,
            (source, target),
        )

    def report(
        self,
        subject: str,
        facts: tuple[tuple[str, str], ...],
        advice: str,
        block: str,
        port: str = "",
        edge: tuple[str, str] | None = None,
    ) -> None:
        self.problems.append(Diagnostic(subject, facts, advice, block=block, port=port, edge=edge, code="ShapeError"))

    def result(self) -> Inference:
        blocks: dict[str, BlockSpecs] = {}
        for path, (sources, outputs) in self.flat.groups.items():
            blocks[path] = BlockSpecs(self.specs_at(sources), {}, self.specs_at(outputs))
        for op in self.flat.ops:
            inferred = self.inferred.get(op.path)
            shapes = {**inferred.params, **inferred.states} if inferred else {}
            params = {port: TensorSpec(shapes[port], self.dtype) if port in shapes else None for port in op.arrays}
            blocks[op.path] = BlockSpecs(self.specs_at(op.sources), params, self.specs_at(op.outputs))
        blocks.update(self.inner)
        states = {
            name
            for name, array in self.arrays.items()
            if array.path in self.inferred and array.port in self.inferred[array.path].states
        }
        inputs = {end.port: spec for end, spec in self.specs.items() if end.node == BOUNDARY}
        return Inference(
            inputs,  # pyright: ignore
            self.specs_at(self.flat.outputs),
            blocks,
            tuple(array for name, array in self.arrays.items() if name not in states),
            tuple(self.problems),
            tuple(array for name, array in self.arrays.items() if name in states),
        )
