"""`NumpyBackend`: models as NumPy source."""

from __future__ import annotations

from mithril_nb.backends.emitted import EmittedBackend


class NumpyBackend(EmittedBackend):
    """Runs models as NumPy source that `pm.source()` returns. JAX derives the gradients, which run as NumPy source too.

    Args:
        dtype: `"float32"` (default) or `"float64"`.
        device: Only `"cpu"`.
        seed: Seed of the random numbers.

    Raises:
        UnknownOptionError: An option does not exist, or NumPy does not have the dtype.
        DeviceNotFoundError: The device is not the CPU.

    Examples:
        >>> backend = NumpyBackend(dtype="float64")
        >>> backend.relu(backend.array([-1.0, 2.0]))
        array([0., 2.])
    """

    name, title, module_name, install = "numpy", "NumPy", "numpy", "pip install numpy"
