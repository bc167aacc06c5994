"""Backends of the Mithril documentation that are not implemented yet. They import, but raise when constructed."""

from __future__ import annotations

from typing import Any

from mithril_nb.backends.backend import Backend
from mithril_nb.errors import UnavailableBackendError


def absent(name: str, library: str) -> type[Backend]:
    """Return a backend class that raises when constructed, because it is not implemented yet."""

    class Absent(Backend):
        __doc__ = f"Runs models with {library}; not implemented yet."

        def __init__(self, *args: Any, **options: Any):
            raise UnavailableBackendError(
                f"{name} is not implemented yet: models run on JAX only.",
                (("needs", f"{library}, and kernels that this version of mithril_nb does not have"),),
                "ml.JaxBackend()",
            )

        def tensor(self, data: Any, dtype: Any = None) -> Any: ...
        def zeros(self, *shape: Any, dtype: Any = None) -> Any: ...
        def ones(self, *shape: Any, dtype: Any = None) -> Any: ...

    Absent.__name__ = Absent.__qualname__ = name
    return Absent


TorchBackend = absent("TorchBackend", "PyTorch")
MlxBackend = absent("MlxBackend", "MLX")
NumpyBackend = absent("NumpyBackend", "NumPy")
CBackend = absent("CBackend", "a C compiler")
GGMLBackend = absent("GGMLBackend", "GGML")
