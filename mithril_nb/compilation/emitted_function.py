"""`EmittedFunction`: a function that JAX traces, and that runs as source of NumPy, PyTorch, MLX, C or GGML."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import jax
import numpy as np

from mithril_nb.backends.emitted import EmittedBackend
from mithril_nb.compilation.inspecting import inspect_program
from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.arrays.rules import Library
from mithril_nb.emission.c import compiling
from mithril_nb.emission.c.emit import emit
from mithril_nb.emission.ggml.emitter import emit_ggml
from mithril_nb.emission.python_text import load
from mithril_nb.emission.source import Source
from mithril_nb.errors import StageUnavailableError
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.stages.trace import traced


@dataclass(frozen=True)
class Loaded:
    """A program that is ready to run.

    Attributes:
        run: Function from the arrays of all arguments to a list of the arrays of the results.
        function: The emitted function. It takes the arguments by name, except arguments that contain no arrays. For C,
            it is `run`.
        results: Tree structure of the results.
        has_custom_gradients: True if an op has a hand-written gradient, which the library would not use.
    """

    run: Callable[..., list[Any]]
    function: Callable[..., Any]
    results: Any
    has_custom_gradients: bool


@dataclass(frozen=True)
class _Placeholder:
    shape: tuple[int, ...]
    dtype: Any


class EmittedFunction:
    """A function that runs as emitted source.

    The source is written and loaded for each new set of shapes and dtypes, and cached.

    Args:
        function: A function that JAX can trace. Its arguments and result are trees of arrays.
        name: Name of the program.
        graph: The model that the function belongs to.
        backend: The backend that runs the source.
        key_argument: Position of the argument that is a random key, passed as two `uint32`; `None` without a key.
        by_name: Function that converts each argument that is a dict to a flat dict of arrays; `None` if dicts need no
            conversion.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        graph: LogicalGraph,
        backend: EmittedBackend,
        key_argument: int | None = None,
        by_name: Callable[[Any], dict[str, Any]] | None = None,
    ):
        self._function, self._name, self._graph, self._backend = function, name, graph, backend
        self._key_argument, self._by_name = key_argument, by_name
        self._loaded: dict[Any, Loaded] = {}
        self._ready: dict[Any, Loaded] = {}  # for arguments that need no conversion, by their types too
        self._results: dict[Any, Any] = {}

    def __call__(self, *args: Any) -> Any:
        """Return the result of the function as a tree of arrays of the backend's library.

        Raises:
            UnsupportedPrimitiveError: The library cannot express a block.
        """
        with self._backend.on_device():
            arrays, structure = jax.tree.flatten(args)
            kinds = [(type(array), getattr(array, "shape", None), getattr(array, "dtype", None)) for array in arrays]
            key = structure, tuple(kinds)
            loaded = self._ready.get(key)
            if loaded is None:
                leaves, (arrays, structure) = arrays, self._flat(args)
                loaded = self._for(arrays, structure)
                if structure == key[0] and all(map(operator.is_, arrays, leaves)):
                    self._ready[key] = loaded
            return jax.tree.unflatten(loaded.results, loaded.run(*arrays))

    def prepare(self, *specs: Any) -> None:
        """Write and load the source for arguments of these shapes and dtypes, so that the first call need not.

        If the function rejects the arguments, do nothing: a call raises the error.

        Args:
            specs: A tree of `jax.ShapeDtypeStruct` for each argument; `None` for an argument that is `None`.

        Raises:
            UnsupportedPrimitiveError: The library cannot express a block.
        """
        leaves, structure = jax.tree.flatten(specs)
        with self._backend.on_device():
            items = [self._backend.from_numpy(np.zeros(1, jax.numpy.dtype(leaf.dtype))) for leaf in leaves]
            arrays = [_Placeholder(leaf.shape, item.dtype) for leaf, item in zip(leaves, items, strict=True)]
            key = _key(structure, arrays)
            if key in self._loaded:
                return
            try:
                program = self._traced(structure, arrays)
            except Exception:  # for example, a kernel needs integers, and the input has no declared dtype
                return
            self._loaded[key] = self._load(structure, program)

    def loaded(self, *args: Any) -> Loaded:
        """Return the program for these arguments, without running it."""
        with self._backend.on_device():
            return self._for(*self._flat(args))

    def results(self, *args: Any) -> Any:
        """Return the shapes and dtypes of the results, as a tree of `jax.ShapeDtypeStruct`.

        Raises:
            MithrilError: An error of the function itself, such as a wrong shape.
        """
        arrays, structure = self._flat(args)
        key = _key(structure, arrays)
        if key not in self._results:
            with precision(self._backend):
                self._results[key] = jax.eval_shape(self._function, *self._specs(structure, arrays))
        return self._results[key]

    def _for(self, arrays: list[Any], structure: Any) -> Loaded:
        key = _key(structure, arrays)
        if key not in self._loaded:
            self._loaded[key] = self._load(structure, self._traced(structure, arrays))
        return self._loaded[key]

    def _flat(self, args: tuple[Any, ...]) -> tuple[list[Any], Any]:
        """Return the leaves of the arguments as arrays of the library, and the tree structure."""
        if self._by_name is not None:
            args = tuple(self._by_name(arg) if isinstance(arg, Mapping) else arg for arg in args)
        leaves, structure = jax.tree.flatten(args)
        return [self._backend.as_own(array) for array in leaves], structure

    def _specs(self, structure: Any, arrays: list[Any]) -> tuple[Any, ...]:
        structs = [jax.ShapeDtypeStruct(tuple(array.shape), self._backend.spec_dtype(array)) for array in arrays]
        specs = list(jax.tree.unflatten(structure, structs))
        position = self._key_argument
        if position is not None and position < len(specs) and specs[position] is not None:
            specs[position] = jax.eval_shape(lambda: jax.random.key(0))
        while specs and specs[-1] is None:
            specs.pop()
        return tuple(specs)

    def _traced(self, structure: Any, arrays: list[Any]) -> traced.Program:
        with precision(self._backend):
            specs = self._specs(structure, arrays)
            try:
                return inspect_program(self._graph, self._name, self._function, specs, {}).traced_program
            except StageUnavailableError as error:
                failure = error
            jax.eval_shape(self._function, *specs)  # raises the error of the model itself, without the other one
            raise failure

    def _load(self, structure: Any, program: traced.Program) -> Loaded:
        backend = self._backend
        with precision(backend):
            is_custom = any(site.primitive.startswith("custom_vjp") for site in program.sites)
            results = jax.tree.structure(program.trace.traced.out_info)
            dtypes = [str(leaf.dtype) for leaf in jax.tree.leaves(program.trace.traced.out_info)]
            if backend.name == "c":
                file = emit(program)
                # The compiler takes seconds, so it runs at the first call.
                routine = cache(lambda: compiling.Routine(compiling.load({"model": file.source.text}), file))

                def call(*arrays: Any) -> list[Any]:
                    return routine()(*arrays)

                return Loaded(call, call, results, is_custom)
            function = backend.compiled(load(source_of(program, backend)))
            names = program.trace.arguments

        def run(*arrays: Any) -> list[Any]:
            trees = zip(names, jax.tree.unflatten(structure, arrays), strict=False)
            outputs = function(**{name: tree for name, tree in trees if jax.tree.leaves(tree)})
            return backend.finished([*_leaves(outputs)], dtypes)

        return Loaded(run, function, results, is_custom)


def source_of(program: traced.Program, backend: EmittedBackend) -> Source:
    """Write the source of a traced program for a backend."""
    if backend.name == "c":
        return emit(program).source
    return emit_ggml(program) if backend.name == "ggml" else emit_arrays(program, cast(Library, backend.name))


def precision(backend: EmittedBackend) -> AbstractContextManager[None]:
    """Return a context in which JAX uses 64-bit numbers if the dtype of the backend is float64."""
    return jax.enable_x64(backend.default_dtype == "float64")


def _key(structure: Any, arrays: list[Any]) -> Any:
    """Return the key of a loaded program in the cache. Dtypes are those of the library: to convert them takes time."""
    return structure, tuple([(tuple(array.shape), array.dtype) for array in arrays])


def _leaves(tree: Any) -> Iterator[Any]:
    """Yield the arrays of a result. Fields of a named tuple keep their order, which JAX would sort."""
    if isinstance(tree, dict | tuple | list):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from _leaves(part)
    elif tree is not None:  # an empty member, such as an `EmptyState` of optax
        yield tree
