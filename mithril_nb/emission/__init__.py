"""Readable source of a traced program in other array libraries: NumPy, PyTorch, MLX, C."""
