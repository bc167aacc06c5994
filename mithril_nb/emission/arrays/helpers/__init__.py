"""Helper functions that emitted source contains. Each file runs without this package: it imports one library."""
