"""A traced program with an array for each input, and the results that JAX computes for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np
from jax import export

from mithril_nb.cost.formulas.parsing import parse
from mithril_nb.errors import (
    MissingParameterError,
    ShapeError,
    StageUnavailableError,
    UnexpectedInputError,
    listed,
)
from mithril_nb.graph.spec import Dim
from mithril_nb.stages.trace import traced
from mithril_nb.stages.trace.tracing import Leaf

FILES = ("weights", "inputs", "expected")
"""Names of the files with arrays: parameters, other inputs, results."""
_KEY = "key<"
_DATA = ("inputs", "batch", "output_gradients")


@dataclass(frozen=True)
class StoredArray:
    """An input or a result of a program.

    Attributes:
        leaf: Its position in the arguments or results, with its spec.
        array: The value; for a random key, an array of its uint32 numbers.
        file: The file that contains the array, without a suffix: one of `FILES`.
        name: Name of the array in the file.
    """

    leaf: Leaf
    array: np.ndarray
    file: str
    name: str


@dataclass(frozen=True)
class StoredProgram:
    """A program with an array for each input and result.

    Attributes:
        traced: The program.
        inputs: The inputs, in the order of the program.
        outputs: The results, in the order of the program.
        sizes: The number that the arrays have for each symbolic size, by name.
    """

    traced: traced.Program
    inputs: tuple[StoredArray, ...]
    outputs: tuple[StoredArray, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the program."""
        return self.traced.trace.name

    @cached_property
    def arrays(self) -> Mapping[str, Mapping[str, np.ndarray]]:
        """The arrays by file and name."""
        entries = (*self.inputs, *self.outputs)
        return {file: {entry.name: entry.array for entry in entries if entry.file == file} for file in FILES}

    @property
    def is_wide(self) -> bool:
        """True if an array has items of 64 bits, which JAX creates only in its x64 mode."""
        return any(entry.array.dtype.itemsize == 8 for entry in (*self.inputs, *self.outputs))


def stored(program: traced.Program, values: Sequence[Any], sizes: Mapping[str, int]) -> StoredProgram:
    """Run a program, and return it with its inputs and results."""
    trace = program.trace
    random = np.random.default_rng(0)
    # The mode must be that of the trace: JAX would make 32 bits of 64.
    with x64_of(trace.inputs):
        args = [
            _placeholder(leaf, random, sizes) if value is None else _typed(leaf, value, sizes)
            for leaf, value in zip(trace.inputs, values, strict=True)
        ]
        inputs = [_numbers(arg) for arg in args]
        run = trace.call(trace.closed)
        results = _run(program, inputs, sizes) if sizes else jax.tree.leaves(jax.jit(run)(*args))
        outputs = [_numbers(result) for result in results]
    files = ["weights" if program_input.is_param else "inputs" for program_input in program.inputs]
    leaves = [(leaf, file) for leaf, file in zip(trace.inputs, files, strict=True)]
    leaves += [(leaf, "expected") for leaf in trace.outputs]
    entries = [
        StoredArray(leaf, array, file, name)
        for (leaf, file), array, name in zip(leaves, [*inputs, *outputs], _names(leaves), strict=True)
    ]
    return StoredProgram(program, tuple(entries[: len(inputs)]), tuple(entries[len(inputs) :]), sizes)


def exported(program: traced.Program) -> export.Exported:
    """Export a program with `jax.export`, as a function of its inputs. Random keys are arrays of uint32 numbers."""
    trace = program.trace
    # jax.export has no random keys among its inputs and results.
    are_keys = [leaf.spec.dtype.startswith(_KEY) for leaf in trace.inputs]
    run = trace.call(trace.closed)

    def main(*arrays: Any) -> Any:
        args = [
            jax.random.wrap_key_data(array) if is_key else array for array, is_key in zip(arrays, are_keys, strict=True)
        ]
        return [
            # A result may be a Python number.
            jax.random.key_data(result)
            if jax.numpy.issubdtype(getattr(result, "dtype", np.dtype("float32")), jax.dtypes.prng_key)
            else result
            for result in jax.tree.leaves(run(*args))
        ]

    with x64_of(trace.inputs):
        specs = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in trace.closed.in_avals]
        specs = [
            jax.eval_shape(jax.random.key_data, spec) if is_key else spec
            for spec, is_key in zip(specs, are_keys, strict=True)
        ]
        return export.export(jax.jit(main))(*specs)


