"""Blocks that run other blocks: again and again along an axis, many times in a row, or one of two.

Each is one op with blocks inside. Their programs become one `lax.scan` or `lax.cond`, so that the size of what is
compiled does not grow with the number of rounds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, SupportsIndex

from mithril_nb.errors import NameTakenError, UnknownOptionError, short_repr
from mithril_nb.graph.draft import Draft
from mithril_nb.graph.records import Block, LogicalGraph, Port, Value
from mithril_nb.graph.spec import LEADING, Dim, Spec, StaticSpec, TensorSpec
from mithril_nb.models.dims import MismatchError, meet
from mithril_nb.models.fields import Range
from mithril_nb.models.model import Model
from mithril_nb.models.op import Operator, Specs

if TYPE_CHECKING:
    from mithril_nb.models.infer import Inference

__all__ = ["Cond", "Control", "Repeat", "Scan"]

Infer = Callable[[LogicalGraph, Mapping[str, TensorSpec]], "Inference"]
"""`infer`, handed in: it stands above this module."""


@dataclass(frozen=True)
class InferredBody:
    """What the rule of a control block finds.

    Attributes:
        outputs: Spec of each output.
        inner: What was inferred of the graph inside, for one round.
        stacked: How many arrays stand in the place of one of the parameters inside, along a new first axis; `None` for
            one that all rounds share.
    """

    outputs: Mapping[str, Spec]
    inner: Inference
    stacked: int | None = None
    problems: tuple[Any, ...] = field(default=())


class Control(Operator):
    """Base of the blocks that run other blocks: subclasses say what the ports are and what comes out."""

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
                connections={port.name: f"{part}_{port.name}" for port in ports if port.role == "data"},
            )
        self._block = type(self).made(draft.graph(), tuple(attributes.items()))

    @classmethod
    def _check_body(cls, part: str, model: object) -> None:
        """Raise if something is no block, or one that gives nothing."""
        if not isinstance(model, Model):
            raise UnknownOptionError(
                f"{cls.__name__} cannot run {short_repr(model)}.", (("needs", "a block"),), f"{part}=Linear(64)"
            )
        if not model.outputs:
            raise UnknownOptionError(
                f"{cls.__name__} cannot run {short_repr(model)}: it gives nothing.",
                (("needs", "a block with an output"),),
                f"{part}=Model() + Linear(64)",
            )

    @classmethod
    def made(cls, graph: LogicalGraph, attributes: tuple[tuple[str, Value], ...]) -> Block:
        """Return the block of what is inside and the attributes: also how a file makes it anew."""
        inputs, outputs = cls.ports(graph, dict(attributes))
        return Block(cls.__name__, attributes, inputs, outputs, op=cls.op, graph=graph)

    @classmethod
    def ports(cls, graph: LogicalGraph, options: Mapping[str, Value]) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
        """Return its inputs and outputs."""
        raise NotImplementedError

    @classmethod
    def fed_back(cls, block: Block) -> Mapping[str, str]:
        """Return, by output of what it runs, the input that gets it in the next round."""
        return {}

    @classmethod
    def infer_body(cls, block: Block, specs: Specs, infer: Infer) -> InferredBody:
        """Return what comes out, given the specs of what goes in.

        Raises:
            MismatchError: It cannot take such inputs.
        """
        raise NotImplementedError


class Scan(Control):
    """Runs a block along an axis: what it carries goes from each round to the next.

    Args:
        body: What runs in each round.
        carry: By output of the body, the input that gets it in the next round: `{"hidden": "prev_hidden"}`. That input
            is where the first round starts from; the output is what the last round gave.
        axis: Axis of the inputs that the rounds go along, and of the outputs that they give.
        fixed: Inputs of the body that every round gets whole.

    Raises:
        UnknownOptionError: The body has no such ports.

    Examples:
        >>> from mithril_nb.models import Add, Model
        >>> total = Model()
        >>> total |= Add()(left="x", right="before", output="sum")
        >>> [port.name for port in Scan(total, carry={"sum": "before"}, axis=0).inputs]
        ['x', 'before']
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
        inputs = {port.name: None for port in body.inputs if port.role == "data"}
        outputs = {port.name: None for port in body.outputs}
        pairs, whole, axis = _pairs(carry), _names(fixed), _whole("Scan", "axis", axis, 0, 16)
        advice = f"carry={{'{next(iter(outputs))}': '{list(inputs)[-1]}'}}" if len(inputs) > 1 else "leave carry= out."
        for what, given, known in (
            ("carry", pairs, outputs),
            ("carry", pairs.values(), inputs),
            ("fixed", whole, inputs),
        ):
            for port in sorted({*given} - {*known}):
                raise UnknownOptionError(
                    f"Scan cannot take {what} of {port!r}: the body has no such port.",
                    (("inputs", ", ".join(inputs) or "none"), ("outputs", ", ".join(outputs))),
                    advice if what == "carry" else f"fixed={list(inputs)[-1:]!r}  # or leave it out",
                    port=port,
                )
        for port, count in Counter((*pairs.values(), *{*whole})).items():
            if count > 1:
                raise UnknownOptionError(
                    f"Scan cannot hand two things to {port!r}, the input of its body.",
                    (("carry", str(pairs)), ("fixed", ", ".join(whole) or "none")),
                    "name it once, in carry= or in fixed=.",
                    port=port,
                )
        if {*inputs} <= {*pairs.values(), *whole}:
            raise UnknownOptionError(
                f"Scan cannot run {short_repr(body)}: no input of it goes along the axis.",
                (("inputs", ", ".join(inputs) or "none"), ("carried or fixed", ", ".join((*pairs.values(), *whole)))),
                "a body with one more input; or Repeat(body, count=2), which needs no axis."
                if inputs
                else "a body with an input, as Linear(64).",
            )
        super().__init__(name, {"body": body}, carry=tuple(sorted(pairs.items())), axis=axis, fixed=whole)

    @classmethod
    def ports(cls, graph: LogicalGraph, options: Mapping[str, Value]) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
        """Those of the body."""
        body = graph.by_name["body"].block
        return tuple(Port(port.name) for port in body.inputs if port.role == "data"), body.outputs

    @staticmethod
    def _axis(block: Block) -> int:
        axis = block.options["axis"]
        assert isinstance(axis, int)
        return axis

    @staticmethod
    def _carry(block: Block) -> dict[str, str]:
        pairs = block.options["carry"]
        assert isinstance(pairs, tuple)
        return {source: target for source, target in map(plain_names, pairs)}

    @classmethod
    def fed_back(cls, block: Block) -> Mapping[str, str]:
        """What it carries."""
        return cls._carry(block)

    @classmethod
    def infer_body(cls, block: Block, specs: Specs, infer: Infer) -> InferredBody:
        """The body's specs for one round; outputs that are not carried get the axis back."""
        axis, carry = cls._axis(block), cls._carry(block)
        whole = {*carry.values(), *plain_names(block.options["fixed"])}
        length: Dim = "rounds"
        inner: dict[str, TensorSpec] = {}
        for port, spec in specs.items():
            if port in whole or LEADING in spec.shape:
                inner[port] = spec
                continue
            if len(spec.shape) <= axis:
                raise MismatchError(
                    port, f"at least {axis + 1} axes", f"axis={max(0, len(spec.shape) - 1)}", f"axis {axis}"
                )
            if isinstance(length, int) and isinstance(spec.shape[axis], int) and spec.shape[axis] != length:
                raise MismatchError(
                    port,
                    f"size {length} on axis {axis}, as the inputs before it have",
                    "give all inputs the same length, or name this one in fixed=.",
                    f"axis {axis}: {spec.shape[axis]} != {length}",
                )
            length = length if isinstance(length, int) else spec.shape[axis]
            inner[port] = TensorSpec((*spec.shape[:axis], *spec.shape[axis + 1 :]), spec.dtype)
        found = _inside(block, "body", inner, infer)
        outputs: dict[str, Spec] = {}
        for port in block.outputs:
            spec = found.outputs[f"body_{port.name}"]
            if not isinstance(spec, TensorSpec):
                outputs[port.name] = _array(block, port.name, spec)
            elif port.name in carry:
                _same(carry[port.name], inner[carry[port.name]], spec)
                outputs[port.name] = spec
            elif spec.shape[:1] == (LEADING,):
                outputs[port.name] = TensorSpec((LEADING,), spec.dtype)
            elif len(spec.shape) < axis:
                raise MismatchError(
                    next(one for one in specs if one not in whole),
                    f"a body whose {port.name!r} has {axis} axes or more",
                    f"axis={len(spec.shape)}  # with that axis first; or a body that keeps its axes",
                    f"each round gives {spec.shape}, which has no place for axis {axis}",
                )
            else:
                outputs[port.name] = TensorSpec((*spec.shape[:axis], length, *spec.shape[axis:]), spec.dtype)
        return InferredBody(outputs, found, problems=found.problems)


