"""One emitter for three array libraries: NumPy, PyTorch and MLX."""
