"""Backends: the only packages that depend on an array library. Each is imported on first use."""
