"""`GGMLBackend`: models as GGML graphs."""

from __future__ import annotations

import importlib
from typing import ClassVar

from mithril_nb.backends.emitted import Availability, EmittedBackend


class GGMLBackend(EmittedBackend):
    """Runs models as GGML graphs, built by source that `pm.source()` returns: forward, and the gradients of JAX.

    GGML computes in float32, on arrays of at most four axes. Masks and integers are kept in float32, where integers
    are exact up to 2**24. For NaN, its ReLU returns 0, and its bounds return a bound. Source that GGML cannot express
    is an error before anything runs. Arrays are NumPy's. To install `ggml-python`, pip compiles it for some minutes,
    with a C++ compiler.

    Args:
        dtype: Only `"float32"`.
        device: Only `"cpu"`.
        seed: Seed of the random numbers.

    Raises:
        UnavailableBackendError: `ggml-python` is not installed.
        UnknownOptionError: An option does not exist, or the dtype is another one.
        DeviceNotFoundError: The device is not the CPU.

    Examples:
        >>> import mithril_nb as ml
        >>> if GGMLBackend.available():
        ...     pm = ml.compile(ml.models.Linear(3), GGMLBackend(), shapes={"input": [2, 4]})
        ...     outputs = pm.evaluate(pm.randomize_params(seed=0), {"input": pm.backend.ones(2, 4)})
        ...     assert outputs["output"].shape == (2, 3)
    """

    name, title, module_name, install = "ggml", "ggml-python", "numpy", 'pip install "mithril-nb[ggml]"'
    dtypes: ClassVar[tuple[str, ...]] = ("float32",)

    @classmethod
    def available(cls) -> Availability:
        """Return whether `ggml-python` is installed; else the reason, and the command that installs it."""
        try:
            importlib.import_module("ggml.ggml")
        except (ImportError, OSError):  # OSError: the compiled library is missing
            return Availability(False, "which is not installed", cls.install)
        return Availability(True)
