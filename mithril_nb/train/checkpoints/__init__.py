"""Checkpoints of a run: options, writing, reading, and the lock of their folder."""
