"""`GGMLBackend`: models as GGML graphs."""

from __future__ import annotations

import importlib
from typing import ClassVar

from mithril_nb.backends.emitted import Availability, EmittedBackend


class GGMLBackend(EmittedBackend):
    """Runs models as GGML graphs. Source that `pm.source()` returns builds the graphs.

    JAX derives the gradients, and they run as a GGML graph too. Arrays are NumPy arrays with at most four axes. GGML
    computes in float32, also for masks and integers, so integers are exact up to 2**24. GGML does not preserve NaN: its
    ReLU returns 0, and its clamp returns a bound.

    If GGML lacks an operation of the model, `ml.compile` raises an error. If a shape is unknown then, the first
    evaluation raises the error.

    pip compiles `ggml-python` with a C++ compiler, which takes some minutes.

    Args:
        dtype: Only `"float32"`.
        device: Only `"cpu"`.
        seed: Seed of the random numbers.

    Raises:
        UnavailableBackendError: `ggml-python` is not installed.
        UnknownOptionError: An option does not exist, or the dtype is not `"float32"`.
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
        """Return whether `ggml-python` is installed. If not, return a reason and a command that installs it."""
        try:
            importlib.import_module("ggml.ggml")
        except (ImportError, OSError):  # OSError: the compiled library is missing
            return Availability(False, "which is not installed", cls.install)
        return Availability(True)
