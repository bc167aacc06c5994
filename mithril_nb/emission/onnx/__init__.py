"""Traced programs as ONNX graphs."""
