"""All kinds of blocks by name. Check constructor calls, suggest valid ones, and rebuild blocks with other arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NoReturn

from mithril_nb.errors import (
    MithrilError,
    NameTakenError,
    UnknownBlockError,
    UnknownOptionError,
    alike,
    listed,
    short_repr,
    similar,
)
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.models.connection import Handle
from mithril_nb.models.fields import checked, example, fields_of

KINDS: dict[str, type[Any]] = {}
"""The class of each kind of block, by name."""
ELSEWHERE = {
    "dense": "Linear",
    "embed": "Embedding",
    "conv": "Conv2d",
    "matmul": "MatrixMultiply",
    "mseloss": "SquaredError",
    "crossentropyloss": "CrossEntropy",
    "multiheaddotproductattention": "MultiHeadAttention",
    "selfattention": "MultiHeadAttention",
    "attention": "MultiHeadAttention",
    "globalaveragepooling2d": "GlobalAvgPool2d",
    "maxpooling2d": "MaxPool2d",
    "averagepooling2d": "AvgPool2d",
    "swish": "SiLU",
    "exp": "Exponential",
    "sin": "Sine",
    "cos": "Cosine",
    "abs": "Absolute",
    "concatenate": "Concat",
    "cat": "Concat",
    "fullyconnected": "Linear",
    "fc": "Linear",
    "convolution": "Conv2d",
    "convolution1d": "Conv1d",
    "convolution2d": "Conv2d",
    "batchnormalization": "BatchNorm2d",
    "layernormalization": "LayerNorm",
    "groupnormalization": "GroupNorm",
    "skip": "ResidualBlock",
    "skipconnection": "Add",
    "shortcut": "Add",
    "residual": "Add",
    "sequential": "MLP",
    "repeat": "RepeatItems",
    "mse": "SquaredError",
    "lookup": "Embedding",
}
"""The kind of block for a layer's name in Flax, Equinox, Keras or PyTorch, in lower case without underscores."""


def kind_named(kind: str) -> type[Any]:
    """Return the class of the blocks of a kind, such as `"Linear"`.

    Examples:
        >>> import mithril_nb.models
        >>> kind_named("Linear").__name__
        'Linear'
    """
    if kind in KINDS:
        return KINDS[kind]
    near = suggested_kind(kind)
    raise UnknownBlockError(
        f"unknown kind of block {kind!r}.",
        (
            ("known kinds", "list(mithril_nb.models.KINDS)"),
            ("your own kinds", "first define or import the class"),
        ),
        f'kind="{near}"' if near else "list(ml.models.KINDS)  # one of these names",
    )


def suggested_kind(name: str) -> str | None:
    """Return the kind of block that a name probably means; `None` if no kind is similar.

    The name may have other capitals or underscores, be misspelt, or be the name in another library.

    Examples:
        >>> import mithril_nb.models
        >>> suggested_kind("ReLU"), suggested_kind("Dense"), suggested_kind("Linaer"), suggested_kind("Qxyzzy")
        ('Relu', 'Linear', 'Linear', None)
    """
    by_lower = ELSEWHERE | {kind.lower(): kind for kind in KINDS}
    lowered = name.lower().replace("_", "")
    return by_lower.get(lowered) or next((by_lower[match] for match in similar(lowered, by_lower)), None)


def construct(kind: str, graph: LogicalGraph | None, attributes: Mapping[str, Any]) -> Any:
    """Call the constructor of a kind of block, and return its result.

    Args:
        kind: Name of the kind.
        graph: The inner graph of a block that runs others, such as `Scan`: the constructor takes the blocks of this
            graph as arguments. `None` for other blocks.
        attributes: The other arguments.
    """
    constructor = kind_named(kind)
    parts = {} if graph is None else {node.name: constructor.of_block(node.block) for node in graph.nodes}
    return constructor(**parts, **attributes)


def refuse_second(new: type, category: str, name: str, old: type | None) -> None:
    """Raise if another class has registered a name.

    A class of the same module and name may replace the first one: running a notebook cell again redefines its classes.

    Args:
        new: The class to register.
        category: `"kind"` or `"op"`, for the message.
        name: The name to register.
        old: The class that has registered the name; `None` if no class has.
    """
    # A cell of a notebook that runs again defines a new class of the same name.
    if old is None or (old.__module__, old.__qualname__) == (new.__module__, new.__qualname__):
        return
    raise NameTakenError(
        f"cannot define {new.__name__}: the {category} {name!r} already exists.",
        (("defined by", f"{old.__module__}.{old.__qualname__}"),),
        f'op = "my_{name}"' if category == "op" else f"class My{name}(Operator)",
    )


