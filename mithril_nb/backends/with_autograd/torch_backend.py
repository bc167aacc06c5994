"""`TorchBackend`: models as PyTorch source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import numpy as np

from mithril_nb.backends.backend import check_switch
from mithril_nb.backends.emitted import Arrays, EmittedBackend, check_grads


class TorchBackend(EmittedBackend):
    """Runs models with PyTorch, as source that `pm.source()` returns.

    By default, `torch.autograd` differentiates the emitted forward pass. With `grads="jax"`, or if a custom op of the
    model has a hand-written gradient, JAX derives the gradients, and they run as emitted source.

    Args:
        dtype: `"float32"` (default), `"float64"`, `"float16"` or `"bfloat16"`.
        device: A device of PyTorch: `"cpu"` (default), `"cuda"`, `"cuda:1"`, `"mps"`.
        seed: Seed of the random numbers.
        grads: `"autograd"` (default), or `"jax"`.
        use_amp: True to run matrix products in bfloat16, by `torch.autocast`. Results keep their dtypes.
        compile: True to compile the source with `torch.compile`.

    Raises:
        UnavailableBackendError: PyTorch is not installed.
        UnknownOptionError: An option does not exist, or PyTorch does not have the dtype.
        DeviceNotFoundError: The machine does not have the device.

    Examples:
        >>> available = TorchBackend.available()
        >>> available.is_available or available.install
        True
    """

    name, title, module_name, install = "torch", "PyTorch", "torch", 'pip install "mithril-nb[torch]"'
    dtypes = ("float32", "float64", "float16", "bfloat16")

    def __init__(
        self,
        dtype: Any = None,
        *,
        device: str | None = None,
        seed: int = 0,
        grads: str = "autograd",
        use_amp: bool = False,
        compile: bool = False,
        **unknown: Any,
    ):
        check_grads(type(self).__name__, grads)
        check_switch("use_amp", use_amp)
        check_switch("compile", compile)
        self.grads, self.use_amp, self.compile = grads, use_amp, compile
        super().__init__(dtype, device=device, seed=seed, **unknown)

    def set_device(self, device: str) -> None:
        """Create arrays on another device from now on.

        Raises:
            DeviceNotFoundError: The machine does not have the device.
        """
        self._set_device(device)

    def enable_deterministic(self) -> None:
        """Use only deterministic algorithms of PyTorch, in the whole process."""
        self._library.use_deterministic_algorithms(True)

    def on_device(self) -> AbstractContextManager[object]:
        """Return a context in which the library creates arrays on the device of the backend."""
        stack = ExitStack()
        if self.device is not None:
            stack.enter_context(self._library.device(self.device))
        if self.use_amp:
            kind = str(self.device or "cpu").partition(":")[0]
            stack.enter_context(self._library.autocast(kind, dtype=self._library.bfloat16))
        return stack

    def finished(self, arrays: list[Any], dtypes: Sequence[str]) -> list[Any]:
        """Return the results of an emitted function with the dtypes that JAX traced."""
        # autocast returns bfloat16 from matrix products.
        if not self.use_amp:
            return arrays
        pairs = zip(arrays, dtypes, strict=True)
        return [self._cast(array, dtype) if array.is_floating_point() else array for array, dtype in pairs]

    def differentiate(
        self, function: Callable[[Arrays], dict[str, Any]], params: Arrays, output_gradients: Arrays
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the outputs of a function, and the gradients of its params. `torch.autograd` computes the latter."""
        library = self._library
        with library.enable_grad():
            leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
            outputs = function(leaves)
        names = [name for name, value in outputs.items() if name in output_gradients and value.requires_grad]
        grads: Sequence[Any] = [None] * len(leaves)
        if names and leaves:
            weights = [output_gradients[name].to(outputs[name].dtype) for name in names]
            roots = [outputs[name] for name in names]
            # allow_unused: a parameter that no output uses has no gradient in PyTorch, and zeros in JAX.
            grads = library.autograd.grad(roots, list(leaves.values()), weights, allow_unused=True)
        gradients = {
            name: library.zeros_like(value) if grad is None else grad
            for (name, value), grad in zip(leaves.items(), grads, strict=True)
        }
        detached = {name: value.detach() for name, value in outputs.items()}
        return detached, {name: value.detach() for name, value in gradients.items()}

    def grad(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that computes the gradient of a scalar function with respect to its first argument.

        Examples:
            >>> def gradient():
            ...     backend = TorchBackend()
            ...     return backend.grad(lambda x: backend.sum(x * x))(backend.array([1.0, 2.0])).tolist()
            >>> gradient() if TorchBackend.available() else [2.0, 4.0]
            [2.0, 4.0]
        """

        def gradient(x: Any, *others: Any, **named: Any) -> Any:
            x = self.as_own(x).detach().requires_grad_()
            with self._library.enable_grad():
                value = function(x, *others, **named)
            # A constant function: PyTorch raises an error, and JAX returns zeros.
            if not value.requires_grad:
                return self._library.zeros_like(x)
            (grad,) = self._library.autograd.grad(value, x)
            return grad

        return gradient

    def to_numpy(self, array: Any) -> np.ndarray:
        """Return a tensor as a NumPy array. A tensor of bfloat16 is converted to float32."""
        # A leaf that requires a gradient, or a tensor on a GPU, cannot be read by NumPy.
        if not hasattr(array, "detach"):
            return np.asarray(array)
        array = array.detach().cpu()
        return (array.float() if array.dtype == self._library.bfloat16 else array).numpy()

    def spec_dtype(self, array: Any) -> str:
        """Return the dtype with which JAX traces a program for an array of the library."""
        dtype = self.dtype(array)
        # Emitted source stores uint32 in int64 tensors. JAX itself uses int64 only in float64 models.
        return "uint32" if dtype == "int64" and self.default_dtype != "float64" else dtype

    def copied(self, array: Any) -> Any:
        """Return a copy of an array of the library."""
        return array.clone()

    def _cast(self, array: Any, dtype: str) -> Any:
        return array.to(getattr(self._library, dtype))

    def _from_numpy(self, array: np.ndarray) -> Any:
        # PyTorch supports little arithmetic on uint32, so emitted source stores uint32 in int64 tensors.
        array = array.astype(np.int64) if array.dtype == np.uint32 else np.array(array)
        return self._library.tensor(array, device=self.device)

    def _reduction(self, name: str) -> Callable[..., Any]:
        function = getattr(self._library, {"max": "amax", "min": "amin"}.get(name, name))

        def reduce(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
            axes = tuple(range(x.ndim)) if axis is None else axis
            # torch.prod takes one axis; amax and amin, unlike max and min, take several, and return no indices.
            if name == "prod" and axis is None:
                return function(x)
            return function(x, dim=axes, keepdim=keepdims)

        return reduce

    def _permuted(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.permute(*axes)

    def _concat(self, arrays: list[Any], axis: int) -> Any:
        return self._library.cat(arrays, dim=axis)
