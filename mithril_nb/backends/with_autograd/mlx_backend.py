"""`MlxBackend`: models as MLX source."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from mithril_nb.backends.emitted import EmittedBackend


class MlxBackend(EmittedBackend):
    """Runs models with MLX, as source that `pm.source()` returns: forward, and the gradients that JAX derives.

    Args:
        dtype: Only `"float32"`.
        device: `"cpu"` or `"gpu"`; default: MLX's default device.
        seed: Seed of the random numbers.

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
    dtypes = ("float32",)

    def on_device(self) -> AbstractContextManager[object]:
        """Return a context in which the library creates its arrays on the device of the backend."""
        return nullcontext() if self.device is None else self._library.stream(getattr(self._library, self.device))

    def to_numpy(self, array: Any) -> np.ndarray:
        """Return an array as a NumPy array."""
        return np.array(array)

    def _from_numpy(self, array: np.ndarray) -> Any:
        return self._library.array(array)
