"""Typical programs of many families, used by the tests and the benchmarks of the stages."""

from __future__ import annotations

from benchmarks.corpus import control_flow, convolutional, libraries, networks, ours, sharded, transformers
from benchmarks.corpus.program import Make, Program

__all__ = ["Make", "Program", "corpus"]


def corpus(full: bool = False) -> dict[str, Make]:
    """Return the programs by name; each is created on demand.

    Args:
        full: Whether to use benchmark sizes instead of small ones for tests. The names are the same.

    Returns:
        For each name, a function without arguments that returns a function and the specs of its arguments. Programs
        whose names start with `sharded` need 8 devices, e.g. `XLA_FLAGS=--xla_force_host_platform_device_count=8`.

    Examples:
        >>> step, args = corpus()["MLP, train step"]()
        >>> args[-1].shape
        (4, 3)
    """
    families = (networks, convolutional, transformers, control_flow, libraries, ours, sharded)
    return {name: make for family in families for name, make in family.programs(full).items()}
