"""Emit a traced program as readable source for NumPy, PyTorch, MLX, C, GGML and ONNX."""