_STARRED = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class BlockMeta(type):
    """The metaclass of `Model`: checks the arguments of constructors, because Python's error does not list them."""

    @property
    def __signature__(cls) -> inspect.Signature:
        # Without this property, `inspect` and Jupyter's help would show the arguments of `__call__` below.
        return _signature(cls.__init__)

    def __call__(cls, /, *args: Any, **named: Any) -> Any:
        """Construct a block, after checking the arguments against the signature of `__init__`."""
        try:
            cls.__signature__.bind(*args, **named)
        except TypeError as error:
            refuse_call(cls, error, args, named)
        model = super().__call__(*args, **named)
        # After all constructors: a subclass may add blocks after `super().__init__`.
        model._seal()
        return model


@lru_cache(maxsize=4096)
def _signature(constructor: Any) -> inspect.Signature:
    # Cached: reading a signature is slower than building a block.
    bound = inspect.signature(constructor)
    return bound.replace(parameters=list(bound.parameters.values())[1:])


def refuse_call(kind: type, error: TypeError, args: tuple[Any, ...], named: Mapping[str, Any]) -> NoReturn:
    """Raise an `UnknownOptionError` for an invalid constructor call."""
    parameters = inspect.signature(kind).parameters
    takes = ", ".join(str(parameter.replace(annotation=parameter.empty)) for parameter in parameters.values())
    arguments = listed([*map(short_repr, args), *(f"{name}={short_repr(value)}" for name, value in named.items())])
    free = [name for name, parameter in parameters.items() if parameter.kind not in _STARRED and name not in named]
    meant = {name: near[0] for name in named if name not in parameters and (near := alike(name, free))}
    raise UnknownOptionError(
        f"cannot make {kind.__name__}: {error}.",
        (("takes", takes or "nothing"), *((("given", arguments),) if args or named else ())),
        ", ".join(f"{near}={short_repr(named[name])}" for name, near in meant.items()) or example_call(kind),
    ) from None


def example_call(kind: type) -> str:
    """Return an example constructor call of a kind as source code. `...` marks an argument without an example.

    Examples:
        >>> from mithril_nb.models import Linear, Relu
        >>> example_call(Linear), example_call(Relu)
        ('Linear(dimension=64)', 'Relu()')
    """
    fields = {field.name: field for field in fields_of(kind)} if kind in KINDS.values() else {}
    needed: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        starts = name in fields and fields[name].start is not None and parameter.default is None
        if starts or (parameter.default is parameter.empty and parameter.kind not in _STARRED):
            needed[name] = example(fields[name]) if name in fields else ...
    arguments = (f"{name}={'...' if value is ... else repr(value)}" for name, value in needed.items())
    call = f"{kind.__name__}({', '.join(arguments)})"
    try:
        # The example is tried, because some arguments are valid only together.
        if ... not in needed.values():
            kind(**needed)
    except MithrilError as error:  # the error of a kind that takes blocks has an example
        advice = error.diagnostics[0].advice
        return advice if advice.startswith(f"{kind.__name__}(") else call
    return call


def with_attributes(model: Handle, changes: Mapping[str, Any]) -> Any:
    """Return a new model of the same kind with some attributes changed.

    Examples:
        >>> from mithril_nb.models import Linear
        >>> with_attributes(Linear(64), {"dimension": 128})
        Linear(dimension=128, use_bias=True, input_size=None)
    """
    if not model.block.attributes and changes:
        raise UnknownOptionError(
            f"{model.kind} has no attribute {next(iter(changes))!r}.",
            (("attributes", "none"),),
            "change the attributes of a block inside the model." if model.block.graph else f"{model.kind}()",
        )
    attributes = {**dict(model.block.attributes), **changes}
    runs_others = model.block.graph is not None and not model.block.is_composite
    if not runs_others:
        checked(model.kind, fields_of(kind_named(model.kind)), attributes)
    return construct(model.kind, model.block.graph if runs_others else None, {**attributes, "name": model.name})
