"""Run a training script on several processes, which connect through `jax.distributed`."""

from mithril_nb.compilation.launch.launcher import launch

__all__ = ["launch"]
