"""`CBackend`: models as C source, compiled by the system's compiler."""

from __future__ import annotations

import os
import shutil

from mithril_nb.backends.emitted import Availability, EmittedBackend
from mithril_nb.errors import UnavailableBackendError


def compiler() -> str:
    """Return the path of the C compiler: the program in the environment variable CC, else `cc`."""
    name = os.environ.get("CC") or "cc"
    path = shutil.which(name)
    if path is None:
        raise UnavailableBackendError(
            "there is no C compiler on this machine.",
            (("looked for", name),),
            "apt-get install gcc  # macOS: xcode-select --install",
        )
    return path


class CBackend(EmittedBackend):
    """Runs models as C source that `pm.source()` returns. JAX derives the gradients, and they run as C source too.

    The first evaluation with new shapes compiles the source with the C compiler in the environment variable CC, else
    with `cc`. Arrays are NumPy arrays.

    Args:
        dtype: `"float32"` (default) or `"float64"`.
        device: Only `"cpu"`.
        seed: Seed of the random numbers.

    Raises:
        UnavailableBackendError: There is no C compiler.
        UnknownOptionError: An option does not exist, or C source does not support the dtype.
        DeviceNotFoundError: The device is not the CPU.

    Examples:
        >>> import mithril_nb as ml
        >>> pm = ml.compile(ml.models.Linear(3), CBackend(), shapes={"input": [2, 4]})
        >>> pm.evaluate(pm.randomize_params(seed=0), {"input": pm.backend.ones(2, 4)})["output"].shape
        (2, 3)
    """

    name, title, module_name = "c", "a C compiler", "numpy"
    install = "apt-get install gcc  # macOS: xcode-select --install"

    @classmethod
    def available(cls) -> Availability:
        """Return whether there is a C compiler. If not, return a reason and a command that installs one."""
        try:
            compiler()
        except UnavailableBackendError:
            return Availability(False, "which is not installed", cls.install)
        return Availability(True)
