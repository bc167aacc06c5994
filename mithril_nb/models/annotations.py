"""Methods of `Model` that annotate its connections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from mithril_nb.errors import ConnectionError, UnknownOptionError, listed, short_repr
from mithril_nb.graph.edit import annotate, annotate_array, composite, expose, find, label, merge, swap
from mithril_nb.graph.records import BOUNDARY, Block, Endpoint, LogicalGraph
from mithril_nb.graph.spec import Dim, as_dtype, as_shape
from mithril_nb.models.adding import with_dtype
from mithril_nb.models.initializers import FIXED, Initializer, initializer_text
from mithril_nb.models.rules import OPS
from mithril_nb.models.shape_inference.flat import flat


class AnnotationMethods:
    """Methods of `Model` that set shapes, dtypes, initializers and names, and choose trainable parameters and outputs.

    A call that raises an error changes nothing.
    """

    graph: LogicalGraph
    _block: Block

    def set_shapes(self, shapes: Mapping[str, Sequence[Dim]] | None = None, /, **more: Sequence[Dim]) -> Self:
        """Declare the shapes of connections. An unknown size is a name.

        Args:
            shapes: Shape by input or output, of the model (`"input"`) or of a block in it (`"linear_0.output"`).
            **more: More shapes, with names as keywords: `input=["batch", 784]`.

        Raises:
            ConnectionError: A name does not exist.
            UnknownOptionError: A shape is invalid, or `shapes` is not a dict.

        Examples:
            >>> from mithril_nb.models import Linear, Model
            >>> model = Model() | Linear(3)
            >>> model.set_shapes(input=["batch", 4]).graph.notes[0][1].shape
            ('batch', 4)
        """
        values = by_name("set_shapes", shapes, more, '{"input": ["batch", 784]}')
        return self._edit_each(
            lambda graph, name, shape: annotate(graph, find(graph, name), shape=as_shape(name, shape)), values.items()
        )

    def set_types(self, types: Mapping[str, Any] | None = None, /, **more: Any) -> Self:
        """Declare the dtypes of inputs, and of the output of a `Constant`: `set_types(tokens="int32")`.

        The dtype of a computed array is inferred from the block's inputs; `ml.compile` raises a `ShapeError` if it
        differs from the declared one.

        Args:
            types: Dtype by name of a connection.
            **more: More dtypes, with names as keywords.

        Raises:
            ConnectionError: A name does not exist.
            UnknownDtypeError: A dtype is unknown.
            UnknownOptionError: `types` is not a dict.
        """

        def edit(graph: LogicalGraph, name: str, dtype: Any) -> LogicalGraph:
            # A block that creates an array takes the dtype as its attribute. That of any other output is only checked.
            dtype, end = str(as_dtype(dtype)), find(graph, name)
            if end.node:
                graph = swap(graph, end.node, with_dtype(graph.by_name[end.node].block, end.port, dtype))
            return annotate(graph, end, dtype=dtype)

        return self._edit_each(edit, by_name("set_types", types, more, '{"tokens": "int32"}').items())

    def set_differentiability(self, settings: Mapping[str, bool] | None = None, /, **more: bool) -> Self:
        """Set whether training changes inputs and parameters.

        Args:
            settings: True or false by name: of an input, of a parameter (`"linear_0.weight"`), or of a block for all
                its parameters (`"linear_0"`).
            **more: More settings, with names as keywords.

        Raises:
            ConnectionError: A name does not exist.
            UnknownOptionError: `settings` is not a dict.
        """
        values = by_name("set_differentiability", settings, more, '{"linear_0.weight": False}')
        # Computed once: the edits do not rename parameters.
        arrays = dict.fromkeys(
            name for op in flat(self.graph).ops for name in (*op.arrays.values(), *op.inner.values())
        )

        def edit(graph: LogicalGraph, name: str, value: bool) -> LogicalGraph:
            # The dot at both ends: "linear_1" is no prefix of "linear_10.weight".
            own = sorted(array for array in arrays if f"{array}.".startswith(f"{name.replace('/', '.')}."))
            for array in own:
                graph = annotate_array(graph, array, is_trainable=bool(value))
            return graph if own else annotate(graph, find(graph, name), is_trainable=bool(value))

        return self._edit_each(edit, values.items())

    def set_initializers(
        self, initializers: Mapping[str, str | Initializer] | None = None, /, **more: str | Initializer
    ) -> Self:
        """Replace the default initializers of parameters.

        Args:
            initializers: Initializer by name of a parameter (`"linear_0.weight"`), or of a block for all its parameters
                with random defaults (`"linear_0"`). An initializer is a name from `mithril_nb.models.initializers`,
                optionally with arguments: `"normal(0.02)"`.
            **more: More initializers, with names as keywords.

        Raises:
            ConnectionError: A name is neither a parameter nor a block with random parameters.
            UnknownOptionError: An initializer is unknown, an argument of it is invalid, or `initializers` is not a
                dict.

        Examples:
            >>> from mithril_nb.models import Linear, Model
            >>> model = Model() | Linear(64, input_size=3)
            >>> model.set_initializers({"linear_0.weight": "he_normal"}).graph.notes[0][1].initializer
            'he_normal'
        """

        def edit(graph: LogicalGraph, name: str, initializer: str | Initializer) -> LogicalGraph:
            text, starts, dotted = initializer_text(initializer), _random_starts(graph), name.replace("/", ".")
            # A name of a block applies to random parameters only: biases stay zero and scales one.
            inside = [array for array, draws in starts.items() if draws and array.startswith(f"{dotted}.")]
            names = [dotted] if dotted in starts else inside
            if not names:
                raise ConnectionError(
                    f"the model has no parameter {name!r} to set an initializer for.",
                    (("parameters", listed(starts) or "none"),),
                    f"model.set_initializers({{{next(iter(starts), 'linear_0')!r}: {text!r}}})",
                )
            for array in names:
                graph = annotate(graph, Endpoint(BOUNDARY, array), initializer=text)
            return graph

        return self._edit_each(
            edit, by_name("set_initializers", initializers, more, '{"linear_0.weight": "he_normal"}').items()
        )

    def expose_keys(self, *names: str, **renamed: str) -> Self:
        """Make connections outputs of the model, even if a block reads them: `expose_keys("h", last="output")`.

        Args:
            names: Names of connections that become outputs.
            renamed: Connections that also get a new name: the new name is the keyword, the connection the value.

        Raises:
            ConnectionError: A connection does not exist or is an input, or a new name is not valid.
            NameTakenError: Another connection has the new name.
        """

        def edit(graph: LogicalGraph, name: str, new: str) -> LogicalGraph:
            end = find(graph, name)
            graph = expose(graph, end)
            return label(graph, end, new) if new else graph

        return self._edit_each(edit, [*((name, "") for name in names), *((old, new) for new, old in renamed.items())])

    def rename_keys(self, **names: str) -> Self:
        """Rename inputs and outputs: `rename_keys(input="image", output="logits")`.

        Args:
            names: The new name of each connection: the old name is the keyword.

        Raises:
            ConnectionError: A connection does not exist, or a new name is not valid.
            NameTakenError: Another connection has the new name.
        """
        return self._edit_each(lambda graph, old, new: label(graph, find(graph, old), new), names.items())

    def set_order(self, *names: str) -> Self:
        """Put inputs or outputs before the others, in this order.

        Args:
            names: Names of inputs or outputs.

        Raises:
            ConnectionError: A name does not exist.

        Examples:
            >>> from mithril_nb.models import Add, Model
            >>> model = Model() | Add()(left="x", right="y")
            >>> [port.name for port in model.set_order("y", "x").inputs]
            ['y', 'x']
        """
        # The last first, because each moves before all others.
        return self._edit_each(
            lambda graph, name, order: annotate(graph, find(graph, name), order=order),
            [(name, -1) for name in names[::-1]],
        )

    def merge_connections(self, *names: str) -> Self:
        """Merge connections into one: several inputs, or an output and the inputs that should read it.

        Args:
            names: Names of at least two connections.

        Raises:
            ConnectionError: A name does not exist, or two of the connections are outputs.
            CycleError: The merge would create a cycle.
        """
        return self._edit_each(
            lambda graph, first, second: merge(graph, find(graph, first), find(graph, second)),
            ((names[0], second) for second in names[1:]),
        )

    def _edit_each(
        self, edit: Callable[[LogicalGraph, str, Any], LogicalGraph], values: Iterable[tuple[str, Any]]
    ) -> Self:
        graph = self.graph
        for name, value in values:
            graph = edit(graph, name, value)
        self._block = composite(graph)
        return self


def by_name(setter: str, values: object, more: Mapping[str, Any], example: str) -> dict[str, Any]:
    """Return the values of a dict and of keyword arguments in one dict.

    Args:
        setter: Name of the method that received them, for the message.
        values: The dict, or `None`.
        more: The keyword arguments.
        example: A valid dict as source code, for the message.
    """
    if values is not None and not (isinstance(values, Mapping) and all(isinstance(name, str) for name in values)):
        raise UnknownOptionError(
            f"{setter} takes values by name, not {short_repr(values)}.",
            (("needs", "a dict with string keys"),),
            f"model.{setter}({example})",
        )
    return {**(values or {}), **more}


def _random_starts(graph: LogicalGraph) -> dict[str, bool]:
    starts: dict[str, bool] = {}
    for op in flat(graph).ops:
        rules = OPS[op.block.op].initializers
        for port, array in op.arrays.items():
            # The first block that uses a shared parameter initialises it.
            starts.setdefault(array, rules.get(port, Initializer("normal")).name not in FIXED)
        inner = _random_starts(op.block.graph) if op.inner and op.block.graph is not None else {}
        starts |= {op.inner[name]: draws for name, draws in inner.items() if name in op.inner}
    return starts