class Repeat(Control):
    """Runs a block several times in a row, each time with parameters of its own: they are stacked along a first axis.

    What the body gives goes back into its first input. It is the way to a deep model whose program stays small.

    Args:
        body: What is repeated; its output has the shape of its first input.
        count: How many times.

    Examples:
        >>> from mithril_nb.models import Linear
        >>> import mithril_nb as ml
        >>> pm = ml.compile(Repeat(Linear(8), 12), shapes={"input": [2, 8]})
        >>> [(one.name, one.spec.shape) for one in pm.parameters]
        [('repeat.body.weight', (12, 8, 8)), ('repeat.body.bias', (12, 8))]
    """

    op = "repeat"
    formula = "x = body(x), count times"

    def __init__(self, body: Model, count: Annotated[int, Range(1, 10_000)] = 2, name: str | None = None):
        self._check_body("body", body)
        if not any(port.role == "data" for port in body.inputs):
            raise UnknownOptionError(
                f"Repeat cannot run {short_repr(body)}: no input takes its output back.",
                (("inputs", "none"),),
                "Repeat(Linear(64), count=2)",
            )
        super().__init__(name, {"body": body}, count=_whole("Repeat", "count", count, 1, 10_000))

    @classmethod
    def ports(cls, graph: LogicalGraph, options: Mapping[str, Value]) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
        """Those of the body; of its outputs the first."""
        body = graph.by_name["body"].block
        return tuple(Port(port.name) for port in body.inputs if port.role == "data"), body.outputs[:1]

    @classmethod
    def fed_back(cls, block: Block) -> Mapping[str, str]:
        """Its output is its first input."""
        return {block.outputs[0].name: block.inputs[0].name}

    @classmethod
    def infer_body(cls, block: Block, specs: Specs, infer: Infer) -> InferredBody:
        """The shape stays; there are `count` of each parameter."""
        found = _inside(block, "body", specs, infer)
        first, out = block.inputs[0].name, block.outputs[0].name
        spec = found.outputs[f"body_{out}"]
        if isinstance(spec, TensorSpec):
            _same(first, specs[first], spec)
            both = meet(specs[first].shape, spec.shape, {})
            shape = spec.shape if both is None else both
            return InferredBody({out: TensorSpec(shape, spec.dtype)}, found, _count(block), found.problems)
        return InferredBody({out: _array(block, out, spec)}, found, _count(block), found.problems)


