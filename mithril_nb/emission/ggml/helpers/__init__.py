"""Helper functions and classes that emitted GGML source contains."""
