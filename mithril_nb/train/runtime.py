"""Runtimes run the programs of training and own the arrays of a run: `Runtime` on JAX, or as emitted source."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mithril_nb.compilation.emitted import EmittedModel, precision
from mithril_nb.errors import UnknownOptionError
from mithril_nb.train.processes import distributed, is_key, local, numbers, placed_like
from mithril_nb.train.trainable import Trainable, is_jitted

# One program for a whole tree: JAX would dispatch `jnp.copy` once for each leaf.
_copy = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree))
_all_finite = jax.jit(lambda leaves: jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in leaves])))


class Runtime:
    """Runs the programs of training with JAX, on JAX arrays."""

    def __init__(self, model: Trainable):
        self.model = model

    def precision(self) -> AbstractContextManager[object]:
        """Return a context in which JAX traces with the dtypes of the backend; for JAX, it changes nothing."""
        return nullcontext()

    def compiled(
        self,
        function: Callable[..., Any],
        name: str,
        *,
        donated: tuple[int, ...] = (),
        key_argument: int | None = None,
    ) -> Callable[..., Any]:
        """Return a function as a program on arrays of the runtime, jitted unless the model has `jit=False`."""
        several = distributed().whole_outputs()
        # With several processes, only a jitted program can replicate its outputs on each of them.
        if not is_jitted(self.model) and not several:
            return function
        # A step runs on all processes; an evaluation runs on one, with separate arrays.
        outputs = several if donated else {}
        options = dict(getattr(getattr(self.model, "options", None), "compiler_options", {})) or None
        return jax.jit(function, donate_argnums=donated, compiler_options=options, **outputs)

    def arrays(self, tree: Any) -> Any:
        """Convert JAX arrays to arrays of the runtime."""
        return tree

    def rate(self, rate: float) -> Any:
        """Return a learning rate as an argument of a step."""
        # Weakly typed, like a Python number, so that a product keeps the dtype of the other operand.
        return jnp.asarray(rate)

    def copied(self, tree: Any) -> Any:
        """Return a tree that shares no memory with the given one, so that a step may overwrite one of them."""
        return _copy(tree)

    def restorer(self, tree: Any) -> Callable[[], Any]:
        """Return a function that restores a tree from a copy: on the host, unless several processes hold the arrays."""
        if distributed().count > 1:
            copy = self.copied(tree)
            return lambda: copy
        leaves, structure = jax.tree.flatten(tree)
        # A random key is small, and NumPy has no type for it. On CPUs, device_get can return the memory of the array.
        copies = [leaf if is_key(leaf) else np.array(leaf) for leaf in jax.device_get(leaves)]
        # Not the arrays themselves: the next step donates them. A spec keeps their devices and weak types.
        specs = [
            leaf
            if is_key(leaf)
            else jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding, weak_type=leaf.weak_type)
            for leaf in leaves
        ]

        def restored() -> Any:
            pairs = zip(copies, specs, strict=True)
            return structure.unflatten([spec if is_key(spec) else placed_like(copy, spec) for copy, spec in pairs])

        return restored

    def lent(self, tree: Any) -> Any:
        """Return arrays for the user: this process's copy of each array that several processes hold."""
        return local(tree)

    def saved(self, tree: Any) -> Any:
        """Return a copy of a tree that another thread can fetch and write."""
        return _copy(local(tree))

    def host(self, tree: Any) -> Any:
        """Convert arrays of the runtime or of the user to arrays that JAX takes."""
        return tree

    def fetched(self, tree: Any) -> Any:
        """Return a tree of NumPy arrays. Waits until they are computed."""
        return np.asarray(tree) if isinstance(tree, jax.Array) else jax.device_get(tree)  # device_get takes longer

    def is_ready(self, array: Any) -> bool:
        """Return whether an array is computed."""
        return array.is_ready()

    def are_sound(self, tree: Any) -> bool:
        """Return whether the arrays of a tree still exist and are finite."""
        leaves = jax.tree.leaves(tree)
        floats = [leaf for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating)]
        return not any(leaf.is_deleted() for leaf in leaves) and (not floats or bool(_all_finite(floats)))


class EmittedRuntime(Runtime):
    """Runs the programs of training as source code that mithril_nb emits for another array library, such as PyTorch."""

    def __init__(self, model: EmittedModel):
        super().__init__(model.traced)
        self.emitted, self.backend = model, model.backend

    def precision(self) -> AbstractContextManager[object]:
        """Return a context in which JAX traces with the dtypes of the backend."""
        return precision(self.backend)

    def compiled(
        self,
        function: Callable[..., Any],
        name: str,
        *,
        donated: tuple[int, ...] = (),
        key_argument: int | None = None,
    ) -> Callable[..., Any]:
        """Return a function as a program in emitted source, which takes and returns arrays of the library."""
        return self.emitted.emitted(function, name, key_argument=key_argument)

    def arrays(self, tree: Any) -> Any:
        """Convert JAX arrays to arrays of the library."""
        with self.backend.on_device():
            return jax.tree.map(lambda leaf: self.backend.from_numpy(numbers(leaf)), tree)

    def rate(self, rate: float) -> Any:
        """Return a learning rate as an argument of a step."""
        with self.backend.on_device():
            return self.backend.tensor(rate)

    def copied(self, tree: Any) -> Any:
        """Return the tree unchanged."""
        return tree  # emitted programs never overwrite their arguments

    def restorer(self, tree: Any) -> Callable[[], Any]:
        """Copy a tree to the memory of the host; return a function that restores it."""
        copies = self.fetched(tree)
        return lambda: self.arrays(copies)

    def lent(self, tree: Any) -> Any:
        """Return a copy: arrays of most libraries can be changed in place."""
        return jax.tree.map(self.backend.copied, tree)

    def saved(self, tree: Any) -> Any:
        """Return a copy of a tree that another thread can write."""
        return self.fetched(self.lent(tree))

    def host(self, tree: Any) -> Any:
        """Convert arrays of the library to NumPy arrays; return other arrays unchanged."""
        backend = self.backend
        return jax.tree.map(lambda leaf: backend.to_numpy(leaf) if backend.is_own(leaf) else leaf, tree)

    def fetched(self, tree: Any) -> Any:
        """Return a tree of NumPy arrays."""
        return jax.tree.map(self.backend.to_numpy, tree)

    def is_ready(self, array: Any) -> bool:
        """Return True. Emitted programs return computed arrays, or arrays that `fetched` waits for."""
        return True

    def are_sound(self, tree: Any) -> bool:
        """Return whether the arrays of a tree are finite."""
        arrays = [np.asarray(self.backend.to_numpy(leaf)) for leaf in jax.tree.leaves(tree)]
        return all(np.isfinite(array).all() for array in arrays if array.dtype.kind == "f")


def runtime_of(model: Trainable | EmittedModel) -> Runtime:
    """Return the runtime that trains a model."""
    if not isinstance(model, EmittedModel):
        return Runtime(model)
    if distributed().count > 1:
        raise UnknownOptionError(
            f"{type(model.backend).__name__} trains in one process, but {distributed().count} processes are running.",
            (),
            "ml.compile(model, ml.JaxBackend())",
        )
    return EmittedRuntime(model)
