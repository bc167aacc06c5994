"""Starting a training script on several processes, which find each other through `jax.distributed`."""

from mithril_nb.launch.launcher import launch

__all__ = ["launch"]
