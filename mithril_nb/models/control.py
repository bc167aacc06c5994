"""Blocks that run other blocks: `Scan` runs a block along an axis, `Repeat` several times, `Cond` one of two blocks.

Each is one op with inner blocks. JAX traces it to one `lax.scan` or `lax.cond`, so the size of the compiled program
does not depend on the number of steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from mithril_nb.errors import NameTakenError, UnknownOptionError, short_repr
from mithril_nb.graph.edit import Draft
from mithril_nb.graph.records import Block, LogicalGraph, Port, Value
from mithril_nb.graph.spec import LEADING, UNKNOWN_SHAPE, Dim, Spec, StaticSpec, TensorSpec
from mithril_nb.models.fields import Range, fields_of, unmet_need
from mithril_nb.models.model import Model
from mithril_nb.models.naming import input_names
from mithril_nb.models.op import Operator
from mithril_nb.models.rules import BodyRules, Infer, Inference, InferredBody, Specs
from mithril_nb.models.shape_inference.dims import MismatchError, is_open, meet

__all__ = ["Cond", "Control", "Repeat", "Scan"]


class Control(BodyRules, Operator):
    """Base of the blocks that run other blocks. A subclass defines the shape rule, and may define the ports."""

    category: ClassVar[str] = ""

    def __init__(self, name: str | None, bodies: Mapping[str, Model], **attributes: Value):
        Model.__init__(self, name)
        draft = Draft(LogicalGraph())
        for part, model in bodies.items():
            self._check_body(part, model)
            ports = (*model.block.inputs, *model.block.outputs)
            draft.add(
                model.block,
                name=part,
                # The names make the ports of the inner graph independent of names that the user gave inside the body.
                connections={port.name: f"{part}_{port.name}" for port in ports if port.role == "data"},
            )
        graph = draft.graph()
        # Only data ports: the parameters inside are listed by the inner graph, as those of a composite.
        inputs, outputs = self.outer_ports(graph)
        self._block = Block(type(self).__name__, tuple(attributes.items()), inputs, outputs, op=self.op, graph=graph)

    @classmethod
    def _check_body(cls, part: str, model: object) -> None:
        arguments = f"{part}=Linear(64)" if part == "body" else "then=Relu(), otherwise=Tanh()"
        advice, failed = f"{cls.__name__}({arguments})", f"{cls.__name__} cannot run {short_repr(model)}"
        if not isinstance(model, Model):
            raise UnknownOptionError(f"{failed}.", (("needs", "a block"),), advice)
        if not model.outputs:
            raise UnknownOptionError(f"{failed}: it has no outputs.", (("needs", "a block with an output"),), advice)

    @classmethod
    def outer_ports(cls, graph: LogicalGraph) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
        """Return the inputs and outputs of a block with this inner graph. By default they are those of its body."""
        body = graph.by_name["body"].block
        return tuple(map(Port, input_names(body))), body.outputs


class Scan(Control):
    """Runs a block once per position along an axis, and passes its carry from each step to the next.

    Args:
        body: The block to run in each step.
        carry: Maps an output of the body to the input that receives it in the next step: `{"hidden": "prev_hidden"}`.
            The Scan's input `prev_hidden` is then the initial value, and its output `hidden` the final value.
        axis: The axis of the inputs to scan along. Outputs that are not carried are stacked along it.
        fixed: Inputs of the body that every step receives whole.

    Raises:
        UnknownOptionError: `carry` or `fixed` names a port that the body does not have, or all inputs of the body are
            carried or fixed.

    Examples:
        >>> from mithril_nb.models import Add, Model
        >>> total = Model()
        >>> total |= Add()(left="x", right="before", output="sum")
        >>> scan = Scan(total, carry={"sum": "before"}, axis=0)  # adds the items of x along axis 0
        >>> [port.name for port in scan.inputs], [port.name for port in scan.outputs]
        (['x', 'before'], ['sum'])
    """

    op = "scan"
    formula = "carry, y[t] = body(carry, x[t])"

    def __init__(
        self,
        body: Model,
        carry: Mapping[str, str] | None = None,
        axis: Annotated[int, Range(0, 16)] = 1,
        fixed: Sequence[str] = (),
        name: str | None = None,
    ):
        self._check_body("body", body)
        inputs, outputs = input_names(body.block), tuple(port.name for port in body.outputs)
        pairs = _pairs_of(carry)
        if not isinstance(fixed, list | tuple) or not all(isinstance(name, str) for name in fixed):
            raise UnknownOptionError(
                f"Scan cannot take fixed={short_repr(fixed)}.",
                (("needs", "a list of input names of the body"),),
                "Scan(body, fixed=['mask'])",
            )
        unscanned, axis = tuple(fixed), _checked(Scan, "axis", axis)
        facts = (("inputs", ", ".join(inputs) or "none"), ("outputs", ", ".join(outputs)))
        # All ports are checked before anything is traced, so that the message names the argument.
        for argument, names, available in (
            ("carry", pairs, outputs),
            ("carry", pairs.values(), inputs),
            ("fixed", unscanned, inputs),
        ):
            for port in sorted({*names} - {*available}):
                raise UnknownOptionError(
                    f"Scan cannot take {argument} of {port!r}: the body has no such port.",
                    facts,
                    f"{argument}=None" if argument == "carry" else f"fixed={[*inputs[-1:]]!r}  # or fixed=[]",
                    port=port,
                )
        for port, count in Counter((*pairs.values(), *{*unscanned})).items():
            if count > 1:
                raise UnknownOptionError(
                    f"Scan feeds the input {port!r} of its body twice.",
                    (("carry", str(pairs)), ("fixed", ", ".join(unscanned) or "none")),
                    port=port,
                )
        if {*inputs} <= {*pairs.values(), *unscanned}:
            raise UnknownOptionError(
                f"Scan cannot run {short_repr(body)}: no input is scanned along the axis.",
                (facts[0], ("carried or fixed", ", ".join((*pairs.values(), *unscanned)))),
                "Repeat(body, count=2)  # or a body with one more input, which Scan reads along the axis",
            )
        # Sorted, so that two equal blocks have equal attributes and files.
        super().__init__(name, {"body": body}, carry=tuple(sorted(pairs.items())), axis=axis, fixed=unscanned)

    @classmethod
    def fed_back(cls, block: Block) -> Mapping[str, str]:
        """Return the argument `carry`."""
        return dict(block.options["carry"])

    @classmethod
    def infer_body(cls, block: Block, specs: Specs, infer: Infer) -> InferredBody:
        """Remove the axis from the inputs, infer one step, and add the axis to the outputs that are not carried."""
        axis, carry = block.options["axis"], cls.fed_back(block)
        # A carried input has the shape of one step already, like a fixed one.
        unscanned = {*carry.values(), *block.options["fixed"]}
        # A named length becomes a number if another scanned input has one.
        length: Dim = "rounds"
        inner: dict[str, TensorSpec] = {}
        for port, spec in specs.items():
            # The axis counts from the start, so it cannot be removed from an open shape.
            if port in unscanned or LEADING in spec.shape:
                inner[port] = spec
                continue
            if len(spec.shape) <= axis:
                raise MismatchError(
                    port, f"at least {axis + 1} axes", f"axis={max(0, len(spec.shape) - 1)}", f"rank {len(spec.shape)}"
                )
            if isinstance(length, int) and isinstance(spec.shape[axis], int) and spec.shape[axis] != length:
                raise MismatchError(
                    port,
                    f"size {length} on axis {axis}, like the inputs before it",
                    f"fixed={[*block.options['fixed'], port]!r}  # or give all inputs the same length",
                    f"axis {axis}: {spec.shape[axis]} != {length}",
                )
            length = length if isinstance(length, int) else spec.shape[axis]
            inner[port] = TensorSpec((*spec.shape[:axis], *spec.shape[axis + 1 :]), spec.dtype)
        inferred = _infer_inside(block, inner, infer)
        outputs: dict[str, Spec] = {}
        for port in block.outputs:
            spec = inferred.outputs[f"body_{port.name}"]
            if not isinstance(spec, TensorSpec):
                outputs[port.name] = _array_of(block, port.name, spec)
            elif port.name in carry:
                _check_same(carry[port.name], inner[carry[port.name]], spec)
                outputs[port.name] = spec
            elif is_open(spec.shape):
                outputs[port.name] = TensorSpec(UNKNOWN_SHAPE, spec.dtype)
            # The output of a step may have fewer axes than its input, for example a sum.
            elif len(spec.shape) < axis:
                raise MismatchError(
                    next(name for name in specs if name not in unscanned),
                    f"a body whose {port.name!r} has {axis} axes or more",
                    f"axis={len(spec.shape)}  # or a body that keeps the axes of its input",
                    f"each step returns {spec.shape}: axis {axis} is out of range",
                )
            else:
                outputs[port.name] = TensorSpec((*spec.shape[:axis], length, *spec.shape[axis:]), spec.dtype)
        return InferredBody(outputs, inferred)


class Repeat(Control):
    """Runs a block several times in a row, with parameters for each repetition, stacked along a new first axis.

    The first input of each repetition is the first output of the previous repetition. A deep model built with `Repeat`
    compiles to a small program.

    Args:
        body: The block to repeat. Its first output has the shape and dtype of its first input.
        count: Number of repetitions.
        is_shared: True if all repetitions share the parameters of one.

    Examples:
        >>> from mithril_nb.models import Linear
        >>> import mithril_nb as ml
        >>> pm = ml.compile(Repeat(Linear(8), 12), shapes={"input": [2, 8]})
        >>> [(one.name, one.spec.shape) for one in pm.parameters]
        [('repeat.body.weight', (12, 8, 8)), ('repeat.body.bias', (12, 8))]
        >>> [one.spec.shape for one in ml.compile(Repeat(Linear(8, input_size=8), 12, is_shared=True)).parameters]
        [(8, 8), (8,)]
    """

    op = "repeat"
    formula = "x = body(x), count times"

    def __init__(
        self, body: Model, count: Annotated[int, Range(1, 10_000)] = 2, is_shared: bool = False, name: str | None = None
    ):
        self._check_body("body", body)
        if not input_names(body.block):
            raise UnknownOptionError(
                f"Repeat cannot run {short_repr(body)}: no input can receive its output.",
                (("inputs", "none"),),
                "Repeat(Linear(64), count=2)",
            )
        options = {"count": count, "is_shared": is_shared}
        super().__init__(name, {"body": body}, **{key: _checked(Repeat, key, value) for key, value in options.items()})

    @classmethod
    def outer_ports(cls, graph: LogicalGraph) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
        """Return the ports of the body, with only its first output."""
        inputs, outputs = super().outer_ports(graph)
        return inputs, outputs[:1]

    @classmethod
    def fed_back(cls, block: Block) -> Mapping[str, str]:
        """Map the output to the first input, which reads it in the next repetition."""
        return {block.outputs[0].name: block.inputs[0].name}

    @classmethod
    def infer_body(cls, block: Block, specs: Specs, infer: Infer) -> InferredBody:
        """Infer one repetition, whose output must have the shape and dtype of the first input."""
        inferred = _infer_inside(block, specs, infer)
        first, out = block.inputs[0].name, block.outputs[0].name
        spec = inferred.outputs[f"body_{out}"]
        if isinstance(spec, TensorSpec):
            _check_same(first, specs[first], spec)
            spec = TensorSpec(meet(specs[first].shape, spec.shape, {}) or spec.shape, spec.dtype)
        else:
            spec = _array_of(block, out, spec)
        # The count stacks the parameters.
        return InferredBody({out: spec}, inferred, None if block.options["is_shared"] else block.options["count"])


class Cond(Control):
    """Runs one of two blocks, selected by a boolean that is known only at run time.

    Args:
        then: The block to run if `condition` is true.
        otherwise: The block to run if `condition` is false. Its outputs have the same names, shapes and dtypes.

    Examples:
        >>> from mithril_nb.models import Relu, Tanh
        >>> [port.name for port in Cond(Relu(), Tanh()).inputs]
        ['condition', 'input']
    """

    op = "cond"
    formula = "y = then(x) if condition else otherwise(x)"
    input_dtypes: ClassVar = {"condition": "bool", "*": "any"}

    def __init__(self, then: Model, otherwise: Model, name: str | None = None):
        super().__init__(name, {"then": then, "otherwise": otherwise})

    @classmethod
    def outer_ports(cls, graph: LogicalGraph) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
        """Return the inputs: `condition` and those of both blocks. Return the outputs, which both blocks have."""
        then, otherwise = (graph.by_name[part].block for part in ("then", "otherwise"))
        names = dict.fromkeys((*input_names(then), *input_names(otherwise)))
        for part, block in (("then", then), ("otherwise", otherwise)):
            if "condition" in input_names(block):
                raise NameTakenError(
                    "Cond cannot run a block with an input 'condition': Cond has an input of that name.",
                    ((part, ", ".join(input_names(block))),),
                    f"{part}=Model() | inner(condition='{part}_condition')  # inner is the block",
                    port="condition",
                )
        # `lax.cond` needs the same tree of results from both functions.
        first, second = ({port.name for port in block.outputs} for block in (then, otherwise))
        if first != second:
            raise UnknownOptionError(
                "Cond needs two blocks with the same outputs.",
                (("then", ", ".join(sorted(first))), ("otherwise", ", ".join(sorted(second)))),
                "otherwise.rename_keys(logits='output')  # or other names",
            )
        return (Port("condition"), *(Port(name) for name in names)), then.outputs

    @classmethod
    def infer_body(cls, block: Block, specs: Specs, infer: Infer) -> InferredBody:
        """Infer both blocks, whose outputs must have the same shapes and dtypes."""
        # A vector of conditions would need both blocks for each row: that is `Where`.
        if specs["condition"].shape not in ((), UNKNOWN_SHAPE):
            advice = "connect one boolean, such as the output of Equal() for two scalars."
            raise MismatchError("condition", "one boolean, of shape ()", advice)
        data = {port: spec for port, spec in specs.items() if port != "condition"}
        assert block.graph is not None
        inner = {
            f"{part}_{port}": spec
            for part in ("then", "otherwise")
            for port, spec in data.items()
            if port in {operand.name for operand in block.graph.by_name[part].block.inputs}
        }
        inferred = infer(block.graph, inner)
        outputs: dict[str, Spec] = {}
        for port in block.outputs:
            then, other = inferred.outputs[f"then_{port.name}"], inferred.outputs[f"otherwise_{port.name}"]
            if not isinstance(then, TensorSpec) or not isinstance(other, TensorSpec):
                outputs[port.name] = _array_of(block, port.name, other if isinstance(then, TensorSpec) else then)
                continue
            # Named sizes may turn out to be equal.
            both = meet(then.shape, other.shape, {})
            if both is None or then.dtype != other.dtype:
                raise MismatchError(
                    block.inputs[-1].name,
                    f"two blocks with the same {port.name!r}",
                    "use two blocks that return the same shape and dtype.",
                    f"then returns {then}, otherwise returns {other}",
                )
            outputs[port.name] = TensorSpec(both, then.dtype)
        return InferredBody(outputs, inferred)


def _pairs_of(carry: object) -> dict[str, str]:
    # A model file stores `carry` as pairs of output and input.
    argument: Any = () if carry is None else carry
    try:
        # `dict("")` would be no error.
        pairs = [] if isinstance(argument, str) else [*dict(argument).items()]
        fits = not isinstance(argument, str) and all(isinstance(name, str) for pair in pairs for name in pair)
    except (TypeError, ValueError):
        pairs, fits = [], False
    if not fits:
        raise UnknownOptionError(
            f"Scan cannot take carry={short_repr(carry)}.",
            (("needs", "a dict from an output of the body to the input that receives it in the next step"),),
            "Scan(body, carry={'hidden': 'prev_hidden'})",
        )
    return dict(pairs)


def _checked(kind: type, name: str, value: Any) -> Any:
    field = next(field for field in fields_of(kind) if field.name == name)
    if need := unmet_need(field, value):
        raise UnknownOptionError(
            f"{kind.__name__} cannot take {name}={short_repr(value)}.",
            (("needs", need),),
            f"{kind.__name__}(body, {name}={field.default})",
        )
    return value if isinstance(value, bool) else int(value)


def _array_of(block: Block, output: str, spec: Spec | None) -> TensorSpec:
    # JAX carries arrays from step to step, and a static value is no array.
    if isinstance(spec, StaticSpec):
        raise MismatchError(
            block.inputs[-1].name,
            "a body that returns arrays",
            f"compute {output!r} outside of {block.kind}.",
            f"{output!r} of the body is a static value",
        )
    return TensorSpec(UNKNOWN_SHAPE)


def _infer_inside(block: Block, specs: Specs, infer: Infer) -> Inference:
    assert block.graph is not None
    return infer(block.graph, {f"body_{port}": spec for port, spec in specs.items()})


def _check_same(port: str, before: TensorSpec, after: TensorSpec | StaticSpec) -> None:
    if isinstance(after, TensorSpec) and (meet(before.shape, after.shape, {}) is None or before.dtype != after.dtype):
        raise MismatchError(
            port,
            f"{after.shape} {after.dtype!s}: each step receives the output of the step before",
            "use a body whose output has the shape and dtype of its input, or another initial value.",
        )
