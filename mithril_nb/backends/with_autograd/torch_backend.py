"""`TorchBackend`: models as PyTorch source."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from mithril_nb.backends.emitted import EmittedBackend


class TorchBackend(EmittedBackend):
    """Runs models with PyTorch, as source that `pm.source()` returns: forward, and the gradients that JAX derives.

    Args:
        dtype: `"float32"` (default) or `"float64"`.
        device: A device of PyTorch: `"cpu"` (default), `"cuda"`, `"cuda:1"`, `"mps"`.
        seed: Seed of the random numbers.

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

    def on_device(self) -> AbstractContextManager[object]:
        """Return a context in which the library creates its arrays on the device of the backend."""
        return nullcontext() if self.device is None else self._library.device(self.device)

    def to_numpy(self, array: Any) -> np.ndarray:
        """Return a tensor as a NumPy array."""
        return array.detach().cpu().numpy() if hasattr(array, "detach") else np.asarray(array)

    def _from_numpy(self, array: np.ndarray) -> Any:
        # PyTorch does little arithmetic on uint32, so emitted source keeps its values in int64.
        array = array.astype(np.int64) if array.dtype == np.uint32 else np.array(array)
        return self._library.tensor(array, device=self.device)

    def _reduction(self, name: str) -> Callable[..., Any]:
        function = getattr(self._library, {"max": "amax", "min": "amin"}.get(name, name))

        def reduce(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
            axes = tuple(range(x.ndim)) if axis is None else axis
            if name == "prod" and axis is None:
                return function(x)
            return function(x, dim=axes, keepdim=keepdims)

        return reduce

    def _permuted(self, x: Any, axes: tuple[int, ...]) -> Any:
        return x.permute(*axes)

    def _concat(self, arrays: list[Any], axis: int) -> Any:
        return self._library.cat(arrays, dim=axis)