def _run(program: traced.Program, inputs: Sequence[np.ndarray], sizes: Mapping[str, int]) -> Any:
    # The jaxpr of a program with symbolic sizes cannot run with numbers; its export can.
    try:
        return exported(program).call(*inputs)
    except Exception as error:  # of any type, from the lowering rule of a primitive
        raise StageUnavailableError(
            f"cannot export {program.trace.name!r} with names of sizes.",
            (("because", f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"),),
        ) from error


def shape_at(shape: Sequence[Dim], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return a shape with numbers, from numbers for its symbolic sizes.

    Examples:
        >>> shape_at(("2*batch", 3), {"batch": 8})
        (16, 3)
    """
    return tuple(parse(dim).evaluate(**sizes) if isinstance(dim, str) else dim for dim in shape)


def x64_of(leaves: Sequence[Leaf]) -> AbstractContextManager[Any]:
    """Return a context that turns on the x64 mode of JAX if a leaf has items of 64 bits."""
    return jax.enable_x64(True) if any(leaf.spec.dtype.endswith("64") for leaf in leaves) else nullcontext()


def _placeholder(leaf: Leaf, random: np.random.Generator, sizes: Mapping[str, int]) -> Any:
    # Other floats are between 0 and 1, because a program may take logarithms or square roots of them.
    shape, dtype = shape_at(leaf.spec.shape, sizes), leaf.spec.dtype
    if dtype.startswith(_KEY):
        keys = jax.random.split(jax.random.key(0), max(int(np.prod(shape)), 1))  # different ones, as in a program
        return keys.reshape(shape)
    if dtype.startswith(("float", "bfloat", "complex")):
        # Of a model, the data are normal, as its initial parameters expect.
        drawn = random.normal(size=shape) if leaf.argument in _DATA else random.random(shape)
        return jax.numpy.asarray(drawn, dtype)
    return jax.numpy.asarray(random.integers(0, 2, shape), dtype)  # labels and indices of any program


def _typed(leaf: Leaf, value: Any, sizes: Mapping[str, int]) -> Any:
    shape, dtype = shape_at(leaf.spec.shape, sizes), leaf.spec.dtype
    if dtype.startswith(_KEY):
        is_key = jax.numpy.issubdtype(getattr(value, "dtype", np.dtype("float32")), jax.dtypes.prng_key)
        return value if is_key else jax.random.wrap_key_data(jax.numpy.asarray(value, "uint32"))
    try:
        array = np.asarray(value)
        is_number = array.dtype.kind in "biufcV"  # "V": bfloat16 and other dtypes of ml_dtypes
    except (TypeError, ValueError):
        array, is_number = np.asarray(None), False
    if not is_number or array.shape != shape:
        raise ShapeError(
            f"{leaf.name} does not have the shape of the program's input.",
            (
                ("needs", f"{shape} {dtype}"),
                ("receives", f"{array.shape} {array.dtype}" if is_number else repr(value)[:80]),
            ),
        )
    return jax.numpy.asarray(array, dtype)


def _numbers(value: Any) -> np.ndarray:
    is_key = jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(value) if is_key else value)


def _names(leaves: Sequence[tuple[Leaf, str]]) -> list[str]:
    arguments: dict[str, set[str]] = {}
    for leaf, file in leaves:
        arguments.setdefault(file, set()).add(leaf.argument if leaf.keys else "")
    used: dict[str, set[str]] = {file: set() for file in FILES}
    names: list[str] = []
    for leaf, file in leaves:
        is_short = len(arguments[file]) == 1 or file == "expected"
        name = path_name(leaf.keys if is_short and leaf.keys else (leaf.argument, *leaf.keys))
        while name in used[file]:  # {"a.b": x, "a": {"b": y}}
            name += "_"
        used[file].add(name)
        names.append(name)
    return names


def path_name(keys: Sequence[str]) -> str:
    r"""Join keys with dots, and escape the characters that UTF-8 cannot encode.

    Examples:
        >>> path_name(["0", "linear.weight"]), path_name(["\udc80"])
        ('0.linear.weight', '\\udc80')
    """
    return ".".join(keys).encode(errors="backslashreplace").decode()


def by_name(tree: Any) -> dict[str, Any]:
    """Return the leaves of a pytree by dotted path. Callable leaves are left out."""
    return {
        jax.tree_util.keystr(path, simple=True, separator=".").removesuffix(".value"): leaf  # of an nnx variable
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
        if not callable(leaf)  # activation functions are leaves of an Equinox module
    }


def fill(values: list[Any], leaves: Sequence[tuple[int, str]], tree: Any, option: str, is_whole: bool) -> None:
    """Write arrays into `values`, matched by name. A single input can also be named `input`."""
    arrays, positions = by_name(tree), {name: position for position, name in leaves}
    if option == "inputs" and [*arrays] == ["input"] and len(positions) == 1:
        arrays = dict(zip(positions, arrays.values(), strict=True))
    for name, array in arrays.items():
        if name not in positions:
            raise UnexpectedInputError(
                f"ml.export: the program has no array {name!r} among its {option}.",
                (("has", listed(map(repr, positions))),),
            )
        values[positions[name]] = array
    missing = [name for name in positions if name not in arrays]
    if is_whole and missing:
        raise MissingParameterError(
            f"ml.export: {option} has no {missing[0]!r}.",
            (("missing", listed(map(repr, missing))), ("receives", listed(map(repr, arrays)))),
        )
