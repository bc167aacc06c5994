"""`MlxBackend`: models as MLX source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from mithril_nb.backends.backend import check_switch
from mithril_nb.backends.emitted import Arrays, EmittedBackend, check_grads


class MlxBackend(EmittedBackend):
    """Runs models with MLX, as source that `pm.source()` returns.

    By default, `mx.vjp` differentiates the emitted forward pass. With `grads="jax"`, or if a custom op of the model has
    a hand-written gradient, JAX derives the gradients, and they run as emitted source.

    Args:
        dtype: `"float32"` (default), `"float16"` or `"bfloat16"`.
        device: `"cpu"` or `"gpu"`; default: MLX's default device.
        seed: Seed of the random numbers.
        default_dtype: The same as `dtype`.
        grads: `"autograd"` (default), or `"jax"`.
        compile: True to compile the source with `mx.compile`.

    Raises:
        UnavailableBackendError: MLX is not installed.
        UnknownOptionError: An option does not exist, or MLX does not have the dtype.
        DeviceNotFoundError: The machine does not have the device.

    Examples:
        >>> available = MlxBackend.available()
        >>> available.is_available or available.install
        True
    """

    name, title, module_name, install = "mlx", "MLX", "mlx.core", 'pip install "mithril-nb[mlx]"'
    dtypes = ("float32", "float16", "bfloat16")

    def __init__(
        self,
        dtype: Any = None,
        *,
        device: str | None = None,
        seed: int = 0,
        default_dtype: Any = None,
        grads: str = "autograd",
        compile: bool = False,
        **unknown: Any,
    ):
        check_grads(type(self).__name__, grads)
        check_switch("compile", compile)
        self.grads, self.compile = grads, compile
        super().__init__(default_dtype if dtype is None else dtype, device=device, seed=seed, **unknown)

    def set_default_device(self, device: str) -> None:
        """Run on another device from now on: `"cpu"` or `"gpu"`.

        Raises:
            DeviceNotFoundError: The machine does not have the device.
        """
        self._set_device(device)

    def on_device(self) -> AbstractContextManager[object]:
        """Return a context in which the library creates arrays on the device of the backend."""
        return nullcontext() if self.device is None else self._library.stream(getattr(self._library, self.device))

    def finished(self, arrays: list[Any], dtypes: Sequence[str]) -> list[Any]:
        """Compute the results of an emitted function, and return them. Without this, MLX computes them on access."""
        self._library.eval(arrays)
        return arrays

    def differentiate(
        self, function: Callable[[Arrays], dict[str, Any]], params: Arrays, output_gradients: Arrays
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the outputs of a function, and the gradients of its params. `mx.vjp` computes both."""
        library, names, others = self._library, list[str](), dict[str, Any]()

        def flat(*arrays: Any) -> list[Any]:
            outputs = function(dict(zip(params, arrays, strict=True)))
            # An integer output has no cotangent: it leaves through the closure.
            names[:] = [name for name, value in outputs.items() if library.issubdtype(value.dtype, library.floating)]
            others.update({name: value for name, value in outputs.items() if name not in names})
            return [outputs[name] for name in names]

        expected = function(params)
        weights = [
            output_gradients[name].astype(value.dtype) if name in output_gradients else library.zeros_like(value)
            for name, value in expected.items()
            if library.issubdtype(value.dtype, library.floating)
        ]
        values, gradients = library.vjp(flat, list(params.values()), weights)
        # MLX is lazy: one evaluation of both shares the forward pass.
        library.eval(values, gradients)
        outputs = {**others, **dict(zip(names, values, strict=True))}
        return {name: outputs[name] for name in expected}, dict(zip(params, gradients, strict=True))

    def grad(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that computes the gradient of a scalar function with respect to its first argument.

        Examples:
            >>> def gradient():
            ...     backend = MlxBackend()
            ...     return backend.grad(lambda x: backend.sum(x * x))(backend.array([1.0, 2.0])).tolist()
            >>> gradient() if MlxBackend.available() else [2.0, 4.0]
            [2.0, 4.0]
        """
        return self._library.grad(function)

    def to_numpy(self, array: Any) -> np.ndarray:
        """Return an array as a NumPy array. An array of bfloat16 is converted to float32."""
        # NumPy has no bfloat16.
        if self.is_own(array) and array.dtype == self._library.bfloat16:
            array = array.astype(self._library.float32)
        return np.array(array)

    def _from_numpy(self, array: np.ndarray) -> Any:
        return self._library.array(array)
