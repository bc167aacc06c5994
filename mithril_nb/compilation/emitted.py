"""`EmittedModel`: a model that runs as source of NumPy, PyTorch, MLX, C or GGML; JAX only traces it."""

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
from mithril_nb.compilation.compiled_model import Arrays, CompiledModel
from mithril_nb.compilation.inspecting import PROGRAMS, inspect_program
from mithril_nb.compilation.model import PhysicalModel, structs
from mithril_nb.compilation.torch_module import as_module
from mithril_nb.emission.arrays.emitter import emit_arrays
from mithril_nb.emission.arrays.rules import Library
from mithril_nb.emission.c import compiling
from mithril_nb.emission.c.emit import emit
from mithril_nb.emission.ggml.emitter import emit_ggml
from mithril_nb.emission.python_text import load
from mithril_nb.emission.source import Source
from mithril_nb.errors import StageUnavailableError
from mithril_nb.graph.records import LogicalGraph
from mithril_nb.inspection import Inspection
from mithril_nb.models.naming import by_port
from mithril_nb.stages.trace import traced


class EmittedModel(CompiledModel):
    """A model bound to a backend that runs emitted source.

    The source is written and loaded once for each new set of shapes. `compile` writes the source of the forward
    program if all shapes are known, else the first evaluation does. The source of the gradients is written when they
    are first requested.

    Attributes:
        traced: The same model bound to JAX, which traces it.
        backend: The backend that the model runs on.
    """

    backend: EmittedBackend

    def __init__(self, traced: PhysicalModel, backend: EmittedBackend):
        self.traced, self.backend, self.graph, self.inference = traced, backend, traced.graph, traced.inference
        self._programs = {
            # The key is argument 3 of `evaluate`; it is traced as a JAX key, and passed as an array.
            name: EmittedFunction(traced._evaluate, name, self.graph, backend, 3, self._arrays)
            for name in PROGRAMS
        }

    def emit_forward(self) -> None:
        """Write the source of the forward program. If a size is unknown, do nothing: the first evaluation writes it.

        Raises:
            UnsupportedPrimitiveError: The library cannot express a block.
        """
        traced = self.traced
        arrays = [*traced.input_specs.values(), *(parameter.spec for parameter in (*traced.parameters, *traced.states))]
        # Source is written for sizes, which are known with the first call.
        if not all(spec.is_concrete for spec in arrays):
            return
        params, inputs, _ = traced.example_specs()
        key = jax.ShapeDtypeStruct((2,), "uint32") if traced._draws else None
        state = structs({state.name: state.spec for state in traced.states}) or None
        self._programs["forward"].prepare(params, inputs, None, key, state)

    def emitted(self, function: Callable[..., Any], name: str, *, key_argument: int | None = None) -> EmittedFunction:
        """Return a function that runs `function` as emitted source. `EmittedFunction` documents the arguments."""
        return EmittedFunction(function, name, self.graph, self.backend, key_argument)

    def inspect(self, program: str = "forward") -> Inspection:
        """Return the stages of a program; `pm.inspect().stage("numpy")` is the source with links to the blocks.

        Args:
            program: `"forward"` or `"forward+backward"`.
        """
        with precision(self.backend):
            return self.traced.inspect(program)

    def source(self, program: str = "forward") -> str:
        """Return the source that runs, for the shapes that the model was compiled with.

        Args:
            program: `"forward"` or `"forward+backward"`.

        Raises:
            ShapeError: The shape of an input is not concrete.
            UnsupportedPrimitiveError: The library cannot express a block.
        """
        with precision(self.backend):
            return source_of(self.inspect(program).traced_program, self.backend).text

    # Parameters

    def randomize_params(self, seed: int | None = None) -> dict[str, Any]:
        """Return initial values for all parameters.

        Args:
            seed: The same seed gives the same values, on every backend. Default: the next number of the backend's
                random stream.

        Raises:
            ShapeError: The shape of a parameter is still unknown.
            UnknownOptionError: The seed is not an integer.
        """
        # JAX draws the values, so a seed gives the same parameters on all backends.
        seed = self.backend.next_seed() if seed is None else seed
        with precision(self.backend):
            return self._from_jax(self.traced.randomize_params(seed))

    def initial_state(self) -> dict[str, Any]:
        """Return the state before the first step; empty if the model has none."""
        with precision(self.backend):
            return self._from_jax(self.traced.initial_state())

    def _from_jax(self, values: Arrays) -> dict[str, Any]:
        return {name: self.backend.from_numpy(np.asarray(value)) for name, value in values.items()}

    def as_module(self, params: Arrays | None = None, state: Arrays | None = None) -> Any:
        """Return the model as a `torch.nn.Module` that runs the emitted source.

        The module works with `torch.compile`, `torch.autocast`, other devices and the optimizers of PyTorch. States,
        such as running statistics, become buffers. The methods `train` and `eval` of the module switch Dropout and the
        updates of states on and off.

        Args:
            params: Initial parameters by name; default: random values.
            state: Initial state by name; default: the state before training.

        Raises:
            UnknownOptionError: The model is compiled for another backend than PyTorch. The first run of the module
                raises this error if an op has a hand-written gradient, because `torch.autograd` would not use it.
        """
        params = self._arrays(self.randomize_params() if params is None else params)
        return as_module(self, params, self._arrays(self.initial_state() if state is None else state))

    # Running

    def evaluate(
        self,
        params: Arrays,
        inputs: Arrays,
        output_gradients: Arrays | None = None,
        *,
        state: Arrays | None = None,
    ) -> Any:
        """Return the outputs, and the gradients of the parameters if output gradients are passed.

        Args:
            params: Parameters by name, arrays of the backend's library.
            inputs: Arrays by input name.
            output_gradients: d(loss)/d(output) by output name. An output that is left out has gradient 0.
            state: State after training, for a model with a state such as running statistics. It does not change.

        Returns:
            A dict of outputs by name. With `output_gradients`, a pair: this dict, and a dict of gradients by parameter
            name.

        Raises:
            MissingInputError, UnexpectedInputError, MissingParameterError: Names are missing or unknown.
            ShapeError: Shapes do not match.
            UnsupportedPrimitiveError: The library cannot express a block or its gradients. Nothing has run.
        """
        key = None
        if self.traced._draws:
            key = self.backend.from_numpy(np.array([0, self.backend.next_seed()], np.uint32))
        forward, both = self._programs["forward"], self._programs["forward+backward"]
        if output_gradients is None:
            return forward(params, inputs, None, key, state)
        # The library's autograd would differentiate the emitted forward pass, and not use a hand-written gradient.
        if self.backend.grads == "jax" or forward.loaded(params, inputs, None, key, state).has_custom_gradients:
            return both(params, inputs, output_gradients, key, state)
        cotangents, held = self._arrays(output_gradients), None if state is None else self._arrays(state)
        params, inputs = self._arrays(params), self._arrays(inputs)
        # Traced by JAX without running, whose messages name ports and shapes.
        both.results(params, inputs, cotangents, key, held)  # checks the arguments
        names = by_port(cotangents, self.output_names, "output", argument="output_gradients")
        weights = {port: cotangents[name] for port, name in names.items()}
        return self.backend.differentiate(lambda params: forward(params, inputs, None, key, held), params, weights)

    def _first_params(self, inputs: Arrays) -> dict[str, Any]:
        calls, backend = self.traced._calls, self.backend
        with precision(self.backend):
            arrays = calls.inputs({name: backend.to_numpy(array) for name, array in self._arrays(inputs).items()})
            inference = calls.inferred(arrays)
            inference.raise_problems()
            return self._from_jax(self.traced.backend.initial_params(inference.parameters, backend.next_seed()))

    def _arrays(self, arrays: Arrays) -> dict[str, Any]:
        own: dict[str, Any] = {}
        for name, value in arrays.items():
            if isinstance(value, Mapping):
                own |= {f"{name}.{inner}": array for inner, array in self._arrays(value).items()}
            elif value is not None:
                own[name] = self.backend.as_argument(value)
        return own


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
    """A function that runs as emitted source."""

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
        """Return the result of the function as a tree of arrays of the backend's library."""
        with self._backend.on_device():
            arrays, structure = jax.tree.flatten(args)
            # With the types: a NumPy array of the same shape needs a conversion, one of the library does not.
            kinds = [(type(array), getattr(array, "shape", None), getattr(array, "dtype", None)) for array in arrays]
            key = structure, tuple(kinds)
            loaded = self._ready.get(key)
            if loaded is None:
                leaves, (arrays, structure) = arrays, self._flat(args)
                loaded = self._for(arrays, structure)
                # No argument was converted, so the next call with such arguments can skip the conversion.
                if structure == key[0] and all(map(operator.is_, arrays, leaves)):
                    self._ready[key] = loaded
            return jax.tree.unflatten(loaded.results, loaded.run(*arrays))

    def prepare(self, *specs: Any) -> None:
        """Write and load the source for arguments of these shapes and dtypes, so that the first call need not."""
        leaves, structure = jax.tree.flatten(specs)
        with self._backend.on_device():
            # One item is enough to find the dtype of the library.
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
        """Return the shapes and dtypes of the results, as a tree of `jax.ShapeDtypeStruct`."""
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
        if self._by_name is not None:
            args = tuple(self._by_name(arg) if isinstance(arg, Mapping) else arg for arg in args)
        leaves, structure = jax.tree.flatten(args)
        return [self._backend.as_own(array) for array in leaves], structure

    def _specs(self, structure: Any, arrays: list[Any]) -> tuple[Any, ...]:
        structs = [jax.ShapeDtypeStruct(tuple(array.shape), self._backend.spec_dtype(array)) for array in arrays]
        specs = list(jax.tree.unflatten(structure, structs))
        position = self._key_argument
        if position is not None and position < len(specs) and specs[position] is not None:
            # A JAX key has its own dtype, which no other library has.
            specs[position] = jax.eval_shape(lambda: jax.random.key(0))
        # Arguments at the end that are None are left out, so that source has no unused arguments.
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
            # Covers `jax.custom_vjp` and ops of `register_primitive` with a gradient.
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
    # With the dtypes of the library, because to convert them takes time in each call.
    return structure, tuple([(tuple(array.shape), array.dtype) for array in arrays])


def _leaves(tree: Any) -> Iterator[Any]:
    # Fields of a named tuple keep their order, which JAX would sort.
    if isinstance(tree, dict | tuple | list):
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from _leaves(part)
    elif tree is not None:  # an empty member, such as an `EmptyState` of optax
        yield tree
