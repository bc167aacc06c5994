"""Source over ggml-python: `ggml_stage`, `GGMLBackend`, and `.gguf` files."""
