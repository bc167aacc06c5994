"""Programs that do not start as a Python function, but as StableHLO, as HLO, or as a result of JAX."""
