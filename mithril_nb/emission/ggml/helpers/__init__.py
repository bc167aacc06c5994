"""Functions and classes that are copied into emitted GGML source."""