class Cond(Control):
    """Runs one of two blocks, by a truth value that is known only when the program runs.

    Args:
        then: What runs if `condition` is true.
        otherwise: What runs if not. It gives outputs of the same names, shapes and dtypes.

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
    def ports(cls, graph: LogicalGraph, options: Mapping[str, Value]) -> tuple[tuple[Port, ...], tuple[Port, ...]]:
        """The condition, and those of both blocks."""
        then, otherwise = (graph.by_name[part].block for part in ("then", "otherwise"))
        names = dict.fromkeys(port.name for block in (then, otherwise) for port in block.inputs if port.role == "data")
        for part, block in (("then", then), ("otherwise", otherwise)):
            if any(port.name == "condition" and port.role == "data" for port in block.inputs):
                raise NameTakenError(
                    "Cond cannot run a block that has an input 'condition': its own is called so.",
                    ((part, ", ".join(port.name for port in block.inputs if port.role == "data")),),
                    f"{part}=Model() | inner(condition='{part}_condition')  # inner is the block",
                    port="condition",
                )
        if {port.name for port in then.outputs} != {port.name for port in otherwise.outputs}:
            raise UnknownOptionError(
                "Cond needs two blocks with the same outputs.",
                tuple(
                    (part, ", ".join(port.name for port in block.outputs))
                    for part, block in (("then", then), ("otherwise", otherwise))
                ),
                "rename the outputs of one: model.rename_keys(output='...').",
            )
        return (Port("condition"), *(Port(name) for name in names)), then.outputs

    @classmethod
    def infer_body(cls, block: Block, specs: Specs, infer: Infer) -> InferredBody:
        """The specs that both give."""
        if specs["condition"].shape not in ((), (LEADING,)):
            raise MismatchError("condition", "one truth value, of shape ()", "a block that gives one, as Equal()[0].")
        data = {port: spec for port, spec in specs.items() if port != "condition"}
        assert block.graph is not None
        given = {
            f"{part}_{port}": spec
            for part in ("then", "otherwise")
            for port, spec in data.items()
            if port in {one.name for one in block.graph.by_name[part].block.inputs}
        }
        found = infer(block.graph, given)
        outputs: dict[str, Spec] = {}
        for port in block.outputs:
            one, other = found.outputs[f"then_{port.name}"], found.outputs[f"otherwise_{port.name}"]
            if not isinstance(one, TensorSpec) or not isinstance(other, TensorSpec):
                outputs[port.name] = _array(block, port.name, other if isinstance(one, TensorSpec) else one)
                continue
            both = meet(one.shape, other.shape, {})
            if both is None or one.dtype != other.dtype:
                raise MismatchError(
                    block.inputs[-1].name,
                    f"two blocks that give the same {port.name!r}",
                    "blocks that give the same shape and dtype.",
                    f"then gives {one}, otherwise gives {other}",
                )
            outputs[port.name] = TensorSpec(both, one.dtype)
        return InferredBody(outputs, found, problems=found.problems)


def plain_names(value: Value) -> tuple[str, ...]:
    """Return names that stand in an attribute as texts."""
    assert isinstance(value, tuple)
    return tuple(str(one) for one in value)


def _pairs(carry: object) -> dict[str, str]:
    """What is carried, by output; a file has it as pairs.

    Raises:
        UnknownOptionError: It is no dict of names.
    """
    given: Any = () if carry is None else carry
    try:
        pairs = [] if isinstance(given, str) else [*dict(given).items()]
        fits = not isinstance(given, str) and all(isinstance(name, str) for pair in pairs for name in pair)
    except (TypeError, ValueError):
        pairs, fits = [], False
    if not fits:
        raise UnknownOptionError(
            f"Scan cannot take carry={short_repr(carry)}.",
            (("needs", "a dict: by output of the body, the input that gets it in the next round"),),
            "Scan(body, carry={'hidden': 'prev_hidden'})",
        )
    return dict(pairs)


def _names(fixed: object) -> tuple[str, ...]:
    if not isinstance(fixed, list | tuple) or not all(isinstance(name, str) for name in fixed):
        raise UnknownOptionError(
            f"Scan cannot take fixed={short_repr(fixed)}.",
            (("needs", "a list of names of inputs of the body"),),
            "Scan(body, fixed=['mask'])",
        )
    return tuple(fixed)


def _whole(kind: str, name: str, value: object, least: int, most: int) -> int:
    """A whole number, as a plain one.

    Raises:
        UnknownOptionError: It is none, or out of range.
    """
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or not least <= int(value) <= most:
        raise UnknownOptionError(
            f"{kind} cannot take {name}={short_repr(value)}.",
            (("needs", f"a whole number from {least} to {most}"),),
            f"{kind}(body, {name}={max(least, 1)})",
        )
    return int(value)


def _array(block: Block, output: str, spec: Spec | None) -> TensorSpec:
    """The spec of an output of which nothing is known, as what it follows from does not fit.

    Raises:
        MismatchError: It is no array: a program can hand only arrays from one round, or one branch, to the next.
    """
    if isinstance(spec, StaticSpec):
        raise MismatchError(
            block.inputs[-1].name,
            "a body that gives arrays",
            "take the shape outside, beside this block.",
            f"its {output!r} is a value that is no array, as a shape is",
        )
    return TensorSpec((LEADING,))


def _count(block: Block) -> int:
    count = block.options["count"]
    assert isinstance(count, int)
    return count


def _inside(block: Block, part: str, specs: Specs, infer: Infer) -> Inference:
    assert block.graph is not None
    return infer(block.graph, {f"{part}_{port}": spec for port, spec in specs.items()})


def _same(port: str, before: TensorSpec, after: TensorSpec | StaticSpec) -> None:
    """Raise if what a round gives cannot go into the next one."""
    if isinstance(after, TensorSpec) and (meet(before.shape, after.shape, {}) is None or before.dtype != after.dtype):
        raise MismatchError(
            port,
            f"{after.shape} {after.dtype!s}, as the body gives it",
            "a body that gives what it takes, or another start.",
            "each round must take what the one before gave",
        )
