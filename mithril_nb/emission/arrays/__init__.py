"""One emitter for the array libraries NumPy, PyTorch, MLX and JAX."""
