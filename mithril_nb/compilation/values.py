"""The values inside a model for some inputs, and the block and equation that produce the first NaN or infinity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from mithril_nb.backends.jax.watch import Around, range_text
from mithril_nb.display import Shown
from mithril_nb.errors import Diagnostic
from mithril_nb.graph.paths import component
from mithril_nb.graph.records import BOUNDARY, Endpoint, LogicalGraph
from mithril_nb.models.saving.formats import source_lines
from mithril_nb.models.shape_inference.flat import Flat, FlatOp, flat, origin
from mithril_nb.program import Arrays
from mithril_nb.stages import jax_versions
from mithril_nb.stages.trace.provenance.frames import lines_of_traceback

ByPort = Mapping[str, Mapping[str, Any]]
"""Values by path of a block, then by port; those of the model's inputs are at `""`."""


@dataclass(frozen=True)
class Statistics:
    """Statistics of an array. `mean`, `std`, `min` and `max` are those of its finite elements, `None` without any.

    Attributes:
        shape: Shape of the array.
        dtype: Name of its dtype.
        mean: Mean, in float64. Of complex numbers, all statistics are those of the absolute values.
        std: Standard deviation, in float64.
        min: Smallest element.
        max: Largest element.
        zeros: Share of the elements that are 0; `None` for an array without elements.
        nan: Number of elements that are NaN.
        inf: Number of elements that are infinite.
    """

    shape: tuple[int, ...]
    dtype: str
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    zeros: float | None
    nan: int
    inf: int

    @classmethod
    def of(cls, array: Any) -> Statistics:
        """Return the statistics of an array of numbers or booleans.

        Examples:
            >>> import numpy as np
            >>> statistics = Statistics.of(np.array([0.0, 1.0, 3.0, np.inf]))
            >>> round(statistics.mean, 3), statistics.max, statistics.zeros, statistics.inf
            (1.333, 3.0, 0.25, 1)
        """
        numbers = np.asarray(array)
        exact = np.abs(numbers) if numbers.dtype.kind == "c" else numbers
        exact = exact if exact.dtype.kind in "iu" else exact.astype(np.float64)
        elements = exact[np.isfinite(exact)]
        nan = int(np.isnan(exact).sum())
        mean, std, least, most = (
            map(float, (elements.mean(dtype="float64"), elements.std(dtype="float64"), elements.min(), elements.max()))
            if elements.size
            else (None,) * 4
        )
        return cls(
            tuple(numbers.shape), str(numbers.dtype), mean, std, least, most,
            float((exact == 0).mean()) if exact.size else None, nan, exact.size - elements.size - nan,
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Return the statistics as plain data."""
        return asdict(self)


def histogram(array: Any, bins: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the number of finite elements in each bin, and the edges; of complex numbers those of the absolute values.

    Examples:
        >>> [numbers.tolist() for numbers in histogram([0.0, 0.5, 4.0, np.nan], 2)]
        [[2, 1], [0.0, 2.0, 4.0]]
    """
    numbers = np.asarray(array)
    exact = (np.abs(numbers) if numbers.dtype.kind == "c" else numbers).astype(np.float64)
    exact = exact[np.isfinite(exact)]
    # A power of 2 changes no digit, and keeps the range of extreme numbers finite.
    exponent = int(np.frexp(np.abs(exact).max(initial=0))[1]) + 1
    scaled = np.ldexp(exact, -exponent)
    least, most = (scaled.min(), scaled.max()) if scaled.size else (0.0, 0.0)
    margin = 0.5 if least == most else 0.0
    if margin == 0 and (np.diff(np.linspace(least, most, bins + 1)) <= 0).any():
        margin = bins * np.spacing(max(abs(least), abs(most)))  # NumPy refuses a range without room for the bins
    counts, edges = np.histogram(scaled, bins, (least - margin, most + margin))
    return counts, np.ldexp(edges, exponent)


def is_numeric(value: Any) -> bool:
    """Return whether a value is an array of numbers or booleans: not a text, a tuple or random keys."""
    return isinstance(value, jax.Array | np.ndarray) and (
        jnp.issubdtype(value.dtype, jnp.number) or value.dtype == bool
    )


@dataclass(frozen=True, eq=False)
class TracedValues(Shown):
    """The output of each block of a model for some inputs, and the gradients of the loss with respect to them.

    Keys are paths of blocks, in the order in which the blocks run; a block is preceded by the blocks around it. The
    keys of a block with several outputs have the port: `"gru_0.hidden"`. Blocks inside a block that runs others, such
    as `Scan`, have no values, because they run several times.

    Attributes:
        values: The output of each block.
        gradients: The gradient of the loss with respect to each output of floating point; empty unless requested.
        outputs: The outputs of the model, by name.
        first_bad: The first block, in the order in which blocks run, whose output has NaN or infinite elements while
            its inputs have none; `None` if there is none. Its facts contain the equation and the line of Python. A
            model input with such elements comes before the blocks.
        first_bad_gradient: The same for gradients, in the order in which they are computed: from the loss backwards.
    """

    values: Mapping[str, Any]
    gradients: Mapping[str, Any]
    outputs: Mapping[str, Any]
    first_bad: Diagnostic | None
    first_bad_gradient: Diagnostic | None

    @cached_property
    def statistics(self) -> Mapping[str, Statistics]:
        """Statistics of each output that is an array of numbers or booleans."""
        return {name: Statistics.of(value) for name, value in self.values.items() if is_numeric(value)}

    @cached_property
    def gradient_statistics(self) -> Mapping[str, Statistics]:
        """Statistics of each gradient."""
        return {name: Statistics.of(value) for name, value in self.gradients.items()}

    def __repr__(self) -> str:
        gradients = f", {len(self.gradients)} gradients" if self.gradients else ""
        bad = self.first_bad or self.first_bad_gradient
        return f"{type(self).__name__}({len(self.values)} values{gradients}{f'; {bad.summary}' if bad else ''})"


@jax.tree_util.register_pytree_node_class
class _Static:
    """A value that is no array, such as the name of a dtype, as part of the result of a jitted function."""

    def __init__(self, value: Any):
        self.value = value

    def tree_flatten(self) -> tuple[tuple[()], Any]:
        return (), self.value

    @classmethod
    def tree_unflatten(cls, value: Any, children: tuple[()]) -> _Static:
        return cls(value)


def with_static(values: Any) -> Any:
    """Return values so that a jitted function can return them."""
    return jax.tree.map(lambda leaf: leaf if isinstance(leaf, jax.Array | np.ndarray) else _Static(leaf), values)


def without_static(values: Any) -> Any:
    """Undo `with_static`."""
    return jax.tree.map(
        lambda leaf: leaf.value if isinstance(leaf, _Static) else leaf,
        values,
        is_leaf=lambda leaf: isinstance(leaf, _Static),
    )


@jax.custom_vjp
def _tapped(array: Any, probe: Any) -> Any:
    # The gradient with respect to `probe` is that with respect to `array`. Adding a probe of zeros instead would turn
    # -0.0 into 0.0.
    return array


_tapped.defvjp(lambda array, probe: (array, None), lambda _, gradient: (gradient, gradient))


class Taps:
    """Records the outputs of all blocks while a program is traced.

    Attributes:
        values: The recorded values.
    """

    def __init__(self, probes: ByPort | None = None):
        self.values: dict[str, dict[str, Any]] = {}
        self._probes = probes or {}

    def record(self, path: str, values: Mapping[str, Any]) -> dict[str, Any]:
        """Record the outputs of a block, or at `""` the inputs of the model, and return them."""
        probes = self._probes.get(path, {})
        self.values[path] = {
            port: _tapped(value, probes[port]) if port in probes else value for port, value in values.items()
        }
        return self.values[path]

    def around(self, path: str, arrays: Arrays, run: Callable[[Arrays], Arrays]) -> Arrays:
        """Run a block and record its outputs; an `Around`."""
        return self.record(path, run(arrays))


def zero_probes(shapes: ByPort) -> dict[str, dict[str, jax.Array]]:
    """Return zeros for each recorded array of floating point, whose gradients are those of the arrays."""
    return {
        path: {
            port: jnp.zeros(spec.shape, spec.dtype)
            for port, spec in ports.items()
            if hasattr(spec, "dtype") and jnp.issubdtype(spec.dtype, jnp.floating)
        }
        for path, ports in shapes.items()
    }


def by_block(graph: LogicalGraph, by_port: ByPort) -> dict[str, Any]:
    """Return values by the path of each block, composite blocks included."""
    model = flat(graph)
    ends: dict[str, Mapping[str, Endpoint]] = {}
    for op in model.ops:
        parts = op.path.split("/")
        around = ("/".join(parts[:count]) for count in range(1, len(parts)))
        ends |= {path: model.groups[path][1] for path in around if path in model.groups and path not in ends}
        ends[op.path] = op.outputs
    ends |= {path: outputs for path, (_, outputs) in model.groups.items() if path not in ends}
    return {
        path if len(outputs) == 1 else f"{path}.{component(port)}": by_port[end.node][end.port]
        for path, outputs in ends.items()
        for port, end in outputs.items()
        if end.port in by_port.get(end.node, {})
    }


def _problem(summary: str, facts: tuple[tuple[str, str], ...] = (), block: str = "", port: str = "") -> Diagnostic:
    return Diagnostic(summary, facts, block=block, port=port, code="FloatingPointError")


class _Number(NamedTuple):
    """A value in an interpreted program, with the equation that computed it; `None` for an argument."""

    value: Any
    equation: Any = None
    operands: tuple[_Number, ...] = ()

    @property
    def is_bad(self) -> bool:
        return _is_bad(self.value)


def _is_bad(value: Any) -> bool:
    is_float = is_numeric(value) and jnp.issubdtype(value.dtype, jnp.inexact)
    return is_float and not bool(np.isfinite(np.asarray(value, "complex128")).all())


def _kind(*values: Any) -> str:
    has_nan = any(is_numeric(value) and Statistics.of(value).nan for value in values)
    return "NaN" if has_nan else "inf"


class BadValues:
    """Finds the first block and equation that produce NaN or an infinity.

    Args:
        graph: The model.
        values: The recorded values.
        replay: A function that runs the model with an `Around`, outside of jit.
        arrays: The model's parameters and states by name.
    """

    def __init__(
        self, graph: LogicalGraph, values: ByPort, replay: Callable[[Around], object], arrays: Mapping[str, Any]
    ):
        self._model: Flat = flat(graph)
        self._graph, self._values, self._replay, self._arrays = graph, values, replay, arrays

    def first(self) -> Diagnostic | None:
        """Return the first block whose output has such elements while its inputs have none."""
        for name, value in self._values[BOUNDARY].items():
            if _is_bad(value):
                return _problem(f"input {name!r} has {_kind(value)}.", (_fact(name, value),), port=name)
        for op in self._model.ops:
            bad = [port for port in op.outputs if _is_bad(self._values[op.path].get(port))]
            if bad and not any(_is_bad(self._values[end.node].get(end.port)) for end in op.sources.values()):
                name = origin(op.outputs[bad[0]])
                summary = f"{name!r} has {_kind(self._values[op.path][bad[0]])}, and the inputs of the block have none."
                return self._blamed(op, summary, bad[0], {}) or _problem(summary, block=op.path, port=bad[0])
        return None

    def first_gradient(self, gradients: ByPort, of_params: Mapping[str, Any]) -> Diagnostic | None:
        """Return the first block, from the loss backwards, whose backward pass produces such elements.

        Args:
            gradients: Gradients with respect to the recorded values.
            of_params: Gradients with respect to the parameters.
        """
        for name, end in self._model.outputs.items():
            gradient = gradients.get(end.node, {}).get(end.port)
            readers = [op for op in self._model.ops if end in op.sources.values()]
            if _is_bad(gradient) and not readers:
                facts = (_fact("gradient", gradient),)
                return _problem(f"the gradient of output {name!r} has {_kind(gradient)}.", facts, block=end.node)
        for op in reversed(self._model.ops):
            own = gradients[op.path]
            reached = [gradients.get(end.node, {}).get(end.port) for end in op.sources.values()]
            reached += [of_params.get(name) for name in op.arrays.values()]
            if any(map(_is_bad, reached)) and not any(map(_is_bad, own.values())):
                summary = f"the backward pass of {op.path!r} produces {_kind(*reached)} from finite gradients."
                if blamed := self._blamed(op, summary, "", own):
                    return blamed
        overflowing = [op.path for op in self._model.ops if any(map(_is_bad, gradients[op.path].values()))]
        if not overflowing:
            return None
        return _problem(f"the sum of the gradients of {overflowing[-1]!r} overflows.", block=overflowing[-1])

    def _blamed(self, op: FlatOp, summary: str, port: str, gradients: Mapping[str, Any]) -> Diagnostic | None:
        """Return the problem with the equation of a block that causes it; `None` if the block's results are finite."""
        numbers: list[_Number] = []

        def around(path: str, arrays: Arrays, run: Callable[[Arrays], Arrays]) -> Arrays:
            if path == op.path:
                numbers.extend(_interpreted(run, arrays, port, gradients))
            return self._values[path]

        self._replay(around)
        number = next((number for number in numbers if number.is_bad), None)
        if number is None:
            return None
        while number.equation is not None:
            bad = [operand for operand in number.operands if operand.is_bad and operand.equation is not None]
            if not bad:
                break
            # A NaN comes from an operand with NaN, if there is any.
            number = next((operand for operand in bad if _kind(operand.value) == _kind(number.value)), bad[0])
        advice = "robust=True" if op.block.options.get("robust") is False else ""
        return replace(_problem(summary, (*self._facts(op, number),), op.path, port), advice=advice)

    def _facts(self, op: FlatOp, number: _Number) -> Iterator[tuple[str, str]]:
        if number.equation is not None:
            operands = ", ".join(range_text(operand.value) for operand in number.operands)
            yield "equation", f"{number.equation.primitive.name} of {operands or 'constants'}"
            user = lines_of_traceback(number.equation.source_info.traceback, _START).user
            if user is not None:
                yield "line", f"{jax_versions.file_label(user.file)}:{user.line}"
        code, blocks = source_lines(self._graph)
        lines = {path: code.splitlines()[line - 1].strip() for line, path in blocks.items()}
        parts = op.path.split("/")
        around = ("/".join(parts[:count]) for count in range(len(parts), 0, -1))
        if line := next((lines[path] for path in around if path in lines), ""):
            yield "block", line
        for name in op.arrays.values():
            if _is_bad(self._arrays[name]):
                yield _fact(name, self._arrays[name])


def _interpreted(
    run: Callable[[Arrays], Arrays], arrays: Arrays, port: str, gradients: Mapping[str, Any]
) -> Sequence[_Number]:
    """Return an output of a block, or the gradients of its operands, with the equations that computed them."""
    leaves = {name: array for name, array in arrays.items() if isinstance(array, jax.Array)}
    fixed = {name: array for name, array in arrays.items() if name not in leaves}
    floats = {name: array for name, array in leaves.items() if jnp.issubdtype(array.dtype, jnp.floating)}
    others = {name: array for name, array in leaves.items() if name not in floats}

    def backward(floats: Arrays, gradients: Arrays) -> Any:
        def outputs(floats: Arrays) -> Any:
            results = run({**fixed, **others, **floats})
            return {name: results[name] for name in gradients}

        return jax.vjp(outputs, floats)[1](gradients)

    arguments = (floats, dict(gradients)) if gradients else (leaves,)
    closed = jax.make_jaxpr(backward if gradients else lambda leaves: run({**fixed, **leaves})[port])(*arguments)
    return _interpret(closed.jaxpr, closed.consts, [_Number(leaf) for leaf in jax.tree.leaves(arguments)])


# Frames outside this function belong to the caller, who did not create the equations.
_START = (_interpreted.__code__.co_filename, _interpreted.__code__.co_firstlineno)


def _interpret(jaxpr: Any, consts: Sequence[Any], arguments: Sequence[_Number]) -> list[_Number]:
    number_of: dict[Any, _Number] = dict(zip(jaxpr.constvars, map(_Number, consts), strict=True))
    number_of |= dict(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> _Number:
        return _Number(atom.val) if isinstance(atom, Literal) else number_of[atom]

    for equation in jaxpr.eqns:
        operands = tuple(map(read, equation.invars))
        bodies = jax_versions.bodies(equation)
        body = bodies[0][1] if len(bodies) == 1 and equation.primitive.name not in ("scan", "while") else None
        # A call: its equations are more exact than itself.
        if body is not None and len(jax_versions.open_jaxpr(body).invars) == len(operands):
            results = _interpret(jax_versions.open_jaxpr(body), getattr(body, "consts", ()), operands)
        else:
            # Of this equation alone, because `bind` needs other arguments in each version of JAX.
            variables = list(dict.fromkeys(jax_versions.variables(equation.invars)))
            alone = jaxpr.replace(
                constvars=[], invars=variables, outvars=equation.outvars, eqns=[equation], effects=equation.effects
            )
            run = jax_versions.jaxpr_as_fun(ClosedJaxpr(alone, ()))
            arrays = [number_of[var].value for var in variables]
            results = [_Number(value, equation, operands) for value in run(*arrays)]
        number_of |= dict(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _fact(name: str, value: Any) -> tuple[str, str]:
    return name, range_text(jnp.asarray(value))
