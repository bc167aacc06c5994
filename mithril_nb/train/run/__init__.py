"""One training run: its handle, its loop, and the record of its steps."""
