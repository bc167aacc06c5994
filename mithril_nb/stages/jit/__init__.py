"""Functions that JAX compiles: their wrappers, and the events of their compilations."""
