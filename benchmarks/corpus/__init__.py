"""Programs of many families, as people write them: what the tests and the benchmarks of the stages are run on."""

from __future__ import annotations

from benchmarks.corpus import control_flow, convolutional, libraries, networks, ours, sharded, transformers
from benchmarks.corpus.program import Make, Program

__all__ = ["Make", "Program", "corpus"]


def corpus(full: bool = False) -> dict[str, Make]:
    """Return the programs by name; nothing is made before one is asked for.

    Args:
        full: Whether in the size that benchmarks want, rather than the small one for tests. The names are the same.

    Returns:
        For each name a function without arguments that gives a function and the specs of its arguments. Those whose
        name starts with `sharded` want 8 devices, as `XLA_FLAGS=--xla_force_host_platform_device_count=8` gives.

    Examples:
        >>> step, args = corpus()["MLP, train step"]()
        >>> args[-1].shape
        (4, 3)
    """
    families = (networks, convolutional, transformers, control_flow, libraries, ours, sharded)
    return {name: make for family in families for name, make in family.programs(full).items()}
